//! Two hosts with two clocks: each learns of the other's what its bounds say, whatever the network adds to the stamps.

mod common;

use common::{address, at, contract, modern, ms, plan};
use laxity_core::clock::{ClockRelation, CompletedMessage, DeadlineVerdict, PendingMessages, UnknownReason};
use laxity_core::endpoint::ClockConfig;
use laxity_core::units::{Duration, Instant};
use laxity_sim::{Clock, Fault, FaultKind, HostConfig, HostId, Source, World};

/// A host with a clock of its own.
fn host(world: &mut World, number: u8, reading: Clock, clocks: ClockConfig) -> HostId {
    let config = HostConfig {
        clock: 10 + u64::from(number),
        reading,
        peer_clocks: clocks,
        ..HostConfig::new(modern(), address(number))
    };
    world.add_host(config)
}

/// What the receiver says of messages that took five milliseconds, and of its error, once a second.
fn judged(
    sender: &Clock,
    receiver: &Clock,
    clocks: ClockConfig,
    seconds: u64,
) -> Vec<(Duration, Option<Duration>, Duration)> {
    let mut world = World::new(3);
    let (from, to) = (host(&mut world, 1, sender.clone(), clocks), host(&mut world, 2, receiver.clone(), clocks));
    let contract = contract(5_000, ms(10), 2, ms(20));
    let channel = world.open(from, to, plan("a", contract, ms(8), ms(1)));
    world.add_source(Source::full(channel, &contract, at(100)));
    let mut all = Vec::new();
    for second in 1..=seconds {
        let now = at(1000 * second);
        world.run_until(now);
        let mut pending = PendingMessages::new(1);
        let message = CompletedMessage {
            sent: sender.reading(now.before(ms(5))),
            completed: receiver.reading(now),
            epoch: world.endpoint(from).clock_epoch(),
            own_epoch: 0,
            least: Duration::ZERO,
            deadline: ms(20),
            token: [7, 8],
        };
        let clock = world.endpoint(to).peer_clock(address(1)).unwrap();
        assert_eq!(clock.relation(receiver.reading(now)), ClockRelation::Estimated);
        assert_eq!((pending.push(clock, &message), pending.undecided()), (None, 1));
        world.run_until(now + ms(450));
        let clock = world.endpoint(to).peer_clock(address(1)).unwrap();
        let judged = pending.settle(clock, receiver.reading(now + ms(450))).unwrap();
        assert_eq!((judged.verdict, judged.token), (DeadlineVerdict::InTime, [7, 8]), "{judged:?}");
        let (error, round_trip) = (clock.error().unwrap(), clock.round_trip().unwrap());
        assert!(error <= round_trip, "{error:?} of a round trip of {round_trip:?}");
        all.push((judged.lower, judged.upper, error));
        // Senders learn as much.
        let back = world.endpoint(from).peer_clock(address(2)).unwrap();
        assert_eq!(back.relation(sender.reading(now + ms(450))), ClockRelation::Estimated);
    }
    world.finish();
    assert_eq!(world.report(channel).figures.misses, Default::default());
    all
}

#[test]
fn latencies_between_two_clocks_are_intervals_around_the_truth() {
    let drifting = |ppm| {
        let mut clock = Clock::ahead(Duration::from_secs(7));
        clock.drift(Instant::ZERO, ppm);
        clock
    };
    for (sender, receiver) in [
        (Clock::ahead(Duration::from_secs(7)), Clock::default()),
        (Clock::default(), drifting(40)),
        (drifting(-60), Clock::default()),
        (drifting(-50), drifting(50)),
    ] {
        for (lower, upper, error) in judged(&sender, &receiver, ClockConfig::default(), 4) {
            let upper = upper.unwrap();
            // The span is one of the receiver's clock, which deviates by some hundred nanoseconds in five milliseconds.
            let slack = Duration::from_nanos(500);
            assert!(lower <= ms(5) + slack && ms(5) <= upper + slack, "{lower:?} to {upper:?}");
            assert!(upper - lower <= error * 2 + Duration::from_micros(100), "{lower:?} to {upper:?}, error {error:?}");
        }
    }
}

#[test]
fn a_sender_whose_clock_steps_ahead_is_estimated_all_the_same() {
    let mut sender = Clock::ahead(Duration::from_secs(1));
    sender.step(at(2_600), ms(3));
    for (lower, upper, _) in judged(&sender, &Clock::default(), ClockConfig::default(), 4) {
        assert!(lower <= ms(5) && ms(5) <= upper.unwrap(), "{lower:?} to {upper:?}");
    }
}

