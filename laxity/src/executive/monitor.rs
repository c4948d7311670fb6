//! The executive as a monitor: threads of the application do its work themselves (placement `inline`; the library of [nps §3]).
//!
//! A thread in `send` runs the executive until its message has left, one in `recv` until its message is there: no hand-over to another thread,
//! and no wake-up but that of the frame. A thread of the executive's own, the *keeper*, sleeps, and does what is due while no application
//! is inside.
//!
//! ```text
//! send ──► try to enter ──► turns until there is nothing to do ──► leave          (someone is inside: ring, as ever)
//! recv ──► try to enter ──► turns ──► wait for a frame as the leader ──► turns ──► leave with the message
//! keeper: enter ──► turns ──► leave, sleep until a mailbox rings, a timer ends, or a frame arrives and there is no leader
//! ```
//!
//! - **Who enters.** Threads of real-time priority that stay on processors of the keeper; all others, and best effort, ring and wait, as with
//!   an executive in a thread of its own. Only the keeper, and a leader that has slept, ever wait for the lock: a thread that finds it taken rings, and
//!   what it wants is done by who is inside, or by the keeper.
//! - **As urgent as the keeper.** Who is less urgent is raised to the keeper's priority from when it comes in until it has left: nothing of the application keeps it
//!   from its work, or from a frame, for longer than it would have kept the keeper.
//! - **Who waits for the lock.** Who is inside leaves after the turn that it is in: a step, which the bounds contain for it could be the keeper's own, and a
//!   change of threads, for which they contain the wake-up W twice. The lock passes the priority of who waits on to who is inside.
//! - **The leader.** One thread at a time waits for frames in the keeper's place, who then does not hear them.
//! - **Who spins** ([`SpinState`]) is the leader, if it is exactly as urgent as the keeper, without the lock: it looks whether there is a frame, or whether it is woken, instead of sleeping until then, and
//!   yields in between. All else is as if it slept, but that the keeper has to be kept from hearing frames ([`WaitSet::shut`]): the kernel passes
//!   it over only for a thread that sleeps. Keeper and other threads sleep at once.
//! - **Work is never left alone.** Who leaves with something to do, or something due before the keeper would wake up, wakes it first. All other sleeps than
//!   the plain one (held, restricted, resting, a link without room) are the keeper's, with the monitor taken.
//! - **A panic** inside ends the host; a signal handler that interrupts a thread inside, and a child of fork(2), are refused.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};
use laxity_drive::{NextTurn, Sleep};
use laxity_link::LinkOver;
use laxity_link::sys::{self, LockProtocol, PriorityGuard, PriorityLock, Urgency, WaitSet, Wake, now};

use super::{CurrentSleep, Executive, ExecutiveParts, SpinState, SystemClock, spin};
use crate::doorbell::Doorbell;
use crate::realtime::Scheduling;

/// Turns of a thread that has what it wants, before it leaves the rest to the keeper.
const MOST_TURNS: u32 = 64;
/// How often a thread does its own work before it is asked again what it runs as, and where.
const USES: u32 = 64;

/// What threads of the application do of an executive's work.
pub(crate) trait InlineExecutive: Send + Sync {
    /// Whether the calling thread may do that.
    fn may_enter(&self) -> bool;

    /// Something was announced by a thread that may enter: does it, and what else there is. False if it is to be rung for.
    fn run(&self) -> bool;

    /// Does the executive's work, and waits for frames, until the channel at `place` has what its application wants, or for `limit`.
    /// False if the application has to wait for its signal instead.
    fn lead(&self, place: u32, limit: Duration, has: &mut dyn FnMut() -> bool) -> bool;

    /// Wakes the thread that waits for frames, if there is one, to look whether it has what it wants.
    fn wake_leader(&self);
}

/// What is behind the lock.
struct MonitorState<L, F> {
    /// `None` once the host is over.
    executive: Option<Executive<L, F>>,
    /// A thread is the leader.
    is_led: bool,
    /// Someone panicked.
    is_broken: bool,
    /// Who left last could have slept so: nothing is to be done before a frame comes.
    idle: Option<Sleep>,
    /// How often a thread came in.
    entries: u64,
    /// Woken by a frame, with so many received before: if there are no more, the link has something else to say.
    heard: Option<u64>,
}

