//! The directory of claims: where it is, to whom it and its files must belong, and its lock.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::ClaimsError;

/// Root's, which everybody may read.
pub(super) const ROOTS: &str = "/run/laxity";
/// Longer than reading all claims takes.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Where a user's processes find each other: `/run/laxity` for root, else `$XDG_RUNTIME_DIR/laxity`, else `/tmp/laxity-UID`.
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

/// [`directory`], which is there afterwards, and belongs to this user.
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
        // Whatever the mask of the process that makes it.
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

/// Whether a directory is root's, and no other user can change what is in it.
pub(super) fn is_roots(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0)
}

/// A regular file of `user` that no other user can write.
pub(super) fn trusted(found: &Metadata, path: &Path, user: u32) -> Result<(), ClaimsError> {
    let foreign = |what: String| Err(ClaimsError::Foreign { file: path.to_owned(), what });
    if !found.is_file() {
        return foreign("it is no regular file".to_owned());
    }
    if found.uid() != user {
        return foreign(format!("it belongs to user {}, expected {user}", found.uid()));
    }
    if found.permissions().mode() & 0o022 != 0 {
        return foreign(format!("others may write it (mode {:o})", found.permissions().mode() & 0o7777));
    }
    Ok(())
}

/// Opens it without following a link, and without being blocked by a pipe that lies there.
pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)
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

/// Locks a file, which is made if it is not there, until it is closed; `None` where others hold it for longer than `patience`. Its holder may remove it:
/// then the lock of the new one counts.
pub(crate) fn lock_file(path: &Path, patience: Duration) -> io::Result<Option<File>> {
    let start = Instant::now();
    loop {
        let file = open(OpenOptions::new().read(true).write(true).create(true), path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let (ours, there) = (file.metadata()?, fs::symlink_metadata(path));
                if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                    return Ok(Some(file));
                }
                // Removed since it was opened: nothing to wait for.
                continue;
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
