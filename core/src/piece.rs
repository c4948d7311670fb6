//! The pieces of work that a driver spends time on, enumerated once.
//!
//! A step says which piece it was, a meter times them, a calibration claims costs of them, a [`Platform`](crate::platform::Platform)
//! says what each may take, and a simulator charges that. A new piece is a line here, and in [`Piece::cost`], which
//! stands with the platform.

use strum::VariantArray;

use crate::frames::MessageBuf;

/// What a job's step did.
#[derive(Debug)]
pub struct Worked {
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
pub enum Piece {
    /// Taking a message from the application's mailbox.
    Submit,
    /// C_p^1st without taking the message: the first packet of a message.
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
    /// What a change of handler adds to a step.
    Switch,
    /// What it adds beyond that when caches are cold.
    Cache,
    /// How late a sleep ends by the timer.
    Timer,
    /// From another thread's waking the executive until it runs.
    Wake,
    /// From `send()` until the executive has the message.
    Handover,
    /// How far apart packets of one size leave, one after the other, at the least.
    Occupancy,
}

impl Piece {
    /// Each of them, in the order of a message's path.
    pub const ALL: [Self; Self::VARIANTS.len()] = *Self::VARIANTS.first_chunk().unwrap();

    /// As all files and output have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether a driver times it as it happens; the others are told by comparing what was timed.
    pub const fn is_timed(self) -> bool {
        !matches!(self, Self::Switch | Self::Cache | Self::Occupancy)
    }

    /// Whether it takes the executive's processor time: what it takes beyond its cost is stolen then. A hand-over waits
    /// for work that is charged elsewhere.
    pub const fn is_work(self) -> bool {
        self.is_timed() && !matches!(self, Self::Handover | Self::Wake)
    }

    /// Whether it is charged as part of a look at the inputs. Messages are taken from their mailboxes whatever their deadlines
    /// are, so it is not enough that admission charges each for its own; a look it charges at every preemption point.
    pub const fn is_part_of_look(self) -> bool {
        matches!(self, Self::Submit | Self::Demultiplex | Self::Round)
    }
}
