//! Which upcall runs next: rate-monotonic with delayed preemption (RMDP) [rtu §5.1].
//!
//! The caller takes the first ([`Upcalls::pick`]), does the work of at least one iteration, and says what it did
//! ([`Upcalls::ran`]). Between two iterations it asks whether to yield ([`Upcalls::should_yield`]): then it stops there, and what is left
//! of the run is kept until the upcall is picked again. To return to [`Upcalls::pick`] after every iteration comes to the same.
//!
//! **Releases.** A periodic upcall is released at its first release and every period after it, whatever became of the runs before. A run
//! whose deadline, the next release, has passed before it began is *skipped*: it could only delay others. One that has begun is
//! finished, late.
//!
//! **Aperiodic upcalls** run in virtual time [rtu §9]: while no periodic one is released, first come first served, each as often as it was
//! asked for. They yield like all others, so they need no locks either; an iteration of theirs delays a periodic one as that of a lower
//! priority does.
//!
//! No clock, no threads. Nothing allocates after [`Upcalls::new`]; each step takes O(log n), plus O(log n) for each upcall that is released.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::processor::{self, After, Order, Policy, Processor, Work};
use crate::units::{Duration, Instant};
use crate::upcall::Upcall;

/// An upcall; after it was closed the same value never names another one (until 2³² reuses of its place).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpcallId {
    index: u32,
    generation: u32,
}

impl UpcallId {
    /// The place, below the capacity: for tables beside this one.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// The upcall that runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which.
    pub id: UpcallId,
    /// When the run was released, if it is periodic: deadlines count from here.
    pub release: Option<Instant>,
    /// By when it has to be done; `None` for an aperiodic one.
    pub deadline: Option<Instant>,
    /// Units of work that are done of the run.
    pub done: u32,
    /// Units that are left of it.
    pub left: u32,
    /// Units of an iteration.
    pub block: u32,
    /// Whether the run begins.
    pub begins: bool,
    /// Runs before it that were skipped.
    pub skipped: u64,
    /// Whether another upcall ran before.
    pub switched: bool,
}

/// What the caller did with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stopped after an iteration; what is left is done when it is picked again.
    Yields,
    /// There is nothing more to do in this period.
    Done,
    /// As [`Outcome::Done`], and the upcall is suspended.
    Finished,
}

/// A run that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// When it was released, if it is periodic.
    pub release: Option<Instant>,
    /// By when it had to be done.
    pub deadline: Option<Instant>,
    /// When it began.
    pub began: Instant,
    /// Units that it handled.
    pub units: u32,
}

/// What an upcall waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Suspended,
    /// Periodic: released at `release`, or to be.
    Periodic {
        release: Instant,
    },
    /// Aperiodic: asked for so many times.
    Aperiodic {
        asked: u64,
    },
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    upcall: Option<Upcall>,
    state: State,
    /// How long after its release it is to be done, as far as its order among others goes, and its level under fixed priorities.
    stage: Duration,
    priority: u8,
    /// Units done of the run that has begun.
    done: u32,
    began: Option<Instant>,
    /// Behind all others: it took more than it declared.
    demoted: bool,
}

/// Upcalls in a processor scheduler that others may use as well: theirs are the numbers from `first` on.
#[derive(Debug)]
pub(crate) struct Table {
    first: u32,
    entries: Box<[Entry]>,
    free: Vec<u32>,
    running: Option<UpcallId>,
}

impl Table {
    /// Room for `capacity` upcalls. Allocates all that is ever needed.
    pub(crate) fn new(first: usize, capacity: usize) -> Self {
        let count = u32::try_from(capacity).expect("a capacity within limits::MAX_UPCALLS");
        let entry = |_| Entry {
            generation: 0,
            upcall: None,
            state: State::Suspended,
            stage: Duration::ZERO,
            priority: 0,
            done: 0,
            began: None,
            demoted: false,
        };
        let first = u32::try_from(first).expect("numbers within limits::MAX_CHANNELS");
        Self { first, entries: (0..count).map(entry).collect(), free: (0..count).rev().collect(), running: None }
    }

