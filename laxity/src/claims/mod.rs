//! What an executive has of its host for itself: its link, and its processors.
//!
//! An executive's analysis counts no packets and no work but its own. So one that starts claims the link and the processors for itself, and one that
//! needs any of them is refused as long as the first one lives. A claim is a file that its process holds locked: the kernel gives the lock back however the
//! process ends, and the next process that looks removes the file.
//!
//! Claims bind the executives that name the same directory. Root's default directory binds those of other users, too, that name theirs: they can read
//! it, and cannot hold a lock there that would count ([`laxity_link::sys::hold`]).
//!
//! Claims are advice among executives, not protection from other programs.

mod directory;
mod holder;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use laxity_link::sys;

use directory::{ROOTS, is_roots, lock, open, own_directory, trusted};

use holder::presentable;

pub(crate) use directory::{directory, lock_file, make_directory};
pub use holder::{Claimed, ClaimedLink, Holder, NetworkNamespace};

/// A claim of all processors is shorter.
const MOST_BYTES: u64 = 16 << 10;

/// Where hosts claim their link and processors.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ClaimDirectory {
    /// `/run/laxity` for root, else `$XDG_RUNTIME_DIR/laxity`, else `/tmp/laxity-UID`, and root's is heeded as well.
    #[default]
    Default,
    /// This directory, made if it is not there; no other user may write it. No other directory is heeded.
    At(PathBuf),
}

/// Claims cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimsError {
    /// Another user could have written them.
    #[error(
        "the claims of this host cannot be trusted: {}: {what}; remove it, name another directory with --claims, or claim nothing with --claims off",
        file.display()
    )]
    Foreign {
        /// The file or directory.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A live process holds it, and it says nothing that a claim says.
    #[error("a claim of a live process is damaged: {}: {what}; end the process that holds it, or start that one and this one with the same version of Laxity", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system said no.
    #[error(
        "the claims of this host cannot be used: {what} {}: {source}; name another directory with --claims, or claim nothing with --claims off",
        file.display()
    )]
    Io {
        /// The file.
        file: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl ClaimsError {
    fn io(file: &Path, what: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.to_owned(), what, source }
    }
}

/// Another executive has claimed what this one needs.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) holder: Holder,
    pub(crate) what: Claimed,
}

impl ClaimDirectory {
    /// The directory; made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made, or another user could change what is in it.
    pub fn directory(&self) -> Result<PathBuf, ClaimsError> {
        let user = this_user();
        match self {
            Self::Default => make_directory(user),
            Self::At(path) => {
                own_directory(path, user, 0o700, 0o022)?;
                Ok(path.clone())
            }
        }
    }

    /// The executives that have a claim at the moment: here, and where root's claims are heeded in root's directory.
    ///
    /// # Errors
    /// If claims cannot be read.
    pub fn holders(&self) -> Result<Vec<Holder>, ClaimsError> {
        let (directory, user) = (self.directory()?, this_user());
        let _lock = lock(&directory, user)?;
        self.all(&directory, user)
    }

    /// With the directory locked.
    fn all(&self, directory: &Path, user: u32) -> Result<Vec<Holder>, ClaimsError> {
        let mut holders = live(directory, user, true)?;
        if *self == Self::Default && user != 0 && is_roots(Path::new(ROOTS)) {
            holders.extend(live(Path::new(ROOTS), 0, false)?);
        }
        Ok(holders)
    }
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The claims in `directory` whose processes live. The others are removed, if that is ours to do: then it is locked. They are files of `user`.
fn live(directory: &Path, user: u32, is_ours: bool) -> Result<Vec<Holder>, ClaimsError> {
    let error = |source| ClaimsError::io(directory, "reading", source);
    let mut holders = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.extension().is_none_or(|ending| ending != "claim") {
            continue;
        }
        match read(&path, user)? {
            Some(holder) => holders.push(holder),
            None if is_ours => match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(ClaimsError::io(&path, "removing", source));
                }
                _ => {}
            },
            None => {}
        }
    }
    Ok(holders)
}