/// What was sent before the step but after the exchange before it may have taken the step longer, as far as the receiver can know; what was sent
/// after it but before the next one may have taken the step less. Of nothing else less is known.
#[test]
fn a_step_ahead_widens_what_is_known_of_a_period_only() {
    let clocks = ClockConfig::default();
    for step_at in (2_600..2_700).step_by(7).map(at) {
        let mut reading = Clock::ahead(Duration::from_secs(1));
        reading.step(step_at, ms(3));
        let mut world = World::new(3);
        let (from, to) = (host(&mut world, 1, reading.clone(), clocks), host(&mut world, 2, Clock::default(), clocks));
        let contract = contract(5_000, ms(10), 2, ms(20));
        let channel = world.open(from, to, plan("a", contract, ms(8), ms(1)));
        world.add_source(Source::full(channel, &contract, at(100)));
        let (mut pending, mut wide) = (PendingMessages::new(100), 0);
        for completed in (2_005..3_500).step_by(5).map(at) {
            world.run_until(completed);
            let sent = completed.before(ms(5));
            let clock = world.endpoint(to).peer_clock(address(1)).unwrap();
            let [least, deadline] = [Duration::ZERO, ms(20)];
            let epoch = world.endpoint(from).clock_epoch();
            let sent = reading.reading(sent);
            let message = CompletedMessage { sent, completed, epoch, own_epoch: 0, least, deadline, token: [0; 2] };
            assert_eq!(pending.push(clock, &message), None);
            while let Some(judged) = pending.settle(clock, completed) {
                let (sent, slack) = (judged.completed.before(ms(5)), Duration::from_micros(200));
                let (is_early, is_long) = (sent < step_at, judged.upper.unwrap() > ms(5) + slack);
                let is_wide = judged.width().unwrap() > slack;
                let from_step = if is_early { step_at.since(sent) } else { sent.since(step_at) };
                assert!(
                    !is_wide || is_long == is_early && from_step <= clocks.period + ms(2),
                    "{judged:?}, {step_at:?}"
                );
                wide += u32::from(is_wide);
            }
        }
        assert!((15..=22).contains(&wide), "{wide}, {step_at:?}");
    }
}

/// Whichever host it is: the messages that it held up are judged as far as they can be, and those that come later as before.
#[test]
fn after_a_host_was_suspended_its_messages_are_judged_again() {
    for suspended in [0, 1] {
        let mut world = World::new(3);
        world.collect_findings();
        let clocks = ClockConfig::default();
        let hosts = [1, 2].map(|number| host(&mut world, number, Clock::ahead(ms(700 * u64::from(number))), clocks));
        let contract = contract(5_000, ms(10), 2, ms(20));
        let channel = world.open(hosts[0], hosts[1], plan("a", contract, ms(8), ms(1)));
        // Not all of its rate: to a receiver whose clock stood still its messages came at once, and it would be held to its contract for ever.
        world.add_source(Source { period: ms(11), ..Source::full(channel, &contract, at(100)) });
        let kind = FaultKind::ClockStandstill;
        world.add_fault(Fault { host: hosts[suspended], from: at(1_005), until: at(2_005), kind });
        world.run_until(at(1_000));
        // Those of the last two periods wait.
        assert!(world.report(channel).figures.undecided <= 20, "host {suspended}");
        world.run_until(at(4_000));
        let before = world.report(channel).figures;
        let [own, peer] = [address(1), address(2)];
        let knows = |host: usize, of| {
            let now = if host == suspended { at(3_000) } else { at(4_000) } + ms(700 * (host as u64 + 1));
            world.endpoint(hosts[host]).peer_clock(of).unwrap().relation(now)
        };
        assert_eq!([knows(0, peer), knows(1, own)], [ClockRelation::Estimated; 2], "host {suspended}");
        world.run_until(at(6_000));
        world.finish();
        let figures = world.report(channel).figures;
        assert_eq!(world.findings(), (vec![], 0), "host {suspended}");
        assert!(figures.delivered >= before.delivered + 170, "host {suspended}: {figures:?}");
        // Those of one period at least waited then.
        assert!(figures.undecided + 9 <= before.undecided, "host {suspended}: {before:?} {figures:?}");
    }
}

