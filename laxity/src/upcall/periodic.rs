//! A loop of an application's own thread that runs every period: `periodic.wait()`.
//!
//! It is an upcall of one unit whose work a thread of the application does: the upcalls' thread wakes it and waits until it comes
//! back. So it has its place in the order of upcalls, needs no locks against them, and costs two more changes of thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use laxity_core::admission::upcalls::UpcallKind;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::PickedRun;
use laxity_drive::Clock;
use laxity_link::sys::{self, now};

use super::table::RunHandler;
use super::{Upcall, UpcallFigures, UpcallGrant, UpcallSpec, Upcalls, locked};
use crate::error::Error;
use crate::executive::SystemClock;
use crate::realtime::Scheduling;
use crate::signal::Notifier;

/// The turn, passed between the upcalls and a loop.
#[derive(Debug, Default)]
pub(super) struct PeriodTurn {
    closed: AtomicBool,
    /// The turn of the loop, until it takes it.
    tick: Mutex<Option<Tick>>,
    /// The end of the loop's turn, until the upcalls take it: its processor time, and the time for which it slept by itself.
    took: Mutex<Option<(Duration, Duration)>>,
    /// Notified when it is the turn of the other one, or there are no more turns.
    passed: Notifier,
    /// The thread of the loop.
    pub(super) thread: i32,
}

impl PeriodTurn {
    /// Ends the waiting of the loop and of the upcall for each other.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.passed.notify();
    }

    /// Lets the loop run once, and waits until it is done. Returns its processor time, and the time for which it slept by itself.
    pub(super) fn pass(&self, pick: &PickedRun) -> (Duration, Duration) {
        let [release, deadline] = [pick.release, pick.deadline].map(|at| at.unwrap_or(Instant::ZERO));
        *locked(&self.tick) = Some(Tick { release, deadline, skipped: pick.skipped });
        self.passed.notify();
        loop {
            let seen = self.passed.seen();
            let is_closed = self.closed.load(Ordering::SeqCst);
            let took = locked(&self.took).take();
            if is_closed || took.is_some() {
                return took.unwrap_or_default();
            }
            self.passed.wait(seen, None);
        }
    }
}

/// A turn of a periodic loop: one release, as [`Periodic::wait`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The time of its release (CLOCK_MONOTONIC).
    pub release: Instant,
    /// The deadline: the time by which the loop has to return to [`Periodic::wait`].
    pub deadline: Instant,
    /// The number of periods since the last turn that had no turn.
    pub skipped: u64,
}

/// A loop that runs every period, on the thread that made it ([`Upcalls::periodic`]). Dropping it ends the loop and gives the thread
/// ordinary scheduling.
#[derive(Debug)]
pub struct Periodic {
    upcall: Upcall,
    baton: Arc<PeriodTurn>,
    clock: SystemClock,
    /// The beginning of this turn, and the thread's processor time then.
    began: Option<(Instant, Duration)>,
    is_real_time: bool,
}

impl Upcalls {
    /// Makes the calling thread run a loop every period, as an upcall of one unit: [`Periodic::wait`] returns at the thread's turn. The
    /// thread gets the scheduling and the processor of the upcalls' thread.
    ///
    /// # Errors
    /// As [`Upcalls::create`].
    pub fn periodic(&self, name: &str, spec: UpcallSpec) -> Result<Periodic, Error> {
        let inner = &self.inner;
        inner.check_thread()?;
        let baton = Arc::new(PeriodTurn { thread: sys::thread_id(), ..PeriodTurn::default() });
        let spec = UpcallSpec { batch: 1, block: Some(1), ..spec };
        let upcall = inner.create(name, spec, UpcallKind::Periodic, RunHandler::Remote(Arc::clone(&baton)))?;
        if let Some(processor) = inner.processor {
            sys::pin(processor).map_err(Error::system("keeping the loop to a processor"))?;
        }
        let _ = sys::precise_timers();
        let is_real_time = match inner.scheduling {
            Scheduling::Fifo(priority) => sys::real_time(priority).is_ok(),
            Scheduling::ShortSlice | Scheduling::Ordinary => false,
        };
        upcall.run()?;
        let mut clock = SystemClock::default();
        clock.refresh(now());
        Ok(Periodic { upcall, baton, clock, began: None, is_real_time })
    }
}

impl Periodic {
    /// Ends the work of this period, and waits for the next turn.
    ///
    /// # Errors
    /// [`Error::UpcallEnded`] if the upcall was stopped because it took more than it declared; [`Error::Stopped`] if the upcalls
    /// are gone.
    pub fn wait(&mut self) -> Result<Tick, Error> {
        if let Some((began, own)) = self.began.take() {
            let (end, used) = (now(), sys::thread_processor_time().saturating_sub(own));
            let stolen = self.clock.stolen(end, end.since(began));
            let blocked = end.since(began).saturating_sub(used + stolen);
            // Waking up from the wait took a part of it.
            let blocked = if blocked > super::table::LEAST_EXCESS { blocked } else { Duration::ZERO };
            *locked(&self.baton.took) = Some((used, blocked));
            self.baton.passed.notify();
        }
        let asleep = now();
        self.clock.refresh(asleep);
        let tick = loop {
            let seen = self.baton.passed.seen();
            if let Some(tick) = locked(&self.baton.tick).take() {
                break tick;
            }
            let state = self.upcall.state();
            if self.baton.closed.load(Ordering::SeqCst) {
                return Err(Error::Stopped);
            }
            if state != super::UpcallState::Active {
                let name = self.upcall.figures().map_or_else(|_| String::new(), |figures| figures.name);
                return Err(Error::UpcallEnded { name, state: state.into() });
            }
            // A stopped upcall does not wake this loop, so the loop checks now and then.
            self.baton.passed.wait(seen, Some(std::time::Duration::from_millis(100)));
        };
        let begin = now();
        self.clock.slept(begin.since(asleep));
        self.clock.stolen(begin, Duration::ZERO);
        self.began = Some((begin, sys::thread_processor_time()));
        Ok(tick)
    }

    /// The grant of the loop.
    pub fn grant(&self) -> UpcallGrant {
        self.upcall.grant()
    }

    /// Returns the figures of the loop so far.
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
