//! Upcalls on the driver's own thread, among the handlers of channels: code that is trusted to give the thread back.
//!
//! They stand in the same order as handlers, by deadline or level; a step is an iteration, and each ends at a preemption point. The driver
//! runs them: [`Endpoint::poll_upcall`] says which, when [`Endpoint::poll_step`] has no step.

use super::Endpoint;
use crate::units::Instant;
use crate::upcall::{CompletedRun, PickedRun, RunOutcome, Upcalls};

impl Endpoint {
    /// The upcalls on the driver's own thread: to be created, run and suspended. The endpoint picks among them and the channels' handlers, and is
    /// told what they did ([`poll_upcall`](Self::poll_upcall), [`upcall_ran`](Self::upcall_ran)): the caller does neither by itself.
    pub fn upcalls_mut(&mut self) -> &mut Upcalls {
        &mut self.jobs
    }

    /// Likewise, to be looked at.
    pub fn upcalls(&self) -> &Upcalls {
        &self.jobs
    }

    /// True if the last [`poll_step`](Self::poll_step) found that an upcall is next.
    pub fn has_upcall(&self) -> bool {
        self.next_upcall.is_some()
    }

    /// The upcall whose iteration is next, if the last [`poll_step`](Self::poll_step) found one. The driver runs it, and says what it did
    /// ([`upcall_ran`](Self::upcall_ran)) before it asks for another step.
    pub fn poll_upcall(&mut self, now: Instant) -> Option<PickedRun> {
        let picked = self.next_upcall.take()?;
        self.jobs.picked(now, picked)
    }

    /// Tells that the upcall that was picked handled so many `units` more. Returns the run, if it is over.
    pub fn upcall_ran(&mut self, now: Instant, units: u32, outcome: RunOutcome) -> Option<CompletedRun> {
        self.jobs.ran(now, units, outcome)
    }
}
