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

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use laxity_link::netlink::{Interface, Netlink};
use laxity_link::sys;
use serde::{Deserialize, Serialize};

use crate::link_rate::is_loopback;
use directory::{ROOTS, is_roots, lock, open, own_directory, trusted};

pub(crate) use directory::{directory, make_directory};

const FORMAT: &str = "laxity-claim";
const VERSION: u32 = 1;
/// A claim of all processors is shorter.
const MOST_BYTES: u64 = 16 << 10;
/// Bytes of a command or a name.
const MOST_TEXT: usize = 200;
/// Processors that the kernel's set has room for.
const MOST_PROCESSORS: usize = 1024;

/// Where hosts claim their link and processors.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ClaimDirectory {
    /// `/run/laxity` for root, else `$XDG_RUNTIME_DIR/laxity`, else `/tmp/laxity-UID`, and root's is heeded as well.
    #[default]
    Default,
    /// This directory, made if it is not there; nobody but its owner may write it. No other is heeded.
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

/// An executive that has claimed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// Its process, as that is numbered in its own namespace.
    pub pid: u32,
    /// What that calls itself.
    pub command: String,
    /// Where its peers reach it.
    pub address: SocketAddr,
    /// The link that it has claimed.
    pub link: ClaimedLink,
    /// Where that link is.
    pub network: NetworkNamespace,
    /// The processors that it has claimed, in ascending order.
    pub processors: Vec<usize>,
}

/// A network namespace: the device and inode by which the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkNamespace {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

impl NetworkNamespace {
    /// Of the calling thread, as its sockets are.
    fn of_thread() -> Result<Self, ClaimsError> {
        let path = Path::new("/proc/thread-self/ns/net");
        let found = fs::metadata(path).map_err(|source| ClaimsError::io(path, "looking at", source))?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}

/// What of a network namespace is claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClaimedLink {
    /// All links: the address is no single interface's, such as 0.0.0.0.
    All,
    /// One interface. A VLAN's claim is of the interface below.
    Interface {
        /// Its name when it was claimed.
        name: String,
        /// Its number.
        index: u32,
    },
}

impl ClaimedLink {
    /// The link of a host that has `address` and drives the interface `named`, if it says so.
    fn of(address: IpAddr, named: Option<&str>) -> Self {
        let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces());
        Self::among(&interfaces.unwrap_or_default(), address.to_canonical(), named)
    }

    fn among(interfaces: &[Interface], address: IpAddr, named: Option<&str>) -> Self {
        let is_meant = |interface: &&Interface| match named {
            Some(named) => interface.name == named,
            None if address.is_loopback() => is_loopback(interface),
            None => interface.addresses.iter().any(|(found, _)| *found == address),
        };
        let mut meant = interfaces.iter().filter(is_meant);
        let (Some(one), None) = (meant.next(), meant.next()) else { return Self::All };
        let below = one.vlan.and_then(|(below, _)| interfaces.iter().find(|other| below != 0 && other.index == below));
        let Interface { name, index, .. } = below.unwrap_or(one);
        Self::Interface { name: presentable(name), index: *index }
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Interface { index, .. }, Self::Interface { index: other, .. }) => index == other,
            _ => true,
        }
    }
}

impl fmt::Display for ClaimedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all links"),
            Self::Interface { name, .. } => write!(f, "link {name}"),
        }
    }
}

/// What two executives need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claimed {
    /// The link, as the holder has claimed it.
    Link(ClaimedLink),
    /// These processors, in ascending order.
    Processors(Vec<usize>),
}

impl Claimed {
    /// What helps beside sharing one executive.
    pub(crate) fn other_way(&self) -> &'static str {
        match self {
            Self::Link(_) => "give this one a link of its own (--bind)",
            Self::Processors(_) => "give both processors of their own (taskset)",
        }
    }
}

impl fmt::Display for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(link @ ClaimedLink::All) => write!(f, "{link} are"),
            Self::Link(link) => write!(f, "{link} is"),
            Self::Processors(processors) => match processors.as_slice() {
                [one] => write!(f, "processor {one} is"),
                several => write!(f, "processors {} are", Ranges(several)),
            },
        }
    }
}

/// Numbers in ascending order as taskset writes them: `0-2,5`.
struct Ranges<'a>(&'a [usize]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.chunk_by(|one, next| one + 1 == *next).enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match run {
                [one] => write!(f, "{one}")?,
                [first, .., last] => write!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl Holder {
    /// Its processors as taskset writes them: `0-2,5`.
    pub fn listed_processors(&self) -> String {
        Ranges(&self.processors).to_string()
    }

    /// The same, unless it says what no claim says.
    fn checked(self) -> Result<Self, String> {
        let names = [Some(&self.command), self.link.name()];
        if names.into_iter().flatten().any(|text| text.len() > MOST_TEXT || text.chars().any(char::is_control)) {
            return Err(format!("a text with control characters or more than {MOST_TEXT} bytes"));
        }
        if !self.processors.is_sorted_by(|one, next| one < next) || self.processors.len() > MOST_PROCESSORS {
            return Err("processors that are not in ascending order".to_owned());
        }
        Ok(self)
    }

    /// Reads what a file says.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(bytes).map_err(|error| presentable(&error.to_string()))?;
        if written.format != FORMAT || written.version != VERSION {
            let found = presentable(&written.format);
            return Err(format!("format {found} {}, expected {FORMAT} {VERSION}", written.version));
        }
        serde_json::from_value::<Self>(written.holder).map_err(|error| presentable(&error.to_string()))?.checked()
    }

    /// What both need.
    fn common(&self, other: &Self) -> Option<Claimed> {
        if self.network == other.network && self.link.overlaps(&other.link) {
            return Some(Claimed::Link(self.link.clone()));
        }
        let both: Vec<usize> =
            self.processors.iter().copied().filter(|processor| other.processors.contains(processor)).collect();
        (!both.is_empty()).then_some(Claimed::Processors(both))
    }
}

impl ClaimedLink {
    fn name(&self) -> Option<&String> {
        match self {
            Self::All => None,
            Self::Interface { name, .. } => Some(name),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({}) at {}", self.pid, self.command, self.address)
    }
}

/// A claim as it stands in its file. The version is checked before the rest is read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: String,
    version: u32,
    holder: serde_json::Value,
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

/// `found` without what a terminal obeys, and not long.
fn presentable(found: &str) -> String {
    let mut safe: String = found.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    while safe.len() > MOST_TEXT {
        safe.pop();
    }
    safe
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

    /// Claims it for a host whose link is bound to `address`, unless another one was faster.
    pub(crate) fn finish(mut self, address: SocketAddr) -> Result<Result<Claim, Conflict>, ClaimsError> {
        self.wanted.address = address;
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
        let filled = serde_json::to_value(holder).map_err(io::Error::from).and_then(|holder| {
            let written = Written { format: FORMAT.to_owned(), version: VERSION, holder };
            let mut text = serde_json::to_string_pretty(&written)?;
            text.push('\n');
            file.write_all(text.as_bytes())?;
            if !sys::hold(&file)? {
                return Err(io::Error::other("another process has locked it"));
            }
            // Others may read root's, now that none of them can be faster with a lock.
            if user == 0 { file.set_permissions(Permissions::from_mode(0o644)) } else { Ok(()) }
        });
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
