//! Reassembly without a world: packets shuffled, doubled, dropped, forged. What is delivered is exact and in order, each
//! message ends once, each frame comes back.

#[path = "common/received.rs"]
mod received;

use laxity_core::contract::{Contract, Service, packets};
use laxity_core::frames::{FrameId, Frames, HeapFrames, MessageBuf};
use laxity_core::processor::{JobOrder, NextWork};
use laxity_core::receive::{DropReason, ReceivingChannel, TimeLoss};
use laxity_core::send::{SendConfig, SendingChannel, Violation};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, DataView};
use proptest::prelude::*;
use received::{deliver, nothing};

const PACKET: u32 = 100;
const FRAMES: usize = 64;

fn service(max: u64, burst: u64) -> Service {
    let ms = Duration::from_millis;
    Service::RealTime(Contract::new(max, 1, ms(10), burst, ms(20)).unwrap())
}

fn receiving(service: Service, messages: u32, queue: u32) -> ReceivingChannel {
    ReceivingChannel::new(received::terms(service), received::grant(messages, queue))
}

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

fn byte(sequence: u64, place: usize) -> u8 {
    sequence.wrapping_mul(31).wrapping_add((place * 7 + place / 100) as u64) as u8
}

/// Packet `index` of message `sequence` of `bytes` bytes, in a frame.
fn packet(frames: &mut HeapFrames, sequence: u64, bytes: u32, index: u16, arrival: Instant) -> FrameId {
    let frame = frames.take().expect("a frame is free");
    let start = usize::from(index) * PACKET as usize;
    let payload = (bytes as usize - start).min(PACKET as usize);
    let header = DataHeader {
        channel: 0,
        key: 0,
        message_bytes: bytes,
        sequence,
        logical_arrival: arrival,
        index,
        payload: payload as u16,
        ..DataHeader::default()
    };
    let body = header.write(frames.packet_mut(&frame)).unwrap();
    body.iter_mut().enumerate().for_each(|(place, found)| *found = byte(sequence, start + place));
    frame
}

