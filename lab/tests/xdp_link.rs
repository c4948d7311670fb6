//! AF_XDP between two hosts in network namespaces. Whatever depends on the kernel's pace is waited for, with a limit that only a
//! failure reaches. What cannot be opened is in `xdp_refusals.rs`.

#[path = "common/link.rs"]
mod host;
#[path = "common/lab.rs"]
mod lab;

use std::net::{IpAddr, SocketAddr, UdpSocket};

use host::{Host, KEY, LIMIT, config, data, hosts, settle, until};
use lab::{Lab, Side};
use laxity_core::frames::Frames;
use laxity_core::receive::{ArrivalClass, ExpectedChannel};
use laxity_core::units::Duration;
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::sys::now;
use laxity_link::xdp::{BusyPoll, EarlyFigures, Mode, XdpConfig};
use laxity_link::{Link, LinkOver};

fn round_trip(ips: [IpAddr; 2], vlan: Option<u16>, mode: Mode) {
    let Some(lab) = Lab::new(2) else { return };
    let Some([mut a, mut b]) = hosts(&lab, ips, |config| XdpConfig { mode, vlan, ..config }) else { return };
    let (here, there) = (a.address(), b.address());
    let opened = b.link.status();
    assert_eq!((opened.opened.vlan, opened.opened.queues), (vlan, 2));
    if mode != Mode::Any {
        assert_eq!(opened.opened.mode, mode);
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
    println!("{a_counters:?}\n{b_counters:?}\n{:?}\n{:?}", &opened.opened, opened.early());
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

#[test]
fn a_flood_of_one_class_takes_no_frame_from_the_others() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let (here, there) = (a.address(), b.address());
    settle(&mut a, &mut b);
    b.expect(1, here, ArrivalClass::BestEffort);
    b.expect(2, here, ArrivalClass::RealTime);
    // The link is not looked at, and best effort sends a hundred times what may wait.
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
    let expected = ExpectedChannel {
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
    // The next channel at the place begins anew.
    b.link.expect(7, &ExpectedChannel { spacing: Duration::ZERO, ..expected }).unwrap();
    assert_eq!(b.link.poll_policed(), None);
    b.link.expect_nothing(7);
    a.send(7, 0, 7, there);
    a.flush();
    let status = b.link.status();
    until("no channel is there", || status.early().dropped.unknown == 1);
}

#[test]
fn a_channel_that_is_dropped_all_the_time_keeps_no_other_from_being_told() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let (here, there) = (a.address(), b.address());
    settle(&mut a, &mut b);
    let hour = Duration::from_secs(3600);
    for place in [3, 8] {
        let class = ArrivalClass::RealTime;
        let (spacing, tolerance) = (hour, Duration::ZERO);
        let expected =
            ExpectedChannel { peer: here, key: KEY, class, packet: 1000, max_message: 1000, spacing, tolerance };
        b.link.expect(place, &expected).unwrap();
        a.send(place, 0, 0, there);
    }
    a.flush();
    assert_eq!(b.collect(2).len(), 2);
    a.send(8, 1, 0, there);
    // Another one of the first each time that it is asked.
    let (mut told, mut sequence) = ([0; 2], 1);
    until("the other one is told", || {
        a.send(3, sequence, 0, there);
        a.flush();
        sequence += 1;
        let policed = b.link.poll_policed();
        told[0] += u64::from(policed.is_some_and(|(place, _)| place == 3));
        told[1] += u64::from(policed.is_some_and(|(place, _)| place == 8));
        told[0] > 0 && told[1] > 0
    });
}

#[test]
fn another_links_frames_are_not_touched() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let flushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a.link.flush(&mut b.frames)));
    assert!(flushed.is_err());
    assert!(a.link.flush(&mut a.frames).is_ok());
}

#[test]
fn a_datagram_in_fragments_is_nobodys() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v6(), Side::B.v6()], |config| config) else { return };
    settle(&mut a, &mut b);
    let status = b.link.status();
    let before = (status.early().dropped.malformed, b.link.counters().received_frames);
    let unknown = lab.on(Side::A, || UdpSocket::bind((Side::A.v6(), 0))).unwrap();
    for number in 1..=5 {
        unknown.send_to(&[0; 4000], b.address()).unwrap();
        until("its first part is dropped", || status.early().dropped.malformed == before.0 + number);
    }
    assert_eq!(b.collect_within(Duration::from_millis(200), 1).len(), 0);
    assert_eq!(b.link.counters().received_frames, before.1);
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
        let (start, span) = (now(), Duration::from_millis(50));
        host.wait(span);
        assert!(now().since(start) >= span);
    }
    a.send(0, 0, 0, there);
    a.flush();
    assert_eq!(a.link.counters().send_dropped, 1, "there is no way any more");
}

