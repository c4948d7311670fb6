//! One wire in virtual time, without I/O: the same seed and the same calls give the same arrivals, on every machine, for ever.
//!
//! A packet waits in a queue, occupies the wire for `L_x(s)` of its [`LinkModel`] [channels §3.3], then travels: propagation
//! plus a uniform jitter. It may be lost, doubled, corrupted by one byte, or overtake. [channels §5.1] measures on such a link.
//!
//! Integers only, no clock, no hash maps, no allocation after [`EmulatedLink::new`]. Two endpoints need two wires.
//!
//! Randomness: every accepted packet draws the same number of values in the same order, whatever happens to it. So a change of
//! one probability does not change anything else for the other packets.
//!
//! ```
//! use std::net::SocketAddr;
//! use laxity_core::platform::LinkModel;
//! use laxity_core::units::{Duration, Instant, Rate};
//! use laxity_link::emulated::{EmulatedConfig, EmulatedLink};
//!
//! let model = LinkModel { rate: Rate::bytes_per_second(1_000_000), ..LinkModel::UNLIMITED };
//! let mut wire = EmulatedLink::new(&EmulatedConfig::ideal(model, Duration::from_micros(50)), 1)?;
//! let (a, b) = (SocketAddr::from(([192, 0, 2, 1], 1)), SocketAddr::from(([192, 0, 2, 2], 2)));
//! let sent = wire.transmit(Instant::ZERO, &[7; 100], a, b).unwrap();
//! assert_eq!(sent, Instant::from_nanos(100_000)); // 100 bytes at 1 MB/s
//! assert_eq!(wire.next_arrival(), Some(Instant::from_nanos(150_000)));
//! let mut out = [0; 1400];
//! assert_eq!(wire.poll_arrival(Instant::from_nanos(149_999), &mut out), None);
//! assert_eq!(wire.poll_arrival(Instant::from_nanos(150_000), &mut out), Some((100, a, b)));
//! # Ok::<(), laxity_link::emulated::EmulatedConfigError>(())
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use laxity_core::platform::LinkModel;
use laxity_core::units::{Duration, Instant};

use crate::OutOfRange;

/// A million: the probability one, in parts per million.
pub const PPM: u32 = 1_000_000;

/// The properties of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedConfig {
    /// The time for which a packet occupies the wire.
    pub model: LinkModel,
    /// From the end of a transmission to the arrival.
    pub propagation: Duration,
    /// Added to each arrival: uniform in 0 to this, both included.
    pub jitter: Duration,
    /// True if jitter may let a packet overtake. If not, arrivals are in the order of transmission, and a packet that jitter
    /// holds up holds up those behind it.
    pub reorder: bool,
    /// Packets that get lost after they have occupied the wire, per million.
    pub loss_ppm: u32,
    /// Packets of which a second copy arrives, with a jitter of its own, per million. The copy does not occupy the wire.
    pub duplication_ppm: u32,
    /// Packets with one byte changed, per million. Both copies of a doubled packet are changed.
    pub corruption_ppm: u32,
    /// The largest number of packets that are handed over and not yet sent completely: 1 to 2²⁰. A further one is refused.
    pub queue_packets: usize,
    /// The largest number of packets that exist at a time, queued, in transit or arrived, copies included: 1 to 2²⁰.
    pub capacity: usize,
    /// Bytes of the longest packet: 1 to 65,535.
    pub packet_bytes: usize,
}

impl EmulatedConfig {
    /// A wire without faults or jitter, with room for 1024 packets of at most 65,535 bytes (64 MiB), all of which may queue.
    pub const fn ideal(model: LinkModel, propagation: Duration) -> Self {
        Self {
            model,
            propagation,
            jitter: Duration::ZERO,
            reorder: false,
            loss_ppm: 0,
            duplication_ppm: 0,
            corruption_ppm: 0,
            queue_packets: 1024,
            capacity: 1024,
            packet_bytes: 65_535,
        }
    }

