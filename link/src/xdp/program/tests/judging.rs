//! What becomes of a frame, and what is counted.

use super::frames::{MAC, PORT, control, frame, packet};
use super::*;

const PEER: &str = "192.0.2.1:40000";
const PEER6: &str = "[2001:db8::1]:40000";
const HERE: &str = "192.0.2.9:5709";
const HERE6: &str = "[2001:db8::9]:5709";
const NEVER: Duration = Duration::from_secs(1 << 20);

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

fn settings() -> Settings {
    let (control, peer_control) = (Budget::default(), Budget::default());
    Settings { port: PORT, vlan: None, mac: MAC, largest_frame: 2000, control, peer_control }
}

fn expected(peer: &str, key: u32) -> Expected {
    let (class, spacing, tolerance) = (ArrivalClass::RealTime, Duration::ZERO, Duration::ZERO);
    Expected { peer: at(peer), key, class, packet: 1000, max_message: 2500, spacing, tolerance }
}

/// A program that knows itself, without a socket.
fn ready() -> Option<Program> {
    let mut program = loaded()?;
    program.settings(&settings()).unwrap();
    program.add_address(at(HERE).ip()).unwrap();
    program.add_address(at(HERE6).ip()).unwrap();
    Some(program)
}

/// What the counters say of one frame.
fn counted(program: &mut Program, frame: &[u8]) -> Counters {
    let before = program.reasons().unwrap();
    program.test_run(frame, None, 1).unwrap();
    let after = program.reasons().unwrap();
    Counters {
        passed: after.passed - before.passed,
        taken: after.taken - before.taken,
        malformed: after.malformed - before.malformed,
        unknown: after.unknown - before.unknown,
        too_large: after.too_large - before.too_large,
        over_rate: after.over_rate - before.over_rate,
        over_control: after.over_control - before.over_control,
    }
}

#[test]
fn a_channel_gets_what_it_expects() {
    let Some(mut program) = ready() else { return };
    let sockets = [(); 3].map(|()| crate::sys::rings::socket().unwrap());
    for (class, socket) in
        [ArrivalClass::RealTime, ArrivalClass::Control, ArrivalClass::BestEffort].into_iter().zip(&sockets)
    {
        program.set_socket(0, class, socket.as_fd()).unwrap();
    }
    let taken = Counters { taken: 1, ..Counters::default() };
    let unknown = Counters { unknown: 1, ..Counters::default() };
    let too_large = Counters { too_large: 1, ..Counters::default() };
    for (peer, here) in [(PEER, HERE), (PEER6, HERE6)] {
        let data = |key, bytes, index| frame(at(peer), at(here), None, &packet((5, key), bytes, 1000, index));
        assert_eq!(counted(&mut program, &data(1, 2500, 0)), unknown);
        program.expect(5, &expected(peer, 1)).unwrap();
        for index in 0..3 {
            assert_eq!(counted(&mut program, &data(1, 2500, index)), taken);
        }
        assert_eq!(counted(&mut program, &data(2, 2500, 0)), unknown);
        assert_eq!(counted(&mut program, &data(1, 2501, 0)), too_large);
        assert_eq!(counted(&mut program, &frame(at(peer), at(here), None, &control(5, 1))), taken);
        program.expect_nothing(5);
        assert_eq!(counted(&mut program, &data(1, 2500, 0)), unknown);
    }
    assert_eq!((program.policed(5), program.policed(6), program.policed_total()), ((2, 0), (0, 0), 2));
}
