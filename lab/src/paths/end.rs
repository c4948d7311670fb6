//! One end of each path: what sends and receives numbered packets of one size.
//!
//! The packets are the same on all paths: a data frame of ours with [`PAYLOAD`] bytes, whose number is the message's. The bare loops
//! write only the number anew; Laxity writes each frame as its sender does, into a frame of the region, and reads it as its receiver
//! does.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use laxity_core::frames::Frames;
use laxity_core::receive::{ArrivalClass, ExpectedChannel};
use laxity_core::units::Duration;
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, DataView};
use laxity_link::sys::{Wake, readable, wait};
use laxity_link::{LinkOver, Received};

use crate::sys::bare_udp::BareUdp;
use crate::sys::bare_xdp::BareXdp;

/// Packets in one call, for all.
pub(super) const BATCH: usize = 64;
/// Bytes of the payload.
const PAYLOAD: u16 = 64;
/// Bytes of a packet, without the headers of Ethernet, IP and UDP.
pub(super) const PACKET: usize = DATA_HEADER_BYTES + PAYLOAD as usize;
/// The offset of the number.
const NUMBER_AT: usize = 16;
const PLACE: u32 = 0;
const KEY: u64 = 0x1a1a;
/// The longest wait of an end before it looks whether the run is over.
const LOOK: Duration = Duration::from_millis(10);

/// One end of a path.
pub(super) trait PathEnd: Send {
    /// Sends up to `count` packets, numbered from `first` on; how many.
    fn send(&mut self, first: u64, count: usize) -> io::Result<usize>;
    /// Gives the numbers of the packets that are there to `sink`, at most a batch; how many.
    fn receive(&mut self, sink: impl FnMut(u64)) -> io::Result<usize>;
    /// True if a look that found so many is followed by another before waiting: always where it costs no system call.
    fn looks_again(&self, found: usize) -> bool {
        found > 0
    }
    /// Waits until there is something to receive, or a while.
    fn wait(&mut self) -> io::Result<()>;
}

impl PathEnd for BareXdp {
    fn send(&mut self, first: u64, count: usize) -> io::Result<usize> {
        let mut number = first;
        self.send(count, |packet| write_number(packet, &mut number))
    }

    fn receive(&mut self, mut sink: impl FnMut(u64)) -> io::Result<usize> {
        Ok(self.receive(BATCH, |packet| sink(read_number(packet))))
    }

    fn wait(&mut self) -> io::Result<()> {
        wait(&mut [readable(self.as_fd())], Some(LOOK)).map(drop)
    }
}

impl PathEnd for BareUdp {
    fn send(&mut self, first: u64, count: usize) -> io::Result<usize> {
        let mut number = first;
        self.send(count, |packet| write_number(packet, &mut number))
    }

    fn receive(&mut self, mut sink: impl FnMut(u64)) -> io::Result<usize> {
        self.receive(BATCH, |packet| sink(read_number(packet)))
    }

    fn looks_again(&self, found: usize) -> bool {
        found == BATCH
    }

    fn wait(&mut self) -> io::Result<()> {
        wait(&mut [readable(self.as_fd())], Some(LOOK)).map(drop)
    }
}

fn write_number(packet: &mut [u8], number: &mut u64) {
    packet[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
    *number += 1;
}

fn read_number(packet: &[u8]) -> u64 {
    packet.get(NUMBER_AT..NUMBER_AT + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// A link of ours and its frames, driven in the order in which the executive does it.
pub(super) struct LaxityEnd<L, F> {
    pub(super) link: L,
    frames: F,
    /// The doorbell of an executive, which applications ring: none does here.
    doorbell: Wake,
    peer: SocketAddr,
}

impl<L: LinkOver<F>, F: Frames> LaxityEnd<L, F> {
    /// `peer` may send a real-time channel's packets, of a contract that no run exceeds.
    pub(super) fn new(mut link: L, frames: F, peer: SocketAddr) -> io::Result<Self> {
        let expected = ExpectedChannel {
            peer,
            key: KEY,
            class: ArrivalClass::RealTime,
            packet: PAYLOAD.into(),
            max_message: PAYLOAD.into(),
            spacing: Duration::from_nanos(50),
            tolerance: Duration::from_millis(10),
        };
        link.expect(PLACE, &expected)?;
        Ok(Self { link, frames, doorbell: Wake::new()?, peer })
    }
}

impl<L: LinkOver<F> + Send, F: Frames + Send> PathEnd for LaxityEnd<L, F> {
    fn send(&mut self, first: u64, count: usize) -> io::Result<usize> {
        let mut sent = 0;
        while sent < count.min(BATCH)
            && self.link.room() > 0
            && let Some(frame) = self.frames.take()
        {
            let header = DataHeader {
                channel: PLACE,
                key: KEY,
                message_bytes: PAYLOAD.into(),
                sequence: first + sent as u64,
                payload: PAYLOAD,
                ..DataHeader::default()
            };
            header.write(self.frames.packet_mut(&frame)).map_err(io::Error::other)?.fill(0x5a);
            self.link.transmit(frame, PACKET, self.peer);
            sent += 1;
        }
        self.link.flush(&mut self.frames)?;
        Ok(sent)
    }

    fn receive(&mut self, mut sink: impl FnMut(u64)) -> io::Result<usize> {
        while self.link.poll_policed().is_some() {}
        let got = self.link.receive(BATCH, &mut self.frames, |received: Received, frames: &mut F| {
            if let Ok(view) = DataView::parse(&frames.packet(&received.frame)[..received.len])
                && (view.header().channel, view.header().key) == (PLACE, KEY)
            {
                sink(view.header().sequence);
            }
            frames.free(received.frame);
        })?;
        while self.link.poll_event().is_some() {}
        Ok(got)
    }

    fn wait(&mut self) -> io::Result<()> {
        if self.link.wait(self.doorbell.as_fd(), Some(LOOK))? {
            self.doorbell.drain();
        }
        // As the executive: what could not be sent before is tried again.
        if self.link.wants_writable() {
            self.link.flush(&mut self.frames)?;
        }
        Ok(())
    }
}
