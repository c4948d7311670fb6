//! Frames of a channel beyond its contract: with its marks, from its sender's address and port, past the host that would have
//! stopped them. What the host at the other end makes of a peer that breaks its word, or whose frames somebody forges.
//!
//! The channel was opened honestly by a host, which knows nothing of it. IPv4, with the right to raw sockets.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::AtomicBool;

use laxity::{Sender, experiments};
use laxity_core::contract::packets;
use laxity_core::units::Instant;
use laxity_core::wire::{DataHeader, fragment_bytes};
use laxity_link::sys::now;

use super::forger::Forger;
use super::load::{Ground, Load, Offered, offer};
use crate::error::Error;

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

/// The header of the first packet of message `first` in the name of `sender`, without its times and its payload; and the payload of a whole packet, bytes.
pub(crate) fn frames_of(sender: &Sender, first: u64) -> (DataHeader, u32) {
    let marks = experiments::marks(sender);
    let header = DataHeader {
        channel: marks.place,
        key: marks.key,
        message_bytes: sender.grant().service.max_message(),
        sequence: first,
        logical_arrival: Instant::ZERO,
        index: 0,
        payload: 0,
        ..DataHeader::default()
    };
    (header, marks.packet)
}

impl Violator {
    /// In the name of `sender`, whose host has the address `from`. Its messages are as large as they may be, and numbered from
    /// `first` on.
    ///
    /// # Errors
    /// The receiver is where no load may go, or not at an IPv4 address; raw sockets are not permitted.
    pub fn new(sender: &Sender, from: SocketAddr, first: u64, ground: &Ground) -> Result<Self, Error> {
        let to = sender.grant().peer;
        ground.check(to)?;
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else {
            let expected = "IPv4 addresses";
            return Err(Error::Setup { what: "the way of forged frames", found: format!("{from} to {to}"), expected });
        };
        let (header, packet) = frames_of(sender, first);
        let forger = Forger::open().map_err(Error::system("opening a raw socket"))?;
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
    pub fn run(&mut self, load: &Load, stop: &AtomicBool) -> Result<Offered, Error> {
        offer(load, stop, |count| {
            let mut burst = Offered::default();
            for _ in 0..count {
                // What the kernel has no room for is gone, as in a full queue.
                match self.send().map_err(Error::system("forging frames"))? {
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
