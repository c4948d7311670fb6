//! Waiting for sockets, wakes and the time, with nanoseconds (`ppoll`).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use laxity_core::units::Duration;
pub use rustix::event::{PollFd, PollFlags};
use rustix::event::{Timespec, epoll, poll};
use rustix::io::Errno;

use super::process_clock::kernel_span;

/// A descriptor for [`wait`], until it has something to read. Errors are always waited for.
pub fn readable(descriptor: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(descriptor, PollFlags::IN)
}

/// Waits until a descriptor is ready, `timeout` is over, or a signal came; `None` waits without a limit, zero only looks. Returns the number of
/// descriptors that have something, or an error, which reading or writing will report: 0 if the time was up or a signal came. Each tells what
/// it has ([`PollFd::revents`]).
///
/// It returns after a signal, so that Ctrl-C is seen at once. How late it wakes up depends on the platform, see
/// [`precise_timers`](super::precise_timers). Allocates nothing.
///
/// # Errors
/// The kernel's.
pub fn wait(descriptors: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    match poll(descriptors, timeout.map(timespec).as_ref()) {
        Err(Errno::INTR) => Ok(0),
        answer => Ok(answer?),
    }
}

/// The descriptors that one of several threads waits for: one of its own, and some that they share. Of those one thread is to hear.
///
/// Of the sets that share descriptors, the oldest one of those that are waited for is told of an arrival, and the others sleep on
/// (EPOLLEXCLUSIVE). If none is waited for, all are told; also of events that come through a descriptor that is an epoll set itself. A set does not keep descriptors open, and forgets those that are closed.
pub struct WaitSet {
    epoll: OwnedFd,
    /// The shared descriptors, if they can be shut: a set within the set.
    gate: Option<OwnedFd>,
}

impl WaitSet {
    /// A set of `own` and `shared`.
    ///
    /// # Errors
    /// If the process has no descriptor left, or the kernel is older than Linux 5.11.
    pub fn new(own: BorrowedFd<'_>, shared: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let set = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, gate: None };
        epoll::add(&set.epoll, own, epoll::EventData::new_u64(OWN), epoll::EventFlags::IN)?;
        share(&set.epoll, shared)?;
        set.wait(Some(Duration::ZERO))?;
        Ok(set)
    }

    /// As [`WaitSet::new`], for a set that can be made deaf to the shared descriptors ([`WaitSet::shut`]).
    ///
    /// # Errors
    /// As [`WaitSet::new`].
    pub fn with_gate(own: BorrowedFd<'_>, shared: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let gate = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        share(&gate, shared)?;
        let set = Self::new(own, &[])?;
        epoll::add(&set.epoll, &gate, epoll::EventData::new_u64(SHARED), epoll::EventFlags::IN)?;
        set.wait(Some(Duration::ZERO))?;
        Ok(Self { gate: Some(gate), ..set })
    }

    /// From now on a thread that waits for a set with a gate does not hear the shared descriptors: a system call. For a set without a gate it does nothing.
    pub fn shut(&self) {
        self.listen(epoll::EventFlags::empty());
    }

    /// From now on a thread that waits for it hears the shared descriptors again, and what is there already.
    pub fn open(&self) {
        self.listen(epoll::EventFlags::IN);
    }

    fn listen(&self, flags: epoll::EventFlags) {
        if let Some(gate) = &self.gate {
            // Both are there: it cannot fail.
            let _ = epoll::modify(&self.epoll, gate, epoll::EventData::new_u64(SHARED), flags);
        }
    }

    /// Waits as [`wait`] does. Returns two values: true if its own descriptor, and true if a shared one, has something to read or an error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<(bool, bool)> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(OWN) };
        let mut events = [none; MOST_EVENTS];
        let found = match epoll::wait(&self.epoll, &mut events[..], timeout.map(timespec).as_ref()) {
            Ok(found) => found,
            Err(Errno::INTR) => 0,
            Err(other) => return Err(other.into()),
        };
        let has = |whose| events[..found].iter().any(|event| event.data.u64() == whose);
        Ok((has(OWN), has(SHARED)))
    }
}

