//! The reasons why a stream cannot be added or found.

use std::io;

use laxity_core::units::Duration;
use laxity_link::xdp::steer::InterfaceStreams;

use super::AGGREGATE;
use crate::text::DisplayRate;

/// The reason why a stream cannot be added or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The share is out of range.
    #[error("streams have {}.{:04} % of the processor, expected 1 to 50 %", found / 10_000, found % 10_000)]
    Share {
        /// The share in parts per million; the range is 10,000 to 500,000.
        found: u64,
    },
    /// The executive reserves nothing for streams.
    #[error("this executive keeps nothing for streams: start it with them, as `laxity serve --streams`")]
    NotKept,
    /// A part of the request is not valid.
    #[error("the stream's {field} is {found}, expected {expected}")]
    Field {
        /// The part.
        field: &'static str,
        /// Its value.
        found: String,
        /// The valid values.
        expected: &'static str,
    },
    /// Another stream has the name.
    #[error("there is a stream {0} already; `laxity stream remove {0}` removes it")]
    NameInUse(String),
    /// No stream has the name.
    #[error("there is no stream {0}")]
    NoSuchStream(String),
    /// A packet could belong to two streams.
    #[error(
        "a packet could be of the stream {0}, too: say more of what the packets have in common, or remove that one"
    )]
    Overlaps(String),
    /// All places for streams are taken.
    #[error("an interface has {} streams at most", InterfaceStreams::MOST)]
    Full,
    /// Too little of the processor is left.
    #[error(
        "refused: {}not enough processor time is left for streams: {needed} in {AGGREGATE}, and {left} of {whole} is left",
        packets.map_or_else(|| "a longer period or a larger share (laxity serve --streams) may fit; ".to_owned(), |packets| format!("{packets} packets in a period would fit; "))
    )]
    Processor {
        /// The time that the stream needs.
        needed: Duration,
        /// The time that others leave.
        left: Duration,
        /// The time of all streams.
        whole: Duration,
        /// The number of packets that would fit, if any would.
        packets: Option<u32>,
    },
    /// Too little of the link is left.
    #[error(
        "refused: fewer packets, a longer period or a larger share (laxity serve --streams) may fit; not enough of the link is left for streams: {}, and {} of {} is left", DisplayRate(*needed), DisplayRate(*left), DisplayRate(*whole)
    )]
    Link {
        /// The rate that the stream needs, in bytes a second.
        needed: u64,
        /// The rate that others leave, in bytes a second.
        left: u64,
        /// The rate of all streams, in bytes a second.
        whole: u64,
    },
    /// Streams are for root and the user of the executive.
    #[error("only root and the user of the executive may see and change its streams")]
    NotPermitted,
    /// The kernel refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
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
