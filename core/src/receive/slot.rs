//! One message under reassembly, and what is known of why it came late.

use super::attribution::Cause;
use crate::frames::MessageBuf;
use crate::units::{Duration, Instant};

/// One message under reassembly.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) sequence: u64,
    /// At the sender.
    pub(super) logical_arrival: Instant,
    /// From when on it may be processed.
    pub(super) eligible: Instant,
    /// At this host, what its deadline counts from.
    pub(super) release: Instant,
    pub(super) message_bytes: u32,
    pub(super) remaining: u32,
    /// Its packets that wait for the handler.
    pub(super) waiting: u32,
    pub(super) stolen_micros: u32,
    /// The longest that a packet took on its way beyond what it may take.
    pub(super) transit_excess: Duration,
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
    pub(super) stolen_micros: u32,
    pub(super) transit_excess: Duration,
    pub(super) since: Instant,
}

impl HeldUp {
    pub(super) fn of(slot: &Slot) -> Self {
        let Slot { sequence, stolen_micros, transit_excess, since, .. } = *slot;
        Self { sequence, stolen_micros, transit_excess, since }
    }
}

impl Slot {
    /// Messages before it came late and defer it: what held them up explains its lateness as well.
    pub(super) fn inherit(&mut self, before: &HeldUp) {
        self.stolen_micros = self.stolen_micros.max(before.stolen_micros);
        self.transit_excess = self.transit_excess.max(before.transit_excess);
        self.since = self.since.min(before.since);
    }
}

pub(super) fn is_for(slot: &Option<Slot>, sequence: u64) -> bool {
    slot.as_ref().is_some_and(|slot| slot.sequence == sequence)
}

pub(super) fn is_newer(slot: &Option<Slot>, sequence: u64) -> bool {
    slot.as_ref().is_some_and(|slot| slot.sequence > sequence)
}
