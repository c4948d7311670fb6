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
#[derive(Debug)]
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
        self.collect_within(LIMIT, count)
    }

    fn collect_within(&mut self, limit: Duration, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
        let (mut seen, start) = (Vec::new(), now());
        while seen.len() < count && now().since(start) < limit {
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

/// Looks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(now().since(start) < LIMIT, "not so after ten seconds: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Sends from `a` to `b` until packets leave by the ring.
fn settle(a: &mut Host, b: &mut Host) {
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

#[test]
fn a_flood_of_one_class_takes_no_frame_from_the_others() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let (here, there) = (a.address(), b.address());
    settle(&mut a, &mut b);
    b.expect(1, here, ArrivalClass::BestEffort);
    b.expect(2, here, ArrivalClass::RealTime);
    // Nobody looks, and best effort sends a hundred times what may wait.
    const FLOOD: u64 = 25_600;
    for sequence in 0..FLOOD {
        if a.link.room() == 0 {
            a.flush();
        }
        a.send(1, sequence, 1, there);
    }
    a.flush();
    for sequence in 0..500 {
        a.send(2, sequence, 2, there);
        a.flush();
    }
    let status = b.link.status();
    until("the flood has arrived", || status.early().full[2] > 0 && status.early().taken >= FLOOD + 500);
    let seen = b.collect(500 + 256);
    assert_eq!(seen.len(), 500 + 256);
    assert!(seen[..500].iter().all(|(packet, _)| packet[DATA_HEADER_BYTES] == 2), "the real-time channel's come first");
    std::thread::sleep(std::time::Duration::from_millis(250));
    let early = status.early();
    println!("{early:?}");
    assert_eq!((early.full[0], early.full[1], early.no_frame), (0, 0, 0));
    assert!(early.full[2] > FLOOD / 2);
    settle(&mut a, &mut b);
}

#[test]
fn what_breaks_the_contract_ends_in_the_kernel_and_is_told() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let (here, there) = (a.address(), b.address());
    settle(&mut a, &mut b);
    // Eleven packets at once, then one an hour.
    let expected = Expected {
        peer: here,
        key: KEY,
        class: ArrivalClass::RealTime,
        packet: 1000,
        max_message: 1000,
        spacing: Duration::from_secs(3600),
        tolerance: Duration::from_secs(36_000),
    };
    b.link.expect(7, &expected).unwrap();
    assert_eq!(b.link.poll_policed(), None);
    for sequence in 0..40 {
        a.send(7, sequence, 7, there);
    }
    a.flush();
    assert_eq!(b.collect(11).len(), 11);
    let mut told = Vec::new();
    until("the rest was dropped", || {
        told.extend(b.link.poll_policed());
        told.iter().map(|(_, packets)| packets).sum::<u64>() == 29
    });
    assert!(told.iter().all(|(place, _)| *place == 7));
    assert_eq!(b.link.poll_policed(), None);
    // Whoever has the place next begins anew.
    b.link.expect(7, &Expected { spacing: Duration::ZERO, ..expected }).unwrap();
    assert_eq!(b.link.poll_policed(), None);
    b.link.expect_nothing(7);
    a.send(7, 0, 7, there);
    a.flush();
    let status = b.link.status();
    until("nobody is there", || status.early().unknown == 1);
}

#[test]
fn what_cannot_be_driven_says_why() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([a, b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let fails = |config: XdpConfig| match Host::open(&lab, Side::A, config) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let quick = |ip| XdpConfig { patience: Duration::from_millis(50), ..config(ip) };
    let taken = quick(Side::A.v6());
    let error = fails(taken.clone());
    assert!(error.contains("xdp va: program") && error.contains("is attached already"), "{error}");
    drop(a);
    let error = fails(XdpConfig { interface: Some("nowhere".to_owned()), ..taken.clone() });
    assert!(error.contains("there is no interface nowhere"), "{error}");
    let error = fails(config(IpAddr::from([203, 0, 113, 9])));
    assert!(error.contains("no interface of this host has this address"), "{error}");
    let error = fails(config(IpAddr::from([127, 0, 0, 1])));
    assert!(error.contains("use the link udp"), "{error}");
    let error = fails(config(IpAddr::from([0, 0, 0, 0])));
    assert!(error.contains("name the interface"), "{error}");
    let error = fails(XdpConfig { packet: 1480, ..taken.clone() });
    assert!(error.contains("it has 1500; ask for packets of 1452 bytes at most"), "{error}");
    let error = fails(XdpConfig { packet: 4000, ..taken.clone() });
    assert_eq!(error, "xdp: packet is 4000, expected 1 to 3774");
    drop(b);
    lab.set_up(Side::A, false);
    let error = fails(quick(Side::A.v4()));
    assert!(error.contains("it is down; `ip link set va up`"), "{error}");
    lab.set_up(Side::A, true);
    // Nothing of all that is in the way.
    assert!(Host::open(&lab, Side::A, config(Side::A.v4())).is_ok());
}

#[test]
fn who_is_just_ending_is_waited_for() {
    let Some(lab) = Lab::new(2) else { return };
    let Some([a, _b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let ending = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(a);
    });
    // On another port: that of a socket is nobody's to wait for.
    let other = XdpConfig { bind: SocketAddr::new(Side::A.v4(), 0), ..config(Side::A.v4()) };
    Host::open(&lab, Side::A, other).unwrap();
    ending.join().unwrap();
}

const CHILD: &str = "LAXITY_TEST_XDP_CHILD";

/// Only as a child of the next test: opens the link and waits to be killed.
#[test]
fn a_child_that_is_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let _link = Xdp::open(&config(Side::A.v4())).unwrap();
    println!("open");
    std::thread::sleep(std::time::Duration::from_secs(30));
}

#[test]
fn a_process_that_is_killed_leaves_nothing_in_the_way() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let Some(lab) = Lab::new(2) else { return };
    let Some([a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    drop(a);
    for _ in 0..3 {
        let mut child = lab
            .on(Side::A, || {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--exact", "a_child_that_is_killed", "--nocapture"]).env(CHILD, "1");
                command.stdout(Stdio::piped()).spawn()
            })
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("open")), "the child has opened it");
        child.kill().unwrap();
        // Not waited for: a new start works at once, and packets arrive.
        let mut a = Host::open(&lab, Side::A, config(Side::A.v4())).unwrap();
        settle(&mut a, &mut b);
        child.wait().unwrap();
    }
    assert_eq!(lab.program(Side::A), None);
}

