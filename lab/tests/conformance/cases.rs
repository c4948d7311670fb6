//! The cases that hold for every link.

use std::panic::{AssertUnwindSafe, catch_unwind};

use laxity_core::frames::Frames;
use laxity_core::receive::ArrivalClass;
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::{EVENT_CAPACITY, Link, LinkEvent, LinkOver};

use crate::pair::*;
use crate::{allocations, pair};

/// Both ends, ready to receive.
fn ready<P: Pair>(setup: Setup) -> Option<P> {
    let mut pair = P::new(setup)?;
    (0..2).for_each(|end| pair.expect(end));
    Some(pair)
}

/// Packets of many sizes, the shortest and the longest among them, small after large.
fn of_all_sizes(longest: usize, count: u64) -> Vec<Packet> {
    let size = |number: u64| match number % 8 {
        0 => SHORTEST,
        1 => longest,
        // What Ethernet fills up, and odd lengths, whose checksums differ.
        2 => SHORTEST + 1,
        3 => longest - 1,
        other => SHORTEST + (number as usize * 37 * other as usize) % (longest - SHORTEST),
    };
    (0..count).map(|number| Packet::new(number, size(number))).collect()
}

pub(crate) fn every_packet_arrives_once_as_it_was_sent<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let packets = of_all_sizes(pair.longest(), 200);
    for from in 0..2 {
        let sender = pair.address(from);
        for some in packets.chunks(50) {
            send(&mut pair, from, some);
            let seen = collect(&mut pair, 1 - from, some.len());
            assert_eq!(seen.iter().map(|(packet, _)| *packet).collect::<Vec<_>>(), some);
            assert!(seen.iter().all(|(_, peer)| is_same(*peer, sender)), "{seen:?}, expected {sender}");
        }
        assert_eq!(drain(&mut pair, 1 - from), []);
        let bytes: usize = packets.iter().map(|packet| packet.bytes).sum();
        let (sent, received) = (pair.counters(from), pair.counters(1 - from));
        assert_eq!((sent.sent_frames, sent.sent_bytes, sent.send_dropped), (200, bytes as u64, 0));
        assert_eq!((received.received_frames, received.received_bytes), (200, bytes as u64));
        assert_eq!((received.receive_truncated, received.receive_overflow), (0, 0));
    }
    check_frames(&mut pair, &setup);
    for end in pair.ends() {
        assert_eq!((end.link.poll_event(), end.link.poll_policed()), (None, None));
    }
}

pub(crate) fn each_class_is_in_order<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let classes = [ArrivalClass::RealTime, ArrivalClass::BestEffort, ArrivalClass::Control];
    let packets: Vec<_> =
        (0..90).map(|number| Packet { class: classes[number as usize % 3], number, bytes: 100 }).collect();
    send(&mut pair, 0, &packets);
    let seen = collect(&mut pair, 1, packets.len());
    for class in classes {
        let of_class = |packet: &&Packet| packet.class == class;
        let sent: Vec<_> = packets.iter().filter(of_class).map(|packet| packet.number).collect();
        let found: Vec<_> =
            seen.iter().map(|(packet, _)| packet).filter(of_class).map(|packet| packet.number).collect();
        assert_eq!(found, sent, "{class:?}");
    }
}

pub(crate) fn a_whole_batch_leaves_at_once_and_there_is_room_again<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let (room, to) = (pair.ends()[0].link.room(), pair.address(1));
    assert!(room >= setup.batch, "{room}");
    for round in 0..5 {
        for number in 0..room {
            assert_eq!(pair.ends()[0].link.room(), room - number);
            assert!(buffer(&mut pair, 0, &Packet::new(number as u64, 100 + round), to));
        }
        assert_eq!(pair.ends()[0].link.room(), 0);
        let mut taken = flush(&mut pair, 0);
        assert!(pair.ends()[0].link.wants_writable() || taken == room, "{taken} of {room} without saying so");
        let mut seen = collect(&mut pair, 1, taken);
        // What was left stays in order.
        while taken < room {
            pair.pass_time();
            let more = flush(&mut pair, 0);
            seen.extend(collect(&mut pair, 1, more));
            taken += more;
        }
        let numbers: Vec<_> = seen.iter().map(|(packet, _)| packet.number as usize).collect();
        assert_eq!(numbers, (0..room).collect::<Vec<_>>());
        check_frames(&mut pair, &setup);
        assert_eq!((pair.ends()[0].link.room(), pair.ends()[0].link.wants_writable()), (room, false));
    }
}

