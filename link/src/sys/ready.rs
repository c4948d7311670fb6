//! The descriptors of an application that have something to read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::wake::{number, told};

/// A set of descriptors that a thread waits for as for one, with [`wait`](super::wait) or in a [`WakeSet`](super::WakeSet).
///
/// Each is listened to once: after it was reported, or has an error, it is silent until it is listened to again, whatever comes meanwhile. So a descriptor that
/// always has something keeps no thread awake.
#[derive(Debug)]
pub struct ReadySet(OwnedFd);

impl ReadySet {
    /// An empty set.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Tells whether a descriptor can be waited for. The descriptor is in no set before it is listened to: the kernel would tell the
    /// waiting thread of one that is at its end, whatever was asked for.
    ///
    /// # Errors
    /// `PermissionDenied` for a regular file or a directory, which cannot; else the kernel's.
    pub fn check(descriptor: impl AsFd) -> io::Result<()> {
        let alone = Self::new()?;
        Ok(epoll::add(&alone.0, descriptor, number(None), EventFlags::ONESHOT)?)
    }

    /// Listens to a descriptor: the next time that it has something to read, an end, or an error, it is reported as `which`.
    ///
    /// # Errors
    /// It cannot be waited for; the kernel has no room for another one.
    pub fn listen(&self, descriptor: impl AsFd, which: u32) -> io::Result<()> {
        let (descriptor, flags) = (descriptor.as_fd(), EventFlags::IN | EventFlags::ONESHOT);
        match epoll::modify(&self.0, descriptor, number(Some(which)), flags) {
            // The first time.
            Err(Errno::NOENT) => Ok(epoll::add(&self.0, descriptor, number(Some(which)), flags)?),
            other => Ok(other?),
        }
    }

    /// Does not listen to it any more.
    pub fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// Reports those that have something, a bounded number of them: the others are reported the next time, and are first then. Never waits.
    pub fn take(&self, ready: impl FnMut(u32)) {
        told(&self.0, ready);
    }
}

impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Wake, WakeSet, readable, wait};
    use laxity_core::units::Duration;

    /// Tells whether a thread that waits for the set would be woken, and with which events.
    fn look(set: &ReadySet) -> (bool, Vec<u32>) {
        let wakes = wait(&mut [readable(set.as_fd())], Some(Duration::ZERO)).unwrap() > 0;
        let mut ready = Vec::new();
        set.take(|which| ready.push(which));
        (wakes, ready)
    }

    #[test]
    fn a_descriptor_is_told_once_each_time_it_is_listened_to() {
        let (set, flood, other) = (ReadySet::new().unwrap(), Wake::new().unwrap(), Wake::new().unwrap());
        flood.wake();
        ReadySet::check(&flood).unwrap();
        ReadySet::check(&other).unwrap();
        assert_eq!(look(&set), (false, vec![]), "not listened to yet");
        set.listen(&other, 7).unwrap();
        for _ in 0..3 {
            set.listen(&flood, 0).unwrap();
            assert_eq!(look(&set), (true, vec![0]));
            assert_eq!(look(&set), (false, vec![]), "it has something all the time");
        }
        set.listen(&flood, 0).unwrap();
        set.remove(&flood);
        assert_eq!(look(&set), (false, vec![]));
        other.wake();
        assert_eq!(look(&set), (true, vec![7]));
        set.listen(&flood, 0).unwrap();
        assert_eq!(look(&set), (true, vec![0]), "it is listened to again");
    }

    #[test]
    fn the_end_is_told_and_files_are_refused() {
        let set = ReadySet::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for refused in [ReadySet::check(&file), set.listen(&file, 1)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        let (reader, writer) = std::io::pipe().unwrap();
        set.listen(&reader, 3).unwrap();
        drop(writer);
        assert_eq!(look(&set), (true, vec![3]));
        assert_eq!(look(&set), (false, vec![]));
        // One that was at its end before is told when it is listened to, and not before.
        let (reader, _) = std::io::pipe().unwrap();
        ReadySet::check(&reader).unwrap();
        assert_eq!(look(&set), (false, vec![]));
        set.listen(&reader, 4).unwrap();
        assert_eq!(look(&set), (true, vec![4]));
        set.remove(&reader);
        assert_eq!(look(&set), (false, vec![]));
    }

    #[test]
    fn a_set_among_bells_wakes_as_they_do_until_it_is_looked_at() {
        let (own, flood) = (Wake::new().unwrap(), Wake::new().unwrap());
        let (bells, set) = (WakeSet::new(&own).unwrap(), ReadySet::new().unwrap());
        assert!(bells.include(&set).unwrap() && !bells.include(&set).unwrap());
        let wakes = || wait(&mut [readable(bells.as_fd())], Some(Duration::ZERO)).unwrap() > 0;
        set.listen(&flood, 1).unwrap();
        assert!(!wakes());
        flood.wake();
        bells.drain(|application| panic!("no application rang: {application}"));
        assert!(wakes());
        assert_eq!(look(&set), (true, vec![1]));
        assert!(!wakes());
        set.listen(&flood, 1).unwrap();
        bells.remove(&set);
        assert!(!wakes());
    }
}
