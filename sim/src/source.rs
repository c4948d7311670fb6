//! Applications: who submits when.

use laxity_core::contract::Contract;
use laxity_core::units::{Duration, Instant};

use crate::{ChannelHandle, Random};

/// An application that submits `first` messages at once and then `group` messages every `period`, or in groups of random size if there is `more`. It waits when
/// its channel says that it would block, as a blocking `send` does; what is dropped is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its channel.
    pub channel: ChannelHandle,
    /// Their sizes.
    pub sizes: Sizes,
    /// The time at which it starts.
    pub start: Instant,
    /// Messages at the start, unless there is `more`.
    pub first: u32,
    /// From then on, between two groups; not zero.
    pub period: Duration,
    /// Messages in each of them; not zero.
    pub group: u32,
    /// If given, every group, the first too, has 1 to `group` messages by the world's seed, and is followed by a `period` for each of
    /// them and a pause that is uniform from 0 to this.
    pub more: Option<Duration>,
    /// It submits nothing from here on.
    pub until: Instant,
}

impl Source {
    /// All that the contract allows: the burst at once, then a largest message every interval [channels §2.2]. Channels that do
    /// so from the same point in time on meet at their critical instant.
    pub fn full(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        Self {
            channel,
            sizes: Sizes::of(contract.max_message()),
            start,
            first: at_once(contract),
            period: contract.interval(),
            group: 1,
            more: None,
            until: Instant::MAX,
        }
    }

    /// The burst at once, and again as soon as the contract allows it.
    pub fn bursts(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        let group = at_once(contract);
        Self { period: contract.interval() * u64::from(group), group, ..Self::full(channel, contract, start) }
    }

    /// Within the contract, but seldom at its edge: all sizes, bursts of any length, pauses of up to two more intervals.
    pub fn conforming(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        Self {
            sizes: Sizes::Between { least: contract.min_message(), most: contract.max_message() },
            group: at_once(contract),
            more: Some(contract.interval() * 2),
            ..Self::full(channel, contract, start)
        }
    }

    /// Messages of these sizes, one every interval.
    pub fn recorded(channel: ChannelHandle, contract: &Contract, sizes: Sizes, start: Instant) -> Self {
        Self { sizes, first: 1, ..Self::full(channel, contract, start) }
    }

    /// Violates the rate: `factor` times as much as the contract allows in the long run.
    pub fn violating(channel: ChannelHandle, contract: &Contract, start: Instant, factor: u64) -> Self {
        let period = Duration::from_nanos((contract.interval().as_nanos() / factor.max(1)).max(1));
        Self { period, ..Self::full(channel, contract, start) }
    }

    /// Violates the size: messages `factor` times as large as they may be, as often as they may be.
    pub fn too_large(channel: ChannelHandle, contract: &Contract, start: Instant, factor: u32) -> Self {
        let sizes = Sizes::of(contract.max_message().saturating_mul(factor));
        Self { sizes, ..Self::full(channel, contract, start) }
    }

    /// Violates the burst: `factor` bursts at once, and then nothing until the long-run rate is kept.
    pub fn too_many(channel: ChannelHandle, contract: &Contract, start: Instant, factor: u32) -> Self {
        let first = at_once(contract).saturating_mul(factor);
        let period = contract.interval() * u64::from(first);
        Self { first, period, group: first, ..Self::full(channel, contract, start) }
    }

    /// Messages of `bytes` at about `rate` bytes per second, not zero, in groups of `group`.
    pub fn at_rate(channel: ChannelHandle, bytes: u32, rate: u64, group: u32, start: Instant) -> Self {
        let nanos = u128::from(bytes) * u128::from(group) * 1_000_000_000 / u128::from(rate);
        let period = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1));
        Self { channel, sizes: Sizes::of(bytes), start, first: group, period, group, more: None, until: Instant::MAX }
    }

    /// Messages that it submits at most.
    pub fn most_messages(&self) -> u64 {
        // The first group is at the start. Each message of a group of any length is followed by a period.
        let (first, each) = if self.more.is_some() { (self.group, 1) } else { (self.first, self.group) };
        let later = self.until.since(self.start).div_ceil(self.period).saturating_sub(1);
        later.saturating_mul(each.into()).saturating_add(first.into())
    }
}

