//! The judgement of a frame, and the counters.

use super::differential::target::{CLASSES, MAC, PORT};
use super::frames::{control, frame, packet};
use super::*;
use laxity_core::units::Duration;

pub(super) const PEER: &str = "192.0.2.1:40000";
const PEER6: &str = "[2001:db8::1]:40000";
pub(super) const HERE: &str = "192.0.2.9:5709";
const HERE6: &str = "[2001:db8::9]:5709";
/// Verdicts of the kernel's, beside those of [`TestRun`].
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// Some eleven days.
const NEVER: Duration = Duration::from_secs(1_000_000);

pub(super) fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

pub(super) fn settings() -> Settings {
    let (control, peer_control) = (RateLimit::default(), RateLimit::default());
    Settings { port: PORT, vlan: None, mac: MAC, largest_frame: 2000, control, peer_control, clock_ahead_ns: 0 }
}

pub(super) fn expected(peer: &str, key: u64) -> ExpectedChannel {
    let (class, spacing, tolerance) = (ArrivalClass::RealTime, Duration::ZERO, Duration::ZERO);
    ExpectedChannel { peer: at(peer), key, class, packet: 1000, max_message: 2500, spacing, tolerance }
}

/// A program that knows itself, with sockets on the first queue; and the sockets.
pub(super) fn ready(settings: &Settings) -> Option<(Program, Vec<OwnedFd>)> {
    let mut program = loaded()?;
    program.add_address(at(HERE).ip()).unwrap();
    program.add_address(at(HERE6).ip()).unwrap();
    program.settings(settings).unwrap();
    let mut sockets = Vec::new();
    for class in CLASSES {
        let Ok(socket) = crate::sys::rings::socket() else {
            println!("skipped: no right to make AF_XDP sockets");
            return None;
        };
        program.set_socket(0, class, socket.as_fd()).unwrap();
        sockets.push(socket);
    }
    Some((program, sockets))
}

/// The counters after nothing but these drops.
fn only(dropped: EarlyDrops) -> EarlyFigures {
    EarlyFigures { dropped, ..EarlyFigures::default() }
}

/// What the counters say of one frame.
fn counted(program: &mut Program, frame: &[u8]) -> EarlyFigures {
    let mut reader = program.observer().unwrap();
    program.test_run(frame, None, 1).unwrap();
    reader.reasons().unwrap()
}

/// How many of `count` frames are taken.
fn taken(program: &mut Program, frame: &[u8], count: u32) -> u64 {
    let mut reader = program.observer().unwrap();
    program.test_run(frame, None, count).unwrap();
    reader.reasons().unwrap().taken
}

fn data(peer: &str, place: u32, key: u64, bytes: u32, index: u16) -> Vec<u8> {
    let here = if at(peer).is_ipv4() { HERE } else { HERE6 };
    frame(at(peer), at(here), None, &packet((place, key), bytes, 1000, index))
}

fn asks(peer: &str) -> Vec<u8> {
    let here = if at(peer).is_ipv4() { HERE } else { HERE6 };
    frame(at(peer), at(here), None, &control(5, 1))
}

