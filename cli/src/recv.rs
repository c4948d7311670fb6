//! `laxity recv`: the messages of one channel to standard output.

use std::io::{self, BufWriter};
use std::time::Duration as StdDuration;

use clap::Args;
use laxity::{DEFAULT_PORT, Error, Host, Listener, Message, Receiver};
use laxity_core::units::Duration;
use laxity_lab::figures::promises_kept;

use crate::costs::in_words;
use crate::failure::Failure;
use crate::framing::{FramingError, Writer};
use crate::host::HostArguments;
use crate::link::early_lines;
use crate::pipe::{PipeArguments, publish};
use crate::progress::Progress;
use crate::report;
use crate::stop::Stop;
use crate::values::everywhere;

#[derive(Debug, Args)]
pub(crate) struct RecvArguments {
    /// The channel's name: printable characters without /
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) pipe: PipeArguments,
    #[command(flatten)]
    pub(crate) host: HostArguments,
}

/// How often a wait looks whether Ctrl-C was pressed.
const LOOK: StdDuration = StdDuration::from_millis(100);

/// Receives one channel to its end, or until Ctrl-C; true if no promise was broken.
pub(crate) fn run(arguments: &RecvArguments) -> Result<bool, Failure> {
    let config = arguments.host.config(everywhere(), DEFAULT_PORT, format!("recv {}", arguments.name))?;
    let stop = Stop::on_signals()?;
    let host = Host::start(config)?;
    let listener = host.listen(&arguments.name)?;
    for note in &host.standing().notes {
        eprintln!("note: {note}");
    }
    eprintln!("receiving {} on {}", arguments.name, host.address());
    let begin = laxity_link::sys::now();
    let Some(mut receiver) = accept(&listener, &stop)? else {
        publish(&report::run("recv", None, &[], &host), &arguments.pipe, true)?;
        if !arguments.pipe.json {
            eprintln!("nobody sent");
            early_lines(&host, laxity_link::sys::now().since(begin)).iter().for_each(|line| eprintln!("{line}"));
        }
        return Ok(true);
    };
    drop(listener);
    let peer = receiver.grant().peer;
    match receiver.grant().bound {
        Some(bound) => {
            let guarantee = in_words(&receiver.grant().guarantee);
            eprintln!("{peer} sends with a guarantee of {bound} ({guarantee})");
        }
        None => eprintln!("{peer} sends as best effort"),
    }
    let start = laxity_link::sys::now();
    let progress = Progress::of_receiver(receiver.watch());
    let ended = copy(&mut receiver, arguments, &stop);
    drop(progress);
    let elapsed = laxity_link::sys::now().since(start);
    let figures = receiver.figures();
    drop(receiver);
    publish(&report::run("recv", Some(peer), &[report::channel(&figures)], &host), &arguments.pipe, true)?;
    let figures = [figures];
    if !arguments.pipe.json {
        eprintln!("{}", report::table(&figures, elapsed.max(Duration::from_nanos(1))));
        report::told(&host, elapsed).iter().for_each(|line| eprintln!("{line}"));
    }
    ended?;
    Ok(promises_kept(&figures))
}

fn accept(listener: &Listener, stop: &Stop) -> Result<Option<Receiver>, Failure> {
    loop {
        match listener.accept(Some(LOOK)) {
            Ok(receiver) => return Ok(Some(receiver)),
            Err(Error::WouldBlock) if stop.is_set() => return Ok(None),
            Err(Error::WouldBlock) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Copies messages until the sender closes, or Ctrl-C. A reader that goes away ends the command as Ctrl-C does.
fn copy(receiver: &mut Receiver, arguments: &RecvArguments, stop: &Stop) -> Result<(), Failure> {
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut writer = Writer::new(output, arguments.pipe.framing);
    let mut explained = 0;
    let mut copied = || -> Result<(), Failure> {
        while !stop.is_set() {
            // Messages that are there are written together; the pipe is flushed when there are no more.
            let next = match receiver.try_recv() {
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
            "message {}: {} {what}, cause {:?} (taken from the sender {}, from this host {}, by the way {})",
            message.sequence(),
            evidence.lateness,
            evidence.cause,
            evidence.taken_at_sender,
            evidence.taken_here,
            evidence.transit_excess
        );
    }
    if *explained == MOST {
        eprintln!("further ones are only counted");
    }
}
