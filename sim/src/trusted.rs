//! Upcalls on the executive's own thread.

use laxity_core::frames::HeapFrames;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome, Upcall, UpcallId};
use laxity_drive::{IterationResult, UpcallRunner};

use crate::environment::{HostDriver, SimulatedEnvironment};
use crate::host::PlannedCommand;
use crate::observe::Activity;
use crate::upcalls::iteration;
use crate::{HostId, RunCounts, World};

/// One of them, and what its runs showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrustedUpcall {
    pub(crate) id: UpcallId,
    upcall: Upcall,
    runs: RunCounts,
}

impl UpcallRunner<HeapFrames> for SimulatedEnvironment<'_> {
    fn iterate(&mut self, _: Instant, pick: &PickedRun) -> IterationResult {
        let (number, of_host) = (pick.id.index(), self.number);
        let host = self.host();
        let change = if pick.switched { host.config.platform.change_of_handler() } else { Duration::ZERO };
        let trusted = &mut host.trusted[number];
        trusted.runs.skipped += pick.skipped;
        let (units, cost) = iteration(&trusted.upcall, pick);
        let start = host.now;
        host.spend(change + cost);
        let end = host.local();
        self.world.tell_work(of_host, start, Activity::Upcall { number });
        IterationResult { end, units, outcome: RunOutcome::Yields }
    }

    fn iterated(&mut self, _: &mut HostDriver, now: Instant, pick: &PickedRun, completed: Option<CompletedRun>) {
        if let Some(completed) = completed {
            self.host().trusted[pick.id.index()].runs.done(now, &completed);
        }
    }
}

impl World {
    /// Adds an upcall to the executive's own thread, which is to be done `stage` after its release; it is suspended. Its number there.
    ///
    /// # Panics
    /// If that is more than the host's configuration has room for.
    pub fn add_trusted(&mut self, host: HostId, upcall: Upcall, stage: Duration) -> usize {
        let host = &mut self.hosts[host.0];
        let id = host.endpoint_mut().upcalls_mut().create(upcall, stage, 0).expect("room for all upcalls of a host");
        host.trusted.push(TrustedUpcall { id, upcall, runs: RunCounts::default() });
        host.trusted.len() - 1
    }

    /// Releases it every period from `first` on, which has not passed. The executive is told now.
    pub fn run_trusted(&mut self, host: HostId, number: usize, first: Instant) {
        self.schedule(host.0, self.now(), PlannedCommand::RunTrusted { number, first });
    }

    /// Stops all upcalls on the executive's own thread. Returns the results of the runs of each since the last call.
    pub fn stop_trusted(&mut self, host: HostId) -> Vec<RunCounts> {
        let host = &mut self.hosts[host.0];
        for number in 0..host.trusted.len() {
            let id = host.trusted[number].id;
            host.endpoint_mut().upcalls_mut().suspend(id);
        }
        host.trusted.iter_mut().map(|trusted| core::mem::take(&mut trusted.runs)).collect()
    }
}
