//! Formats on the wire, all big endian: what the bytes are, never what follows from them.
//!
//! Every frame starts with the same four bytes; [`classify`] reads them. A data frame carries one packet of one message
//! behind a fixed header ([`DataHeader`], [`DataView`]). A control frame carries tagged fields ([`Control`], the table in
//! [`fields`]), so that a later minor version can add some. docs/wire.md has the same tables for other implementations.
//!
//! | offset | bytes | field | range |
//! |---|---|---|---|
//! | 0 | 2 | magic | 0x4C58, "LX" |
//! | 2 | 1 | major | 3 |
//! | 3 | 1 | kind | 1 data, 2 control, 3 data with a tag |
//!
//! **What arrives is an allegation.** Parsing checks each range named here and in the tables; it never panics, never
//! allocates, and its work is bounded by the length of the frame, of which it reads at most [`MAX_CONTROL_BYTES`] for
//! control and the header for data. Checks that only the endpoint can make are left to it: whether channel and key match a slot,
//! whether a contract is possible ([`Open::traffic`]), whether a fragment fits its channel ([`DataHeader::check`]). The key
//! tells a stale sender from a current one; it is no cryptography.
//!
//! **Versions.** Another major version is [`WireError::Version`], and the answer to it is [`Control::Version`]. Three
//! things are the same in every major version: the prefix, the 16 bytes of the control header, and the VERSION frame,
//! which is read whatever major its prefix names. So `WireError::Version` never comes from a VERSION frame, and two hosts
//! cannot answer each other for ever. Another minor version is read; fields that this one does not know are skipped.
//!
//! **Writing** refuses what parsing would refuse: every frame that was written can be parsed.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "a frame can hold any number"))]

mod control;
mod data;
mod error;
pub mod fields;
mod messages;
#[cfg(test)]
mod tests;

pub use control::{
    CODE_BYTES, CONTROL_HEADER_BYTES, Control, ControlType, MAX_CONTROL_BYTES, SEAL_BYTES, seal, sealed, token,
};
pub(crate) use data::of_stolen_units;
pub use data::{
    DATA_HEADER_BYTES, DataHeader, DataView, EPOCHS, add_waited, fragment_bytes, micros_saturating, stolen_units,
    write_epoch, write_evidence, write_receiver, write_tag,
};
pub use error::WireError;
pub use messages::{
    Accept, Close, Keepalive, MessageCounts, Open, ROUTE_LOST, Refuse, RequestedService, SenderPace, ServiceKind,
    Status, Versions, check_name,
};

use crate::limits::OutOfRange;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "LX", the first two bytes of every frame.
pub const MAGIC: u16 = 0x4C58;
/// The major version that this code speaks; frames of another cannot be read, except VERSION.
pub const MAJOR: u8 = 3;
/// The minor version that this code writes; it reads all of them.
pub const MINOR: u8 = 0;
/// The offset of the kind in every frame.
const KIND_AT: usize = 3;
/// Bytes of the prefix of every frame.
pub const PREFIX_BYTES: usize = 4;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr)]
#[repr(u8)]
pub enum FrameKind {
    /// One packet of a message: [`DataView::parse`].
    Data = 1,
    /// Signalling of two endpoints about a channel: [`Control::parse`].
    Control = 2,
    /// As [`FrameKind::Data`], and [`TAG_BYTES`](crate::limits::TAG_BYTES) behind the payload that authenticate all before them.
    Tagged = 3,
}

/// The first four bytes, as they lie in the frame.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Prefix {
    magic: U16,
    major: u8,
    kind: u8,
}

impl Prefix {
    fn new(kind: FrameKind) -> Self {
        Self { magic: U16::new(MAGIC), major: MAJOR, kind: kind as u8 }
    }
}

const _: () = assert!(size_of::<Prefix>() == PREFIX_BYTES);

/// The kind of this frame, from its first five bytes. The rest is not looked at.
///
/// # Errors
/// Too short, no Laxity frame, a major version other than [`MAJOR`] (unless it is a VERSION frame), an unknown kind.
pub fn classify(frame: &[u8]) -> Result<FrameKind, WireError> {
    let (prefix, rest) = Prefix::ref_from_prefix(frame)
        .map_err(|_| WireError::Truncated { found: frame.len(), expected: PREFIX_BYTES })?;
    if prefix.magic.get() != MAGIC {
        return Err(WireError::Magic(prefix.magic.get()));
    }
    let version_frame = prefix.kind == FrameKind::Control as u8 && rest.first() == Some(&(ControlType::Version as u8));
    if prefix.major != MAJOR && !version_frame {
        return Err(WireError::Version(prefix.major));
    }
    let unknown = WireError::Kind { found: prefix.kind, expected: "1 or 3 (data) or 2 (control)" };
    FrameKind::from_repr(prefix.kind).ok_or(unknown)
}

/// One range check for reading and writing alike.
fn check_range(field: &'static str, found: u64, least: u64, most: u64) -> Result<(), WireError> {
    OutOfRange::check(field, found, least, most).map_err(WireError::Range)
}
