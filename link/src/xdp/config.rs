//! The parameters of the fast path, and the result of opening it.

use std::net::SocketAddr;

use laxity_core::units::Duration;

use super::program::{EarlyDrops, Mode};

/// The executive's own thread drives the interface's queue when it looks, instead of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// The longest time for which one look drives it.
    pub span: Duration,
    /// The largest number of frames that one look takes, 1 to 64.
    pub frames: u32,
}

/// The parameters of an [`Xdp`](super::Xdp) link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The local address; port 0 takes any. A wildcard needs the interface's name.
    pub bind: SocketAddr,
    /// The interface; `None` takes the one that has the address.
    pub interface: Option<String>,
    /// The VLAN, 1 to 4094, with which packets are tagged; only packets with this tag are received. `None` takes that of the interface, if it is a
    /// VLAN's. For a host whose kernel has no interface for the VLAN: neighbours and all that takes the kernel's path stay untagged.
    pub vlan: Option<u16>,
    /// The place in the kernel where the program is to run.
    pub mode: Mode,
    /// Frames that can be buffered: 1 to [`MAX_BATCH`](crate::udp::MAX_BATCH).
    pub batch: usize,
    /// Frames of the region for the driver of the link, beside those that the kernel has.
    pub frames: usize,
    /// Bytes of the largest packet: at most 3,774, and what the interface carries.
    pub packet: usize,
    /// Frames that may wait on each receive queue, rounded up to powers of two: of real-time channels, control frames, and best
    /// effort.
    pub waiting: [u32; 3],
    /// Peers with a channel, at most.
    pub peers: usize,
    /// The longest wait for a receive queue that another program has just given up.
    pub patience: Duration,
    /// Set to drive the queue from the executive's thread.
    pub busy_poll: Option<BusyPoll>,
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
        }
    }
}

/// The properties of the link that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedXdp {
    /// The interface that is driven: the one below, if the address is a VLAN's.
    pub interface: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// The VLAN that packets are tagged with.
    pub vlan: Option<u16>,
    /// Native or generic.
    pub mode: Mode,
    /// True if the device itself reads and writes the frames; else the kernel copies them.
    pub zero_copy: bool,
    /// Receive queues.
    pub queues: u32,
    /// The time that it took here to find that a frame is of no channel, and to drop it; measured, in the kernel.
    pub drop_cost: Duration,
    /// Problems, and what to do about them; one a line.
    pub notes: Vec<String>,
}

impl EarlyDrops {
    /// Each reason with its count, in words.
    pub fn reasons(&self) -> [(&'static str, u64); 5] {
        let Self { malformed, unknown, too_large, over_rate, over_control } = *self;
        [
            ("malformed", malformed),
            ("unknown", unknown),
            ("too large", too_large),
            ("over rate", over_rate),
            ("over control", over_control),
        ]
    }

    /// The sum over all reasons.
    pub fn all(&self) -> u64 {
        self.reasons().iter().map(|(_, count)| count).sum()
    }
}
