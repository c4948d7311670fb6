//! Waking an executive from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A bell: any thread rings, the executive waits for it with [`wait`](super::wait). Rings that were not drained are one.
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

    /// Ends the ringing; true if it had rung. To be called before looking for the work that was announced, not after.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
