//! `laxity send`: standard input, cut into messages, over one channel.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::cell::RefCell;
use std::io::BufReader;

use clap::{Args, ValueEnum};
use laxity::text::{self, ChannelAddress};
use laxity::{ChannelSpec, DEFAULT_PORT, Error};
use laxity_core::contract::{Contract, Overload, Service};
use laxity_core::figures::{Figures, Misses};
use laxity_core::send::Violation;
use laxity_lab::figures::promises_kept;

use serde_json::json;

use crate::failure::Failure;
use crate::framing::{Framing, Reader};
use crate::host::HostArguments;
use crate::line::{Line, Over};
use crate::link::LinkName;
use crate::pipe::{PipeArguments, publish};
use crate::report::{self, escaped};
use crate::stop::{Input, Stop};
use crate::values::{look_up, nearest, option, towards};

#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The receiver: host[:port]/name
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
    /// From a message's logical arrival until the receiving application has it
    #[arg(long, value_name = "SPAN")]
    pub(crate) deadline: Option<String>,
    /// The fraction of messages, such as 1e-2, that may be late because the platform takes the processor for longer than is counted on
    #[arg(long, value_name = "FRACTION")]
    pub(crate) tolerate: Option<String>,
    /// A best-effort channel instead: no interval, no deadline, no promise
    #[arg(long, conflicts_with_all = ["interval", "deadline", "burst", "min_message", "tolerate"])]
    pub(crate) best_effort: bool,
    /// Messages that may wait on a best-effort channel
    #[arg(long, value_name = "MESSAGES", default_value_t = 64)]
    pub(crate) queue: u64,
    /// What happens to input beyond the contract
    #[arg(long, value_enum, default_value_t = OverloadArgument::Block)]
    pub(crate) overload: OverloadArgument,
    #[command(flatten)]
    pub(crate) pipe: PipeArguments,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OverloadArgument {
    /// Read no further until the contract has room
    Block,
    /// Drop the message and count it
    Drop,
    /// Take larger messages too; later ones are due later in proportion
    Decay,
}

impl From<OverloadArgument> for Overload {
    fn from(argument: OverloadArgument) -> Self {
        match argument {
            OverloadArgument::Block => Self::Block,
            OverloadArgument::Drop => Self::Drop,
            OverloadArgument::Decay => Self::Decay,
        }
    }
}

/// Runs until the input ends, or Ctrl-C; true if no promise was broken.
pub(crate) fn run(arguments: &SendArguments) -> Result<bool, Failure> {
    let spec = specification(arguments)?;
    let to = ChannelAddress::parse(&arguments.to, DEFAULT_PORT)
        .map_err(|error| Failure::Option { option: "the receiver", error })?;
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
    let line = Line::open(host, (peer, to.name.as_str()), spec, stop.clone())?;
    let start = laxity_link::sys::now();
    let (line, sending) = send_all(line, arguments, &spec, limit, &stop)?;
    let elapsed = laxity_link::sys::now().since(start);
    let (host, over, closing) = line.close();
    let figures: Vec<Figures> = over.iter().map(figures).collect();
    let told = |over: &Over| over.report.is_some();
    let channels = over.iter().zip(&figures).map(|(over, figures)| match told(over) {
        true => report::channel(figures),
        false => report::channel_without_causes(figures),
    });
    let channels: Vec<_> = channels.collect();
    let report = report::run("send", Some(peer), &channels, &host);
    let covers = over.last().map(|over| over.grant.covers.to_string());
    publish(&report::with(report, json!({ "covers": covers })), &arguments.pipe, false)?;
    if !arguments.pipe.json {
        over.iter().zip(&figures).for_each(|(over, figures)| summarise(figures, over));
        report::told(&figures, &host, elapsed).iter().for_each(|line| eprintln!("{line}"));
    }
    match (sending, closing) {
        // There is no channel, as no executive was found: that is why.
        (Err(Failure::Laxity(Error::Closed)), Err(why)) => return Err(why),
        (Err(Failure::Laxity(gone)), closing) if gone.is_of_lost_executive() && stop.is_set() => closing?,
        (sending, closing) => sending.and(closing)?,
    }
    // The evidence is at the receiver: here a miss is one, whatever caused it.
    let missed = |figures: &Figures| !figures.best_effort && figures.late + figures.lost + figures.dropped > 0;
    Ok(promises_kept(&figures) && !figures.iter().any(missed) && !host.premises().are_broken_with(peer))
}

/// Sends the input, and says how that ended.
fn send_all(
    line: Line,
    arguments: &SendArguments,
    spec: &ChannelSpec,
    limit: u32,
    stop: &Stop,
) -> Result<(Line, Result<(), Failure>), Failure> {
    let line = RefCell::new(line);
    let input = BufReader::with_capacity(1 << 16, Input::new(stop.clone(), || line.borrow_mut().is_over()));
    let mut reader = Reader::new(input, arguments.pipe.framing, limit)?;
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
    Ok((line.into_inner(), sending))
}

