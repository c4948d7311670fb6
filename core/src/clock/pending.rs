//! Messages of one channel between two clocks that wait to be judged.

use super::peer::PeerClock;
use crate::collections::Ring;
use crate::units::{Duration, Instant};

/// Reports after which a message's interval is final.
const REPORTS: usize = 3;

/// A message that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedMessage {
    /// The instant at which it was sent, on the peer's clock.
    pub sent: Instant,
    /// The instant at which it was complete, on ours.
    pub completed: Instant,
    /// The sender's epoch when it was sent, as its packets say.
    pub epoch: u8,
    /// Our epoch, read after `completed`.
    pub own_epoch: u8,
    /// The least time that it took, in our time, whatever the clocks are: spans that were measured by one clock.
    pub least: Duration,
    /// The longest time that it may take.
    pub deadline: Duration,
    /// Values for the caller, not looked at here.
    pub token: [u32; 2],
}

/// The judgement of a message by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineVerdict {
    /// Its whole interval is within the deadline.
    InTime,
    /// Its whole interval is beyond the deadline.
    Late,
    /// The clocks do not tell.
    Undecided,
}

/// A message whose interval is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedMessage {
    /// The instant at which it was complete, on our clock.
    pub completed: Instant,
    /// The least time that it can have taken.
    pub lower: Duration,
    /// The longest time that it can have taken, if that is known.
    pub upper: Option<Duration>,
    /// The longest time that it may take.
    pub deadline: Duration,
    /// The judgement.
    pub verdict: DeadlineVerdict,
    /// The caller's values.
    pub token: [u32; 2],
}

impl JudgedMessage {
    /// The width of its interval.
    pub fn width(&self) -> Option<Duration> {
        self.upper.map(|upper| upper - self.lower)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// With the least time that it can have taken as it is known.
    message: CompletedMessage,
    /// The era of the bounds that held for it when it was complete, if any did.
    era: Option<u32>,
}

/// The messages of one channel that are complete and not judged yet, in that order.
///
/// A message is judged once it is decided and its interval is not wider than two round trips; else after three reports or four
/// periods. After [`PeerClock::hear`] found an upper bound, and after four periods, the caller asks [`Self::settle`]
/// until that has none, or as often as it can afford: what is left is judged later, as well or better.
pub struct PendingMessages {
    entries: Ring<Entry>,
    /// Those that are late for certain.
    late: usize,
}

impl PendingMessages {
    /// For at most `capacity` messages, one at least. Allocates now and never again.
    pub fn new(capacity: usize) -> Self {
        Self { entries: Ring::with_capacity(capacity.max(1)), late: 0 }
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Messages that wait and were not late when they were added.
    pub fn undecided(&self) -> usize {
        self.entries.len().saturating_sub(self.late)
    }

    /// True if no message waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a message from the peer with this clock, which knows the message's own epoch or one before it. Returns the oldest message, judged with
    /// the present bounds, if there was no room for both.
    pub fn push(&mut self, clock: &PeerClock, message: &CompletedMessage) -> Option<JudgedMessage> {
        let lower = clock.lower_latency(message).unwrap_or_default().max(message.least);
        let CompletedMessage { sent, epoch, own_epoch, .. } = *message;
        let era = clock.is_within(sent, epoch, own_epoch).then_some(clock.era);
        let entry = Entry { message: CompletedMessage { least: lower, ..*message }, era };
        let displaced = if self.entries.is_full() { self.finish(clock) } else { None };
        // There is room now.
        let _ = self.entries.push(entry);
        self.late = self.late.saturating_add(entry.is_late().into());
        displaced
    }

    /// The next message that is judged by `now`, in order.
    pub fn settle(&mut self, clock: &PeerClock, now: Instant) -> Option<JudgedMessage> {
        let front = self.entries.front()?;
        let (judged, reports) = front.judge(clock);
        let is_tight = || {
            let widest = clock.round_trip().unwrap_or_default() * 2;
            judged.verdict != DeadlineVerdict::Undecided && judged.width().is_some_and(|width| width <= widest)
        };
        let is_final = front.era.is_some_and(|era| era != clock.era)
            || reports >= REPORTS
            || now.since(front.message.completed) >= clock.patience()
            || is_tight();
        if is_final {
            self.take();
        }
        is_final.then_some(judged)
    }

    /// The oldest message, judged with the present bounds: nothing more will be heard, or not in time.
    pub fn finish(&mut self, clock: &PeerClock) -> Option<JudgedMessage> {
        self.take().map(|entry| entry.judge(clock).0)
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.entries.pop()?;
        self.late = self.late.saturating_sub(entry.is_late().into());
        Some(entry)
    }
}

impl Entry {
    fn is_late(&self) -> bool {
        self.message.least > self.message.deadline
    }

    /// The interval as it is known now, and how many reports bound it.
    fn judge(&self, clock: &PeerClock) -> (JudgedMessage, usize) {
        let CompletedMessage { sent, completed, epoch, own_epoch, least: lower, deadline, token } = self.message;
        // One that was complete before anything was known may be within what is known now.
        let (upper, reports) = match self.era {
            Some(era) if era == clock.era => clock.upper_latency(sent, completed, false),
            Some(era) if era.wrapping_add(1) == clock.era => clock.upper_latency(sent, completed, true),
            None if clock.is_within(sent, epoch, own_epoch) => clock.upper_latency(sent, completed, false),
            _ => (None, 0),
        };
        // Below the lower end, the premises are broken; which end is right is not known.
        let upper = upper.filter(|&upper| upper >= lower);
        let verdict = match upper {
            _ if self.is_late() => DeadlineVerdict::Late,
            Some(upper) if upper <= deadline => DeadlineVerdict::InTime,
            _ => DeadlineVerdict::Undecided,
        };
        (JudgedMessage { completed, lower, upper, deadline, verdict, token }, reports)
    }
}
