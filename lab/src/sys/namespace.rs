//! Network namespaces: made, named as `ip netns` names them, entered, removed; and time namespaces, which are only entered.
//!
//! A namespace without a name lives as long as a process in it, a descriptor of it, or a mount of it. Its virtual interfaces go
//! with it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use laxity_core::units::{Duration, NANOS_PER_SECOND};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::timing::joined;

/// The directory in which `ip netns` looks for names.
const NAMES: &str = "/run/netns";
/// That of the thread that asks, not of its process.
const OWN: &str = "/proc/thread-self/ns/net";
/// From the kernel's uapi/linux/nsfs.h: which kind of namespace a descriptor is of.
const NS_GET_NSTYPE: u32 = 0xb703;
/// The longest name.
const NAME_MAX: usize = 64;

/// A network namespace that is kept alive.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// That of the calling thread.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open(OWN)?.into()))
    }

    /// A new one with a loopback interface that is down. The caller stays where it is.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; the kernel has none left to give.
    pub fn new() -> io::Result<Self> {
        elsewhere(|| {
            unshare(UnshareFlags::NEWNET)?;
            Self::current()
        })
    }

    /// The one of this name; `None` if there is none.
    ///
    /// # Errors
    /// `InvalidInput` for what is no name; `InvalidData` if something else stands in its place.
    pub fn named(name: &str) -> io::Result<Option<Self>> {
        match Self::at(&place(name)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// The one that a file stands for, such as `/proc/PID/ns/net`, or `/proc/PID/fd/N` of a process that holds one.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`; `InvalidData` if it is something else.
    pub fn at(path: &Path) -> io::Result<Self> {
        let file: OwnedFd = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?.into();
        // SAFETY: this call takes no argument and writes to no memory, whatever the descriptor is of.
        if unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE as _) } != libc::CLONE_NEWNET {
            let problem = format!("{} is no network namespace", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        Ok(Self(file))
    }

    /// Gives it a name, so that it stays until [`remove_named`](Self::remove_named), and that `ip netns exec` finds it.
    ///
    /// # Errors
    /// `AlreadyExists`, `PermissionDenied` without CAP_SYS_ADMIN, `InvalidInput` for what can be no name.
    pub fn give_name(&self, name: &str) -> io::Result<()> {
        let place = place(name)?;
        let _lock = shared_directory()?;
        // The file is only what to mount it on.
        OpenOptions::new().write(true).create_new(true).mode(0o000).open(&place)?;
        let mounted = self.within(|| Ok(rustix::mount::mount_bind(OWN, &place)?));
        if mounted.is_err() {
            let _ = fs::remove_file(&place);
        }
        mounted
    }

    /// Takes the name away; the namespace goes with it, unless a process is in it.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` without CAP_SYS_ADMIN.
    pub fn remove_named(name: &str) -> io::Result<()> {
        let place = place(name)?;
        // Not through a link to somewhere else.
        fs::symlink_metadata(&place)?;
        match rustix::mount::unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // Nothing is mounted there: the process that made it was ended between two steps.
            Ok(()) | Err(rustix::io::Errno::INVAL) => fs::remove_file(&place),
            Err(error) => Err(error.into()),
        }
    }

    /// The calling thread is in it from here on, and so is what it starts; other threads stay where they are.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        rustix::thread::move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// Does `work` in it, in a thread of its own, so that the caller stays where it is.
    ///
    /// # Errors
    /// As [`enter`](Self::enter), and those of `work`.
    ///
    /// # Panics
    /// If `work` does.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        elsewhere(|| {
            self.enter()?;
            work()
        })
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// The numbers that tell it from every other namespace that lives at the same time.
    ///
    /// # Errors
    /// The kernel's.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let file = File::from(self.0.try_clone()?);
        let metadata = file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// A number that no other one has or will have until the machine starts again; `None` before Linux 5.14.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN.
    pub fn cookie(&self) -> io::Result<Option<u64>> {
        self.within(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            let (mut cookie, mut bytes) = (0u64, size_of::<u64>() as libc::socklen_t);
            // SAFETY: the kernel writes at most `bytes` bytes to `cookie`, and their number to `bytes`.
            let result = unsafe {
                libc::getsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_NETNS_COOKIE,
                    (&raw mut cookie).cast(),
                    &raw mut bytes,
                )
            };
            match result {
                0 => Ok(Some(cookie)),
                _ => match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
                    error => Err(error),
                },
            }
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives the calling thread, and what it starts, mounts of its own, which no other process sees, and shows it the network devices of its namespace in /sys. Other mounts in /sys stay as they
/// are. Only virtual devices are shown.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN; there is no /sys.
pub fn show_devices() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    const CLASS: &str = "/sys/class/net";
    const VIRTUAL: &str = "/sys/devices/virtual/net";
    // What is mounted now shows the devices of the namespace in which it was mounted. A new one goes where no program looks for it,
    // and the two directories of it that matter take the places of the old ones: links lead from the first into the second.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("laxity", CLASS, "sysfs", flags, None)?;
    rustix::mount::mount_bind(format!("{CLASS}/devices/virtual/net"), VIRTUAL)?;
    rustix::mount::mount_bind(format!("{CLASS}/class/net"), CLASS)?;
    Ok(())
}

