//! The queue of upcalls: rate-monotonic with delayed preemption (RMDP) [rtu §5.1].
//!
//! The caller takes the first ([`Upcalls::pick`]), does the work of at least one iteration, and reports the result
//! ([`Upcalls::ran`]). Between two iterations it asks whether to yield ([`Upcalls::should_yield`]): then it stops there, and the rest
//! of the run is kept until the upcall is picked again. Returning to [`Upcalls::pick`] after every iteration has the same effect.
//!
//! **Releases.** A periodic upcall is released at its first release and every period after it, whatever happened to the runs before. A run
//! whose deadline, the next release, has passed before it began is *skipped*: it could only delay others. One that has begun is
//! finished, late.
//!
//! **Aperiodic upcalls** run in virtual time [rtu §9]: while no periodic one is released, first come first served, each as often as it was
//! asked for. They yield like all others, so they need no locks either; an iteration of theirs delays a periodic one as that of a lower
//! priority does.
//!
//! No clock, no threads. Nothing allocates after [`Upcalls::new`]; each step takes O(log n), plus O(log n) for each upcall that is released.

use crate::collections::{Key, Slab};
use crate::processor::{JobOrder, NextWork, PickedJob, Policy, Processor, RemainingWork};
use crate::units::{Duration, Instant};
use crate::upcall::Upcall;

/// An upcall; after it was closed the same value never names another one (until 2³² reuses of its place).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpcallId(Key);

impl UpcallId {
    /// The place, below the capacity: for tables beside this one.
    pub const fn index(self) -> usize {
        self.0.index() as usize
    }
}

/// The upcall that runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickedRun {
    /// The upcall.
    pub id: UpcallId,
    /// The time at which the run was released, if it is periodic: deadlines count from here.
    pub release: Option<Instant>,
    /// The time by which it has to be done; `None` for an aperiodic one.
    pub deadline: Option<Instant>,
    /// Units of work that are done of the run.
    pub done: u32,
    /// Units that are left of it.
    pub left: u32,
    /// Units of an iteration.
    pub block: u32,
    /// True if the run begins.
    pub begins: bool,
    /// Runs before it that were skipped.
    pub skipped: u64,
    /// True if another upcall ran before.
    pub switched: bool,
}

/// The result of a run, from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It stopped after an iteration; the rest is done when it is picked again.
    Yields,
    /// There is nothing more to do in this period.
    Done,
    /// As [`RunOutcome::Done`], and the upcall is suspended.
    Finished,
}

/// A run that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedRun {
    /// The time at which it was released, if it is periodic.
    pub release: Option<Instant>,
    /// The time by which it had to be done.
    pub deadline: Option<Instant>,
    /// The time at which it began.
    pub began: Instant,
    /// Units that it handled.
    pub units: u32,
}

/// The event that an upcall waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    Suspended,
    /// Periodic: released then, or to be.
    Periodic(Instant),
    /// Aperiodic: asked for so many times.
    Aperiodic(u64),
}

#[derive(Debug)]
struct UpcallEntry {
    upcall: Upcall,
    state: RunState,
    /// The time after its release by which it is to be done, as far as its order among others goes, and its level under fixed priorities.
    stage: Duration,
    priority: u8,
    /// Units done of the run that has begun.
    done: u32,
    began: Option<Instant>,
    /// Behind all others: it took more than it declared.
    demoted: bool,
}

impl UpcallEntry {
    /// Its next work, as the processor scheduler sees it: a step is an iteration.
    fn work(&self) -> Option<NextWork> {
        let order = match self.state {
            RunState::Suspended => return None,
            RunState::Aperiodic(_) => JobOrder::BestEffort,
            RunState::Periodic(release) => {
                let (stage, priority) =
                    if self.demoted { (Duration::MAX, u8::MAX) } else { (self.stage, self.priority) };
                JobOrder::RealTime { release, deadline: release + stage, priority, work_conserving: false }
            }
        };
        Some(NextWork { order, block: 1 })
    }
}

/// The upcalls of one thread, and the processor scheduler that picks them. It may have other jobs as well: upcalls are the numbers from
/// `first` on.
#[derive(Debug)]
pub struct Upcalls {
    pub(crate) processor: Processor,
    first: u32,
    entries: Slab<UpcallEntry>,
    running: Option<UpcallId>,
}

impl Upcalls {
    /// Room for `capacity` upcalls. Allocates all that is ever needed.
    pub fn new(capacity: usize) -> Self {
        Self::beside(0, Policy::RateMonotonic, capacity)
    }

    /// Likewise, in a scheduler of this policy in which the numbers below `others` are other jobs'.
    pub(crate) fn beside(others: usize, policy: Policy, capacity: usize) -> Self {
        let first = u32::try_from(others).expect("numbers within limits::MAX_CHANNELS");
        let processor = Processor::new(policy, others + capacity);
        Self { processor, first, entries: Slab::with_capacity(capacity), running: None }
    }

    /// Adds an upcall, suspended. Its runs must be done `stage` after their release, as far as the order by deadline goes; `priority` is its level
    /// under fixed priorities. `None` if there is no room.
    pub fn create(&mut self, upcall: Upcall, stage: Duration, priority: u8) -> Option<UpcallId> {
        let state = RunState::Suspended;
        let entry = UpcallEntry { upcall, state, stage, priority, done: 0, began: None, demoted: false };
        self.entries.insert(entry).ok().map(UpcallId)
    }

    /// Releases it every period from `first` on. A run that has begun goes on; false if it is not there.
    pub fn run(&mut self, now: Instant, id: UpcallId, first: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(id.0) else { return false };
        if entry.began.is_none() || matches!(entry.state, RunState::Aperiodic(_)) {
            entry.state = RunState::Periodic(first);
            self.enqueue(now, id);
        }
        true
    }