#[test]
fn a_drift_beyond_what_is_stated_ends_unknown() {
    for ppm in [-50_000, 50_000] {
        let mut world = World::new(3);
        let mut adrift = Clock::default();
        adrift.drift(Instant::ZERO, ppm);
        let clocks = ClockConfig { period: ms(2), ..ClockConfig::default() };
        let (from, to) = (host(&mut world, 1, adrift, clocks), host(&mut world, 2, Clock::default(), clocks));
        let contract = contract(5_000, ms(10), 2, ms(20));
        world.open(from, to, plan("a", contract, ms(8), ms(1)));
        let unknown = (50..150).filter(|tens| {
            let now = at(10 * tens);
            world.run_until(now);
            let relation = world.endpoint(to).peer_clock(address(1)).unwrap().relation(now);
            matches!(relation, ClockRelation::Unknown(UnknownReason::Contradictions | UnknownReason::Rate))
        });
        // It is believed again now and then, until it is refuted again.
        assert!(unknown.count() > 60, "{ppm}");
    }
}

#[test]
fn hosts_that_share_a_clock_do_not_ask_for_it() {
    let mut world = World::new(3);
    let mut add = |number| world.add_host(HostConfig::new(modern(), address(number)));
    let (from, to) = (add(1), add(2));
    let contract = contract(5_000, ms(10), 2, ms(20));
    world.open(from, to, plan("a", contract, ms(8), ms(1)));
    world.run_until(at(1000));
    assert!(
        world.endpoint(to).peer_clock(address(1)).is_none() && world.endpoint(from).peer_clock(address(2)).is_none()
    );
}

/// By the receiver's clock its messages come a ten-thousandth too soon. In 300 seconds they would be 30 ms ahead of their places.
#[test]
fn a_sender_whose_clock_is_fast_is_held_to_its_contract_and_that_is_its_own_fault() {
    let figures = |period: Duration| {
        let mut fast = Clock::default();
        fast.drift(Instant::ZERO, 100);
        let mut world = World::new(3);
        let clocks = ClockConfig::default();
        let (from, to) = (host(&mut world, 1, fast, clocks), host(&mut world, 2, Clock::default(), clocks));
        let contract = contract(5_000, ms(10), 2, ms(20));
        let channel = world.open(from, to, plan("a", contract, ms(8), ms(1)));
        world.add_source(Source { period, ..Source::full(channel, &contract, at(100)) });
        world.run_until(at(300_000));
        world.finish();
        world.report(channel).figures
    };
    // An interval by its own clock.
    let held = figures(Duration::from_nanos(9_999_001)).misses;
    assert!(held.sender > 0 && held.all() == held.sender, "{held:?}");
    let kept = figures(ms(10));
    assert!(kept.misses.all() == 0 && !kept.is_broken(), "{kept:?}");
}

/// By default hosts send what they have before its logical arrival. Such a message may be complete before that.
#[test]
fn messages_that_leave_early_are_judged_too() {
    let mut world = World::new(3);
    let mut add = |number: u8| {
        let config = HostConfig {
            clock: 10 + u64::from(number),
            reading: Clock::ahead(Duration::from_secs(u64::from(number))),
            send_early: true,
            receive_early: true,
            look_ahead: Duration::MAX,
            ..HostConfig::new(modern(), address(number))
        };
        world.add_host(config)
    };
    let (from, to) = (add(1), add(2));
    let contract = contract(5_000, ms(10), 3, ms(20));
    let channel = world.open(from, to, plan("a", contract, ms(8), ms(1)));
    world.add_source(Source::bursts(channel, &contract, at(100)));
    world.run_until(at(3_000));
    world.finish();
    let figures = world.report(channel).figures;
    assert!(figures.delivered > 200 && figures.misses.all() == 0 && figures.undecided == 0, "{figures:?}");
}

/// A report decides of all that waits on the channel with a thousand messages a second, whatever waits beside it.
#[test]
fn a_fast_channel_is_judged_beside_a_slow_one() {
    let mut world = World::new(3);
    let clocks = ClockConfig::default();
    let (from, to) =
        (host(&mut world, 1, Clock::ahead(ms(700)), clocks), host(&mut world, 2, Clock::default(), clocks));
    let [fast, slow] = [("fast", 1), ("slow", 20)].map(|(name, interval)| {
        let contract = contract(100, ms(interval), 2, ms(40));
        let channel = world.open(from, to, plan(name, contract, ms(8), ms(1)));
        world.add_source(Source::full(channel, &contract, at(100)));
        channel
    });
    world.run_until(at(2_000));
    for _ in 0..10 {
        world.run_until(world.now() + ms(33));
        let undecided = [fast, slow].map(|channel| world.report(channel).figures.undecided);
        assert!(undecided[0] <= 250 && undecided[1] <= 15, "{undecided:?}");
    }
    world.finish();
    let figures = [fast, slow].map(|channel| world.report(channel).figures);
    assert!(figures.iter().all(|of| of.late + of.undecided == 0) && figures[0].delivered > 2_000, "{figures:?}");
}
