//! Demultiplexing: finds the channel of a frame before any protocol work, so that frames that are not ours, or beyond a contract, cost next
//! to nothing [rio §2.1, channels §3.1].

use crate::wire::{DataView, FrameKind, WireError, classify};

/// A frame that belongs to no open channel here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFrame {
    /// Not a frame of ours, or a damaged one.
    Malformed(WireError),
    /// Ours, but of another major version.
    Version(u8),
}

/// The kind of a frame.
#[derive(Debug)]
pub enum FrameTarget<'a> {
    /// A packet for the channel at this place, if the key matches.
    Data(DataView<'a>),
    /// A control frame.
    Control,
}

/// Reads the prefix and, for a packet, the header. Costs a few dozen instructions, whatever the frame holds.
///
/// # Errors
/// The kind of foreign frame that it is.
pub fn route(frame: &[u8]) -> Result<FrameTarget<'_>, ForeignFrame> {
    match classify(frame) {
        Ok(FrameKind::Data | FrameKind::Tagged) => {
            DataView::parse(frame).map(FrameTarget::Data).map_err(ForeignFrame::Malformed)
        }
        Ok(FrameKind::Control) => Ok(FrameTarget::Control),
        Err(WireError::Version(found)) => Err(ForeignFrame::Version(found)),
        Err(error) => Err(ForeignFrame::Malformed(error)),
    }
}
