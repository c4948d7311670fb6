//! The figures of one channel: the same shape wherever something is measured, live or simulated.

use alloc::vec::Vec;

pub use crate::cause::Misses;
use crate::receive::ReceiveCounters;
use crate::units::Duration;

/// Latencies of delivered messages, from when the application sent them until they were complete. A percentile with fewer than ten samples beyond it
/// is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Latencies {
    /// The smallest.
    pub min: Option<Duration>,
    /// The median.
    pub p50: Option<Duration>,
    /// One in a hundred is larger.
    pub p99: Option<Duration>,
    /// One in a thousand is larger.
    pub p999: Option<Duration>,
    /// The largest.
    pub max: Option<Duration>,
}

impl Latencies {
    /// Of these, in nanoseconds.
    pub fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let (samples, min, max) = (nanos.len() as u64, nanos.first(), nanos.last());
        Self::new(samples, min.copied().unwrap_or(0), max.copied().unwrap_or(0), |numerator, denominator| {
            nanos[(samples * numerator).div_ceil(denominator).max(1) as usize - 1]
        })
    }

    /// From a source of quantiles: `value_at(numerator, denominator)` is the least value that so large a part of the
    /// `samples` does not exceed.
    pub fn new(samples: u64, min: u64, max: u64, value_at: impl Fn(u64, u64) -> u64) -> Self {
        if samples == 0 {
            return Self::default();
        }
        let known = |numerator: u64, denominator: u64| {
            let beyond = u128::from(samples) * u128::from(denominator - numerator) / u128::from(denominator);
            (beyond >= 10).then(|| Duration::from_nanos(value_at(numerator, denominator)))
        };
        Self {
            min: Some(Duration::from_nanos(min)),
            p50: known(1, 2),
            p99: known(99, 100),
            p999: known(999, 1000),
            max: Some(Duration::from_nanos(max)),
        }
    }
}

/// What happened on one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Figures {
    /// The channel's name.
    pub name: alloc::string::String,
    /// Best effort instead of real-time.
    pub best_effort: bool,
    /// Messages that the sending host accepted.
    pub sent: u64,
    /// Messages that reached the application, late ones included.
    pub delivered: u64,
    /// Bytes in them.
    pub delivered_bytes: u64,
    /// Of these, after the deadline.
    pub late: u64,
    /// Messages that never became complete.
    pub lost: u64,
    /// Messages that were dropped on purpose.
    pub dropped: u64,
    /// Of those delivered, with a deadline, it is not known whether they were in time: two hosts have two clocks.
    pub undecided: u64,
    /// Misses by cause.
    pub misses: Misses,
    /// Completions after the bound though within the deadline.
    pub over_bound: u64,
    /// What was promised; `None` for best effort.
    pub deadline: Option<Duration>,
    /// The largest bound in force.
    pub bound: Option<Duration>,
    /// The largest response: from a message's logical arrival until it was complete. Deadline and bound limit this; a message that is
    /// sent before its logical arrival, by its burst or to catch up, may have a larger latency.
    pub response: Option<Duration>,
    /// Latencies; where the clocks differ, the most that they can have been.
    pub latencies: Latencies,
    /// How uncertain the sender's clock was when a message was judged last: zero if it is the receiver's, `None` if that is not known.
    pub clock_error: Option<Duration>,
}

impl Figures {
    /// True if Laxity broke its promise, or nothing shows that it kept it: it missed messages by its own fault, or it cannot be told by whose, was over its
    /// bound, or there are messages of which it is not known whether they were in time.
    pub fn is_broken(&self) -> bool {
        self.is_at_fault() || self.undecided > 0
    }

    /// True if Laxity missed messages by its own fault, or it cannot be told by whose, or was over its bound: whatever is undecided.
    pub fn is_at_fault(&self) -> bool {
        self.misses.laxity > 0 || self.misses.unexplained > 0 || self.over_bound > 0
    }

    /// True if a real-time channel brought nothing at all: whoever asks for causes of misses has nothing to judge.
    pub fn is_silent(&self) -> bool {
        !self.best_effort && self.delivered == 0
    }

    /// Takes over what the receiver counted.
    pub fn count(&mut self, counters: &ReceiveCounters) {
        self.delivered = counters.delivered;
        self.delivered_bytes = counters.delivered_bytes;
        self.late = counters.late;
        self.lost = counters.lost;
        self.dropped = counters.dropped;
        self.misses = counters.misses;
        self.undecided = counters.undecided;
        self.clock_error = Some(counters.clock_error).filter(|error| *error < Duration::MAX);
        self.response = (counters.delivered > 0).then_some(counters.largest);
    }
}

impl Figures {
    /// Messages that relays dropped, over the contract and without room: the receiver cannot tell them from lost ones.
    pub fn drop_on_the_way(&mut self, (over_contract, full): (u64, u64)) {
        let over_contract = over_contract.min(self.lost);
        let full = full.min(self.lost - over_contract);
        let both = over_contract + full;
        (self.lost, self.dropped) = (self.lost - both, self.dropped + both);
        self.misses.sender += over_contract;
        self.misses.receiver += full;
        self.misses.network = self.misses.network.saturating_sub(both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let latencies = Latencies::new(1_000, 1, 9, |numerator, _| numerator);
        assert_eq!(latencies.p99, Some(Duration::from_nanos(99)));
        assert_eq!(latencies.p999, None, "one sample beyond it");
        assert_eq!(Latencies::new(19, 1, 9, |n, _| n).p50, None);
        assert_eq!(Latencies::new(20, 1, 9, |n, _| n).p50, Some(Duration::from_nanos(1)));
        assert_eq!(Latencies::new(0, 0, 0, |n, _| n), Latencies::default());
    }
}
