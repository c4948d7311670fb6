//! `laxity recv`: the messages of one channel to standard output.

use std::io::{self, BufWriter};
use std::net::IpAddr;
use std::time::Duration as StdDuration;

use clap::Args;
use laxity::snapshot::ChannelSnapshot;
use laxity::{DEFAULT_PORT, Error, Grant, Host, ListenConfig, Listener, Message, Receiver};
use laxity_core::units::{Duration, Instant};
use laxity_lab::figures::promises_kept;

use crate::costs::in_words;
use crate::failure::{Failure, with_file};
use crate::framing::{FramingError, Writer};
use crate::host::HostArguments;
use crate::line::{say_executive, say_notes};
use crate::link::early_lines;
use crate::pipe::{PipeArguments, publish};
use crate::progress::Progress;
use crate::report;
use crate::stop::{Output, Stop};
use crate::values::everywhere;

#[derive(Debug, Args)]
pub(crate) struct RecvArguments {
    /// The channel's name: 1 to 64 printable ASCII characters without space and /
    pub(crate) name: String,
    /// The address of the only host that may send; for others the name does not exist
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) pipe: PipeArguments,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// How often a wait looks whether Ctrl-C was pressed.
const LOOK: StdDuration = StdDuration::from_millis(100);
/// How long a channel that is closed here is waited for.
const LAST_REPORT: StdDuration = StdDuration::from_secs(1);

/// Receives one channel to its end, or until Ctrl-C; true if no promise was broken.
pub(crate) fn run(arguments: &RecvArguments) -> Result<bool, Failure> {
    let config = arguments.host.config(everywhere(), DEFAULT_PORT, format!("recv {}", arguments.name))?;
    let stop = Stop::on_signals()?;
    let mut host = arguments.host.start(config)?;
    arguments.host.prepare();
    let begin = laxity_link::sys::now();
    let mut ended = Vec::new();
    // Once for each executive.
    let received = loop {
        say_notes(&host);
        match receive(&host, arguments, &stop, &mut ended) {
            // Told to end, as that one was.
            Err(Failure::Laxity(gone)) if gone.is_of_lost_executive() && stop.is_set() => break Ok(()),
            Err(Failure::Laxity(gone)) if gone.is_of_lost_executive() => {
                eprintln!("{gone}");
                match host.reattach() {
                    Ok(is_here) => say_executive(&host, is_here),
                    Err(error) => break Err(error.into()),
                }
            }
            received => break received,
        }
    };
    let peer = ended.last().map(|(channel, _)| channel.peer);
    let mut snapshot = host.snapshot();
    // Those of all executives.
    snapshot.channels = ended.iter().map(|(channel, _)| channel.clone()).collect();
    let written = publish(&report::run("recv", peer, &snapshot), &arguments.pipe, true, || {
        for (channel, elapsed) in &ended {
            eprintln!("{}", report::table(std::slice::from_ref(&channel.figures), *elapsed));
        }
        let lines = match ended.last() {
            None => {
                eprintln!("no sender came");
                early_lines(snapshot.early.as_ref(), laxity_link::sys::now().since(begin))
            }
            Some((_, elapsed)) => report::told(&host, &snapshot, *elapsed),
        };
        lines.iter().for_each(|line| eprintln!("{line}"));
    });
    let is_broken = ended.iter().any(|(channel, _)| snapshot.premises.are_broken_with(channel.peer));
    let is_kept = promises_kept(ended.iter().map(|(channel, _)| &channel.figures)) && !is_broken;
    with_file(received.map(|()| is_kept), written)
}

/// A channel that was received, and for how long.
type EndedChannel = (ChannelSnapshot, Duration);

/// Receives one channel to its end, or until Ctrl-C, on the executive that there is.
fn receive(host: &Host, arguments: &RecvArguments, stop: &Stop, ended: &mut Vec<EndedChannel>) -> Result<(), Failure> {
    let listener =
        host.listen_with(&arguments.name, ListenConfig { from: arguments.from, ..ListenConfig::default() })?;
    eprintln!("receiving {} on {}", arguments.name, host.address());
    let Some((mut receiver, start, first)) = serve(&listener, stop)? else { return Ok(()) };
    drop(listener);
    let progress = Progress::of_receiver(receiver.watch());
    let copied = copy(&mut receiver, first, arguments, stop);
    drop(progress);
    let elapsed = laxity_link::sys::now().since(start).max(Duration::from_nanos(1));
    // After Ctrl-C the last messages may still be undecided.
    receiver.finish(LAST_REPORT);
    ended.push((receiver.snapshot(), elapsed));
    copied
}

/// The channel that is copied, when it was accepted, and its first message.
type CopiedChannel = (Receiver, Instant, Option<Message>);

/// A sender that has not sent anything.
struct WaitingSender {
    receiver: Receiver,
    since: Instant,
    /// It was said that it came.
    is_said: bool,
}

/// Most senders of which it is said that they came, and that they were lost.
const MOST_SAID: u64 = 10;
/// Most senders that may wait at once without having sent anything.
const MOST_WAITING: usize = 64;

