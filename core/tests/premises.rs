//! Premises P1 to P4 of the analysis, where the run time keeps them: see the table in ARCHITECTURE.md.

#[path = "common/received.rs"]
mod received;

use laxity_core::contract::{Contract, Overload, Service, packets};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::processor::{JobOrder, NextWork, Policy, Processor, RemainingWork};
use laxity_core::receive::{DropReason, ReceivingChannel, TimeLoss};
use laxity_core::regulator::Regulator;
use laxity_core::send::{Arrival, HandOverDelay, SendConfig, SendingChannel, Violation};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, DataView};
use proptest::prelude::*;
use received::nothing;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn real_time(max: u64, min: u64) -> Service {
    let ms = Duration::from_millis;
    Service::RealTime(Contract::new(max, min, ms(10), 4, ms(20)).unwrap())
}

fn sending(service: Service, packet: u32) -> SendingChannel {
    let config = SendConfig { service, overload: Overload::Block, priority: 0, packet, work_conserving: false };
    SendingChannel::new(config, 8, 400)
}

fn message(bytes: usize) -> MessageBuf {
    let mut message = MessageBuf::with_capacity(bytes.max(1));
    message.set_len(bytes);
    message
}

fn header() -> DataHeader {
    DataHeader {
        channel: 0,
        key: 0,
        message_bytes: 0,
        sequence: 0,
        logical_arrival: at(0),
        index: 0,
        payload: 0,
        ..DataHeader::default()
    }
}

/// P2, at the sender: a message below `min_message` is handed back, counted, and costs the channel nothing.
#[test]
fn a_message_that_is_too_small_is_refused_and_counted() {
    let mut sending = sending(real_time(1_000, 250), 100);
    for bytes in [0, 1, 249] {
        let rejected = sending.submit(at(1), message(bytes), nothing).unwrap_err();
        assert_eq!(rejected.violation, Violation::Undersize { found: bytes as u64, least: 250 });
        let text = format!("the message has {bytes} bytes, the channel's contract allows no less than 250");
        assert_eq!((rejected.violation.to_string(), rejected.would_block), (text, false));
        assert_eq!(rejected.message.len(), bytes, "the caller has its buffer back");
    }
    let counters = sending.counters;
    assert_eq!((counters.refused, counters.violations.size, counters.accepted), (3, 3, 0));
    assert_eq!(sending.submit(at(1), message(250), nothing).unwrap().logical_arrival, at(1), "no interval was used up");
    assert!(sending.work(1).is_some());
}

proptest! {
    /// P2, at the sender: no packet is smaller than the smallest of any message that the contract allows, which is what
    /// admission takes for L_min.
    #[test]
    fn no_packet_is_smaller_than_the_smallest_of_the_contract(
        packet in 64u32..300,
        min in 1u32..1_000,
        more in 0u32..1_000,
        sizes in prop::collection::vec(0u32..2_200, 1..20),
    ) {
        let max = min + more;
        let rest = |bytes: u32| if bytes.is_multiple_of(packet) { packet } else { bytes % packet };
        let smallest = (min..=max).map(rest).min().unwrap_or(0);
        let mut frames = HeapFrames::new(4, DATA_HEADER_BYTES + packet as usize);
        for bytes in sizes {
            let mut sending = sending(real_time(max.into(), min.into()), packet);
            prop_assert_eq!(sending.submit(at(1), message(bytes as usize), nothing).is_ok(), (min..=max).contains(&bytes));
            let mut count = 0;
            while sending.step((0, 0), &mut frames).is_some() {
                let made = sending.packets.pop().unwrap();
                prop_assert!(made.payload >= smallest && made.payload <= packet, "{} of {}", made.payload, bytes);
                frames.free(made.frame);
                count += 1;
            }
            prop_assert!(count <= packets(max, packet));
        }
    }
}

