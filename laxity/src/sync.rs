//! What threads share without locks is built from these. `laxity/tests/models.rs` compiles the same sources with others in their place, which try every
//! order of steps. Words may be of this process alone, or shared with one that is attached to it ([`crate::serving`]).

use std::ops::Deref;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use laxity_link::sys::Wake;
use rustix::thread::futex;

/// What is behind a lock, whatever became of the threads that had it before.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Words that threads ring with.
#[derive(Debug)]
pub(crate) enum RingWord {
    Own(Box<[AtomicU64]>),
    Shared(laxity_shm::Words),
}

impl RingWord {
    pub(crate) fn zeros(count: usize) -> Self {
        Self::Own((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Deref for RingWord {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Shared(words) => words,
        }
    }
}

/// A word that threads wait for, and how many do.
#[derive(Debug)]
pub(crate) enum WaitWord {
    Own([AtomicU32; 2]),
    Shared(laxity_shm::Words32),
}

impl Default for WaitWord {
    fn default() -> Self {
        Self::Own(Default::default())
    }
}

impl WaitWord {
    fn words(&self) -> &[AtomicU32] {
        match self {
            Self::Own(words) => words,
            Self::Shared(words) => words,
        }
    }
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.words()[0]
    }
    pub(crate) fn waiting(&self) -> &AtomicU32 {
        &self.words()[1]
    }

    /// Waits until the word is woken, at most `timeout`; not at all if it is not `seen`. May return early.
    pub(crate) fn wait(&self, seen: u32, timeout: Option<Duration>) {
        match self {
            Self::Own([word, _]) => wait(word, seen, timeout),
            Self::Shared(words) => laxity_shm::wait(&words[0], seen, timeout),
        }
    }

    /// Wakes all that wait.
    pub(crate) fn wake_all(&self) {
        match self {
            Self::Own([word, _]) => wake_all(word),
            Self::Shared(words) => laxity_shm::wake_all(&words[0]),
        }
    }
}

fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    // One that cannot be represented is no limit.
    let timeout = timeout.and_then(|timeout| futex::Timespec::try_from(timeout).ok());
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, timeout.as_ref());
}

fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}