const SENDERS: u64 = 64;

/// A data packet from each of many senders, which the kernel spreads over the queues. All arrive.
fn from_many_senders(lab: &Lab, b: &mut Host) {
    let there = b.address();
    let senders: Vec<_> =
        (0..SENDERS).map(|_| lab.on(Side::A, || UdpSocket::bind((Side::A.v4(), 0))).unwrap()).collect();
    for (place, sender) in (1..).zip(&senders) {
        b.expect(place, sender.local_addr().unwrap(), ArrivalClass::RealTime);
        sender.send_to(&data(place, 0, place as u8), there).unwrap();
    }
    let mut seen = Vec::new();
    until("every sender's has arrived", || {
        let packets = b.collect_within(Duration::from_millis(50), senders.len());
        // Where the program is not, what is no packet comes here, too.
        let packets = packets.into_iter().filter(|(packet, _)| packet.len() > DATA_HEADER_BYTES);
        seen.extend(packets.map(|(packet, peer)| (packet[DATA_HEADER_BYTES], peer)));
        seen.len() >= senders.len()
    });
    seen.sort_unstable();
    let sent: Vec<_> = (1..).zip(&senders).map(|(fill, sender)| (fill, sender.local_addr().unwrap())).collect();
    assert_eq!(seen, sent);
    for place in 1..=SENDERS {
        b.link.expect_nothing(place as u32);
    }
}

/// What is counted at `b` once everything is that has arrived so far. Takes packets that are none, which are counted, too.
fn counted(lab: &Lab, b: &Host, to: SocketAddr) -> EarlyFigures {
    let status = b.link.status();
    // The first may be counted by a look that began before.
    for _ in 0..2 {
        let before = status.early().dropped.malformed;
        until("what is no packet is counted", || {
            // It may be lost where the interface was set otherwise just now, or come in on a queue without the program: another each time.
            let unknown = lab.on(Side::A, || UdpSocket::bind((Side::A.v4(), 0))).unwrap();
            unknown.send_to(b"no packet", to).unwrap();
            status.early().dropped.malformed > before
        });
    }
    status.early()
}

#[test]
fn queues_that_come_later_take_the_sockets_way() {
    let Some(lab) = Lab::new(4) else { return };
    for side in [Side::A, Side::B] {
        lab.set_channels(side, 4, 2).unwrap();
    }
    for side in [Side::A, Side::B] {
        lab.set_channels(side, 2, 2).unwrap();
    }
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    let status = b.link.status();
    assert_eq!(status.opened.queues, 2);
    settle(&mut a, &mut b);
    let counted = |b: &Host| counted(&lab, b, b.address());
    let before = counted(&b);
    from_many_senders(&lab, &mut b);
    let both = counted(&b);
    assert_eq!(both.taken - before.taken, SENDERS);
    // More queues to receive with there, and to send with here.
    lab.set_channels(Side::B, 4, 2).unwrap();
    lab.set_channels(Side::A, 2, 4).unwrap();
    settle(&mut a, &mut b);
    let before = counted(&b);
    from_many_senders(&lab, &mut b);
    let four = counted(&b);
    let taken = four.taken - before.taken;
    println!("{taken} of {SENDERS} by the rings");
    assert!(taken > 0 && taken < SENDERS);
    until("it is seen", || status.queues() == 4);
    // And back: those that we have stay.
    lab.set_channels(Side::A, 2, 2).unwrap();
    lab.set_channels(Side::B, 2, 2).unwrap();
    let before = counted(&b);
    from_many_senders(&lab, &mut b);
    let both = counted(&b);
    assert_eq!(both.taken - before.taken, SENDERS);
    assert_eq!((both.dropped.all(), both.full, both.no_frame), (both.dropped.malformed, [0; 3], 0));
}

#[test]
fn queues_that_are_driven_cannot_be_taken_away() {
    let Some(lab) = Lab::new(2) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    settle(&mut a, &mut b);
    for (receive, transmit) in [(1, 2), (2, 1), (1, 1)] {
        for side in [Side::A, Side::B] {
            let error = lab.set_channels(side, receive, transmit).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        }
    }
    from_many_senders(&lab, &mut b);
    settle(&mut a, &mut b);
    // Once they are given up they may go, and what is opened then has one.
    drop(a);
    until("the kernel has let go of them", || lab.set_channels(Side::A, 2, 1).is_ok());
    drop(b);
    until("the kernel has let go of them", || lab.set_channels(Side::B, 1, 2).is_ok());
    let b = Host::open(&lab, Side::B, config(Side::B.v4())).unwrap();
    assert_eq!(b.link.status().opened.queues, 1);
}

