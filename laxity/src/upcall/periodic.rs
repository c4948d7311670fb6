//! A loop of one's own that runs every period: `periodic.wait()`.
//!
//! It is an upcall of one unit whose work a thread of the application does: the thread of the upcalls wakes it and waits until it comes back.
//! So it is in the same order as all others, needs no locks against them, and costs two changes of thread more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use laxity_core::admission::upcalls::Kind;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Pick;
use laxity_drive::Clock;
use laxity_link::sys::{self, now};

use super::table::Handler;
use super::{Upcall, UpcallFigures, UpcallGrant, UpcallSpec, Upcalls};
use crate::error::Error;
use crate::executive::SystemClock;
use crate::signal::Signal;

/// It is the upcalls' turn.
const HERE: u32 = 0;
/// It is the loop's turn.
const THERE: u32 = 1;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Baton {
    turn: AtomicU32,
    closed: AtomicBool,
    /// Notified when it is the loop's turn.
    to_loop: Signal,
    /// Notified when it is the upcalls' turn again.
    to_thread: Signal,
    /// The loop's thread.
    thread: AtomicI32,
    release: AtomicU64,
    deadline: AtomicU64,
    skipped: AtomicU64,
    /// What the loop took of the processor, and how long it slept by itself, ns.
    used: AtomicU64,
    blocked: AtomicU64,
}

impl Baton {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            turn: AtomicU32::new(HERE),
            closed: AtomicBool::new(false),
            to_loop: Signal::default(),
            to_thread: Signal::default(),
            thread: AtomicI32::new(sys::thread_id()),
            release: zero(),
            deadline: zero(),
            skipped: zero(),
            used: zero(),
            blocked: zero(),
        }
    }

    pub(super) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Neither the loop nor the upcall waits for the other any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.to_loop.notify();
        self.to_thread.notify();
    }

    /// Lets the loop run once, and waits until it is done: what it took of the processor, and how long it slept by itself.
    pub(super) fn pass(&self, pick: &Pick) -> (Duration, Duration) {
        let nanos = |at: Option<Instant>| at.map_or(0, Instant::as_nanos);
        self.release.store(nanos(pick.release), Ordering::Relaxed);
        self.deadline.store(nanos(pick.deadline), Ordering::Relaxed);
        self.skipped.store(pick.skipped, Ordering::Relaxed);
        self.turn.store(THERE, Ordering::SeqCst);
        self.to_loop.notify();
        self.wait_for(HERE, &self.to_thread);
        let took = |nanos: &AtomicU64| Duration::from_nanos(nanos.swap(0, Ordering::Relaxed));
        (took(&self.used), took(&self.blocked))
    }

    /// False if it was closed meanwhile.
    fn wait_for(&self, turn: u32, signal: &Signal) -> bool {
        loop {
            let seen = signal.seen();
            if self.closed.load(Ordering::SeqCst) {
                return false;
            }
            if self.turn.load(Ordering::SeqCst) == turn {
                return true;
            }
            signal.wait(seen, None);
        }
    }
}

/// When it is the loop's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// When the run was released (CLOCK_MONOTONIC).
    pub release: Instant,
    /// By when it has to be done, that is, by when the loop has to come back to [`Periodic::wait`].
    pub deadline: Instant,
    /// Periods that passed since the last tick in which it had no turn.
    pub skipped: u64,
}

/// A loop that runs every period, on the thread that made it. Dropping it makes the thread an ordinary one.
#[derive(Debug)]
pub struct Periodic {
    upcall: Upcall,
    baton: Arc<Baton>,
    clock: SystemClock,
    /// When this turn began, and the thread's processor time then.
    began: Option<(Instant, Duration)>,
    is_real_time: bool,
}

impl Periodic {
    pub(super) fn new(upcalls: &Upcalls, name: &str, spec: UpcallSpec) -> Result<Self, Error> {
        let inner = &upcalls.inner;
        inner.check_thread()?;
        let baton = Arc::new(Baton::new());
        let spec = UpcallSpec { batch: 1, block: Some(1), ..spec };
        let upcall = inner.create(name, spec, Kind::Periodic, Handler::There(Arc::clone(&baton)))?;
        if let Some(processor) = inner.processor {
            let pinned = sys::pin(processor);
            pinned.map_err(|source| Error::System { what: "keeping the loop to a processor", source })?;
        }
        let _ = sys::precise_timers();
        let is_real_time = inner.fifo_priority.is_some_and(|priority| sys::real_time(priority).is_ok());
        upcall.run()?;
        let mut clock = SystemClock::default();
        clock.refresh(now());
        Ok(Self { upcall, baton, clock, began: None, is_real_time })
    }

    /// Says that the work of this period is done, and waits for the next.
    ///
    /// # Errors
    /// [`Error::UpcallEnded`] if it was stopped, because it took more than it declared; [`Error::Stopped`] if the upcalls are gone.
    pub fn wait(&mut self) -> Result<Tick, Error> {
        if let Some((began, own)) = self.began.take() {
            let (end, used) = (now(), sys::thread_processor_time().saturating_sub(own));
            let stolen = self.clock.stolen(end, end.since(began));
            let blocked = end.since(began).saturating_sub(used + stolen);
            self.baton.used.store(used.as_nanos(), Ordering::Relaxed);
            // To wake up from the wait took some of it.
            let blocked = if blocked > super::table::LEAST_EXCESS { blocked } else { Duration::ZERO };
            self.baton.blocked.store(blocked.as_nanos(), Ordering::Relaxed);
            self.baton.turn.store(HERE, Ordering::SeqCst);
            self.baton.to_thread.notify();
        }
        let asleep = now();
        self.clock.refresh(asleep);
        loop {
            let seen = self.baton.to_loop.seen();
            if self.baton.turn.load(Ordering::SeqCst) == THERE {
                break;
            }
            let state = self.upcall.state();
            if self.baton.closed.load(Ordering::SeqCst) {
                return Err(Error::Stopped);
            }
            if state != super::State::Active {
                let name = self.upcall.figures().map_or_else(|_| String::new(), |figures| figures.name);
                return Err(Error::UpcallEnded { name, state: state.into() });
            }
            // Stopping an upcall does not wake this loop: it looks now and then.
            self.baton.to_loop.wait(seen, Some(std::time::Duration::from_millis(100)));
        }
        let begin = now();
        self.clock.slept(begin.since(asleep));
        self.clock.stolen(begin, Duration::ZERO);
        self.began = Some((begin, sys::thread_processor_time()));
        let at = |nanos: &AtomicU64| Instant::from_nanos(nanos.load(Ordering::Relaxed));
        let (release, deadline) = (at(&self.baton.release), at(&self.baton.deadline));
        Ok(Tick { release, deadline, skipped: self.baton.skipped.load(Ordering::Relaxed) })
    }

    /// What was granted.
    pub fn grant(&self) -> UpcallGrant {
        self.upcall.grant()
    }

    /// What was counted of it so far.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the upcalls are gone.
    pub fn figures(&self) -> Result<UpcallFigures, Error> {
        self.upcall.figures()
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        self.baton.close();
        if self.is_real_time {
            let _ = sys::ordinary(sys::thread_id());
        }
    }
}
