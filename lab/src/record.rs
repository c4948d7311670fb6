//! The records of a receiver: allocated before, bounded, cheap.

use laxity::metering::Histogram;
use laxity_core::receive::Evidence;
use laxity_core::units::{Duration, Instant};

use crate::figures::per_second;
use crate::workload::stamp;

/// Messages of a channel of which the evidence is kept.
const MOST_EVIDENCE: usize = 5;

/// One message, for a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its logical arrival, since the sources started.
    pub at: Duration,
    /// From there until it was complete; zero if it was complete before.
    pub response: Duration,
}

/// A sequence of samples of bounded length: when it is full, every other one goes, and from then on every other one is kept.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) kept: Vec<Sample>,
    most: usize,
    stride: u64,
    seen: u64,
}

impl Samples {
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: Vec::with_capacity(most), most: most.max(2), stride: 1, seen: 0 }
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() >= self.most {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.kept.push(sample);
            }
        }
        self.seen += 1;
    }
}

/// The record of one received message.
pub(crate) struct ArrivedMessage {
    /// `None` if it was beyond the contract.
    pub(crate) logical_arrival: Option<Instant>,
    pub(crate) completion: Instant,
    /// The time at which its application sent it, as its stack says; `None` if it was beyond the contract.
    pub(crate) sent: Option<Instant>,
    /// From when the application sent it, as it says itself, until the receiving application's thread had it.
    pub(crate) in_hand: Option<Duration>,
    pub(crate) bytes: u64,
    /// The evidence about it if it is late, with its number; only Laxity tells.
    pub(crate) evidence: Option<(u64, Evidence)>,
}

impl ArrivedMessage {
    /// A message that its application's thread completed itself.
    pub(crate) fn complete(logical_arrival: Option<Instant>, now: Instant, message: &[u8]) -> Self {
        let sent = stamp(message);
        let (in_hand, bytes) = (sent.map(|at| now.since(at)), message.len() as u64);
        Self { logical_arrival, sent, completion: now, in_hand, bytes, evidence: None }
    }
}

/// The records of one channel's receiver.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// From when on throughput is counted, and until when.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// From when on everything else is counted.
    pub(crate) start: Instant,
    pub(crate) deadline: Option<Duration>,
    pub(crate) latency: Histogram,
    pub(crate) in_hand: Histogram,
    pub(crate) samples: Samples,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) late: u64,
    /// The largest from a logical arrival until completion.
    pub(crate) response: Option<Duration>,
    /// Of all responses, ns, and how many there were.
    pub(crate) sum: (u128, u64),
    /// The evidence about the first messages whose lateness is Laxity's own fault.
    pub(crate) evidence: Vec<String>,
    /// Bytes of messages that were complete while throughput was counted.
    pub(crate) bytes_in_time: u64,
}

impl Recorder {
    /// Keeps what is known of a message that is late by Laxity's own fault, as long as there are few.
    fn blame(&mut self, sequence: u64, logical_arrival: Instant, evidence: Evidence) {
        let Evidence { cause, lateness, network, platform, laxity, sender, unknown } = evidence;
        if cause.breaks_promise() && self.evidence.len() < MOST_EVIDENCE {
            self.evidence.push(format!(
                "message {sequence}, due since {}, came {lateness} late, cause {cause:?}: more than granted, by Laxity {laxity}, \
                 the network {network}, the platform {platform}, the sender {sender}, unknown {unknown}",
                logical_arrival.since(self.start)
            ));
        }
    }

    pub(crate) fn record(&mut self, arrived: ArrivedMessage) {
        if let (Some((sequence, evidence)), Some(logical_arrival)) = (arrived.evidence, arrived.logical_arrival) {
            self.blame(sequence, logical_arrival, evidence);
        }
        self.delivered += 1;
        self.delivered_bytes += arrived.bytes;
        if (self.from..=self.until).contains(&arrived.completion) {
            self.bytes_in_time += arrived.bytes;
        }
        if let Some(latency) = arrived.in_hand {
            self.in_hand.record(latency.as_nanos());
        }
        let Some(logical_arrival) = arrived.logical_arrival else { return };
        if let Some(sent) = arrived.sent {
            self.latency.record(arrived.completion.since(sent).as_nanos());
        }
        let response = arrived.completion.since(logical_arrival);
        self.response = self.response.max(Some(response));
        self.sum = (self.sum.0 + u128::from(response.as_nanos()), self.sum.1 + 1);
        self.samples.push(Sample { at: logical_arrival.since(self.start), response });
        self.late += u64::from(self.deadline.is_some_and(|deadline| response > deadline));
    }

    /// The mean of all responses, rounded up.
    pub(crate) fn mean(&self) -> Option<Duration> {
        let (sum, count) = self.sum;
        let mean = (count > 0).then(|| sum.div_ceil(u128::from(count)))?;
        Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Bytes per second while throughput was counted.
    pub(crate) fn throughput_bytes_s(&self) -> u64 {
        per_second(self.bytes_in_time, self.until.since(self.from).max(Duration::from_nanos(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_thinned_evenly() {
        let mut samples = Samples::new(100);
        for at in 0..10_000 {
            samples.push(Sample { at: Duration::from_nanos(at), response: Duration::ZERO });
        }
        let kept = samples.kept;
        assert!((50..=100).contains(&kept.len()), "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1].at - pair[0].at == Duration::from_nanos(128)));
    }

    #[test]
    fn late_is_after_the_deadline_and_what_was_not_promised_is_neither() {
        let at = Instant::from_nanos;
        let mut recorder = Recorder {
            start: at(100),
            from: at(100),
            until: at(1_000),
            deadline: Some(Duration::from_nanos(50)),
            samples: Samples::new(10),
            ..Recorder::default()
        };
        let mut arrive = |sent: u64, logical: Option<u64>, completion| {
            let stamp = logical.map_or(u64::MAX, |_| sent);
            let message = [&stamp.to_be_bytes()[..], &[0]].concat();
            recorder.record(ArrivedMessage::complete(logical.map(at), at(completion), &message));
        };
        arrive(100, Some(100), 150);
        arrive(200, Some(200), 251);
        // By its burst it was sent, and came, before its logical arrival.
        arrive(230, Some(900), 300);
        arrive(0, None, 1_001);
        assert_eq!((recorder.delivered, recorder.delivered_bytes, recorder.late), (4, 36, 1));
        let latencies = recorder.latency.latencies();
        assert_eq!((latencies.min, latencies.max), (Some(Duration::from_nanos(50)), Some(Duration::from_nanos(70))));
        assert_eq!((recorder.response, recorder.in_hand.latencies()), (Some(Duration::from_nanos(51)), latencies));
        assert_eq!(recorder.throughput_bytes_s(), 30_000_000);
        assert_eq!(recorder.mean(), Some(Duration::from_nanos(34)), "0, 50 and 51");
        assert_eq!(recorder.samples.kept.len(), 3);
    }
}
