//! Sleeping until a point in time, and what a thread runs as.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use laxity_core::units::{Duration, Instant};
use laxity_link::sys;

/// The longest time between two looks of a sleeper at its stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// Sleeps until `until`; false if `stop` was set before.
pub(crate) fn sleep_until(until: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let now = sys::now();
        if now >= until {
            return true;
        }
        // An error would be one of the arguments, and there are none; a signal ends the wait early.
        let _ = sys::wait(&mut [], Some(until.since(now).min(LOOK)));
    }
}

/// Calls it when it is dropped: also if its thread panics.
pub struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Sets the flag when what this returns is dropped.
pub fn set_at_end(flag: &AtomicBool) -> Finally<impl FnMut()> {
    Finally(move || flag.store(true, Ordering::Release))
}

/// Calls it in a thread of its own, so that the caller stays what it is.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| joined(scope.spawn(work)))
}

/// The result of a thread; if it panicked, so does the caller.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Prepares the calling thread: exact timers, and SCHED_FIFO with `priority` if asked for. True if it is real-time now.
pub(crate) fn prepare(priority: Option<u8>) -> bool {
    let _ = sys::precise_timers();
    priority.is_some_and(|priority| sys::real_time(priority).is_ok())
}
