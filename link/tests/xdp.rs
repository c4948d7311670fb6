//! AF_XDP between two hosts in network namespaces. Whatever depends on the kernel's pace is waited for, with a limit that only a
//! failure reaches.

mod lab;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use lab::{Lab, Side};
use laxity_core::frames::Frames;
use laxity_core::receive::{ArrivalClass, Expected};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader};
use laxity_link::sys::{Interest, now, wait};
use laxity_link::xdp::{KernelFrames, Mode, Xdp, XdpConfig, XdpError};
use laxity_link::{Link, LinkOver};

const LIMIT: Duration = Duration::from_secs(10);
const KEY: u32 = 77;

/// A host's link and its frames.
struct Host {
    link: Xdp,
    frames: KernelFrames,
}

impl Host {
    fn open(lab: &Lab, side: Side, config: XdpConfig) -> Result<Self, XdpError> {
        let opened = lab.on(side, move || Ok(Xdp::open(&config))).unwrap();
        opened.map(|(link, frames)| Self { link, frames })
    }

    fn address(&self) -> SocketAddr {
        self.link.local_address()
    }

    /// The class at `place` may send us packets of `packet` bytes.
    fn expect(&mut self, place: u32, peer: SocketAddr, class: ArrivalClass) {
        let expected = Expected {
            peer,
            key: KEY,
            class,
            packet: 1000,
            max_message: 1 << 20,
            spacing: Duration::ZERO,
            tolerance: Duration::ZERO,
        };
        self.link.expect(place, &expected).unwrap();
    }

    fn send(&mut self, place: u32, sequence: u64, fill: u8, to: SocketAddr) {
        let packet = data(place, sequence, fill);
        let frame = self.frames.take().expect("there is a free frame");
        self.frames.packet_mut(&frame)[..packet.len()].copy_from_slice(&packet);
        self.link.transmit(frame, packet.len(), to);
    }

    fn flush(&mut self) {
        self.link.flush(&mut self.frames).unwrap();
    }

    /// Waits for `count` packets.
    fn collect(&mut self, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
        let (mut seen, start) = (Vec::new(), now());
        while seen.len() < count && now().since(start) < LIMIT {
            wait(&[(self.link.as_fd(), Interest::Readable)], Some(Duration::from_millis(100))).unwrap();
            let mut sink = |received: laxity_link::Received, frames: &mut KernelFrames| {
                seen.push((frames.packet(&received.frame)[..received.len].to_vec(), received.peer));
                frames.free(received.frame);
            };
            self.link.receive(16, &mut self.frames, &mut sink).unwrap();
        }
        seen
    }
}

fn data(place: u32, sequence: u64, fill: u8) -> Vec<u8> {
    let payload = 1000;
    let header = DataHeader {
        channel: place,
        key: KEY,
        message_bytes: u32::from(payload),
        sequence,
        logical_arrival: Instant::ZERO,
        index: 0,
        payload,
        stolen_micros: 0,
        waited_micros: 0,
    };
    let mut packet = vec![fill; DATA_HEADER_BYTES + usize::from(payload)];
    header.write(&mut packet).unwrap();
    packet
}

fn config(ip: IpAddr) -> XdpConfig {
    XdpConfig { packet: 1400, ..XdpConfig::new(SocketAddr::new(ip, 5709)) }
}

/// Both hosts, or `None` where that is not permitted.
fn hosts(lab: &Lab, ips: [IpAddr; 2], change: impl Fn(XdpConfig) -> XdpConfig) -> Option<[Host; 2]> {
    let [a, b] = [(Side::A, ips[0]), (Side::B, ips[1])].map(|(side, ip)| Host::open(lab, side, change(config(ip))));
    match (a, b) {
        (Err(XdpError::NotPermitted { interface, what }), _) => {
            println!("skipped: not permitted to {what} on {interface}");
            None
        }
        (a, b) => Some([a.unwrap(), b.unwrap()]),
    }
}

fn round_trip(ips: [IpAddr; 2], vlan: Option<u16>, mode: Mode) {
    let Some(lab) = Lab::new(2) else { return };
    let Some([mut a, mut b]) = hosts(&lab, ips, |config| XdpConfig { mode, vlan, ..config }) else { return };
    let (here, there) = (a.address(), b.address());
    let opened = b.link.status();
    assert_eq!((opened.opened().vlan, opened.opened().queues), (vlan, 2));
    if mode != Mode::Any {
        assert_eq!(opened.opened().mode, mode);
    }
    a.link.expect_control(0, there).unwrap();
    b.expect(3, here, ArrivalClass::RealTime);
    b.expect(4, here, ArrivalClass::BestEffort);
    let free = (a.frames.available(), b.frames.available());
    // The first ones go by the kernel, which looks for the neighbour; later ones leave by the ring.
    for round in 0..40u8 {
        for place in [3, 4] {
            a.send(place, round.into(), round, there);
        }
        a.flush();
        let seen = b.collect(2);
        assert_eq!(seen.len(), 2, "round {round}: {:?}", opened.early());
        for (packet, peer) in seen {
            assert_eq!((packet.len(), packet[DATA_HEADER_BYTES + 999], peer), (DATA_HEADER_BYTES + 1000, round, here));
        }
        if round > 20 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let (a_counters, b_counters) = (a.link.counters(), b.link.counters());
    println!("{a_counters:?}\n{b_counters:?}\n{:?}\n{:?}", opened.opened(), opened.early());
    assert_eq!((a_counters.sent_frames, b_counters.received_frames), (80, 80));
    a.flush();
    assert_eq!((a.frames.available(), b.frames.available()), free, "every frame is back");
}

#[test]
fn packets_cross_over_ipv4() {
    round_trip([Side::A.v4(), Side::B.v4()], None, Mode::Any);
}

#[test]
fn packets_cross_over_ipv6_in_generic_mode() {
    round_trip([Side::A.v6(), Side::B.v6()], None, Mode::Generic);
}

#[test]
fn packets_cross_in_a_vlan() {
    round_trip([Side::A.v4(), Side::B.v4()], Some(42), Mode::Native);
    round_trip([Side::A.v6(), Side::B.v6()], Some(42), Mode::Generic);
}