/// An executive that several threads run, one at a time.
pub(crate) struct Monitor<L, F> {
    inside: PriorityLock<MonitorState<L, F>>,
    /// What the leader waits for: its waker, and frames. Made before the keeper's set, so that it hears of frames in its place.
    leaders: WaitSet,
    /// What the keeper waits for: the doorbell, and frames.
    keepers: WaitSet,
    /// The leader looks for frames, and the keeper does not hear them. The leader's.
    is_deaf: AtomicBool,
    waker: Arc<Wake>,
    doorbell: Arc<Doorbell>,
    /// So many threads wait for the lock that have to have it: who is inside leaves.
    wanted: AtomicU32,
    /// When the keeper wakes up by itself, ns.
    keeper_due: AtomicU64,
    /// The keeper's priority, zero if it has none, and where it runs.
    ceiling: AtomicU8,
    processors: Vec<usize>,
}

/// What is known of the calling thread: of which monitor, how often it may still be used, whether it may enter, and whether it is less
/// urgent than the keeper.
#[derive(Clone, Copy)]
struct CallingThread {
    monitor: usize,
    uses: u32,
    may_enter: bool,
    is_less_urgent: bool,
    /// As urgent as the keeper.
    may_spin: bool,
}

thread_local! {
    static CALLER: Cell<CallingThread> = const {
        Cell::new(CallingThread { monitor: 0, uses: 0, may_enter: false, is_less_urgent: false, may_spin: false })
    };
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// While the thread is inside, that of the keeper.
    static CLOCK: RefCell<SystemClock> = RefCell::default();
}

/// Whether the calling thread runs an executive: it was interrupted by a signal.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Puts the urgency of the calling thread back when it is dropped, and with it that it is inside.
struct EntryGuard(Option<Urgency>);

impl Drop for EntryGuard {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
        if let Some(own) = self.0 {
            let _ = own.take();
        }
    }
}

/// Someone who is inside.
type MonitorGuard<'a, L, F> = PriorityGuard<'a, MonitorState<L, F>>;

impl<L: LinkOver<F>, F: Frames> MonitorState<L, F> {
    /// One turn; [`NextTurn::Stop`] also if the executive is gone, or has panicked.
    fn turn(&mut self) -> NextTurn {
        let Self { executive: Some(executive), is_broken: false, .. } = self else { return NextTurn::Stop };
        let turn = AssertUnwindSafe(|| executive.turn());
        let next = catch_unwind(turn).unwrap_or_else(|_| {
            self.is_broken = true;
            NextTurn::Stop
        });
        if matches!(next, NextTurn::Again | NextTurn::Look(_)) {
            executive.spin.worked();
        }
        next
    }

    /// Whether another thread may wait in the keeper's place.
    fn is_plain(&self, sleep: &Sleep) -> bool {
        self.executive.as_ref().is_some_and(|executive| executive.is_plain(sleep))
    }

    /// After a sleep that a frame seems to have ended.
    fn settle(&mut self) {
        let Some(executive) = &mut self.executive else { return };
        let around = &mut executive.around;
        if self.heard.take() == Some(around.link.counters().received_frames) {
            let _ = around.link.wait(around.bells.descriptor(), Some(Duration::ZERO));
        }
    }
}

impl<L: LinkOver<F>, F: Frames> Monitor<L, F> {
    /// Around an executive, whose leaders may spin if `may_spin`.
    ///
    /// # Errors
    /// The link cannot be waited for, or the system is out of resources.
    pub(crate) fn new(executive: Executive<L, F>, may_spin: bool) -> std::io::Result<Self> {
        let ExecutiveParts { waker, doorbell, .. } = &executive.around.parts;
        let (waker, doorbell) = (Arc::clone(waker), Arc::clone(doorbell));
        let inputs = executive.around.link.inputs()?;
        let leaders = WaitSet::new(waker.as_fd(), &inputs)?;
        let keeping = if may_spin { WaitSet::with_gate } else { WaitSet::new };
        let keepers = keeping(doorbell.wake.as_fd(), &inputs)?;
        let executive = Some(executive);
        let inside = MonitorState { executive, is_led: false, is_broken: false, idle: None, entries: 0, heard: None };
        Ok(Self {
            inside: PriorityLock::new(inside, LockProtocol::Inheritance)?,
            leaders,
            keepers,
            is_deaf: AtomicBool::new(false),
            waker,
            doorbell,
            wanted: AtomicU32::new(0),
            keeper_due: AtomicU64::new(0),
            ceiling: AtomicU8::new(0),
            processors: sys::processors(),
        })
    }

