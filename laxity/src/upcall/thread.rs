//! The thread of upcalls: takes the first upcall of the queue, calls its handler, and judges late runs.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{PickedRun, Upcalls as Queue};
use laxity_drive::Clock;
use laxity_link::sys::{self, now, readable};

use super::table::{BusyPeriod, LEAST_EXCESS, LateCause, RunHandler, Slot, ThreadUpcalls};
use super::{Overrun, Progress, UpcallRun};
use crate::executive::{SystemClock, stopped};
use crate::realtime::{self, Scheduling};

/// The state that the thread owns.
pub(super) struct UpcallThread {
    queue: Queue,
    table: ThreadUpcalls,
    wake_up: Duration,
    clock: SystemClock,
    /// The thread's processor time when it was last read.
    own: Duration,
    /// It begins when the thread wakes up.
    busy: BusyPeriod,
    /// The time by which it woke up too late.
    woke_late: Duration,
    /// The time that others took in this busy period, by evidence, and the time up to which it is known.
    stolen: Duration,
    stolen_until: Instant,
    /// The executive's processor time at the beginning of the busy period.
    executive: Duration,
}

impl UpcallThread {
    pub(super) fn new(capacity: usize, platform: &Platform, table: ThreadUpcalls) -> Self {
        Self {
            queue: Queue::new(capacity),
            table,
            wake_up: platform.wake_up,
            clock: SystemClock::default(),
            own: Duration::ZERO,
            busy: BusyPeriod::new(platform.interference.clone()),
            woke_late: Duration::ZERO,
            stolen: Duration::ZERO,
            stolen_until: Instant::ZERO,
            executive: Duration::ZERO,
        }
    }

    /// Runs until it is told to stop, as `scheduling`.
    pub(super) fn run(mut self, scheduling: Scheduling) {
        let _ = sys::precise_timers();
        stopped::witness();
        realtime::begin_handlers();
        let _ = self.table.wires.thread.set(std::thread::current().id());
        if let Scheduling::Fifo(priority) = scheduling {
            let _ = self.table.wires.watch.priority.set(priority);
        }
        let start = now();
        self.clock.refresh(start);
        self.wakes(start, start);
        loop {
            if self.table.wires.flag.swap(false, Ordering::SeqCst) && !self.table.obey(now(), &mut self.queue) {
                break;
            }
            let now = now();
            self.table.look(now, &mut self.queue);
            if let Some(pick) = self.queue.pick(now) { self.call(now, &pick) } else { self.sleep(now) }
        }
        self.make_way(None);
        self.table.close();
    }

    /// Announces the time from which the executive has to give way: this run, or the next release of a periodic upcall.
    fn announce(&self, pick: &PickedRun) {
        match pick.release {
            Some(_) => self.table.wires.readiness.set(Some(Instant::ZERO)),
            None => self.make_way(self.queue.next_release()),
        }
    }

    /// Announces that nothing is ready until `next`, so that the executive may use its remaining time.
    fn make_way(&self, next: Option<Instant>) {
        self.table.wires.readiness.set(next);
        if let Some(bell) = &self.table.wires.bell {
            bell.make_way();
        }
    }

    fn sleep(&mut self, asleep: Instant) {
        let next = self.queue.next_release();
        self.make_way(next);
        self.clock.refresh(asleep);
        if !self.table.wires.flag.load(Ordering::SeqCst) && next.is_none_or(|next| next > asleep) {
            let timeout = next.map(|next| next.since(asleep));
            let wires = &self.table.wires;
            let descriptors = wires.descriptors.get().map(|set| set.as_fd());
            // Without descriptors it waits for its bell alone.
            let mut waited = [wires.wake.as_fd(), descriptors.unwrap_or(wires.wake.as_fd())].map(readable);
            let _ = sys::wait(&mut waited[..1 + usize::from(descriptors.is_some())], timeout);
            wires.wake.drain();
            self.table.look_next();
        }
        let awake = now();
        self.clock.slept(awake.since(asleep));
        self.wakes(next.map_or(awake, |next| next.min(awake)), awake);
    }