    /// Takes an upcall in, suspended, which is to be done `stage` after its release; `None` if there is no room.
    pub(crate) fn create(&mut self, upcall: Upcall, stage: Duration, priority: u8) -> Option<UpcallId> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        (entry.upcall, entry.state, entry.demoted) = (Some(upcall), State::Suspended, false);
        (entry.stage, entry.priority) = (stage, priority);
        (entry.done, entry.began) = (0, None);
        Some(UpcallId { index, generation: entry.generation })
    }

    pub(crate) fn run(&mut self, processor: &mut Processor, now: Instant, id: UpcallId, first: Instant) -> bool {
        let Some(entry) = self.entry_mut(id) else { return false };
        if entry.began.is_none() || matches!(entry.state, State::Aperiodic { .. }) {
            entry.state = State::Periodic { release: first };
            self.enqueue(processor, now, id);
        }
        true
    }

    fn post(&mut self, processor: &mut Processor, now: Instant, id: UpcallId) -> bool {
        let number = self.first + id.index;
        let Some(entry) = self.entry_mut(id) else { return false };
        match &mut entry.state {
            State::Periodic { .. } => return false,
            State::Aperiodic { asked } => *asked = asked.saturating_add(1),
            State::Suspended => entry.state = State::Aperiodic { asked: 1 },
        }
        if !processor.is_known(number) {
            self.enqueue(processor, now, id);
        }
        true
    }

    pub(crate) fn suspend(&mut self, processor: &mut Processor, id: UpcallId) -> bool {
        let Some(entry) = self.entry_mut(id) else { return false };
        (entry.state, entry.done, entry.began) = (State::Suspended, 0, None);
        processor.remove(self.first + id.index);
        if self.running == Some(id) {
            self.running = None;
        }
        true
    }

    pub(crate) fn close(&mut self, processor: &mut Processor, id: UpcallId) -> bool {
        if !self.suspend(processor, id) {
            return false;
        }
        let entry = &mut self.entries[id.index()];
        (entry.upcall, entry.generation) = (None, entry.generation.wrapping_add(1));
        self.free.push(id.index);
        true
    }

    pub(crate) fn demote(&mut self, id: UpcallId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.demoted = true;
        }
    }

    pub(crate) fn upcall(&self, id: UpcallId) -> Option<Upcall> {
        self.entry(id)?.upcall
    }

    pub(crate) fn is_active(&self, id: UpcallId) -> bool {
        self.entry(id).is_some_and(|entry| entry.state != State::Suspended)
    }

    /// What the scheduler picked, if that is one of these.
    pub(crate) fn picked(&mut self, now: Instant, picked: processor::Pick) -> Option<Pick> {
        let index = picked.id.checked_sub(self.first)?;
        let entry = self.entries.get_mut(index as usize)?;
        let upcall = entry.upcall.expect("only upcalls that exist are queued");
        let id = UpcallId { index, generation: entry.generation };
        let begins = entry.began.is_none();
        let mut skipped = 0;
        let release = match &mut entry.state {
            State::Periodic { release } => {
                if begins {
                    skipped = now.since(*release).div_floor(upcall.period());
                    *release += upcall.period() * skipped;
                }
                Some(*release)
            }
            State::Suspended | State::Aperiodic { .. } => None,
        };
        entry.began.get_or_insert(now);
        self.running = Some(id);
        let deadline = release.map(|release| release + upcall.period());
        let (done, left, block) = (entry.done, upcall.batch() - entry.done, upcall.block());
        Some(Pick { id, release, deadline, done, left, block, begins, skipped, switched: picked.switched })
    }

    pub(crate) fn ran(
        &mut self,
        processor: &mut Processor,
        now: Instant,
        units: u32,
        outcome: Outcome,
    ) -> Option<Completed> {
        let id = self.running.take()?;
        let entry = &mut self.entries[id.index()];
        let upcall = entry.upcall?;
        entry.done = entry.done.saturating_add(units).min(upcall.batch());
        if outcome == Outcome::Yields && entry.done < upcall.batch() {
            let after = entry.work().map_or(After::Blocked, After::Same);
            processor.stepped(now, after);
            return None;
        }
        let (release, next) = match entry.state {
            State::Periodic { release } => (Some(release), State::Periodic { release: release + upcall.period() }),
            State::Aperiodic { asked } if asked > 1 => (None, State::Aperiodic { asked: asked - 1 }),
            State::Aperiodic { .. } | State::Suspended => (None, State::Suspended),
        };
        entry.state = if outcome == Outcome::Finished { State::Suspended } else { next };
        let (units, began) = (core::mem::take(&mut entry.done), entry.began.take().unwrap_or(now));
        let next = entry.work();
        processor.stepped(now, After::Message(next));
        let deadline = release.map(|release| release + upcall.period());
        Some(Completed { release, deadline, began, units })
    }

    fn entry(&self, id: UpcallId) -> Option<&Entry> {
        let entry = self.entries.get(id.index())?;
        (entry.generation == id.generation && entry.upcall.is_some()).then_some(entry)
    }

    fn entry_mut(&mut self, id: UpcallId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(id.index())?;
        (entry.generation == id.generation && entry.upcall.is_some()).then_some(entry)
    }

    fn enqueue(&self, processor: &mut Processor, now: Instant, id: UpcallId) {
        if let Some(work) = self.entries[id.index()].work() {
            processor.ready(now, self.first + id.index, work);
        }
    }
}

