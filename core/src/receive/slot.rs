//! One message under reassembly, and what is known of why it came late; the buffers of all, and those that are lost.

use super::attribution::Delay;
use super::delivered::Said;
use crate::cause::Cause;
use alloc::vec::Vec;

use crate::frames::MessageBuf;
use crate::units::{Duration, Instant};

/// One message under reassembly.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) sequence: u64,
    /// At the sender.
    pub(super) logical_arrival: Instant,
    /// How long before that it was sent, as its sender says.
    pub(super) ahead: Duration,
    /// What its sender says of when it was sent, where the clocks differ.
    pub(super) said: Option<Said>,
    /// From when on it may be processed.
    pub(super) eligible: Instant,
    /// At this host, what its deadline counts from.
    pub(super) release: Instant,
    pub(super) message_bytes: u32,
    pub(super) remaining: u32,
    /// Its packets that wait for the handler.
    pub(super) waiting: u32,
    /// What is known of why it may be late.
    pub(super) delay: Delay,
    /// By how much messages before it moved `release`.
    pub(super) deferred: Duration,
    /// From when on gaps at this host may have delayed it.
    pub(super) since: Instant,
    pub(super) buffer: Option<MessageBuf>,
    /// Why it will not be delivered, if so.
    pub(super) spoilt: Option<Cause>,
}

/// What is left of a message that was given up while packets of it wait for the handler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) sequence: u64,
    pub(super) eligible: Instant,
    pub(super) release: Instant,
}

impl Left {
    pub(super) fn of(slot: &Slot) -> Self {
        Self { sequence: slot.sequence, eligible: slot.eligible, release: slot.release }
    }
}

/// What is known to have held up the message that began last. If it makes the next one late, that is why.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldUp {
    pub(super) sequence: u64,
    pub(super) delay: Delay,
    pub(super) since: Instant,
}

impl HeldUp {
    pub(super) fn by(slot: &Slot) -> Self {
        Self { sequence: slot.sequence, delay: slot.delay, since: slot.since }
    }
}

pub(super) fn is_for(slot: &Option<Slot>, sequence: u64) -> bool {
    slot.as_ref().is_some_and(|slot| slot.sequence == sequence)
}

/// A slot for a message that begins: the one `after` the last that was given if it is free, else any that is, else that of the oldest.
pub(super) fn place(slots: &[Option<Slot>], after: usize) -> Option<usize> {
    if slots.get(after).is_some_and(Option::is_none) {
        return Some(after);
    }
    let mut oldest = None;
    for (number, slot) in slots.iter().enumerate() {
        match (slot, oldest) {
            (None, _) => return Some(number),
            (Some(slot), Some((_, sequence))) if slot.sequence >= sequence => {}
            (Some(slot), _) => oldest = Some((number, slot.sequence)),
        }
    }
    oldest.map(|(number, _)| number)
}

pub(super) fn is_newer(slot: &Option<Slot>, sequence: u64) -> bool {
    slot.as_ref().is_some_and(|slot| slot.sequence > sequence)
}

/// Messages that never became complete, and what is known of why.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Found to be lost, and nobody has been asked yet.
    pub(super) fresh: u64,
    /// Counted as lost by the network.
    pub(super) by_network: u64,
    /// As many packets were never sent, by the sender's word, and have explained nothing yet.
    pub(super) unsent: u64,
    /// What the sender has said of them in all.
    pub(super) told: u64,
}

/// The buffers of a channel's messages.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) free: Vec<MessageBuf>,
    /// How few were free at least.
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
