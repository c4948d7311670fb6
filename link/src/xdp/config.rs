//! How to make the fast path, and what was got.

use std::net::SocketAddr;

use laxity_core::units::Duration;

use super::program::EarlyFigures;

pub use super::mode::Mode;

/// The executive's own thread drives the interface's queue when it looks, instead of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// For how long one look drives it at most.
    pub span: Duration,
    /// How many frames one look takes at most, 1 to 64.
    pub frames: u32,
}

/// How to make an [`Xdp`](super::Xdp) link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The local address; port 0 takes any. A wildcard needs the interface's name.
    pub bind: SocketAddr,
    /// The interface; `None` takes the one that has the address.
    pub interface: Option<String>,
    /// Tag what is sent with this VLAN, 1 to 4094, and take only what is tagged so; `None` takes that of the interface, if it is a
    /// VLAN's. For a host whose kernel has no interface for the VLAN: neighbours and whatever takes the kernel's way stay untagged.
    pub vlan: Option<u16>,
    /// Where the program is to run.
    pub mode: Mode,
    /// Frames that can be staged: 1 to [`MAX_BATCH`](crate::udp::MAX_BATCH).
    pub batch: usize,
    /// Frames of the region for whoever drives the link, beside those that the kernel has.
    pub frames: usize,
    /// Bytes of the largest packet: at most 3,774, and what the interface carries.
    pub packet: usize,
    /// Frames that may wait on each receive queue, rounded up to powers of two: of real-time channels, control frames, and best
    /// effort.
    pub waiting: [u32; 3],
    /// Peers with a channel, at most.
    pub peers: usize,
    /// How long a receive queue is waited for that somebody else has just given up.
    pub patience: Duration,
    /// Whether to drive the queue from the executive's thread.
    pub busy_poll: Option<BusyPoll>,
    /// Bytes to ask for the socket's buffers, see [`UdpConfig`](crate::udp::UdpConfig).
    pub buffer_bytes: Option<usize>,
}

impl XdpConfig {
    /// 512 frames of real-time channels, 512 of control and 256 of best effort on each queue; packets of up to 1,472 bytes, as many as an
    /// MTU of 1,500 carries over IPv4 (ask for 1,452 over IPv6); a queue is waited for for three seconds.
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            interface: None,
            vlan: None,
            mode: Mode::Any,
            batch: 64,
            frames: 1024,
            packet: 1472,
            waiting: [512, 512, 256],
            peers: 256,
            patience: Duration::from_secs(3),
            busy_poll: None,
            buffer_bytes: Some(crate::udp::UdpConfig::DEFAULT_BUFFER_BYTES),
        }
    }
}

/// What was got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The interface that is driven: the one below, if the address is a VLAN's.
    pub interface: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// The VLAN that packets are tagged with.
    pub vlan: Option<u16>,
    /// Native or generic.
    pub mode: Mode,
    /// Whether the device itself reads and writes the frames; else the kernel copies them.
    pub zero_copy: bool,
    /// Receive queues.
    pub queues: u32,
    /// What it took here to find that a frame is of no channel, and to drop it; measured, in the kernel.
    pub drop_cost: Duration,
    /// What is not as it should be, and what to do about it; one a line.
    pub notes: Vec<String>,
}

impl EarlyFigures {
    /// Frames that ended there.
    pub fn dropped(&self) -> u64 {
        self.malformed + self.unknown + self.too_large + self.over_rate + self.over_control
    }
}
