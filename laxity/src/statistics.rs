//! Figures of a channel while it runs: each written by one thread alone, the executive or the application that sends, and read
//! by any thread at any time.
//!
//! One writer, so a relaxed load and store is an increment; readers see each value whole, though not all of one moment.
//! Nothing here allocates after it is made.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use laxity_core::figures::{Figures, Latencies};
use laxity_core::receive::{DeliveredMessage, FinalJudgement, ReceiveCounters};
use laxity_core::send::SendCounters;
use laxity_core::units::Duration;
use zerocopy::transmute;

/// Sub-buckets of an octave: a latency is known to one part in 64.
const SUB: u64 = 64;
const SUB_BITS: u32 = SUB.trailing_zeros();
/// Values up to 2⁴² ns (73 minutes, beyond the longest deadline) are told apart.
const OCTAVES: usize = (42 - SUB_BITS) as usize;
const BUCKETS: usize = (OCTAVES + 1) * SUB as usize;

/// A histogram of fixed size, linear within each octave.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    min: AtomicU64,
    max: AtomicU64,
}

/// Adds to a counter that no other thread writes.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    fn bucket(nanos: u64) -> usize {
        if nanos < SUB {
            return nanos as usize;
        }
        let octave = nanos.ilog2() - SUB_BITS;
        let within = (nanos >> octave) - SUB;
        ((u64::from(octave + 1) * SUB + within) as usize).min(BUCKETS - 1)
    }

    /// The largest value of a bucket.
    fn top(bucket: usize) -> u64 {
        let (octave, within) = (bucket as u64 / SUB, bucket as u64 % SUB);
        if octave == 0 { within } else { ((SUB + within + 1) << (octave - 1)) - 1 }
    }

    /// Records one value.
    pub fn record(&self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    /// Records one value so many times.
    pub fn record_many(&self, nanos: u64, times: u64) {
        add(&self.buckets[Self::bucket(nanos)], times);
        self.min.store(self.min.load(Relaxed).min(nanos), Relaxed);
        self.max.store(self.max.load(Relaxed).max(nanos), Relaxed);
    }

    /// The values by how often they came, each as the largest that it may have been.
    pub fn counts(&self) -> Vec<(Duration, u64)> {
        let max = self.max.load(Relaxed);
        let counted =
            self.buckets.iter().map(|bucket| bucket.load(Relaxed)).enumerate().filter(|&(_, count)| count > 0);
        // The last bucket has no upper end of its own.
        let value = |bucket| if bucket + 1 == BUCKETS { max } else { Self::top(bucket).min(max) };
        counted.map(|(bucket, count)| (Duration::from_nanos(value(bucket)), count)).collect()
    }

    /// Its percentiles.
    pub fn latencies(&self) -> Latencies {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let samples: u64 = counts.iter().sum();
        let max = self.max.load(Relaxed);
        Latencies::new(samples, self.min.load(Relaxed), max, |numerator, denominator| {
            let rank = (u128::from(samples) * u128::from(numerator)).div_ceil(u128::from(denominator)) as u64;
            let mut below = 0;
            let bucket = counts.iter().position(|count| {
                below += count;
                below >= rank
            });
            bucket.map_or(max, Self::top).min(max)
        })
    }
}

/// The figures of one channel that the executive publishes.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    latency: Histogram,
    send: [AtomicU64; size_of::<SendCounters>() / 8],
    /// Messages that the application's thread refused because of their size: the executive never saw them.
    pub(crate) refused_size: AtomicU64,
    /// Messages that it dropped because they were beyond the burst, or the queue was full.
    pub(crate) refused_burst: AtomicU64,
    receive: [AtomicU64; size_of::<ReceiveCounters>() / 8],
    over_bound: AtomicU64,
    /// The time before its deadline by which a message is complete by the analysis: the least that was in force. `UNKNOWN` at
    /// first.
    spare: AtomicU64,
}

fn publish<const N: usize>(to: &[AtomicU64; N], values: [u64; N]) {
    for (published, value) in to.iter().zip(values) {
        published.store(value, Relaxed);
    }
}

fn read<const N: usize>(from: &[AtomicU64; N]) -> [u64; N] {
    from.each_ref().map(|published| published.load(Relaxed))
}

/// No bound but the deadline.
const UNKNOWN: u64 = u64::MAX;

impl Statistics {
    pub(crate) fn new() -> Self {
        Self { spare: AtomicU64::new(UNKNOWN), ..Self::default() }
    }

