//! A lock against priority inversion: threads that are less urgent than the waiting thread cannot keep the owner from its processor.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// The protocol by which a lock changes the urgency of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockProtocol {
    /// No change: a thread whose priority is between the owner's and the waiting thread's may keep both waiting for any time.
    Plain,
    /// The owner is as urgent as the most urgent thread that waits for it. Costs nothing while no thread waits.
    Inheritance,
    /// The owner is as urgent as this SCHED_FIFO priority: two system calls each time, unless it is so already. The C library may
    /// refuse it to a thread that is more urgent.
    Ceiling(u8),
}

/// A value behind a lock of the C library with that protocol. It is never poisoned: code that may panic while it owns the lock must handle that itself.
pub struct PriorityLock<T> {
    /// Boxed: it may not move, and threads may wait for it at its address.
    mutex: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and the mutex admits one at a time.
unsafe impl<T: Send> Send for PriorityLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PriorityLock<T> {}

/// The value, as long as the calling thread has the lock. It cannot be given to another thread.
pub struct PriorityGuard<'a, T> {
    lock: &'a PriorityLock<T>,
    _stays: std::marker::PhantomData<*const ()>,
}

fn check(answer: i32) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

impl<T> PriorityLock<T> {
    /// A lock around `value`.
    ///
    /// # Errors
    /// The C library has no such protocol.
    pub fn new(value: T, protocol: LockProtocol) -> io::Result<Self> {
        let kind = match protocol {
            LockProtocol::Plain => libc::PTHREAD_PRIO_NONE,
            LockProtocol::Inheritance => libc::PTHREAD_PRIO_INHERIT,
            LockProtocol::Ceiling(_) => libc::PTHREAD_PRIO_PROTECT,
        };
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `attributes` is initialised by the first call before it is used, and destroyed once; the mutex is at its final address
        // and no other thread knows it yet.
        unsafe {
            check(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            let attributes = attributes.assume_init_mut();
            let made = check(libc::pthread_mutexattr_setprotocol(attributes, kind))
                .and_then(|()| match protocol {
                    LockProtocol::Ceiling(priority) => {
                        check(pthread_mutexattr_setprioceiling(attributes, priority.into()))
                    }
                    LockProtocol::Plain | LockProtocol::Inheritance => Ok(()),
                })
                .and_then(|()| check(libc::pthread_mutex_init(mutex.get(), attributes)));
            libc::pthread_mutexattr_destroy(attributes);
            made?;
        }
        Ok(Self { mutex, value: UnsafeCell::new(value) })
    }

    /// The value; waits as long as another thread has it.
    ///
    /// # Panics
    /// If the C library refuses: the calling thread is more urgent than the ceiling.
    pub fn lock(&self) -> PriorityGuard<'_, T> {
        // SAFETY: the mutex was initialised and stays where it is.
        let answer = unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        assert_eq!(answer, 0, "the lock is refused: {}", io::Error::from_raw_os_error(answer));
        PriorityGuard { lock: self, _stays: std::marker::PhantomData }
    }

    /// The value, unless a thread has it.
    pub fn try_lock(&self) -> Option<PriorityGuard<'_, T>> {
        // SAFETY: as in `lock`.
        let answer = unsafe { libc::pthread_mutex_trylock(self.mutex.get()) };
        (answer == 0).then_some(PriorityGuard { lock: self, _stays: std::marker::PhantomData })
    }
}

unsafe extern "C" {
    /// POSIX; not in the crate `libc`.
    fn pthread_mutexattr_setprioceiling(
        attributes: *mut libc::pthread_mutexattr_t,
        ceiling: libc::c_int,
    ) -> libc::c_int;
}

impl<T> Drop for PriorityLock<T> {
    fn drop(&mut self) {
        // SAFETY: the lock is not borrowed any more, so no thread owns it or waits for it.
        unsafe {
            libc::pthread_mutex_destroy(self.mutex.get());
        }
    }
}

impl<T> Deref for PriorityGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock, and the guard is borrowed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for PriorityGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, and the guard is borrowed once.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for PriorityGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: a guard stays on the thread that has taken the lock.
        unsafe {
            libc::pthread_mutex_unlock(self.lock.mutex.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_under_every_protocol() {
        const EACH: u64 = 20_000;
        for protocol in [LockProtocol::Plain, LockProtocol::Inheritance] {
            let lock = PriorityLock::new(0u64, protocol).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| (0..EACH).for_each(|_| *lock.lock() += 1));
                }
            });
            assert_eq!(*lock.lock(), 3 * EACH, "{protocol:?}");
            let held = lock.lock();
            assert!(std::thread::scope(|scope| scope.spawn(|| lock.try_lock().is_none()).join().unwrap()));
            drop(held);
            assert!(lock.try_lock().is_some());
        }
    }
}