/// Adds descriptors of which one thread is to hear; sets cannot be added so.
fn share(epoll: &OwnedFd, shared: &[BorrowedFd<'_>]) -> io::Result<()> {
    for fd in shared {
        let add = |flags| epoll::add(epoll, fd, epoll::EventData::new_u64(SHARED), flags);
        match add(epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE) {
            Err(Errno::INVAL) => add(epoll::EventFlags::IN)?,
            added => added?,
        }
    }
    Ok(())
}

/// Descriptors that one wait for a [`WaitSet`] tells of; the others are told of the next time.
const MOST_EVENTS: usize = 16;
const OWN: u64 = 0;
const SHARED: u64 = 1;

/// The span for the kernel so that `span` passes by the clock of the process.
fn timespec(span: Duration) -> Timespec {
    let longest = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };
    Timespec::try_from(std::time::Duration::from(kernel_span(span))).unwrap_or(longest)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;
    use crate::sys::{Wake, now};

    #[test]
    fn of_those_that_share_something_the_first_that_waits_hears_it() {
        let wakes: [Wake; 3] = std::array::from_fn(|_| Wake::new().unwrap());
        let [shared, first, second] = &wakes;
        let sets = [first, second].map(|own| WaitSet::new(own.as_fd(), &[shared.as_fd()]).unwrap());
        let now = |set: &WaitSet| set.wait(Some(Duration::ZERO)).unwrap();
        // While no thread waits both are told, until it is read.
        shared.wake();
        assert_eq!([now(&sets[0]), now(&sets[1])], [(false, true); 2]);
        shared.drain();
        first.wake();
        assert_eq!([now(&sets[0]), now(&sets[1])], [(true, false), (false, false)]);
        first.drain();
        let threads = [const { AtomicI32::new(0) }; 2];
        let waits = |which: usize| {
            threads[which].store(crate::sys::thread_id(), Ordering::Relaxed);
            sets[which].wait(Some(Duration::from_secs(20))).unwrap()
        };
        // From when it has said who it is, a thread sleeps nowhere but in its wait.
        let is_asleep = |which: usize| {
            let thread = threads[which].load(Ordering::Relaxed);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
            thread != 0 && stat.rsplit(") ").next().is_some_and(|state| state.starts_with('S'))
        };
        let sleep_till = |which| {
            while !is_asleep(which) {
                std::thread::yield_now();
            }
        };
        // The second waits alone, and hears it.
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| waits(1));
            sleep_till(1);
            shared.wake();
            assert_eq!(heard.join().unwrap(), (false, true));
        });
        shared.drain();
        threads[1].store(0, Ordering::Relaxed);
        // Both wait: the first hears it, and the second sleeps on until it is woken for itself.
        std::thread::scope(|scope| {
            let (heard, not_heard) = (scope.spawn(|| waits(0)), scope.spawn(|| waits(1)));
            (0..2).for_each(sleep_till);
            shared.wake();
            assert_eq!(heard.join().unwrap(), (false, true));
            assert!(is_asleep(1));
            shared.drain();
            second.wake();
            assert_eq!(not_heard.join().unwrap(), (true, false));
        });
    }

    #[test]
    fn who_waits_behind_a_gate_hears_nothing_while_it_is_shut() {
        let wakes: [Wake; 3] = std::array::from_fn(|_| Wake::new().unwrap());
        let [shared, first, second] = &wakes;
        let looking = WaitSet::new(first.as_fd(), &[shared.as_fd()]).unwrap();
        let waiting = WaitSet::with_gate(second.as_fd(), &[shared.as_fd()]).unwrap();
        let now = |set: &WaitSet| set.wait(Some(Duration::ZERO)).unwrap();
        let waits = || waiting.wait(Some(Duration::from_secs(20))).unwrap();
        waiting.shut();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits);
            wait(&mut [], Some(Duration::from_millis(20))).unwrap();
            shared.wake();
            assert_eq!(now(&looking), (false, true), "who looks finds it");
            wait(&mut [], Some(Duration::from_millis(20))).unwrap();
            assert!(!waiter.is_finished());
            // Its own it hears all the time.
            second.wake();
            assert_eq!(waiter.join().unwrap(), (true, false));
        });
        second.drain();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits);
            wait(&mut [], Some(Duration::from_millis(20))).unwrap();
            assert!(!waiter.is_finished());
            waiting.open();
            assert_eq!(waiter.join().unwrap(), (false, true), "what came meanwhile is heard");
        });
        shared.drain();
        assert_eq!([now(&looking), now(&waiting)], [(false, false); 2]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits);
            wait(&mut [], Some(Duration::from_millis(20))).unwrap();
            shared.wake();
            assert_eq!(waiter.join().unwrap(), (false, true));
        });
    }

    #[test]
    fn a_wake_ends_the_wait_and_draining_ends_the_wake() {
        let (quiet, wake) = (Wake::new().unwrap(), Wake::new().unwrap());
        let mut fds = [readable(quiet.as_fd()), readable(wake.as_fd())];
        assert_eq!(wait(&mut fds, Some(Duration::ZERO)).unwrap(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wake.wake();
                wake.wake();
            });
            assert_eq!(wait(&mut fds, None).unwrap(), 1);
            assert_eq!((fds[0].revents(), fds[1].revents()), (PollFlags::empty(), PollFlags::IN));
        });
        assert!(wake.drain());
        assert!(!wake.drain());
        assert_eq!(wait(&mut fds, Some(Duration::ZERO)).unwrap(), 0);
        assert!(fds.iter().all(|fd| fd.revents().is_empty()), "what was found before is forgotten");
    }

    #[test]
    fn the_time_is_never_cut_short() {
        let before = now();
        let span = Duration::from_micros(300);
        assert_eq!(wait(&mut [], Some(span)).unwrap(), 0);
        assert!(now().since(before) >= span);
    }
}
