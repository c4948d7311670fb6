//! Messages of one channel between two clocks that wait to be judged.

use super::peer::PeerClock;
use crate::collections::Ring;
use crate::units::{Duration, Instant};

/// Reports after which a message's interval is final.
const REPORTS: usize = 3;

/// A message that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it was sent, on the peer's clock.
    pub sent: Instant,
    /// When it was complete, on ours.
    pub completed: Instant,
    /// The sender's epoch when it was sent, as its packets say.
    pub epoch: u8,
    /// Our epoch, read after `completed`.
    pub own_epoch: u8,
    /// The least that it took whatever the clocks are, in our time: spans that were measured by one clock.
    pub least: Duration,
    /// The most that it may take.
    pub deadline: Duration,
    /// Anything, for the caller.
    pub token: u64,
}

/// The judgement of a message by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its whole interval is within the deadline.
    InTime,
    /// Its whole interval is beyond the deadline.
    Late,
    /// The clocks do not say.
    Undecided,
}

/// A message whose interval is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// When it was complete, on our clock.
    pub completed: Instant,
    /// The least that it can have taken.
    pub lower: Duration,
    /// The most that it can have taken, if that is known.
    pub upper: Option<Duration>,
    /// The most that it may take.
    pub deadline: Duration,
    /// The judgement.
    pub verdict: Verdict,
    /// As it came.
    pub token: u64,
}

impl Judged {
    /// The width of its interval.
    pub fn width(&self) -> Option<Duration> {
        self.upper.map(|upper| upper - self.lower)
    }
}

/// The part of the judgement that is known at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The least that it can have taken.
    pub lower: Duration,
    /// True if that is beyond its deadline. It stays so.
    pub is_late: bool,
    /// The oldest message, judged as it is because there was no room for both.
    pub displaced: Option<Judged>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sent: Instant,
    completed: Instant,
    lower: Duration,
    deadline: Duration,
    token: u64,
    epoch: u8,
    own_epoch: u8,
    /// The era of the bounds that held for it when it was complete, if any did.
    era: Option<u32>,
}

/// The messages of one channel that are complete and not judged yet, in that order.
///
/// A message is judged once it is decided and its interval is not wider than two round trips; else after three reports or four
/// periods. After [`PeerClock::hear`] found an upper bound, and at [`Self::next_due`], the caller asks [`Self::settle`]
/// until that has none, or as often as it can afford: what is left is judged later, as well or better.
#[derive(Debug)]
pub struct Pending {
    entries: Ring<Entry>,
    /// Those that are late for certain.
    late: usize,
}

impl Pending {
    /// For at most `capacity` messages, one at least. Allocates now and never again.
    pub fn new(capacity: usize) -> Self {
        Self { entries: Ring::with_capacity(capacity.max(1)), late: 0 }
    }

    /// The memory that `capacity` messages take.
    pub const fn memory_bytes(capacity: usize) -> usize {
        capacity.saturating_mul(size_of::<Entry>())
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

    /// Adds a message from the peer with this clock, which knows the message's own epoch or one before it.
    pub fn push(&mut self, clock: &PeerClock, message: &Message) -> Pushed {
        let lower = clock.lower_latency(message).unwrap_or_default().max(message.least);
        let entry = Entry {
            sent: message.sent,
            completed: message.completed,
            lower,
            deadline: message.deadline,
            token: message.token,
            epoch: message.epoch,
            own_epoch: message.own_epoch,
            era: clock.is_within(message.sent, message.epoch, message.own_epoch).then(|| clock.era()),
        };
        let displaced = if self.entries.is_full() { self.finish(clock) } else { None };
        // There is room now.
        let _ = self.entries.push(entry);
        let is_late = entry.is_late();
        self.late = self.late.saturating_add(is_late.into());
        Pushed { lower, is_late, displaced }
    }

    /// The next message that is judged by `now`, in order.
    pub fn settle(&mut self, clock: &PeerClock, now: Instant) -> Option<Judged> {
        let front = self.entries.front()?;
        let (judged, reports) = front.judge(clock);
        let is_tight = || {
            let widest = clock.round_trip().unwrap_or_default() * 2;
            judged.verdict != Verdict::Undecided && judged.width().is_some_and(|width| width <= widest)
        };
        let is_final = front.era.is_some_and(|era| era != clock.era())
            || reports >= REPORTS
            || now.since(front.completed) >= clock.patience()
            || is_tight();
        if is_final {
            self.take();
        }
        is_final.then_some(judged)
    }

    /// The oldest message, judged as it is: nothing more will be heard, or not in time.
    pub fn finish(&mut self, clock: &PeerClock) -> Option<Judged> {
        self.take().map(|entry| entry.judge(clock).0)
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.entries.pop()?;
        self.late = self.late.saturating_sub(entry.is_late().into());
        Some(entry)
    }

    /// When the oldest message is judged in any case.
    pub fn next_due(&self, clock: &PeerClock) -> Option<Instant> {
        self.entries.front().map(|entry| entry.completed + clock.patience())
    }
}

impl Entry {
    fn is_late(&self) -> bool {
        self.lower > self.deadline
    }

    /// The interval as it is known now, and how many reports bound it.
    fn judge(&self, clock: &PeerClock) -> (Judged, usize) {
        // One that was complete before anything was known may be within what is known now.
        let (upper, reports) = match self.era {
            Some(era) if era == clock.era() => clock.upper_latency(self.sent, self.completed, false),
            Some(era) if era.wrapping_add(1) == clock.era() => clock.upper_latency(self.sent, self.completed, true),
            None if clock.is_within(self.sent, self.epoch, self.own_epoch) => {
                clock.upper_latency(self.sent, self.completed, false)
            }
            _ => (None, 0),
        };
        // Below the lower end, the premises are broken; which end is right is not known.
        let upper = upper.filter(|&upper| upper >= self.lower);
        let verdict = match upper {
            _ if self.is_late() => Verdict::Late,
            Some(upper) if upper <= self.deadline => Verdict::InTime,
            _ => Verdict::Undecided,
        };
        let Self { completed, lower, deadline, token, .. } = *self;
        (Judged { completed, lower, upper, deadline, verdict, token }, reports)
    }
}