#[test]
fn a_new_address_takes_the_sockets_way() {
    let Some(lab) = Lab::new(1) else { return };
    // Bound to every address of the interface.
    let any = |config: XdpConfig| {
        let side = if config.bind.ip() == Side::A.v4() { Side::A } else { Side::B };
        let interface = Some(side.interface().to_owned());
        XdpConfig { interface, bind: SocketAddr::new([0; 4].into(), config.bind.port()), ..config }
    };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], any) else { return };
    let port = b.address().port();
    let [here, old, new] = [Side::A.v4(), Side::B.v4(), [192, 0, 2, 9].into()].map(|ip| SocketAddr::new(ip, port));
    lab.add_address(Side::B, new.ip());
    b.expect(0, here, ArrivalClass::RealTime);
    for (place, peer) in [(0, old), (1, new)] {
        a.link.expect_control(place, peer).unwrap();
    }
    for (fill, to) in [(1, old), (2, new)] {
        let before = counted(&lab, &b, old);
        const PACKETS: u64 = 50;
        for sequence in 0..PACKETS {
            a.send(0, sequence, fill, to);
            a.flush();
            let seen = b.collect(1);
            assert_eq!((seen[0].0[DATA_HEADER_BYTES], seen[0].1), (fill, here));
        }
        let after = counted(&lab, &b, old);
        let (taken, passed) = (after.taken - before.taken, after.passed - before.passed);
        println!("{taken} by the ring, {passed} by the socket");
        assert_eq!(taken, if to == old { PACKETS } else { 0 });
        assert!(to == old || passed >= PACKETS);
    }
}

#[test]
fn an_address_that_is_lost_and_comes_back_is_survived() {
    let Some(lab) = Lab::new(1) else { return };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], |config| config) else { return };
    settle(&mut a, &mut b);
    lab.remove_address(Side::A, Side::A.v4());
    let there = b.address();
    // There is no way from an address that no host has: what the socket is given is lost, and counted.
    until("nothing leaves by the ring", || {
        a.send(0, 0, 0, there);
        a.flush();
        a.link.counters().send_dropped > 0
    });
    lab.add_address(Side::A, Side::A.v4());
    settle(&mut a, &mut b);
    settle(&mut b, &mut a);
    assert!(!a.link.status().is_gone());
}

#[test]
fn a_queue_that_is_driven_from_here_loses_nothing() {
    // So long a span would be seen if a look kept to it instead of ending when there is nothing.
    let busy_poll = Some(BusyPoll { span: Duration::from_secs(1), frames: 64 });
    let Some(lab) = Lab::new(2) else { return };
    let driven = |config| XdpConfig { busy_poll, ..config };
    let Some([mut a, mut b]) = hosts(&lab, [Side::A.v4(), Side::B.v4()], driven) else { return };
    settle(&mut a, &mut b);
    settle(&mut b, &mut a);
    b.expect(1, a.address(), ArrivalClass::RealTime);
    a.expect(1, b.address(), ArrivalClass::RealTime);
    let before = counted(&lab, &b, b.address());
    let few = |from: &mut Host, to: &mut Host, round: u8| {
        for _ in 0..8 {
            from.send(1, round.into(), round, to.address());
        }
        from.flush();
        let seen = to.collect(8);
        assert_eq!(seen.len(), 8, "round {round}: {:?}", to.link.status().early());
        assert!(seen.iter().all(|(packet, _)| packet[DATA_HEADER_BYTES] == round));
    };
    for round in 0..200u8 {
        few(&mut a, &mut b, round);
        few(&mut b, &mut a, round);
    }
    let after = counted(&lab, &b, b.address());
    assert_eq!(after.taken - before.taken, 1600);
    assert_eq!((after.dropped.all(), after.full, after.no_frame), (after.dropped.malformed, [0; 3], 0));
    let start = now();
    for _ in 0..100 {
        assert!(b.collect_within(Duration::ZERO, 1).is_empty());
        b.link.receive(16, &mut b.frames, |received, frames| frames.free(received.frame)).unwrap();
    }
    let looks = now().since(start);
    assert!(looks < LIMIT, "100 looks at nothing took {looks}");
}
