//! A complete message, and the evidence about its path.

use super::attribution::Delay;
use crate::frames::MessageBuf;
use crate::units::{Duration, Instant};

/// The sender's statement of when a message was sent, on a clock that is not this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderStamps {
    /// Its logical arrival.
    pub logical_arrival: Instant,
    /// The time before that at which its application sent it, to a microsecond.
    pub ahead: Duration,
    /// The epoch of that clock.
    pub epoch: u8,
}

/// A message on its way to the application.
pub struct DeliveredMessage {
    /// The message; hand the buffer back when it has been read.
    pub message: MessageBuf,
    /// Its number, from 0.
    pub sequence: u64,
    /// Its logical arrival: at the sender if the clock is the same, else at this host, with the last of its packets.
    pub logical_arrival: Instant,
    /// The time before that at which its application sent it, by the sender's word, to a microsecond. Zero where the clocks differ.
    pub ahead: Duration,
    /// The sender's statement, where the clocks differ.
    pub stamps: Option<SenderStamps>,
    /// The longest time that it may take from its logical arrival; `None` for best effort.
    pub allowed: Option<Duration>,
    /// The least that it took from there, where the clocks differ; zero if that is not known.
    pub least: Duration,
    /// The time at which it was complete.
    pub completion: Instant,
    /// The time at which it was due; `None` for best effort.
    pub deadline: Option<Instant>,
    /// The time by which its deadline at this host is later than it could have been, because messages before it came late: their intervals
    /// are kept, so that the load here stays as admitted. Zero where the clocks differ: there the deadline itself moves. The causes that
    /// held up those messages are evidence for this one, too.
    pub deferred: Duration,
    /// The time from which a gap at this host may have delayed it: its logical arrival, or that of the messages that deferred it.
    pub since: Instant,
    /// The time by which this host had to be done with it, counted from when it was found.
    pub due_here: Instant,
    /// The evidence of why it may be late.
    pub delay: Delay,
}

/// The parts of a message's time, from its application's call until it was complete: [`DeliveredMessage::latency`], cut at the last of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// The time until the packet was handed to the sender's link, to a microsecond.
    pub sending: Duration,
    /// The time from there until it had arrived at this host.
    pub transit: Duration,
    /// The time from there until it was found.
    pub waiting: Duration,
    /// The time from there until the message was complete.
    pub receiving: Duration,
}

impl DeliveredMessage {
    /// The parts of its time. `None` where the clocks differ, where frames have no arrival stamp, and for a message that was sent before
    /// its logical arrival, from which its sender counts.
    pub fn segments(&self) -> Option<Segments> {
        let comparable = self.stamps.is_none() && self.ahead.is_zero();
        let (sending, transit, waiting) = self.delay.way.segments().filter(|_| comparable)?;
        let receiving = self.latency().saturating_sub(sending + transit + waiting);
        Some(Segments { sending, transit, waiting, receiving })
    }
    /// The time at which its application sent it.
    pub fn sent(&self) -> Instant {
        self.logical_arrival.before(self.ahead)
    }
    /// The time from its application's call until it was complete.
    pub fn latency(&self) -> Duration {
        self.completion.since(self.sent())
    }
    /// The time from its logical arrival until it was complete, zero if it was complete before. Deadline and bound limit this time.
    pub fn response(&self) -> Duration {
        self.completion.since(self.logical_arrival)
    }
    /// The time from its deadline until it was complete, where the clocks differ at least; zero if in time, or if that is not known.
    pub fn lateness(&self) -> Duration {
        match (self.stamps, self.allowed) {
            (Some(_), Some(allowed)) => self.least.saturating_sub(allowed),
            _ => self.deadline.map_or(Duration::ZERO, |deadline| self.completion.since(deadline)),
        }
    }
    /// The time from its bound until it was complete, if it was in time; zero if it was within the bound, or late, or if the clocks differ: then it is
    /// known later ([`FinalJudgement`](super::FinalJudgement)). The bound is `spare` before the deadline; the time by which messages before it deferred it is not counted.
    pub fn beyond_bound(&self, spare: Duration) -> Duration {
        match self.deadline {
            Some(deadline) if self.stamps.is_none() && self.completion <= deadline => {
                self.completion.since(deadline.before(spare)).saturating_sub(self.deferred)
            }
            _ => Duration::ZERO,
        }
    }
}
