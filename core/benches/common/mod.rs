//! Two endpoints with open channels between them, and the path of a message cut into its phases, so that each can be
//! counted alone. Opening and the wire between the two stand outside the phases and are never counted.

#![allow(dead_code, reason = "each benchmark uses what it needs")]

pub(crate) mod admitted;

use std::net::SocketAddr;
use std::process::Command;

use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{
    ClockConfig, Config, Destination, Endpoint, LinkConfig, ReceiveGrant, ReceiveSetup, SendSetup, SharedKey, Transmit,
};
use laxity_core::event::{ChannelId, Event, Name};
use laxity_core::frames::{FrameId, Frames, HeapFrames, MessageBuf};
use laxity_core::limits;
use laxity_core::limits::TAG_BYTES;
use laxity_core::platform::{BestEffort, LinkModel};
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, MAX_CONTROL_BYTES};

/// From one message of a channel to its next.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);
/// From the logical arrival at the sender to that at the receiver.
const UPSTREAM: Duration = Duration::from_millis(4);
/// Channels that are opened together: fewer than an endpoint keeps requests and control frames.
const OPENED_TOGETHER: usize = limits::MAX_WAITING_OF_HOST;
const NAME: &str = "bench";

/// One host's endpoint with its frames.
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) frames: HeapFrames,
    address: SocketAddr,
}

/// An arrived frame and its length.
pub(crate) type Arrived = (FrameId, usize);

/// A sender and a receiver.
pub(crate) struct Pair {
    pub(crate) sender: Side,
    pub(crate) receiver: Side,
    /// The channels at the sender.
    pub(crate) channels: Vec<ChannelId>,
    /// Messages that no channel holds.
    pub(crate) buffers: Vec<MessageBuf>,
    /// Between `transmit` and `demultiplex`.
    pub(crate) left: Vec<Transmit>,
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) now: Instant,
    pub(crate) delivered: usize,
}

impl Side {
    fn new(channels: usize, packets: u32, packet: u32, port: u16, key: Option<SharedKey>) -> Self {
        let frames = channels * packets as usize;
        let best_effort = BestEffort::UNLIMITED;
        let link = LinkConfig {
            model: LinkModel::UNLIMITED,
            look_ahead: Duration::ZERO,
            horizon: Duration::ZERO,
            best_effort,
        };
        let endpoint = Endpoint::new(Config {
            envelope: Default::default(),
            stretch_ppm: 1_000_000,
            channels,
            frames,
            upcalls: 0,
            best_effort_frames: 0,
            peer_clocks: ClockConfig::default(),
            packet,
            quantum: 16,
            policy: Default::default(),
            links: vec![link],
            handover: Duration::from_millis(1),
            clock: 7,
            secret: u128::from(port),
            key,
        });
        let capacity = MAX_CONTROL_BYTES.max(packet as usize + DATA_HEADER_BYTES + TAG_BYTES);
        let address = SocketAddr::from(([10, 0, 0, 1], port));
        Self { endpoint, frames: HeapFrames::new(frames + 2 * OPENED_TOGETHER, capacity), address }
    }

    /// Hands everything that waits for the link to `to`.
    fn carry(&mut self, now: Instant, to: &mut Self) {
        self.endpoint.handle_link_ready(now, 0, usize::MAX);
        while let Some(packet) = self.endpoint.poll_transmit(now, 0, &mut self.frames) {
            let (frame, len) = copied(&mut self.frames, packet, &mut to.frames);
            to.endpoint.handle_frame(now, 0, self.address, frame, len, &mut to.frames);
        }
    }
}

/// The wire.
fn copied(from: &mut HeapFrames, packet: Transmit, to: &mut HeapFrames) -> Arrived {
    let frame = to.take().expect("a free frame");
    to.packet_mut(&frame)[..packet.len].copy_from_slice(&from.packet(&packet.frame)[..packet.len]);
    from.free(packet.frame);
    (frame, packet.len)
}

