//! The pieces of work that a driver spends time on, enumerated once.
//!
//! A step says which piece it was, a meter times pieces, a calibration claims their costs, a [`Platform`](crate::platform::Platform) states
//! the most that each takes, and a simulator charges that. A new piece is a line here, and one in [`Piece::cost`], which stands with the
//! platform.

use strum::VariantArray;

use crate::frames::MessageBuf;

/// The work of a job's step.
pub struct StepResult {
    /// Which piece of work it was.
    pub piece: Piece,
    /// Payload bytes that were moved.
    pub bytes: u32,
    /// True if a message of the contract's size would be at its end: a preemption point.
    pub part_end: bool,
    /// The buffer of a message that was processed completely.
    pub spent: Option<MessageBuf>,
}

/// A piece of work, or another span of time that a bound is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Piece {
    /// Taking a message from the application's mailbox.
    Submit,
    /// C_p^1st without the time of `Submit`: the first packet of a message.
    First,
    /// C_p: every other packet.
    Next,
    /// C_r: a received packet that does not complete its message.
    Reassemble,
    /// C_r^1st: a received packet that completes its message, and waking the application.
    Deliver,
    /// C_l: handing one packet to the link, system call included.
    Link,
    /// C_d: demultiplexing one received frame, its part of the system call included.
    Demultiplex,
    /// A look at the inputs that finds nothing, and the bookkeeping of a round.
    Round,
    /// The time that a change of handler adds to a step.
    Switch,
    /// The additional time of a change of handler when caches are cold.
    Cache,
    /// The lateness of a sleep that ends by the timer.
    Timer,
    /// The time from another thread's waking the executive until it runs.
    Wake,
    /// The time from `send()` until the executive has the message.
    Handover,
    /// The least time between packets of one size that leave one after the other.
    Occupancy,
}

impl Piece {
    /// All pieces, in the order of a message's path.
    pub const ALL: [Self; Self::VARIANTS.len()] = *Self::VARIANTS.first_chunk().unwrap();

    /// The name in all files and in output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True if a driver times it as it happens; the others follow from comparing timed pieces.
    pub const fn is_timed(self) -> bool {
        !matches!(self, Self::Switch | Self::Cache | Self::Occupancy)
    }

    /// True if it takes the executive's processor time: time beyond its cost is stolen then. A hand-over waits
    /// for work that is charged elsewhere.
    pub const fn is_work(self) -> bool {
        self.is_timed() && !matches!(self, Self::Handover | Self::Wake)
    }

    /// True if it is charged as part of a look at the inputs. Messages are taken from their mailboxes whatever their deadlines
    /// are, so it is not enough that admission charges each one to its own channel; a look is charged at every preemption point.
    pub const fn is_part_of_look(self) -> bool {
        matches!(self, Self::Submit | Self::Demultiplex | Self::Round)
    }
}
