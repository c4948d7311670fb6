//! Waking an executive from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// A bell: any thread rings, the executive waits for it with [`wait`](super::wait). Rings that were not drained count as one.
/// It is an eventfd that does not block, which another process may have, too.
#[derive(Debug)]
pub struct Wake(pub OwnedFd);

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

/// Descriptors that a thread waits for as for one, with [`wait`](super::wait) or in another set: its own bell, those of other processes, and what an application
/// has to read.
#[derive(Debug)]
pub struct WakeSet(OwnedFd);

impl WakeSet {
    /// An empty set.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Tells whether a descriptor can be listened to. It is in no set before it is: the kernel would tell the waiting thread of one that is at its end,
    /// whatever was asked for.
    ///
    /// # Errors
    /// `PermissionDenied` for a regular file or a directory, which cannot; else the kernel's.
    pub fn check(descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(Self::new()?, descriptor, number(None), EventFlags::ONESHOT)?)
    }

    /// Wakes for a bell or another set as long as that has something; it is not reported. False if it does so already.
    ///
    /// # Errors
    /// If the kernel has no memory left.
    pub fn include(&self, descriptor: impl AsFd) -> io::Result<bool> {
        match epoll::add(&self.0, descriptor, number(None), EventFlags::IN) {
            Err(Errno::EXIST) => Ok(false),
            added => Ok(added.map(|()| true)?),
        }
    }

    /// Hears another process's bell, until that is closed or taken out. It is reported as `which`. A process that has a bell can end its ringing, so each has its
    /// own, and the set hears that it rang, not that it rings.
    ///
    /// # Errors
    /// If the kernel has no memory left, or hears it already.
    pub fn add(&self, other: &Wake, which: u32) -> io::Result<()> {
        Ok(epoll::add(&self.0, other, number(Some(which)), EventFlags::IN | EventFlags::ET)?)
    }

    /// Listens to a descriptor once: the next time that it has something to read, an end, or an error, it is reported as `which`. Then it is silent until it is
    /// listened to again, whatever comes meanwhile: one that always has something keeps no thread awake.
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

    /// Does not hear or listen to it any more.
    pub fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.0, descriptor);
    }

    /// Reports those that rang or have something, a bounded number of them: the others are reported the next time, and are first then. Never waits. Call it
    /// before looking for the announced work, not after.
    pub fn take(&self, mut tell: impl FnMut(u32)) {
        let none = epoll::Event { flags: EventFlags::empty(), data: number(None) };
        let mut told = [none; 16];
        let count = epoll::wait(&self.0, &mut told[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap_or(0);
        for event in &told[..count] {
            let which = event.data.u64().checked_sub(1).and_then(|which| u32::try_from(which).ok());
            which.into_iter().for_each(&mut tell);
        }
    }
}

/// The event data of a descriptor in a set; none for one that has no number.
fn number(which: Option<u32>) -> epoll::EventData {
    epoll::EventData::new_u64(which.map_or(0, |which| u64::from(which) + 1))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{readable, wait};
    use laxity_core::units::Duration;

    /// Tells whether a thread that waits for the set would be woken, and with which events.
    fn look(set: &WakeSet) -> (bool, Vec<u32>) {
        let wakes = wait(&mut [readable(set.as_fd())], Some(Duration::ZERO)).unwrap() > 0;
        let mut ready = Vec::new();
        set.take(|which| ready.push(which));
        (wakes, ready)
    }

    #[test]
    fn a_descriptor_is_told_once_each_time_it_is_listened_to() {
        let (set, flood, other) = (WakeSet::new().unwrap(), Wake::new().unwrap(), Wake::new().unwrap());
        flood.wake();
        WakeSet::check(&flood).unwrap();
        WakeSet::check(&other).unwrap();
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
        let set = WakeSet::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for refused in [WakeSet::check(&file), set.listen(&file, 1)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        let (reader, writer) = std::io::pipe().unwrap();
        set.listen(&reader, 3).unwrap();
        drop(writer);
        assert_eq!(look(&set), (true, vec![3]));
        assert_eq!(look(&set), (false, vec![]));
        // One that was at its end before is told when it is listened to, and not before.
        let (reader, _) = std::io::pipe().unwrap();
        WakeSet::check(&reader).unwrap();
        assert_eq!(look(&set), (false, vec![]));
        set.listen(&reader, 4).unwrap();
        assert_eq!(look(&set), (true, vec![4]));
        set.remove(&reader);
        assert_eq!(look(&set), (false, vec![]));
    }

    #[test]
    fn a_set_among_bells_wakes_as_they_do_until_it_is_looked_at() {
        let (own, flood) = (Wake::new().unwrap(), Wake::new().unwrap());
        let (bells, set) = (WakeSet::new().unwrap(), WakeSet::new().unwrap());
        assert!(bells.include(&own).unwrap());
        assert!(bells.include(&set).unwrap() && !bells.include(&set).unwrap());
        let wakes = || wait(&mut [readable(bells.as_fd())], Some(Duration::ZERO)).unwrap() > 0;
        set.listen(&flood, 1).unwrap();
        assert!(!wakes());
        flood.wake();
        bells.take(|application| panic!("no application rang: {application}"));
        assert!(wakes());
        assert_eq!(look(&set), (true, vec![1]));
        assert!(!wakes());
        set.listen(&flood, 1).unwrap();
        bells.remove(&set);
        assert!(!wakes());
    }
}
