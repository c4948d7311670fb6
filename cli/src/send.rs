//! `laxity send`: standard input, cut into messages, over one channel.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::cell::RefCell;
use std::io::BufReader;

use clap::Args;
use laxity::text::{self, ChannelAddress};
use laxity::{ChannelSpec, DEFAULT_PORT, Error};
use laxity_core::contract::{Contract, Overload};
use laxity_core::figures::Figures;
use laxity_core::send::Violation;
use laxity_lab::figures::promises_kept;

use serde_json::json;

use crate::failure::{Failure, with_file};
use crate::framing::{Framing, Reader};
use crate::host::HostArguments;
use crate::line::{LineEnd, ReopenedChannel};
use crate::link::LinkName;
use crate::pipe::{PipeArguments, publish};
use crate::report::{self, escaped};
use crate::stop::{Input, Stop};
use crate::values::{look_up, named, nearest, option, towards};

#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The receiver: host[:port]/name; a name has no space and no /
    pub(crate) to: String,
    /// The largest message, such as 60KiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_message: String,
    /// The smallest message
    #[arg(long, value_name = "SIZE", default_value = "1B")]
    pub(crate) min_message: String,
    /// The shortest interval between messages in the long run, such as 50ms or 20/s
    #[arg(long, value_name = "SPAN")]
    pub(crate) interval: Option<String>,
    /// How many messages may come together
    #[arg(long, value_name = "MESSAGES", default_value_t = 1)]
    pub(crate) burst: u64,
    /// The longest time from a message's logical arrival until the receiving application has it
    #[arg(long, value_name = "SPAN")]
    pub(crate) deadline: Option<String>,
    /// The fraction of messages, such as 1e-2, that may be late because the platform takes the processor away for longer than expected
    #[arg(long, value_name = "FRACTION")]
    pub(crate) tolerate: Option<String>,
    /// Open a best-effort channel instead: no interval, no deadline, no promise
    #[arg(long, conflicts_with_all = ["interval", "deadline", "burst", "min_message", "tolerate"])]
    pub(crate) best_effort: bool,
    /// Messages that may wait on a best-effort channel
    #[arg(long, value_name = "MESSAGES", default_value_t = 64)]
    pub(crate) queue: u64,
    /// What happens to input beyond the contract
    #[arg(long, value_parser = named(OVERLOADS), default_value = "block")]
    pub(crate) overload: Overload,
    #[command(flatten)]
    pub(crate) pipe: PipeArguments,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// What is done with a message for which the contract has no room.
const OVERLOADS: &[(&str, Overload, &str)] = &[
    ("block", Overload::Block, "Read no further until the contract has room"),
    ("drop", Overload::Drop, "Drop the message and count it"),
    ("decay", Overload::Decay, "Take larger messages too; later ones are due later in proportion"),
];

/// Runs until the input ends, or Ctrl-C; true if no promise was broken.
pub(crate) fn run(arguments: &SendArguments) -> Result<bool, Failure> {
    let spec = specification(arguments)?;
    let to = option("the receiver", &arguments.to, |text| ChannelAddress::parse(text, DEFAULT_PORT))?;
    let limit = input_limit(&spec);
    if let Framing::Fixed(bytes) = arguments.pipe.framing
        && bytes.get() > limit
    {
        let framing = arguments.pipe.framing;
        return Err(Failure::Usage(format!("--framing {framing} is more than --max-message allows ({limit} bytes)")));
    }
    let peer = look_up(&to.host)?;
    // An interface is driven by an address of its own.
    let default = if arguments.host.link.link == LinkName::Udp { towards(peer) } else { nearest(peer) };
    let config = arguments.host.config(default, 0, format!("send {}", to.name.as_str()))?;
    let stop = Stop::on_signals()?;
    let host = arguments.host.start(config)?;
    arguments.host.prepare();
    let line = ReopenedChannel::open(host, (peer, to.name.as_str()), spec, stop.clone())?;
    let start = laxity_link::sys::now();
    let (line, sending) = send_all(line, arguments, &spec, limit, &stop);
    let elapsed = laxity_link::sys::now().since(start);
    let (host, over, closing) = line.close();
    let mut snapshot = host.snapshot();
    // Those of all executives.
    snapshot.channels = over.iter().map(|over| over.channel.clone()).collect();
    let covers = over.last().map(|over| over.covers.to_string());
    let report = report::with(report::run("send", Some(peer), &snapshot), json!({ "covers": covers }));
    let written = publish(&report, &arguments.pipe, false, || {
        over.iter().for_each(summarise);
        report::told(&host, &snapshot, elapsed).iter().for_each(|line| eprintln!("{line}"));
    });
    let ended = match (sending, closing) {
        // There is no channel, as no executive was found: that is why.
        (Err(Failure::Laxity(Error::Closed)), Err(why)) => Err(why),
        (Err(Failure::Laxity(gone)), closing) if gone.is_of_lost_executive() && stop.is_set() => closing,
        (sending, closing) => sending.and(closing),
    };
    // The evidence is at the receiver: here a miss is one, whatever caused it.
    let missed = |figures: &Figures| !figures.best_effort && figures.late + figures.lost + figures.dropped > 0;
    let mut figures = snapshot.channels.iter().map(|channel| &channel.figures);
    let is_kept = promises_kept(figures.clone()) && !figures.any(missed) && !snapshot.premises.are_broken_with(peer);
    with_file(ended.map(|()| is_kept), written)
}