impl Entry {
    /// What it has to do next, as the processor scheduler sees it: a step is an iteration.
    fn work(&self) -> Option<Work> {
        let order = match self.state {
            State::Suspended => return None,
            State::Aperiodic { .. } => Order::BestEffort,
            State::Periodic { release } => {
                let (stage, priority) =
                    if self.demoted { (Duration::MAX, u8::MAX) } else { (self.stage, self.priority) };
                Order::RealTime { release, deadline: release + stage, priority, work_conserving: false }
            }
        };
        Some(Work { order, block: 1 })
    }
}

/// The upcalls of one thread.
#[derive(Debug)]
pub struct Upcalls {
    processor: Processor,
    table: Table,
}

impl Upcalls {
    /// Room for `capacity` upcalls. Allocates all that is ever needed.
    pub fn new(capacity: usize) -> Self {
        Self { processor: Processor::new(Policy::RateMonotonic, capacity), table: Table::new(0, capacity) }
    }

    /// Takes an upcall in, suspended; `None` if there is no room.
    pub fn create(&mut self, upcall: Upcall) -> Option<UpcallId> {
        self.table.create(upcall, upcall.period(), 0)
    }

    /// Releases it every period from `first` on. A run that has begun goes on; false if it is not there.
    pub fn run(&mut self, now: Instant, id: UpcallId, first: Instant) -> bool {
        self.table.run(&mut self.processor, now, id, first)
    }

    /// Asks for one more run as soon as nothing periodic wants the processor; false if it is not there, or is periodic.
    pub fn post(&mut self, now: Instant, id: UpcallId) -> bool {
        self.table.post(&mut self.processor, now, id)
    }

    /// Takes it out of the queue; a run that has begun is given up. False if it is not there.
    pub fn suspend(&mut self, id: UpcallId) -> bool {
        self.table.suspend(&mut self.processor, id)
    }

    /// Suspends it and forgets it; false if it is not there.
    pub fn close(&mut self, id: UpcallId) -> bool {
        self.table.close(&mut self.processor, id)
    }

    /// From its next release on it comes behind all other periodic upcalls.
    pub fn demote(&mut self, id: UpcallId) {
        self.table.demote(id);
    }

    /// What it was created as.
    pub fn upcall(&self, id: UpcallId) -> Option<Upcall> {
        self.table.upcall(id)
    }

    /// True if it is released every period, or asked for and not done.
    pub fn is_active(&self, id: UpcallId) -> bool {
        self.table.is_active(id)
    }

    /// The next release; `None` if nothing periodic is active. A release that is past and was not looked at counts.
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
    pub fn pick(&mut self, now: Instant) -> Option<Pick> {
        let picked = self.processor.pick(now)?;
        self.table.picked(now, picked)
    }

    /// True if the upcall that was picked should stop after its iteration, because one of higher priority was released.
    pub fn should_yield(&mut self, now: Instant) -> bool {
        self.processor.is_outranked(now)
    }

    /// The upcall that was picked handled so many `units` more. What the run was, if it is over: also if no units are left.
    pub fn ran(&mut self, now: Instant, units: u32, outcome: Outcome) -> Option<Completed> {
        self.table.ran(&mut self.processor, now, units, outcome)
    }
}

#[cfg(test)]
mod tests;
