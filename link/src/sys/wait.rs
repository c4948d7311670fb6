//! Waiting for sockets, wakes and the time, with nanoseconds (`ppoll`).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use laxity_core::units::{Duration, NANOS_PER_SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::process_clock::kernel_span;

/// The largest number of descriptors that one [`wait`] takes: an executive has a few links and one wake.
pub const MAX_WAIT: usize = 16;

/// The events to wait for. Errors are always waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
    /// Both.
    Both,
    /// Only errors.
    ErrorsOnly,
}

/// The findings of [`wait`], by the position of the descriptor in its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    found: [PollFlags; MAX_WAIT],
    ready: usize,
    interrupted: bool,
}

impl Readiness {
    /// The number of descriptors that have something; 0 if the time was up or a signal came.
    pub fn ready(&self) -> usize {
        self.ready
    }
    /// True if a signal ended the wait. The caller looks at its own flags and goes on.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }
    /// True if the descriptor at `index` has something to read, or an error, which reading will report.
    pub fn readable(&self, index: usize) -> bool {
        self.has(index, PollFlags::IN | PollFlags::ERR | PollFlags::HUP)
    }
    /// True if the descriptor at `index` has room, or an error, which writing will report.
    pub fn writable(&self, index: usize) -> bool {
        self.has(index, PollFlags::OUT | PollFlags::ERR | PollFlags::HUP)
    }
    /// True if the descriptor at `index` has an error waiting. A link reads it in [`LinkOver::receive`](crate::LinkOver::receive).
    pub fn error(&self, index: usize) -> bool {
        self.has(index, PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
    }
    fn has(&self, index: usize, flags: PollFlags) -> bool {
        self.found.get(index).is_some_and(|found| found.intersects(flags))
    }
}

/// Waits until a descriptor is ready, `timeout` is over, or a signal came; `None` waits without a limit, zero only looks.
///
/// It returns after a signal, so that Ctrl-C is seen at once. How late it wakes up depends on the platform, see
/// [`precise_timers`](super::precise_timers). Allocates nothing.
///
/// # Errors
/// `InvalidInput` for more than [`MAX_WAIT`] descriptors; else the kernel's.
pub fn wait(fds: &[(BorrowedFd<'_>, Interest)], timeout: Option<Duration>) -> io::Result<Readiness> {
    let mut result = Readiness { found: [PollFlags::empty(); MAX_WAIT], ready: 0, interrupted: false };
    if fds.len() > MAX_WAIT {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than MAX_WAIT"));
    }
    let timeout = timeout.map(timespec);
    let answer = match fds.first() {
        None => poll(&mut [], timeout.as_ref()),
        Some(&first) => {
            // Slots beyond the last descriptor hold the first one and are not passed to the kernel.
            let mut slots: [PollFd<'_>; MAX_WAIT] = std::array::from_fn(|index| {
                let (fd, interest) = fds.get(index).copied().unwrap_or(first);
                PollFd::from_borrowed_fd(
                    fd,
                    match interest {
                        Interest::Readable => PollFlags::IN,
                        Interest::Writable => PollFlags::OUT,
                        Interest::Both => PollFlags::IN | PollFlags::OUT,
                        Interest::ErrorsOnly => PollFlags::empty(),
                    },
                )
            });
            let answer = poll(&mut slots[..fds.len()], timeout.as_ref());
            if answer.is_ok() {
                for (found, slot) in result.found.iter_mut().zip(&slots[..fds.len()]) {
                    *found = slot.revents();
                }
            }
            answer
        }
    };
    match answer {
        Ok(ready) => result.ready = ready,
        Err(Errno::INTR) => result.interrupted = true,
        Err(other) => return Err(other.into()),
    }
    Ok(result)
}

/// The descriptors that one of several threads waits for: one of its own, and some that they share. Of those one thread is to hear.
///
/// Of the sets that share descriptors, the oldest one of those that are waited for is told of an arrival, and the others sleep on
/// (EPOLLEXCLUSIVE). If none is waited for, all are told; also of events that come through a descriptor that is an epoll set itself. A set does not keep descriptors open, and forgets those that are closed.
#[derive(Debug)]
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
        let mut events = [none; MAX_WAIT];
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

const OWN: u64 = 0;
const SHARED: u64 = 1;

/// The span for the kernel so that `span` passes by the clock of the process.
fn timespec(span: Duration) -> Timespec {
    let span = kernel_span(span);
    Timespec {
        tv_sec: i64::try_from(span.as_nanos() / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: (span.as_nanos() % NANOS_PER_SECOND) as _,
    }
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
            wait(&[], Some(Duration::from_millis(20))).unwrap();
            shared.wake();
            assert_eq!(now(&looking), (false, true), "who looks finds it");
            wait(&[], Some(Duration::from_millis(20))).unwrap();
            assert!(!waiter.is_finished());
            // Its own it hears all the time.
            second.wake();
            assert_eq!(waiter.join().unwrap(), (true, false));
        });
        second.drain();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits);
            wait(&[], Some(Duration::from_millis(20))).unwrap();
            assert!(!waiter.is_finished());
            waiting.open();
            assert_eq!(waiter.join().unwrap(), (false, true), "what came meanwhile is heard");
        });
        shared.drain();
        assert_eq!([now(&looking), now(&waiting)], [(false, false); 2]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits);
            wait(&[], Some(Duration::from_millis(20))).unwrap();
            shared.wake();
            assert_eq!(waiter.join().unwrap(), (false, true));
        });
    }

    #[test]
    fn a_wake_ends_the_wait_and_draining_ends_the_wake() {
        let (quiet, wake) = (Wake::new().unwrap(), Wake::new().unwrap());
        let fds = [(quiet.as_fd(), Interest::Readable), (wake.as_fd(), Interest::Readable)];
        assert_eq!(wait(&fds, Some(Duration::ZERO)).unwrap().ready(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wake.wake();
                wake.wake();
            });
            let found = wait(&fds, None).unwrap();
            assert_eq!((found.ready(), found.readable(0), found.readable(1)), (1, false, true));
            assert!(!found.error(1) && !found.writable(1));
        });
        assert!(wake.drain());
        assert!(!wake.drain());
        assert_eq!(wait(&fds, Some(Duration::ZERO)).unwrap().ready(), 0);
    }

    #[test]
    fn the_time_is_never_cut_short() {
        let before = now();
        let span = Duration::from_micros(300);
        let found = wait(&[], Some(span)).unwrap();
        assert!(found.interrupted() || now().since(before) >= span);
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let wake = Wake::new().unwrap();
        let fds = [(wake.as_fd(), Interest::Both); MAX_WAIT + 1];
        assert_eq!(wait(&fds, None).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(wait(&fds[..MAX_WAIT], None).unwrap().ready(), MAX_WAIT);
    }
}
