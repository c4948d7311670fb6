//! Whose fault it was that a message was late, lost or dropped.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Whose fault a miss is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The sender broke its contract.
    Sender,
    /// The receiving application did not read its messages, so that its queue was full.
    Receiver,
    /// Packets were lost on the way, or took longer than the way was said to take.
    Network,
    /// The platform took more processor time away than it was said to, and the lateness is at most that with the queueing
    /// that follows from it.
    Platform,
    /// None of these: a bug of ours.
    Laxity,
    /// It cannot be told: the witness is missing that could.
    Unexplained,
}

impl Cause {
    /// True if a promise counts as broken by it.
    pub fn breaks_promise(self) -> bool {
        matches!(self, Self::Laxity | Self::Unexplained)
    }
}

/// Late, lost and dropped messages by whose fault it was. Words of 64 bits, so that they can be published one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct Misses {
    /// The sender broke its contract.
    pub sender: u64,
    /// The receiving application did not read.
    pub receiver: u64,
    /// Packets were lost on the way, or took too long.
    pub network: u64,
    /// The platform took more processor time than its envelope.
    pub platform: u64,
    /// None of these: a bug.
    pub laxity: u64,
    /// It cannot be told: the witness is missing that could.
    pub unexplained: u64,
}

impl Misses {
    /// Of any cause.
    pub fn all(&self) -> u64 {
        let Self { sender, receiver, network, platform, laxity, unexplained } = self;
        sender + receiver + network + platform + laxity + unexplained
    }

    /// Those of a cause.
    pub fn of(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Sender => &mut self.sender,
            Cause::Receiver => &mut self.receiver,
            Cause::Network => &mut self.network,
            Cause::Platform => &mut self.platform,
            Cause::Laxity => &mut self.laxity,
            Cause::Unexplained => &mut self.unexplained,
        }
    }
}