/// The number of messages that may come at once: the burst, and as many as its sender may catch up.
fn at_once(contract: &Contract) -> u32 {
    1 + u32::try_from(contract.most_ahead().div_floor(contract.interval())).unwrap_or(u32::MAX - 1)
}

/// Bytes of the frames of a film, in thousandths of the largest one: a large picture every twelve, smaller ones that build on it
/// in between, the smallest between those. Made up after the usual proportions of such films, not recorded.
pub const FILM_PERMILLE: [u32; 24] =
    [1000, 120, 95, 410, 110, 90, 380, 130, 100, 350, 105, 85, 930, 140, 115, 450, 125, 100, 365, 95, 80, 330, 110, 90];

/// The sizes of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Uniform from `least` to `most`, both included.
    Between {
        /// The smallest, bytes.
        least: u32,
        /// The largest, bytes.
        most: u32,
    },
    /// One after the other, and then again from the first; not empty.
    Recorded(Vec<u32>),
}

impl Sizes {
    /// All messages have so many bytes.
    pub fn of(bytes: u32) -> Self {
        Self::Between { least: bytes, most: bytes }
    }

    /// The frames of a film, of which the largest has `most` bytes and the smallest at least `least`.
    pub fn film(least: u32, most: u32) -> Self {
        let bytes = |permille: &u32| (u64::from(most) * u64::from(*permille) / 1000) as u32;
        Self::Recorded(FILM_PERMILLE.iter().map(bytes).map(|bytes| bytes.max(least)).collect())
    }

    /// The largest, bytes.
    pub fn largest(&self) -> u32 {
        match self {
            Self::Between { most, .. } => *most,
            Self::Recorded(sizes) => sizes.iter().copied().max().unwrap_or(1),
        }
    }
}

/// A source in a world.
pub(crate) struct RunningSource {
    pub(crate) source: Source,
    pub(crate) random: Random,
    /// In the recorded sizes, that of the next message.
    pub(crate) place: usize,
}

impl RunningSource {
    /// The size of the next message.
    pub(crate) fn size(&mut self) -> u32 {
        match &self.source.sizes {
            Sizes::Between { least, most } => least + self.random.up_to(u64::from(most.saturating_sub(*least))) as u32,
            Sizes::Recorded(sizes) => {
                let place = self.place;
                self.place = (place + 1) % sizes.len();
                sizes[place]
            }
        }
    }

    /// After a group of `messages`: how long until the next one, and how many that has.
    pub(crate) fn next(&mut self, messages: u32) -> (Duration, u32) {
        let Source { period, group, more, .. } = self.source;
        let Some(most) = more else { return (period, group) };
        let more = Duration::from_nanos(self.random.up_to(most.as_nanos()));
        let at_once = 1 + self.random.up_to(u64::from(group.max(1) - 1)) as u32;
        (period * u64::from(messages.max(1)) + more, at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the world submits for `source`.
    fn submitted(source: &Source) -> u64 {
        let mut running = RunningSource { source: source.clone(), random: Random(7), place: 0 };
        let mut group = if source.more.is_some() { running.next(1).1 } else { source.first };
        let (mut at, mut sum) = (source.start, 0);
        while at < source.until {
            sum += u64::from(group);
            let (pause, messages) = running.next(group);
            (at, group) = (at + pause, messages);
        }
        sum
    }

    #[test]
    fn no_source_submits_more_than_its_most() {
        let millis = Duration::from_millis;
        let contract = Contract::new(1000, 1, millis(1), 5, millis(20)).unwrap();
        let (channel, start) = (ChannelHandle(0), Instant::from_nanos(1_000_000));
        let each = [
            Source::full(channel, &contract, start),
            Source::bursts(channel, &contract, start),
            Source::recorded(channel, &contract, Sizes::film(1, 1000), start),
            Source::violating(channel, &contract, start, 3),
            Source::too_many(channel, &contract, start, 40),
            Source::at_rate(channel, 700, 5_000_000, 4, start),
            Source::conforming(channel, &contract, start),
        ];
        for source in each {
            for span in [Duration::from_nanos(1), millis(1), Duration::from_micros(4_999), millis(5), millis(900)] {
                let source = Source { until: start + span, ..source.clone() };
                let (found, most) = (submitted(&source), source.most_messages());
                assert!(found <= most && (found == most || source.more.is_some()), "{found} {most} {source:?}");
            }
        }
    }
}
