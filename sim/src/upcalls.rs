//! The upcalls of a host: of one thread below the executive, which has the processor while that sleeps and the platform leaves it; and those on the
//! executive's own thread.

use std::collections::VecDeque;

use laxity_core::frames::HeapFrames;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome, Upcall, UpcallId, Upcalls};
use laxity_drive::{IterationResult, UpcallRunner};

use crate::{Activity, Gap, HostDriver, HostId, SimulatedEnvironment, World};

/// The counters of a thread of upcalls that had its processor to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoloThread {
    /// Of each upcall. A run that was not done when its deadline passed, nor at the end, counts as skipped, and its age as a response.
    pub runs: Vec<RunCounts>,
    /// The number of times that another upcall was picked than the one that ran before.
    pub switches: u64,
}

/// Runs upcalls for `span` on a virtual processor that nothing else has, each from its first release on: a change of upcall and a late
/// wake-up cost what `platform` says, which takes nothing away.
///
/// ```
/// use laxity_core::platform::Platform;
/// use laxity_core::units::{Duration, Instant};
/// use laxity_core::upcall::Upcall;
///
/// let ms = Duration::from_millis;
/// let upcalls = [(10, 3), (20, 8)].map(|(period, cost)| Upcall::new(ms(period), ms(cost), 8, 1).unwrap());
/// let together = upcalls.map(|upcall| (upcall, Instant::ZERO));
/// let alone = laxity_sim::upcalls::alone(&together, &Platform::papers_table_2b(), ms(200));
/// assert_eq!(alone.runs.iter().map(|runs| (runs.completed, runs.late)).collect::<Vec<_>>(), [(20, 0), (10, 0)]);
/// // It waits for a run of the first, and for another one after ten of its 20 ms.
/// assert_eq!(alone.runs[1].longest, ms(14));
/// ```
pub fn alone(upcalls: &[(Upcall, Instant)], platform: &Platform, span: Duration) -> SoloThread {
    let (mut thread, end) = (Thread::new(upcalls.len(), platform, platform.wake_up), Instant::ZERO + span);
    for &(upcall, first) in upcalls {
        let number = thread.add(upcall);
        thread.run(Instant::ZERO, number, first);
    }
    thread.advance(Instant::ZERO, end, &VecDeque::new());
    let mut runs = thread.take_runs();
    for (runs, (upcall, first)) in runs.iter_mut().zip(upcalls) {
        let over = runs.completed + runs.skipped;
        let unfinished = end.since(*first).div_floor(upcall.period()).saturating_sub(over);
        if unfinished > 0 {
            runs.skipped += unfinished;
            runs.longest = runs.longest.max(end.since(*first + upcall.period() * over));
        }
    }
    SoloThread { runs, switches: thread.switches }
}

/// The results of an upcall's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs that were completed.
    pub completed: u64,
    /// Of these, after their deadline.
    pub late: u64,
    /// Runs that did not begin within their period.
    pub skipped: u64,
    /// The longest from a nominal release until the run was done.
    pub longest: Duration,
}

impl RunCounts {
    /// A run was done at `at`.
    fn done(&mut self, at: Instant, completed: &CompletedRun) {
        self.completed += 1;
        if let (Some(release), Some(deadline)) = (completed.release, completed.deadline) {
            self.late += u64::from(at > deadline);
            self.longest = self.longest.max(at.since(release));
        }
    }
}

/// The results of the runs of each since the last call.
fn taken(upcalls: &mut [RunningUpcall]) -> Vec<RunCounts> {
    upcalls.iter_mut().map(|running| core::mem::take(&mut running.runs)).collect()
}

/// The units of the next iteration, and what it takes: rounded such that all iterations of a run take C.
fn iteration(upcall: &Upcall, pick: &PickedRun) -> (u32, Duration) {
    let units = pick.block.min(pick.left);
    let until = |units: u32| upcall.cost().mul_ratio(units.into(), upcall.batch().into());
    (units, until(pick.done + units) - until(pick.done))
}

/// An iteration that has begun.
struct Iteration {
    pick: PickedRun,
    units: u32,
    /// The time that it still takes, the switch to it included.
    left: Duration,
}

/// An upcall of a thread, and what its runs showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningUpcall {
    pub(crate) id: UpcallId,
    upcall: Upcall,
    runs: RunCounts,
}

/// The thread.
pub(crate) struct Thread {
    upcalls: Upcalls,
    /// By place.
    running: Vec<RunningUpcall>,
    /// C_cs.
    switch: Duration,
    /// The lateness with which it wakes up.
    late: Duration,
    /// Until when it is known what it did.
    at: Instant,
    iteration: Option<Iteration>,
    /// Until when it sleeps.
    sleeps_until: Option<Instant>,
    pub(crate) switches: u64,
}

impl Thread {
    /// A thread of so many upcalls at most, which wakes up `late`.
    pub(crate) fn new(capacity: usize, platform: &Platform, late: Duration) -> Self {
        Self {
            upcalls: Upcalls::new(capacity),
            running: Vec::new(),
            switch: platform.upcall_switch,
            late,
            at: Instant::ZERO,
            iteration: None,
            sleeps_until: None,
            switches: 0,
        }
    }

