//! A lock that shows that a file's owner lives.
//!
//! It is for a file that others may read: an open-file-description lock for writing takes a descriptor that may write, so a process that may only read the
//! file cannot pretend to hold it. Of flock(2) the exclusive lock is available with any descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::done;

/// Holds the whole file until it is closed here, and in every process that was forked meanwhile; false if another one has a lock on it.
///
/// # Errors
/// EBADF if `file` is not open for writing; else the kernel's.
pub fn hold(file: &File) -> io::Result<bool> {
    let mut lock = whole(libc::F_WRLCK);
    match fcntl(file, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if a process that may write the file holds it ([`hold`]), by another open file description than that of `file`. Locks of processes that may only read it do not count.
///
/// # Errors
/// The kernel's.
pub fn is_held(file: &File) -> io::Result<bool> {
    let mut lock = whole(libc::F_RDLCK);
    fcntl(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// From the beginning to whatever end the file will have.
fn whole(kind: i32) -> libc::flock {
    // The kernel demands that no process is named.
    libc::flock { l_type: kind as _, l_whence: libc::SEEK_SET as _, l_start: 0, l_len: 0, l_pid: 0 }
}

fn fcntl(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and the pointer is to a valid flock, which these commands read and write.
    done(unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_until_it_is_closed_and_a_reader_cannot_hold_it() {
        let path = std::env::temp_dir().join(format!("laxity-held-{}", std::process::id()));
        let writing = File::create(&path).unwrap();
        let reading = File::open(&path).unwrap();
        assert!(!is_held(&reading).unwrap());
        assert_eq!(hold(&reading).unwrap_err().raw_os_error(), Some(libc::EBADF));
        // A lock for reading is all that a reader can have, and it is not seen.
        let another = File::open(&path).unwrap();
        fcntl(&another, libc::F_OFD_SETLK, &mut whole(libc::F_RDLCK)).unwrap();
        assert!(!is_held(&reading).unwrap() && !hold(&writing).unwrap());
        drop(another);
        assert!(hold(&writing).unwrap() && is_held(&reading).unwrap());
        assert!(!is_held(&writing).unwrap(), "its own");
        drop(writing);
        assert!(!is_held(&reading).unwrap());
        std::fs::remove_file(path).unwrap();
    }
}
