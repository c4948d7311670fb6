//! Early demultiplexing [rio §2.1]: what may arrive for a channel, in the few numbers that a program in the driver can judge by.

use core::net::SocketAddr;

use crate::units::Duration;

/// In which order the frames of a host are looked at, and which share memory: a flood of one class costs the others no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArrivalClass {
    /// Packets of real-time channels.
    RealTime,
    /// Control frames.
    Control,
    /// Packets of best-effort channels.
    BestEffort,
}

/// What may arrive for one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Who sends it.
    pub peer: SocketAddr,
    /// The key that its packets carry.
    pub key: u32,
    /// Real-time or best effort.
    pub class: ArrivalClass,
    /// S: the packet payload that was agreed on, bytes.
    pub packet: u32,
    /// The largest message that may come, bytes.
    pub max_message: u32,
    /// How often a packet may come in the long run; zero is not policed.
    pub spacing: Duration,
    /// How much too early it may come.
    pub tolerance: Duration,
}
