//! What threads share without locks is built from these. `laxity/tests/models.rs` compiles the same sources with others in their place, which try every
//! order of steps.

use std::time::Duration;

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use laxity_link::sys::Wake;
use rustix::thread::futex;

/// Waits until `word` is woken, at most `timeout`; not at all if it is not `seen`. May return early.
pub(crate) fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| futex::Timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, timeout.as_ref());
}

/// Wakes all that wait for `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
