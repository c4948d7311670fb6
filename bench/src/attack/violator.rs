//! Frames of a channel beyond its contract: with its marks, from its sender's address and port, past the host that would have
//! stopped them. What the host at the other end makes of a peer that breaks its word, or whose frames somebody forges.
//!
//! The channel was opened honestly by a host, which knows nothing of it. IPv4, with the right to raw sockets.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::AtomicBool;

use laxity::{Sender, experiments};
use laxity_core::contract::packets;
use laxity_core::units::Instant;
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, fragment_bytes};
use laxity_link::sys::{Forger, now};

use super::load::{BATCH, Burst, Ground, Load, Offered, offer};
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
        let marks = experiments::marks(sender);
        let header = DataHeader {
            channel: marks.place,
            key: marks.key,
            message_bytes: sender.grant().service.max_message(),
            sequence: first,
            logical_arrival: Instant::ZERO,
            index: 0,
            payload: 0,
            stolen_micros: 0,
            waited_micros: 0,
        };
        let longest = DATA_HEADER_BYTES + marks.packet as usize;
        let forger = Forger::open(BATCH, longest).map_err(Error::system("opening a raw socket"))?;
        Ok(Self { forger, from, to, header, packet: marks.packet })
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
            let (mut bytes, mut staged) = (0, 0);
            for _ in 0..count.min(self.forger.room()) {
                let len = self.stage();
                (bytes, staged) = (bytes + len, staged + 1);
            }
            // What the kernel has no room for is gone, as in a full queue.
            let taken = match self.forger.flush() {
                Ok(taken) => taken as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => 0,
                Err(error) => return Err(Error::System { what: "forging frames", source: error }),
            };
            let bytes =
                if taken == staged { bytes } else { taken * (DATA_HEADER_BYTES as u64 + u64::from(self.packet)) };
            Ok(Burst { packets: taken, bytes, refused: staged - taken })
        })
    }

    /// Stages the next packet; returns its length.
    fn stage(&mut self) -> u64 {
        if self.header.index == 0 {
            self.header.logical_arrival = now();
        }
        let header = &mut self.header;
        header.payload =
            fragment_bytes(header.message_bytes, self.packet, header.index).expect("an index below its packets");
        let len = header.frame_bytes();
        self.forger.stage(self.from, self.to, len, |area| {
            header.write(area).expect("the area is as long as the frame").fill(header.sequence as u8);
        });
        if u32::from(header.index) + 1 == packets(header.message_bytes, self.packet) {
            (header.sequence, header.index) = (header.sequence + 1, 0);
        } else {
            header.index += 1;
        }
        len as u64
    }
}