    /// Runs until it is told to stop, on the keeper's thread, which runs as `scheduling`; leaders spin as `spin` says.
    pub(crate) fn keep(&self, scheduling: Scheduling, spin: SpinState) {
        if let Scheduling::Fifo(priority) = scheduling {
            self.ceiling.store(priority, Ordering::Relaxed);
        }
        let mut inside = self.inside.lock();
        if let Some(executive) = &mut inside.executive {
            executive.begin(scheduling, spin);
        }
        loop {
            let next = inside.turn();
            match next {
                NextTurn::Stop => break,
                // A leader that has slept: what it waited for may be there.
                _ if self.is_wanted() => inside = self.give_way(inside),
                NextTurn::Again | NextTurn::Look(_) => {}
                NextTurn::Sleep(sleep) if inside.is_plain(&sleep) => inside = self.sleep(inside, &sleep),
                NextTurn::Sleep(sleep) => {
                    if let Some(executive) = &mut inside.executive {
                        executive.sleep(&sleep);
                    }
                }
            }
        }
        let (executive, is_broken) = (inside.executive.take(), inside.is_broken);
        drop(inside);
        self.waker.wake();
        if let Some(executive) = executive.filter(|_| !is_broken) {
            executive.end();
        }
    }

    /// The keeper sleeps, with the monitor free.
    fn sleep<'a>(&'a self, mut inside: MonitorGuard<'a, L, F>, sleep: &Sleep) -> MonitorGuard<'a, L, F> {
        inside.settle();
        let Some(executive) = &mut inside.executive else { return inside };
        let slept_at = executive.around.slept_at;
        let Some(asleep) = executive.fall_asleep(sleep) else { return inside };
        executive.around.slept_at = slept_at.or(executive.around.slept_at);
        self.keeper_due.store(asleep.due.map_or(u64::MAX, Instant::as_nanos), Ordering::Relaxed);
        let entries = inside.entries;
        drop(inside);
        let (rung, heard) = self.keepers.wait(asleep.timeout).unwrap_or((false, false));
        if rung {
            self.doorbell.wake.drain();
        }
        // Who rings from here on is heard: a whole round comes before the next sleep.
        self.doorbell.awake();
        let mut inside = self.take(true);
        self.awake(&mut inside, &asleep, entries, false, (rung, heard));
        inside
    }

    /// Lets another thread in, and takes the monitor back when it leaves.
    fn give_way<'a>(&'a self, mut inside: MonitorGuard<'a, L, F>) -> MonitorGuard<'a, L, F> {
        let entries = inside.entries;
        if let Some(executive) = &mut inside.executive {
            executive.driver.left = Some(now());
        }
        drop(inside);
        let mut inside = self.take(true);
        if inside.entries != entries {
            inside.entries += 1;
            if let Some(executive) = &mut inside.executive {
                executive.enter();
            }
        }
        inside
    }

    /// The calling thread, which came in when so many had, has slept; or has spun before.
    fn awake(
        &self,
        inside: &mut MonitorGuard<'_, L, F>,
        asleep: &CurrentSleep,
        entries: u64,
        has_spun: bool,
        (rung, heard): (bool, bool),
    ) {
        if heard {
            let received = |executive: &Executive<L, F>| executive.around.link.counters().received_frames;
            inside.heard = inside.executive.as_ref().map(received);
        }
        // What was spun is no part of what it was awake for, but of its processor time.
        let is_alone = inside.entries == entries && !has_spun;
        inside.entries += 1;
        let Some(executive) = &mut inside.executive else { return };
        if heard {
            // No other thread was told: it looks before it leaves, in whatever others stopped.
            executive.driver.look_next();
        }
        if is_alone {
            executive.wake_up(asleep, rung);
        } else {
            // What was due may have been done by others, and when they found it: that says nothing of how late this thread is.
            executive.around.clock.slept(now().since(asleep.since));
            executive.enter();
        }
    }

    /// The lock, for a thread that has to have it; the keeper may sleep with it, or have much to do.
    fn take(&self, is_keeper: bool) -> MonitorGuard<'_, L, F> {
        self.inside.try_lock().unwrap_or_else(|| {
            self.wanted.fetch_add(1, Ordering::SeqCst);
            if !is_keeper {
                self.doorbell.wake.wake();
            }
            let inside = self.inside.lock();
            self.wanted.fetch_sub(1, Ordering::SeqCst);
            inside
        })
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// What is known of the calling thread.
    fn caller(&self) -> CallingThread {
        let (mut caller, monitor) = (CALLER.get(), std::ptr::from_ref(self).addr());
        if caller.monitor != monitor || caller.uses == 0 {
            let ceiling = self.ceiling.load(Ordering::Relaxed);
            let own = Urgency::of_thread().ok().and_then(Urgency::real_time).filter(|_| ceiling > 0);
            let stays = || sys::processors().iter().all(|processor| self.processors.contains(processor));
            let may_enter = own.is_some() && stays();
            caller = CallingThread {
                monitor,
                uses: USES,
                may_enter,
                is_less_urgent: own.is_some_and(|own| own < ceiling),
                may_spin: own == Some(ceiling),
            };
        }
        caller.uses -= 1;
        CALLER.set(caller);
        caller
    }

