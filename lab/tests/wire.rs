//! The wire in real time. What depends on the machine's pace is waited for, and only what does not is asserted.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::platform::LinkModel;
use laxity_core::units::{Duration, Rate};
use laxity_lab::wire::{Discipline, Wire, WireConfig};
use laxity_link::sys;

const PATIENCE: StdDuration = StdDuration::from_secs(10);

/// A packet of `n` bytes takes `n + 100` units of `1 s / rate`.
fn model(rate: u64) -> LinkModel {
    LinkModel { rate: Rate::bytes_per_second(rate), overhead_bytes: 100, ..LinkModel::UNLIMITED }
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = [0; 2048];
    let (len, from) = socket.recv_from(&mut bytes).expect("a packet comes");
    (bytes[..len].to_vec(), from)
}

#[test]
fn packets_cross_and_replies_come_back_from_where_the_client_sent() {
    let mut hosts = vec!["127.0.0.1:0"];
    match UdpSocket::bind("[::1]:0") {
        Ok(_) => hosts.push("[::1]:0"),
        Err(error) => println!("skipped: no IPv6 on this host ({error})"),
    }
    for host in hosts {
        let (target, other, client) = (socket(host), socket(host), socket(host));
        let targets = vec![target.local_addr().unwrap(), other.local_addr().unwrap()];
        let wire = Wire::start(&WireConfig::new(model(12_500_000), targets)).unwrap();
        client.send_to(b"question", wire.ingress[0]).unwrap();
        let (bytes, from) = received(&target);
        assert_eq!((&bytes[..], from == client.local_addr().unwrap()), (&b"question"[..], false));
        target.send_to(b"answer", from).unwrap();
        assert_eq!(received(&client), (b"answer".to_vec(), wire.ingress[0]));
        client.send_to(b"elsewhere", wire.ingress[1]).unwrap();
        assert_eq!(received(&other).0, b"elsewhere");
        // The last sender is the client.
        let second = socket(host);
        second.send_to(b"mine", wire.ingress[0]).unwrap();
        assert_eq!(received(&target).0, b"mine");
        target.send_to(b"yours", from).unwrap();
        assert_eq!(received(&second), (b"yours".to_vec(), wire.ingress[0]));
        let figures = wire.stop().unwrap();
        assert_eq!((figures.low.forwarded, figures.low.bytes, figures.reverse, figures.high.forwarded), (3, 21, 2, 0));
    }
}

#[test]
fn the_rate_is_the_models_and_never_more() {
    const PACKETS: u32 = 200;
    let (target, client) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    // A millisecond each.
    let config = WireConfig::new(model(1_000_000), vec![target.local_addr().unwrap()]);
    let wire = Wire::start(&config).unwrap();
    client.connect(wire.ingress[0]).unwrap();
    let start = StdInstant::now();
    for number in 0..PACKETS {
        let mut bytes = [0; 900];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        client.send(&bytes).unwrap();
    }
    for number in 0..PACKETS {
        assert_eq!(received(&target).0[..4], number.to_be_bytes(), "in order");
        let least = StdDuration::from_millis(u64::from(number) + 1);
        assert!(start.elapsed() >= least, "{number} after {:?}", start.elapsed());
    }
    let elapsed = start.elapsed();
    let figures = wire.stop().unwrap();
    assert_eq!(figures.busy, Duration::from_millis(PACKETS.into()), "exactly a millisecond each");
    assert_eq!((figures.low.forwarded, figures.low.dropped, figures.overflow), (PACKETS.into(), 0, 0));
    // It is later only by what it says itself, and by when the sender and we were run.
    println!("{elapsed:?} for {:?}; its latest release {}", figures.busy, figures.largest_lateness);
}

