//! The yardstick over AF_XDP: an AF_XDP loop as an expert would write it for one peer, without Laxity.
//!
//! One socket for both directions, a program that redirects every frame, headers that are written once, no UDP checksum (over IPv4
//! it is optional), packets of one size. For benchmarks only.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::XskMap;
use aya::programs::{Xdp, XdpMode};

use laxity_link::sys::buffers;
use laxity_link::sys::rings::{self, BindTarget, FrameSupply, Mapping, SendResult, XdpSocket};

use crate::headers;

/// The address of an end at the link layer, and its address of IP with its port.
type Place = ([u8; 6], SocketAddr);

const CHUNK: usize = 2048;
const RECEIVE: u32 = 1024;
const TRANSMIT: u32 = 1024;
const SEND_BUFFER: usize = 32 << 20;
/// For one batch: in copy mode the kernel sends some 32 frames a call.
const CALLS: usize = 64;
const ETHERNET: usize = 14;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Of Ethernet, IP and UDP.
const HEADERS: usize = ETHERNET + headers::BYTES;
/// The offset of the destination's port.
const PORT: usize = HEADERS - 6;

/// One end of the loop. Its program is attached as long as it lives.
pub struct BareXdp {
    // First what brings frames here, last the memory that they lie in.
    program: Option<Ebpf>,
    receiver: XdpSocket,
    /// The same socket.
    sender: XdpSocket,
    supply: FrameSupply,
    region: Mapping,
    /// Frames to send from, with their headers.
    free: Vec<u64>,
    packet: usize,
    /// The port that packets for us have, as it stands in them.
    port: [u8; 2],
}

/// Waiting for it is waiting for its socket.
impl AsFd for BareXdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl BareXdp {
    /// Takes the first queue of `interface`, which has only that one, for packets of `packet` bytes between two addresses of IPv4.
    ///
    /// # Errors
    /// The user may not, another program is attached, or the kernel refuses.
    pub fn open(interface: u32, own: Place, peer: Place, packet: usize) -> io::Result<Self> {
        let mut bare = Self::new(interface, own, peer, packet, TRANSMIT)?;
        bare.program = Some(attach(interface, &bare.receiver)?);
        Ok(bare)
    }