#[test]
fn a_channel_gets_what_it_expects() {
    let Some((mut program, _sockets)) = ready(&settings()) else { return };
    let taken = EarlyFigures { taken: 1, ..EarlyFigures::default() };
    let unknown = only(EarlyDrops { unknown: 1, ..EarlyDrops::default() });
    let too_large = only(EarlyDrops { too_large: 1, ..EarlyDrops::default() });
    for peer in [PEER, PEER6] {
        assert_eq!(counted(&mut program, &data(peer, 5, 1, 2500, 0)), unknown);
        program.expect(5, &expected(peer, 1)).unwrap();
        for index in 0..3 {
            assert_eq!(counted(&mut program, &data(peer, 5, 1, 2500, index)), taken);
        }
        assert_eq!(counted(&mut program, &data(peer, 5, 2, 2500, 0)), unknown);
        assert_eq!(counted(&mut program, &data(peer, 5, 1 | 1 << 63, 2500, 0)), unknown);
        assert_eq!(counted(&mut program, &data(peer, 5, 1, 2501, 0)), too_large);
        program.expect_nothing(5);
        assert_eq!(counted(&mut program, &data(peer, 5, 1, 2500, 0)), unknown);
    }
    assert_eq!((program.policed(5), program.policed(6), program.policed_total()), ((2, 0), (0, 0), 2));
    // A peer that sends only control frames opens nothing.
    program.expect(5, &expected(PEER, 1)).unwrap();
    program.expect_control(5, at(PEER)).unwrap();
    assert_eq!(counted(&mut program, &data(PEER, 5, 1, 2500, 0)), unknown);
    remove_address(&mut program, at(HERE).ip());
    remove_address(&mut program, at(HERE).ip());
    assert_eq!(counted(&mut program, &asks(PEER)), EarlyFigures { passed: 1, ..EarlyFigures::default() });
}

#[test]
fn packets_beyond_the_rate_are_dropped_and_counted() {
    let Some((mut program, _sockets)) = ready(&settings()) else { return };
    let frame = data(PEER, 5, 1, 2500, 1);
    // What is paid for in advance, and the one that pays for it; for ever, as far as a test lasts.
    for (number, before) in [(1, 0), (4, 99), (8, 195)] {
        let tolerance = Duration::from_nanos(NEVER.as_nanos() * (number - 1));
        program.expect(5, &ExpectedChannel { spacing: NEVER, tolerance, ..expected(PEER, 1) }).unwrap();
        assert_eq!(taken(&mut program, &frame, 100), number);
        assert_eq!(program.policed(5), (0, before + 100 - number));
        assert_eq!(program.policed_total(), before + 100 - number);
    }
    // The next channel at the place owes nothing.
    program.expect(5, &expected(PEER, 1)).unwrap();
    assert_eq!(taken(&mut program, &frame, 100), 100);
    // A span that cannot be added to a point in time is a very long one.
    program
        .expect(5, &ExpectedChannel { spacing: Duration::MAX, tolerance: Duration::MAX, ..expected(PEER, 1) })
        .unwrap();
    assert_eq!(taken(&mut program, &frame, 100), 2);
    // And one that is over while it is looked at lets everything in.
    program.expect(5, &ExpectedChannel { spacing: Duration::from_nanos(1), ..expected(PEER, 1) }).unwrap();
    assert_eq!(taken(&mut program, &frame, 1), 1);
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(taken(&mut program, &frame, 1), 1);
    assert_eq!((program.policed(4), program.policed(6)), ((0, 0), (0, 0)));
}

#[test]
fn unknown_peers_take_nothing_from_known_ones() {
    let once = RateLimit { spacing: NEVER, tolerance: Duration::ZERO };
    let twice = RateLimit { spacing: NEVER, tolerance: NEVER };
    let settings = Settings { control: once, peer_control: twice, ..settings() };
    let Some((mut program, _sockets)) = ready(&settings) else { return };
    let mut reader = program.observer().unwrap();
    program.expect(3, &expected(PEER, 1)).unwrap();
    program.expect_control(4, at(PEER6)).unwrap();
    assert_eq!(taken(&mut program, &asks("203.0.113.1:1"), 10), 1);
    assert_eq!(taken(&mut program, &asks("[2001:db8::3]:1"), 10), 0, "unknown peers share");
    let other_port = PEER.replace("40000", "40001");
    assert_eq!(taken(&mut program, &asks(&other_port), 10), 0);
    assert_eq!(taken(&mut program, &asks(PEER), 10), 2);
    assert_eq!(taken(&mut program, &asks(PEER6), 10), 2, "each has its own");
    let mut over = reader.reasons().unwrap();
    over.taken = 0;
    assert_eq!(over, only(EarlyDrops { over_control: 9 + 10 + 10 + 8 + 8, ..EarlyDrops::default() }));
    assert_eq!(program.policed_total(), 0);
    // A peer is known as long as one of its channels is there.
    program.settings(&Settings { peer_control: RateLimit::default(), ..settings }).unwrap();
    program.expect_control(6, at(PEER)).unwrap();
    program.expect_nothing(3);
    assert_eq!(taken(&mut program, &asks(PEER), 10), 10);
    program.expect(6, &expected(PEER6, 1)).unwrap();
    assert_eq!(taken(&mut program, &asks(PEER), 10), 0);
    program.expect_nothing(4);
    assert_eq!(taken(&mut program, &asks(PEER6), 10), 10);
    program.expect_nothing(6);
    program.expect_nothing(6);
    assert_eq!(taken(&mut program, &asks(PEER6), 10), 0);
}