pub(crate) fn who_stages_without_room_is_told<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let to = pair.address(1);
    while pair.ends()[0].link.room() > 0 {
        assert!(buffer(&mut pair, 0, &Packet::new(0, SHORTEST), to));
    }
    let frame = pair.ends()[0].frames.take().expect("there are more frames than room");
    let buffered = catch_unwind(AssertUnwindSafe(|| pair.ends()[0].link.transmit(frame, SHORTEST, to)));
    assert!(buffered.is_err());
}

pub(crate) fn no_more_is_received_than_asked_for<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    assert_eq!(receive(&mut pair, 1, 8), []);
    send(&mut pair, 0, &(0..40).map(|number| Packet::new(number, 60)).collect::<Vec<_>>());
    let mut next = 0;
    for _ in 0..1_000 {
        pair.pass_time();
        for limit in [0, 1, 3, 7] {
            // `receive` checks the limit.
            for (packet, _) in receive(&mut pair, 1, limit) {
                assert_eq!(packet.number, next);
                next += 1;
            }
        }
        if next == 40 {
            break;
        }
    }
    assert_eq!(next, 40);
    check_frames(&mut pair, &setup);
}

/// A receiver that does not look, under more than its region and the network hold.
pub(crate) fn overload_loses_packets_but_no_frames<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let (to, longest) = (pair.address(1), pair.longest());
    let mut number = 0;
    for _ in 0..600 {
        while buffer(&mut pair, 0, &Packet::new(number, longest.min(1_000)), to) {
            number += 1;
        }
        flush(&mut pair, 0);
        if pair.ends()[0].link.wants_writable() {
            pair.pass_time();
        }
    }
    assert!(number as usize > 4 * setup.frames, "{number}");
    let mut seen = drain(&mut pair, 1);
    for _ in 0..20 {
        flush(&mut pair, 0);
        seen.extend(drain(&mut pair, 1));
    }
    // Some links say what they dropped with the next one that gets through.
    send(&mut pair, 0, &[Packet::new(number, 100)]);
    seen.extend(collect(&mut pair, 1, 1));
    assert!(seen.windows(2).all(|two| two[0].0.number < two[1].0.number), "each once, in order");
    assert_eq!(seen.last().map(|(packet, _)| packet.number), Some(number), "it recovers");
    check_frames(&mut pair, &setup);
    // What is counted in the kernel may be told later.
    for _ in 0..1_000 {
        let (sent, received) = (pair.counters(0), pair.counters(1));
        assert_eq!((sent.sent_frames + sent.send_dropped, received.receive_truncated), (number + 1, 0));
        assert_eq!(received.received_frames, seen.len() as u64);
        let accounted = received.received_frames + received.receive_overflow;
        assert!(accounted <= sent.sent_frames, "{sent:?} {received:?}");
        if accounted == sent.sent_frames || !P::COUNTS_ALL {
            return;
        }
        pair.pass_time();
    }
    panic!("packets are not accounted for: {:?} {:?}", pair.counters(0), pair.counters(1));
}

pub(crate) fn what_is_too_long_is_dropped_alone_counted_and_reported<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let (to, longest) = (pair.address(1), pair.longest());
    let too_long = pair.too_long();
    assert!(pair.ends()[0].frames.packet_capacity() >= too_long);
    for number in 0..3 {
        assert!(buffer(&mut pair, 0, &Packet::new(2 * number, longest), to));
        let end = &mut pair.ends()[0];
        let frame = end.frames.take().expect("a frame is free");
        end.link.transmit(frame, too_long, to);
        assert!(buffer(&mut pair, 0, &Packet::new(2 * number + 1, SHORTEST), to));
    }
    flush_all(&mut pair, 0);
    let numbers: Vec<_> = collect(&mut pair, 1, 6).iter().map(|(packet, _)| packet.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    let counters = pair.counters(0);
    assert_eq!((counters.send_dropped, counters.send_too_large, counters.sent_frames), (3, 3, 6));
    let mut reports = 0;
    while let Some(event) = pair.ends()[0].link.poll_event() {
        assert!(matches!(event, LinkEvent::TooLarge { peer, .. } if is_same(peer, to)), "{event:?}");
        reports += 1;
    }
    assert!((1..=3).contains(&reports), "{reports}");
    check_frames(&mut pair, &setup);
}