#[test]
fn an_interface_that_goes_down_and_up_is_survived() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    settle(&mut a, &mut b);
    let there = b.address();
    for side in [Side::B, Side::A] {
        lab.set_up(side, false);
        // More than any ring holds: all are lost, none of the frames is.
        for sequence in 0..2000 {
            if a.link.room() > 0 {
                a.send(0, sequence, 0, there);
            }
            a.flush();
        }
        lab.set_up(side, true);
        settle(&mut a, &mut b);
    }
    // What the kernel held back until the interface was up, arrives late.
    until("every frame is back", || {
        a.flush();
        b.link.receive(64, &mut b.frames, |received, frames| frames.free(received.frame)).unwrap();
        a.frames.available() >= 1024
    });
    let counters = a.link.counters();
    println!("{counters:?}");
}

#[test]
fn a_smaller_mtu_is_heeded() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    settle(&mut a, &mut b);
    let there = b.address();
    lab.set_mtu(Side::A, 1000);
    until("the packet is refused", || {
        a.send(0, 0, 0, there);
        a.flush();
        a.link.counters().send_too_large > 0
    });
    until(
        "it is told",
        || matches!(a.link.poll_event(), Some(laxity_link::LinkEvent::TooLarge { peer, mtu_bytes: 1000 }) if peer == there),
    );
    lab.set_mtu(Side::A, 1500);
    settle(&mut a, &mut b);
}

#[test]
fn without_its_interface_the_link_ends_in_its_socket() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    settle(&mut a, &mut b);
    lab.delete(Side::A);
    let (status_a, status_b) = (a.link.status(), b.link.status());
    until("both see it", || status_a.is_gone() && status_b.is_gone());
    let there = b.address();
    for host in [&mut a, &mut b] {
        host.link.receive(16, &mut host.frames, |received, frames| frames.free(received.frame)).unwrap();
        // Nothing keeps it awake.
        let ready = wait(&[(host.link.as_fd(), Interest::Readable)], Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ready.ready(), 0);
    }
    a.send(0, 0, 0, there);
    a.flush();
    assert_eq!(a.link.counters().send_dropped, 1, "there is no way any more");
}
