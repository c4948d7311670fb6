//! Early demultiplexing: what the driver drops is nothing that the host would take, what it lets through is bounded, and what it
//! dropped is its sender's fault.

mod attribution;
mod bounds;
mod handled;
mod judgement;
#[allow(unreachable_pub, dead_code, reason = "a fuzz target uses all of it")]
#[path = "../../../fuzz/src/demux/model.rs"]
mod model;
#[path = "../common/received.rs"]
mod received;

use received::{deliver, terms};

use laxity_core::contract::{ChannelTerms, Contract, Service};
use laxity_core::frames::{FrameId, Frames, HeapFrames};
use laxity_core::receive::{DropReason, ReceiveGrant, ReceivingChannel, TimeLoss};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, DataView, fragment_bytes};

const PACKET: u32 = 100;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn peer() -> core::net::SocketAddr {
    "10.0.0.1:5709".parse().unwrap()
}

/// Messages of `max` bytes every 10 ms.
fn contract(max: u64, burst: u64) -> Service {
    Service::RealTime(Contract::new(max, 1, ms(10), burst, ms(40)).unwrap())
}

/// Packet `index` of message `sequence`.
fn header(sequence: u64, bytes: u32, index: u16, logical_arrival: Instant) -> DataHeader {
    DataHeader {
        channel: 3,
        key: 7,
        message_bytes: bytes,
        sequence,
        logical_arrival,
        index,
        payload: fragment_bytes(bytes, PACKET, index).expect("there is such a packet"),
        ..DataHeader::default()
    }
}

fn written(header: &DataHeader) -> Vec<u8> {
    let mut bytes = vec![0; header.frame_bytes()];
    header.write(&mut bytes).unwrap();
    bytes
}

/// A host's end of one channel, whose handler is always quick.
struct Host {
    receiving: ReceivingChannel,
    frames: HeapFrames,
}

impl Host {
    fn new(terms: ChannelTerms, messages: u32, queue: u32) -> Self {
        let grant = ReceiveGrant { input_delay: ms(1), upstream: ms(20), ..received::grant(messages, queue) };
        let mut receiving = ReceivingChannel::new(terms, grant);
        receiving.begin_at(Instant::ZERO, 1_000_000);
        Self { receiving, frames: HeapFrames::new(queue as usize + 1, DATA_HEADER_BYTES + PACKET as usize) }
    }

    /// Offers a packet; if it is not taken, says why.
    fn offer(&mut self, now: Instant, header: &DataHeader) -> Result<(), DropReason> {
        let bytes = written(header);
        let frame: FrameId = self.frames.take().expect("as many as wait, and one");
        self.frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(&bytes);
        let taken = self
            .receiving
            .accept(now.into(), &DataView::parse(&bytes).unwrap(), frame, usize::MAX, |_| TimeLoss::default());
        taken.map_err(|(frame, reason)| {
            self.frames.free(frame);
            reason
        })
    }

    /// Does all work that there is.
    fn work(&mut self, now: Instant) {
        while self.receiving.step(&mut self.frames).is_some() {}
        while let Some((delivered, _)) = deliver(&mut self.receiving, now) {
            self.receiving.recycle(delivered.message);
        }
    }
}