pub(crate) fn an_absent_peer_disturbs_no_other<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let (to, absent) = (pair.address(1), pair.absent());
    let (mut seen, mut told) = (Vec::new(), 0);
    for number in 0..60 {
        for to in [absent, to, absent] {
            while !buffer(&mut pair, 0, &Packet::new(number, 80), to) {
                flush(&mut pair, 0);
                pair.pass_time();
            }
        }
        flush(&mut pair, 0);
        pair.pass_time();
        seen.extend(receive(&mut pair, 1, 8));
        for _ in 0..2 * EVENT_CAPACITY {
            match pair.ends()[0].link.poll_event() {
                Some(LinkEvent::Unreachable(peer)) => {
                    assert!(is_same(peer, absent), "{peer} is there");
                    told += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
    }
    flush_all(&mut pair, 0);
    seen.extend(drain(&mut pair, 1));
    let numbers: Vec<_> = seen.iter().map(|(packet, _)| packet.number).collect();
    assert_eq!(numbers, (0..60).collect::<Vec<_>>());
    assert!(told > 0 || !P::REPORTS_ABSENCE);
    check_frames(&mut pair, &setup);
}

pub(crate) fn without_frames_nothing_breaks<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let mut held = Vec::new();
    for round in 0..3u64 {
        while let Some(frame) = pair.ends()[1].frames.take() {
            held.push(frame);
        }
        let packets: Vec<_> = (0..20).map(|number| Packet::new(100 * round + number, 90)).collect();
        send(&mut pair, 0, &packets);
        let mut early = drain(&mut pair, 1);
        held.drain(..).for_each(|frame| pair.ends()[1].frames.free(frame));
        early.extend(drain(&mut pair, 1));
        let last = Packet::new(100 * round + 50, 90);
        send(&mut pair, 0, &[last]);
        early.extend(collect(&mut pair, 1, 1));
        assert!(early.windows(2).all(|two| two[0].0.number < two[1].0.number), "{early:?}");
        assert_eq!(early.last().map(|(packet, _)| *packet), Some(last), "it recovers");
        assert!(early.len() == 21 || !P::KEEPS_WITHOUT_FRAMES, "{} of 21", early.len());
    }
    assert!(pair.counters(1).receive_starved > 0 || !P::KEEPS_WITHOUT_FRAMES);
    check_frames(&mut pair, &setup);
}

/// A sender that does what it likes with its frames, a receiver that keeps some for a while: by seed.
pub(crate) fn frames_are_conserved_whatever_is_done<P: Pair>(setup: Setup) {
    for seed in 1..6u64 {
        let Some(mut pair) = ready::<P>(setup) else { return };
        let (to, longest) = (pair.address(1), pair.longest());
        let (mut state, mut number, mut held, mut last) = (seed, 0, Vec::new(), None);
        let mut random = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for _ in 0..400 {
            match random(6) {
                0 | 1 => {
                    for _ in 0..random(20) {
                        let bytes = SHORTEST + random((longest - SHORTEST) as u64) as usize;
                        number += u64::from(buffer(&mut pair, 0, &Packet::new(number, bytes), to));
                    }
                }
                2 => _ = flush(&mut pair, 0),
                3 => pair.pass_time(),
                4 => {
                    let limit = random(24) as usize;
                    let End { link, frames } = &mut pair.ends()[1];
                    let given = link.receive(limit, frames, |received, frames| {
                        let packet = Packet::read(&frames.packet(&received.frame)[..received.len]);
                        assert!(last.is_none_or(|last| last < packet.number), "{last:?} before {packet:?}");
                        last = Some(packet.number);
                        held.push(received.frame);
                    });
                    assert!(given.expect("the link works") <= limit);
                }
                _ => {
                    for _ in 0..random(30).min(held.len() as u64) {
                        let frame = held.swap_remove(random(held.len() as u64) as usize);
                        pair.ends()[1].frames.free(frame);
                    }
                }
            }
        }
        held.drain(..).for_each(|frame| pair.ends()[1].frames.free(frame));
        flush_all(&mut pair, 0);
        drain(&mut pair, 1);
        check_frames(&mut pair, &setup);
    }
}

pub(crate) fn nothing_is_allocated_after_set_up<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let (to, absent, longest, too_long) = (pair.address(1), pair.absent(), pair.longest(), pair.too_long());
    let before = allocations();
    let (mut received, mut number) = (0, 0);
    for round in 0..200 {
        for place in 0..12 {
            let to = if place == 5 { absent } else { to };
            let bytes = if place == 7 { longest } else { 64 + round };
            number += u64::from(buffer(&mut pair, 0, &Packet::new(number, bytes), to));
        }
        let End { link, frames } = &mut pair.ends()[0];
        if let Some(frame) = frames.take() {
            match link.room() {
                0 => frames.free(frame),
                _ => link.transmit(frame, too_long, to),
            }
        }
        flush(&mut pair, 0);
        while pair.ends()[0].link.poll_event().is_some() {}
        pair.pass_time();
        let End { link, frames } = &mut pair.ends()[1];
        received += link.receive(32, frames, |received, frames| frames.free(received.frame)).expect("the link works");
        let _ = (link.poll_policed(), link.counters());
    }
    assert_eq!(allocations() - before, 0);
    assert!(received > 1_000, "{received}");
}

