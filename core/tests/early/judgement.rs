//! What the program says of a packet.

use laxity_core::receive::{ArrivalClass, ExpectedChannel, RateLimit};
use laxity_core::wire::Control;

use super::model::{EarlyDemux, EarlyVerdict};
use super::*;

const EVERY: RateLimit = RateLimit { spacing: Duration::ZERO, tolerance: Duration::ZERO };

fn expected() -> ExpectedChannel {
    ExpectedChannel {
        peer: peer(),
        key: 7,
        class: ArrivalClass::RealTime,
        packet: PACKET,
        max_message: 250,
        spacing: ms(10),
        tolerance: ms(20),
    }
}

fn keepalive() -> Vec<u8> {
    let mut bytes = [0; 512];
    let len = Control::Status(laxity_core::wire::Status::default()).write(1, &mut bytes).unwrap();
    bytes[..len].to_vec()
}

#[test]
fn what_is_not_ours_is_malformed() {
    let mut early = EarlyDemux::new(4, EVERY, EVERY);
    assert!(early.expect(3, expected()));
    let whole = written(&header(0, 250, 0, at(0)));
    for len in 0..=DATA_HEADER_BYTES {
        assert_eq!(early.judge(at(0), peer(), &whole[..len]), EarlyVerdict::Malformed, "{len} bytes");
    }
    // What is left of it, or more than it, is no packet of this channel.
    let longer = [&whole[..], &[0]].concat();
    for len in (DATA_HEADER_BYTES + 1..=longer.len()).filter(|len| *len != whole.len()) {
        assert_eq!(early.judge(at(0), peer(), &longer[..len]), EarlyVerdict::TooLarge(3), "{len} bytes");
    }
    let changed = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] = byte;
        bytes
    };
    // Another magic, version and kind; a message smaller than its packet; a deadline of more than an hour.
    for bytes in [changed(0, 0), changed(2, 2), changed(3, 0), changed(34, 98), changed(40, 0xff)] {
        assert_eq!(early.judge(at(0), peer(), &bytes), EarlyVerdict::Malformed);
    }
    assert_eq!(
        early.judge(at(0), peer(), &changed(3, 3)),
        EarlyVerdict::TooLarge(3),
        "the tag is taken from the packet"
    );
    assert_eq!(early.judge(at(0), peer(), &changed(32, 0xff)), EarlyVerdict::TooLarge(3), "larger than the channel's");
    assert_eq!(early.judge(at(0), peer(), &whole), EarlyVerdict::Take(ArrivalClass::RealTime));
}

#[test]
fn a_packet_is_of_its_channel_or_unknown() {
    let mut early = EarlyDemux::new(4, EVERY, EVERY);
    let whole = written(&header(0, 250, 0, at(0)));
    assert_eq!(early.judge(at(0), peer(), &whole), EarlyVerdict::Unknown);
    early.expect(3, expected());
    let mapped = "[::ffff:10.0.0.1]:5709".parse().unwrap();
    assert_eq!(early.judge(at(0), mapped, &whole), EarlyVerdict::Take(ArrivalClass::RealTime));
    for other in ["10.0.0.2:5709", "10.0.0.1:5710", "[::1]:5709"] {
        assert_eq!(early.judge(at(0), other.parse().unwrap(), &whole), EarlyVerdict::Unknown);
    }
    for (channel, key) in [(2, 7), (4, 7), (u32::MAX, 7), (3, 8)] {
        let forged = written(&DataHeader { channel, key, ..header(0, 250, 0, at(0)) });
        assert_eq!(early.judge(at(0), peer(), &forged), EarlyVerdict::Unknown);
    }
    early.expect_nothing(3);
    assert_eq!(early.judge(at(0), peer(), &whole), EarlyVerdict::Unknown);
    assert!(!early.expect(4, expected()), "there is no such place");
    assert!(!early.expect_control(4, peer()));
    early.expect_nothing(4);
}

#[test]
fn a_fragment_has_its_place_and_its_size() {
    let mut early = EarlyDemux::new(4, EVERY, EVERY);
    early.expect(3, ExpectedChannel { spacing: Duration::ZERO, ..expected() });
    let mut judge = |bytes: u32, index: u16, payload: u16| {
        early.judge(
            at(0),
            peer(),
            &written(&DataHeader { message_bytes: bytes, index, payload, ..header(0, 250, 0, at(0)) }),
        )
    };
    let (taken, refused) = (EarlyVerdict::Take(ArrivalClass::RealTime), EarlyVerdict::TooLarge(3));
    assert_eq!([judge(250, 0, 100), judge(250, 1, 100), judge(250, 2, 50), judge(1, 0, 1)], [taken; 4]);
    assert_eq!([judge(251, 0, 100), judge(250, 0, 99), judge(250, 2, 51), judge(250, 3, 50)], [refused; 4]);
    assert_eq!([judge(250, u16::MAX, 50), judge(200, 2, 1)], [refused; 2]);
}

#[test]
fn unknown_peers_cost_no_known_peer_its_control_frames() {
    let budget = RateLimit { spacing: ms(10), tolerance: ms(20) };
    let mut early = EarlyDemux::new(4, budget, budget);
    let (frame, taken) = (keepalive(), EarlyVerdict::Take(ArrivalClass::Control));
    let mut other_version = frame.clone();
    other_version[2] = 9;
    let unknown = |number: u16| SocketAddr::from(([10, 0, 0, 9], number));
    for number in 0..3 {
        assert_eq!(early.judge(at(0), unknown(number), &other_version), taken);
    }
    assert_eq!(early.judge(at(0), unknown(3), &frame), EarlyVerdict::OverControl);
    assert_eq!(early.judge(at(0), peer(), &frame), EarlyVerdict::OverControl, "still an unknown peer");
    early.expect_control(1, peer());
    early.expect(3, expected());
    for _ in 0..3 {
        assert_eq!(early.judge(at(0), peer(), &frame), taken);
    }
    assert_eq!(early.judge(at(0), peer(), &frame), EarlyVerdict::OverControl, "of its own");
    early.expect_nothing(1);
    assert_eq!(early.judge(at(0), peer(), &frame), EarlyVerdict::OverControl, "it has another channel");
    assert_eq!(early.judge(at(10), peer(), &frame), taken);
    early.expect_nothing(3);
    assert_eq!(early.judge(at(10), unknown(4), &frame), taken);
    assert_eq!(early.judge(at(10), peer(), &frame), EarlyVerdict::OverControl, "an unknown peer again");
}

use core::net::SocketAddr;

#[test]
fn packets_beyond_the_rate_are_dropped_until_there_is_room() {
    let mut early = EarlyDemux::new(4, EVERY, EVERY);
    early.expect(3, expected());
    let whole = written(&header(0, 250, 0, at(0)));
    let taken = EarlyVerdict::Take(ArrivalClass::RealTime);
    let judged: Vec<_> = [0, 0, 0, 0, 9, 10, 10, 100, 100, 100, 100]
        .into_iter()
        .map(|now| early.judge(at(now), peer(), &whole) == taken)
        .collect();
    assert_eq!(judged, [true, true, true, false, false, true, false, true, true, true, false]);
    // A channel that is opened anew begins anew.
    early.expect(3, expected());
    assert_eq!(early.judge(at(100), peer(), &whole), taken);
    // No clock stops at the end of time.
    assert_eq!(early.judge(Instant::MAX, peer(), &whole), taken);
    early.expect(3, ExpectedChannel { tolerance: Duration::MAX, ..expected() });
    assert_eq!(early.judge(Instant::ZERO, peer(), &whole), taken);
}
