//! Which of an application's descriptors have something to read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventFlags};

use super::wake::{number, told};

/// Descriptors that a thread waits for as for one, with [`wait`](super::wait) or in a [`WakeSet`](super::WakeSet).
///
/// Each is listened to once: after it was told, or has an error, it is silent until it is listened to again, whatever comes meanwhile. So a descriptor that
/// always has something keeps no thread awake.
#[derive(Debug)]
pub struct ReadySet(OwnedFd);

impl ReadySet {
    /// A set of none.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Takes a descriptor in, which is not listened to yet.
    ///
    /// # Errors
    /// `PermissionDenied` for a regular file or a directory, which cannot be waited for; else what the kernel says.
    pub fn add(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.0, descriptor, number(None), EventFlags::ONESHOT)?)
    }

    /// Listens to a descriptor: the next time that it has something to read, an end, or an error, it is told by `which`.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn listen(&self, descriptor: impl AsFd, which: u32) -> io::Result<()> {
        Ok(epoll::modify(&self.0, descriptor, number(Some(which)), EventFlags::IN | EventFlags::ONESHOT)?)
    }

    /// Does not listen to it any more.
    pub fn ignore(&self, descriptor: impl AsFd) {
        let _ = epoll::modify(&self.0, descriptor, number(None), EventFlags::ONESHOT);
    }

    /// Takes it out.
    pub fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// Tells those that have something, a bounded number of them: the others are told the next time, and are first then. Never waits.
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
    use crate::sys::{Interest, Wake, WakeSet, wait};
    use laxity_core::units::Duration;

    /// Whether a thread that waits for the set would be woken, and what it would be told.
    fn look(set: &ReadySet) -> (bool, Vec<u32>) {
        let wakes = wait(&[(set.as_fd(), Interest::Readable)], Some(Duration::ZERO)).unwrap().readable(0);
        let mut ready = Vec::new();
        set.take(|which| ready.push(which));
        (wakes, ready)
    }

    #[test]
    fn a_descriptor_is_told_once_each_time_it_is_listened_to() {
        let (set, flood, other) = (ReadySet::new().unwrap(), Wake::new().unwrap(), Wake::new().unwrap());
        flood.wake();
        set.add(&flood).unwrap();
        set.add(&other).unwrap();
        assert_eq!(look(&set), (false, vec![]), "not listened to yet");
        set.listen(&other, 7).unwrap();
        for _ in 0..3 {
            set.listen(&flood, 0).unwrap();
            assert_eq!(look(&set), (true, vec![0]));
            assert_eq!(look(&set), (false, vec![]), "it has something all the time");
        }
        set.listen(&flood, 0).unwrap();
        set.ignore(&flood);
        assert_eq!(look(&set), (false, vec![]));
        other.wake();
        assert_eq!(look(&set), (true, vec![7]));
        set.remove(&flood);
        assert!(set.listen(&flood, 0).is_err() && look(&set) == (false, vec![]));
    }

    #[test]
    fn the_end_is_told_and_files_are_refused() {
        let set = ReadySet::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(set.add(&file).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let (reader, writer) = std::io::pipe().unwrap();
        set.add(&reader).unwrap();
        set.listen(&reader, 3).unwrap();
        drop(writer);
        assert_eq!(look(&set), (true, vec![3]));
        assert_eq!(look(&set), (false, vec![]));
    }

    #[test]
    fn a_set_among_bells_wakes_as_they_do_until_it_is_looked_at() {
        let (own, flood) = (Wake::new().unwrap(), Wake::new().unwrap());
        let (bells, set) = (WakeSet::new(&own).unwrap(), ReadySet::new().unwrap());
        assert!(bells.include(&set).unwrap() && !bells.include(&set).unwrap());
        let wakes = || wait(&[(bells.as_fd(), Interest::Readable)], Some(Duration::ZERO)).unwrap().readable(0);
        set.add(&flood).unwrap();
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