    fn validate(&self) -> Result<(), EmulatedConfigError> {
        let ppm = u64::from(PPM);
        for (field, found, least, most) in [
            ("loss_ppm", self.loss_ppm.into(), 0, ppm),
            ("duplication_ppm", self.duplication_ppm.into(), 0, ppm),
            ("corruption_ppm", self.corruption_ppm.into(), 0, ppm),
            ("queue_packets", self.queue_packets as u64, 1, 1 << 20),
            ("capacity", self.capacity as u64, 1, 1 << 20),
            ("packet_bytes", self.packet_bytes as u64, 1, 65_535),
        ] {
            OutOfRange::check(field, found, least, most).map_err(EmulatedConfigError)?;
        }
        Ok(())
    }
}

/// The parameter of an emulated wire that is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("emulated link: {0}")]
pub struct EmulatedConfigError(pub OutOfRange);

/// The reason why a wire did not take a packet. The packet is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireRefusal {
    /// The queue is full (tail drop).
    #[error("the wire's queue is full")]
    QueueFull,
    /// `capacity` packets exist already: the receiver does not collect, or the wire is too long for its configuration.
    #[error("the wire has no free packet slot")]
    NoSlot,
    /// It is longer than `packet_bytes`.
    #[error("the packet is longer than the wire carries")]
    TooLarge,
}

/// The outcomes of the packets. At any time
/// `offered = accepted + dropped_queue + dropped_slots + dropped_too_large` and
/// `accepted + duplicated = delivered + lost + dropped_truncated + in_flight()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulatedCounters {
    /// Packets given to `transmit`.
    pub offered: u64,
    /// Those that the wire took.
    pub accepted: u64,
    /// Refused because the queue was full.
    pub dropped_queue: u64,
    /// Refused because no packet slot was free.
    pub dropped_slots: u64,
    /// Refused because they were too long.
    pub dropped_too_large: u64,
    /// Lost in transit.
    pub lost: u64,
    /// Second copies that were made.
    pub duplicated: u64,
    /// Accepted packets of which one byte was changed, and which were not lost.
    pub corrupted: u64,
    /// Arrivals that were given out.
    pub delivered: u64,
    /// Arrivals that did not fit into the receiver's buffer.
    pub dropped_truncated: u64,
}

