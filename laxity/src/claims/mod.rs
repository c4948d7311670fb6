//! Claims of executives on their host: the link and the processors that each has for itself.
//!
//! An executive's analysis counts no packets and no work but its own. So an executive that starts claims its link and its
//! processors, and another one that needs any of them is refused as long as the first one lives. A claim is a file that its
//! process holds locked. The kernel releases the lock however the process ends, and the next process that looks removes the file.
//!
//! Claims bind the executives that use the same directory. Root's default directory also binds executives of other users that use
//! theirs: they can read it, and cannot hold a lock there that would count ([`laxity_link::sys::hold`]).
//!
//! Claims are advice among executives, not protection from other programs.

mod directory;
mod holder;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use laxity_link::sys;

use directory::{ROOTS, is_roots, lock, own_directory, trusted};

use holder::presentable;

pub(crate) use directory::{OwnFile, directory, lock_file, make_directory, mistrusted, open, removed};
pub use holder::{ClaimHolder, ClaimedLink, ClaimedResource, NetworkNamespace};

/// A limit that the claim of all processors does not reach.
const MOST_BYTES: u64 = 16 << 10;

/// The directory in which hosts claim their link and processors ([`AdvancedConfig::claims`](crate::AdvancedConfig::claims)).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ClaimDirectory {
    /// `/run/laxity` for root, else `$XDG_RUNTIME_DIR/laxity`, else `/tmp/laxity-UID`. Claims in root's directory are respected,
    /// too.
    #[default]
    Default,
    /// This directory, which is made if it does not exist. No other user may be able to write it. Claims in other directories are
    /// not respected.
    At(PathBuf),
}

/// The reason why claims cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimsError {
    /// Another user could have written the claims.
    #[error(
        "the claims of this host cannot be trusted: {}: {what}; remove it, name another directory with --claims, or claim nothing with --claims off",
        file.display()
    )]
    Foreign {
        /// The file or directory.
        file: PathBuf,
        /// The problem with it.
        what: String,
    },
    /// The claim of a live process is not valid.
    #[error("a claim of a live process is damaged: {}: {what}; end the process that holds it, or start that one and this one with the same version of Laxity", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        what: String,
    },
    /// The system refused an operation.
    #[error(
        "the claims of this host cannot be used: {what} {}: {source}; name another directory with --claims, or claim nothing with --claims off",
        file.display()
    )]
    Io {
        /// The file.
        file: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ClaimsError {
    fn io(file: &Path, what: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.to_owned(), what, source }
    }
}

/// A conflict: another executive has claimed what this one needs.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) holder: ClaimHolder,
    pub(crate) what: ClaimedResource,
}

impl ClaimDirectory {
    /// The path of the directory, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made, or another user could change its contents.
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

    /// Lists the executives that have a claim now: in this directory, and in root's where root's claims are respected.
    ///
    /// # Errors
    /// If claims cannot be read.
    pub fn holders(&self) -> Result<Vec<ClaimHolder>, ClaimsError> {
        let (directory, user) = (self.directory()?, this_user());
        let _lock = lock(&directory, user)?;
        self.all(&directory, user)
    }

