//! Sizes, places and classes that `demux.bpf.c` has, too. Both assert the same figures.

use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

pub(super) use laxity_core::event::octets;
use laxity_core::receive::ArrivalClass;
use laxity_core::units::Duration;

/// As its CHANNELS, QUEUES, CLASSES, REASONS.
pub(super) const CHANNELS: u32 = 1024;
pub(super) const QUEUES: u32 = 64;
pub(super) const CLASSES: u32 = 3;
pub(super) const REASONS: usize = 7;

/// IPv4 addresses as ::ffff:a.b.c.d.
pub(super) type Address = [u8; 16];

/// `struct settings`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Settings {
    pub(super) port: u16,
    pub(super) vlan: u16,
    pub(super) mac: [u8; 6],
    pub(super) most: u16,
    pub(super) unused: u32,
    pub(super) control_ns: u64,
    pub(super) control_tolerance_ns: u64,
    pub(super) peer_control_ns: u64,
    pub(super) peer_control_tolerance_ns: u64,
    pub(super) address: Address,
    pub(super) clock_ahead_ns: i64,
}

/// `struct channel`, in memory that the program reads meanwhile.
#[repr(C)]
pub(super) struct Channel {
    pub(super) open: AtomicU32,
    pub(super) packet: AtomicU32,
    pub(super) key: AtomicU64,
    pub(super) peer: [AtomicU64; 2],
    pub(super) peer_port: AtomicU16,
    pub(super) class: AtomicU16,
    pub(super) max_message: AtomicU32,
    pub(super) packet_ns: AtomicU64,
    pub(super) tolerance_ns: AtomicU64,
}

/// `struct sender`; the address as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Sender {
    pub(super) address: [u64; 2],
    pub(super) port: u16,
    pub(super) unused: [u16; 3],
}

/// `struct drops`, in memory that the program writes meanwhile.
#[repr(C)]
pub(super) struct Drops {
    pub(super) too_large: AtomicU64,
    pub(super) over_rate: AtomicU64,
}

// `demux.bpf.c` asserts the same.
const _: () = {
    assert!(size_of::<Settings>() == 72 && size_of::<Channel>() == 56);
    assert!(size_of::<Sender>() == 24 && size_of::<Drops>() == 16);
    assert!(offset_of!(Settings, vlan) == 2);
    assert!(offset_of!(Settings, mac) == 4);
    assert!(offset_of!(Settings, most) == 10);
    assert!(offset_of!(Settings, control_ns) == 16);
    assert!(offset_of!(Settings, peer_control_ns) == 32);
    assert!(offset_of!(Settings, address) == 48);
    assert!(offset_of!(Settings, clock_ahead_ns) == 64);
    assert!(offset_of!(Channel, packet) == 4);
    assert!(offset_of!(Channel, key) == 8);
    assert!(offset_of!(Channel, peer) == 16);
    assert!(offset_of!(Channel, peer_port) == 32);
    assert!(offset_of!(Channel, class) == 34);
    assert!(offset_of!(Channel, max_message) == 36);
    assert!(offset_of!(Channel, packet_ns) == 40);
    assert!(offset_of!(Channel, tolerance_ns) == 48);
    assert!(offset_of!(Sender, port) == 16);
    assert!(offset_of!(Drops, over_rate) == 8);
};

// SAFETY: only integers, and no padding: the sum of their sizes is that of the type.
unsafe impl aya::Pod for Settings {}
// SAFETY: likewise.
unsafe impl aya::Pod for Sender {}

impl From<SocketAddr> for Sender {
    fn from(peer: SocketAddr) -> Self {
        let octets = octets(peer.ip());
        let (words, _) = octets.as_chunks();
        let address = [u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])];
        Self { address, port: peer.port().to_be(), unused: [0; 3] }
    }
}

/// A span, at most one (of 146 years) of which two can be added to a point in time.
pub(super) fn nanos(span: Duration) -> u64 {
    span.as_nanos().min(u64::MAX / 4)
}

/// As its REAL_TIME, CONTROL, BEST_EFFORT.
pub(super) fn class(class: ArrivalClass) -> u32 {
    match class {
        ArrivalClass::RealTime => 0,
        ArrivalClass::Control => 1,
        ArrivalClass::BestEffort => 2,
    }
}
