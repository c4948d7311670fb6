//! Streams over a pair of virtual interfaces: kernel sockets whose packets have a kernel thread of their own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use laxity_core::units;
use laxity_lab::hosts::{Devices, Hosts, InterfaceEnd};
use laxity_link::netlink::{GuardClasses, Netlink, StreamClasses};
use laxity_link::sys;
use laxity_link::xdp::steer::{Flow, InterfaceStreams, PolicingRate, Protocol};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// Two hosts that are joined, or why there can be none.
fn joined() -> Option<(Hosts, [InterfaceEnd; 2])> {
    let hosts = match Hosts::new() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            println!("skipped: {error}");
            return None;
        }
        hosts => hosts.unwrap(),
    };
    let places = hosts.join(0, Devices::Queued).unwrap();
    Some((hosts, places))
}

/// The streams of a host's interface.
fn steering(hosts: &Hosts, host: usize, place: InterfaceEnd) -> InterfaceStreams {
    hosts.on(host, || InterfaceStreams::open(place.interface).map_err(io::Error::other)).unwrap()
}

fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.ip(), port)
}

/// Sends `bytes` there and back by TCP.
fn echo(hosts: &Hosts, server: SocketAddr, bytes: usize) {
    let listener = hosts.on(1, || TcpListener::bind(server)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 4096];
            loop {
                match socket.read(&mut buffer).unwrap() {
                    0 => break,
                    read => socket.write_all(&buffer[..read]).unwrap(),
                }
            }
        });
        let mut client = hosts.on(0, || TcpStream::connect(server)).unwrap();
        client.set_read_timeout(PATIENCE).unwrap();
        let mut answer = [0; 1000];
        for number in 0..bytes / 1000 {
            client.write_all(&[number as u8; 1000]).unwrap();
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [number as u8; 1000]);
        }
    });
}

#[test]
fn a_flow_of_tcp_has_a_thread_of_its_own_and_the_others_have_not() {
    let Some((hosts, places)) = joined() else { return };
    let mut steering = steering(&hosts, 1, places[1]);
    let server = with_port(places[1].address, 7001);
    let flow =
        Flow { protocol: Some(Protocol::Tcp), local: Some(server.ip()), local_port: Some(7001), ..Flow::default() };
    let place = steering.add(&flow, None, 1).unwrap();
    let thread = steering.thread(place).expect("the kernel's thread");
    sys::real_time_of(thread, 61).unwrap();

    let before = sys::processor_time_of_process(thread).unwrap();
    echo(&hosts, server, 100_000);
    let (packets, excess) = steering.counted(place);
    assert!(packets >= 100, "{packets}");
    assert_eq!(excess, 0);
    assert!(sys::processor_time_of_process(thread).unwrap() > before, "it does the work");

    // Another port is of no stream, and arrives as well.
    echo(&hosts, with_port(server, 7002), 10_000);
    assert_eq!(steering.counted(place).0, packets);

    // Without it, packets go their usual way; the thread is gone when it has done its work.
    steering.remove(place).unwrap();
    echo(&hosts, server, 10_000);
    assert_eq!((steering.thread(place), steering.counted(place)), (None, (0, 0)));
}

#[test]
fn all_others_can_have_a_thread_too() {
    let Some((hosts, places)) = joined() else { return };
    let mut steering = steering(&hosts, 1, places[1]);
    let thread = steering.set_others(Some(1)).unwrap().expect("the kernel's thread");
    let before = sys::processor_time_of_process(thread).unwrap();
    echo(&hosts, with_port(places[1].address, 7001), 10_000);
    assert!(sys::processor_time_of_process(thread).unwrap() > before);
    assert_eq!(steering.set_others(None).unwrap(), None);
    echo(&hosts, with_port(places[1].address, 7001), 10_000);
}

