//! Every checker finds a break that is planted: a lie about what was promised, about what was injected, or about what was sent.

use laxity_core::clock::DeadlineVerdict;
use laxity_core::contract::{SendingStages, Service};
use laxity_core::frames::{Frames, MessageBuf};
use laxity_core::platform::Platform;
use laxity_core::receive::{Delay, DeliveredMessage, FinalJudgement, SenderStamps};
use laxity_core::send::AcceptedMessage;

use super::*;
use crate::fault::{Fault, FaultKind};
use crate::source::Source;
use crate::world::HostId;
use crate::{Clock, HostConfig, Ledger};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// What a test makes of the sending host, of the promise, and of the world before it runs.
struct BrokenWorld {
    sender: fn(&mut HostConfig),
    promise: fn(&mut GrantedBounds),
    world: fn(&mut World),
}

const NONE: BrokenWorld = BrokenWorld { sender: |_| {}, promise: |_| {}, world: |_| {} };

/// One channel that keeps what it is promised, unless something is broken; what is found.
fn found(broken: &BrokenWorld) -> Vec<FindingKind> {
    let mut world = World::new(3);
    world.collect_findings();
    let host = |number: u8| HostConfig::new(Platform::assumed_host(), ([10, 0, 0, number], 7000).into());
    let mut sender = host(1);
    (broken.sender)(&mut sender);
    let (from, to) = (world.add_host(sender), world.add_host(host(2)));
    let contract = Contract::new(8_000, 1, ms(10), 3, ms(20)).unwrap();
    let stages = SendingStages { processor: ms(6), link: ms(6) };
    let plan = ChannelPlan { transit: ms(3), ..ChannelPlan::new("a", Service::RealTime(contract), stages, ms(6)) };
    let channel = world.open(from, to, plan);
    let mut promise = GrantedBounds { contract, bound: ms(20), queues: [4, 24, 4, 24] };
    (broken.promise)(&mut promise);
    world.promise(channel, promise);
    world.add_source(Source::full(channel, &contract, at(50)));
    (broken.world)(&mut world);
    world.run_until(at(300));
    world.finish();
    let (findings, _) = world.findings();
    let mut kinds: Vec<_> = findings.iter().map(|finding| finding.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn duplication(world: &mut World) {
    let kind = FaultKind::Duplication { ppm: 0 };
    world.add_fault(Fault { host: HostId(0), from: at(10), until: at(20), kind });
}

#[test]
fn what_is_whole_is_found_whole() {
    assert_eq!(found(&NONE), []);
    assert_eq!(found(&BrokenWorld { world: duplication, ..NONE }), []);
}

#[test]
fn a_late_message_without_a_fault_is_found() {
    let slow = |config: &mut HostConfig| config.platform.packet_cost = ms(3);
    assert_eq!(found(&BrokenWorld { sender: slow, ..NONE }), [FindingKind::Late]);
    let far = |config: &mut HostConfig| config.wire.propagation = ms(19);
    assert_eq!(found(&BrokenWorld { sender: far, ..NONE }), [FindingKind::Late]);
}

#[test]
fn a_lie_about_the_fault_is_found() {
    // The way is too long, or packets are lost; what is said to have been injected is a copy now and then.
    let far = |config: &mut HostConfig| config.wire.propagation = ms(19);
    assert_eq!(found(&BrokenWorld { sender: far, world: duplication, ..NONE }), [FindingKind::Cause]);
    let lossy = |config: &mut HostConfig| config.wire.loss_ppm = 50_000;
    assert_eq!(found(&BrokenWorld { sender: lossy, world: duplication, ..NONE }), [FindingKind::Cause]);
    assert_eq!(found(&BrokenWorld { sender: lossy, ..NONE }), [FindingKind::Cause], "or nothing at all");
    // A host that is slow, said to have been interrupted: only Laxity can be blamed, and never is.
    let slow = |config: &mut HostConfig| config.platform.packet_cost = ms(3);
    let interrupted = |world: &mut World| {
        world.add_fault(Fault { host: HostId(0), from: at(10), until: at(11), kind: FaultKind::Interference });
    };
    assert_eq!(found(&BrokenWorld { sender: slow, world: interrupted, ..NONE }), [FindingKind::Cause]);
}

#[test]
fn a_lie_about_the_bound_is_found() {
    assert_eq!(found(&BrokenWorld { promise: |promise| promise.bound = ms(14), ..NONE }), [FindingKind::Bound]);
}

#[test]
fn a_lie_about_the_contract_is_found() {
    let rare = |promise: &mut GrantedBounds| promise.contract = Contract::new(8_000, 1, ms(11), 3, ms(20)).unwrap();
    let small = |promise: &mut GrantedBounds| promise.contract = Contract::new(7_999, 1, ms(10), 3, ms(20)).unwrap();
    let large =
        |promise: &mut GrantedBounds| promise.contract = Contract::new(9_000, 8_001, ms(10), 3, ms(20)).unwrap();
    let lies: [fn(&mut GrantedBounds); 3] = [rare, small, large];
    for promise in lies {
        assert_eq!(found(&BrokenWorld { promise, ..NONE }), [FindingKind::Contract]);
    }
}

#[test]
fn a_packet_before_its_time_is_found() {
    let contract = Contract::new(8_000, 1, ms(10), 3, ms(20)).unwrap();
    let stages = SendingStages::default();
    let plan = ChannelPlan::new("a", Service::RealTime(contract), stages, ms(6));
    let leaves = |now, early| {
        let mut world = World::new(1);
        let host = |number: u8| HostConfig::new(Platform::assumed_host(), ([10, 0, 0, number], 7000).into());
        let (from, to) = (world.add_host(host(1)), world.add_host(host(2)));
        let handle = world.open(from, to, plan.clone());
        world.run_until(at(20));
        let channel = world.channels[handle.0].ledger.sender.key.unwrap();
        let departed =
            DepartedMessage { channel, sequence: 0, last: true, logical_arrival: at(100), deadline: at(120) };
        ChannelHistory::default().departs((&plan, &contract, early), &departed, 100, now).map(|problem| problem.0)
    };
    assert_eq!((leaves(at(100), false), leaves(at(99), false)), (None, Some(FindingKind::Contract)));
    assert_eq!((leaves(at(80), true), leaves(at(79), true)), (None, Some(FindingKind::Contract)));
}

#[test]
fn a_lie_about_the_queues_is_found() {
    let lies: [fn(&mut GrantedBounds); 4] = [
        |promise| promise.queues[0] = 0,
        |promise| promise.queues[1] = 1,
        |promise| promise.queues[2] = 0,
        |promise| promise.queues[3] = 0,
    ];
    for promise in lies {
        assert_eq!(found(&BrokenWorld { promise, ..NONE }), [FindingKind::Queue]);
    }
}

#[test]
fn a_frame_that_leaks_is_found() {
    let leak = |world: &mut World| {
        let _ = world.hosts[1].driver.as_mut().unwrap().frames.take();
    };
    assert_eq!(found(&BrokenWorld { world: leak, ..NONE }), [FindingKind::Memory]);
}

/// A record whose sender had two messages accepted.
fn record() -> ChannelRecord {
    let contract = Contract::new(100, 1, ms(10), 3, ms(20)).unwrap();
    let plan = ChannelPlan::new("a", Service::RealTime(contract), SendingStages::default(), ms(6));
    let (from, hops, to) = (HostId(0), Vec::new(), HostId(1));
    let mut record = ChannelRecord { number: 7, plan, from, hops, to, ledger: Ledger::default() };
    for sequence in 0..2 {
        record.ledger.accepted(
            &AcceptedMessage { sequence, logical_arrival: at(10 * sequence), release: at(10 * sequence) },
            50,
        );
    }
    record
}

/// Message `sequence` with `bytes` bytes, of which one may be wrong.
fn delivered(sequence: u64, bytes: usize, wrong: Option<usize>) -> DeliveredMessage {
    let mut message = MessageBuf::with_capacity(100);
    message.set_len(bytes);
    crate::content::write(7, sequence, &mut message);
    if let Some(place) = wrong {
        message[place] ^= 1;
    }
    DeliveredMessage {
        message,
        sequence,
        logical_arrival: at(10 * sequence),
        ahead: Duration::ZERO,
        stamps: None,
        allowed: None,
        least: Duration::ZERO,
        completion: at(30),
        deadline: Some(at(30)),
        deferred: Duration::ZERO,
        since: at(10 * sequence),
        due_here: at(30),
        delay: Delay::default(),
    }
}

#[test]
fn a_message_that_is_not_what_was_sent_is_found() {
    let problem = |messages: &[DeliveredMessage]| {
        let mut record = record();
        let last =
            messages.iter().map(|message| record.delivered(at(30), message, None, &Clock::default(), None).1).last();
        last.flatten().map(|(what, ..)| what)
    };
    assert_eq!(problem(&[delivered(0, 50, None), delivered(1, 50, None)]), None);
    assert_eq!(problem(&[delivered(1, 50, None)]), None, "the first one may be lost");
    let wrong = Some(FindingKind::Delivery);
    assert_eq!(problem(&[delivered(0, 50, Some(49))]), wrong, "a byte");
    assert_eq!(problem(&[delivered(0, 49, None)]), wrong, "a length");
    assert_eq!(problem(&[delivered(1, 50, None), delivered(0, 50, None)]), wrong, "the order");
    assert_eq!(problem(&[delivered(0, 50, None), delivered(0, 50, None)]), wrong, "twice");
    assert_eq!(problem(&[delivered(2, 50, None)]), wrong, "never sent");
    let late = DeliveredMessage { deadline: Some(at(29)), ..delivered(0, 50, None) };
    assert_eq!(problem(&[late]), wrong, "late without a cause");
}

/// A message took 30 ms by a clock that was stepped meanwhile, which does not count.
#[test]
fn an_interval_beside_the_truth_and_a_verdict_that_disagrees_are_found() {
    let is_found = |lower, upper, allowed, verdict| {
        let (mut record, mut clock) = (record(), Clock::ahead(ms(700)));
        clock.step(at(7), ms(5));
        let stamps = Some(SenderStamps { logical_arrival: at(704), ahead: ms(4), epoch: 0 });
        let delivered = DeliveredMessage { stamps, ..delivered(0, 50, None) };
        assert_eq!(record.delivered(at(30), &delivered, None, &clock, None).1, None);
        let latency = Some(ms(upper));
        let (upper, allowed) = (Some(ms(upper - 4)), Some(ms(allowed)));
        let lower = ms(lower);
        let decision =
            FinalJudgement { lower, upper, latency, allowed, verdict, excused: Duration::ZERO, is_unsure: false };
        record.ledger.judged(&decision).map(|problem| problem.0) == Some(FindingKind::Interval)
    };
    for (lower, upper, allowed, verdict) in [
        (26, 30, 26, DeadlineVerdict::InTime),
        (0, 31, 40, DeadlineVerdict::InTime),
        (25, 35, 25, DeadlineVerdict::Late),
    ] {
        assert!(!is_found(lower, upper, allowed, verdict), "{lower} {upper} {allowed} {verdict:?}");
    }
    for (lower, upper, allowed, verdict) in [
        (27, 35, 30, DeadlineVerdict::Undecided),
        (0, 29, 30, DeadlineVerdict::Undecided),
        (20, 35, 27, DeadlineVerdict::Late),
        (20, 31, 25, DeadlineVerdict::InTime),
    ] {
        assert!(is_found(lower, upper, allowed, verdict), "{lower} {upper} {allowed} {verdict:?}");
    }
}

#[test]
fn a_message_that_ends_twice_or_never_is_found() {
    let found = |counters: ReceiveCounters| {
        let mut world = World::new(1);
        world.collect_findings();
        world.channels.push(record());
        let delivered = delivered(1, 50, None);
        let (_, problem) = world.channels[0].delivered(at(30), &delivered, None, &Clock::default(), None);
        assert_eq!(problem, None);
        world.check_counters(0, at(30), &counters);
        world.findings().0.iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    let misses = Misses { network: 1, ..Misses::default() };
    let counters = ReceiveCounters { delivered: 1, lost: 1, misses, ..ReceiveCounters::default() };
    assert_eq!(found(counters), []);
    assert_eq!(found(ReceiveCounters { lost: 0, ..counters }), [FindingKind::Conservation]);
    assert_eq!(found(ReceiveCounters { lost: 2, ..counters }), [FindingKind::Conservation]);
    // At the end, the counters are held against what was seen.
    let mut record = record();
    record.ledger.send.accepted = 2;
    record.ledger.receive = counters;
    assert_eq!(
        record.ledger.check().map(|problem| problem.0),
        Some(FindingKind::Conservation),
        "one delivery that was not observed"
    );
    let _ = record.delivered(at(30), &delivered(1, 50, None), None, &Clock::default(), None);
    assert_eq!(record.ledger.check(), None);
}

#[test]
#[should_panic(expected = "memory")]
fn a_world_that_does_not_collect_stops() {
    let mut world = World::new(1);
    world.find(None, at(1), (FindingKind::Memory, "1 frame".into(), "0".into()));
}

#[test]
fn a_digest_depends_on_every_number_and_their_order() {
    let of = |words: &[u64]| {
        let mut digest = Digest::default();
        words.iter().for_each(|&word| digest.take(word));
        digest
    };
    let all = [of(&[]), of(&[0]), of(&[0, 0]), of(&[1, 2]), of(&[2, 1]), of(&[1, 2, 0])];
    for (number, one) in all.iter().enumerate() {
        assert!(all[..number].iter().all(|other| other != one), "{number}");
    }
}
