//! Frames as a network may bring them: valid ones, and mutants of those.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use laxity_core::units::Instant;
use laxity_core::wire::{Control, DATA_HEADER_BYTES, DataHeader, Keepalive, MAX_CONTROL_BYTES};

use super::differential::target::{CHANNELS, HERE, LARGEST, MAC, PORT, SENT_TO, VLAN, address};
use crate::xdp::headers::Template;

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A fragment of a message of `message_bytes` bytes in packets of `packet` bytes.
pub(super) fn packet((channel, key): (u32, u64), message_bytes: u32, packet: u32, index: u16) -> Vec<u8> {
    let payload = message_bytes.saturating_sub(u32::from(index) * packet).clamp(1, packet) as u16;
    let (sequence, logical_arrival) = (7, Instant::from_nanos(1_000_000));
    let (stolen_units, waited_micros) = (3, 5);
    let header = DataHeader {
        channel,
        key,
        message_bytes,
        sequence,
        logical_arrival,
        index,
        payload,
        stolen_units,
        waited_micros,
        ahead_micros: 9,
        ..DataHeader::default()
    };
    let mut bytes = vec![0xA5; header.frame_bytes()];
    header.write(&mut bytes).unwrap();
    bytes
}

/// A control frame.
pub(super) fn control(channel: u32, key: u64) -> Vec<u8> {
    let mut bytes = [0; MAX_CONTROL_BYTES];
    let len =
        Control::Keepalive(Keepalive { channel, key, sent: 9, ..Keepalive::default() }).write(77, &mut bytes).unwrap();
    bytes[..len].to_vec()
}

/// `packet` from `source` to `destination`, headers first.
pub(super) fn frame(source: SocketAddr, destination: SocketAddr, vlan: Option<u16>, packet: &[u8]) -> Vec<u8> {
    let template = Template::new((OTHER_MAC, source), (MAC, destination), vlan, 0).unwrap();
    let mut frame = vec![0; template.len()];
    template.write(&mut frame, packet);
    frame.extend(packet);
    frame
}

/// Our address of the peer's family, and its scope if it has one.
fn here(peer: SocketAddr) -> SocketAddr {
    let here = match peer.ip() {
        IpAddr::V4(_) => HERE[0],
        IpAddr::V6(peer) if peer.is_unicast_link_local() => HERE[2],
        IpAddr::V6(_) => HERE[1],
    };
    SocketAddr::new(here.parse().unwrap(), PORT)
}

type Make = fn() -> Vec<u8>;

/// Frames that the program and the host's reader or the model did not judge alike, or that want care. They are in the corpus, too.
pub(super) const NAMED: [(&str, Make); 8] = [
    // An address of IPv6 that the program has for one of IPv4's; a peer's packet by no way of its own.
    ("mapped", || {
        let source = SocketAddr::new("::ffff:192.0.2.1".parse().unwrap(), 40000);
        frame(
            source,
            SocketAddr::new("::ffff:192.0.2.9".parse().unwrap(), PORT),
            None,
            &packet((0, 0x0102_0304_0506_0708), 10, 1000, 0),
        )
    }),
    // A request from the broadcast address would be answered to all hosts.
    ("broadcast", || frame(address("255.255.255.255:5709"), here(address("192.0.2.1:1")), None, &control(1, 1))),
    ("unspecified", || frame(address("[::]:5709"), here(address("[2001:db8::1]:1")), None, &control(1, 1))),
    ("group", || frame(address("[ff02::1]:5709"), here(address("[2001:db8::1]:1")), None, &control(1, 1))),
    // A tag that only has a priority.
    ("priority", || {
        let mut frame = frame(
            address(CHANNELS[0].1),
            here(address(CHANNELS[0].1)),
            Some(1),
            &packet((0, 0x0102_0304_0506_0708), 10, 1000, 0),
        );
        frame[14..16].copy_from_slice(&0xE000u16.to_be_bytes());
        frame
    }),
    // Another version's packet; only its control frames are answered.
    ("version", || {
        let mut packet = packet((0, 0x0102_0304_0506_0708), 10, 1000, 0);
        packet[2] = 1;
        frame(address(CHANNELS[0].1), here(address(CHANNELS[0].1)), None, &packet)
    }),
    ("version of control", || {
        let mut packet = control(1, 1);
        packet[2] = 1;
        frame(address(CHANNELS[0].1), here(address(CHANNELS[0].1)), None, &packet)
    }),
    ("nothing", || frame(address(CHANNELS[1].1), here(address(CHANNELS[1].1)), None, &[])),
];

/// A source of choices (SplitMix64).
struct SeededChoices(u64);

impl SeededChoices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Frames without end.
pub(super) struct MutatedFrames(SeededChoices);

