//! The directory of claims: its path, the owner of the directory and its files, and its lock.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::ClaimsError;

/// Root's directory, which all users can read.
pub(super) const ROOTS: &str = "/run/laxity";
/// Longer than reading all claims takes.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// The directory by which a user's processes find each other: `/run/laxity` for root, else `$XDG_RUNTIME_DIR/laxity`, else
/// `/tmp/laxity-UID`.
pub(crate) fn directory(user: u32) -> PathBuf {
    if user == 0 {
        return PathBuf::from(ROOTS);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(path) => path.join("laxity"),
        None => PathBuf::from(format!("/tmp/laxity-{user}")),
    }
}

/// Makes sure that [`directory`] exists and belongs to this user.
pub(crate) fn make_directory(user: u32) -> Result<PathBuf, ClaimsError> {
    let directory = directory(user);
    let mode = if user == 0 { 0o755 } else { 0o700 };
    own_directory(&directory, user, mode, 0o777 & !mode)?;
    Ok(directory)
}

/// A directory of `user`, made with `mode` if it is not there, that grants none of the rights in `denied`.
pub(super) fn own_directory(path: &Path, user: u32, mode: u32, denied: u32) -> Result<(), ClaimsError> {
    let error = |source| ClaimsError::io(path, "making the directory", source);
    match DirBuilder::new().mode(mode).create(path) {
        // Regardless of the umask of the process that makes it.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(error)?,
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(error(source)),
    }
    let found = fs::symlink_metadata(path).map_err(error)?;
    let foreign = |what: String| Err(ClaimsError::Foreign { file: path.to_owned(), what });
    if !found.is_dir() {
        return foreign("it is no directory".to_owned());
    }
    if found.uid() != user {
        return foreign(format!("it belongs to user {}, expected {user}", found.uid()));
    }
    if found.mode() & denied != 0 {
        return foreign(format!("its mode is {:o}, expected {mode:o}", found.mode() & 0o777));
    }
    Ok(())
}

/// True if a directory is root's, and no other user can change its contents.
pub(super) fn is_roots(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0)
}

/// A regular file of `user` that no other user can write.
pub(super) fn trusted(found: &Metadata, path: &Path, user: u32) -> Result<(), ClaimsError> {
    let foreign = |what| Err(ClaimsError::Foreign { file: path.to_owned(), what });
    mistrusted(found, &[user]).map_or(Ok(()), foreign)
}

/// Why a file is not trusted: it is no regular file of one of `owners`, or others may write it.
pub(crate) fn mistrusted(found: &Metadata, owners: &[u32]) -> Option<String> {
    if !found.is_file() {
        return Some("it is no regular file".to_owned());
    }
    if !owners.contains(&found.uid()) {
        let owners = owners.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ");
        return Some(format!("it belongs to user {}, expected {owners}", found.uid()));
    }
    (found.mode() & 0o022 != 0).then(|| format!("others may write it (mode {:o})", found.mode() & 0o7777))
}

/// Opens a file without following a link, and without blocking at a pipe that lies there.
pub(crate) fn open(options: &mut OpenOptions, path: &Path, mode: u32) -> io::Result<File> {
    options.mode(mode).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)
}

/// Removing a file that is not there is done, too.
pub(crate) fn removed(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A locked file of this process, gone when it is dropped. A process that was forked leaves it alone.
#[derive(Debug)]
pub(crate) struct OwnFile {
    pub(super) path: PathBuf,
    pub(super) pid: u32,
    _locked: File,
}

impl OwnFile {
    pub(crate) fn new(path: PathBuf, locked: File) -> Self {
        Self { path, pid: std::process::id(), _locked: locked }
    }

    /// False in a process that was forked from the one that has it.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.is_of_this_process() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The lock of a directory of `user`: while it is open, no other process changes claims there.
///
/// # Errors
/// Others have held it for a second.
pub(super) fn lock(directory: &Path, user: u32) -> Result<File, ClaimsError> {
    let path = directory.join("claims.lock");
    let error = |source| ClaimsError::io(&path, "locking", source);
    let file = lock_file(&path, LOCK_PATIENCE).map_err(error)?.ok_or_else(|| {
        let text = format!("others have held it for {} ms", LOCK_PATIENCE.as_millis());
        error(io::Error::new(io::ErrorKind::TimedOut, text))
    })?;
    trusted(&file.metadata().map_err(error)?, &path, user)?;
    Ok(file)
}

/// Locks a file, which is made if it does not exist, until it is closed. `None` if others hold the lock for longer than
/// `patience`. Its holder may remove the file: then the lock of the new file counts.
pub(crate) fn lock_file(path: &Path, patience: Duration) -> io::Result<Option<File>> {
    let start = Instant::now();
    loop {
        let file = open(OpenOptions::new().read(true).write(true).create(true), path, 0o600)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let (ours, there) = (file.metadata()?, fs::symlink_metadata(path));
                if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                    return Ok(Some(file));
                }
                // The file was removed since it was opened.
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(source) => return Err(source.into()),
        }
        if start.elapsed() >= patience {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
