//! The regulator: logical arrival times [channels §2.2].
//!
//! A message's deadline counts from its logical arrival time l(m_k) = max(l(m_{k−1}) + I, t_k), not from when it was
//! sent, so a channel that sends more than it declared delays only itself. Senders enforce their contract with it, and
//! receivers police what arrives: every node re-regulates, so a burst never grows on its path.

use crate::units::{Duration, Instant};

/// The regulator of one channel.
#[derive(Clone, Debug)]
pub struct Regulator {
    interval: Duration,
    /// Earliest logical arrival of the next message.
    next: Instant,
}

/// The position of a message against the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegulatorStamp {
    /// l(m): the logical arrival time.
    pub logical_arrival: Instant,
    /// The time by which the message is ahead of its logical arrival: zero is on time, more than [`most_ahead`](crate::contract::Contract::most_ahead) breaks
    /// the contract.
    pub ahead: Duration,
}

impl Regulator {
    /// A regulator whose first message arrives logically when it arrives. `interval` must not be zero.
    pub fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::ZERO }
    }

    /// The stamp that a message would have that arrives at `arrival`.
    pub fn stamp(&self, arrival: Instant) -> RegulatorStamp {
        let logical_arrival = self.next.max(arrival);
        RegulatorStamp { logical_arrival, ahead: logical_arrival.since(arrival) }
    }

    /// Accepts the message of `stamp`, which uses up `intervals` intervals: one, or more for an oversize message under the
    /// `decay` policy ("the logical interarrival time is increased in proportion to the extra packets" [channels §3.1]).
    pub fn accept(&mut self, stamp: RegulatorStamp, intervals: u32) {
        self.next = stamp.logical_arrival + self.interval * u64::from(intervals);
    }

    /// Lets no later message arrive logically before `earliest`.
    pub fn not_before(&mut self, earliest: Instant) {
        self.next = self.next.max(earliest);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The definition by brute force: l(m_k) is the largest over j ≤ k of t_j + (k − j) I.
        #[test]
        fn the_regulator_is_its_definition(interval in 1u64..50, gaps in prop::collection::vec(0u64..80, 1..40)) {
            let mut regulator = Regulator::new(Duration::from_nanos(interval));
            let mut arrivals: Vec<u64> = Vec::new();
            for gap in gaps {
                arrivals.push(arrivals.last().unwrap_or(&1000) + gap);
                let k = arrivals.len() - 1;
                let expected = (0..=k).map(|j| arrivals[j] + (k - j) as u64 * interval).max().unwrap();
                let stamp = regulator.stamp(Instant::from_nanos(arrivals[k]));
                regulator.accept(stamp, 1);
                prop_assert_eq!(stamp.logical_arrival.as_nanos(), expected);
                prop_assert_eq!(stamp.ahead.as_nanos(), expected - arrivals[k]);
            }
        }

        /// A stretched interval keeps the long-run rate: after a message of weight w, the next one comes w intervals later.
        #[test]
        fn an_oversize_message_uses_up_the_intervals_of_its_packets(weights in prop::collection::vec(1u32..5, 1..30)) {
            let mut regulator = Regulator::new(Duration::from_nanos(10));
            let mut expected = 0;
            for weight in weights {
                let stamp = regulator.stamp(Instant::ZERO);
                prop_assert_eq!(stamp.logical_arrival.as_nanos(), expected);
                regulator.accept(stamp, weight);
                expected += 10 * u64::from(weight);
            }
        }
    }
}
