//! The grant to a receiving channel, and its counters.

use crate::contract::ChannelTerms;
use crate::units::{Duration, Instant};
use crate::wire::DataHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::policing::CREDIT;
use crate::cause::Misses;

/// The grant of this host to a channel that it receives.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveGrant {
    /// d_rx: from the logical arrival here to delivery.
    pub stage: Duration,
    /// The longest wait of a frame here until it is found ([`crate::admission::Admission::input_delay`]); part of `upstream`. The peer has
    /// to leave that much beside the stage.
    pub input_delay: Duration,
    /// From the logical arrival at the sender to the logical arrival here: the sender's stages, the network path, and the wait until a
    /// frame is found.
    pub upstream: Duration,
    /// The longest time of a packet from the hand-over to the sender's link until it is found here: look-ahead, transmission,
    /// propagation, clock error, and the wait in the socket. Beyond it the network is to blame.
    pub transit: Duration,
    /// True if the handler may process a message before its logical arrival here.
    pub work_conserving: bool,
    /// The level under the fixed-priority policy.
    pub priority: u8,
    /// Messages that it has room for.
    pub messages: u32,
    /// Packets that it has room for.
    pub packets: u32,
}

impl ChannelTerms {
    /// True if a packet with this header can be one of the channel's.
    #[inline]
    pub(crate) fn allow(&self, header: &DataHeader) -> bool {
        let sizes = self.service.min_message()..=self.largest_message();
        // The last number of all has no successor; no sender gets there by counting.
        sizes.contains(&header.message_bytes) && header.sequence != u64::MAX && header.check(self.packet).is_ok()
    }

    /// The time before `logical_arrival`, as it is believed, at which the message was sent, by its sender's word; no longer than its contract lets a
    /// message be ahead, and a late one be believed older.
    pub(crate) fn ahead(&self, header: &DataHeader, logical_arrival: Instant) -> Duration {
        let most = match self.service.contract() {
            // Under `decay` a sender may be ahead by any time.
            Some(_) if self.oversize > 1 => Duration::MAX,
            Some(contract) => contract.most_ahead() + CREDIT + Duration::from_micros(1),
            None => Duration::ZERO,
        };
        let sent = header.logical_arrival.before(Duration::from_micros(header.ahead_micros.into()));
        logical_arrival.since(sent).min(most)
    }
}

/// The reason why a frame of this channel was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The header contradicts the contract, or the packet size that was agreed.
    Invalid,
    /// The message is more, or comes earlier, than the contract allows: the sender broke it.
    OverContract,
    /// The packet queue or the message queue was full: the receiver was too slow.
    ReceiverFull,
    /// A packet that was received before, or of a message that is over.
    Stale,
}

/// The counters of the channel's messages at the receiver. Words of 64 bits, so that they can be published one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct ReceiveCounters {
    /// Messages delivered to the application, in time or late.
    pub delivered: u64,
    /// Messages of these that came after the deadline.
    pub late: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Messages that never became complete, because packets were lost.
    pub lost: u64,
    /// Messages dropped here: there was no room for them, or their sender broke its contract.
    pub dropped: u64,
    /// Frames that contradict the contract, or the packet size that was agreed.
    pub frames_invalid: u64,
    /// Frames over the contract.
    pub frames_over_contract: u64,
    /// Frames that found a queue full.
    pub frames_receiver_full: u64,
    /// Frames that were duplicates or too late to be of use.
    pub frames_stale: u64,
    /// Messages that were late, lost or dropped, by cause.
    pub misses: Misses,
    /// The largest response of a delivered message: from its logical arrival until it was complete.
    pub largest: Duration,
    /// Delivered messages of a guaranteed channel for which it is unknown, or not yet known, whether they were in time.
    pub undecided: u64,
    /// The uncertainty of the sender's clock when a message was judged last: zero if it is this host's, `Duration::MAX` if that is not known.
    pub clock_error: Duration,
    /// The least number of a message that may still be delivered here; all messages with lower numbers are delivered, lost or dropped.
    pub next: u64,
}
