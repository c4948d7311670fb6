//! The upcalls that a thread owns, and the judgement of late runs; the same for a thread of upcalls and for the executive's
//! thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use laxity_core::platform::Interference;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome, Upcall as Timing, UpcallId, Upcalls as Queue};
use laxity_link::sys::WakeSet;

use super::periodic::PeriodTurn;
use super::reader::ReadDescriptor;
use super::watch::WatchedDescriptor;
use super::{Overrun, Progress, UpcallRun};
use crate::doorbell::Doorbell;
use crate::readiness::Readiness;
use crate::signal::Notifier;
use crate::statistics::add;
use crate::sync::Wake;
use crate::upcall_figures::{UpcallRecord, UpcallState};

/// The requests of handles to the thread.
pub(super) enum UpcallCommand {
    Create { slot: Box<Slot> },
    Run { place: u32, first: Instant },
    Post { place: u32 },
    Suspend { place: u32 },
    Close { place: u32 },
    Stop,
}

/// A function that does the work of a run.
pub(super) type Function = Box<dyn FnMut(&mut UpcallRun<'_>) -> Progress + Send>;

/// The code that does the work of a run.
pub(super) enum RunHandler {
    /// A function, on the thread of the upcalls. With a descriptor it is released by that instead of the time, once each time that the thread
    /// listens to it.
    Local(Function, Option<Arc<ReadDescriptor>>),
    /// A thread with a loop of its own, which is woken and waited for.
    Remote(Arc<PeriodTurn>),
}

impl RunHandler {
    /// The descriptor that releases the upcall, if one does.
    pub(super) fn source(&self) -> Option<&Arc<ReadDescriptor>> {
        if let Self::Local(_, source) = self { source.as_ref() } else { None }
    }
}

/// An upcall as its thread knows it.
pub(super) struct Slot {
    pub(super) place: u32,
    pub(super) timing: Timing,
    /// The time after its release by which a run is to be done, for its order among others.
    pub(super) stage: Duration,
    pub(super) overrun: Overrun,
    pub(super) handler: RunHandler,
    pub(super) record: Arc<UpcallRecord>,
    id: Option<UpcallId>,
    /// The descriptor does not release it earlier.
    earliest: Instant,
    /// The processor time of the run in progress.
    pub(super) used: Duration,
    /// The time in this busy period beyond the declared one, sleep included.
    excess: Duration,
    /// The number of that busy period.
    excess_in: u64,
}

impl Slot {
    pub(super) fn new(
        place: u32,
        (timing, stage): (Timing, Duration),
        overrun: Overrun,
        handler: RunHandler,
        record: Arc<UpcallRecord>,
    ) -> Self {
        let (used, excess) = (Duration::ZERO, Duration::ZERO);
        let (id, earliest, excess_in) = (None, Instant::ZERO, 0);
        Self { place, timing, stage, overrun, handler, record, id, earliest, used, excess, excess_in }
    }

    /// Releases the upcall, whose descriptor had something to read at `now`, but no sooner than a period after its last release.
    fn ready(&self, now: Instant, queue: &mut Queue) {
        if let Some(id) = self.id.filter(|id| !queue.is_active(*id)) {
            let release = now.max(self.earliest);
            self.record.release.store(release.as_nanos(), Ordering::Relaxed);
            queue.run(now, id, release);
        }
    }

    /// Notes that the thread has picked it at `begin`; `judge` finds the cause of runs that did not begin in their period.
    pub(super) fn picked(&mut self, begin: Instant, pick: &PickedRun, judge: impl FnOnce(&Self) -> LateCause) {
        if pick.begins {
            self.used = Duration::ZERO;
        }
        if let Some(release) = pick.release.filter(|_| pick.begins) {
            self.earliest = release + self.timing.period();
            self.record.release.store(release.as_nanos(), Ordering::Relaxed);
            self.record.jitter.record(begin.since(release).as_nanos());
        }
        if pick.skipped > 0 {
            add(&self.record.skipped, pick.skipped);
            judge(self).count(&self.record, pick.skipped);
        }
    }

    /// The declared time of `units` after `done` others; one iteration at least.
    pub(super) fn declared(&self, done: u32, units: u32) -> Duration {
        let part = self.timing.cost().mul_ratio((done + units).into(), self.timing.batch().into());
        part.max(self.timing.quantum())
    }

    /// Decides whether the run continues after its handler has returned or panicked (no progress), and gives the new state of an
    /// upcall that ends.
    pub(super) fn outcome(&self, progress: Option<Progress>) -> (RunOutcome, Option<UpcallState>) {
        let state = match progress {
            None | Some(Progress::Failed) => Some(UpcallState::Panicked),
            Some(_) if self.is_over_cost() && self.overrun == Overrun::Stop => Some(UpcallState::Stopped),
            Some(Progress::Finished) => Some(UpcallState::Suspended),
            Some(Progress::Yield | Progress::Done) => None,
        };
        let outcome = match (progress, state) {
            (_, Some(_)) => RunOutcome::Finished,
            (Some(Progress::Yield), None) => RunOutcome::Yields,
            _ => RunOutcome::Done,
        };
        (outcome, state)
    }

    /// True if the run took more than it declared.
    pub(super) fn is_over_cost(&self) -> bool {
        self.used > self.timing.cost()
    }

    /// Counts a run that was done at `end`; `judge` finds the cause if that is after its deadline, or its bound.
    pub(super) fn completed(&self, completed: &CompletedRun, end: Instant, judge: impl FnOnce() -> LateCause) {
        let record = &self.record;
        add(&record.completed, 1);
        record.cost.record(self.used.as_nanos());
        add(&record.over_cost, u64::from(self.is_over_cost()));
        if record.period.is_none() {
            let own = record.bound.load(Ordering::Relaxed).min(1 << 62);
            let less = |all: u64| Some(all.saturating_sub(own));
            let _ = record.backlog.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        let (Some(release), Some(deadline)) = (completed.release, completed.deadline) else { return };
        record.done(release, deadline, end);
        record.release.store(deadline.as_nanos(), Ordering::Relaxed);
        let is_beyond_bound = end.since(release).as_nanos() > record.bound.load(Ordering::Relaxed);
        if end > deadline {
            add(&record.late, 1);
            judge().count(record, 1);
        } else if is_beyond_bound && matches!(judge(), LateCause::Laxity) {
            add(&record.over_bound, 1);
        }
    }
}

/// The state that the thread shares with handles and with the executive.
#[derive(Debug)]
pub(super) struct ThreadShared {
    /// True while a command waits: handlers then yield.
    pub(super) flag: AtomicBool,
    pub(super) wake: Wake,
    /// Notified when an upcall is no longer active.
    pub(super) changed: Notifier,
    pub(super) readiness: Arc<Readiness>,
    /// The state of the call that its watch looks at.
    pub(super) watch: Arc<WatchedDescriptor>,
    /// The descriptors that upcalls read, once there may be some.
    pub(super) descriptors: OnceLock<Arc<WakeSet>>,
    /// The bell of the executive above, if there is one; of the executive itself, if the upcalls are on its thread.
    pub(super) bell: Option<Arc<Doorbell>>,
    /// True if the upcalls are on the executive's thread.
    is_executive: bool,
    pub(super) thread: OnceLock<ThreadId>,
    pub(super) over: AtomicBool,
}

impl ThreadShared {
    pub(super) fn new(
        readiness: Arc<Readiness>,
        bell: Option<Arc<Doorbell>>,
        is_executive: bool,
    ) -> std::io::Result<Self> {
        let (thread, over) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Self {
            flag: AtomicBool::new(false),
            wake: Wake::new()?,
            changed: Notifier::default(),
            readiness,
            watch: Arc::default(),
            descriptors: OnceLock::new(),
            bell,
            is_executive,
            thread,
            over,
        })
    }

    /// Tells the thread that a command waits.
    pub(super) fn ring(&self) {
        self.flag.store(true, Ordering::SeqCst);
        match &self.bell {
            _ if self.is_own_thread() => {}
            Some(bell) if self.is_executive => bell.poke(),
            _ => self.wake.wake(),
        }
    }

    pub(super) fn is_own_thread(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// The component at fault for a late run.
pub(super) enum LateCause {
    Upcall(u32),
    Platform,
    Laxity,
}

/// An iteration that is too long by no more than this is not examined.
pub(super) const LEAST_EXCESS: Duration = Duration::from_micros(20);

/// The number of looks at descriptors by a thread that is always busy, in the shortest period of the upcalls that they release.
pub(super) const LOOKS: u64 = 8;

/// The upcalls of a thread.
pub(super) struct ThreadUpcalls {
    slots: Box<[Option<Box<Slot>>]>,
    /// The place of each upcall in `slots`, by its place in the queue.
    places: Box<[u32]>,
    commands: rtrb::Consumer<UpcallCommand>,
    garbage: rtrb::Producer<Box<Slot>>,
    pub(super) wires: Arc<ThreadShared>,
    /// The time of the next look at descriptors, and the interval; `None` without descriptors.
    look_at: Instant,
    looks_every: Option<Duration>,
}

impl ThreadUpcalls {
    pub(super) fn new(
        capacity: usize,
        wires: Arc<ThreadShared>,
        commands: rtrb::Consumer<UpcallCommand>,
        garbage: rtrb::Producer<Box<Slot>>,
    ) -> Self {
        let (slots, places) = ((0..capacity).map(|_| None).collect(), vec![0; capacity].into_boxed_slice());
        Self { slots, places, commands, garbage, wires, look_at: Instant::ZERO, looks_every: None }
    }

    /// Carries out the requests of handles; false if one is to stop.
    pub(super) fn obey(&mut self, now: Instant, queue: &mut Queue) -> bool {
        while let Ok(command) = self.commands.pop() {
            match command {
                UpcallCommand::Stop => return false,
                UpcallCommand::Create { mut slot } => {
                    let place = slot.place as usize;
                    if let Some(id) = queue.create(slot.timing, slot.stage, 0) {
                        slot.id = Some(id);
                        self.places[id.index()] = slot.place;
                        let is_reader = slot.handler.source().is_some();
                        self.slots[place] = Some(slot);
                        if is_reader {
                            self.plan_looks();
                        }
                    }
                }
                UpcallCommand::Run { place, first } => {
                    let slot = self.slots.get_mut(place as usize).and_then(Option::as_deref_mut);
                    if let Some(slot) = slot.filter(|slot| slot.handler.source().is_some()) {
                        slot.earliest = slot.earliest.max(first);
                        self.listen(place);
                    } else if let Some((id, slot)) = self.known(place) {
                        slot.record.release.store(first.as_nanos(), Ordering::Relaxed);
                        queue.run(now, id, first);
                    }
                }
                UpcallCommand::Post { place } => {
                    if let Some((id, _)) = self.known(place) {
                        queue.post(now, id);
                    }
                }
                UpcallCommand::Suspend { place } => {
                    if let Some((id, slot)) = self.known(place) {
                        queue.suspend(id);
                        slot.handler.source().inspect(|source| source.ignore());
                        self.end(&slot.record, UpcallState::Suspended);
                    }
                }
                UpcallCommand::Close { place } => {
                    if let Some(slot) = self.slots.get_mut(place as usize).and_then(Option::take) {
                        if let Some(id) = slot.id {
                            queue.close(id);
                        }
                        if slot.handler.source().is_some() {
                            self.plan_looks();
                        }
                        // There is room for every slot; the thread that creates or drops an upcall frees memory.
                        let _ = self.garbage.push(slot);
                    }
                }
            }
        }
        true
    }

    fn known(&self, place: u32) -> Option<(UpcallId, &Slot)> {
        let slot = self.slots.get(place as usize)?.as_deref()?;
        Some((slot.id?, slot))
    }

    /// Listens to the upcall's descriptor, unless it is out of the set.
    fn listen(&self, place: u32) {
        let Some(slot) = self.slots.get(place as usize).and_then(Option::as_deref) else { return };
        slot.record.release.store(u64::MAX, Ordering::Relaxed);
        if !slot.handler.source().is_some_and(|source| source.listen(place)) {
            self.end(&slot.record, UpcallState::Stopped);
        }
    }

    /// Upcalls that are released by descriptors have come or gone.
    fn plan_looks(&mut self) {
        let readers = self.slots.iter().flatten().filter(|slot| slot.handler.source().is_some());
        self.looks_every = readers.map(|slot| slot.timing.period().mul_ratio(1, LOOKS)).min();
    }

    /// Releases upcalls whose descriptors have something to read, if a look is due. Called whenever another upcall may be picked.
    pub(super) fn look(&mut self, now: Instant, queue: &mut Queue) {
        let (Some(every), Some(set)) = (self.looks_every, self.wires.descriptors.get()) else { return };
        if now >= self.look_at {
            self.look_at = now + every;
            set.take(|place| {
                if let Some(slot) = self.slots.get(place as usize).and_then(Option::as_deref) {
                    slot.ready(now, queue);
                }
            });
        }
    }

    /// Makes the next look due, because the thread has slept.
    pub(super) fn look_next(&mut self) {
        self.look_at = Instant::ZERO;
    }

    /// The time of the next look.
    pub(super) fn looks_at(&self) -> Instant {
        self.looks_every.map_or(Instant::MAX, |_| self.look_at)
    }

    /// Takes out the upcall that runs.
    pub(super) fn take(&mut self, id: UpcallId) -> Option<Box<Slot>> {
        self.slots[self.places[id.index()] as usize].take()
    }

    /// Puts an upcall back after it has run, with its new state if it has ended.
    pub(super) fn put(&mut self, slot: Box<Slot>, state: Option<UpcallState>, queue: &Queue) {
        let is_active = slot.id.is_some_and(|id| queue.is_active(id));
        let place = slot.place;
        match state {
            // The next release is up to its descriptor.
            Some(UpcallState::Suspended) if slot.handler.source().is_some() => {
                self.slots[place as usize] = Some(slot);
                return self.listen(place);
            }
            Some(state) => self.end(&slot.record, state),
            None if !is_active => self.end(&slot.record, UpcallState::Suspended),
            None => {}
        }
        self.slots[place as usize] = Some(slot);
    }

    /// Marks the upcall as no longer active.
    fn end(&self, record: &UpcallRecord, state: UpcallState) {
        if record.state() != UpcallState::Closed {
            record.set_state(state);
        }
        record.release.store(u64::MAX, Ordering::Relaxed);
        self.wires.changed.notify();
    }

    /// Removes all upcalls from their queue.
    pub(super) fn suspend_all(&self, queue: &mut Queue) {
        self.slots.iter().flatten().filter_map(|slot| slot.id).for_each(|id| {
            queue.close(id);
        });
    }

    /// Closes all upcalls.
    pub(super) fn close(&mut self) {
        for slot in self.slots.iter().flatten() {
            slot.record.set_state(UpcallState::Closed);
            if let RunHandler::Remote(baton) = &slot.handler {
                baton.close();
            }
        }
        self.wires.over.store(true, Ordering::SeqCst);
        self.wires.changed.notify();
    }
}

/// A busy period: a time in which the thread always had work, with the upcalls that exceeded their grants in it.
pub(super) struct BusyPeriod {
    number: u64,
    pub(super) since: Instant,
    /// The upcall with the largest excess.
    culprit: Option<(u32, Duration)>,
    interference: Interference,
}

impl BusyPeriod {
    pub(super) fn new(interference: Interference) -> Self {
        Self { number: 0, since: Instant::ZERO, culprit: None, interference }
    }

    /// Begins another busy period.
    pub(super) fn begin(&mut self, since: Instant) {
        (self.number, self.since, self.culprit) = (self.number + 1, since, None);
    }

    /// Notes that an upcall took `over` more than it declared, sleep included.
    pub(super) fn exceeded(&mut self, slot: &mut Slot, over: Duration) {
        if over.is_zero() {
            return;
        }
        if slot.excess_in != self.number {
            (slot.excess, slot.excess_in) = (Duration::ZERO, self.number);
        }
        slot.excess = slot.excess.max(over);
        if self.culprit.is_none_or(|(_, most)| slot.excess > most) {
            self.culprit = Some((slot.place, slot.excess));
        }
    }

    /// Finds the largest excess in this busy period: an upcall beyond its cost, or the platform beyond its envelope.
    /// `by_platform` is the time that the platform took, by the kernel's counters. If there is neither, the cause is a bug of
    /// Laxity.
    pub(super) fn judge(&self, now: Instant, slot: &Slot, by_platform: Duration) -> LateCause {
        let own = if slot.excess_in == self.number { slot.excess } else { Duration::ZERO };
        let (place, upcall) = match self.culprit {
            Some((place, most)) if most > own => (place, most),
            _ => (slot.place, own),
        };
        let platform = by_platform.saturating_sub(self.interference.within(now.since(self.since)));
        match upcall.max(platform) {
            Duration::ZERO => LateCause::Laxity,
            most if most == upcall => LateCause::Upcall(place),
            _ => LateCause::Platform,
        }
    }
}

impl LateCause {
    /// Counts `runs` late runs of this upcall because of it.
    pub(super) fn count(&self, record: &UpcallRecord, runs: u64) {
        match self {
            Self::Upcall(place) => {
                record.culprit.store(place + 1, Ordering::Relaxed);
                add(&record.by_upcall, runs);
            }
            Self::Platform => add(&record.by_platform, runs),
            Self::Laxity => add(&record.by_laxity, runs),
        }
    }
}
