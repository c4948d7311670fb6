//! Upcalls on the executive's own thread, among the handlers of its channels: code that is trusted to give the thread back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use laxity_core::endpoint::Endpoint;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome};
use laxity_drive::IterationResult;
use laxity_link::sys::{self, now};

use super::table::{BusyPeriod, LEAST_EXCESS, RunHandler, Slot, ThreadUpcalls};
use super::{Overrun, UpcallRun};
use crate::executive::ExecutiveUpcalls;
use crate::upcall_figures::UpcallState;

/// What the executive owns of them.
pub(super) struct TrustedUpcalls {
    table: ThreadUpcalls,
    /// It begins when the executive wakes up.
    busy: BusyPeriod,
    /// What the platform took in it, by evidence, beyond what a round may take.
    by_platform: Duration,
    /// As far as it was taken since the last iteration began.
    in_iteration: Duration,
    /// The upcall whose iteration has just ended: for how long it had no processor, and what it is if it runs no more.
    ran: Option<(Box<Slot>, Duration, Option<UpcallState>)>,
}

impl TrustedUpcalls {
    pub(super) fn new(table: ThreadUpcalls, platform: &Platform) -> Self {
        let (by_platform, in_iteration) = (Duration::ZERO, Duration::ZERO);
        Self { table, busy: BusyPeriod::new(platform.interference.clone()), by_platform, in_iteration, ran: None }
    }
}

impl ExecutiveUpcalls for TrustedUpcalls {
    fn is_here(&mut self) {
        let _ = self.table.wires.thread.set(std::thread::current().id());
        self.begin_busy(now());
    }

    fn is_told(&self) -> bool {
        self.table.wires.flag.load(Ordering::SeqCst)
    }

    fn obey(&mut self, now: Instant, endpoint: &mut Endpoint) -> bool {
        self.table.look(now, endpoint.upcalls_mut());
        if !self.is_told() {
            return true;
        }
        self.table.wires.flag.store(false, Ordering::SeqCst);
        let goes_on = self.table.obey(now, endpoint.upcalls_mut());
        if !goes_on {
            self.table.suspend_all(endpoint.upcalls_mut());
            self.close();
        }
        goes_on
    }

    fn close(&mut self) {
        self.table.close();
    }

    fn begin_busy(&mut self, since: Instant) {
        self.table.look_next();
        self.busy.begin(since);
        self.by_platform = Duration::ZERO;
    }

    fn taken(&mut self, by_platform: Duration) {
        self.by_platform += by_platform;
        self.in_iteration += by_platform;
    }

    fn iterate(&mut self, begin: Instant, pick: &PickedRun) -> IterationResult {
        let over = IterationResult { end: begin, units: pick.left, outcome: RunOutcome::Finished };
        let Some(mut slot) = self.table.take(pick.id) else { return over };
        slot.picked(begin, pick, |slot| self.busy.judge(begin, slot, self.by_platform));
        self.in_iteration = Duration::ZERO;
        let own = sys::thread_processor_time();
        let mut run = UpcallRun {
            pick: *pick,
            done: 0,
            next_release: begin,
            look_at: begin,
            queue: None,
            wires: &self.table.wires,
        };
        let progress = match &mut slot.handler {
            RunHandler::Local(handler, _) => catch_unwind(AssertUnwindSafe(|| handler(&mut run))).ok(),
            // A loop of its own has a thread of its own.
            RunHandler::Remote(_) => None,
        };
        let units = run.done;
        let (end, used) = (now(), sys::thread_processor_time().saturating_sub(own));
        slot.used += used;
        // More units than a block at once are no excuse here.
        let declared = slot.timing.quantum();
        self.busy.exceeded(&mut slot, used.saturating_sub(declared));
        let (outcome, state) = slot.outcome(progress);
        self.ran = Some((slot, end.since(begin).saturating_sub(used), state));
        IterationResult { end, units, outcome }
    }

    fn iterated(&mut self, endpoint: &mut Endpoint, end: Instant, pick: &PickedRun, completed: Option<CompletedRun>) {
        let Some((mut slot, away, state)) = self.ran.take() else { return };
        // What the platform did not take, the handler waited by itself.
        if away > LEAST_EXCESS {
            self.busy.exceeded(&mut slot, away.saturating_sub(self.in_iteration));
        }
        if slot.is_over_cost() && slot.overrun == Overrun::Demote {
            endpoint.upcalls_mut().demote(pick.id);
        }
        if let Some(completed) = completed {
            slot.completed(&completed, end, || self.busy.judge(end, &slot, self.by_platform));
        }
        self.table.put(slot, state, endpoint.upcalls_mut());
    }
}

#[cfg(test)]
mod tests;
