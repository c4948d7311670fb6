//! A bell for application threads: the executive rings without a lock, and with a system call only if somebody waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

/// An event that threads wait for. A wait returns when the event was notified after [`Signal::seen`] was read.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    count: AtomicU32,
    waiting: AtomicU32,
}

impl Signal {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// How often it was notified; to be read before looking for what the event announces.
    pub(crate) fn seen(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Wakes everybody who waits.
    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.count, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Waits until the count differs from `seen`, at most `timeout`; may return early.
    pub(crate) fn wait(&self, seen: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| rustix::thread::futex::Timespec {
            tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wait(&self.count, futex::Flags::PRIVATE, seen, timeout.as_ref());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_notification_between_the_look_and_the_wait_is_not_lost() {
        let signal = Arc::new(Signal::default());
        let seen = signal.seen();
        signal.notify();
        signal.wait(seen, None);
    }

    #[test]
    fn a_waiting_thread_wakes() {
        let signal = Arc::new(Signal::default());
        let seen = signal.seen();
        let other = Arc::clone(&signal);
        let thread = std::thread::spawn(move || {
            while other.seen() == seen {
                other.wait(seen, None);
            }
        });
        std::thread::sleep(Duration::from_millis(10));
        signal.notify();
        thread.join().unwrap();
    }

    #[test]
    fn a_wait_ends_at_its_timeout() {
        Signal::default().wait(0, Some(Duration::from_millis(1)));
    }
}
