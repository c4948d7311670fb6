//! The run for which a handler is called.

use std::sync::atomic::Ordering;

use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{PickedRun, Upcalls as Queue};
use laxity_link::sys::now;

use super::table::ThreadShared;

/// The result of a call of an upcall's handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It stopped after an iteration, because [`UpcallRun::should_yield`] said so. It is called again for the rest; if nothing is left,
    /// the run is done.
    Yield,
    /// The run is done, whatever is left.
    Done,
    /// As [`Progress::Done`], and the upcall is suspended.
    Finished,
    /// As [`Progress::Done`], and the upcall runs no more, as after a panic ([`UpcallState::Panicked`](super::UpcallState::Panicked)).
    Failed,
}

/// A run of an upcall, as its handler sees it.
#[derive(Debug)]
pub struct UpcallRun<'a> {
    pub(super) pick: PickedRun,
    pub(super) done: u32,
    /// The next release of any upcall: no other upcall can be ready earlier.
    pub(super) next_release: Instant,
    /// The time at which the thread looks again at descriptors that may release upcalls.
    pub(super) look_at: Instant,
    /// `None` on the executive's thread.
    pub(super) queue: Option<&'a mut Queue>,
    pub(super) wires: &'a ThreadShared,
}

impl UpcallRun<'_> {
    /// The units of work that are left of the run.
    pub fn left(&self) -> u32 {
        self.pick.left - self.done
    }

    /// The units of the next iteration, which may be done without asking whether to yield.
    pub fn block(&self) -> u32 {
        self.pick.block.min(self.left())
    }

    /// Reports `units` units as done; more than are left count as all that are left.
    pub fn done(&mut self, units: u32) {
        self.done = self.done.saturating_add(units).min(self.pick.left);
    }

    /// True if the handler should return [`Progress::Yield`] now. Call it after each iteration.
    ///
    /// The reasons are: a more urgent upcall was released, descriptors that may release one have to be looked at, or the thread
    /// has other work. The call takes one load and one look at the clock, unless something was released. On the executive's
    /// thread it is always true.
    pub fn should_yield(&mut self) -> bool {
        // The executive has to look at its inputs and links after each iteration.
        let Some(queue) = &mut self.queue else { return true };
        if self.wires.flag.load(Ordering::Relaxed) {
            return true;
        }
        let now = now();
        if now >= self.look_at {
            return true;
        }
        if now < self.next_release {
            return false;
        }
        let outranked = queue.should_yield(now);
        self.next_release = queue.next_release().unwrap_or(Instant::MAX);
        outranked
    }

    /// The time of the run's release (CLOCK_MONOTONIC); `None` if the upcall is aperiodic.
    pub fn release(&self) -> Option<Instant> {
        self.pick.release
    }

    /// The deadline of the run; `None` if the upcall is aperiodic.
    pub fn deadline(&self) -> Option<Instant> {
        self.pick.deadline
    }

    /// The time that is left until the deadline.
    pub fn laxity(&self) -> Option<Duration> {
        self.pick.deadline.map(|deadline| deadline.since(now()))
    }

    /// The number of runs that were skipped since the last one, because their period was over before they could begin.
    pub fn skipped(&self) -> u64 {
        self.pick.skipped
    }

    /// Calls `unit` for each unit that is left, with its number in the run from 0, until it is time to yield.
    ///
    /// Return the result from the handler.
    pub fn each(&mut self, mut unit: impl FnMut(u32)) -> Progress {
        let first = self.pick.done;
        while self.left() > 0 {
            for _ in 0..self.block() {
                unit(first + self.done);
                self.done(1);
            }
            if self.left() > 0 && self.should_yield() {
                return Progress::Yield;
            }
        }
        Progress::Done
    }
}
