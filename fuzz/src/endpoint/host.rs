//! One host of the world: an endpoint, its frames, and what the driver has to remember. Every call goes through
//! [`Host::call`], which checks what holds for all of them.

use std::net::SocketAddr;

use laxity_core::endpoint::{ClockConfig, Config, Endpoint, EndpointCounters, LinkConfig, SharedKey};
use laxity_core::event::{ChannelId, Name, PeerRequest};
use laxity_core::frames::MessageBuf;
use laxity_core::limits::TAG_BYTES;
use laxity_core::platform::{BestEffort, Interference, LinkModel, Starts};
use laxity_core::processor::Policy;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_core::wire::{DATA_HEADER_BYTES, MAX_CONTROL_BYTES};

use super::super::bytes::Bytes;
use super::region::Region;

/// Names that every host listens on: one for each channel that may be opened in a run.
pub const NAMES: usize = 12;
/// Frames that the channels that receive best effort share.
pub const BEST_EFFORT_FRAMES: usize = 24;
/// Frames beyond the channels' quotas, for what is on its way.
const SPARE_FRAMES: usize = 4;

pub struct Host {
    pub endpoint: Endpoint,
    pub region: Region,
    /// The time by which its clock is ahead of the world's.
    offset: u64,
    /// Requests that the driver has not answered.
    pub requests: Vec<PeerRequest>,
    /// Buffers that the application has not handed back.
    pub lent: Vec<(ChannelId, MessageBuf)>,
    /// Packets that each link takes between two looks; usually as many as there are.
    pub room: usize,
    pub restricted: bool,
    counters: EndpointCounters,
    allocations: fn() -> u64,
}

pub fn name(number: usize) -> Name {
    Name::new(&format!("c{number}")).expect("a name")
}

pub fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + host as u8], 5709))
}

impl Host {
    /// `is_keyed` is whether the hosts share a key: the first one says so for all.
    pub fn new(number: usize, bytes: &mut Bytes<'_>, is_keyed: &mut Option<bool>, allocations: fn() -> u64) -> Self {
        let shape = bytes.u8();
        let (clock, offset) = match shape & 3 {
            0 | 1 => (7, 0),
            2 => (0, 0),
            _ => (8 + number as u64, 1_000_000_000 * number as u64),
        };
        let packet = 64 + u32::from(bytes.u8()) / 2;
        let links = (0..1 + usize::from(shape >> 2 & 1)).map(|_| link(bytes)).collect();
        let frames = 8 + bytes.up_to(56) as usize;
        let interference = Interference { burst: Duration::from_micros(200), ..Interference::default() };
        let policy = bytes.u8();
        let is_keyed = *is_keyed.get_or_insert(policy & 2 != 0);
        let mut endpoint = Endpoint::new(Config {
            channels: 1 + usize::from(shape >> 3 & 7),
            frames,
            upcalls: 0,
            best_effort_frames: BEST_EFFORT_FRAMES,
            peer_clocks: ClockConfig::default(),
            packet,
            quantum: 1 + u32::from(shape >> 6),
            policy: if policy & 1 != 0 { Policy::FixedPriority } else { Policy::EarliestDeadline },
            links,
            handover: Duration::from_micros(bytes.up_to(3) * 100),
            envelope: interference,
            stretch_ppm: 1_250_000,
            clock,
            secret: 0x5eed + number as u128,
            key: is_keyed.then(|| SharedKey::new([1; 32])),
        });
        for number in 0..NAMES {
            assert!(endpoint.listen(name(number)) && !endpoint.listen(name(number)));
        }
        let capacity = (DATA_HEADER_BYTES + packet as usize + TAG_BYTES).max(MAX_CONTROL_BYTES);
        Self {
            endpoint,
            region: Region::new(frames + BEST_EFFORT_FRAMES + SPARE_FRAMES, capacity),
            offset,
            requests: Vec::new(),
            lent: Vec::new(),
            room: usize::MAX,
            restricted: false,
            counters: EndpointCounters::default(),
            allocations,
        }
    }

    /// Its own time.
    pub fn time(&self, now: u64) -> Instant {
        Instant::from_nanos(now + self.offset)
    }

    /// The world's time of an instant of its own.
    pub fn world_time(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.offset)
    }

    pub fn links(&self) -> u8 {
        self.endpoint.config().links.len() as u8
    }

    pub fn horizon(&self, link: u8) -> u64 {
        self.endpoint.config().links[usize::from(link)].horizon.as_nanos()
    }

    /// Does a call that moves at most `most` frames.
    pub fn call<R>(&mut self, most: usize, call: impl FnOnce(&mut Endpoint, &mut Region) -> R) -> R {
        let before = (self.allocations)();
        self.region.moved = 0;
        let result = call(&mut self.endpoint, &mut self.region);
        assert_eq!((self.allocations)(), before, "a call of an endpoint allocates after its set-up");
        assert!(self.region.moved as usize <= most, "{} frames were moved", self.region.moved);
        let (old, new) = (list(&self.counters), list(&self.endpoint.counters));
        assert!(old.iter().zip(new).all(|(old, new)| *old <= new), "a counter goes back");
        self.counters = self.endpoint.counters;
        result
    }

    /// Says what each link takes.
    pub fn offer_room(&mut self, now: u64) {
        let (now, room) = (self.time(now), self.room);
        for link in 0..self.links() {
            self.call(0, |endpoint, _| endpoint.handle_link_ready(now, link, room));
        }
    }
}

fn link(bytes: &mut Bytes<'_>) -> LinkConfig {
    let shape = bytes.u8();
    let model = match shape & 3 {
        0 => LinkModel::UNLIMITED,
        slow => LinkModel {
            setup: Duration::from_micros(10 * u64::from(slow)),
            rate: Rate::bytes_per_second(10_000_000 >> slow),
            overhead_bytes: DATA_HEADER_BYTES as u32,
            floor_bytes: 32 * u32::from(slow),
            spacing: Duration::ZERO,
        },
    };
    let policed = Starts { burst: 1 + u32::from(shape >> 7), spacing: Duration::from_micros(500) };
    LinkConfig {
        model,
        look_ahead: Duration::from_micros([0, 50, 400, 5_000][usize::from(shape >> 2 & 3)]),
        // Less than any burst and upstream together may be ahead.
        horizon: Duration::from_micros([0, 0, 100, 900][usize::from(shape >> 4 & 3)]),
        best_effort: match shape >> 6 & 1 {
            0 => BestEffort::UNLIMITED,
            _ => BestEffort { message_packets: 20, packet_min: 40, packet_max: 100, starts: Some(policed) },
        },
    }
}

fn list(counters: &EndpointCounters) -> [u64; 8] {
    let c = counters;
    [
        c.foreign,
        c.other_version,
        c.unknown_channel,
        c.control_invalid,
        c.control_overflow,
        c.stamps_clamped,
        c.unauthenticated,
        c.replayed,
    ]
}
