//! The parameters and the counters of a receiving channel.

use crate::contract::Service;
use crate::units::{Duration, Instant};
use crate::wire::DataHeader;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::HandledMessages;
use super::policing::CREDIT;
use crate::cause::Misses;

/// The parameters of a receiving channel.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveConfig {
    /// The service that it has.
    pub service: Service,
    /// S: the packet payload that both sides agreed on, bytes.
    pub packet: u32,
    /// The level under the fixed-priority policy.
    pub priority: u8,
    /// True if the handler may process a message before its logical arrival here.
    pub work_conserving: bool,
    /// d_rx: from the logical arrival here to delivery.
    pub stage: Duration,
    /// The longest wait of a frame here until it is found ([`crate::admission::Admission::input_delay`]); part of `upstream`.
    pub input_delay: Duration,
    /// From the logical arrival at the sender to the logical arrival here: the sender's stages and the network path.
    pub upstream: Duration,
    /// True if the sender's clock is ours.
    pub same_clock: bool,
    /// The longest time of a packet from the hand-over to the sender's link until it is found here: look-ahead, transmission,
    /// propagation, clock error, and the wait in the socket. Beyond it the network is to blame.
    pub transit: Duration,
    /// The largest size of a message as a multiple of `max_message`: more than 1 if the sender's overload policy is `decay`.
    pub oversize: u32,
}

impl ReceiveConfig {
    /// The largest message that may come, bytes.
    pub fn largest_message(&self) -> u32 {
        self.service.largest_message(self.oversize)
    }

    /// The number of intervals that a message of `bytes` uses up: its packets in proportion to the contract's.
    pub(super) fn intervals(&self, bytes: u32) -> u32 {
        self.service.intervals(bytes, self.packet)
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

    /// Which part of an oversize message the packet `index` is of; 0 within the contract's size.
    pub(super) fn part(&self, index: u16) -> u32 {
        self.service.part(index.into(), self.packet)
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

impl ReceiveCounters {
    /// Counts messages that were handled before this host saw them. Why some were late is not known.
    pub(super) fn count_handled(&mut self, handled: &HandledMessages) {
        let HandledMessages { messages, bytes, late, largest } = *handled;
        self.delivered += messages;
        self.delivered_bytes += bytes;
        self.late += late;
        self.misses.unexplained += late;
        self.largest = self.largest.max(largest);
    }
}