/// Waits for the first sender that sends something, or closes. A sender that asks and stays silent takes no place from another one; `None` after
/// Ctrl-C.
fn serve(listener: &Listener, stop: &Stop) -> Result<Option<CopiedChannel>, Failure> {
    let mut came = 0;
    let served = first_to_send(listener, stop, &mut came);
    if came > MOST_SAID {
        eprintln!("{came} senders came in all");
    }
    served
}

/// See [`serve`]. Counts the senders that come: any host can ask, so of the first [`MOST_SAID`] alone it is said what becomes of them, and of the
/// one that sends.
fn first_to_send(listener: &Listener, stop: &Stop, came: &mut u64) -> Result<Option<CopiedChannel>, Failure> {
    let mut waiting: Vec<WaitingSender> = Vec::new();
    // The executive takes no more channels; messages of the channels that are open can still be received.
    let mut gone = None;
    while !stop.is_set() {
        if let Some(gone) = gone.take_if(|_| waiting.is_empty()) {
            return Err(Failure::Laxity(gone));
        }
        // With one sender alone its message is waited for; another one that asks is found later.
        let pause = if waiting.is_empty() { LOOK } else { StdDuration::ZERO };
        if waiting.len() < MOST_WAITING && gone.is_none() {
            match listener.accept(Some(pause)) {
                Ok(receiver) => {
                    *came += 1;
                    let is_said = *came <= MOST_SAID;
                    if is_said {
                        announce(receiver.grant());
                    } else if *came == MOST_SAID + 1 {
                        eprintln!("further senders are only counted");
                    }
                    waiting.push(WaitingSender { receiver, since: laxity_link::sys::now(), is_said });
                }
                Err(Error::WouldBlock) => {}
                Err(error) if error.is_of_lost_executive() => gone = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let look = if waiting.len() == 1 { LOOK } else { StdDuration::from_millis(1) };
        for place in (0..waiting.len()).rev() {
            let first = match waiting[place].receiver.recv_timeout(look) {
                Ok(message) => Some(message),
                Err(Error::Closed) => None,
                Err(Error::WouldBlock) => continue,
                Err(Error::PeerLost { peer }) => {
                    if waiting.swap_remove(place).is_said {
                        eprintln!("lost {peer} before it sent anything: waiting for another sender");
                    }
                    continue;
                }
                Err(error) if error.is_of_lost_executive() => {
                    waiting.swap_remove(place);
                    gone = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let WaitingSender { receiver, since, is_said } = waiting.swap_remove(place);
            if !is_said {
                announce(receiver.grant());
            }
            return Ok(Some((receiver, since, first)));
        }
    }
    Ok(None)
}

fn announce(grant: &Grant) {
    let peer = grant.peer;
    match grant.deadline {
        Some(deadline) => {
            eprintln!(
                "{peer} sends: every message within {deadline} of its logical arrival ({})",
                in_words(&grant.guarantee)
            );
        }
        None => eprintln!("{peer} sends as best effort"),
    }
}

/// Copies `first` and the messages after it until the sender closes, or Ctrl-C. A reader that goes away ends the command as Ctrl-C does.
fn copy(
    receiver: &mut Receiver,
    mut first: Option<Message>,
    arguments: &RecvArguments,
    stop: &Stop,
) -> Result<(), Failure> {
    let output = BufWriter::with_capacity(1 << 16, Output::new(stop.clone()));
    let mut writer = Writer::new(output, arguments.pipe.framing);
    let mut explained = 0;
    let mut copied = || -> Result<(), Failure> {
        while !stop.is_set() {
            // Messages that are there are written together; the pipe is flushed when there are no more.
            let next = match first.take().map_or_else(|| receiver.try_recv(), Ok) {
                Err(Error::WouldBlock) => {
                    writer.flush()?;
                    receiver.recv_timeout(LOOK)
                }
                other => other,
            };
            match next {
                Ok(message) => {
                    explain(&message, &mut explained);
                    writer.write(&message)?;
                }
                Err(Error::WouldBlock) => {}
                Err(Error::Closed) => break,
                Err(error) => {
                    let _ = writer.flush();
                    return Err(error.into());
                }
            }
        }
        Ok(writer.flush()?)
    };
    match copied() {
        Err(Failure::Framing(FramingError::Io { source, .. })) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says of a message that was late, or over its bound, by how much, whose fault that is, and on what the judgement rests; of the
/// first few only.
fn explain(message: &Message, explained: &mut u32) {
    const MOST: u32 = 10;
    let (what, evidence) = match (message.evidence(), message.over_bound()) {
        (Some(evidence), _) => ("late", evidence),
        (None, Some(evidence)) => ("over its bound", evidence),
        (None, None) => return,
    };
    *explained += 1;
    if *explained <= MOST {
        eprintln!(
            "message {}: {} {what}, cause {:?} (more than granted: by Laxity {}, the network {}, the platform {}, unknown {})",
            message.sequence(),
            evidence.lateness,
            evidence.cause,
            evidence.laxity,
            evidence.network,
            evidence.platform,
            evidence.unknown
        );
    }
    if *explained == MOST {
        eprintln!("further ones are only counted");
    }
}