    /// With the directory locked.
    fn all(&self, directory: &Path, user: u32) -> Result<Vec<ClaimHolder>, ClaimsError> {
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

/// The claims in `directory` whose processes live, as files of `user`. If the directory belongs to this process's user, it is
/// locked, and the other claims are removed.
fn live(directory: &Path, user: u32, is_ours: bool) -> Result<Vec<ClaimHolder>, ClaimsError> {
    let error = |source| ClaimsError::io(directory, "reading", source);
    let mut holders = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.extension().is_none_or(|ending| ending != "claim") {
            continue;
        }
        match read(&path, user)? {
            Some(holder) => holders.push(holder),
            None if is_ours => removed(&path).map_err(|source| ClaimsError::io(&path, "removing", source))?,
            None => {}
        }
    }
    Ok(holders)
}

/// The claim in a file, if its process lives.
fn read(path: &Path, user: u32) -> Result<Option<ClaimHolder>, ClaimsError> {
    let error = |source| ClaimsError::io(path, "reading", source);
    let file = match open(OpenOptions::new().read(true), path, 0o600) {
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
    ClaimHolder::parse(&bytes).map(Some).map_err(damaged)
}

/// A host that is about to claim what it needs: no conflict so far.
pub(crate) struct ClaimAttempt {
    place: ClaimDirectory,
    directory: PathBuf,
    wanted: ClaimHolder,
}

impl ClaimAttempt {
    /// For a host with `address` that drives the interface `named`, if it names one, on the processors of the calling thread.
    pub(crate) fn begin(
        place: &ClaimDirectory,
        address: SocketAddr,
        named: Option<&str>,
        command: &str,
    ) -> Result<Result<Self, Conflict>, ClaimsError> {
        Self::with(
            place,
            ClaimHolder {
                pid: std::process::id(),
                command: presentable(command),
                address,
                link: ClaimedLink::of(address.ip(), named),
                network: NetworkNamespace::of_thread()?,
                processors: sys::processors(),
            },
        )
    }

    fn with(place: &ClaimDirectory, wanted: ClaimHolder) -> Result<Result<Self, Conflict>, ClaimsError> {
        let claiming = Self { place: place.clone(), directory: place.directory()?, wanted };
        let _lock = lock(&claiming.directory, this_user())?;
        Ok(claiming.check()?.map_or(Ok(claiming), Err))
    }

    /// The claim that is in conflict; the directory is locked.
    fn check(&self) -> Result<Option<Conflict>, ClaimsError> {
        let holders = self.place.all(&self.directory, this_user())?;
        let conflict = |holder: ClaimHolder| Some(Conflict { what: holder.common(&self.wanted)?, holder });
        Ok(holders.into_iter().find_map(conflict))
    }

    /// Claims the resources for a host whose link is bound to `address`, unless another executive was faster. `is_socket` is true
    /// if the link is a socket although an interface was named: it sends by all interfaces that have the address.
    pub(crate) fn finish(
        mut self,
        address: SocketAddr,
        is_socket: bool,
    ) -> Result<Result<OwnFile, Conflict>, ClaimsError> {
        self.wanted.address = address;
        if is_socket {
            self.wanted.link = ClaimedLink::of(address.ip(), None);
        }
        let user = this_user();
        let _lock = lock(&self.directory, user)?;
        match self.check()? {
            Some(conflict) => Ok(Err(conflict)),
            None => Ok(Ok(write(&self.directory, &self.wanted, user)?)),
        }
    }
}

/// Writes a claim, with the directory locked; it ends when it is dropped.
fn write(directory: &Path, holder: &ClaimHolder, user: u32) -> Result<OwnFile, ClaimsError> {
    let mut number = 0;
    let (path, mut file) = loop {
        number += 1;
        let path = directory.join(format!("{}-{number}.claim", holder.pid));
        match open(OpenOptions::new().write(true).create_new(true), &path, 0o600) {
            Ok(file) => break (path, file),
            // This process has another claim, or a process in another namespace has the same number.
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(ClaimsError::io(&path, "creating", source)),
        }
    };
    let mut fill = || {
        file.write_all(holder.written()?.as_bytes())?;
        if !sys::hold(&file)? {
            return Err(io::Error::other("another process has locked it"));
        }
        // Others may read root's claim, now that none of them can lock it first.
        if user == 0 { file.set_permissions(Permissions::from_mode(0o644)) } else { Ok(()) }
    };
    let filled = fill().map_err(|source| ClaimsError::io(&path, "writing", source));
    let claim = OwnFile::new(path, file);
    filled.map(|()| claim)
}

#[cfg(test)]
mod tests;
