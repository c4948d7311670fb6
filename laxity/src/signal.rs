//! A bell for application threads: the executive rings without a lock, and with a system call only if a thread waits.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, WaitWord, Wake};

/// An event that threads wait for. A wait returns when the event was notified after [`Notifier::seen`] was read.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    words: WaitWord,
    /// True if another process notifies, which does not know of this one's descriptor: a thread has to pass its notifications on.
    pub(crate) is_shared: bool,
    descriptor: OnceLock<Descriptor>,
}

/// A descriptor that can be polled for notifications.
#[derive(Debug)]
struct Descriptor {
    wake: Wake,
    /// 1 if the next notification makes it readable.
    is_armed: AtomicU32,
}

impl Notifier {
    /// One whose words another process has, too.
    pub(crate) fn over(words: WaitWord) -> Self {
        Self { words, is_shared: true, descriptor: OnceLock::new() }
    }

    /// How often it was notified; to be read before looking for what the event announces.
    pub(crate) fn seen(&self) -> u32 {
        self.words.word().load(Ordering::SeqCst)
    }

    /// Wakes all threads that wait.
    pub(crate) fn notify(&self) {
        self.words.word().fetch_add(1, Ordering::SeqCst);
        if self.words.waiting().load(Ordering::SeqCst) > 0 {
            self.words.wake_all();
        }
        self.ring();
    }

    /// Makes the descriptor readable, if it is armed.
    fn ring(&self) {
        if let Some(descriptor) = self.descriptor.get()
            && descriptor.is_armed.swap(0, Ordering::SeqCst) != 0
        {
            descriptor.wake.wake();
        }
    }

    /// A descriptor that can be polled: readable at first, and after [`Notifier::rearm`] with the next notification. Made if there is none yet.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn descriptor(&self) -> io::Result<&Wake> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(&descriptor.wake);
        }
        let wake = Wake::new()?;
        wake.wake();
        Ok(&self.descriptor.get_or_init(|| Descriptor { wake, is_armed: AtomicU32::new(0) }).wake)
    }

    /// Makes the descriptor not readable before the next notification. True if there was one since it was last so: then what is notified is to be looked
    /// for once more.
    pub(crate) fn rearm(&self) -> bool {
        let Some(Descriptor { wake, is_armed }) = self.descriptor.get() else { return false };
        // In this order: a notification between the two is told by the second.
        let rang = wake.drain();
        is_armed.swap(1, Ordering::SeqCst) == 0 || rang
    }

    /// Waits at most `limit` and passes on notifications since `seen` was returned, or of any time before; returns the same for the next call.
    pub(crate) fn pass_on(&self, seen: Option<u32>, limit: Duration) -> u32 {
        if let Some(seen) = seen {
            self.wait(seen, Some(limit));
        }
        let now = self.seen();
        if seen != Some(now) {
            self.ring();
        }
        now
    }

    /// Waits until the count differs from `seen`, at most `timeout`; may return early.
    pub(crate) fn wait(&self, seen: u32, timeout: Option<Duration>) {
        self.words.waiting().fetch_add(1, Ordering::SeqCst);
        self.words.wait(seen, timeout);
        self.words.waiting().fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_notification_between_the_look_and_the_wait_is_not_lost() {
        let signal = Arc::new(Notifier::default());
        let seen = signal.seen();
        signal.notify();
        signal.wait(seen, None);
    }

    #[test]
    fn a_waiting_thread_wakes() {
        let signal = Arc::new(Notifier::default());
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
        Notifier::default().wait(0, Some(Duration::from_millis(1)));
    }
}
