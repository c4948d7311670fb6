//! The attacks that live experiments offer. Each ends by itself, even if this process is killed, and goes where it may go only:
//! to loopback, and into a lab.
//!
//! | Module | What it is |
//! |---|---|
//! | [`hogs`] | processes that take the processor |
//! | [`flood`] | datagrams that belong to no channel |
//! | [`violator`] | the marks of a channel, for frames in its name |
//! | [`load`] | how much, how long, and where to |

pub mod flood;
pub mod hogs;
pub mod load;
pub mod violator;

pub use flood::{Content, unknown_peers};
pub use hogs::{HOGS, Hogs};
pub use load::{Load, LoadTargets, OfferedLoad};

use crate::error::Error;

/// By how much flood and violator exceed what they should: ten times.
pub const EXCESS: u64 = 10;

/// The attack beside the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case", parse_err_fn = Attack::unknown, parse_err_ty = Error)]
pub enum Attack {
    /// Nothing: best effort offers half of what is left of the link.
    Idle,
    /// Best effort, or an unknown peer, offers ten times what is left of the link.
    Flood,
    /// The application of channel 0 sends ten times what it declared.
    Violator,
    /// Four processor-bound processes of normal priority.
    Hogs,
    /// All of them at once.
    All,
}

impl Attack {
    /// Each of them, in the order of the reports.
    pub const EACH: [Self; 5] = [Self::Idle, Self::Flood, Self::Violator, Self::Hogs, Self::All];

    /// True if there is a flood.
    pub fn floods(self) -> bool {
        matches!(self, Self::Flood | Self::All)
    }
    /// True if channel 0 breaks its contract.
    pub fn violates(self) -> bool {
        matches!(self, Self::Violator | Self::All)
    }
    /// True if there are hogs.
    pub fn hogs(self) -> bool {
        matches!(self, Self::Hogs | Self::All)
    }

    fn unknown(found: &str) -> Error {
        Error::setup("attack", found, "idle, flood, violator, hogs or all")
    }
}

/// Which way a flood takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case", parse_err_fn = FloodPath::unknown, parse_err_ty = Error)]
pub enum FloodPath {
    /// There is no flood.
    None,
    /// Through the stack, as its best effort.
    Through,
    /// From an unknown peer that shares the bottleneck and was not admitted.
    Foreign,
}

impl FloodPath {
    fn unknown(found: &str) -> Error {
        Error::setup("flood", found, "none, through or foreign")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for attack in Attack::EACH {
            assert_eq!(attack.to_string().parse::<Attack>().unwrap(), attack);
        }
        for path in [FloodPath::None, FloodPath::Through, FloodPath::Foreign] {
            assert_eq!(path.to_string().parse::<FloodPath>().unwrap(), path);
        }
        let error = "fire".parse::<Attack>().unwrap_err();
        assert_eq!(error.to_string(), "attack is fire, expected idle, flood, violator, hogs or all");
    }
}
