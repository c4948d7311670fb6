//! What a thread of upcalls owns of them, and how it judges what was late: the same for a thread of their own and for the executive's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use laxity_core::platform::Interference;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{Completed, Outcome, Upcall as Timing, UpcallId};
use laxity_link::sys::ReadySet;

use super::periodic::Baton;
use super::reader::Source;
use super::{Overrun, Progress, Run};
use crate::doorbell::Doorbell;
use crate::readiness::Readiness;
use crate::signal::Signal;
use crate::sync::Wake;
use crate::upcall_figures::{Record, State, add};

/// What handles ask the thread for.
pub(super) enum Command {
    Create { slot: Box<Slot> },
    Run { place: u32, first: Instant },
    Post { place: u32 },
    Suspend { place: u32 },
    Close { place: u32 },
    Stop,
}

/// A function that does the work of a run.
pub(super) type Function = Box<dyn FnMut(&mut Run<'_>) -> Progress + Send>;

/// Who does the work of a run.
pub(super) enum Handler {
    /// A function, on the thread of the upcalls.
    Here(Function),
    /// Likewise, released not by the time but by its descriptor, once each time that this is listened to.
    Reads(Function, Arc<Source>),
    /// A thread with a loop of its own, which is woken and waited for.
    There(Arc<Baton>),
}

impl Handler {
    /// The descriptor that releases the upcall, if one does.
    pub(super) fn source(&self) -> Option<&Arc<Source>> {
        if let Self::Reads(_, source) = self { Some(source) } else { None }
    }
}

/// An upcall as its thread knows it.
pub(super) struct Slot {
    pub(super) place: u32,
    pub(super) timing: Timing,
    /// How long after its release a run is to be done, as far as its order among others goes.
    pub(super) stage: Duration,
    pub(super) overrun: Overrun,
    pub(super) handler: Handler,
    pub(super) record: Arc<Record>,
    backlog: Option<Arc<AtomicU64>>,
    id: Option<UpcallId>,
    /// By its descriptor it is not released before.
    earliest: Instant,
    /// What the run that has begun took of the processor so far.
    pub(super) used: Duration,
    /// What it took in this busy period beyond what it declared, sleep included.
    excess: Duration,
    /// Which busy period that is.
    excess_in: u64,
}

impl Slot {
    pub(super) fn new(
        place: u32,
        (timing, stage): (Timing, Duration),
        overrun: Overrun,
        handler: Handler,
        record: Arc<Record>,
        backlog: Option<Arc<AtomicU64>>,
    ) -> Self {
        let (used, excess) = (Duration::ZERO, Duration::ZERO);
        let (id, earliest, excess_in) = (None, Instant::ZERO, 0);
        Self { place, timing, stage, overrun, handler, record, backlog, id, earliest, used, excess, excess_in }
    }

    /// Its descriptor had something to read at `now`: it is released, but no sooner than a period after its last release.
    fn ready(&self, now: Instant, order: &mut impl Order) {
        if let Some(id) = self.id.filter(|id| !order.is_active(*id)) {
            let release = now.max(self.earliest);
            self.record.release.store(release.as_nanos(), Ordering::Relaxed);
            order.run(now, id, release);
        }
    }

    /// A run begins at `begin` that was released then, if it is periodic.
    pub(super) fn begins(&mut self, begin: Instant, release: Option<Instant>) {
        self.used = Duration::ZERO;
        if let Some(release) = release {
            self.earliest = release + self.timing.period();
            self.record.release.store(release.as_nanos(), Ordering::Relaxed);
            self.record.jitter.record(begin.since(release).as_nanos());
        }
    }

    /// What `units` may take after `done` others; an iteration at least.
    pub(super) fn declared(&self, done: u32, units: u32) -> Duration {
        let part = self.timing.cost().mul_ratio((done + units).into(), self.timing.batch().into());
        part.max(self.timing.quantum())
    }

    /// Whether the run goes on after its handler has returned, or panicked (no progress), and what the upcall is if it runs no more.
    pub(super) fn outcome(&self, progress: Option<Progress>) -> (Outcome, Option<State>) {
        let state = match progress {
            None | Some(Progress::Failed) => Some(State::Panicked),
            Some(_) if self.is_over_cost() && self.overrun == Overrun::Stop => Some(State::Stopped),
            Some(Progress::Finished) => Some(State::Suspended),
            Some(Progress::Yield | Progress::Done) => None,
        };
        let outcome = match (progress, state) {
            (_, Some(_)) => Outcome::Finished,
            (Some(Progress::Yield), None) => Outcome::Yields,
            _ => Outcome::Done,
        };
        (outcome, state)
    }

    /// Whether the run took more than it declared.
    pub(super) fn is_over_cost(&self) -> bool {
        self.used > self.timing.cost()
    }

    /// A run was done at `end`: counts it.
    pub(super) fn completed(&self, completed: &Completed, end: Instant) -> Ended {
        let record = &self.record;
        add(&record.completed, 1);
        record.cost.record(self.used.as_nanos());
        add(&record.over_cost, u64::from(self.is_over_cost()));
        if let Some(backlog) = &self.backlog {
            let own = record.bound.load(Ordering::Relaxed).min(1 << 62);
            let _ = backlog.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| Some(all.saturating_sub(own)));
        }
        let (Some(release), Some(deadline)) = (completed.release, completed.deadline) else { return Ended::InTime };
        record.done(release, deadline, end);
        record.release.store(deadline.as_nanos(), Ordering::Relaxed);
        match record.bound.load(Ordering::Relaxed) {
            _ if end > deadline => {
                add(&record.late, 1);
                Ended::Late
            }
            bound if end.since(release).as_nanos() > bound => Ended::BeyondBound,
            _ => Ended::InTime,
        }
    }
}