fn specification(arguments: &SendArguments) -> Result<ChannelSpec, Failure> {
    let max_message = option("--max-message", &arguments.max_message, text::size)?;
    let overload = arguments.overload.into();
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

/// What this host and the receiver's last report say. What may be lost with an executive counts as lost, by Laxity's fault; what the
/// report of a channel that was closed leaves out, as lost, and nothing tells why.
fn figures(over: &Over) -> Figures {
    let Over { grant, counters, report, unresolved } = over;
    let contract = grant.service.contract();
    let mut figures = Figures {
        name: grant.name.clone(),
        best_effort: matches!(grant.service, Service::BestEffort { .. }),
        sent: counters.accepted,
        lost: *unresolved,
        misses: Misses { laxity: *unresolved, ..Misses::default() },
        deadline: contract.map(Contract::deadline),
        bound: grant.bound,
        ..Figures::default()
    };
    if let Some(report) = report {
        figures.delivered = report.delivered + report.late + report.undecided;
        figures.late = report.late;
        figures.lost = report.lost;
        figures.dropped = report.dropped;
        figures.undecided = report.undecided;
        figures.clock_error = report.clock_error;
        figures.misses = report.misses;
        if !figures.best_effort {
            figures.lost += figures.sent.saturating_sub(figures.delivered + figures.lost + figures.dropped);
            // What no cause was told of.
            figures.misses.unexplained +=
                (figures.late + figures.lost + figures.dropped).saturating_sub(report.misses.all());
        }
        figures.over_bound = report.over_bound;
        figures.response = Some(report.largest);
    }
    figures
}

fn summarise(figures: &Figures, over: &Over) {
    let violations = over.counters.violations;
    let missed = over.report.map_or_else(|| "unknown".to_owned(), |_| report::missed(figures));
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

#[cfg(test)]
mod tests {
    use laxity::{Covers, Grant};
    use laxity_core::send::SendCounters;
    use laxity_core::units::Duration;
    use laxity_core::wire::Counts;

    use super::*;

    /// What is made of a report on a channel on which ten messages were sent.
    fn of(service: Service, report: Option<Counts>) -> Figures {
        let grant = Grant {
            name: "camera".to_owned(),
            peer: "192.0.2.1:5709".parse().unwrap(),
            service,
            stages: Default::default(),
            receive: Duration::ZERO,
            bound: None,
            guarantee: Default::default(),
            covers: Covers::Laxity,
            same_clock: false,
            executive: 1,
        };
        let counters = SendCounters { accepted: 10, ..SendCounters::default() };
        figures(&Over { grant, counters, report, unresolved: 0 })
    }

    fn guaranteed() -> Service {
        let ms = Duration::from_millis;
        Service::RealTime(Contract::new(100, 1, ms(10), 1, ms(50)).unwrap())
    }

    #[test]
    fn what_is_undecided_is_delivered_and_breaks_the_promise() {
        let error = Some(Duration::from_micros(40));
        let report = Counts { delivered: 7, undecided: 3, clock_error: error, ..Counts::default() };
        let figures = of(guaranteed(), Some(report));
        assert_eq!((figures.delivered, figures.undecided, figures.clock_error), (10, 3, error));
        assert_eq!((figures.lost, figures.misses), (0, Misses::default()));
        assert!(!promises_kept(&[figures]));
    }

    #[test]
    fn what_a_report_leaves_out_is_lost_and_unexplained() {
        let network = |network| Misses { network, ..Misses::default() };
        let report = Counts {
            delivered: 4,
            late: 1,
            lost: 1,
            dropped: 1,
            misses: network(2),
            undecided: 1,
            ..Counts::default()
        };
        let told = of(guaranteed(), Some(report));
        assert_eq!((told.delivered, told.late, told.lost, told.dropped), (6, 1, 3, 1));
        assert_eq!(told.misses, Misses { unexplained: 3, ..network(2) }, "one without a cause, two without an end");
        let kept = of(guaranteed(), Some(Counts { delivered: 10, ..Counts::default() }));
        assert!(promises_kept(&[kept]));
        // Nothing was promised, or nothing was reported: nothing is made of it.
        let best_effort = of(Service::best_effort(100, 1).unwrap(), Some(report));
        assert_eq!((best_effort.lost, best_effort.misses), (1, network(2)));
        let silent = of(guaranteed(), None);
        assert_eq!((silent.lost, silent.misses, silent.clock_error), (0, Misses::default(), None));
    }
}