/// A number that has nothing to do with `index`, and is the same in every run (the finaliser of SplitMix64).
fn scattered(index: usize) -> u64 {
    let mut word = (index as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A span below `most` that differs from channel to channel, so that the order in each queue is not that of the channels.
fn spread(index: usize, salt: usize, most: Duration) -> Duration {
    Duration::from_nanos(scattered(index.wrapping_mul(8) + salt) % most.as_nanos())
}

impl Pair {
    /// `channels` open real-time channels for one message of `packets` packets of `packet` bytes at a time.
    pub(crate) fn open(channels: usize, packets: u32, packet: u32) -> Self {
        Self::open_with(channels, packets, packet, None)
    }

    /// Likewise, between hosts with this key.
    pub(crate) fn open_with(channels: usize, packets: u32, packet: u32, key: Option<SharedKey>) -> Self {
        let mut pair = Self {
            sender: Side::new(channels, packets, packet, 1, key.clone()),
            receiver: Side::new(channels, 2 * packets, packet, 2, key),
            channels: Vec::with_capacity(channels),
            buffers: Vec::with_capacity(channels),
            left: Vec::with_capacity(channels * packets as usize),
            arrived: Vec::with_capacity(channels * packets as usize),
            now: Instant::from_nanos(1_000_000_000),
            delivered: 0,
        };
        let bytes = packets * packet;
        let contract =
            Contract::new(bytes.into(), 1, INTERVAL, 1, Duration::from_millis(10)).expect("a contract that can be");
        pair.receiver.endpoint.listen(Name::new(NAME).expect("a name"));
        while pair.channels.len() < channels {
            pair.open_some((channels - pair.channels.len()).min(OPENED_TOGETHER), contract, packet, packets);
        }
        for _ in 0..channels {
            let mut buffer = MessageBuf::with_capacity(bytes as usize);
            buffer.fill(&vec![0xa5; bytes as usize]);
            pair.buffers.push(buffer);
        }
        pair
    }

    fn open_some(&mut self, count: usize, contract: Contract, packet: u32, packets: u32) {
        let Self { sender, receiver, channels, now, .. } = self;
        let now = *now;
        let config = SendConfig {
            service: Service::RealTime(contract),
            overload: Overload::Block,
            priority: 0,
            packet,
            work_conserving: false,
        };
        let destination = Destination { link: 0, peer: receiver.address, name: Name::new(NAME).expect("a name") };
        let lease = Duration::from_secs(60);
        for _ in 0..count {
            let outgoing = SendSetup::new(destination, config, Duration::from_millis(2), lease, 1, packets);
            sender.endpoint.open(now, outgoing).expect("room for every channel");
        }
        let handle_timers = |sender: &mut Side| {
            (0..count.div_ceil(limits::TIMERS_AT_ONCE)).for_each(|_| sender.endpoint.handle_timeout(now));
        };
        handle_timers(sender);
        sender.carry(now, receiver);
        // With a key they are challenged, and ask again.
        receiver.carry(now, sender);
        sender.carry(now, receiver);
        while let Some(event) = receiver.endpoint.poll_event() {
            let Event::Requested(request) = event else { panic!("expected a request, found {event:?}") };
            let stage = Duration::from_millis(2) + spread(receiver.endpoint.channels(), 1, Duration::from_millis(2));
            let reception = ReceiveGrant {
                stage,
                input_delay: Duration::ZERO,
                upstream: UPSTREAM,
                transit: UPSTREAM,
                work_conserving: true,
                priority: 0,
                messages: 2,
                packets: 2 * packets,
            };
            let incoming = ReceiveSetup::new(&request, reception);
            receiver.endpoint.accept(now, &request, incoming).expect("room for every channel");
        }
        receiver.carry(now, sender);
        let before = channels.len();
        while let Some(event) = sender.endpoint.poll_event() {
            let Event::Accepted { channel, .. } = event else { panic!("expected an answer, found {event:?}") };
            let span = |salt| Duration::from_millis(1) + spread(channels.len(), salt, Duration::from_millis(1));
            sender.endpoint.begin(now, channel, SendingStages { processor: span(2), link: span(3) });
            channels.push(channel);
        }
        assert_eq!(channels.len() - before, count, "every channel was accepted");
        // The first keep-alives and their answers: the next ones are 15 s away.
        handle_timers(sender);
        sender.carry(now, receiver);
        receiver.carry(now, sender);
    }

    /// One message on each of `active`, through every phase, with `wire` between the two hosts.
    pub(crate) fn round(&mut self, active: &[usize]) {
        phase::submit(self, active);
        phase::make_packets(self);
        phase::transmit(self);
        self.wire();
        phase::demultiplex(self);
        phase::reassemble(self);
        phase::deliver(self);
        // The channel that was served is due again an interval later.
        self.now += INTERVAL;
    }

    /// Moves what has left to the receiver's frames.
    pub(crate) fn wire(&mut self) {
        for packet in self.left.drain(..) {
            self.arrived.push(copied(&mut self.sender.frames, packet, &mut self.receiver.frames));
        }
    }
}

/// What is counted, for `--toggle-collect`: entering a phase switches counting on, leaving it switches it off.
pub(crate) const COUNTED: &str = "*::common::phase::*";

/// The path of a message, cut where something crosses from one hand to another. No phase calls another one, or anything else
/// in this module that is not inlined: that would switch counting off.
pub(crate) mod phase {
    use super::{Duration, FrameId, Pair, UPSTREAM, spread};

    /// Submits one message on each of `active`; they arrived within the last millisecond.
    #[inline(never)]
    pub(crate) fn submit(pair: &mut Pair, active: &[usize]) {
        for &index in active {
            let message = pair.buffers.pop().expect("a buffer for each");
            let arrival = pair.now.before(spread(index, 4, Duration::from_millis(1)));
            if pair.sender.endpoint.submit(pair.now, pair.channels[index], arrival, Duration::ZERO, message).is_err() {
                panic!("within the contract");
            }
        }
    }

    /// Steps of the sender until no channel has work; nothing leaves meanwhile, so that the link's queues fill as well.
    #[inline(never)]
    pub(crate) fn make_packets(pair: &mut Pair) {
        let now = pair.now + Duration::from_micros(1);
        let side = &mut pair.sender;
        side.endpoint.handle_timeout(now);
        while let Some(step) = side.endpoint.poll_step(now, &mut side.frames) {
            pair.buffers.extend(step.spent);
            side.endpoint.handle_timeout(now);
        }
    }

    /// Everything that waits for the link, in its order.
    #[inline(never)]
    pub(crate) fn transmit(pair: &mut Pair) {
        let now = pair.now + Duration::from_micros(2);
        let side = &mut pair.sender;
        side.endpoint.handle_link_ready(now, 0, usize::MAX);
        while let Some(packet) = side.endpoint.poll_transmit(now, 0, &mut side.frames) {
            pair.left.push(packet);
        }
    }

    /// Every arrived frame, before the receiver does anything else.
    #[inline(never)]
    pub(crate) fn demultiplex(pair: &mut Pair) {
        let now = pair.now + Duration::from_micros(50);
        let (side, from) = (&mut pair.receiver, pair.sender.address);
        for (frame, len) in pair.arrived.drain(..) {
            let frame: FrameId = frame;
            side.endpoint.handle_frame(now, 0, from, frame, len, &mut side.frames);
        }
    }

    /// Steps of the receiver until no channel has work, once everything is current.
    #[inline(never)]
    pub(crate) fn reassemble(pair: &mut Pair) {
        let now = pair.now + UPSTREAM;
        let side = &mut pair.receiver;
        side.endpoint.handle_timeout(now);
        while side.endpoint.poll_step(now, &mut side.frames).is_some() {
            side.endpoint.handle_timeout(now);
        }
    }

    /// Hands over what is complete, and takes the buffers back.
    #[inline(never)]
    pub(crate) fn deliver(pair: &mut Pair) {
        let now = pair.now + UPSTREAM;
        let side = &mut pair.receiver;
        while let Some((channel, delivered, _)) = side.endpoint.poll_delivery(now) {
            side.endpoint.recycle(channel, delivered.message);
            pair.delivered += 1;
        }
    }
}

/// Why instructions cannot be counted here: the program that is missing.
pub(crate) fn missing(program: &str) -> Option<String> {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("{program} --version: {}", output.status)),
        Err(error) => Some(format!("{program}: {error}")),
    }
}