    /// Asks for one more run as soon as nothing periodic wants the processor; false if it is not there, or is periodic.
    pub fn post(&mut self, now: Instant, id: UpcallId) -> bool {
        let Some(entry) = self.entries.get_mut(id.0) else { return false };
        match &mut entry.state {
            RunState::Periodic(_) => return false,
            RunState::Aperiodic(asked) => *asked = asked.saturating_add(1),
            RunState::Suspended => entry.state = RunState::Aperiodic(1),
        }
        if !self.processor.is_known(self.first + id.0.index()) {
            self.enqueue(now, id);
        }
        true
    }

    /// Takes it out of the queue; a run that has begun is given up. False if it is not there.
    pub fn suspend(&mut self, id: UpcallId) -> bool {
        let Some(entry) = self.entries.get_mut(id.0) else { return false };
        (entry.state, entry.done, entry.began) = (RunState::Suspended, 0, None);
        self.processor.remove(self.first + id.0.index());
        self.running.take_if(|running| *running == id);
        true
    }

    /// Suspends it and forgets it; false if it is not there.
    pub fn close(&mut self, id: UpcallId) -> bool {
        self.suspend(id) && self.entries.remove(id.0).is_some()
    }

    /// Demotes it: from its next release on it comes after all other real-time work.
    pub fn demote(&mut self, id: UpcallId) {
        if let Some(entry) = self.entries.get_mut(id.0) {
            entry.demoted = true;
        }
    }

    /// The upcall as it was created.
    pub fn upcall(&self, id: UpcallId) -> Option<Upcall> {
        Some(self.entries.get(id.0)?.upcall)
    }

    /// True if it is released every period, or asked for and not done.
    pub fn is_active(&self, id: UpcallId) -> bool {
        self.entries.get(id.0).is_some_and(|entry| entry.state != RunState::Suspended)
    }

    /// The next release; `None` if nothing periodic is active. A past release that was not looked at yet counts, too.
    pub fn next_release(&self) -> Option<Instant> {
        self.processor.next_release()
    }

    /// True if something could run at `now`.
    pub fn has_ready(&self, now: Instant) -> bool {
        self.processor.has_ready(now)
    }

    /// True if a periodic upcall is released and not done at `now`.
    pub fn has_current(&self, now: Instant) -> bool {
        self.processor.has_current(now)
    }

    /// The upcall whose iteration is next, or `None` if none is ready.
    pub fn pick(&mut self, now: Instant) -> Option<PickedRun> {
        let picked = self.processor.pick(now)?;
        self.picked(now, picked)
    }

    /// True if this job of the scheduler is an upcall.
    pub(crate) fn has(&self, job: PickedJob) -> bool {
        job.id >= self.first
    }

    /// The upcall that the scheduler picked, if it picked one of these.
    pub(crate) fn picked(&mut self, now: Instant, picked: PickedJob) -> Option<PickedRun> {
        let key = self.entries.key_at(picked.id.checked_sub(self.first)?)?;
        let (id, entry) = (UpcallId(key), self.entries.get_mut(key)?);
        let upcall = entry.upcall;
        let begins = entry.began.is_none();
        let mut skipped = 0;
        let release = match &mut entry.state {
            RunState::Periodic(release) => {
                if begins {
                    skipped = now.since(*release).div_floor(upcall.period());
                    *release += upcall.period() * skipped;
                }
                Some(*release)
            }
            RunState::Suspended | RunState::Aperiodic(_) => None,
        };
        entry.began.get_or_insert(now);
        self.running = Some(id);
        let deadline = release.map(|release| release + upcall.period());
        let (done, left, block) = (entry.done, upcall.batch() - entry.done, upcall.block());
        Some(PickedRun { id, release, deadline, done, left, block, begins, skipped, switched: picked.switched })
    }

    /// True if the upcall that was picked should stop after its iteration, because one of higher priority was released.
    pub fn should_yield(&mut self, now: Instant) -> bool {
        self.processor.is_outranked(now)
    }

    /// Tells that the upcall that was picked handled so many `units` more. Returns the run, if it is over, which it also is if no units are left.
    pub fn ran(&mut self, now: Instant, units: u32, outcome: RunOutcome) -> Option<CompletedRun> {
        let entry = self.entries.get_mut(self.running.take()?.0)?;
        let upcall = entry.upcall;
        entry.done = entry.done.saturating_add(units).min(upcall.batch());
        if outcome == RunOutcome::Yields && entry.done < upcall.batch() {
            let after = entry.work().map_or(RemainingWork::Blocked, RemainingWork::Same);
            self.processor.stepped(now, after);
            return None;
        }
        let (release, next) = match entry.state {
            RunState::Periodic(release) => (Some(release), RunState::Periodic(release + upcall.period())),
            RunState::Aperiodic(asked) if asked > 1 => (None, RunState::Aperiodic(asked - 1)),
            RunState::Aperiodic(_) | RunState::Suspended => (None, RunState::Suspended),
        };
        entry.state = if outcome == RunOutcome::Finished { RunState::Suspended } else { next };
        let (units, began) = (core::mem::take(&mut entry.done), entry.began.take().unwrap_or(now));
        self.processor.stepped(now, RemainingWork::Message(entry.work()));
        let deadline = release.map(|release| release + upcall.period());
        Some(CompletedRun { release, deadline, began, units })
    }

    fn enqueue(&mut self, now: Instant, id: UpcallId) {
        if let Some(work) = self.entries.get(id.0).and_then(UpcallEntry::work) {
            self.processor.ready(now, self.first + id.0.index(), work);
        }
    }
}

#[cfg(test)]
mod tests;