/// A directed wire. The driver gives it packets and the time, and asks for arrivals; times should not go back.
pub struct EmulatedLink {
    config: EmulatedConfig,
    random: SplitMix64,
    busy_until: Instant,
    last_arrival: Instant,
    /// The time at which each packet of the queue will have left; ascending.
    leaving: VecDeque<Instant>,
    /// Earliest arrival first; the order of transmission breaks ties.
    under_way: BinaryHeap<Reverse<FlyingPacket>>,
    sequence: u64,
    free: Vec<u32>,
    slots: Vec<PacketSlot>,
    memory: Vec<u8>,
    /// The outcomes of the packets.
    pub counters: EmulatedCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlyingPacket {
    arrival: Instant,
    sequence: u64,
    slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct PacketSlot {
    len: usize,
    from: SocketAddr,
    to: SocketAddr,
}

impl EmulatedLink {
    /// A quiet wire. Allocates `capacity · packet_bytes` bytes.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    ///
    /// # Panics
    /// If the packets do not fit the address space.
    pub fn new(config: &EmulatedConfig, seed: u64) -> Result<Self, EmulatedConfigError> {
        config.validate()?;
        let unset = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let bytes = config.capacity.checked_mul(config.packet_bytes).expect("the packets fit the address space");
        let count = u32::try_from(config.capacity).expect("checked to be at most 2^20");
        Ok(Self {
            config: *config,
            random: SplitMix64(seed),
            busy_until: Instant::ZERO,
            last_arrival: Instant::ZERO,
            leaving: VecDeque::with_capacity(config.queue_packets),
            under_way: BinaryHeap::with_capacity(config.capacity),
            sequence: 0,
            free: (0..count).rev().collect(),
            slots: vec![PacketSlot { len: 0, from: unset, to: unset }; config.capacity],
            memory: vec![0; bytes],
            counters: EmulatedCounters::default(),
        })
    }

    /// Changes the treatment of packets from now on to that of `config`: its propagation, jitter, order, loss, duplication and corruption.
    /// Packets in transit arrive as they would have. The time for which a packet occupies the wire, and the number that may queue, stay as
    /// they are; a larger `capacity` allocates the additional memory.
    ///
    /// # Errors
    /// The first parameter that is out of range; nothing changes then.
    pub fn set_way(&mut self, config: &EmulatedConfig) -> Result<(), EmulatedConfigError> {
        config.validate()?;
        let EmulatedConfig { model, queue_packets, capacity, packet_bytes, .. } = self.config;
        let more = config.capacity.max(capacity);
        self.free.extend((capacity..more).filter_map(|slot| u32::try_from(slot).ok()).rev());
        let unset = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.slots.resize(more, PacketSlot { len: 0, from: unset, to: unset });
        self.memory.resize(more * packet_bytes, 0);
        self.config = EmulatedConfig { model, queue_packets, capacity: more, packet_bytes, ..*config };
        Ok(())
    }

    /// Packets that [`transmit`](Self::transmit) would take now.
    pub fn room(&self, now: Instant) -> usize {
        let gone = self.leaving.partition_point(|&end| end <= now);
        (self.config.queue_packets - (self.leaving.len() - gone)).min(self.free.len())
    }

    /// The time at which all that was accepted so far will have left; in the past if the wire is idle.
    pub fn busy_until(&self) -> Instant {
        self.busy_until
    }

    /// Takes a packet and returns when its transmission ends, whether or not it will arrive.
    ///
    /// # Errors
    /// The reason why it was dropped. A dropped packet draws no random value.
    pub fn transmit(
        &mut self,
        now: Instant,
        bytes: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> Result<Instant, WireRefusal> {
        self.counters.offered += 1;
        while self.leaving.front().is_some_and(|&end| end <= now) {
            self.leaving.pop_front();
        }
        let len = match u32::try_from(bytes.len()) {
            Ok(len) if bytes.len() <= self.config.packet_bytes => len,
            _ => {
                self.counters.dropped_too_large += 1;
                return Err(WireRefusal::TooLarge);
            }
        };
        if self.leaving.len() >= self.config.queue_packets {
            self.counters.dropped_queue += 1;
            return Err(WireRefusal::QueueFull);
        }
        let Some(slot) = self.free.pop() else {
            self.counters.dropped_slots += 1;
            return Err(WireRefusal::NoSlot);
        };
        self.counters.accepted += 1;
        let end = self.busy_until.max(now) + self.config.model.occupancy(len);
        self.busy_until = end;
        self.leaving.push_back(end);

        // Always all seven, in this order.
        let lost = self.random.chance(self.config.loss_ppm);
        let doubled = self.random.chance(self.config.duplication_ppm);
        let corrupted = self.random.chance(self.config.corruption_ppm);
        let place = self.random.up_to(u64::from(len.max(1)) - 1);
        let flip = self.random.up_to(254) + 1;
        let jitters = [self.jitter(), self.jitter()];

        if lost {
            self.counters.lost += 1;
            self.free.push(slot);
            return Ok(end);
        }
        let area = self.area(slot);
        self.memory[area..][..bytes.len()].copy_from_slice(bytes);
        if corrupted && len > 0 {
            self.counters.corrupted += 1;
            self.memory[area + place as usize] ^= flip as u8;
        }
        self.slots[slot as usize] = PacketSlot { len: bytes.len(), from, to };
        self.send_off(slot, end, jitters[0]);
        if doubled && let Some(copy) = self.free.pop() {
            self.counters.duplicated += 1;
            let target = self.area(copy);
            self.memory.copy_within(area..area + bytes.len(), target);
            self.slots[copy as usize] = self.slots[slot as usize];
            self.send_off(copy, end, jitters[1]);
        }
        Ok(end)
    }

    /// The time at which the next packet arrives, if one is under way.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.under_way.peek().map(|Reverse(flight)| flight.arrival)
    }

    /// The next packet that has arrived by `now`: writes it to the start of `out` and returns its length, its sender and its destination.
    ///
    /// A packet longer than `out` is dropped and counted, as a socket would; then the next one is looked at.
    pub fn poll_arrival(&mut self, now: Instant, out: &mut [u8]) -> Option<(usize, SocketAddr, SocketAddr)> {
        while self.next_arrival().is_some_and(|arrival| arrival <= now) {
            let Reverse(flight) = self.under_way.pop()?;
            let PacketSlot { len, from, to } = self.slots[flight.slot as usize];
            let area = self.area(flight.slot);
            self.free.push(flight.slot);
            if let Some(out) = out.get_mut(..len) {
                out.copy_from_slice(&self.memory[area..][..len]);
                self.counters.delivered += 1;
                return Some((len, from, to));
            }
            self.counters.dropped_truncated += 1;
        }
        None
    }

    /// Packets that were accepted or doubled and not yet given out.
    pub fn in_flight(&self) -> usize {
        self.under_way.len()
    }

    fn area(&self, slot: u32) -> usize {
        slot as usize * self.config.packet_bytes
    }

    fn jitter(&mut self) -> Duration {
        Duration::from_nanos(self.random.up_to(self.config.jitter.as_nanos()))
    }

    fn send_off(&mut self, slot: u32, end: Instant, jitter: Duration) {
        let mut arrival = end + self.config.propagation + jitter;
        if !self.config.reorder {
            arrival = arrival.max(self.last_arrival);
            self.last_arrival = arrival;
        }
        self.under_way.push(Reverse(FlyingPacket { arrival, sequence: self.sequence, slot }));
        self.sequence += 1;
    }
}

/// The random numbers of everything that is simulated, by a seed: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators" (2014). It is our own code, because a seed must always mean the same.
#[derive(Clone, Debug, Default)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next one: all 64 bits are random.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Self::mix(self.0)
    }
    /// Uniform in 0 to `most`, both included, up to a bias of `most` / 2⁶⁴.
    pub fn up_to(&mut self, most: u64) -> u64 {
        ((u128::from(self.next()) * (u128::from(most) + 1)) >> 64) as u64
    }
    /// True once in `times` draws; not zero.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.up_to(times - 1) == 0
    }
    /// One of these, of which there must be at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.up_to(from.len() as u64 - 1) as usize]
    }
    /// Maps each word to another word that looks random.
    pub fn mix(mut word: u64) -> u64 {
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
    fn chance(&mut self, ppm: u32) -> bool {
        self.up_to(u64::from(PPM) - 1) < u64::from(ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laxity_core::units::Rate;
    use proptest::prelude::*;

    fn ends() -> (SocketAddr, SocketAddr) {
        (SocketAddr::from(([192, 0, 2, 1], 1)), SocketAddr::from(([192, 0, 2, 2], 2)))
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// 1 byte per µs, setup 10 µs, 20 bytes of overhead, floor 64 bytes.
    fn slow() -> LinkModel {
        LinkModel {
            setup: Duration::from_micros(10),
            rate: Rate::bytes_per_second(1_000_000),
            overhead_bytes: 20,
            floor_bytes: 64,
            spacing: Duration::ZERO,
        }
    }

    fn faulty() -> EmulatedConfig {
        EmulatedConfig {
            jitter: Duration::from_micros(700),
            reorder: true,
            loss_ppm: 100_000,
            duplication_ppm: 50_000,
            corruption_ppm: 20_000,
            packet_bytes: 128,
            queue_packets: 16,
            capacity: 64,
            ..EmulatedConfig::ideal(slow(), Duration::from_micros(500))
        }
    }

    type Trace = Vec<(Instant, Vec<u8>)>;

    /// Offers `count` packets, one each `gap`, and collects as they arrive; checks conservation meanwhile.
    fn run(config: &EmulatedConfig, seed: u64, count: u64, gap: Duration) -> (Trace, EmulatedCounters) {
        let mut wire = EmulatedLink::new(config, seed).unwrap();
        let (from, to) = ends();
        let (mut trace, mut out, mut now) = (Vec::new(), [0; 256], Instant::ZERO);
        for number in 0..count {
            let mut packet = [number as u8; 100];
            packet[..8].copy_from_slice(&number.to_le_bytes());
            let room = wire.room(now);
            let taken = wire.transmit(now, &packet[..8 + (number % 93) as usize], from, to);
            assert_eq!(taken.is_ok(), room > 0);
            now += gap;
            while let Some(arrival) = wire.next_arrival().filter(|&arrival| arrival <= now) {
                let (len, ..) = wire.poll_arrival(arrival, &mut out).unwrap();
                trace.push((arrival, out[..len].to_vec()));
            }
            let c = wire.counters;
            assert_eq!(c.offered, c.accepted + c.dropped_queue + c.dropped_slots + c.dropped_too_large);
            assert_eq!(c.accepted + c.duplicated, c.delivered + c.lost + c.dropped_truncated + wire.in_flight() as u64);
        }
        while let Some(arrival) = wire.next_arrival() {
            let (len, ..) = wire.poll_arrival(arrival, &mut out).unwrap();
            trace.push((arrival, out[..len].to_vec()));
        }
        assert_eq!(wire.free.len(), config.capacity);
        (trace, wire.counters)
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // The reference values for the seed 1234567.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(random.next(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_and_another_another() {
        let gap = Duration::from_micros(100);
        assert_eq!(run(&faulty(), 7, 2000, gap), run(&faulty(), 7, 2000, gap));
        assert_ne!(run(&faulty(), 7, 2000, gap).0, run(&faulty(), 8, 2000, gap).0);
    }

    #[test]
    fn loss_and_the_other_faults_come_as_often_as_asked() {
        let (_, counters) = run(&faulty(), 3, 20_000, Duration::from_millis(1));
        assert_eq!(counters.accepted, 20_000);
        // Five standard deviations of the binomial distribution on each side.
        assert!((1_788..=2_212).contains(&counters.lost), "{counters:?}");
        // Of the 18,000 that are not lost.
        assert!((750..=1_050).contains(&counters.duplicated), "{counters:?}");
        assert!((265..=455).contains(&counters.corrupted), "{counters:?}");
    }

    #[test]
    fn certain_and_impossible_faults_are_certain_and_impossible() {
        let never = EmulatedConfig { loss_ppm: 0, duplication_ppm: 0, corruption_ppm: 0, ..faulty() };
        let (trace, counters) = run(&never, 1, 1000, Duration::from_millis(1));
        assert_eq!((trace.len(), counters.delivered, counters.corrupted), (1000, 1000, 0));
        let always = EmulatedConfig { duplication_ppm: PPM, corruption_ppm: PPM, ..never };
        let (trace, counters) = run(&always, 1, 1000, Duration::from_millis(1));
        assert_eq!((trace.len(), counters.duplicated, counters.corrupted), (2000, 1000, 1000));
        let (trace, counters) = run(&EmulatedConfig { loss_ppm: PPM, ..always }, 1, 1000, Duration::from_millis(1));
        assert_eq!((trace.len(), counters.lost), (0, 1000));
    }

    #[test]
    fn a_way_that_changes_changes_what_is_sent_from_then_on() {
        let quiet = EmulatedConfig::ideal(slow(), Duration::from_micros(500));
        let mut wire = EmulatedLink::new(&quiet, 5).unwrap();
        let ((from, to), mut out) = (ends(), [0; 256]);
        wire.transmit(at(0), &[1; 100], from, to).unwrap();
        // 10 + 120 us a packet. The model of the other configuration is not looked at.
        let far = EmulatedConfig {
            propagation: Duration::from_micros(900),
            ..EmulatedConfig::ideal(LinkModel::UNLIMITED, Duration::ZERO)
        };
        wire.set_way(&far).unwrap();
        wire.transmit(at(0), &[2; 100], from, to).unwrap();
        wire.set_way(&EmulatedConfig { loss_ppm: PPM, ..quiet }).unwrap();
        wire.transmit(at(0), &[3; 100], from, to).unwrap();
        assert!(wire.set_way(&EmulatedConfig { loss_ppm: PPM + 1, ..quiet }).is_err());
        wire.set_way(&quiet).unwrap();
        wire.transmit(at(0), &[4; 100], from, to).unwrap();
        let mut arrivals = Vec::new();
        while let Some(arrival) = wire.next_arrival() {
            wire.poll_arrival(arrival, &mut out).unwrap();
            arrivals.push((out[0], arrival.as_nanos() / 1_000));
        }
        // The fourth, sent by 520 us, waits for the second, which was slower.
        assert_eq!(arrivals, [(1, 630), (2, 1_160), (4, 1_160)]);
    }

    #[test]
    fn corruption_changes_exactly_one_byte() {
        let config =
            EmulatedConfig { corruption_ppm: PPM, ..EmulatedConfig::ideal(LinkModel::UNLIMITED, Duration::ZERO) };
        let mut wire = EmulatedLink::new(&config, 5).unwrap();
        let (from, to) = ends();
        for len in 1..200 {
            wire.transmit(Instant::ZERO, &vec![0xaa; len], from, to).unwrap();
            let mut out = [0; 256];
            assert_eq!(wire.poll_arrival(Instant::ZERO, &mut out), Some((len, from, to)));
            assert_eq!(out[..len].iter().filter(|&&byte| byte != 0xaa).count(), 1);
        }
        wire.transmit(Instant::ZERO, &[], from, to).unwrap();
        assert_eq!(wire.poll_arrival(Instant::ZERO, &mut []), Some((0, from, to)));
    }

    #[test]
    fn a_change_of_one_probability_leaves_the_others_alone() {
        let times = |config: &EmulatedConfig| -> Vec<_> {
            run(config, 11, 500, Duration::from_millis(1)).0.into_iter().map(|(time, _)| time).collect()
        };
        let clean = EmulatedConfig { loss_ppm: 0, duplication_ppm: 0, corruption_ppm: 0, ..faulty() };
        assert_eq!(times(&clean), times(&EmulatedConfig { corruption_ppm: PPM, ..clean }));
    }

    #[test]
    fn pacing_is_exact() {
        let mut wire = EmulatedLink::new(&EmulatedConfig::ideal(slow(), Duration::from_micros(5)), 0).unwrap();
        let (from, to) = ends();
        // 100 + 20 bytes at 1 byte/µs after 10 µs of setup: 130 µs.
        assert_eq!(wire.transmit(at(1_000), &[0; 100], from, to), Ok(at(131_000)));
        // At once behind it, and below the floor: 64 + 20 bytes, 94 µs.
        assert_eq!(wire.transmit(at(2_000), &[0; 1], from, to), Ok(at(225_000)));
        // After a pause.
        assert_eq!(wire.transmit(at(300_000), &[0; 64], from, to), Ok(at(394_000)));
        assert_eq!(wire.busy_until(), at(394_000));
        let mut out = [0; 128];
        for (arrival, len) in [(136_000, 100), (230_000, 1), (399_000, 64)] {
            assert_eq!(wire.next_arrival(), Some(at(arrival)));
            assert_eq!(wire.poll_arrival(at(arrival - 1), &mut out), None);
            assert_eq!(wire.poll_arrival(at(arrival), &mut out), Some((len, from, to)));
        }
        assert_eq!(wire.next_arrival(), None);
    }

    #[test]
    fn the_papers_link_carries_a_packet_in_245_microseconds() {
        // Table 2b: 40.2 µs + 4096 B / 20 MB/s.
        let model = laxity_core::platform::Platform::channels_table_2b().link;
        let mut wire = EmulatedLink::new(&EmulatedConfig::ideal(model, Duration::ZERO), 0).unwrap();
        let (from, to) = ends();
        assert_eq!(wire.transmit(Instant::ZERO, &[0; 4096], from, to), Ok(at(245_000)));
    }

    #[test]
    fn tail_drops_are_counted_and_room_tells_them() {
        let config = EmulatedConfig { queue_packets: 3, ..EmulatedConfig::ideal(slow(), Duration::ZERO) };
        let mut wire = EmulatedLink::new(&config, 0).unwrap();
        let (from, to) = ends();
        for left in (0..3).rev() {
            wire.transmit(Instant::ZERO, &[0; 64], from, to).unwrap();
            assert_eq!(wire.room(Instant::ZERO), left);
        }
        assert_eq!(wire.transmit(Instant::ZERO, &[0; 64], from, to), Err(WireRefusal::QueueFull));
        // The first one has left at 94 µs.
        assert_eq!((wire.room(at(93_999)), wire.room(at(94_000))), (0, 1));
        assert_eq!(wire.transmit(at(94_000), &[0; 64], from, to), Ok(at(4 * 94_000)));
        assert_eq!(wire.counters.dropped_queue, 1);
    }

    #[test]
    fn slots_and_sizes_are_bounded() {
        let config = EmulatedConfig {
            capacity: 1,
            packet_bytes: 10,
            duplication_ppm: PPM,
            ..EmulatedConfig::ideal(LinkModel::UNLIMITED, Duration::ZERO)
        };
        let mut wire = EmulatedLink::new(&config, 0).unwrap();
        let (from, to) = ends();
        assert_eq!(wire.transmit(Instant::ZERO, &[0; 11], from, to), Err(WireRefusal::TooLarge));
        assert_eq!(wire.transmit(Instant::ZERO, &[1; 10], from, to), Ok(Instant::ZERO));
        assert_eq!(wire.room(Instant::ZERO), 0);
        assert_eq!(wire.transmit(Instant::ZERO, &[2; 10], from, to), Err(WireRefusal::NoSlot));
        assert_eq!(wire.poll_arrival(Instant::ZERO, &mut [0; 9]), None);
        let counters = wire.counters;
        assert_eq!((counters.dropped_truncated, counters.duplicated), (1, 0));
        assert_eq!(wire.room(Instant::ZERO), 1);
        let bad = EmulatedConfig { loss_ppm: PPM + 1, ..config };
        let text = EmulatedLink::new(&bad, 0).map(drop).unwrap_err().to_string();
        assert_eq!(text, "emulated link: loss_ppm is 1000001, expected 0 to 1000000");
    }

    #[test]
    fn jitter_overtakes_only_where_it_may() {
        let order = |reorder| {
            let config = EmulatedConfig { reorder, loss_ppm: 0, duplication_ppm: 0, corruption_ppm: 0, ..faulty() };
            let (trace, _) = run(&config, 2, 500, Duration::from_micros(200));
            assert_eq!(trace.len(), 500);
            assert!(trace.is_sorted_by_key(|&(arrival, _)| arrival));
            trace.into_iter().map(|(_, packet)| u64::from_le_bytes(packet[..8].try_into().unwrap())).is_sorted()
        };
        assert!(order(false));
        assert!(!order(true));
    }

    proptest! {
        /// `run` checks conservation after each packet; here for any wire.
        #[test]
        fn nothing_is_made_or_lost_unaccounted(
            seed: u64,
            (loss_ppm, duplication_ppm) in (0..=PPM, 0..=PPM),
            (queue_packets, capacity) in (1usize..20, 1usize..20),
            (jitter, gap) in (0u64..1_000_000, 0u64..200_000),
            reorder: bool,
        ) {
            let jitter = Duration::from_nanos(jitter);
            let config =
                EmulatedConfig { loss_ppm, duplication_ppm, queue_packets, capacity, jitter, reorder, ..faulty() };
            let (trace, counters) = run(&config, seed, 200, Duration::from_nanos(gap));
            prop_assert_eq!(trace.len() as u64, counters.delivered);
            prop_assert!(trace.is_sorted_by_key(|&(arrival, _)| arrival));
        }
    }
}