    /// Adds an upcall that is suspended. Its number.
    pub(crate) fn add(&mut self, upcall: Upcall) -> usize {
        let id = self.upcalls.create(upcall, upcall.period(), 0).expect("room for all upcalls of a host");
        self.running.push(RunningUpcall { id, upcall, runs: RunCounts::default() });
        self.running.len() - 1
    }

    /// Releases it every period from `first` on, which is not before `now`.
    pub(crate) fn run(&mut self, now: Instant, number: usize, first: Instant) {
        if self.iteration.is_none() {
            (self.at, self.sleeps_until) = (self.at.max(now), None);
        }
        self.upcalls.run(now, self.running[number].id, first);
    }

    /// Stops them all, whatever they were doing.
    pub(crate) fn suspend_all(&mut self) {
        self.iteration = None;
        for running in &self.running {
            self.upcalls.suspend(running.id);
        }
    }

    /// The results of the runs of each since the last call.
    pub(crate) fn take_runs(&mut self) -> Vec<RunCounts> {
        taken(&mut self.running)
    }

    /// True if a run is released and not done.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.iteration.is_some() || self.upcalls.has_current(now)
    }

    /// The time at which something may change: an iteration ends, or begins.
    pub(crate) fn next_event(&self, now: Instant) -> Option<Instant> {
        let from = self.at.max(now);
        match &self.iteration {
            Some(iteration) => Some(from + iteration.left),
            None if self.sleeps_until.is_none_or(|until| until <= from) && self.upcalls.has_ready(from) => {
                Some(from + Duration::from_nanos(1))
            }
            None => self.sleeps_until.or_else(|| self.upcalls.next_release()).map(|at| at.max(from)),
        }
    }

    /// The executive takes the processor: if an upcall was running, that costs a change of thread, and another one back.
    pub(crate) fn preempt(&mut self) {
        if let Some(iteration) = &mut self.iteration {
            iteration.left += self.switch * 2;
        }
    }

    /// It has the processor from `from` until `until`, but for the gaps.
    pub(crate) fn advance(&mut self, from: Instant, until: Instant, gaps: &VecDeque<Gap>) {
        self.at = self.at.max(from);
        let mut gaps = gaps.iter().filter(|gap| gap.start < until).peekable();
        while self.at < until {
            if let Some(gap) = gaps.next_if(|gap| gap.start <= self.at) {
                self.at = self.at.max(gap.start + gap.length);
                continue;
            }
            let until = gaps.peek().map_or(until, |gap| gap.start);
            if let Some(iteration) = &mut self.iteration {
                let end = self.at + iteration.left;
                if end <= until {
                    self.at = end;
                    self.finish();
                } else {
                    iteration.left = end.since(until);
                    self.at = until;
                }
                continue;
            }
            if let Some(wakes) = self.sleeps_until {
                self.at = self.at.max(wakes.min(until));
                if wakes > until {
                    continue;
                }
                self.sleeps_until = None;
            }
            match self.upcalls.pick(self.at) {
                Some(pick) => self.begin(pick),
                None => match self.upcalls.next_release() {
                    Some(release) => self.sleeps_until = Some(release + self.late),
                    None => self.at = until,
                },
            }
        }
    }

    fn begin(&mut self, pick: PickedRun) {
        let running = &mut self.running[pick.id.index()];
        let (units, cost) = iteration(&running.upcall, &pick);
        self.switches += u64::from(pick.switched);
        let switch = if pick.switched { self.switch } else { Duration::ZERO };
        running.runs.skipped += pick.skipped;
        self.iteration = Some(Iteration { pick, units, left: switch + cost });
    }

    fn finish(&mut self) {
        let Some(Iteration { pick, units, .. }) = self.iteration.take() else { return };
        if let Some(completed) = self.upcalls.ran(self.at, units, RunOutcome::Yields) {
            self.running[pick.id.index()].runs.done(self.at, &completed);
        }
    }
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
        host.trusted.push(RunningUpcall { id, upcall, runs: RunCounts::default() });
        host.trusted.len() - 1
    }

    /// Releases it every period from `first` on, which has not passed. The executive is told now.
    pub fn run_trusted(&mut self, host: HostId, number: usize, first: Instant) {
        self.instruct(host.0, self.now(), false, move |around, driver, now| {
            let host = around.host();
            let (id, first) = (host.trusted[number].id, host.clock.reading(first));
            driver.endpoint.upcalls_mut().run(now, id, first);
        });
    }

    /// Stops all upcalls on the executive's own thread. Returns the results of the runs of each since the last call.
    pub fn stop_trusted(&mut self, host: HostId) -> Vec<RunCounts> {
        let host = &mut self.hosts[host.0];
        for number in 0..host.trusted.len() {
            let id = host.trusted[number].id;
            host.endpoint_mut().upcalls_mut().suspend(id);
        }
        taken(&mut host.trusted)
    }
}