    /// Sets the bound that completions are held against. It may only grow: a smaller one than before is not taken.
    pub(crate) fn set_bound(&self, deadline: Duration, bound: Duration) {
        self.spare.fetch_min(deadline.saturating_sub(bound).as_nanos(), Relaxed);
    }

    /// The time before its deadline by which a message is complete by the analysis.
    pub(crate) fn spare(&self) -> Duration {
        match self.spare.load(Relaxed) {
            UNKNOWN => Duration::ZERO,
            spare => Duration::from_nanos(spare),
        }
    }

    /// Records a delivery; between two clocks what is known of its latency comes later.
    pub(crate) fn delivered(&self, delivered: &DeliveredMessage) {
        if delivered.stamps.is_none() {
            self.latency.record(delivered.latency().as_nanos());
        }
    }

    /// Records the most that a message can have taken, if that is known.
    pub(crate) fn judged(&self, decision: &FinalJudgement, spare: Duration) {
        if !spare.is_zero() && decision.breaks_bound(spare) {
            self.over_bound();
        }
        if let Some(latency) = decision.latency {
            self.latency.record(latency.as_nanos());
        }
    }

    /// Counts a completion after the bound that nothing outside Laxity explains.
    pub(crate) fn over_bound(&self) {
        add(&self.over_bound, 1);
    }

    /// Publishes what the receiver counted.
    pub(crate) fn receive(&self, counters: &ReceiveCounters) {
        publish(&self.receive, transmute!(*counters));
    }

    /// The number of the next message that the receiver may deliver.
    pub(crate) fn next(&self) -> u64 {
        let counters: ReceiveCounters = transmute!(read(&self.receive));
        counters.next
    }

    /// Publishes what the sender counted.
    pub(crate) fn send(&self, counters: &SendCounters) {
        publish(&self.send, transmute!(*counters));
    }

    pub(crate) fn send_counters(&self) -> SendCounters {
        let mut counters: SendCounters = transmute!(read(&self.send));
        let [size, burst] = [&self.refused_size, &self.refused_burst].map(|refused| refused.load(Relaxed));
        counters.refused += size + burst;
        counters.violations.size += size;
        counters.violations.burst += burst;
        counters
    }

    /// The receiver's figures as of now. `sent` is what the receiver knows of: everything that ended here.
    pub(crate) fn figures(&self, name: &str, best_effort: bool, deadline: Option<Duration>) -> Figures {
        let mut figures = Figures { name: name.to_owned(), best_effort, deadline, ..Figures::default() };
        figures.count(&transmute!(read(&self.receive)));
        figures.sent = figures.delivered.saturating_add(figures.lost).saturating_add(figures.dropped);
        figures.over_bound = self.over_bound.load(Relaxed);
        figures.bound = deadline.map(|deadline| deadline.saturating_sub(self.spare()));
        figures.latencies = self.latency.latencies();
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_that_holds_it_to_one_part_in_64() {
        let mut values: Vec<u64> = (0..5000).collect();
        values.extend((12..42).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 12345 % (1 << bits)]));
        for value in values {
            let top = Histogram::top(Histogram::bucket(value));
            assert!(top >= value && top - value <= value / SUB, "{value} in a bucket up to {top}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values() {
        let histogram = Histogram::default();
        for value in 1..=100_000u64 {
            histogram.record(value);
        }
        let latencies = histogram.latencies();
        for (found, expected) in
            [(latencies.p50, 50_000), (latencies.p99, 99_000), (latencies.p999, 99_900), (latencies.max, 100_000)]
        {
            let found = found.unwrap().as_nanos();
            assert!(found >= expected && found - expected <= expected / SUB, "{found} for {expected}");
        }
        assert_eq!(latencies.min, Some(Duration::from_nanos(1)));
    }

    #[test]
    fn a_bound_only_grows_and_is_the_deadline_until_it_is_computed() {
        let ms = Duration::from_millis;
        let statistics = Statistics::new();
        let bound = || statistics.figures("a", false, Some(ms(100))).bound;
        assert_eq!(bound(), Some(ms(100)));
        for (set, expected) in [(60, 60), (70, 70), (65, 70), (100, 100), (60, 100)] {
            statistics.set_bound(ms(100), ms(set));
            assert_eq!(bound(), Some(ms(expected)));
        }
        assert_eq!(statistics.figures("a", true, None).bound, None);
    }

    #[test]
    fn what_is_too_long_to_tell_apart_is_still_counted() {
        let histogram = Histogram::default();
        histogram.record(u64::MAX);
        assert_eq!(histogram.latencies().max, Some(Duration::MAX));
    }
}
