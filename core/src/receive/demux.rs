//! Demultiplexing: whose frame is this? Decided before any protocol work, so that what is not ours, or beyond a contract,
//! costs next to nothing [rio §2.1, channels §3.1].

use crate::wire::{DataView, Kind, WireError, classify};

/// A frame that belongs to no open channel here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Not a frame of ours, or a damaged one.
    Malformed(WireError),
    /// Ours, but of another major version.
    Version(u8),
}

/// What a frame is.
#[derive(Debug)]
pub enum Route<'a> {
    /// A packet for the channel at this place, if the key matches.
    Data(DataView<'a>),
    /// A control frame.
    Control,
}

/// Reads the prefix and, for a packet, the header. Costs a few dozen instructions, whatever the frame holds.
///
/// # Errors
/// What the frame is instead.
pub fn route(frame: &[u8]) -> Result<Route<'_>, Foreign> {
    match classify(frame) {
        Ok(Kind::Data | Kind::Tagged) => DataView::parse(frame).map(Route::Data).map_err(Foreign::Malformed),
        Ok(Kind::Control) => Ok(Route::Control),
        Err(WireError::Version { found }) => Err(Foreign::Version(found)),
        Err(error) => Err(Foreign::Malformed(error)),
    }
}