/// The claim in a file, if its process lives.
fn read(path: &Path, user: u32) -> Result<Option<Holder>, ClaimsError> {
    let error = |source| ClaimsError::io(path, "reading", source);
    let file = match open(OpenOptions::new().read(true), path) {
        // Its process has ended in the meantime.
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Root is about to claim something.
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied && user != this_user() => return Ok(None),
        file => file.map_err(error)?,
    };
    trusted(&file.metadata().map_err(error)?, path, user)?;
    if !sys::is_held(&file).map_err(error)? {
        return Ok(None);
    }
    let damaged = |what| ClaimsError::Damaged { file: path.to_owned(), what };
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(damaged(format!("it has more than {MOST_BYTES} bytes")));
    }
    Holder::parse(&bytes).map(Some).map_err(damaged)
}

/// A host that is about to claim what it needs: nothing stands in its way so far.
#[derive(Debug)]
pub(crate) struct Claiming {
    place: ClaimDirectory,
    directory: PathBuf,
    wanted: Holder,
}

impl Claiming {
    /// For a host with `address` that drives the interface `named`, if it says so, on the processors of the calling thread.
    pub(crate) fn begin(
        place: &ClaimDirectory,
        address: SocketAddr,
        named: Option<&str>,
        command: &str,
    ) -> Result<Result<Self, Conflict>, ClaimsError> {
        Self::with(
            place,
            Holder {
                pid: std::process::id(),
                command: presentable(command),
                address,
                link: ClaimedLink::of(address.ip(), named),
                network: NetworkNamespace::of_thread()?,
                processors: sys::processors(),
            },
        )
    }

    fn with(place: &ClaimDirectory, wanted: Holder) -> Result<Result<Self, Conflict>, ClaimsError> {
        let claiming = Self { place: place.clone(), directory: place.directory()?, wanted };
        let _lock = lock(&claiming.directory, this_user())?;
        Ok(claiming.check()?.map_or(Ok(claiming), Err))
    }

    /// What stands in its way; the directory is locked.
    fn check(&self) -> Result<Option<Conflict>, ClaimsError> {
        let holders = self.place.all(&self.directory, this_user())?;
        let conflict = |holder: Holder| Some(Conflict { what: holder.common(&self.wanted)?, holder });
        Ok(holders.into_iter().find_map(conflict))
    }

    /// Claims it for a host whose link is bound to `address`, unless another one was faster. `is_socket` if it is one after all, though an interface was named: it
    /// sends by all that have the address.
    pub(crate) fn finish(
        mut self,
        address: SocketAddr,
        is_socket: bool,
    ) -> Result<Result<Claim, Conflict>, ClaimsError> {
        self.wanted.address = address;
        if is_socket {
            self.wanted.link = ClaimedLink::of(address.ip(), None);
        }
        let user = this_user();
        let _lock = lock(&self.directory, user)?;
        match self.check()? {
            Some(conflict) => Ok(Err(conflict)),
            None => Ok(Ok(Claim::write(&self.directory, &self.wanted, user)?)),
        }
    }
}

/// A claim of this process. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    pid: u32,
    /// Locked.
    _file: File,
}

impl Claim {
    /// With the directory locked.
    fn write(directory: &Path, holder: &Holder, user: u32) -> Result<Self, ClaimsError> {
        let mut number = 0;
        let (path, mut file) = loop {
            number += 1;
            let path = directory.join(format!("{}-{number}.claim", holder.pid));
            match open(OpenOptions::new().write(true).create_new(true), &path) {
                Ok(file) => break (path, file),
                // This process has another one, or one in another namespace has the same number.
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(ClaimsError::io(&path, "creating", source)),
            }
        };
        let mut fill = || {
            file.write_all(holder.written()?.as_bytes())?;
            if !sys::hold(&file)? {
                return Err(io::Error::other("another process has locked it"));
            }
            // Others may read root's, now that none of them can be faster with a lock.
            if user == 0 { file.set_permissions(Permissions::from_mode(0o644)) } else { Ok(()) }
        };
        let filled = fill();
        let claim = Self { path, pid: holder.pid, _file: file };
        filled.map_err(|source| ClaimsError::io(&claim.path, "writing", source))?;
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // In a process that was forked it is the other one's.
        if self.pid == std::process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
