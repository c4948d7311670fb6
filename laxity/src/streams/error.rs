//! Why there is no such stream.

use std::io;

use laxity_core::units::Duration;
use laxity_link::xdp::steer::Steering;

use super::AGGREGATE;
use crate::text::DisplayRate;

/// Why there is no such stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The share is out of range.
    #[error("streams have {}.{:04} % of the processor, expected 1 to 50 %", found / 10_000, found % 10_000)]
    Share {
        /// In parts per million.
        found: u64,
    },
    /// The executive keeps nothing for streams.
    #[error("this executive keeps nothing for streams: start it with them, as `laxity serve --streams`")]
    NotKept,
    /// Something of what was asked for cannot be.
    #[error("the stream's {field} is {found}, expected {expected}")]
    Field {
        /// What.
        field: &'static str,
        /// How it is.
        found: String,
        /// How it could be.
        expected: &'static str,
    },
    /// Another stream has the name.
    #[error("there is a stream {0} already; `laxity stream remove {0}` removes it")]
    NameInUse(String),
    /// No stream has it.
    #[error("there is no stream {0}")]
    NoSuchStream(String),
    /// A packet could be of both.
    #[error(
        "a packet could be of the stream {0}, too: say more of what the packets have in common, or remove that one"
    )]
    Overlaps(String),
    /// There is no room for more.
    #[error("an interface has {} streams at most", Steering::MOST)]
    Full,
    /// Not enough of the processor is left.
    #[error(
        "refused: not enough processor time is left for streams: {needed} in {AGGREGATE}, and {left} of {whole} is left{}",
        packets.map_or_else(String::new, |packets| format!("; {packets} packets in a period would fit"))
    )]
    Processor {
        /// What it would take.
        needed: Duration,
        /// What others leave.
        left: Duration,
        /// What all have.
        whole: Duration,
        /// How many packets would fit, if any would.
        packets: Option<u32>,
    },
    /// Not enough of the link is left.
    #[error(
        "refused: not enough of the link is left for streams: {}, and {} of {} is left", DisplayRate(*needed), DisplayRate(*left), DisplayRate(*whole)
    )]
    Link {
        /// Bytes a second.
        needed: u64,
        /// Likewise.
        left: u64,
        /// Likewise.
        whole: u64,
    },
    /// Streams are for root and the user of the executive.
    #[error("only root and the user of the executive may see and change its streams")]
    NotPermitted,
    /// The kernel refused.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl StreamError {
    /// As [`Error::exit_status`](crate::Error::exit_status).
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Share { .. } | Self::NotKept | Self::Field { .. } => 2,
            Self::NameInUse(_) | Self::NoSuchStream(_) | Self::Overlaps(_) => 2,
            Self::Full | Self::Processor { .. } | Self::Link { .. } => 3,
            Self::NotPermitted => 4,
            Self::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => 4,
            Self::System { .. } => 5,
        }
    }
}

pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> StreamError {
    move |source| StreamError::System { what, source }
}