#[test]
fn what_finds_the_queue_full_is_dropped_and_counted() {
    const PACKETS: u64 = 60;
    let (target, client) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    // 5 ms each, and at most ten wait.
    let targets = vec![target.local_addr().unwrap()];
    let config = WireConfig { queue_packets: 10, ..WireConfig::new(model(40_000), targets) };
    let wire = Wire::start(&config).unwrap();
    let start = StdInstant::now();
    for _ in 0..PACKETS {
        client.send_to(&[0; 100], wire.ingress[0]).unwrap();
    }
    let sent_in = start.elapsed();
    target.set_read_timeout(Some(StdDuration::from_millis(500))).unwrap();
    let came = std::iter::from_fn(|| target.recv(&mut [0; 100]).ok()).count() as u64;
    let figures = wire.stop().unwrap();
    assert_eq!((figures.low.forwarded, figures.low.forwarded + figures.low.dropped), (came, PACKETS));
    // One under way, ten waiting, and those that left while we were still sending.
    let most = 12 + sent_in.as_millis() as u64 / 5;
    assert!((11..=most).contains(&came), "{came} came, sent in {sent_in:?}");
}

#[test]
fn the_high_class_overtakes_by_its_code_point() {
    let (target, high, low) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    sys::mark(high.as_fd(), 46).unwrap();
    sys::mark(low.as_fd(), 8).unwrap();
    assert!(sys::mark(low.as_fd(), 64).is_err());
    for discipline in [Discipline::TwoClassesByDscp, Discipline::Fifo] {
        let targets = vec![target.local_addr().unwrap()];
        // 5 ms each.
        let wire = Wire::start(&WireConfig { discipline, ..WireConfig::new(model(40_000), targets) }).unwrap();
        for _ in 0..10 {
            low.send_to(&[b'L'; 100], wire.ingress[0]).unwrap();
        }
        for _ in 0..10 {
            high.send_to(&[b'H'; 100], wire.ingress[0]).unwrap();
        }
        let order: String = (0..20).map(|_| char::from(received(&target).0[0])).collect();
        let figures = wire.stop().unwrap();
        assert_eq!((figures.high.forwarded, figures.low.forwarded, figures.discipline), (10, 10, discipline));
        let before = order.find('H').unwrap();
        assert_eq!(&order[before..before + 10], "HHHHHHHHHH", "nothing comes between: {order}");
        match discipline {
            // At least one low packet is under way, and more if we were slow to send.
            Discipline::TwoClassesByDscp => println!("{order}"),
            Discipline::Fifo => assert_eq!(before, 10, "{order}"),
        }
    }
}

#[test]
fn unknown_peers_share_the_bottleneck_and_end_in_a_sink() {
    let (target, client) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let wire = Wire::start(&WireConfig::new(model(1_000_000), vec![target.local_addr().unwrap()])).unwrap();
    for _ in 0..50 {
        client.send_to(&[1; 900], wire.foreign()).unwrap();
    }
    let start = StdInstant::now();
    client.send_to(&[2; 100], wire.ingress[0]).unwrap();
    assert_eq!(received(&target).0, [2; 100]);
    println!("behind an unknown peer's 50 ms: {:?}", start.elapsed());
    // Sooner or later all of them have crossed.
    std::thread::sleep(StdDuration::from_millis(300));
    let figures = wire.stop().unwrap();
    assert_eq!((figures.foreign.forwarded, figures.foreign.bytes, figures.low.forwarded), (50, 45_000, 51));
}

#[test]
fn what_cannot_be_is_refused() {
    let target = "127.0.0.1:9".parse().unwrap();
    let far = Wire::start(&WireConfig::new(model(1), vec!["192.0.2.1:9".parse().unwrap()])).unwrap_err();
    assert_eq!(far.to_string(), "192.0.2.1:9 is not a loopback address: the wire stays on this host");
    let many = Wire::start(&WireConfig::new(model(1), vec![target; 7])).unwrap_err();
    assert_eq!(many.exit_status(), 2, "{many}");
    let none = WireConfig { queue_packets: 0, ..WireConfig::new(model(1), vec![target]) };
    assert_eq!(Wire::start(&none).unwrap_err().to_string(), "queue_packets is 0, expected 1 to 100000");
}