#[test]
fn there_is_room_for_a_peer_of_each_place() {
    let Some((mut program, _sockets)) = ready(&settings()) else { return };
    let peer = |place: u32, port: u16| SocketAddr::from(([10, 1, (place >> 8) as u8, place as u8], port));
    for round in 0..3 {
        for place in 0..MOST_CHANNELS {
            program.expect_control(place, peer(place, round)).unwrap();
        }
    }
    for place in [0, 1, 1000, 1023] {
        program.expect(place, &expected(PEER, 1)).unwrap();
        assert_eq!(taken(&mut program, &data(PEER, place, 1, 10, 0), 1), 1);
    }
    let beyond = MOST_CHANNELS;
    assert_eq!(program.expect(beyond, &expected(PEER, 1)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(program.expect_control(beyond, at(PEER)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    program.expect_nothing(beyond);
    let before = program.policed_total();
    assert_eq!(
        counted(&mut program, &data(PEER, beyond, 1, 10, 0)),
        only(EarlyDrops { unknown: 1, ..EarlyDrops::default() })
    );
    assert_eq!((program.policed(beyond + 1), program.policed_total()), ((0, 0), before));
    for packet in [0, MAX_PACKET_BYTES + 1] {
        let error = program.expect(7, &ExpectedChannel { packet, ..expected(PEER, 1) }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    for vlan in [0, 4095, 65535] {
        assert!(program.settings(&Settings { vlan: Some(vlan), ..settings() }).is_err());
    }
    for number in 0..62 {
        program.add_address(IpAddr::from([10, 2, 0, number])).unwrap();
    }
    assert!(program.add_address(IpAddr::from([10, 2, 0, 62])).is_err());
}

/// Frames of `class` that come in on `queue` are the kernel's again.
fn clear_socket(program: &mut Program, queue: u32, class: ArrivalClass) {
    gone(program.sockets.unset(socket_place(queue, class).unwrap()));
}

/// Frames to this address are no longer ours.
fn remove_address(program: &mut Program, address: IpAddr) {
    let address = layout::octets(address);
    if program.first == Some(address) {
        program.first = None;
        program.settings(&settings()).unwrap();
    }
    gone(program.addresses.remove(&address));
}

/// What is to go may be gone already.
fn gone(done: Result<(), aya::maps::MapError>) {
    match done.map_err(error::of_map) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        done => done.unwrap(),
    }
}

#[test]
fn a_queue_without_a_socket_is_the_kernels() {
    let Some((mut program, sockets)) = ready(&settings()) else { return };
    let Some([_, two]) = cable() else { return };
    program.expect(5, &expected(PEER, 1)).unwrap();
    program.set_socket(2, ArrivalClass::RealTime, sockets[0].as_fd()).unwrap();
    let (data, asks) = (data(PEER, 5, 1, 2500, 1), asks(PEER));
    let verdict =
        |program: &Program, frame: &[u8], queue| program.test_run(frame, Some((two, queue)), 1).unwrap().verdict;
    for (queue, of_data, of_control) in [
        (0, REDIRECT, REDIRECT),
        (1, PASS, PASS),
        (2, REDIRECT, PASS),
        // More queues than the program has places for.
        (MOST_QUEUES, PASS, PASS),
        (MOST_QUEUES + 5, PASS, PASS),
    ] {
        assert_eq!(verdict(&program, &data, queue), of_data, "queue {queue}");
        assert_eq!(verdict(&program, &asks, queue), of_control, "queue {queue}");
    }
    clear_socket(&mut program, 2, ArrivalClass::RealTime);
    clear_socket(&mut program, 2, ArrivalClass::RealTime);
    assert_eq!(verdict(&program, &data, 2), PASS);
    assert!(program.set_socket(MOST_QUEUES, ArrivalClass::RealTime, sockets[0].as_fd()).is_err());
    assert!(program.set_socket(0, ArrivalClass::RealTime, io::stdin().as_fd()).is_err());
}

#[test]
fn frames_of_a_network_come_by() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some((mut program, _sockets)) = ready(&settings()) else { return };
        let Some([_, two]) = cable() else { return };
        // Without a socket on any queue: whichever a frame comes in on, what is ours is the kernel's.
        for class in CLASSES {
            clear_socket(&mut program, 0, class);
        }
        assert!(ip(&["link", "set", "two", "address", "02:00:00:00:00:01", "up"]));
        assert!(ip(&["link", "set", "one", "up"]) && ip(&["address", "add", "192.0.2.1/24", "dev", "one"]));
        assert!(ip(&["neighbour", "add", "192.0.2.9", "lladdr", "02:00:00:00:00:01", "dev", "one"]));
        let mut reader = program.observer().unwrap();
        program.attach(two, mode).unwrap();
        program.expect(5, &expected(PEER, 1)).unwrap();
        let socket = std::net::UdpSocket::bind(PEER).unwrap();
        let (malformed, unknown) = (b"hello".to_vec(), packet((5, 2), 2500, 1000, 0));
        let (too_large, taken) = (packet((5, 1), 2501, 1000, 0), packet((5, 1), 2500, 1000, 0));
        for (count, packet) in [(1, malformed), (2, unknown), (3, too_large), (4, taken)] {
            for _ in 0..count {
                socket.send_to(&packet, HERE).unwrap();
            }
        }
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let mut seen = reader.reasons().unwrap();
        while seen.passed < 4 && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(5));
            seen = reader.reasons().unwrap();
        }
        assert!(seen.passed >= 4, "{mode:?}: {seen:?}");
        seen.passed = 0;
        let dropped = only(EarlyDrops { malformed: 1, unknown: 2, too_large: 3, ..EarlyDrops::default() });
        assert_eq!((seen, program.policed(5)), (dropped, (3, 0)), "{mode:?}");
    }
}

/// What a frame costs, in the kernel, without the way to it: printed, not judged.
#[test]
fn what_a_frame_costs() {
    let settings = Settings { control: RateLimit { spacing: NEVER, tolerance: Duration::ZERO }, ..settings() };
    let Some((mut program, _sockets)) = ready(&settings) else { return };
    program.expect(5, &expected(PEER, 1)).unwrap();
    program.expect(6, &ExpectedChannel { spacing: NEVER, ..expected(PEER, 1) }).unwrap();
    let elsewhere = frame(at(PEER), at("192.0.2.9:1"), None, &control(5, 1));
    for (name, frame) in [
        ("the kernel's", elsewhere),
        ("taken", data(PEER, 5, 1, 2500, 1)),
        ("unknown", data(PEER, 5, 2, 2500, 1)),
        ("too large", data(PEER, 5, 1, 2501, 0)),
        ("over rate", data(PEER, 6, 1, 2500, 1)),
        ("over control", asks("203.0.113.1:1")),
    ] {
        let run = program.test_run(&frame, None, 100_000).unwrap();
        println!("{name}: {} ns", run.duration_ns);
    }
}
