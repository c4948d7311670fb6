//! Traffic enforcement: the violations of a contract, and the side at fault [channels §2.1, §3.1].

use crate::units::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Violations of a contract by a channel's application, counted one by one [channels §2.1: "each parameter constituting
/// the traffic specification needs to be policed individually"].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct Violations {
    /// Messages larger than `max_message`, or smaller than `min_message`.
    pub size: u64,
    /// Messages that came sooner than the interval allows but within the burst: they were held, or served early.
    pub rate: u64,
    /// Messages beyond the burst: the contract has no room for them.
    pub burst: u64,
}

/// The reason why a message was not taken; the caller gets its buffer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Larger than declared.
    #[error("the message has {found} bytes, the channel's contract allows at most {most}")]
    Oversize {
        /// Bytes of the message.
        found: u64,
        /// Bytes that the contract (or the `decay` policy) allows.
        most: u64,
    },
    /// Smaller than declared.
    #[error("the message has {found} bytes, the channel's contract allows no less than {least}")]
    Undersize {
        /// Bytes of the message.
        found: u64,
        /// Bytes that the contract demands.
        least: u64,
    },
    /// More messages ahead of their time than the burst allows, or the message queue is full.
    #[error("the channel's burst is used up, the next message is due in {wait}")]
    Burst {
        /// Until when the contract has room for one more.
        wait: Duration,
    },
}
