//! What a handler is given: the run that it is called for.

use std::sync::atomic::Ordering;

use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{Pick, Upcalls as Queue};
use laxity_link::sys::now;

use super::table::Wires;

/// What a handler has done when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It stopped after an iteration, because [`Run::should_yield`] said so: what is left is done when it is called again. If nothing is
    /// left, the run is done.
    Yield,
    /// There is nothing more to do in this period, whatever is left.
    Done,
    /// As [`Progress::Done`], and the upcall is suspended.
    Finished,
    /// As [`Progress::Done`], and the upcall runs no more, as after a panic ([`State::Panicked`](super::State::Panicked)).
    Failed,
}

/// A run of an upcall, as its handler sees it.
#[derive(Debug)]
pub struct Run<'a> {
    pub(super) pick: Pick,
    pub(super) done: u32,
    /// The next release of any upcall: before it no other upcall can be ready.
    pub(super) next_release: Instant,
    /// When the thread looks again whether a descriptor releases one.
    pub(super) look_at: Instant,
    /// `None` on the executive's thread.
    pub(super) queue: Option<&'a mut Queue>,
    pub(super) wires: &'a Wires,
}

impl Run<'_> {
    /// Units of work that are left of the run.
    pub fn left(&self) -> u32 {
        self.pick.left - self.done
    }

    /// Units of the next iteration: those that may be done without asking whether to yield.
    pub fn block(&self) -> u32 {
        self.pick.block.min(self.left())
    }

    /// So many units are done; more than are left count as those.
    pub fn done(&mut self, units: u32) {
        self.done = self.done.saturating_add(units).min(self.pick.left);
    }

    /// Whether to return now, with [`Progress::Yield`]: a more urgent upcall was released, descriptors that may release one are to be looked at, or the thread is wanted. To be asked after each
    /// iteration. Takes a load and a look at the clock, unless something was released. Always true on the executive's thread.
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

    /// When the run was released (CLOCK_MONOTONIC); `None` if it is aperiodic.
    pub fn release(&self) -> Option<Instant> {
        self.pick.release
    }

    /// By when it has to be done; `None` if it is aperiodic.
    pub fn deadline(&self) -> Option<Instant> {
        self.pick.deadline
    }

    /// What is left until the deadline.
    pub fn laxity(&self) -> Option<Duration> {
        self.pick.deadline.map(|deadline| deadline.since(now()))
    }

    /// Runs that were skipped since the last one, because their period had passed before they could begin.
    pub fn skipped(&self) -> u64 {
        self.pick.skipped
    }

    /// Calls `unit` for each unit that is left, with its number in the run, as long as there is no need to yield; the handler then returns
    /// what this returns.
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
