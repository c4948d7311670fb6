//! A complete message, and what is known of its way.

use super::attribution::Delay;
use crate::frames::MessageBuf;
use crate::units::{Duration, Instant};

/// What the sender of a message says of when it was sent, on a clock that is not this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its logical arrival.
    pub logical_arrival: Instant,
    /// How long before that its application sent it, to a microsecond.
    pub ahead: Duration,
    /// The epoch of that clock.
    pub epoch: u8,
}

/// A message on its way to the application.
#[derive(Debug)]
pub struct Delivered {
    /// The message; hand the buffer back when it has been read.
    pub message: MessageBuf,
    /// Its number, from 0.
    pub sequence: u64,
    /// Its logical arrival: at the sender if the clock is the same, else at this host, with the last of its packets.
    pub logical_arrival: Instant,
    /// How long before that its application sent it, by the sender's word, to a microsecond. Zero where the clocks differ.
    pub ahead: Duration,
    /// What the sender says, where the clocks differ.
    pub said: Option<Said>,
    /// How long it may take from its logical arrival; `None` for best effort.
    pub allowed: Option<Duration>,
    /// The least that it took from there, where the clocks differ; zero if that is not known.
    pub least: Duration,
    /// When it was complete.
    pub completion: Instant,
    /// When it was due; `None` for best effort.
    pub deadline: Option<Instant>,
    /// How much later it was due at this host than it could have been, because messages before it came late: their intervals
    /// are kept, so that what is due here stays what was admitted. Zero where the clocks differ: there it moves the deadline.
    /// What held those up is evidence for this one, too.
    pub deferred: Duration,
    /// From when on a gap at this host may have delayed it: its logical arrival, or that of the messages that deferred it.
    pub since: Instant,
    /// Until when this host had to be done with it, counted from when it was found.
    pub due_here: Instant,
    /// What is known of why it may be late.
    pub delay: Delay,
}

/// Where the time of a message went, from its application's call until it was complete: [`Delivered::latency`], cut at the last of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Until the packet was handed to the sender's link, to a microsecond.
    pub sending: Duration,
    /// From there until it had arrived at this host.
    pub transit: Duration,
    /// From there until it was found.
    pub waiting: Duration,
    /// From there until the message was complete.
    pub receiving: Duration,
}

impl Delivered {
    /// Where its time went; `None` where the clocks differ, of a message that was sent before its logical arrival, from which its sender counts, and where
    /// frames have no arrival stamp.
    pub fn segments(&self) -> Option<Segments> {
        let comparable = self.said.is_none() && self.ahead.is_zero();
        let (sending, transit, waiting) = self.delay.way.segments().filter(|_| comparable)?;
        let receiving = self.latency().saturating_sub(sending + transit + waiting);
        Some(Segments { sending, transit, waiting, receiving })
    }
    /// When its application sent it.
    pub fn sent(&self) -> Instant {
        self.logical_arrival.before(self.ahead)
    }
    /// From when its application sent it until it was complete.
    pub fn latency(&self) -> Duration {
        self.completion.since(self.sent())
    }
    /// From its logical arrival until it was complete, zero if it was complete before: what deadline and bound limit.
    pub fn response(&self) -> Duration {
        self.completion.since(self.logical_arrival)
    }
    /// How long after its deadline it was complete, where the clocks differ at least; zero if in time, or if that is not known.
    pub fn lateness(&self) -> Duration {
        match (self.said, self.allowed) {
            (Some(_), Some(allowed)) => self.least.saturating_sub(allowed),
            _ => self.deadline.map_or(Duration::ZERO, |deadline| self.completion.since(deadline)),
        }
    }
    /// How long after its bound it was complete, if it was in time; zero if it was within the bound, or late, or if the clocks differ: then that is
    /// known later ([`Decision`](super::Decision)). The bound is `spare` before the deadline; what messages before it deferred it by is not counted.
    pub fn beyond_bound(&self, spare: Duration) -> Duration {
        match self.deadline {
            Some(deadline) if self.said.is_none() && self.completion <= deadline => {
                self.completion.since(deadline.before(spare)).saturating_sub(self.deferred)
            }
            _ => Duration::ZERO,
        }
    }
}
