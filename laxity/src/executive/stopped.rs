//! A witness of the process being stopped as a whole: by SIGSTOP, a debugger, or a cgroup's freezer.
//!
//! A thread that waits for nothing, without end. It takes no signals, so that the kernel ends its wait for one reason only: the process
//! had been stopped, and goes on (signal(7), "Interruption of system calls and library functions by stop signals": `epoll_wait`). It costs
//! nothing until then, and cannot be mistaken about an executive that waits for something, or runs in circles. When the process goes on
//! the executive may run first, and ask before the witness has said anything; so it waits for an answer.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration as StdDuration;

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};
use rustix::event::{EventfdFlags, eventfd};

use crate::signal::Notifier;

/// It runs for a moment when the process goes on, and before the executive asks.
const ABOVE_ALL: u8 = 99;

/// Who was away for no longer does not ask: the answer would cost more than it explains.
const WORTH_ASKING: Duration = Duration::from_millis(1);
/// How long an answer is waited for.
const PATIENCE: StdDuration = StdDuration::from_micros(500);

/// What asks the witness; nothing if there is none.
static QUESTION: OnceLock<Option<OwnedFd>> = OnceLock::new();
static ANSWERS: LazyLock<Notifier> = LazyLock::new(Notifier::default);
/// When the process went on last, ns; 0 before it was ever stopped.
static WENT_ON: AtomicU64 = AtomicU64::new(0);

/// Has the witness look on from now on.
pub(crate) fn witness() {
    // Without it what it would have seen is Laxity's fault.
    QUESTION.get_or_init(|| {
        let question = eventfd(0, EventfdFlags::CLOEXEC).ok()?;
        let heard = question.try_clone().ok()?;
        let looks_on = move || {
            let _ = sys::real_time(ABOVE_ALL);
            let went_on = || WENT_ON.store(now().as_nanos(), Ordering::Release);
            let _ = sys::wait_for_interruptions(heard, went_on, || ANSWERS.notify());
        };
        let thread = std::thread::Builder::new().name("laxity-witness".to_owned()).stack_size(64 << 10);
        thread.spawn(looks_on).ok().map(|_| question)
    });
}

/// Has the witness say what it knows; gives up soon.
fn ask() {
    let Some(question) = QUESTION.get().and_then(Option::as_ref) else { return };
    let seen = ANSWERS.seen();
    if rustix::io::write(question, &1u64.to_ne_bytes()).is_ok() {
        ANSWERS.wait(seen, Some(PATIENCE));
    }
}

/// Whether the process was stopped, and has gone on, since then; `now` is now.
pub(crate) fn since(since: Instant, now: Instant) -> bool {
    if now.since(since) >= WORTH_ASKING {
        ask();
    }
    let went_on = Instant::from_nanos(WENT_ON.load(Ordering::Acquire));
    went_on > Instant::ZERO && went_on >= since
}