    /// As [`open`](Self::open), but without a program: it receives nothing, and the interface works on as before. It may be further
    /// ahead of its receiver than any queue of the kernel is long.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn sender(interface: u32, own: Place, peer: Place, packet: usize) -> io::Result<Self> {
        Self::new(interface, own, peer, packet, 8 * TRANSMIT)
    }

    fn new(interface: u32, own: Place, peer: Place, packet: usize, transmit: u32) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (own.1, peer.1) else {
            return Err(invalid("two addresses of IPv4"));
        };
        if HEADERS + packet > CHUNK {
            return Err(invalid("a packet that fits a chunk"));
        }
        let before = [&peer.0, &own.0, TYPE_IPV4.as_slice(), &headers::written(from, to, packet)].concat();
        let frames = RECEIVE + transmit;
        let mut region = Mapping::anonymous(frames as usize * CHUNK)?;
        let fd = rings::socket()?;
        // What another processor has still to receive counts as being sent.
        buffers(fd.as_fd(), None, Some(SEND_BUFFER))?;
        // SAFETY: the region is dropped after the socket.
        unsafe { rings::register(fd.as_fd(), &region, CHUNK as u32) }?;
        let mut supply = FrameSupply::new(fd.as_fd(), RECEIVE, transmit)?;
        let sender = XdpSocket::sending(fd.try_clone()?, transmit)?;
        let receiver = XdpSocket::receiving(fd, RECEIVE)?;
        receiver.bind(BindTarget { interface, queue: 0, copy: false }, None)?;
        for number in 0..RECEIVE {
            let _ = supply.fill.write(u64::from(number) * CHUNK as u64);
        }
        supply.fill.produce();
        let free: Vec<u64> = (RECEIVE..frames).map(|number| u64::from(number) * CHUNK as u64).collect();
        for &address in &free {
            bytes_mut(&mut region, address, HEADERS)?.copy_from_slice(&before);
        }
        let port = own.1.port().to_be_bytes();
        Ok(Self { program: None, receiver, sender, supply, region, free, packet, port })
    }

    /// Sends up to `count` packets, each of which `fill` writes; how many there was room for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&mut self, count: usize, mut fill: impl FnMut(&mut [u8])) -> io::Result<usize> {
        self.reap();
        let bytes = HEADERS + self.packet;
        let mut sent = 0;
        while sent < count
            && self.sender.ring.room() > 0
            && let Some(address) = self.free.pop()
        {
            fill(&mut bytes_mut(&mut self.region, address, bytes)?[HEADERS..]);
            let _ = self.sender.push(address, bytes as u32);
            sent += 1;
        }
        for _ in 0..CALLS {
            match self.sender.send()? {
                SendResult::All | SendResult::Down => break,
                SendResult::Some | SendResult::Dropped => self.reap(),
            }
        }
        Ok(sent)
    }

    /// Gives up to `limit` packets to `sink`; how many.
    pub fn receive(&mut self, limit: usize, mut sink: impl FnMut(&[u8])) -> usize {
        let (mut looked, mut received) = (0, 0);
        while looked < limit
            && let Some(frame) = self.receiver.ring.read()
        {
            looked += 1;
            let (address, len) = (frame.addr, frame.len);
            if let Some(frame) = bytes(&self.region, address, len as usize)
                && len as usize == HEADERS + self.packet
                && frame[PORT..PORT + 2] == self.port
            {
                sink(&frame[HEADERS..]);
                received += 1;
            }
            let _ = self.supply.fill.write(address / CHUNK as u64 * CHUNK as u64);
        }
        if looked > 0 {
            self.receiver.ring.consume();
            self.supply.fill.produce();
            if self.supply.fill.wants_wakeup() {
                self.receiver.wake();
            }
        }
        received
    }

    fn reap(&mut self) {
        while let Some(address) = self.supply.completion.read() {
            self.free.push(address);
        }
        self.supply.completion.consume();
    }
}

fn attach(interface: u32, socket: &XdpSocket) -> io::Result<Ebpf> {
    let mut object = Ebpf::load(aya::include_bytes_aligned!("bare.bpf.o")).map_err(io::Error::other)?;
    let missing = || io::Error::other("the object lacks a part");
    let map = object.map_mut("sockets").ok_or_else(missing)?;
    let mut sockets = XskMap::try_from(map).map_err(io::Error::other)?;
    sockets.set(0, socket.as_fd().as_raw_fd(), 0).map_err(io::Error::other)?;
    let program: &mut Xdp = object.program_mut("redirect").ok_or_else(missing)?.try_into().map_err(io::Error::other)?;
    program.load().map_err(io::Error::other)?;
    program.attach_to_if_index(interface, XdpMode::Driver).map_err(io::Error::other)?;
    Ok(object)
}

fn within(region: &Mapping, address: u64, len: usize) -> Option<usize> {
    let begin = usize::try_from(address).ok()?;
    begin.checked_add(len).filter(|end| *end <= region.bytes())?;
    Some(begin)
}

fn bytes(region: &Mapping, address: u64, len: usize) -> Option<&[u8]> {
    let begin = within(region, address, len)?;
    // SAFETY: within the mapping. The kernel has given the frame back and writes to it no more until it is given again.
    Some(unsafe { std::slice::from_raw_parts(region.start().as_ptr().add(begin), len) })
}

fn bytes_mut(region: &mut Mapping, address: u64, len: usize) -> io::Result<&mut [u8]> {
    let begin = within(region, address, len).ok_or_else(|| io::Error::other("an address outside of the region"))?;
    // SAFETY: within the mapping, which is borrowed exclusively; the kernel does not have the frame.
    Ok(unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr().add(begin), len) })
}
