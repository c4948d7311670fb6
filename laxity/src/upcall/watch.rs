//! The watch over the upcalls: a handler that does not return must not take all of a processor.
//!
//! A thread above that of the upcalls checks every [`UPCALL_WATCH`] how much processor time the running handler has taken. Beyond
//! twice its cost, and [`PATIENCE`], its thread becomes an ordinary one until the handler returns. Then other threads on that
//! processor run before it, and the kernel's real-time throttle, which would also stop the executive, is not reached.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::limits::UPCALL_WATCH;
use laxity_core::units::Duration;
use laxity_link::sys;

use crate::signal::Notifier;

/// The time beyond twice its cost after which a handler counts as one that does not return.
pub(super) const PATIENCE: Duration = Duration::from_millis(2);

/// The priority of the watching thread: above the threads that it watches, below the witness of a stopped process.
const ABOVE: u8 = 98;

/// The state that is watched.
#[derive(Debug, Default)]
pub(super) struct WatchedDescriptor {
    /// Handler calls so far; odd while one is running.
    calls: AtomicU64,
    place: AtomicU32,
    /// The thread that does the work, and its processor time at the beginning, ns.
    thread: AtomicI32,
    began: AtomicU64,
    /// The limit of its processor time, ns.
    limit: AtomicU64,
    /// The call that was found beyond its limit; zero if none.
    stuck: AtomicU64,
    /// The real-time priority of the upcalls' thread, if it has one.
    pub(super) priority: OnceLock<u8>,
    stop: AtomicBool,
    signal: Notifier,
}

impl WatchedDescriptor {
    /// A handler is called.
    pub(super) fn begin(&self, place: u32, thread: i32, own: Duration, limit: Duration) {
        self.place.store(place, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        self.began.store(own.as_nanos(), Ordering::Relaxed);
        self.limit.store(limit.as_nanos(), Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Release);
    }

    /// Notes that the handler has returned. True if its thread had been made an ordinary one; it has its priority again.
    pub(super) fn end(&self) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let was_stuck = self.stuck.swap(0, Ordering::SeqCst) != 0;
        if was_stuck {
            self.promote();
        }
        was_stuck
    }

    /// The upcall that has the thread and does not give it back.
    pub(super) fn stuck(&self) -> Option<u32> {
        let stuck = self.stuck.load(Ordering::SeqCst);
        (stuck != 0 && stuck == self.calls.load(Ordering::SeqCst)).then(|| self.place.load(Ordering::Relaxed))
    }

    /// Ends the watch.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.signal.notify();
    }

    /// Gives the thread that did the work its priority back.
    fn promote(&self) {
        if let Some(priority) = self.priority.get() {
            let _ = sys::real_time_of(self.thread.load(Ordering::Relaxed), *priority);
        }
    }

    fn look(&self) {
        let call = self.calls.load(Ordering::SeqCst);
        if call.is_multiple_of(2) || self.stuck.load(Ordering::SeqCst) == call {
            return;
        }
        let thread = self.thread.load(Ordering::Relaxed);
        let (began, limit) = (self.began.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
        let Ok(used) = sys::processor_time_of(thread) else { return };
        if used.as_nanos().saturating_sub(began) <= limit || self.calls.load(Ordering::SeqCst) != call {
            return;
        }
        self.stuck.store(call, Ordering::SeqCst);
        let _ = sys::ordinary(thread);
        // The handler may have returned meanwhile, before it was told that its thread is an ordinary one.
        if self.calls.load(Ordering::SeqCst) != call {
            self.stuck.store(0, Ordering::SeqCst);
            self.promote();
        }
    }
}

/// Waits for an end, for a second at most; true if it came.
pub(super) fn ends_soon(is_over: impl Fn() -> bool) -> bool {
    let until = StdInstant::now() + StdDuration::from_secs(1);
    while !is_over() {
        if StdInstant::now() >= until {
            return false;
        }
        std::thread::sleep(StdDuration::from_micros(200));
    }
    true
}

/// Starts the thread that watches.
pub(super) fn start(watch: &Arc<WatchedDescriptor>, real_time: bool) -> std::io::Result<()> {
    let watch = Arc::clone(watch);
    let thread = std::thread::Builder::new().name("laxity-watch".to_owned()).stack_size(64 << 10);
    thread.spawn(move || {
        if real_time {
            let _ = sys::real_time(ABOVE);
        }
        let _ = sys::precise_timers();
        let period = StdDuration::from_nanos(UPCALL_WATCH.as_nanos());
        loop {
            let seen = watch.signal.seen();
            if watch.stop.load(Ordering::SeqCst) {
                return;
            }
            watch.look();
            watch.signal.wait(seen, Some(period));
        }
    })?;
    Ok(())
}