#[test]
fn what_is_beyond_a_stream_is_dropped_or_counted() {
    let Some((hosts, places)) = joined() else { return };
    let mut steering = steering(&hosts, 1, places[1]);
    let policing = PolicingRate { packets: 10, period: units::Duration::from_secs(3600), is_dropped: true };
    let flow = |port| Flow { protocol: Some(Protocol::Udp), local_port: Some(port), ..Flow::default() };
    let dropped = steering.add(&flow(7001), Some(&policing), 1).unwrap();
    let waits = steering.add(&flow(7002), Some(&PolicingRate { is_dropped: false, ..policing }), 1).unwrap();
    for (place, port, expected) in [(dropped, 7001, 10), (waits, 7002, 30)] {
        let to = with_port(places[1].address, port);
        let receiver = hosts.on(1, || UdpSocket::bind(to)).unwrap();
        let sender = hosts.on(0, || UdpSocket::bind(with_port(places[0].address, 0))).unwrap();
        for number in 0..30 {
            sender.send_to(&[number], to).unwrap();
        }
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut buffer = [0; 8];
        let came = (0..).take_while(|_| receiver.recv(&mut buffer).is_ok()).count();
        assert_eq!((came, steering.counted(place)), (expected, (30, 20)), "port {port}");
    }
}

#[test]
fn a_flow_that_another_stream_claims_is_refused_and_so_is_what_cannot_be() {
    let Some((hosts, places)) = joined() else { return };
    let mut steering = steering(&hosts, 1, places[1]);
    let tcp = Flow { protocol: Some(Protocol::Tcp), ..Flow::default() };
    let port = |port| Flow { local_port: Some(port), ..Flow::default() };
    let kind = |result: io::Result<usize>| result.unwrap_err().kind();
    assert_eq!(kind(steering.add(&Flow::default(), None, 1)), io::ErrorKind::InvalidInput);
    assert_eq!(kind(steering.add(&Flow { dscp: Some(64), ..tcp }, None, 1)), io::ErrorKind::InvalidInput);
    assert!(steering.add(&tcp, None, 4000).is_err(), "there is no such processor");
    let first = steering.add(&tcp, None, 1).unwrap();
    assert_eq!(kind(steering.add(&port(80), None, 1)), io::ErrorKind::AlreadyExists);
    steering.remove(first).unwrap();
    for number in 1..=InterfaceStreams::MOST as u16 {
        steering.add(&port(number), None, 0).unwrap();
    }
    assert_eq!(kind(steering.add(&port(100), None, 0)), io::ErrorKind::StorageFull);
    // Another program on the interface is left alone.
    assert!(hosts.on(1, || Ok(InterfaceStreams::open(places[1].interface).is_err())).unwrap());
    drop(steering);
    drop(self::steering(&hosts, 1, places[1]));
}

#[test]
fn what_leaves_is_of_the_class_of_its_stream() {
    let Some((hosts, places)) = joined() else { return };
    let interface = places[0].interface;
    let streams = StreamClasses { rate: 2_000_000, most: 2 };
    let classes = GuardClasses { rate: 12_500_000, floor: 1_000_000, ceiling: 12_500_000, mtu: 1500, streams };
    hosts
        .on(0, || {
            let mut netlink = Netlink::open()?;
            netlink.guard(interface, &classes)?;
            netlink.add_stream(interface, 0, 1_000_000, &classes)
        })
        .unwrap();
    let mut steering = steering(&hosts, 0, places[0]);
    let flow = Flow { remote_port: Some(7001), ..Flow::default() };
    let place = steering.add(&flow, None, 1).unwrap();
    steering.set_class(place, GuardClasses::stream_class(0)).unwrap();
    let sender = hosts.on(0, || UdpSocket::bind(with_port(places[0].address, 0))).unwrap();
    for port in [7001, 7001, 7001, 7002] {
        sender.send_to(&[0; 100], with_port(places[1].address, port)).unwrap();
    }
    let (sent, removed) = hosts
        .on(0, || {
            let mut netlink = Netlink::open()?;
            let device = netlink.interface_by_index(interface)?.expect("it is there").name;
            let said = Command::new("tc").args(["-s", "class", "show", "dev", &device]).output()?.stdout;
            Ok((
                String::from_utf8_lossy(&said).into_owned(),
                [netlink.remove_stream(interface, 0)?, netlink.remove_stream(interface, 0)?],
            ))
        })
        .unwrap();
    let class = GuardClasses::stream_class(0);
    let own = sent.split("class htb ").find(|of| of.starts_with(&format!("{:x}:{:x} ", class >> 16, class & 0xFFFF)));
    assert!(own.is_some_and(|own| own.contains(" bytes 3 pkt ")), "{sent}");
    assert_eq!(removed, [true, false]);
}
