//! Messages under reassembly, with the evidence of why each came late; the buffers of all, and the lost messages.

use super::attribution::Delay;
use super::delivered::SenderStamps;
use crate::cause::Cause;
use alloc::vec::Vec;

use crate::frames::{FrameId, MessageBuf};
use crate::units::{Duration, Instant};

/// One message under reassembly.
pub(super) struct Slot {
    pub(super) sequence: u64,
    /// At the sender.
    pub(super) logical_arrival: Instant,
    /// The time before that at which it was sent, as its sender says.
    pub(super) ahead: Duration,
    /// The sender's statement of when it was sent, where the clocks differ.
    pub(super) stamps: Option<SenderStamps>,
    /// From when on it may be processed.
    pub(super) eligible: Instant,
    /// At this host, what its deadline counts from.
    pub(super) release: Instant,
    pub(super) message_bytes: u32,
    pub(super) remaining: u32,
    /// Its packets that wait for the handler.
    pub(super) waiting: u32,
    /// The evidence of why it may be late.
    pub(super) delay: Delay,
    /// By how much messages before it moved `release`.
    pub(super) deferred: Duration,
    /// From when on gaps at this host may have delayed it.
    pub(super) since: Instant,
    pub(super) buffer: Option<MessageBuf>,
    /// The reason why it will not be delivered, if so.
    pub(super) spoilt: Option<Cause>,
}

/// The rest of a message that was given up while packets of it wait for the handler.
#[derive(Clone, Copy, Debug)]
pub(super) struct AbandonedMessage {
    pub(super) sequence: u64,
    pub(super) eligible: Instant,
    pub(super) release: Instant,
}

/// The evidence of what held up the message that began last. If that makes the next one late, it is the explanation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldUp {
    pub(super) sequence: u64,
    pub(super) delay: Delay,
    pub(super) since: Instant,
}

impl HoldUp {
    pub(super) fn by(slot: &Slot) -> Self {
        Self { sequence: slot.sequence, delay: slot.delay, since: slot.since }
    }
}

/// A slot for a message that begins: the one `after` the last that was given if it is free, else any that is, else that of the oldest.
pub(super) fn place(slots: &[Option<Slot>], after: usize) -> Option<usize> {
    if slots.get(after).is_some_and(Option::is_none) {
        return Some(after);
    }
    let oldest = || (0..slots.len()).min_by_key(|&number| slots[number].as_ref().map(|slot| slot.sequence));
    slots.iter().position(Option::is_none).or_else(oldest)
}

/// Messages that never became complete, and what is known of why.
#[derive(Debug, Default)]
pub(super) struct LostMessages {
    /// Found to be lost, and no host has been asked yet.
    pub(super) fresh: u64,
    /// Counted as lost by the network.
    pub(super) by_network: u64,
    /// As many packets were never sent, by the sender's word, and have explained nothing yet.
    pub(super) unsent: u64,
    /// The total that the sender has told of them.
    pub(super) told: u64,
}

/// The buffers of a channel's messages.
pub(super) struct Buffers {
    pub(super) free: Vec<MessageBuf>,
    /// The least number that was free.
    pub(super) least_free: usize,
    /// Buffers that the application has.
    pub(super) lent: usize,
}

impl Buffers {
    pub(super) fn take(&mut self) -> Option<MessageBuf> {
        let buffer = self.free.pop();
        self.least_free = self.least_free.min(self.free.len());
        buffer
    }
}

/// A packet that waits for the handler.
pub(crate) struct ArrivedPacket {
    pub(super) frame: FrameId,
    pub(super) slot: u16,
    pub(super) sequence: u64,
    pub(super) index: u16,
    pub(super) payload: u16,
}
