//! The primitives of structures that processes share without locks. `shm/tests/models.rs` compiles [`ring`](crate::ring) with others in their place.

use std::time::Duration;

use rustix::thread::futex;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// Waits until `word`, which processes share, is woken, at most `timeout`; not at all if it is not `seen`. May return early.
pub fn wait(word: &std::sync::atomic::AtomicU32, seen: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| futex::Timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let _ = futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref());
}

/// No honest process has more threads that wait for one word; a hostile one has as many as it likes, and each takes time to wake.
const MOST_WOKEN: u32 = 16;

/// Wakes all that wait for `word`, but no more than an honest process has.
pub fn wake_all(word: &std::sync::atomic::AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), MOST_WOKEN);
}