    /// Begins a busy period that should have begun at `due`.
    fn wakes(&mut self, due: Instant, awake: Instant) {
        self.busy.begin(due);
        (self.stolen, self.stolen_until) = (Duration::ZERO, awake);
        self.woke_late = awake.since(due).saturating_sub(self.wake_up);
        self.executive = self.table.wires.readiness.executive_time();
        self.clock.stolen(awake, Duration::ZERO);
        self.own = sys::thread_processor_time();
    }

    /// Calls the handler of the upcall that was picked.
    fn call(&mut self, begin: Instant, pick: &PickedRun) {
        let Some(mut slot) = self.table.take(pick.id) else { return };
        let place = slot.place;
        slot.picked(begin, pick, |slot| self.judge(begin, slot));
        let next_release = self.queue.next_release().unwrap_or(Instant::MAX);
        let look_at = self.table.looks_at();
        let limit = slot.timing.cost() * 2 + super::watch::PATIENCE;
        let (returned, units, used, blocked, end, was_stuck);
        self.announce(pick);
        match &mut slot.handler {
            RunHandler::Local(handler, _) => {
                self.table.wires.watch.begin(place, sys::thread_id(), self.own, limit);
                let (queue, wires) = (Some(&mut self.queue), &*self.table.wires);
                let mut run = UpcallRun { pick: *pick, done: 0, next_release, look_at, queue, wires };
                returned = catch_unwind(AssertUnwindSafe(|| handler(&mut run)));
                units = run.done;
                was_stuck = self.table.wires.watch.end();
                end = now();
                let own = sys::thread_processor_time();
                used = own.saturating_sub(std::mem::replace(&mut self.own, own));
                let away = end.since(begin).saturating_sub(used);
                blocked = if away > LEAST_EXCESS { away.saturating_sub(self.taken(end)) } else { Duration::ZERO };
            }
            RunHandler::Remote(baton) => {
                let own = sys::processor_time_of(baton.thread).unwrap_or_default();
                self.table.wires.watch.begin(place, baton.thread, own, limit);
                (used, blocked) = baton.pass(pick);
                was_stuck = self.table.wires.watch.end();
                end = now();
                (returned, units) = (Ok(Progress::Done), 1);
                self.own = sys::thread_processor_time();
                // That this thread waited meanwhile is not a mistake of any upcall.
                self.clock.stolen(end, Duration::ZERO);
                self.stolen_until = end;
            }
        }
        slot.used += used;
        // What was done may take its part of C.
        let declared = slot.declared(pick.done, units);
        // What others took of a thread that did not give itself back also counts as its own: it had lost its priority.
        let over = if was_stuck {
            self.clock.stolen(end, Duration::ZERO);
            self.stolen_until = end;
            end.since(begin).saturating_sub(declared)
        } else {
            slot.used.saturating_sub(declared) + blocked
        };
        self.busy.exceeded(&mut slot, over);
        let (outcome, state) = slot.outcome(returned.ok());
        if slot.is_over_cost() && slot.overrun == Overrun::Demote {
            self.queue.demote(pick.id);
        }
        if let Some(completed) = self.queue.ran(end, units, outcome) {
            slot.completed(&completed, end, || self.judge(end, &slot));
        }
        self.table.put(slot, state, &self.queue);
    }

    /// The executive's own time is not the platform's.
    fn judge(&mut self, now: Instant, slot: &Slot) -> LateCause {
        self.taken(now);
        let executive = self.table.wires.readiness.executive_time().saturating_sub(self.executive);
        self.busy.judge(now, slot, self.stolen.saturating_sub(executive) + self.woke_late)
    }

    /// The time that others took since the last call.
    fn taken(&mut self, now: Instant) -> Duration {
        let awake = now.since(std::mem::replace(&mut self.stolen_until, now));
        let stolen = self.clock.stolen(now, awake);
        self.stolen += stolen;
        stolen
    }
}
