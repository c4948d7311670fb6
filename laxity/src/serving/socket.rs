//! The place of a serving executive: a socket, and the lock of the process that has it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use laxity_link::sys;
use rustix::fs::FlockOperation;

use super::access::is_safe;
use crate::attach::socket::listen;
use crate::error::Error;

/// The default socket at which applications find an executive that serves them.
///
/// It is `server-N` in `/run/laxity` for root, else in `$XDG_RUNTIME_DIR/laxity`, else in `/tmp/laxity-UID`. N is the number of
/// the network namespace (the inode of `/proc/self/ns/net`): each namespace is a host of its own.
pub fn default_socket() -> PathBuf {
    user_socket(rustix::process::geteuid().as_raw())
}

/// The socket of the host's server, which root runs; `None` for root, whose default it is.
pub(crate) fn host_socket() -> Option<PathBuf> {
    (!rustix::process::geteuid().is_root()).then(|| user_socket(0))
}

/// The socket of executives whose claims are in a directory of their own.
pub(crate) fn socket_in(directory: &Path) -> PathBuf {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
    directory.join(format!("server-{namespace}"))
}

fn user_socket(user: u32) -> PathBuf {
    socket_in(&crate::claims::directory(user))
}

/// The place of an executive that serves: its socket, and the lock of the process that has it.
pub(crate) struct ServerSocket {
    path: PathBuf,
    pub(super) listener: Arc<OwnedFd>,
    lock: File,
    forks: u32,
}

impl Drop for ServerSocket {
    fn drop(&mut self) {
        // While the lock is held the socket is ours. A copy that fork(2) made does nothing.
        if sys::forks() == self.forks {
            let _ = std::fs::remove_file(&self.path);
            // Copies share the lock, and would keep it.
            let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
        }
    }
}

/// Claims a place to serve at.
///
/// # Errors
/// Another process has it, or the socket cannot be made.
pub(crate) fn claim(path: &Path) -> Result<ServerSocket, Error> {
    let system = Error::system;
    let place = default_socket();
    if path == place {
        crate::claims::make_directory(rustix::process::geteuid().as_raw())?;
    }
    let lock = crate::claims::lock_file(&path.with_added_extension("lock"), Duration::ZERO);
    let lock = lock.map_err(system("opening the lock beside the server's socket"))?;
    let lock = lock.ok_or_else(|| Error::Serves { socket: path.to_owned() })?;
    let is_socket = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let listener = match listen(path) {
        // The socket of a process that is gone: it holds no lock.
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_socket(path) => {
            std::fs::remove_file(path).map_err(system("removing the socket of a server that is gone"))?;
            listen(path)
        }
        made => made,
    };
    let listener = Arc::new(listener.map_err(system("creating the server's socket"))?);
    sys::watch_forks();
    Ok(ServerSocket { path: path.to_owned(), listener, lock, forks: sys::forks() })
}

impl ServerSocket {
    /// Lets processes of other users connect; the server decides who may attach.
    ///
    /// # Errors
    /// Other users could replace the socket.
    pub(super) fn open_to_others(&self) -> Result<(), Error> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unsafe_place = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let is_safe = is_safe(parent).and_then(|is_safe| if is_safe { Ok(()) } else { Err(unsafe_place()) });
        is_safe.map_err(Error::system(
            "opening the server's socket to other users, in a directory in which others may change things",
        ))?;
        let opened = std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o666));
        opened.map_err(Error::system("opening the server's socket to other users"))
    }
}
