//! The figures of one channel: the same structure wherever something is measured, live or simulated.

use alloc::vec::Vec;

pub use crate::cause::Misses;
use crate::receive::ReceiveCounters;
use crate::units::Duration;

/// Latencies of delivered messages, from the time of sending until they were complete. A quantile q is known
/// from 1/(1 - q) samples on, of which at least one is beyond it then: the median from 2, p99 from 100, p999 from 1000. A quantile describes these messages; for
/// messages to come it is a rough estimate while few samples are beyond it.
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
            (beyond >= 1).then(|| Duration::from_nanos(value_at(numerator, denominator)))
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

/// The figures of one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Figures {
    /// The channel's name.
    pub name: alloc::string::String,
    /// True for a best-effort channel, false for a real-time channel.
    pub best_effort: bool,
    /// Messages that the sending host accepted.
    pub sent: u64,
    /// Messages that reached the application, late ones included.
    pub delivered: u64,
    /// Bytes of the delivered messages.
    pub delivered_bytes: u64,
    /// Delivered messages that came after their deadline.
    pub late: u64,
    /// Messages that never became complete.
    pub lost: u64,
    /// Messages that a host dropped: they broke the contract, or found no buffer at the receiver.
    pub dropped: u64,
    /// Delivered messages with a deadline for which it is unknown whether they were in time, because two hosts have two clocks.
    pub undecided: u64,
    /// Misses by cause.
    pub misses: Misses,
    /// Messages that were complete within the deadline, but after the bound.
    pub over_bound: u64,
    /// The deadline that was promised; `None` for best effort.
    pub deadline: Option<Duration>,
    /// The largest bound in force so far: the computed worst case from logical arrival to completion.
    pub bound: Option<Duration>,
    /// The largest response: from a message's logical arrival until it was complete. Deadline and bound limit this; a message that is
    /// sent before its logical arrival, by its burst or to catch up, may have a larger latency.
    pub response: Option<Duration>,
    /// Latencies; where the clocks differ, the most that they can have been.
    pub latencies: Latencies,
    /// The uncertainty of the sender's clock when a message was judged last: zero if it is the receiver's, `None` if that is not known.
    pub clock_error: Option<Duration>,
}

impl Figures {
    /// True if Laxity broke its promise, or if it is unknown whether it kept it: it missed messages by its own fault or for an unknown cause,
    /// exceeded its bound, or has messages of which it is unknown whether they were in time.
    pub fn is_broken(&self) -> bool {
        self.is_at_fault() || self.undecided > 0
    }

    /// True if Laxity missed messages by its own fault or for an unknown cause, or exceeded its bound, however many are undecided.
    pub fn is_at_fault(&self) -> bool {
        self.misses.laxity > 0 || self.misses.unexplained > 0 || self.over_bound > 0
    }

    /// True if a real-time channel has delivered no message, so that there is nothing to judge.
    pub fn is_silent(&self) -> bool {
        !self.best_effort && self.delivered == 0
    }

    /// Takes over the receiver's counters.
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

    /// Counts messages that relays dropped, over the contract and without room, as dropped: the receiver cannot tell them from lost ones.
    pub fn drop_in_transit(&mut self, (over_contract, full): (u64, u64)) {
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
    fn a_percentile_needs_a_sample_beyond_it() {
        let known = |samples: u64| {
            let Latencies { p50, p99, p999, .. } = Latencies::of((1..=samples).collect());
            [p50, p99, p999].map(|latency| latency.map(Duration::as_nanos))
        };
        assert_eq!(known(1), [None; 3]);
        assert_eq!(known(2), [Some(1), None, None]);
        assert_eq!(known(99), [Some(50), None, None]);
        assert_eq!(known(100), [Some(50), Some(99), None]);
        assert_eq!(known(999), [Some(500), Some(990), None]);
        assert_eq!(known(1_000), [Some(500), Some(990), Some(999)]);
        assert_eq!(Latencies::of(Vec::new()), Latencies::default());
    }
}