/// Gives the packet to the channel, and the frame back if it is not taken.
fn offer(
    receiving: &mut ReceivingChannel,
    frames: &mut HeapFrames,
    now: Instant,
    frame: FrameId,
) -> Result<(), DropReason> {
    // Of that message as much as there is in the packet of that number, as its header says.
    let header = *DataView::parse(&frames.packet(&frame)[..=DATA_HEADER_BYTES]).unwrap().header();
    let left = (header.message_bytes as usize).saturating_sub(usize::from(header.index) * PACKET as usize);
    let bytes = frames.packet(&frame)[..DATA_HEADER_BYTES + left.clamp(1, PACKET as usize)].to_vec();
    let taken =
        receiving.accept(now.into(), &DataView::parse(&bytes).unwrap(), frame, usize::MAX, |_| TimeLoss::default());
    taken.map_err(|(frame, reason)| {
        frames.free(frame);
        reason
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn whatever_order_and_loss_delivery_is_exact_and_every_message_ends_once(
        sizes in prop::collection::vec(1u32..1_000, 1..12),
        fates in prop::collection::vec((0u8..10, any::<u16>(), any::<u16>()), 160),
        reach in 0usize..40,
        slots in 2u32..6,
        queue in 1u32..40,
        eager in any::<bool>(),
    ) {
        let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
        let mut receiving = receiving(service(1_000, 8), slots, queue);
        // What arrives, in which order: each packet lost, once or twice, displaced by at most `reach` places.
        let mut arrivals = Vec::new();
        let mut fate = fates.iter().cycle();
        for (sequence, &bytes) in sizes.iter().enumerate() {
            for index in 0..packets(bytes, PACKET) as u16 {
                let (what, first, second) = fate.next().unwrap();
                let place = arrivals.len();
                let displaced = |by: u16| place + usize::from(by) % (reach + 1);
                if *what > 0 {
                    arrivals.push((displaced(*first), sequence as u64, bytes, index));
                }
                if *what > 8 {
                    arrivals.push((displaced(*second), sequence as u64, bytes, index));
                }
            }
        }
        arrivals.sort_by_key(|arrival| arrival.0);
        let (mut next, mut delivered, mut now) = (0, 0, at(100_000));
        let mut drain = |receiving: &mut ReceivingChannel, frames: &mut HeapFrames, now| {
            while receiving.step(frames).is_some() {}
            while let Some((message, _)) = deliver(receiving, now) {
                assert!(message.sequence >= next);
                next = message.sequence + 1;
                delivered += 1;
                assert_eq!(message.message.len(), sizes[message.sequence as usize] as usize);
                let exact = |(place, &found): (usize, &u8)| found == byte(message.sequence, place);
                assert!(message.message.iter().enumerate().all(exact));
                receiving.recycle(message.message);
            }
        };
        for &(_, sequence, bytes, index) in &arrivals {
            now += Duration::from_micros(50);
            let frame = packet(&mut frames, sequence, bytes, index, at(100_000) + Duration::from_millis(10) * sequence);
            let _ = offer(&mut receiving, &mut frames, now, frame);
            if eager || frames.available() < 2 {
                drain(&mut receiving, &mut frames, now);
            }
        }
        drain(&mut receiving, &mut frames, now);
        receiving.finish(sizes.len() as u64);
        let c = receiving.counters;
        prop_assert_eq!(c.delivered, delivered);
        prop_assert_eq!(c.delivered + c.lost + c.dropped, sizes.len() as u64, "{:?}", c);
        receiving.clear(&mut frames);
        prop_assert_eq!(frames.available(), FRAMES);
    }

    /// Whatever a peer alleges, nothing panics, frames are bounded by the quota, and all come back.
    #[test]
    fn forged_headers_do_no_harm(
        forged in prop::collection::vec(
            (prop_oneof![any::<u64>(), 0u64..20, u64::MAX - 3..=u64::MAX], 1u32..2_000, any::<u16>(), any::<u64>(), 0u64..50_000),
            1..120,
        ),
        step_every in 1usize..8,
        sent in prop_oneof![any::<u64>(), 0u64..100],
    ) {
        let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
        let mut receiving = receiving(service(1_000, 3), 4, 10);
        let mut now = at(100_000);
        for (turn, (sequence, bytes, index, arrival, pause)) in forged.into_iter().enumerate() {
            now += Duration::from_micros(pause);
            let index = index % packets(bytes, PACKET) as u16;
            let frame = packet(&mut frames, sequence, bytes, index, Instant::from_nanos(arrival));
            let _ = offer(&mut receiving, &mut frames, now, frame);
            prop_assert!(FRAMES - frames.available() <= 10, "no more than its packet queue holds");
            let _ = receiving.work(1);
            if turn % step_every == 0 {
                receiving.step(&mut frames);
                if let Some((message, _)) = deliver(&mut receiving, now) {
                    receiving.recycle(message.message);
                }
            }
        }
        receiving.finish(sent);
        receiving.clear(&mut frames);
        prop_assert_eq!(frames.available(), FRAMES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// A sender that alleges what it likes, on our own clock, gets its rate, a second's worth once, and deadlines that are an
    /// interval apart: the demand that admission counted on.
    #[test]
    fn a_lying_sender_gets_its_contract(
        messages in prop::collection::vec((1u64..3, -2_000_000i64..200_000, 0u64..20_000), 300),
        base in prop_oneof![Just(10_000_000u64), Just(2_000)],
    ) {
        const INTERVAL: u64 = 10_000;
        let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
        let mut receiving = receiving(service(100, 3), 4, 10);
        let (mut now, mut sequence, mut accepted, mut deadlines) = (base, 0, 0, Vec::new());
        for (skip, offset, pause) in messages {
            now += pause / 4;
            sequence += skip;
            let claim = at(now.saturating_add_signed(offset));
            let frame = packet(&mut frames, sequence, 100, 0, claim);
            if offer(&mut receiving, &mut frames, at(now), frame).is_ok() {
                accepted += 1;
                let Some(NextWork { order: JobOrder::RealTime { release, deadline, .. }, .. }) = receiving.work(1) else {
                    panic!("a packet waits")
                };
                prop_assert!(release >= at(now) && release <= at(now + 10_000), "within `upstream`");
                prop_assert!(deadline >= release + Duration::from_millis(10), "never sooner than the stage");
                deadlines.push(deadline);
                receiving.step(&mut frames);
                while let Some((message, _)) = deliver(&mut receiving, at(now)) {
                    receiving.recycle(message.message);
                }
            }
        }
        prop_assert!(deadlines.is_sorted_by(|a, b| b.since(*a) >= Duration::from_nanos(INTERVAL * 1000)));
        // A second's credit, the burst, and `upstream`.
        let most = (now - base + 1_000_000 + 2 * INTERVAL + 10_000) / INTERVAL + 1;
        prop_assert!(accepted <= most, "{accepted} of at most {most}");
    }

    /// Messages that overtake each other and come late by any amount below the credit are not the sender's fault.
    #[test]
    fn an_honest_sender_is_not_blamed_for_the_way(delays in prop::collection::vec(0u64..200_000, 60), burst in 1u64..4) {
        let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
        let mut receiving = receiving(service(100, burst), 40, 60);
        let arrival = |sequence: usize| 100_000 + 10_000 * sequence as u64;
        let mut arrivals: Vec<_> = delays.iter().enumerate().map(|(number, delay)| (arrival(number) + delay, number)).collect();
        arrivals.sort_unstable();
        for (now, number) in arrivals {
            let frame = packet(&mut frames, number as u64, 100, 0, at(arrival(number)));
            let _ = offer(&mut receiving, &mut frames, at(now), frame);
            receiving.step(&mut frames);
            while let Some((message, _)) = deliver(&mut receiving, at(now)) {
                receiving.recycle(message.message);
            }
        }
        prop_assert_eq!(receiving.counters.frames_over_contract, 0);
    }
}

/// A packet that finds no slot must not use up the channel's next intervals.
#[test]
fn a_stale_packet_leaves_the_regulator_alone() {
    let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
    let mut receiving = receiving(service(1_000, 8), 2, 40);
    let now = at(100_000);
    let arrival = |sequence: u64| now + Duration::from_millis(10) * sequence;
    // Both slots hold messages newer than message 0, of which nine packets come now.
    for sequence in [1, 2] {
        let frame = packet(&mut frames, sequence, 200, 0, arrival(sequence));
        assert_eq!(offer(&mut receiving, &mut frames, now, frame), Ok(()));
    }
    for index in 0..9 {
        let frame = packet(&mut frames, 0, 900, index, arrival(0));
        assert_eq!(offer(&mut receiving, &mut frames, now, frame), Err(DropReason::Stale));
    }
    while receiving.step(&mut frames).is_some() {}
    let frame = packet(&mut frames, 3, 200, 0, arrival(3));
    assert_eq!(offer(&mut receiving, &mut frames, at(125_000), frame), Ok(()));
    // Messages 1 and 2 were taken at 110 and 120 ms; message 3 is in time at 130 ms, or 10 ms after its arrival.
    let Some(NextWork { order: JobOrder::RealTime { release, .. }, .. }) = receiving.work(1) else { panic!() };
    assert_eq!(release, at(135_000));
}

/// The buffers of a channel are as many as its places; a buffer from elsewhere must not make them more.
#[test]
fn a_buffer_that_was_not_lent_is_not_taken_back() {
    let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
    let mut receiving = receiving(service(100, 8), 2, 40);
    for sequence in 0..8 {
        let now = at(100_000 + sequence * 10_000);
        receiving.recycle(MessageBuf::with_capacity(1_000));
        let frame = packet(&mut frames, sequence, 100, 0, now);
        let _ = offer(&mut receiving, &mut frames, now, frame);
        receiving.step(&mut frames);
    }
}

/// `decay` stretches intervals, not the limits of the wire.
#[test]
fn an_oversize_message_stays_within_the_limits_of_the_wire() {
    let config = SendConfig {
        service: service(16 << 20, 1),
        overload: laxity_core::contract::Overload::Decay,
        priority: 0,
        packet: 1_000,
        work_conserving: false,
    };
    let mut sending = SendingChannel::new(config, 4, 4);
    let rejected = sending.submit(at(1), MessageBuf::with_capacity(0), nothing).unwrap_err();
    assert!(matches!(rejected.violation, Violation::Undersize { .. }));
    let mut message = MessageBuf::with_capacity(17 << 20);
    message.set_len(17 << 20);
    let rejected = sending.submit(at(1), message, nothing).unwrap_err();
    assert_eq!(rejected.violation, Violation::Oversize { found: 17 << 20, most: 16 << 20 });
}

/// A message that came late moves the next one's deadline here: what is due stays what was admitted. That delay is not the next
/// one's own, so it is not held against the bound.
#[test]
fn what_a_late_message_defers_is_not_over_the_bound() {
    let mut frames = HeapFrames::new(8, DATA_HEADER_BYTES + PACKET as usize);
    let mut receiving = receiving(service(100, 1), 6, 4);
    let mut deliver = |found: u64, sequence, arrival: u64, complete: u64| {
        let frame = packet(&mut frames, sequence, 100, 0, at(arrival));
        offer(&mut receiving, &mut frames, at(found), frame).unwrap();
        let Some(NextWork { order: JobOrder::RealTime { deadline, .. }, .. }) = receiving.work(1) else { panic!() };
        receiving.step(&mut frames).unwrap();
        (deadline, deliver(&mut receiving, at(complete)).unwrap().0)
    };
    let spare = Duration::from_millis(8);
    // Here at l + 10 ms, complete 2 ms later: that is the bound.
    let (deadline, on_time) = deliver(105_000, 0, 100_000, 112_000);
    assert_eq!(
        (deadline, on_time.deferred, on_time.beyond_bound(spare)),
        (at(120_000), Duration::ZERO, Duration::ZERO)
    );
    // Found 6 ms late: its own delay, which counts unless there is an explanation.
    let (deadline, late) = deliver(126_000, 1, 110_000, 128_000);
    assert_eq!((deadline, late.deferred), (at(136_000), Duration::ZERO));
    assert_eq!(late.beyond_bound(spare), Duration::from_millis(6));
    // In time, but an interval after the one before it: due 6 ms later than it would have been.
    let (deadline, next) = deliver(127_000, 2, 120_000, 138_500);
    assert_eq!((deadline, next.deferred), (at(146_000), Duration::from_millis(6)));
    assert_eq!(next.beyond_bound(spare), Duration::from_micros(500));
    // Over the deadline it is a miss, not over the bound.
    let (_, missed) = deliver(135_000, 3, 130_000, 150_001);
    assert_eq!((missed.lateness(), missed.beyond_bound(spare)), (Duration::from_micros(1), Duration::ZERO));
}

/// A complete message that makes room for a newer one was not lost in transit. If nothing shows why it was not processed yet, that is
/// Laxity's fault; if its application holds the buffers, it is the application's.
#[test]
fn what_finds_no_place_is_not_the_networks_fault() {
    let mut frames = HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize);
    let mut receiving = receiving(service(1_000, 8), 2, 40);
    let now = at(100_000);
    let arrival = |sequence: u64| now + Duration::from_millis(10) * sequence;
    // Of message 1 a packet is missing; two places, and no step in between.
    for (sequence, bytes) in [(0, 100), (1, 200), (2, 100), (3, 100)] {
        let frame = packet(&mut frames, sequence, bytes, 0, arrival(sequence));
        assert_eq!(offer(&mut receiving, &mut frames, now, frame), Ok(()));
    }
    let counters = receiving.counters;
    assert_eq!((counters.misses.laxity, counters.misses.network, counters.lost), (1, 1, 1), "message 0 and message 1");
}
