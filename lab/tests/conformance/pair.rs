//! The interface that a link has to offer to be tested here: two ends that reach each other, and a few words on what it is like.

use std::net::{IpAddr, SocketAddr};

use laxity_core::frames::Frames;
use laxity_core::receive::{ArrivalClass, ExpectedChannel};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{Control, DATA_HEADER_BYTES, DataHeader, DataView, Keepalive};
use laxity_link::{Counters, Link, LinkOver};

/// How two ends are to be set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Over IPv6, or IPv4.
    pub(crate) v6: bool,
    /// Frames in the region of each end.
    pub(crate) frames: usize,
    /// Frames that can be buffered at once.
    pub(crate) batch: usize,
}

impl Setup {
    pub(crate) fn new(v6: bool) -> Self {
        Self { v6, frames: 256, batch: 16 }
    }
}

/// One end.
pub(crate) struct End<L, F> {
    pub(crate) link: L,
    pub(crate) frames: F,
}

/// Two ends that reach each other, without loss as long as the receiver keeps up.
pub(crate) trait Pair: Sized {
    type Frames: Frames;
    type Link: LinkOver<Self::Frames>;

    /// Whether it drops what is not expected, so that only frames of ours can be sent.
    const DEMULTIPLEXES: bool;
    /// Whether what arrives while there is no free frame waits for one.
    const KEEPS_WITHOUT_FRAMES: bool;
    /// True if it is told that no host is at an address ([`Pair::absent`]).
    const REPORTS_ABSENCE: bool;

    /// Whether every packet that gets lost under overload is counted at one of the ends.
    const COUNTS_ALL: bool = true;

    /// Both ends; `None` where this host cannot have them, after saying why.
    fn new(setup: Setup) -> Option<Self>;

    fn ends(&mut self) -> &mut [End<Self::Link, Self::Frames>; 2];

    /// Frames that have no owner at the moment: free, or the kernel's to receive into.
    fn idle(&mut self, end: usize) -> usize;

    /// The longest frame of ours that is carried, bytes.
    fn longest(&self) -> usize;

    /// A length that is not carried, and that fits a frame of the region.
    fn too_long(&self) -> usize {
        self.longest() + 1
    }

    /// An address that packets may be sent to and where no host is.
    fn absent(&mut self) -> SocketAddr;

    /// Gives what is under way some time.
    fn pass_time(&mut self);

    /// What an end has done since it was ready.
    fn counters(&mut self, end: usize) -> Counters {
        self.ends()[end].link.counters()
    }

    /// Where the other end reaches this one.
    fn address(&mut self, end: usize) -> SocketAddr {
        self.ends()[end].link.local_address()
    }

    /// Lets this end expect the channels of [`Packet`] from the other one.
    fn expect(&mut self, end: usize) {
        let (peer, longest) = (self.address(1 - end), self.longest());
        for class in [ArrivalClass::RealTime, ArrivalClass::BestEffort] {
            let payload = (longest - DATA_HEADER_BYTES) as u32;
            let expected = ExpectedChannel {
                peer,
                key: KEY,
                class,
                packet: payload,
                max_message: payload,
                spacing: Duration::ZERO,
                tolerance: Duration::ZERO,
            };
            self.ends()[end].link.expect(place(class), &expected).expect("what may arrive is taken note of");
        }
    }
}

const KEY: u64 = 0x51ab;
/// The shortest packet of a channel.
pub(crate) const SHORTEST: usize = DATA_HEADER_BYTES + 1;

fn place(class: ArrivalClass) -> u32 {
    match class {
        ArrivalClass::RealTime => 3,
        ArrivalClass::BestEffort => 4,
        ArrivalClass::Control => u32::MAX,
    }
}

/// A packet by which it can be told what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) class: ArrivalClass,
    pub(crate) number: u64,
    /// Of all of it; a control frame is as long as it is.
    pub(crate) bytes: usize,
}

impl Packet {
    pub(crate) fn new(number: u64, bytes: usize) -> Self {
        Self { class: ArrivalClass::RealTime, number, bytes }
    }

    /// Writes it to the start of `area`; returns its length.
    pub(crate) fn write(&self, area: &mut [u8]) -> usize {
        if self.class == ArrivalClass::Control {
            let alive =
                Control::Keepalive(Keepalive { channel: 1, key: KEY, sent: self.number, ..Keepalive::default() });
            return alive.write(self.number, area).expect("there is room");
        }
        let payload = self.bytes - DATA_HEADER_BYTES;
        let header = DataHeader {
            channel: place(self.class),
            key: KEY,
            message_bytes: payload as u32,
            sequence: self.number,
            logical_arrival: Instant::ZERO,
            index: 0,
            payload: payload as u16,
            ..DataHeader::default()
        };
        let body = header.write(area).expect("there is room");
        body.iter_mut().enumerate().for_each(|(at, byte)| *byte = self.byte(at));
        self.bytes
    }