    /// Enters, if no thread is inside. What is returned first is to be dropped last.
    fn enter(&self) -> Option<(EntryGuard, MonitorGuard<'_, L, F>)> {
        let caller = Some(self.caller()).filter(|caller| caller.may_enter)?;
        // From here on a signal handler stays out: it may interrupt this thread when it has the lock.
        IS_INSIDE.set(true);
        let mut stay = EntryGuard(None);
        let mut inside = self.inside.try_lock()?;
        if caller.is_less_urgent {
            // Nothing was taken from the link yet, so nothing is withheld from another thread.
            let own = Urgency::of_thread().ok().filter(|own| own.real_time().is_some())?;
            own.with_priority(self.ceiling.load(Ordering::Relaxed)).take().ok()?;
            stay.0 = Some(own);
        }
        inside.entries += 1;
        let executive = inside.executive.as_mut()?;
        executive.change_clocks();
        executive.around.clock.refresh(now());
        executive.enter();
        Some((stay, inside))
    }

    /// Leaves before a sleep, or with something to do.
    fn leave(&self, mut inside: MonitorGuard<'_, L, F>, before: Option<Sleep>) {
        inside.idle = before.filter(|sleep| inside.is_plain(sleep));
        let is_left = inside.idle.is_none_or(|sleep| self.is_early(&sleep));
        let MonitorState { executive, idle, .. } = &mut *inside;
        if let Some(executive) = executive {
            executive.publish();
            if idle.is_some() {
                executive.around.slept_at.get_or_insert_with(now);
                if executive.spin.is_on() {
                    executive.spin.ends(now());
                }
            } else {
                executive.driver.left = Some(now());
            }
            executive.change_clocks();
        }
        if is_left {
            self.doorbell.poke();
        }
    }

    /// Whether something is due before the keeper wakes up by itself.
    fn is_early(&self, sleep: &Sleep) -> bool {
        sleep.until.is_some_and(|at| at.as_nanos() < self.keeper_due.load(Ordering::Relaxed))
    }

    /// Waits for a frame in the keeper's place, at most until then, with the monitor free.
    fn wait<'a>(
        &'a self,
        mut inside: MonitorGuard<'a, L, F>,
        sleep: &Sleep,
        place: u32,
        until: Instant,
    ) -> MonitorGuard<'a, L, F> {
        inside.settle();
        let entries = inside.entries;
        let Some(executive) = &mut inside.executive else { return inside };
        executive.publish();
        let slept_at = executive.around.slept_at;
        let Some(asleep) = executive.begin_sleep(sleep) else { return inside };
        // Who left before has not been followed by a look since: a frame may be as old.
        executive.around.slept_at = slept_at.or(executive.around.slept_at);
        if self.is_early(sleep) {
            self.doorbell.poke();
        }
        executive.around.leader = Some(place);
        // What is due is the keeper's, which may need this processor.
        // Nor does it spin if it is more urgent than the keeper, which could not come then, or less, and only raised to that.
        let spins = if CALLER.get().may_spin { executive.spins_until(asleep.since) } else { None };
        let spins = spins.map(|ends| asleep.due.map_or(ends, |due| due.min(ends)).min(until));
        executive.change_clocks();
        if spins.is_some() && !self.is_deaf.swap(true, Ordering::Relaxed) {
            self.keepers.shut();
        }
        drop(inside);
        IS_INSIDE.set(false);
        let looked = spins.map_or((false, false), |ends| self.look_until(ends));
        let blocked = if spins.is_some() { now() } else { asleep.since };
        let (rung, heard) = match looked {
            (false, false) => {
                self.hear();
                self.leaders.wait(Some(until.since(blocked))).unwrap_or((false, false))
            }
            found => found,
        };
        if rung {
            self.waker.drain();
        }
        IS_INSIDE.set(true);
        let mut inside = self.take(false);
        if let Some(executive) = &mut inside.executive {
            executive.change_clocks();
            executive.around.clock.budget.spent(blocked.since(asleep.since));
        }
        let has_spun = spins.is_some();
        // What is due is the keeper's: that this thread sleeps longer is no lateness.
        self.awake(
            &mut inside,
            &CurrentSleep { since: blocked, timeout: None, ..asleep },
            entries,
            has_spun,
            (false, heard),
        );
        if let Some(executive) = &mut inside.executive {
            executive.around.leader = None;
        }
        inside
    }
}