/// P2, at the receiver: what comes from the network may have any size, but a message below `min_message`, or cut into smaller
/// packets than was agreed, is dropped before a handler has anything to do for it. What is left is the work of looking at the
/// frame, and that is charged for every frame that can arrive (R = K·C_d, assumption A4), of whatever size.
#[test]
fn a_small_message_from_the_network_makes_no_work() {
    const PACKET: u32 = 100;
    let mut receiving = ReceivingChannel::new(received::terms(real_time(1_000, 250)), received::grant(4, 40));
    let mut frames = HeapFrames::new(8, DATA_HEADER_BYTES + PACKET as usize);
    let mut offer = |message_bytes: u32, index: u16, payload: u16| {
        let mut bytes = [0; DATA_HEADER_BYTES + PACKET as usize];
        let header = DataHeader { message_bytes, index, payload, ..header() };
        header.write(&mut bytes).unwrap();
        let view = DataView::parse(&bytes[..DATA_HEADER_BYTES + usize::from(payload)]).ok();
        let frame = frames.take().unwrap();
        let refused = view.map(|view| {
            receiving.accept(at(1).into(), &view, frame, usize::MAX, |_| TimeLoss::default()).map_err(
                |(frame, reason)| {
                    frames.free(frame);
                    reason
                },
            )
        });
        (refused, receiving.work(1).is_some(), receiving.counters.frames_invalid)
    };
    // Messages that are too small; then one of a proper size in packets that are.
    for (number, (bytes, index, payload)) in
        [(1, 0, 1), (249, 0, 100), (249, 2, 49), (250, 0, 1), (250, 1, 99), (250, 2, 1)].into_iter().enumerate()
    {
        let (refused, works, invalid) = offer(bytes, index, payload);
        assert_eq!(refused, Some(Err(DropReason::Invalid)), "{bytes} {index} {payload}");
        assert_eq!((works, invalid), (false, number as u64 + 1));
    }
    let (taken, works, _) = offer(250, 2, 50);
    assert_eq!((taken, works), (Some(Ok(())), true));
}

/// Work in blocks of one packet that is current from the beginning.
fn work(deadline: u64) -> NextWork {
    NextWork { order: real_time_order(0, deadline), block: 1 }
}

fn real_time_order(release: u64, deadline: u64) -> JobOrder {
    JobOrder::RealTime { release: at(release), deadline: at(deadline), priority: 0, work_conserving: true }
}

/// P4 with the figures of its counter-example (C4): two messages of four packets of 1, P = 1, a switch costs 10. In one order
/// they are done at 28; taking turns they would be at 88, or at 61 if only the first switch were paid twice.
#[test]
fn on_equal_deadlines_one_message_is_finished_before_the_other_begins() {
    let mut processor = Processor::new(Policy::EarliestDeadline, 2);
    let (mut left, mut time) = ([4, 4], 0);
    // The other becomes ready while the first runs.
    processor.ready(at(0), 1, work(48));
    let mut order = Vec::new();
    while let Some(pick) = processor.pick(at(time)) {
        processor.ready(at(time), 0, work(48));
        let place = pick.id as usize;
        time += 1 + if pick.switched { 10 } else { 0 };
        left[place] -= 1;
        order.push(pick.id);
        let after = if left[place] > 0 { RemainingWork::Same(work(48)) } else { RemainingWork::Message(None) };
        assert!(processor.stepped(at(time), after), "a quantum is one packet");
        if left == [0, 0] {
            break;
        }
    }
    assert_eq!((order, time), (vec![1, 1, 1, 1, 0, 0, 0, 0], 28));
}

proptest! {
    /// A2, P3 and P4: whatever becomes ready when, at each preemption point the handler that goes on is of the best class and,
    /// if it is current, has the earliest deadline; it is the one that ran unless another is strictly better. Between
    /// preemption points it is the same one. So an early message never overtakes, and never is in the way for longer than a
    /// quantum.
    #[test]
    fn at_a_preemption_point_the_best_runs_and_the_running_one_wins_ties(
        quantum in 1u32..4,
        arrivals in prop::collection::vec((0u64..60, 0u8..3, 0u64..6, 1u32..8), 1..8),
    ) {
        let mut processor = Processor::new(Policy::EarliestDeadline, 8);
        // What each handler has to do: its work and packets left.
        let mut known: Vec<Option<(NextWork, u32)>> = vec![None; 8];
        let (mut running, mut since_point) = (None, 0);
        // Smaller is better; best-effort handlers among themselves in any order.
        let rank = |now: u64, work: &NextWork| match work.order {
            JobOrder::RealTime { release, deadline, .. } if release <= at(now) => (0, deadline),
            JobOrder::BestEffort => (1, at(0)),
            JobOrder::RealTime { release, .. } => (2, release),
        };
        for now in 0..400 {
            for (id, &(_, class, span, count)) in arrivals.iter().enumerate().filter(|(_, (time, ..))| *time == now) {
                let order = match class {
                    0 => JobOrder::BestEffort,
                    // Few deadlines, so that many are equal.
                    1 => real_time_order(now, 500 + span),
                    _ => real_time_order(now + 4 * span + 1, 500 + span),
                };
                let work = NextWork { order, block: quantum };
                known[id] = Some((work, count));
                processor.ready(at(now), id as u32, work);
            }
            let best = known.iter().flatten().map(|(work, _)| rank(now, work)).min();
            let Some(pick) = processor.pick(at(now)) else {
                prop_assert!(best.is_none(), "a job may run at {}", now);
                running = None;
                continue;
            };
            let id = pick.id as usize;
            let (work, left) = known[id].expect("who runs has work");
            match running {
                Some(before) if since_point > 0 => prop_assert_eq!(id, before, "no preemption point at {}", now),
                Some(before) if known[before].is_some_and(|(work, _)| Some(rank(now, &work)) == best) => {
                    prop_assert_eq!(id, before, "ties keep the processor at {}", now);
                }
                _ => prop_assert_eq!(Some(rank(now, &work)), best, "at {}", now),
            }
            since_point += 1;
            let ends = left == 1;
            known[id] = (!ends).then_some((work, left - 1));
            let point = processor.stepped(at(now), if ends { RemainingWork::Message(None) } else { RemainingWork::Same(work) });
            prop_assert_eq!(point, ends || since_point == quantum, "P packets, or a message's end, at {}", now);
            since_point = if point { 0 } else { since_point };
            running = (!ends).then_some(id);
        }
    }
}

