//! A host's link and its frames, and what tests do with them.
#![allow(unreachable_pub, dead_code)]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use laxity_core::frames::Frames;
use laxity_core::receive::{ArrivalClass, ExpectedChannel};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader};
use laxity_link::sys::{Wake, now};
use laxity_link::xdp::{KernelFrames, Xdp, XdpConfig, XdpError};
use laxity_link::{Link, LinkOver};

use crate::lab::{Lab, Side};

pub const LIMIT: Duration = Duration::from_secs(10);
pub const KEY: u64 = 77;

/// A host's link and its frames.
pub struct Host {
    pub link: Xdp,
    pub frames: KernelFrames,
    /// Never rung.
    doorbell: Wake,
}

impl Host {
    pub fn open(lab: &Lab, side: Side, config: XdpConfig) -> Result<Self, XdpError> {
        let opened = lab.on(side, move || Ok(Xdp::open(&config))).unwrap();
        opened.map(|(link, frames)| Self { link, frames, doorbell: Wake::new().unwrap() })
    }

    pub fn address(&self) -> SocketAddr {
        self.link.local_address()
    }

    /// The class at `place` may send us packets of `packet` bytes.
    pub fn expect(&mut self, place: u32, peer: SocketAddr, class: ArrivalClass) {
        let expected = ExpectedChannel {
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

    pub fn send(&mut self, place: u32, sequence: u64, fill: u8, to: SocketAddr) {
        let packet = data(place, sequence, fill);
        let frame = self.frames.take().expect("there is a free frame");
        self.frames.packet_mut(&frame)[..packet.len()].copy_from_slice(&packet);
        self.link.transmit(frame, packet.len(), to);
    }

    pub fn flush(&mut self) {
        self.link.flush(&mut self.frames).unwrap();
    }

    /// Waits until something may have arrived, for `limit` at most.
    pub fn wait(&mut self, limit: Duration) {
        self.link.wait(self.doorbell.as_fd(), Some(limit)).unwrap();
    }

    /// Waits for `count` packets.
    pub fn collect(&mut self, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
        self.collect_within(LIMIT, count)
    }

    pub fn collect_within(&mut self, limit: Duration, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
        let (mut seen, start) = (Vec::new(), now());
        while seen.len() < count && now().since(start) < limit {
            self.wait(Duration::from_millis(100));
            let mut sink = |received: laxity_link::Received, frames: &mut KernelFrames| {
                seen.push((frames.packet(&received.frame)[..received.len].to_vec(), received.peer));
                frames.free(received.frame);
            };
            self.link.receive(16, &mut self.frames, &mut sink).unwrap();
        }
        seen
    }
}

pub fn data(place: u32, sequence: u64, fill: u8) -> Vec<u8> {
    let payload = 1000;
    let header = DataHeader {
        channel: place,
        key: KEY,
        message_bytes: u32::from(payload),
        sequence,
        logical_arrival: Instant::ZERO,
        index: 0,
        payload,
        ..DataHeader::default()
    };
    let mut packet = vec![fill; DATA_HEADER_BYTES + usize::from(payload)];
    header.write(&mut packet).unwrap();
    packet
}

pub fn config(ip: IpAddr) -> XdpConfig {
    XdpConfig { packet: 1400, ..XdpConfig::new(SocketAddr::new(ip, 5709)) }
}

/// Both hosts, or `None` where that is not permitted.
pub fn hosts(lab: &Lab, ips: [IpAddr; 2], change: impl Fn(XdpConfig) -> XdpConfig) -> Option<[Host; 2]> {
    let [a, b] = [(Side::A, ips[0]), (Side::B, ips[1])].map(|(side, ip)| Host::open(lab, side, change(config(ip))));
    match (a, b) {
        (Err(XdpError::NotPermitted { interface, what }), _) => {
            println!("skipped: not permitted to {what} on {interface}");
            None
        }
        (a, b) => Some([a.unwrap(), b.unwrap()]),
    }
}

/// Looks until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(now().since(start) < LIMIT, "not so after ten seconds: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Sends from `a` to `b` until packets leave by the ring.
pub fn settle(a: &mut Host, b: &mut Host) {
    let (here, there) = (a.address(), b.address());
    a.link.expect_control(0, there).unwrap();
    b.expect(0, here, ArrivalClass::RealTime);
    let status = b.link.status();
    let taken = status.early().taken;
    until("packets take the fast path", || {
        a.send(0, 0, 0, there);
        a.flush();
        // It may be lost where the interface was set otherwise just now.
        b.collect_within(Duration::from_millis(200), 1);
        status.early().taken > taken
    });
}
