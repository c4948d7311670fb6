//! The contents of a claim: an executive, and what it has claimed.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use laxity_link::netlink::{Interface, Netlink};
use serde::{Deserialize, Serialize};

use super::ClaimsError;
use crate::link_rate::is_loopback;

const FORMAT: &str = "laxity-claim";
const VERSION: u32 = 1;
/// The largest length of a command or a name, in bytes.
pub(super) const MOST_TEXT: usize = 200;
/// The number of processors in the kernel's set.
const MOST_PROCESSORS: usize = 1024;

/// An executive that has claimed a link and processors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimHolder {
    /// The process id, in the process's own namespace.
    pub pid: u32,
    /// The name that the process gives itself.
    pub command: String,
    /// The address at which its peers reach it.
    pub address: SocketAddr,
    /// The link that it has claimed.
    pub link: ClaimedLink,
    /// The network namespace of that link.
    pub network: NetworkNamespace,
    /// The processors that it has claimed, in ascending order.
    pub processors: Vec<usize>,
}

/// A network namespace: the device and inode by which the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkNamespace {
    /// The device number.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

impl NetworkNamespace {
    /// The namespace of the calling thread, in which its sockets are made.
    pub(crate) fn of_thread() -> Result<Self, ClaimsError> {
        let path = Path::new("/proc/thread-self/ns/net");
        let found = fs::metadata(path).map_err(|source| ClaimsError::io(path, "looking at", source))?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}

/// The part of a network namespace that is claimed.
#[derive(Clone, Debug, PartialEq, Eq, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClaimedLink {
    /// All links: the address is not that of a single interface, such as 0.0.0.0.
    #[strum(to_string = "all links")]
    All,
    /// One interface. A VLAN claims the interface below it.
    #[strum(to_string = "link {name}")]
    Interface {
        /// Its name at the time of the claim.
        name: String,
        /// Its number.
        index: u32,
    },
}

impl ClaimedLink {
    /// The link of a host that has `address` and drives the interface `named`, if it names one.
    pub(super) fn of(address: IpAddr, named: Option<&str>) -> Self {
        let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces());
        Self::among(&interfaces.unwrap_or_default(), address.to_canonical(), named)
    }

    pub(super) fn among(interfaces: &[Interface], address: IpAddr, named: Option<&str>) -> Self {
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

/// The resources that two executives both need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimedResource {
    /// The link, as the holder has claimed it.
    Link(ClaimedLink),
    /// These processors, in ascending order.
    Processors(Vec<usize>),
}

impl ClaimedResource {
    /// A remedy beside sharing one executive.
    pub(crate) fn other_way(&self) -> &'static str {
        match self {
            Self::Link(_) => "give this one a link and processors of its own (--bind, taskset)",
            Self::Processors(_) => "give both processors of their own (taskset)",
        }
    }
}

impl fmt::Display for ClaimedResource {
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

impl ClaimHolder {
    /// Its processors as taskset writes them: `0-2,5`.
    pub fn listed_processors(&self) -> String {
        Ranges(&self.processors).to_string()
    }

    /// Returns the holder unless its contents are not valid.
    pub(super) fn checked(self) -> Result<Self, String> {
        let is_wrong = |text: &str| text.len() > MOST_TEXT || text.chars().any(char::is_control);
        if is_wrong(&self.command) || matches!(&self.link, ClaimedLink::Interface { name, .. } if is_wrong(name)) {
            return Err(format!("a text with control characters or more than {MOST_TEXT} bytes"));
        }
        if !self.processors.is_sorted_by(|one, next| one < next) || self.processors.len() > MOST_PROCESSORS {
            return Err("processors that are not in ascending order".to_owned());
        }
        Ok(self)
    }

    /// Reads the contents of a claim file.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: ClaimFile = serde_json::from_slice(bytes).map_err(|error| presentable(&error.to_string()))?;
        if written.format != FORMAT || written.version != VERSION {
            let found = presentable(&written.format);
            return Err(format!("format {found} {}, expected {FORMAT} {VERSION}", written.version));
        }
        serde_json::from_value::<Self>(written.holder).map_err(|error| presentable(&error.to_string()))?.checked()
    }

    /// The contents of a claim file.
    pub(super) fn written(&self) -> io::Result<String> {
        let holder = serde_json::to_value(self)?;
        let written = ClaimFile { format: FORMAT.to_owned(), version: VERSION, holder };
        Ok(serde_json::to_string_pretty(&written)? + "\n")
    }

    /// The resources that both need.
    pub(super) fn common(&self, other: &Self) -> Option<ClaimedResource> {
        if self.network == other.network && self.link.overlaps(&other.link) {
            return Some(ClaimedResource::Link(self.link.clone()));
        }
        let both: Vec<usize> =
            self.processors.iter().copied().filter(|processor| other.processors.contains(processor)).collect();
        (!both.is_empty()).then_some(ClaimedResource::Processors(both))
    }
}

impl fmt::Display for ClaimHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({}) at {}", self.pid, self.command, self.address)
    }
}

/// A claim as it stands in its file. The version is checked before the rest is read.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFile {
    format: String,
    version: u32,
    holder: serde_json::Value,
}

/// Shortens `found`, and removes the characters that control a terminal.
pub(super) fn presentable(found: &str) -> String {
    let mut safe: String = found.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    while safe.len() > MOST_TEXT {
        safe.pop();
    }
    safe
}
