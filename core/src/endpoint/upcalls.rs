//! Upcalls on the driver's own thread, among the handlers of channels: code that is trusted to give the thread back.
//!
//! They stand in the same order as handlers, by deadline or level; a step is an iteration, and each ends at a preemption point. The driver
//! runs them: [`Endpoint::poll_upcall`] says which, when [`Endpoint::poll_step`] has no step.

use super::Endpoint;
use crate::processor;
use crate::units::{Duration, Instant};
use crate::upcall::{Completed, Outcome, Pick, Table, Upcall, UpcallId};

/// The upcalls, and the one that the scheduler has picked.
#[derive(Debug)]
pub(super) struct OnThread {
    table: Table,
    first: u32,
    picked: Option<processor::Pick>,
}

impl OnThread {
    /// Room for `capacity`; in the scheduler their numbers follow those of `channels`.
    pub(super) fn new(channels: usize, capacity: usize) -> Self {
        Self { table: Table::new(channels, capacity), first: channels as u32, picked: None }
    }

    /// True if what was picked is an upcall: it is next.
    pub(super) fn take(&mut self, pick: processor::Pick) -> bool {
        let is_upcall = pick.id >= self.first;
        self.picked = is_upcall.then_some(pick);
        is_upcall
    }
}

impl Endpoint {
    /// Takes an upcall in, suspended: a run is to be done `stage` after its release; `priority` is its level under fixed priorities. `None` if
    /// there is no room.
    pub fn create_upcall(&mut self, upcall: Upcall, stage: Duration, priority: u8) -> Option<UpcallId> {
        self.upcalls.table.create(upcall, stage, priority)
    }

    /// Releases it every period from `first` on; a run that has begun goes on.
    pub fn run_upcall(&mut self, now: Instant, id: UpcallId, first: Instant) {
        self.upcalls.table.run(&mut self.processor, now, id, first);
    }

    /// Runs it no more; a run that has begun is given up.
    pub fn suspend_upcall(&mut self, id: UpcallId) {
        self.upcalls.table.suspend(&mut self.processor, id);
    }

    /// Suspends it and forgets it.
    pub fn close_upcall(&mut self, id: UpcallId) {
        self.upcalls.table.close(&mut self.processor, id);
    }

    /// From its next release on it comes behind everything else that is real-time.
    pub fn demote_upcall(&mut self, id: UpcallId) {
        self.upcalls.table.demote(id);
    }

    /// True if it is released every period.
    pub fn is_upcall_active(&self, id: UpcallId) -> bool {
        self.upcalls.table.is_active(id)
    }

    /// True if the last [`poll_step`](Self::poll_step) found that an upcall is next.
    pub fn has_upcall(&self) -> bool {
        self.upcalls.picked.is_some()
    }

    /// The upcall whose iteration is next, if the last [`poll_step`](Self::poll_step) found one. The driver runs it, and says what it did
    /// ([`upcall_ran`](Self::upcall_ran)) before it asks for another step.
    pub fn poll_upcall(&mut self, now: Instant) -> Option<Pick> {
        let picked = self.upcalls.picked.take()?;
        self.upcalls.table.picked(now, picked)
    }

    /// The upcall that was picked handled so many `units` more. What the run was, if it is over.
    pub fn upcall_ran(&mut self, now: Instant, units: u32, outcome: Outcome) -> Option<Completed> {
        self.upcalls.table.ran(&mut self.processor, now, units, outcome)
    }
}
