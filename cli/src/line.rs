//! The channel of `laxity send`, on whichever executive there is: if that one's process ends, the next one's.

use std::net::SocketAddr;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity::snapshot::ChannelSnapshot;
use laxity::{ChannelSpec, Coverage, Error, Host, Sender};
use laxity_core::send::SendCounters;

use crate::costs::in_words;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::stop::Stop;

/// How long a receiver may take to be there again.
const TO_RETURN: StdDuration = StdDuration::from_secs(10);
/// How often it is asked for meanwhile.
const LOOK: StdDuration = StdDuration::from_millis(100);

/// A channel that is opened again on the next executive if the process of this one ends.
pub(crate) struct ReopenedChannel {
    pub(crate) host: Host,
    peer: SocketAddr,
    name: String,
    spec: ChannelSpec,
    stop: Stop,
    /// `None` between two executives.
    open: Option<(Sender, Progress)>,
    over: Vec<LineEnd>,
    /// Why no other executive was found.
    failed: Option<Failure>,
}

/// A channel that is over, on one executive.
pub(crate) struct LineEnd {
    pub(crate) channel: ChannelSnapshot,
    pub(crate) covers: Coverage,
    pub(crate) counters: SendCounters,
    /// Messages that may be lost with the executive.
    pub(crate) unresolved: u64,
}

/// What this host does without.
pub(crate) fn say_notes(host: &Host) {
    host.status().notes.iter().for_each(|note| eprintln!("note: {note}"));
}

/// Which executive there is now.
pub(crate) fn say_executive(host: &Host, is_here: bool) {
    match is_here {
        true => eprintln!("this process is the executive now, on {}", host.address()),
        false => eprintln!("attached to the executive of process {}, on {}", host.executive(), host.address()),
    }
}

impl ReopenedChannel {
    pub(crate) fn open(
        host: Host,
        (peer, name): (SocketAddr, &str),
        spec: ChannelSpec,
        stop: Stop,
    ) -> Result<Self, Failure> {
        let mut line =
            Self { host, peer, name: name.to_owned(), spec, stop, open: None, over: Vec::new(), failed: None };
        say_notes(&line.host);
        match line.begin() {
            Err(gone) if gone.is_of_lost_executive() => line.follow(&gone)?,
            begun => begun?,
        }
        Ok(line)
    }

    fn begin(&mut self) -> Result<(), Error> {
        let sender = self.host.open(self.peer, &self.name, self.spec)?;
        if let Some(deadline) = sender.grant().deadline {
            let guarantee = in_words(&sender.grant().guarantee);
            let covered = if sender.grant().covers == Coverage::Host { ", whatever else this host sends" } else { "" };
            eprintln!("granted: every message within {deadline} of its logical arrival{covered} ({guarantee})");
        }
        let progress = Progress::of_sender(sender.watch());
        self.open = Some((sender, progress));
        Ok(())
    }

    /// Sends a message, on the next executive if this one is gone.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        loop {
            let Some((sender, _)) = &mut self.open else { return Err(Error::Closed.into()) };
            match sender.send(message) {
                Err(gone) if gone.is_of_lost_executive() && !self.stop.is_set() => self.follow(&gone)?,
                sent => return Ok(sent?),
            }
        }
    }

    /// Whether nothing can be sent any more; an executive that is gone is followed.
    pub(crate) fn is_over(&mut self) -> bool {
        let Some((sender, _)) = &self.open else { return true };
        match sender.is_open() {
            Ok(()) => false,
            Err(gone) if gone.is_of_lost_executive() && !self.stop.is_set() => {
                self.failed = self.follow(&gone).err();
                self.failed.is_some()
            }
            Err(_) => true,
        }
    }

    /// Whether the channel has ended, however it did.
    pub(crate) fn has_ended(&self) -> bool {
        self.open.as_ref().is_none_or(|(sender, _)| sender.end().is_some())
    }

    /// Finds the next executive, and opens the channel there.
    fn follow(&mut self, gone: &Error) -> Result<(), Failure> {
        // How it ended is what `gone` says.
        let _ = self.end();
        let unresolved = self.over.last().map(|over| over.unresolved);
        let lost = match unresolved.unwrap_or(0) {
            0 => "nothing that was sent is lost with it".to_owned(),
            most => format!("of the messages that were sent last, {most} at most may be lost"),
        };
        eprintln!("{gone}; {lost}");
        let until = StdInstant::now() + TO_RETURN;
        let (mut executive, mut is_waiting) = (None, false);
        loop {
            let is_here = self.host.reattach()?;
            let next = self.host.executive();
            if executive.replace(next) != Some(next) {
                say_executive(&self.host, is_here);
                say_notes(&self.host);
            }
            match self.begin() {
                // The receiver looks for the executive, too.
                Err(error) if error.exit_status() == 5 && StdInstant::now() < until && !self.stop.is_set() => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        eprintln!("waiting for the receiver: {error}");
                    }
                    std::thread::sleep(LOOK);
                }
                begun => return Ok(begun?),
            }
        }
    }

    /// Closes the channel, and adds to what became of it.
    fn end(&mut self) -> Result<(), Error> {
        let Some((mut sender, progress)) = self.open.take() else { return Ok(()) };
        drop(progress);
        let ended = sender.finish().map(drop);
        // Those of this host, whatever comes of it.
        let (counters, unresolved) = (sender.counters(), sender.unresolved());
        let covers = sender.grant().covers;
        self.over.push(LineEnd { channel: sender.snapshot(), covers, counters, unresolved });
        ended
    }

    /// Closes the channel; what became of it on each executive, and how it ended.
    pub(crate) fn close(mut self) -> (Host, Vec<LineEnd>, Result<(), Failure>) {
        let ended = match self.end() {
            // What may be lost with it is counted.
            Err(gone) if gone.is_of_lost_executive() => Ok(()),
            ended => ended.map_err(Failure::from),
        };
        let ended = self.failed.take().map_or(ended, Err);
        (self.host, self.over, ended)
    }
}