/// When a run was done.
pub(super) enum Ended {
    InTime,
    /// By its deadline, but after its bound.
    BeyondBound,
    Late,
}

/// What the thread shares with handles and with the executive.
#[derive(Debug)]
pub(super) struct Wires {
    /// A command waits: a handler yields.
    pub(super) flag: AtomicBool,
    pub(super) wake: Wake,
    /// Notified when an upcall is no more active.
    pub(super) changed: Signal,
    pub(super) readiness: Arc<Readiness>,
    /// Those that upcalls read, once there may be some.
    pub(super) descriptors: OnceLock<Arc<ReadySet>>,
    /// Of the executive above, if there is one; of the executive itself, if the upcalls are on its thread.
    pub(super) bell: Option<Arc<Doorbell>>,
    /// Whether they are.
    is_executive: bool,
    pub(super) thread: OnceLock<ThreadId>,
    pub(super) over: AtomicBool,
}

impl Wires {
    pub(super) fn new(
        readiness: Arc<Readiness>,
        bell: Option<Arc<Doorbell>>,
        is_executive: bool,
    ) -> std::io::Result<Self> {
        let (thread, over) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Self {
            flag: AtomicBool::new(false),
            wake: Wake::new()?,
            changed: Signal::default(),
            readiness,
            descriptors: OnceLock::new(),
            bell,
            is_executive,
            thread,
            over,
        })
    }

    /// A command waits.
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

/// Whose fault it is that a run is late.
pub(super) enum Verdict {
    Upcall(u32),
    Platform,
    Laxity,
}

/// Iterations that take longer than they may by no more than this are not asked about.
pub(super) const LEAST_EXCESS: Duration = Duration::from_micros(20);

/// In which order upcalls run: a queue of their own, or the executive's.
pub(super) trait Order {
    fn create(&mut self, slot: &Slot) -> Option<UpcallId>;
    fn run(&mut self, now: Instant, id: UpcallId, first: Instant);
    fn post(&mut self, now: Instant, id: UpcallId);
    fn suspend(&mut self, id: UpcallId);
    fn close(&mut self, id: UpcallId);
    fn is_active(&self, id: UpcallId) -> bool;
}

/// How often a thread that is never done with what it has to do looks at descriptors, in the shortest period of those that they release.
pub(super) const LOOKS: u64 = 8;

