//! A bell for application threads: the executive rings without a lock, and with a system call only if somebody waits.

use std::time::Duration;

use crate::sync::{Ordering, Waited};

/// An event that threads wait for. A wait returns when the event was notified after [`Signal::seen`] was read.
#[derive(Debug, Default)]
pub(crate) struct Signal(Waited);

impl Signal {
    /// One whose words another process has, too.
    pub(crate) fn over(words: Waited) -> Self {
        Self(words)
    }

    /// How often it was notified; to be read before looking for what the event announces.
    pub(crate) fn seen(&self) -> u32 {
        self.0.word().load(Ordering::SeqCst)
    }

    /// Wakes everybody who waits.
    pub(crate) fn notify(&self) {
        self.0.word().fetch_add(1, Ordering::SeqCst);
        if self.0.waiting().load(Ordering::SeqCst) > 0 {
            self.0.wake_all();
        }
    }

    /// Waits until the count differs from `seen`, at most `timeout`; may return early.
    pub(crate) fn wait(&self, seen: u32, timeout: Option<Duration>) {
        self.0.waiting().fetch_add(1, Ordering::SeqCst);
        self.0.wait(seen, timeout);
        self.0.waiting().fetch_sub(1, Ordering::SeqCst);
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