/// A place may be told what may arrive, in any order; a frame that no place expects is not delivered where that is looked at.
pub(crate) fn what_is_not_expected_any_more_does_no_harm<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    send(&mut pair, 0, &[Packet::new(1, 99)]);
    assert_eq!(pair::collect(&mut pair, 1, 1).len(), 1);
    for place in [3, 3, 0, 1_000_000] {
        pair.ends()[1].link.expect_nothing(place);
    }
    send(&mut pair, 0, &[Packet::new(2, 99)]);
    assert_eq!(drain(&mut pair, 1).len(), usize::from(!P::DEMULTIPLEXES));
    let (sender, peer) = (pair.address(0), pair.address(1));
    pair.ends()[0].link.expect_control(7, peer).expect("it is taken note of");
    pair.ends()[1].link.expect_control(3, sender).expect("it is taken note of");
    pair.expect(1);
    send(&mut pair, 0, &[Packet::new(3, 99)]);
    assert_eq!(pair::collect(&mut pair, 1, 1).len(), 1);
    check_frames(&mut pair, &setup);
}

/// Links that look into no packet carry any bytes, even one alone.
pub(crate) fn any_bytes_are_carried_by_what_does_not_look<P: Pair>(setup: Setup) {
    let Some(mut pair) = ready::<P>(setup) else { return };
    let (to, lengths) = (pair.address(1), [1, 2, 3, 4, DATA_HEADER_BYTES - 1, DATA_HEADER_BYTES, 1_000]);
    for len in lengths {
        let End { link, frames } = &mut pair.ends()[0];
        let frame = frames.take().expect("a frame is free");
        frames.packet_mut(&frame)[..len].fill(len as u8);
        link.transmit(frame, len, to);
    }
    flush_all(&mut pair, 0);
    let mut seen = Vec::new();
    for _ in 0..10 {
        pair.pass_time();
        let End { link, frames } = &mut pair.ends()[1];
        link.receive(10, frames, |received, frames| {
            seen.push(frames.packet(&received.frame)[..received.len].to_vec());
            frames.free(received.frame);
        })
        .expect("the link works");
    }
    let expected = if P::DEMULTIPLEXES { vec![] } else { lengths.map(|len| vec![len as u8; len]).to_vec() };
    assert_eq!(seen, expected);
    check_frames(&mut pair, &setup);
}
