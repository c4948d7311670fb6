//! A witness of the process being stopped as a whole: by SIGSTOP, a debugger, or a cgroup's freezer.
//!
//! A thread that waits for nothing, without end. It takes no signals, so that the kernel ends its wait for one reason only: the process
//! had been stopped, and goes on (signal(7), "Interruption of system calls and library functions by stop signals": `epoll_wait`). It costs
//! nothing until then, and cannot be mistaken about an executive that waits for something, or runs in circles.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity_core::units::Instant;
use laxity_link::sys::{self, now};

/// It runs for a moment when the process goes on, and before the executive asks.
const ABOVE_ALL: u8 = 99;

static BEGINS: Once = Once::new();
/// When the process went on last, ns; 0 before it was ever stopped.
static WENT_ON: AtomicU64 = AtomicU64::new(0);

/// Has the witness look on from now on.
pub(crate) fn witness() {
    BEGINS.call_once(|| {
        // Without it what it would have seen is Laxity's fault.
        let _ = std::thread::Builder::new().name("laxity-witness".to_owned()).stack_size(64 << 10).spawn(|| {
            let _ = sys::real_time(ABOVE_ALL);
            let _ = sys::wait_for_interruptions(|| WENT_ON.store(now().as_nanos(), Ordering::Release));
        });
    });
}

/// Until when the process was stopped last, if that was within the time from `since` to `now`.
pub(crate) fn until(since: Instant, now: Instant) -> Option<Instant> {
    let went_on = Instant::from_nanos(WENT_ON.load(Ordering::Acquire));
    (went_on >= since && went_on <= now && went_on > Instant::ZERO).then_some(went_on)
}
