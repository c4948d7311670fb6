//! Upcalls on the executive's own thread, as it sees them.

use std::any::Any;

use laxity_core::endpoint::Endpoint;
use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome};
use laxity_drive::{Clock, Driver, IterationResult, Meter as _, UpcallRunner};
use laxity_link::LinkOver;

use super::LiveEnvironment;

/// The upcalls, and their handlers.
pub(crate) trait ExecutiveUpcalls: Any + Send {
    /// The executive has them now; it is on its thread.
    fn is_here(&mut self);

    /// True if a handle asks for something.
    fn is_told(&self) -> bool;

    /// Looks whether descriptors release some of them, and does what a handle asks for, if one does; false if it is to be over.
    fn obey(&mut self, now: Instant, endpoint: &mut Endpoint) -> bool;

    /// None of them runs any more.
    fn close(&mut self);

    /// The executive had nothing to do before `since`.
    fn begin_busy(&mut self, since: Instant);

    /// The platform took so much, by evidence.
    fn taken(&mut self, by_platform: Duration);

    /// Calls the handler.
    fn iterate(&mut self, begin: Instant, pick: &PickedRun) -> IterationResult;

    /// The endpoint knows of it, and says what the run was if it is over.
    fn iterated(&mut self, endpoint: &mut Endpoint, end: Instant, pick: &PickedRun, completed: Option<CompletedRun>);
}

impl<F: Frames, L: LinkOver<F>, C: Clock> UpcallRunner<F> for LiveEnvironment<L, C> {
    fn iterate(&mut self, now: Instant, upcall: &PickedRun) -> IterationResult {
        let over = IterationResult { end: now, units: upcall.left, outcome: RunOutcome::Finished };
        let iterated = self.upcalls.as_mut().map_or(over, |upcalls| upcalls.iterate(now, upcall));
        // It is no piece of ours, and held against its own cost.
        self.parts.meter.skip(iterated.end);
        iterated
    }

    fn iterated(&mut self, driver: &mut Driver<F>, now: Instant, upcall: &PickedRun, completed: Option<CompletedRun>) {
        if let Some(upcalls) = &mut self.upcalls {
            upcalls.iterated(&mut driver.endpoint, now, upcall, completed);
        }
    }
}