fn place(name: &str) -> io::Result<PathBuf> {
    let can_be = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with(['.', '-']) || !name.bytes().all(can_be) {
        let problem =
            format!("a namespace's name has 1 to {NAME_MAX} letters, digits, - _ and . and begins with no - or .");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(Path::new(NAMES).join(name))
}

/// The directory of the names, locked as `ip netns` locks it: what is mounted there is seen in other mount namespaces, too, and
/// goes there when it goes here.
fn shared_directory() -> io::Result<File> {
    match fs::create_dir(NAMES) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let directory = File::open(NAMES)?;
    directory.lock()?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    if rustix::mount::mount_change(NAMES, shared).is_err() {
        // It is no mount yet.
        rustix::mount::mount_bind_recursive(NAMES, NAMES)?;
        rustix::mount::mount_change(NAMES, shared)?;
    }
    Ok(directory)
}

/// The calling process is in a time namespace of its own from here on, in which CLOCK_MONOTONIC is `ahead` of the one that it had in the first one.
/// It must have one thread alone.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN and CAP_SYS_TIME; `InvalidInput` from a kernel without time namespaces; the process has more threads.
pub fn enter_new_time(ahead: Duration) -> io::Result<()> {
    unshare(UnshareFlags::NEWTIME)?;
    let (seconds, nanos) = (ahead.as_nanos() / NANOS_PER_SECOND, ahead.as_nanos() % NANOS_PER_SECOND);
    // While no process is in it; so far it is only that of children.
    fs::write("/proc/self/timens_offsets", format!("monotonic {seconds} {nanos}\n"))?;
    let own = File::open("/proc/self/ns/time_for_children")?;
    rustix::thread::move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Time))?;
    Ok(())
}

fn unshare(what: UnshareFlags) -> io::Result<()> {
    // SAFETY: file descriptors stay shared: only NEWNET, NEWNS and NEWTIME are asked for here.
    unsafe { rustix::thread::unshare_unsafe(what) }?;
    Ok(())
}

/// In a thread that ends with `work`, so that what it changes of itself is over then.
fn elsewhere<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        joined(thread)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_one_is_another_and_the_caller_stays() {
        let here = Namespace::current().unwrap().identity().unwrap();
        let new = match Namespace::new() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return println!("skipped: {error}"),
            new => new.unwrap(),
        };
        let there = new.identity().unwrap();
        assert_ne!(here, there);
        assert_eq!(Namespace::current().unwrap().identity().unwrap(), here);
        assert_eq!(new.within(|| Namespace::current()?.identity()).unwrap(), there);
        assert_eq!(Namespace::current().unwrap().identity().unwrap(), here);
        let (ours, theirs) = (Namespace::current().unwrap().cookie().unwrap(), new.cookie().unwrap());
        assert!(ours.is_none() && theirs.is_none() || ours != theirs, "{ours:?}");
        assert_eq!(new.cookie().unwrap(), theirs);
        assert!(new.within::<()>(|| Err(io::ErrorKind::Other.into())).is_err());
        // Another network is no other clock.
        let clock = laxity_link::sys::clock_identity();
        assert_eq!(new.within(|| Ok(laxity_link::sys::clock_identity())).unwrap(), clock);
    }

    #[test]
    fn a_name_stands_until_it_is_removed() {
        let name = format!("laxity-test-{}", std::process::id());
        let made = match Namespace::new().and_then(|new| new.give_name(&name).map(|()| new)) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                return println!("skipped: {error}");
            }
            made => made.unwrap(),
        };
        assert_eq!(Namespace::new().unwrap().give_name(&name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let found = Namespace::named(&name).unwrap().unwrap();
        assert_eq!(found.identity().unwrap(), made.identity().unwrap());
        // In /sys only what is in it is seen.
        let seen = found.within(|| {
            show_devices()?;
            fs::read_dir("/sys/class/net")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()
        });
        let seen = seen.unwrap();
        assert!(seen.iter().any(|name| name == "lo"), "{seen:?}");
        found.within(|| fs::read_to_string("/sys/class/net/lo/mtu").map(drop)).unwrap();
        Namespace::remove_named(&name).unwrap();
        assert!(Namespace::named(&name).unwrap().is_none());
        assert_eq!(Namespace::remove_named(&name).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        for path in ["/dev/null", "/proc/self/ns/mnt", "/"] {
            assert_eq!(Namespace::at(Path::new(path)).unwrap_err().kind(), io::ErrorKind::InvalidData, "{path}");
        }
        assert_eq!(Namespace::at(Path::new("/proc/self/ns/no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", ".", "..", "../lab", "a/b", "-a", "a b", "ä", &"a".repeat(65)] {
            assert_eq!(Namespace::named(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            let here = Namespace::current().unwrap();
            assert_eq!(here.give_name(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            assert_eq!(Namespace::remove_named(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