/// The upcalls of a thread.
pub(super) struct Table {
    slots: Box<[Option<Box<Slot>>]>,
    /// The place of each upcall in `slots`, by its place in the queue.
    places: Box<[u32]>,
    commands: rtrb::Consumer<Command>,
    garbage: rtrb::Producer<Box<Slot>>,
    pub(super) wires: Arc<Wires>,
    /// When descriptors are looked at again, and how long after that; `None` if there are none.
    look_at: Instant,
    looks_every: Option<Duration>,
}

impl Table {
    pub(super) fn new(
        capacity: usize,
        wires: Arc<Wires>,
        commands: rtrb::Consumer<Command>,
        garbage: rtrb::Producer<Box<Slot>>,
    ) -> Self {
        let (slots, places) = ((0..capacity).map(|_| None).collect(), vec![0; capacity].into_boxed_slice());
        Self { slots, places, commands, garbage, wires, look_at: Instant::ZERO, looks_every: None }
    }

    /// Does what handles ask for; false if that is to stop.
    pub(super) fn obey(&mut self, now: Instant, order: &mut impl Order) -> bool {
        while let Ok(command) = self.commands.pop() {
            match command {
                Command::Stop => return false,
                Command::Create { mut slot } => {
                    let place = slot.place as usize;
                    if let Some(id) = order.create(&slot) {
                        slot.id = Some(id);
                        self.places[id.index()] = slot.place;
                        let is_reader = slot.handler.source().is_some();
                        self.slots[place] = Some(slot);
                        if is_reader {
                            self.plan_looks();
                        }
                    }
                }
                Command::Run { place, first } => {
                    let slot = self.slots.get_mut(place as usize).and_then(Option::as_deref_mut);
                    if let Some(slot) = slot.filter(|slot| slot.handler.source().is_some()) {
                        slot.earliest = slot.earliest.max(first);
                        self.listen(place);
                    } else if let Some((id, record)) = self.known(place) {
                        record.release.store(first.as_nanos(), Ordering::Relaxed);
                        order.run(now, id, first);
                    }
                }
                Command::Post { place } => {
                    if let Some((id, _)) = self.known(place) {
                        order.post(now, id);
                    }
                }
                Command::Suspend { place } => {
                    if let Some((id, record)) = self.known(place) {
                        order.suspend(id);
                        self.source(place).inspect(|source| source.ignore());
                        self.end(&record, State::Suspended);
                    }
                }
                Command::Close { place } => {
                    if let Some(slot) = self.slots.get_mut(place as usize).and_then(Option::take) {
                        if let Some(id) = slot.id {
                            order.close(id);
                        }
                        if slot.handler.source().is_some() {
                            self.plan_looks();
                        }
                        // There is room for every slot; memory is freed by who creates or drops.
                        let _ = self.garbage.push(slot);
                    }
                }
            }
        }
        true
    }

    fn known(&self, place: u32) -> Option<(UpcallId, Arc<Record>)> {
        let slot = self.slots.get(place as usize)?.as_ref()?;
        Some((slot.id?, Arc::clone(&slot.record)))
    }

    fn source(&self, place: u32) -> Option<&Arc<Source>> {
        self.slots.get(place as usize)?.as_ref()?.handler.source()
    }

    /// Listens to the upcall's descriptor, unless it is out of the set.
    fn listen(&self, place: u32) {
        let Some(slot) = self.slots.get(place as usize).and_then(Option::as_deref) else { return };
        slot.record.release.store(u64::MAX, Ordering::Relaxed);
        if !slot.handler.source().is_some_and(|source| source.listen(place)) {
            self.end(&slot.record, State::Stopped);
        }
    }

    /// Upcalls that are released by descriptors have come or gone.
    fn plan_looks(&mut self) {
        let readers = self.slots.iter().flatten().filter(|slot| slot.handler.source().is_some());
        self.looks_every = readers.map(|slot| slot.timing.period().mul_ratio(1, LOOKS)).min();
    }

