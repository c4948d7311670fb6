//! The causes for which a message is late, lost or dropped.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The cause of a miss: a message that is late, lost or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The sender broke its contract.
    Sender,
    /// The receiving application did not read its messages, so that its queue was full.
    Receiver,
    /// Packets were lost in transit, or took longer than the platform's figures of the network path allow.
    Network,
    /// The platform (interrupts, the kernel, a hypervisor) took more processor time away than the bounds count on. The lateness is at most
    /// that time, with the queueing that follows from it.
    Platform,
    /// None of these: a bug of Laxity.
    Laxity,
    /// Unknown: the witness that could tell, a counter of the kernel or the hypervisor, is missing on this host.
    Unexplained,
}

impl Cause {
    /// True if a miss with this cause counts as a broken promise: [`Cause::Laxity`] and [`Cause::Unexplained`].
    pub fn breaks_promise(self) -> bool {
        matches!(self, Self::Laxity | Self::Unexplained)
    }
}

/// The numbers of late, lost and dropped messages by cause. Words of 64 bits, so that they can be published one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct Misses {
    /// The sender broke its contract.
    pub sender: u64,
    /// The receiving application did not read its messages.
    pub receiver: u64,
    /// Packets were lost in transit, or took too long.
    pub network: u64,
    /// The platform took more processor time away than the bounds count on.
    pub platform: u64,
    /// None of these: a bug.
    pub laxity: u64,
    /// Unknown: the witness that could tell is missing.
    pub unexplained: u64,
}

impl Misses {
    /// The sum over all causes.
    pub fn all(&self) -> u64 {
        let Self { sender, receiver, network, platform, laxity, unexplained } = self;
        sender + receiver + network + platform + laxity + unexplained
    }

    /// The counter of a cause.
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
