//! Waiting for sockets, wakes and the time, with nanoseconds (`ppoll`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use laxity_core::units::{Duration, NANOS_PER_SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

/// How many descriptors one [`wait`] takes: an executive has a few links and one wake.
pub const MAX_WAIT: usize = 16;

/// What to wait for. Errors are always waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read.
    Readable,
    /// Room to write.
    Writable,
    /// Either.
    Both,
    /// Only errors.
    ErrorsOnly,
}

/// What [`wait`] found, by the position of the descriptor in its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    found: [PollFlags; MAX_WAIT],
    ready: usize,
    interrupted: bool,
}

impl Readiness {
    /// How many descriptors have something; 0 if the time was up or a signal came.
    pub fn ready(&self) -> usize {
        self.ready
    }
    /// A signal ended the wait. The caller looks at its own flags and goes on.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }
    /// The descriptor at `index` has something to read, or an error, which reading will report.
    pub fn readable(&self, index: usize) -> bool {
        self.has(index, PollFlags::IN | PollFlags::ERR | PollFlags::HUP)
    }
    /// The descriptor at `index` has room, or an error, which writing will report.
    pub fn writable(&self, index: usize) -> bool {
        self.has(index, PollFlags::OUT | PollFlags::ERR | PollFlags::HUP)
    }
    /// The descriptor at `index` has an error waiting. A link reads it in [`LinkOver::receive`](crate::LinkOver::receive).
    pub fn error(&self, index: usize) -> bool {
        self.has(index, PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
    }
    fn has(&self, index: usize, flags: PollFlags) -> bool {
        self.found.get(index).is_some_and(|found| found.intersects(flags))
    }
}

/// Waits until a descriptor is ready, `timeout` is over, or a signal came; `None` waits as long as it takes, zero only looks.
///
/// It does not wait on after a signal, so that Ctrl-C is seen at once. How late it wakes is the platform's, see
/// [`precise_timers`](super::precise_timers). Allocates nothing.
///
/// # Errors
/// `InvalidInput` for more than [`MAX_WAIT`] descriptors; else what the kernel says.
pub fn wait(fds: &[(BorrowedFd<'_>, Interest)], timeout: Option<Duration>) -> io::Result<Readiness> {
    let mut result = Readiness { found: [PollFlags::empty(); MAX_WAIT], ready: 0, interrupted: false };
    if fds.len() > MAX_WAIT {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more descriptors than MAX_WAIT"));
    }
    let timeout = timeout.map(|span| Timespec {
        tv_sec: i64::try_from(span.as_nanos() / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: (span.as_nanos() % NANOS_PER_SECOND) as _,
    });
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

/// Something that is readable when one of these is. It does not keep them open, and forgets those that are closed.
///
/// # Errors
/// If the process has no descriptor left.
pub fn one_of(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

/// What is readable when something else is, while it is open. It can be shut while a thread waits for it.
#[derive(Debug)]
pub struct Gate {
    epoll: OwnedFd,
    to: OwnedFd,
}

impl Gate {
    /// An open gate to `to`.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(to: OwnedFd) -> io::Result<Self> {
        Ok(Self { epoll: one_of(&[to.as_fd()])?, to })
    }

    /// Opens it: who waits for it wakes up if there is something to read. One system call.
    pub fn open(&self) {
        self.set(epoll::EventFlags::IN);
    }

    /// Shuts it. One system call.
    pub fn shut(&self) {
        // It hears nothing then but errors, and these once.
        self.set(epoll::EventFlags::ONESHOT);
    }

    fn set(&self, flags: epoll::EventFlags) {
        let _ = epoll::modify(&self.epoll, &self.to, epoll::EventData::new_u64(0), flags);
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Wake, now};

    #[test]
    fn a_gate_lets_through_what_there_is_while_it_is_open() {
        let wake = Wake::new().unwrap();
        let gate = Gate::new(wake.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let hears =
            |gate: &Gate| wait(&[(gate.as_fd(), Interest::Readable)], Some(Duration::ZERO)).unwrap().readable(0);
        assert!(!hears(&gate));
        gate.shut();
        wake.wake();
        assert!(!hears(&gate));
        gate.open();
        assert!(hears(&gate));
        wake.drain();
        assert!(!hears(&gate));
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
