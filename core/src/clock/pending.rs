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
    /// The least that it took whatever the clocks are: spans that were measured by one clock.
    pub least: Duration,
    /// The most that it may take.
    pub deadline: Duration,
    /// Anything, for the caller.
    pub token: u16,
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
    pub token: u16,
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
    /// The era of the bounds that hold for it, if any do.
    era: Option<u32>,
    token: u16,
}

/// The messages of one channel that are complete and not judged yet, in that order.
///
/// A message is judged once it is decided and its interval is not wider than two round trips; else after three reports or four
/// periods. After [`PeerClock::hear`] found an upper bound, and at [`Self::next_due`], the caller asks [`Self::settle`]
/// until that has none, or as often as it can afford: what is left is judged later, as well or better.
#[derive(Debug)]
pub struct Pending(Ring<Entry>);

impl Pending {
    /// For at most `capacity` messages, one at least. Allocates now and never again.
    pub fn new(capacity: usize) -> Self {
        Self(Ring::with_capacity(capacity.max(1)))
    }

    /// The memory that `capacity` messages take.
    pub const fn memory_bytes(capacity: usize) -> usize {
        capacity.saturating_mul(size_of::<Entry>())
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no message waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a message from the peer with this clock, which knows the message's own epoch or one before it.
    pub fn push(&mut self, clock: &PeerClock, message: &Message) -> Pushed {
        let lower = clock.lower_latency(message).unwrap_or_default().max(message.least);
        let entry = Entry {
            sent: message.sent,
            completed: message.completed,
            lower,
            deadline: message.deadline,
            era: clock.is_within(message).then(|| clock.era()),
            token: message.token,
        };
        let displaced = if self.0.is_full() { self.finish(clock) } else { None };
        // There is room now.
        let _ = self.0.push(entry);
        Pushed { lower, is_late: lower > message.deadline, displaced }
    }

    /// The next message that is judged by `now`, in order.
    pub fn settle(&mut self, clock: &PeerClock, now: Instant) -> Option<Judged> {
        let front = self.0.front()?;
        let (judged, reports) = front.judge(clock);
        let is_tight = || {
            let widest = clock.round_trip().unwrap_or_default() * 2;
            judged.verdict != Verdict::Undecided && judged.width().is_some_and(|width| width <= widest)
        };
        let is_final = front.era != Some(clock.era())
            || reports >= REPORTS
            || now.since(front.completed) >= clock.patience()
            || is_tight();
        if is_final {
            self.0.pop();
        }
        is_final.then_some(judged)
    }

    /// The oldest message, judged as it is: nothing more will be heard, or not in time.
    pub fn finish(&mut self, clock: &PeerClock) -> Option<Judged> {
        self.0.pop().map(|entry| entry.judge(clock).0)
    }

    /// When the oldest message is judged in any case.
    pub fn next_due(&self, clock: &PeerClock) -> Option<Instant> {
        self.0.front().map(|entry| entry.completed + clock.patience())
    }
}

impl Entry {
    /// The interval as it is known now, and how many reports bound it.
    fn judge(&self, clock: &PeerClock) -> (Judged, usize) {
        let (upper, reports) = match self.era == Some(clock.era()) {
            true => clock.upper_latency(self.sent, self.completed),
            false => (None, 0),
        };
        // Below the lower end, the premises are broken; which end is right is not known.
        let upper = upper.filter(|&upper| upper >= self.lower);
        let verdict = match upper {
            _ if self.lower > self.deadline => Verdict::Late,
            Some(upper) if upper <= self.deadline => Verdict::InTime,
            _ => Verdict::Undecided,
        };
        let Self { completed, lower, deadline, token, .. } = *self;
        (Judged { completed, lower, upper, deadline, verdict, token }, reports)
    }
}