impl<L, F> Monitor<L, F> {
    /// The leader looks until then for a frame, or whether it is woken, as [`WaitSet::wait`] says it; yields to who is as urgent.
    fn look_until(&self, ends: Instant) -> (bool, bool) {
        loop {
            let found = self.leaders.wait(Some(Duration::ZERO)).unwrap_or((false, false));
            if found != (false, false) || now() >= ends {
                return found;
            }
            spin::give_way();
        }
    }

    /// The leader looks no more: the keeper hears frames again.
    fn hear(&self) {
        if self.is_deaf.swap(false, Ordering::Relaxed) {
            self.keepers.open();
        }
    }
}

impl<L: LinkOver<F>, F: Frames> Executive<L, F> {
    /// Until when the calling thread, which is inside and has nothing to do, may spin.
    fn spins_until(&mut self, now: Instant) -> Option<Instant> {
        self.spin.until(now, &mut self.around.clock.budget, sys::thread_processor_time)
    }

    /// A thread of the application comes in, with a clock of its own, or goes out.
    fn change_clocks(&mut self) {
        CLOCK.with_borrow_mut(|clock| {
            std::mem::swap(clock, &mut self.around.clock);
            // Those that the executive has seen are not the thread's.
            std::mem::swap(&mut clock.jumps, &mut self.around.clock.jumps);
        });
    }

    /// What the calling thread, or another one, did until now is no part of this.
    fn enter(&mut self) {
        let now = now();
        self.around.clock.begin();
        if self.driver.enter(now, &mut self.around) {
            // Until now was asked about: what is asked of frames begins here.
            self.around.slept_at = self.around.slept_at.map(|at| at.max(now));
        }
    }
}

impl<L: LinkOver<F> + Send, F: Frames + Send> InlineExecutive for Monitor<L, F> {
    fn may_enter(&self) -> bool {
        self.caller().may_enter
    }

    fn run(&self) -> bool {
        let Some((_stay, mut inside)) = self.enter() else { return false };
        if let Some(executive) = &mut inside.executive {
            // Frames are heard by the leader or the keeper: what is sent does not wait for a look at them.
            executive.driver.has_looked();
        }
        for _ in 0..MOST_TURNS {
            match inside.turn() {
                NextTurn::Again if self.is_wanted() => break,
                NextTurn::Again => {}
                NextTurn::Look(sleep) | NextTurn::Sleep(sleep) => {
                    self.leave(inside, Some(sleep));
                    return true;
                }
                NextTurn::Stop => break,
            }
        }
        self.leave(inside, None);
        true
    }

    fn lead(&self, place: u32, limit: Duration, has: &mut dyn FnMut() -> bool) -> bool {
        let Some((_stay, mut inside)) = self.enter() else { return false };
        let is_second = std::mem::replace(&mut inside.is_led, true);
        let (until, mut turns_left) = (now() + limit, MOST_TURNS);
        let mut next = inside.idle.take().map_or_else(|| inside.turn(), NextTurn::Sleep);
        let before = loop {
            match next {
                NextTurn::Stop => break None,
                NextTurn::Again | NextTurn::Look(_) if self.is_wanted() || now() >= until => break None,
                NextTurn::Look(sleep) if has() => break Some(sleep),
                NextTurn::Again if has() && turns_left == 0 => break None,
                NextTurn::Again | NextTurn::Look(_) => turns_left -= u32::from(has()),
                NextTurn::Sleep(sleep) => {
                    if is_second || has() || now() >= until || !inside.is_plain(&sleep) {
                        break Some(sleep);
                    }
                    inside = self.wait(inside, &sleep, place, until);
                }
            }
            next = inside.turn();
        };
        if !is_second {
            inside.is_led = false;
            self.hear();
        }
        let is_done = has() || now() >= until;
        self.leave(inside, before);
        is_done
    }

    fn wake_leader(&self) {
        self.waker.wake();
    }
}