/// What a channel under `decay` may put on the link in an interval is what admission is asked for.
#[test]
fn an_oversize_message_has_no_more_on_the_link_in_an_interval_than_whole_packets() {
    let millis = Duration::from_millis;
    for (max, packet, whole) in [(700, 1400, 1400), (1400, 1400, 1400), (1401, 1400, 2800), (1, 64, 64)] {
        let contract = Contract::new(max, max, millis(10), 2, millis(40)).unwrap();
        let admitted = contract.under_decay(packet).unwrap();
        assert_eq!((admitted.max_message(), admitted.min_message()), (whole, 1));
        assert_eq!((admitted.interval(), admitted.burst(), admitted.deadline()), (millis(10), 2, millis(40)));
    }
    let largest = u64::from(laxity_core::limits::MAX_MESSAGE_BYTES);
    let contract = Contract::new(largest, 1, millis(10), 1, millis(40)).unwrap();
    assert_eq!(contract.under_decay(1400).unwrap().max_message(), laxity_core::limits::MAX_MESSAGE_BYTES);
}

/// P1, at the sender: however late messages are handed over, what is served is an interval apart. What is promised counts from the
/// application's stamp all the same, and what is known of the hand-over explains the difference for as long as it lasts.
#[test]
fn what_is_promised_counts_from_the_stamp_and_what_is_served_keeps_its_distance() {
    let ms = |millis: u64| at(millis * 1_000_000);
    let mut sending = sending(real_time(1_000, 1), 1_000);
    let late = Arrival { stamp: ms(100), served: ms(149), withheld: Duration::from_millis(30) };
    let mut taken =
        |arrival: Arrival| sending.submit(arrival, message(1_000), nothing).map(|it| (it.logical_arrival, it.release));
    assert_eq!(taken(late).unwrap(), (ms(100), ms(149)));
    assert_eq!(taken(ms(151).into()).unwrap(), (ms(151), ms(159)));
    assert_eq!(taken(ms(200).into()).unwrap(), (ms(200), ms(200)), "what is late is made up for in a pause");
    assert_eq!(taken(ms(211).into()).unwrap(), (ms(211), ms(211)));
    // What is late by our own mistake stays so, whatever is taken from us afterwards.
    let ours = Arrival { stamp: ms(221), served: ms(261), withheld: Duration::ZERO };
    assert_eq!(taken(ours).unwrap(), (ms(221), ms(261)));
    let later = Arrival { stamp: ms(231), served: ms(250), withheld: Duration::from_millis(19) };
    assert_eq!(taken(later).unwrap(), (ms(231), ms(271)));
    let mut frames = HeapFrames::new(8, DATA_HEADER_BYTES + 1_000);
    let mut evidence = Vec::new();
    while sending.step((0, 0), &mut frames).is_some() {
        let packet = sending.packets.pop().unwrap();
        let header = *DataView::parse(frames.packet(&packet.frame)).unwrap().header();
        assert_eq!(header.logical_arrival, packet.message_arrival, "the receiver counts from the stamp");
        let HandOverDelay { late, explained, .. } = packet.handed_over;
        evidence.push((late.as_nanos() / 1_000_000, explained.as_nanos() / 1_000_000));
    }
    assert_eq!(evidence, [(49, 30), (8, 8), (0, 0), (0, 0), (40, 0), (40, 0)]);
}

