//! Applications: who submits when.

use laxity_core::contract::Contract;
use laxity_core::units::{Duration, Instant};

use crate::world::ChannelHandle;

/// An application that submits `first` messages at once and then `group` messages every `period`. It waits when its
/// channel says that it would block, as a blocking `send` does; what is dropped is gone.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its channel.
    pub channel: ChannelHandle,
    /// Bytes of each message.
    pub bytes: u32,
    /// When it starts.
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
    /// All that the contract allows: the burst at once, then a largest message every interval [channels §2.2].
    pub fn full(channel: ChannelHandle, contract: &Contract, start: Instant) -> Self {
        Self {
            channel,
            bytes: contract.max_message(),
            start,
            first: contract.burst(),
            period: contract.interval(),
            group: 1,
            until: Instant::MAX,
        }
    }

    /// `factor` times as much as the contract allows in the long run.
    pub fn violating(channel: ChannelHandle, contract: &Contract, start: Instant, factor: u64) -> Self {
        let period = Duration::from_nanos((contract.interval().as_nanos() / factor.max(1)).max(1));
        Self { period, ..Self::full(channel, contract, start) }
    }

    /// Messages of `bytes` at about `rate` bytes per second, not zero, in groups of `group`.
    pub fn at_rate(channel: ChannelHandle, bytes: u32, rate: u64, group: u32, start: Instant) -> Self {
        let nanos = u128::from(bytes) * u128::from(group) * 1_000_000_000 / u128::from(rate);
        let period = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1));
        Self { channel, bytes, start, first: group, period, group, until: Instant::MAX }
    }
}
