//! Waking an executive from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use super::ReadySet;

/// A bell: any thread rings, the executive waits for it with [`wait`](super::wait). Rings that were not drained count as one.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// A bell that has not rung.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Rings. One system call; never blocks and cannot fail: a full counter means that it rings already.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Ends the ringing; true if it had rung. Call it before looking for the announced work, not after.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }
}

impl From<OwnedFd> for Wake {
    /// A bell that another process has, too: an eventfd that does not block.
    fn from(eventfd: OwnedFd) -> Self {
        Self(eventfd)
    }
}

/// Bells of several processes, for a thread that waits for all of them as for one descriptor.
///
/// A process that has a bell can end its ringing, so each has its own, and the set hears that it rang, not that it rings.
#[derive(Debug)]
pub struct WakeSet(OwnedFd);

impl WakeSet {
    /// A set of `own`, which rings until it is drained.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(own: &Wake) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, own, number(None), epoll::EventFlags::IN)?;
        Ok(Self(set))
    }

    /// Hears another process's bell, until that is closed or taken out. It is reported as `which`.
    ///
    /// # Errors
    /// If the kernel has no memory left, or hears it already.
    pub fn add(&self, other: &Wake, which: u32) -> io::Result<()> {
        Ok(epoll::add(&self.0, other, number(Some(which)), epoll::EventFlags::IN | epoll::EventFlags::ET)?)
    }

    /// Wakes for descriptors, too, until they are looked at; false if it does so already.
    ///
    /// # Errors
    /// If the kernel has no memory left.
    pub fn include(&self, descriptors: &ReadySet) -> io::Result<bool> {
        match epoll::add(&self.0, descriptors, number(None), epoll::EventFlags::IN) {
            Err(Errno::EXIST) => Ok(false),
            added => Ok(added.map(|()| true)?),
        }
    }

    /// Does not hear it any more.
    pub fn remove(&self, other: impl AsFd) {
        let _ = epoll::delete(&self.0, other);
    }

    /// Ends the ringing of all but its own bell, and tells which have rung. Call it before looking for the announced work, not after.
    pub fn drain(&self, rang: impl FnMut(u32)) {
        told(&self.0, rang);
    }
}

/// The event data of a descriptor in a set; none for one that has no number.
pub(super) fn number(which: Option<u32>) -> epoll::EventData {
    epoll::EventData::new_u64(which.map_or(0, |which| u64::from(which) + 1))
}

/// Which descriptors of a set have something: a bounded number of them.
pub(super) fn told(set: &OwnedFd, mut tell: impl FnMut(u32)) {
    let none = epoll::Event { flags: epoll::EventFlags::empty(), data: number(None) };
    // Those that are not told now are the next time.
    let mut told = [none; 16];
    let count = epoll::wait(set, &mut told[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap_or(0);
    for event in &told[..count] {
        let which = event.data.u64().checked_sub(1).and_then(|which| u32::try_from(which).ok());
        which.into_iter().for_each(&mut tell);
    }
}

impl AsFd for WakeSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
