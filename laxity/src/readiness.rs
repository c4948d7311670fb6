//! What the executive and the upcalls below it know of each other: two words, without locks.

use std::sync::atomic::AtomicI32;

use laxity_core::units::{Duration, Instant};
use laxity_link::sys;

use crate::sync::{AtomicU64, Ordering};

/// From when on a periodic upcall is ready, and whose thread is above it.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// ns; zero while one is, `u64::MAX` while none will be.
    ready_from: AtomicU64,
    /// The executive's thread; zero if there is none.
    pub(crate) executive: AtomicI32,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { ready_from: AtomicU64::new(u64::MAX), executive: AtomicI32::new(0) }
    }
}

impl Readiness {
    /// Whether a periodic upcall is released and not done.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready_from.load(Ordering::Acquire) <= now.as_nanos()
    }

    /// None is ready until `next`, if that is known. For the upcalls' thread only.
    pub(crate) fn set(&self, next: Option<Instant>) {
        self.ready_from.store(next.map_or(u64::MAX, Instant::as_nanos), Ordering::Release);
    }

    /// How much of a processor the executive has had so far: a system call.
    pub(crate) fn executive_time(&self) -> Duration {
        match self.executive.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            thread => sys::processor_time_of(thread).unwrap_or_default(),
        }
    }
}