impl MutatedFrames {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededChoices(seed))
    }

    /// A frame that some channel expects, a control frame of some peer, or what is near to either.
    fn valid(&mut self) -> Vec<u8> {
        let choices = &mut self.0;
        let vlan = choices.of(&[None, None, Some(VLAN), Some(VLAN), Some(6)]);
        let (place, peer, key, _, size, most) = choices.of(&CHANNELS);
        let mut peer = address(peer);
        let packet = match choices.below(8) {
            0 => {
                if choices.one_in(2) {
                    peer = choices.of(&[address(SENT_TO.1), address("203.0.113.1:9"), address("[2001:db8::7]:9")]);
                }
                control(place, key)
            }
            // Around the largest, around whole packets, and anything that fits a frame of the network.
            kind => {
                let size = size.min(1400);
                let bytes = match kind {
                    1 => most + 1,
                    2 => most,
                    3 => size.min(most),
                    4 => (size + 1).min(most),
                    _ => 1 + choices.below(most as usize) as u32,
                };
                let packets = bytes.div_ceil(size) as usize;
                let index = choices.of(&[0, packets - 1, choices.0 as usize % packets, packets]);
                packet((place, key), bytes.min(16 << 20), size, index.min(65535) as u16)
            }
        };
        frame(peer, here(peer), vlan, &packet)
    }

    /// One change of a frame; some know where its fields are.
    fn mutate(&mut self, frame: &mut Vec<u8>) {
        let places = FrameOffsets::of(frame);
        let choices = &mut self.0;
        match choices.below(15) {
            0 | 1 => {
                let at = choices.below(frame.len().clamp(1, 120));
                let bit = 1 << choices.below(8);
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= bit;
                }
            }
            2 => frame.truncate(choices.below(frame.len() + 1)),
            3 => frame.truncate(frame.len().saturating_sub(choices.below(4))),
            4 => frame.extend((0..choices.below(20)).map(|_| 0)),
            5 => {
                let len = usize::from(LARGEST) + choices.below(3);
                frame.resize(len - 1, 0);
            }
            // Tags: another, one more, none, or of another kind.
            6 => {
                let tag = choices.of(&[0, 0xE000, VLAN, VLAN | 0xF000, 6, 0xFFF]).to_be_bytes();
                let kind: [u8; 2] = choices.of(&[0x8100u16, 0x8100, 0x88A8]).to_be_bytes();
                match choices.below(3) {
                    0 if places.ip == 18 && frame.len() > 18 => drop(frame.drain(12..16)),
                    1 if places.ip == 18 => put(frame, 14, &tag),
                    _ if frame.len() > 14 => drop(frame.splice(12..12, [kind[0], kind[1], tag[0], tag[1]])),
                    _ => {}
                }
            }
            7 => {
                let mac = choices.of(&[[0xFF; 6], OTHER_MAC, [1, 0, 0x5E, 0, 0, 1], MAC]);
                put(frame, 0, &mac);
            }
            // Lengths, of IP, UDP, and the packet's.
            8 => {
                let at = choices.of(&[places.length, places.udp + 4, places.packet + 38, places.packet + 34]);
                let change = choices.of(&[1, 0xFFFF, 8, 0xFFF8, 0x8000, 4, 20]);
                let before = frame.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
                put(frame, at, &before.wrapping_add(change).to_be_bytes());
            }
            // Addresses and ports.
            9 => {
                let words =
                    [HERE[0], HERE[1], HERE[2], "192.0.2.1", "2001:db8::1", "0.0.0.0", "127.0.0.1", "224.0.0.1"];
                let more = [
                    "::1",
                    "::",
                    "::ffff:192.0.2.1",
                    "::ffff:192.0.2.9",
                    "ff02::1",
                    "fe80::1",
                    "255.255.255.255",
                    "192.0.2.3",
                ];
                let ip: IpAddr = choices.of(&[words, more].concat()).parse().unwrap();
                let is_source = choices.one_in(2);
                match (ip, places.is_v4) {
                    (IpAddr::V4(ip), true) => put(frame, places.ip + if is_source { 12 } else { 16 }, &ip.octets()),
                    (IpAddr::V4(ip), false) => {
                        let ip: Ipv6Addr = ip.to_ipv6_mapped();
                        put(frame, places.ip + if is_source { 8 } else { 24 }, &ip.octets());
                    }
                    (IpAddr::V6(ip), false) => put(frame, places.ip + if is_source { 8 } else { 24 }, &ip.octets()),
                    (IpAddr::V6(_), true) => {}
                }
            }
            10 => {
                let port = choices.of(&[PORT, 40000, 1, 0, PORT.swap_bytes(), 65535]);
                put(frame, places.udp + choices.of(&[0, 0, 2]), &port.to_be_bytes());
            }
            // The prefix.
            11 => {
                let at = places.packet + choices.below(4);
                let byte = choices.of(&[0, 1, 2, 3, 0x4C, 0x58, 0xFF]);
                put(frame, at, &[byte]);
            }
            // The header's words: channel, key, message, index and payload.
            12 => {
                let (place, _, key, _, size, most) = choices.of(&CHANNELS);
                let at = places.packet + choices.of(&[4, 8, 12, 32, 36]);
                let some = [
                    place,
                    key as u32,
                    (key >> 32) as u32,
                    size,
                    most,
                    most + 1,
                    0,
                    1,
                    u32::MAX,
                    1024,
                    1023,
                    16 << 20,
                    (16 << 20) + 1,
                    key.swap_bytes() as u32,
                ];
                put(frame, at, &choices.of(&some).to_be_bytes());
            }
            // What may stand between the headers of IP and UDP: options, or extension headers.
            13 if frame.len() >= places.udp => {
                if places.is_v4 {
                    let words = 1 + choices.below(10);
                    frame[places.ip] = 0x45 + words as u8;
                    frame.splice(places.udp..places.udp, std::iter::repeat_n(1, 4 * words));
                } else {
                    for _ in 0..choices.of(&[1, 1, 2, 4, 5]) {
                        let (kind, more) =
                            choices.of(&[(0, 0), (60, 1), (43, 2), (44, 0), (44, 0), (51, 0), (60, 255)]);
                        let offset = if kind == 44 { choices.of(&[0, 1, 8, 256]) } else { 0u16 };
                        let mut header = vec![0; 8 + 8 * if kind == 44 { 0 } else { more }];
                        header[0] = std::mem::replace(&mut frame[places.ip + 6], kind);
                        header[1] = more as u8;
                        header[2..4].copy_from_slice(&offset.to_be_bytes());
                        frame.splice(places.udp..places.udp, header);
                    }
                }
            }
            // IP's own: version and length, protocol, fragments, its checksum.
            _ => {
                let (at, bytes): (usize, &[u8]) = choices.of(&[
                    (0, [0x46].as_slice()),
                    (0, &[0x45]),
                    (0, &[0x60]),
                    (0, &[0x55]),
                    (6, &[0x20, 0]),
                    (6, &[0x40, 0]),
                    (6, &[0x80, 0]),
                    (6, &[0, 1]),
                    (6, &[17]),
                    (6, &[0]),
                    (6, &[44]),
                    (9, &[6]),
                    (9, &[17]),
                    (10, &[0, 0]),
                    (1, &[0xB8]),
                    (8, &[1]),
                ]);
                put(frame, places.ip + at, bytes);
            }
        }
    }
}

