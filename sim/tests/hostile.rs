//! An unknown peer's frames at a host with open channels: nothing panics, memory stays bounded, and the channels do not notice.

mod common;

use common::{address, ample, at, contract, modern, ms, plan, us};
use laxity_core::units::Instant;
use laxity_core::wire::{Close, Control, DataHeader, Keepalive, MAJOR};
use laxity_sim::{ChannelHandle, HostConfig, HostId, Source, World};
use proptest::prelude::*;

fn two_hosts(seed: u64) -> (World, HostId, [ChannelHandle; 2]) {
    let mut world = World::new(seed);
    let from = world.add_host(HostConfig::new(modern(), address(1)));
    let to = world.add_host(HostConfig { receive_ring: 64, ..HostConfig::new(ample(1000), address(2)) });
    let mut open = |name, interval| {
        let contract = contract(4_500, ms(interval), 2, ms(10));
        let channel = world.open(from, to, plan(name, contract, ms(3), ms(1)));
        world.add_source(Source::full(channel, &contract, at(500)));
        channel
    };
    let channels = [open("a", 10), open("b", 15)];
    world.run_until(at(500));
    (world, to, channels)
}

/// What is injected: some of it random, some of it close to the truth.
#[derive(Clone, Debug)]
enum ForgedFrame {
    Random(Vec<u8>),
    Data { channel: u32, key: u64, bytes: u32, sequence: u64, arrival: u64, index: u16, payload: u16, flip: (u16, u8) },
    Control { kind: u8, token: u64, number: u64, flip: (u16, u8) },
}

fn forged() -> impl Strategy<Value = ForgedFrame> {
    let edge = || prop_oneof![0u64..100, any::<u64>(), u64::MAX - 2..=u64::MAX];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..600).prop_map(ForgedFrame::Random),
        (0u32..4, any::<u64>(), 1u32..5_000, edge(), edge(), 0u16..8, 1u16..1_000, any::<(u16, u8)>()).prop_map(
            |(channel, key, bytes, sequence, arrival, index, payload, flip)| ForgedFrame::Data {
                channel,
                key,
                bytes,
                sequence,
                arrival,
                index,
                payload,
                flip
            }
        ),
        (0u8..4, any::<u64>(), edge(), any::<(u16, u8)>())
            .prop_map(|(kind, token, number, flip)| ForgedFrame::Control { kind, token, number, flip }),
    ]
}

fn bytes_of(forged: &ForgedFrame) -> Vec<u8> {
    let mut frame = vec![0; 2048];
    let (len, flip) = match *forged {
        ForgedFrame::Random(ref bytes) => return bytes.clone(),
        ForgedFrame::Data { channel, key, bytes, sequence, arrival, index, payload, flip } => {
            let header = DataHeader {
                channel,
                key,
                message_bytes: bytes,
                sequence,
                logical_arrival: Instant::from_nanos(arrival),
                index,
                payload: payload.min(bytes as u16),
                stolen_units: 9,
                ..DataHeader::default()
            };
            header.write(&mut frame).unwrap();
            (header.frame_bytes(), flip)
        }
        ForgedFrame::Control { kind, token, number, flip } => {
            let (channel, key) = (number as u32 % 4, number);
            let control = match kind {
                0 => Control::Keepalive(Keepalive { channel, key, sent: number, ..Keepalive::default() }),
                1 => Control::Close(Close {
                    channel,
                    key,
                    sent: number,
                    unsent: 0,
                    reason: 0,
                    reverse: false,
                    exchange: None,
                }),
                2 => Control::Close(Close {
                    channel,
                    key,
                    sent: number,
                    unsent: 0,
                    reason: 0,
                    reverse: true,
                    exchange: None,
                }),
                _ => Control::Version(laxity_core::wire::Versions { lowest: 1, highest: 9 }),
            };
            (control.write(token, &mut frame).unwrap(), flip)
        }
    };
    frame.truncate(len);
    frame[usize::from(flip.0) % len] ^= flip.1;
    frame
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn forged_frames_change_nothing(attack in prop::collection::vec((forged(), any::<bool>(), 0u64..300_000), 1..150)) {
        let quiet = {
            let (mut world, _, channels) = two_hosts(1);
            world.run_until(at(1500));
            world.finish();
            channels.map(|channel| world.report(channel))
        };
        let (mut world, to, channels) = two_hosts(1);
        for (frame, as_peer, micros) in &attack {
            // Half of them claim to come from the peer; the keys they must guess.
            let peer = if *as_peer { address(1) } else { address(9) };
            world.inject_at(at(500) + us(*micros), to, peer, &bytes_of(frame));
        }
        world.run_until(at(1500));
        world.finish();
        for (channel, quiet) in channels.into_iter().zip(&quiet) {
            let report = world.report(channel);
            prop_assert_eq!(report.figures.misses, quiet.figures.misses);
            prop_assert_eq!(
                (report.figures.sent, report.figures.delivered, report.figures.late, report.figures.lost),
                (quiet.figures.sent, quiet.figures.delivered, quiet.figures.late, quiet.figures.lost)
            );
            // An honest message may wait for one batch of frames that end at the demultiplexer.
            let (seen, before) = (report.figures.response.unwrap(), quiet.figures.response.unwrap());
            prop_assert!(seen <= before + us(100), "{seen} {before}");
        }
    }
}

/// A flood beyond what the host can look at fills its ring, and nothing else.
#[test]
fn a_flood_ends_at_the_ring_and_the_demultiplexer() {
    let (mut world, to, channels) = two_hosts(1);
    for number in 0..200_000_u64 {
        world.inject_at(at(500) + us(number * 5), to, address(9), &[b'L', b'X', MAJOR, 1, 0, 0, 0, 0]);
    }
    world.run_until(at(1500));
    for channel in channels {
        let report = world.report(channel);
        assert_eq!((report.figures.late, report.figures.lost), (0, 0), "{report:?}");
    }
    assert!(world.host_counters(to).endpoint.foreign > 100_000);
    world.finish();
}
