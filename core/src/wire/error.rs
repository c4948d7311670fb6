//! The errors of frames.

use crate::limits::OutOfRange;

/// The reason why bytes are no frame, or why values make none, with the value that was found and the one that was expected.
///
/// From parsing it is the peer's fault (or no fault: a foreign frame on the same port); from writing it is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The frame, or a field in it, ends too early.
    #[error("{found} bytes, expected at least {expected}")]
    Truncated {
        /// Bytes that are there.
        found: usize,
        /// Bytes that it takes at least.
        expected: usize,
    },
    /// The frame is longer or shorter than its header says.
    #[error("the frame has {found} bytes, its header says {expected}")]
    Length {
        /// Bytes of the frame.
        found: usize,
        /// Bytes that the header declares.
        expected: usize,
    },
    /// A control frame longer than any may be.
    #[error("the control frame has {found} bytes, at most {most} are possible")]
    TooLong {
        /// Bytes of the frame.
        found: usize,
        /// [`MAX_CONTROL_BYTES`](super::MAX_CONTROL_BYTES).
        most: usize,
    },
    /// Not a Laxity frame, but one with these first two bytes.
    #[error("magic {0:#06x}, expected 0x4c58")]
    Magic(u16),
    /// A frame of another major version, the peer's; a VERSION frame is the answer.
    #[error("major version {0}, expected {expected}", expected = super::MAJOR)]
    Version(u8),
    /// A kind of frame that does not exist, or not the one that this parser reads.
    #[error("kind {found}, expected {expected}")]
    Kind {
        /// The kind in the frame.
        found: u8,
        /// Those that would do.
        expected: &'static str,
    },
    /// A control frame of an unknown type; a later minor version may have more. It is to be ignored.
    #[error("control type {0}, expected 1 to {most}", most = super::ControlType::ALL.len())]
    Type(u8),
    /// A field whose value has another length than its tag demands.
    #[error("{field} has {found} bytes, expected {least} to {most}")]
    FieldLength {
        /// The field's name.
        field: &'static str,
        /// Bytes of its value.
        found: usize,
        /// The least that is possible.
        least: u8,
        /// The most that is possible.
        most: u8,
    },
    /// The field of this name stands twice in one frame.
    #[error("{0} is repeated, expected once")]
    Repeated(&'static str),
    /// The mandatory field of this name is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value outside its range.
    #[error(transparent)]
    Range(OutOfRange),
    /// A channel's name with a byte that no name may have.
    #[error("name has byte {found:#04x} at {at}, expected printable ASCII without '/' and space")]
    Name {
        /// The byte.
        found: u8,
        /// Its position in the name, from 0.
        at: usize,
    },
    /// Text that is not UTF-8.
    #[error("{field} is UTF-8 only up to byte {at}")]
    Text {
        /// The field's name.
        field: &'static str,
        /// The offset at which it stops being UTF-8.
        at: usize,
    },
    /// The buffer to write into is too small.
    #[error("room for {found} bytes, expected at least {expected}")]
    Room {
        /// Bytes of the buffer.
        found: usize,
        /// Bytes that it takes at least.
        expected: usize,
    },
}