    /// The packet that `bytes` are; every one of them is as it was written.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        if let Ok((number, _)) = Control::parse(bytes) {
            return Self { class: ArrivalClass::Control, number, bytes: bytes.len() };
        }
        let view = DataView::parse(bytes).expect("it arrives as it was sent");
        let class = match view.header().channel {
            3 => ArrivalClass::RealTime,
            _ => ArrivalClass::BestEffort,
        };
        let found = Self { class, number: view.header().sequence, bytes: bytes.len() };
        assert!(view.payload().iter().enumerate().all(|(at, &byte)| byte == found.byte(at)), "{found:?} was changed");
        found
    }

    fn byte(&self, at: usize) -> u8 {
        (self.number as u8).wrapping_mul(31).wrapping_add(at as u8).wrapping_add((at >> 8) as u8)
    }
}

/// Stages a packet if there is a frame and room; true then.
pub(crate) fn buffer<P: Pair>(pair: &mut P, from: usize, packet: &Packet, to: SocketAddr) -> bool {
    let End { link, frames } = &mut pair.ends()[from];
    if link.room() == 0 {
        return false;
    }
    let Some(frame) = frames.take() else { return false };
    let len = packet.write(frames.packet_mut(&frame));
    link.transmit(frame, len, to);
    true
}

pub(crate) fn flush<P: Pair>(pair: &mut P, from: usize) -> usize {
    let End { link, frames } = &mut pair.ends()[from];
    link.flush(frames).expect("the link works")
}

/// Sends packets to the other end, in as many batches as it takes.
pub(crate) fn send<P: Pair>(pair: &mut P, from: usize, packets: &[Packet]) {
    let to = pair.address(1 - from);
    for packet in packets {
        let mut patience = PATIENCE;
        while !buffer(pair, from, packet, to) {
            flush(pair, from);
            if pair.ends()[from].link.room() == 0 {
                pair.pass_time();
            }
            patience = patience.checked_sub(1).expect("there is room at some time");
        }
    }
    flush_all(pair, from);
}

/// Until nothing is buffered.
pub(crate) fn flush_all<P: Pair>(pair: &mut P, from: usize) {
    for _ in 0..PATIENCE {
        flush(pair, from);
        if !pair.ends()[from].link.wants_writable() {
            return;
        }
        pair.pass_time();
    }
    panic!("the network stays full");
}

/// How often in a row nothing may happen.
const PATIENCE: u32 = 400;

/// What one call of `receive` gave; the frames are free again.
pub(crate) fn receive<P: Pair>(pair: &mut P, at: usize, limit: usize) -> Vec<(Packet, SocketAddr)> {
    let mut seen = Vec::new();
    let End { link, frames } = &mut pair.ends()[at];
    let given = link.receive(limit, frames, |received, frames| {
        seen.push((Packet::read(&frames.packet(&received.frame)[..received.len]), received.peer));
        frames.free(received.frame);
    });
    assert_eq!(given.expect("the link works"), seen.len());
    assert!(seen.len() <= limit);
    seen
}

/// Waits for `count` packets and for no more than that.
pub(crate) fn collect<P: Pair>(pair: &mut P, at: usize, count: usize) -> Vec<(Packet, SocketAddr)> {
    let (mut seen, mut patience) = (Vec::new(), PATIENCE);
    while seen.len() < count && patience > 0 {
        pair.pass_time();
        let more = receive(pair, at, 32);
        patience = if more.is_empty() { patience - 1 } else { PATIENCE };
        seen.extend(more);
    }
    seen
}

/// Everything that comes until nothing has come for a while.
pub(crate) fn drain<P: Pair>(pair: &mut P, at: usize) -> Vec<(Packet, SocketAddr)> {
    let (mut seen, mut quiet) = (Vec::new(), 0);
    while quiet < 4 {
        pair.pass_time();
        let more = receive(pair, at, 32);
        quiet = if more.is_empty() { quiet + 1 } else { 0 };
        seen.extend(more);
    }
    seen
}

/// All frames of both ends have no owner again: what was sent comes back when the network has it.
pub(crate) fn check_frames<P: Pair>(pair: &mut P, setup: &Setup) {
    let all = |pair: &mut P| (0..2).all(|end| pair.idle(end) == setup.frames);
    for _ in 0..PATIENCE {
        if all(pair) {
            return;
        }
        for end in 0..2 {
            flush(pair, end);
            receive(pair, end, 1);
        }
        pair.pass_time();
    }
    let idle = [pair.idle(0), pair.idle(1)];
    assert_eq!(idle, [setup.frames; 2], "frames were lost");
}

/// The same peer, whatever its flow label or scope.
pub(crate) fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let plain = |address: SocketAddr| match address.ip() {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => panic!("{address} is not in its IPv4 form"),
        ip => (ip, address.port()),
    };
    plain(one) == plain(other)
}