impl Iterator for MutatedFrames {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut frame = self.valid();
        let changes = self.0.of(&[0, 1, 1, 1, 2, 2, 3, 6]);
        for _ in 0..changes {
            self.mutate(&mut frame);
        }
        // So that what is behind a length or a checksum is tried, too.
        if !self.0.one_in(4) {
            repair(&mut frame, self.0.one_in(2));
        }
        Some(frame)
    }
}

/// Where the parts of a frame begin, if it is one.
#[derive(Clone, Copy)]
struct FrameOffsets {
    ip: usize,
    is_v4: bool,
    length: usize,
    udp: usize,
    packet: usize,
}

impl FrameOffsets {
    fn of(frame: &[u8]) -> Self {
        let ip = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
        let is_v4 = frame.get(ip - 2..ip) == Some(&[8, 0]);
        let (length, udp) = if is_v4 { (ip + 2, ip + 20) } else { (ip + 4, ip + 40) };
        Self { ip, is_v4, length, udp, packet: udp + 8 }
    }
}

/// Writes `bytes` if there is room.
fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Makes the checksum of IPv4 right, and the lengths too if they are wanted.
fn repair(frame: &mut [u8], lengths: bool) {
    let places = FrameOffsets::of(frame);
    if lengths && frame.len() >= places.packet + DATA_HEADER_BYTES {
        let (ip, datagram) = (frame.len() - places.ip, frame.len() - places.udp);
        let length = if places.is_v4 { ip } else { datagram };
        put(frame, places.length, &(length as u16).to_be_bytes());
        put(frame, places.udp + 4, &(datagram as u16).to_be_bytes());
    }
    if places.is_v4 && frame.len() >= places.udp {
        put(frame, places.ip + 10, &[0, 0]);
        let words = frame[places.ip..places.udp].as_chunks().0;
        let mut sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        put(frame, places.ip + 10, &(!(sum as u16)).to_be_bytes());
        // Half of the time without a checksum of the datagram, so that the host reads it.
        if lengths {
            put(frame, places.udp + 6, &[0, 0]);
        }
    }
}