/// Sends the input, and says how that ended.
fn send_all(
    line: ReopenedChannel,
    arguments: &SendArguments,
    spec: &ChannelSpec,
    limit: u32,
    stop: &Stop,
) -> (ReopenedChannel, Result<(), Failure>) {
    let line = RefCell::new(line);
    let input = BufReader::with_capacity(1 << 16, Input::new(stop.clone(), || line.borrow_mut().is_over()));
    let mut reader = Reader::new(input, arguments.pipe.framing, limit);
    let mut message = Vec::with_capacity(limit as usize);
    let sending = loop {
        match reader.next(&mut message) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            // Ctrl-C in the middle of a message ends the input there.
            Err(_) if stop.is_set() || line.borrow().has_ended() => break Ok(()),
            Err(error) => break Err(Failure::from(error)),
        }
        match line.borrow_mut().send(&message) {
            Ok(()) => {}
            // Dropped by the channel's policy, counted and reported.
            Err(Failure::Laxity(Error::Violation(Violation::Burst { .. }))) if spec.overload == Overload::Drop => {}
            Err(error) => break Err(error),
        }
    };
    drop(reader);
    (line.into_inner(), sending)
}

fn specification(arguments: &SendArguments) -> Result<ChannelSpec, Failure> {
    let max_message = option("--max-message", &arguments.max_message, text::size)?;
    let overload = arguments.overload;
    if arguments.best_effort {
        return Ok(ChannelSpec { overload, ..ChannelSpec::best_effort(max_message, arguments.queue)? });
    }
    let (Some(interval), Some(deadline)) = (&arguments.interval, &arguments.deadline) else {
        let missing = if arguments.interval.is_none() { "--interval" } else { "--deadline" };
        return Err(Failure::Usage(format!(
            "{missing} is missing: a guaranteed channel declares its shortest interval and its deadline \
             (or say --best-effort)"
        )));
    };
    let min_message = option("--min-message", &arguments.min_message, text::size)?;
    let interval = option("--interval", interval, text::interval)?;
    let deadline = option("--deadline", deadline, text::duration)?;
    let contract = Contract::new(max_message, min_message, interval, arguments.burst, deadline).map_err(Error::from)?;
    let contract = match &arguments.tolerate {
        Some(fraction) => contract.tolerate(option("--tolerate", fraction, text::fraction)?).map_err(Error::from)?,
        None => contract,
    };
    Ok(ChannelSpec { overload, ..ChannelSpec::real_time(contract) })
}

/// The largest message that is read from the input.
fn input_limit(spec: &ChannelSpec) -> u32 {
    match spec.overload {
        Overload::Decay => spec.service.max_message().saturating_mul(laxity_core::limits::DECAY_FACTOR),
        Overload::Block | Overload::Drop => spec.service.max_message(),
    }
}

fn summarise(LineEnd { channel, counters, .. }: &LineEnd) {
    let (figures, violations) = (&channel.figures, counters.violations);
    let missed = if channel.misses_known { report::missed(figures) } else { "unknown".to_owned() };
    eprintln!(
        "{}: sent {}, delivered {} ({} late), lost {}, dropped {}; missed {}; of a wrong size {}, ahead of the interval {}, \
         beyond the burst {}",
        escaped(&figures.name),
        figures.sent,
        figures.delivered,
        figures.late,
        figures.lost,
        figures.dropped,
        missed,
        violations.size,
        violations.rate,
        violations.burst,
    );
}