    /// Releases upcalls whose descriptors have something to read. To be called whenever another one may be picked: it looks if it is time to.
    pub(super) fn look(&mut self, now: Instant, order: &mut impl Order) {
        let (Some(every), Some(set)) = (self.looks_every, self.wires.descriptors.get()) else { return };
        if now >= self.look_at {
            self.look_at = now + every;
            set.take(|place| {
                if let Some(slot) = self.slots.get(place as usize).and_then(Option::as_deref) {
                    slot.ready(now, order);
                }
            });
        }
    }

    /// The thread has slept: it looks next time.
    pub(super) fn look_next(&mut self) {
        self.look_at = Instant::ZERO;
    }

    /// When it looks again.
    pub(super) fn looks_at(&self) -> Instant {
        self.looks_every.map_or(Instant::MAX, |_| self.look_at)
    }

    /// Takes out the upcall that runs.
    pub(super) fn take(&mut self, id: UpcallId) -> Option<Box<Slot>> {
        self.slots[self.places[id.index()] as usize].take()
    }

    /// It has run; if it runs no more, what it is now.
    pub(super) fn put(&mut self, slot: Box<Slot>, state: Option<State>, order: &impl Order) {
        let is_active = slot.id.is_some_and(|id| order.is_active(id));
        let place = slot.place;
        match state {
            // The next time is its descriptor's to say.
            Some(State::Suspended) if slot.handler.source().is_some() => {
                self.slots[place as usize] = Some(slot);
                return self.listen(place);
            }
            Some(state) => self.end(&slot.record, state),
            None if !is_active => self.end(&slot.record, State::Suspended),
            None => {}
        }
        self.slots[place as usize] = Some(slot);
    }

    /// The upcall is active no more.
    fn end(&self, record: &Record, state: State) {
        if record.state() != State::Closed {
            record.set_state(state);
        }
        record.release.store(u64::MAX, Ordering::Relaxed);
        self.wires.changed.notify();
    }

    /// Takes them out of their order.
    pub(super) fn suspend_all(&self, order: &mut impl Order) {
        self.slots.iter().flatten().filter_map(|slot| slot.id).for_each(|id| order.close(id));
    }

    /// None of them runs any more.
    pub(super) fn close(&mut self) {
        for slot in self.slots.iter().flatten() {
            slot.record.set_state(State::Closed);
            if let Handler::There(baton) = &slot.handler {
                baton.close();
            }
        }
        self.wires.over.store(true, Ordering::SeqCst);
        self.wires.changed.notify();
    }
}

/// A time in which the thread was never done with what it had to do, and who took more in it than was granted.
pub(super) struct Busy {
    number: u64,
    pub(super) since: Instant,
    /// Who took most beyond what it declared.
    culprit: Option<(u32, Duration)>,
    interference: Interference,
}

impl Busy {
    pub(super) fn new(interference: Interference) -> Self {
        Self { number: 0, since: Instant::ZERO, culprit: None, interference }
    }

    /// Another one begins.
    pub(super) fn begin(&mut self, since: Instant) {
        (self.number, self.since, self.culprit) = (self.number + 1, since, None);
    }

    /// An upcall took so much more than it declared, sleep included.
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

    /// Who took most, in this busy period, beyond what was granted: an upcall beyond its cost, or the platform, which took `by_platform` by
    /// what the kernel counts, beyond its envelope. If neither did, it is a bug of ours.
    pub(super) fn judge(&self, now: Instant, slot: &Slot, by_platform: Duration) -> Verdict {
        let own = if slot.excess_in == self.number { slot.excess } else { Duration::ZERO };
        let (place, upcall) = match self.culprit {
            Some((place, most)) if most > own => (place, most),
            _ => (slot.place, own),
        };
        let platform = by_platform.saturating_sub(self.interference.within(now.since(self.since)));
        match upcall.max(platform) {
            Duration::ZERO => Verdict::Laxity,
            most if most == upcall => Verdict::Upcall(place),
            _ => Verdict::Platform,
        }
    }
}

impl Verdict {
    /// So many runs of this upcall were late because of it.
    pub(super) fn count(&self, record: &Record, runs: u64) {
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
