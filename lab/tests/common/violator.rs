//! Frames of a channel beyond its contract: with its marks, from its sender's address and port, past the host that would have
//! stopped them. To the host at the other end it is a peer that breaks its contract, or whose frames are forged.
//!
//! The channel was opened honestly by a host, which knows nothing of it. IPv4, with the right to raw sockets (CAP_NET_RAW).
#![allow(dead_code, unreachable_pub)]

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

use laxity::Sender;
use laxity_core::contract::packets;
use laxity_core::wire::{DataHeader, fragment_bytes};
use laxity_lab::attack::load::offer;
use laxity_lab::attack::violator::frames_of;
use laxity_lab::attack::{Load, LoadTargets, OfferedLoad};
use laxity_lab::{Error, headers};
use laxity_link::sys::now;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

/// Sends in the name of one channel.
#[derive(Debug)]
pub struct Violator {
    forger: Forger,
    from: SocketAddrV4,
    to: SocketAddrV4,
    /// Of the next packet.
    header: DataHeader,
    packet: u32,
}

impl Violator {
    /// In the name of `sender`, whose host has the address `from`. Its messages are as large as they may be, and numbered from
    /// `first` on.
    ///
    /// # Errors
    /// The receiver is where no load may go, or not at an IPv4 address; raw sockets are not permitted.
    pub fn new(sender: &Sender, from: SocketAddr, first: u64, ground: &LoadTargets) -> Result<Self, Error> {
        let to = sender.grant().peer;
        ground.check(to)?;
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else {
            return Err(Error::setup("the way of forged frames", format!("{from} to {to}"), "IPv4 addresses"));
        };
        let (header, packet) = frames_of(sender, first);
        let forger = Forger::open().map_err(|source| Error::System { what: "opening a raw socket", source })?;
        Ok(Self { forger, from, to, header, packet })
    }

    /// Packets of one message.
    pub fn packets(&self) -> u32 {
        packets(self.header.message_bytes, self.packet)
    }

    /// Messages that were begun, as they are numbered.
    pub fn next(&self) -> u64 {
        self.header.sequence + u64::from(self.header.index > 0)
    }

    /// Message after message, packet after packet, as `load` says. Each message alleges that it was sent just now.
    ///
    /// # Errors
    /// The load is none, or the kernel refuses it.
    pub fn run(&mut self, load: &Load, stop: &AtomicBool) -> Result<OfferedLoad, Error> {
        offer(load, stop, |count| {
            let mut burst = OfferedLoad::default();
            for _ in 0..count {
                // What the kernel has no room for is gone, as in a full queue.
                match self.send().map_err(|source| Error::System { what: "forging frames", source })? {
                    Some(bytes) => (burst.packets, burst.bytes) = (burst.packets + 1, burst.bytes + bytes),
                    None => burst.refused += 1,
                }
            }
            Ok(burst)
        })
    }

    /// Sends the next packet; its length, if the kernel took it.
    fn send(&mut self) -> std::io::Result<Option<u64>> {
        if self.header.index == 0 {
            self.header.logical_arrival = now();
        }
        let header = &mut self.header;
        header.payload =
            fragment_bytes(header.message_bytes, self.packet, header.index).expect("an index below its packets");
        let len = header.frame_bytes();
        let was_taken = self.forger.send(self.from, self.to, len, |area| {
            header.write(area).expect("the area is as long as the frame").fill(header.sequence as u8);
        })?;
        if u32::from(header.index) + 1 == packets(header.message_bytes, self.packet) {
            (header.sequence, header.index) = (header.sequence + 1, 0);
        } else {
            header.index += 1;
        }
        Ok(was_taken.then_some(len as u64))
    }
}

/// Of the socket: some thousand small packets.
const BUFFER_BYTES: usize = 4 << 20;

/// A socket that writes the IPv4 and UDP headers itself.
#[derive(Debug)]
struct Forger {
    fd: OwnedFd,
    datagram: Vec<u8>,
}

impl Forger {
    /// Permission is denied without CAP_NET_RAW.
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // RAW and not UDP: who writes all headers receives nothing.
        let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW))?;
        if sockopt::set_socket_send_buffer_size_force(&fd, BUFFER_BYTES).is_err() {
            sockopt::set_socket_send_buffer_size(&fd, BUFFER_BYTES)?;
        }
        Ok(Self { fd, datagram: Vec::new() })
    }

    /// Sends a datagram of `len` bytes that `write` fills, to `to`, as if `from` had sent it. False if the kernel has no room for it:
    /// an attacker does not wait.
    fn send(
        &mut self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> io::Result<bool> {
        self.datagram.resize(headers::BYTES + len, 0);
        let (before, body) = self.datagram.split_at_mut(headers::BYTES);
        before.copy_from_slice(&headers::written(from, to, len));
        write(body);
        use rustix::io::Errno;
        match rustix::net::sendto(&self.fd, &self.datagram, SendFlags::DONTWAIT, &to) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[test]
fn a_forged_datagram_comes_from_whom_it_says() {
    let mut forger = match Forger::open() {
        Ok(forger) => forger,
        Err(error) => return println!("skipped: a raw socket is unavailable here: {error}"),
    };
    let receiver = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let SocketAddr::V4(to) = receiver.local_addr().unwrap() else { unreachable!("it was bound to one") };
    let from = SocketAddrV4::new(std::net::Ipv4Addr::new(127, 1, 2, 3), 4_567);
    for round in 0..3_u8 {
        for len in [1, 2, 1_999, 2_000] {
            assert!(forger.send(from, to, len, |area| area.fill(round)).unwrap());
            let mut bytes = [9; 4_000];
            let (found, peer) = receiver.recv_from(&mut bytes).unwrap();
            assert_eq!((found, peer), (len, from.into()));
            assert!(bytes[..found].iter().all(|&byte| byte == round));
        }
    }
}
