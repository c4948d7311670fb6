//! Applications: who submits when.

use laxity_core::contract::Contract;
use laxity_core::units::{Duration, Instant};

use crate::{ChannelHandle, Random};

/// An application that submits `first` messages at once and then `group` messages every `period`. It waits when its
/// channel says that it would block, as a blocking `send` does; what is dropped is gone.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its channel.
    pub channel: ChannelHandle,
    /// Bytes of each message.
    pub bytes: u32,
    /// The time at which it starts.
    pub start: Instant,
    /// Messages at the start.
    pub first: u32,
    /// From then on, between two groups; not zero.
    pub period: Duration,
    /// Messages in each of them.
    pub group: u32,
    /// It submits nothing from here on.
    pub until: Instant,
}

impl Source {
    /// All that the contract allows: the burst at once, then a largest message every interval [channels §2.2]. Channels that do
    /// so from the same point in time on meet at their critical instant.
    pub fn full(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        Self {
            channel,
            bytes: contract.max_message(),
            start,
            first: at_once(contract),
            period: contract.interval(),
            group: 1,
            until: Instant::MAX,
        }
    }

    /// The burst at once, and again as soon as the contract allows it.
    pub fn bursts(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        let group = at_once(contract);
        Self { period: contract.interval() * u64::from(group), group, ..Self::full(channel, contract, start) }
    }

    /// Violates the rate: `factor` times as much as the contract allows in the long run.
    pub fn violating(channel: ChannelHandle, contract: &Contract, start: Instant, factor: u64) -> Self {
        let period = Duration::from_nanos((contract.interval().as_nanos() / factor.max(1)).max(1));
        Self { period, ..Self::full(channel, contract, start) }
    }

    /// Violates the size: messages `factor` times as large as they may be, as often as they may be.
    pub fn too_large(channel: ChannelHandle, contract: &Contract, start: Instant, factor: u32) -> Self {
        Self { bytes: contract.max_message().saturating_mul(factor), ..Self::full(channel, contract, start) }
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
        Self { channel, bytes, start, first: group, period, group, until: Instant::MAX }
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
    /// The frames of a film, of which the largest has `most` bytes and the smallest at least `least`.
    pub fn film(least: u32, most: u32) -> Self {
        let bytes = |permille: &u32| (u64::from(most) * u64::from(*permille) / 1000) as u32;
        Self::Recorded(FILM_PERMILLE.iter().map(bytes).map(|bytes| bytes.max(least)).collect())
    }
}

/// An application whose messages differ: in size, in how many come at once, in what passes in between.
#[derive(Clone, Debug)]
pub struct VariedSource {
    /// Its channel.
    pub channel: ChannelHandle,
    /// Their sizes.
    pub sizes: Sizes,
    /// The time at which it starts.
    pub start: Instant,
    /// At once come 1 to so many, by the world's seed; not zero.
    pub most_at_once: u32,
    /// After each group, for each message of it; not zero.
    pub pause: Duration,
    /// Added to each pause: uniform from 0 to that, by the world's seed.
    pub most_more: Duration,
    /// It submits nothing from here on.
    pub until: Instant,
}

impl VariedSource {
    /// Within the contract, but seldom at its edge: all sizes, bursts of any length, pauses of up to two more intervals.
    pub fn conforming(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        Self {
            channel,
            sizes: Sizes::Between { least: contract.min_message(), most: contract.max_message() },
            start,
            most_at_once: at_once(contract),
            pause: contract.interval(),
            most_more: contract.interval() * 2,
            until: Instant::MAX,
        }
    }

    /// Messages of these sizes, one every interval.
    pub fn recorded(channel: ChannelHandle, contract: &Contract, sizes: Sizes, start: Instant) -> Self {
        let (most_at_once, most_more) = (1, Duration::ZERO);
        Self { sizes, most_at_once, most_more, ..Self::conforming(channel, contract, start) }
    }
}

/// A source in a world.
#[derive(Debug)]
pub(crate) struct RunningSource {
    pub(crate) channel: ChannelHandle,
    pub(crate) until: Instant,
    kind: SourceKind,
}

#[derive(Debug)]
enum SourceKind {
    Regular { bytes: u32, period: Duration, group: u32 },
    Varied { varied: VariedSource, random: Random, place: usize },
}

impl RunningSource {
    pub(crate) fn regular(source: &Source) -> Self {
        let Source { channel, bytes, period, group, until, .. } = *source;
        Self { channel, until, kind: SourceKind::Regular { bytes, period, group } }
    }

    pub(crate) fn varied(varied: VariedSource, seed: u64) -> Self {
        let (channel, until) = (varied.channel, varied.until);
        Self { channel, until, kind: SourceKind::Varied { varied, random: Random(seed), place: 0 } }
    }

    /// The size of the next message.
    pub(crate) fn size(&mut self) -> u32 {
        match &mut self.kind {
            SourceKind::Regular { bytes, .. } => *bytes,
            SourceKind::Varied { varied, random, place } => match &varied.sizes {
                Sizes::Between { least, most } => least + random.up_to(u64::from(most.saturating_sub(*least))) as u32,
                Sizes::Recorded(sizes) => {
                    *place = (*place + 1) % sizes.len();
                    sizes[(*place + sizes.len() - 1) % sizes.len()]
                }
            },
        }
    }

    /// After a group of `messages`: how long until the next one, and how many that has.
    pub(crate) fn next(&mut self, messages: u32) -> (Duration, u32) {
        match &mut self.kind {
            SourceKind::Regular { period, group, .. } => (*period, *group),
            SourceKind::Varied { varied, random, .. } => {
                let more = Duration::from_nanos(random.up_to(varied.most_more.as_nanos()));
                let at_once = 1 + random.up_to(u64::from(varied.most_at_once.max(1) - 1)) as u32;
                (varied.pause * u64::from(messages.max(1)) + more, at_once)
            }
        }
    }
}