/// A host that is behind does not blame an application that may wait: what has no room though the contract has is no violation.
#[test]
fn a_message_within_its_contract_waits_for_a_place_and_is_no_violation() {
    for (overload, waits) in [(Overload::Block, true), (Overload::Drop, false), (Overload::Decay, false)] {
        let config =
            SendConfig { service: real_time(1_000, 1), overload, priority: 0, packet: 1_000, work_conserving: false };
        let mut sending = SendingChannel::new(config, 2, 400);
        let stamp = |number: u64| at(number * 10_000_000);
        for number in 0..2 {
            assert!(sending.submit(stamp(number), message(1_000), nothing).is_ok());
        }
        let rejected = sending.submit(stamp(2), message(1_000), nothing).unwrap_err();
        assert_eq!((rejected.would_block, rejected.violation), (waits, Violation::Burst { wait: Duration::ZERO }));
        assert_eq!(
            (sending.counters.refused, sending.counters.violations.burst),
            (u64::from(!waits), u64::from(!waits))
        );
        sending.step((0, 0), &mut HeapFrames::new(4, DATA_HEADER_BYTES + 1_000)).unwrap();
        assert_eq!(sending.submit(stamp(2), message(1_000), nothing).unwrap().logical_arrival, stamp(2));
    }
}

/// A sender that may catch up is as much ahead at most: deadlines stay an interval apart, whenever messages come.
#[test]
fn what_is_caught_up_is_taken_early_and_served_an_interval_apart() {
    let ms = Duration::from_millis;
    let contract = Contract::new(100, 1, ms(10), 2, ms(20)).unwrap().with_catch_up(ms(25)).unwrap();
    assert_eq!((contract.most_ahead(), contract.queued_messages()), (ms(35), 6));
    let mut sending = sending(Service::RealTime(contract), 100);
    let arrivals: Vec<_> =
        (0..4).map(|_| sending.submit(at(1_000), message(100), nothing).unwrap().logical_arrival).collect();
    assert_eq!(arrivals, [0, 10, 20, 30].map(|later| at(1_000) + ms(later)));
    let rejected = sending.submit(at(1_000), message(100), nothing).unwrap_err();
    assert_eq!((rejected.violation, rejected.would_block), (Violation::Burst { wait: ms(5) }, true));
    assert_eq!(sending.submit(at(1_000) + ms(5), message(100), nothing).unwrap().logical_arrival, at(1_000) + ms(40));
    // More than may be is refused, and what needs too long a queue.
    let error = contract.with_catch_up(ms(1_001)).unwrap_err().to_string();
    assert_eq!(error, "catch_up is 1.001s, expected 0ns to 1s");
    let brisk = Contract::new(100, 1, Duration::from_micros(100), 1, ms(400)).unwrap();
    assert!(brisk.with_catch_up(ms(100)).unwrap_err().to_string().contains("queued messages"));
    assert_eq!((brisk.catching_up().catch_up(), contract.catching_up().catch_up()), (Duration::ZERO, ms(10)));
}

proptest! {
    /// A sender that always has something to send, and wakes up late whenever it had to wait, keeps the rate of its contract as long as it
    /// is never later than it may catch up. Without that it falls behind by the sum of all delays.
    #[test]
    fn a_source_at_its_contracts_rate_does_not_fall_behind(late in prop::collection::vec(0u64..10_000_000, 20..200)) {
        let ms = Duration::from_millis;
        let run = |catch_up: Duration| {
            let contract = Contract::new(100, 1, ms(1), 1, ms(20)).unwrap().with_catch_up(catch_up).unwrap();
            let (mut regulator, mut now) = (Regulator::new(contract.interval()), at(1));
            let mut last = now;
            for late in &late {
                let mut stamp = regulator.stamp(now);
                let wait = stamp.ahead.saturating_sub(contract.most_ahead());
                if !wait.is_zero() {
                    now += wait + Duration::from_nanos(*late);
                    stamp = regulator.stamp(now);
                }
                last = stamp.logical_arrival;
                regulator.accept(stamp, 1);
            }
            last
        };
        let messages = late.len() as u64;
        prop_assert_eq!(run(ms(10)), at(1) + ms(messages - 1));
        let lost: u64 = late[1..].iter().sum();
        prop_assert_eq!(run(Duration::ZERO), at(1) + ms(messages - 1) + Duration::from_nanos(lost));
    }
}
