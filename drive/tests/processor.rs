//! The share of the processor that a driver takes, and what the platform takes of it.
#![allow(missing_docs)]

mod around;

use around::{CHANNELS, DriverCall, Host, at, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;
use laxity_core::event::{End, Event};
use laxity_core::limits::TIMERS_AT_ONCE;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_drive::NextTurn;

/// A host that may use 9 ms of every 100, with steps of a millisecond, and has used them up for best effort.
fn used_up() -> (Host, laxity_core::event::ChannelId, laxity_core::event::ChannelId) {
    let throttle = (micros(100_000), micros(1_000_000));
    let mut host = Host::with_throttle(platform(), micros(200), Some(throttle));
    let best = host.sender(0, best_effort(), Overload::Block, 8);
    let real = host.sender(0, real_time(1_000, 4), Overload::Block, 8);
    host.rest();
    host.around.step = micros(1_000);
    (0..3).for_each(|_| host.send(best, 10));
    host.around.did.clear();
    (host, best, real)
}

#[test]
fn a_driver_that_has_used_up_its_share_sleeps_deaf_to_frames_and_looks_now_and_then() {
    let (mut host, best, _) = used_up();
    let sleep = host.rest();
    let steps = host.around.count(DriverCall::Step(best.index()));
    // The share is counted as rounds end, after P = 4 steps and at the end of a message.
    assert!((9..=12).contains(&steps), "{steps} of 30 ms");
    assert!(!sleep.hears_frames && sleep.is_restricted);
    assert_eq!(sleep.until, Some(host.around.now + micros(500)));
    // What arrives is found, though no thread was woken for it.
    let (now, looks) = (host.around.now, host.around.count(DriverCall::Look(0)));
    host.wake_at(now + micros(500), Some(now + micros(500)));
    host.rest();
    assert_eq!(host.around.count(DriverCall::Look(0)), looks + 1);
    assert_eq!(host.around.count(DriverCall::Step(best.index())), steps, "best effort waits");
}

#[test]
fn what_is_current_and_real_time_goes_on_when_the_share_is_used_up() {
    let (mut host, best, real) = used_up();
    host.rest();
    let steps = host.around.count(DriverCall::Step(best.index()));
    host.send(real, 2);
    host.rest();
    assert_eq!(host.around.count(DriverCall::Step(real.index())), 2);
    assert_eq!(host.around.count(DriverCall::Step(best.index())), steps);
}

#[test]
fn best_effort_goes_on_with_the_next_window() {
    let (mut host, best, _) = used_up();
    let mut sleep = host.rest();
    let steps = host.around.count(DriverCall::Step(best.index()));
    while host.around.count(DriverCall::Step(best.index())) == steps {
        let until = sleep.until.expect("it looks now and then");
        assert!(until <= at(100_000), "the window is over");
        host.wake_at(until, Some(until));
        sleep = host.rest();
    }
    assert!(host.around.now >= at(100_000));
}

#[test]
fn without_a_throttle_best_effort_may_run_for_ever() {
    let mut host = Host::new(platform(), micros(200));
    let best = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.around.step = micros(10_000);
    host.around.did.clear();
    (0..3).for_each(|_| host.send(best, 10));
    let sleep = host.rest();
    assert_eq!(host.around.count(DriverCall::Step(best.index())), 30);
    assert!(sleep.hears_frames);
}

/// The gap that is told of a step that takes so long, of which the platform is known to have taken so much, all in µs.
fn gap(step: u64, evidence: u64) -> Option<Duration> {
    let mut host = Host::new(platform(), micros(200));
    let channel = host.sender(0, best_effort(), Overload::Block, 8);
    host.rest();
    host.send(channel, 1);
    (host.around.stall, host.around.evidence) = (micros(step), micros(evidence));
    host.around.did.clear();
    while !matches!(host.turn(), NextTurn::Sleep(_)) {}
    host.around.did.iter().find_map(|did| if let DriverCall::Gap(taken) = did { Some(*taken) } else { None })
}

#[test]
fn a_gap_is_noted_beyond_what_a_round_may_take_and_as_far_as_there_is_evidence() {
    assert_eq!(gap(0, 0), None);
    assert_eq!(gap(90, 90), None, "shorter ones are not asked about: evidence costs a system call");
    assert_eq!(gap(5_000, 0), None, "a slow handler is no excuse");
    assert_eq!(gap(5_000, 3_000), Some(micros(3_000)));
    // A round may take two looks, a step and a hand-over itself.
    let whole = gap(5_000, 9_000).expect("there is evidence for all of it");
    assert!((micros(4_900)..=micros(5_000)).contains(&whole), "what the round may take itself is none: {whole}");
}

#[test]
fn what_a_step_may_take_is_no_gap_whatever_the_evidence_says() {
    for (may_take, gap) in [(300, None), (100, Some(micros(150)))] {
        let mut host = Host::new(Platform { first_packet: micros(may_take), ..platform() }, micros(200));
        let channel = host.sender(0, best_effort(), Overload::Block, 8);
        host.rest();
        host.around.did.clear();
        host.send(channel, 1);
        (host.around.step, host.around.evidence) = (micros(300), micros(150));
        while !matches!(host.turn(), NextTurn::Sleep(_)) {}
        let told =
            host.around.did.iter().find_map(|did| if let DriverCall::Gap(taken) = did { Some(*taken) } else { None });
        assert_eq!(told, gap, "of {may_take} µs");
    }
}

#[test]
fn what_a_sleep_ends_late_is_a_gap_beyond_the_wake_up_that_the_platform_has() {
    let late = |late: u64| {
        let mut host = Host::new(platform(), micros(200));
        host.rest();
        host.around.did.clear();
        host.wake_at(at(1_000 + late), Some(at(1_000)));
        host.around.did.iter().find_map(|did| if let DriverCall::Gap(taken) = did { Some(*taken) } else { None })
    };
    assert_eq!(late(0), None);
    assert_eq!(late(50), None, "50 µs are the wake-up's");
    assert_eq!(late(51), Some(micros(1)), "to know it costs nothing, however short it is");
    assert_eq!(late(2_050), Some(micros(2_000)));
}

/// A frame of no channel every 10 µs for 100 ms, and a look takes 5. Returns for how long the driver was awake, and the longest that
/// a frame waited.
fn flooded(host: &mut Host) -> (Duration, Duration) {
    let (begin, mut arrived, mut oldest) = (host.around.now, 0, None);
    let (mut awake, mut longest) = (Duration::ZERO, Duration::ZERO);
    let at_of = |number: u64| begin + micros(10) * number;
    while host.around.now < begin + micros(100_000) {
        while at_of(arrived) <= host.around.now {
            oldest = oldest.or(Some(at_of(arrived)));
            host.around.inboxes[0].push_back(vec![9; 60]);
            arrived += 1;
        }
        let turn_begins = host.around.now;
        host.around.stall = micros(5);
        let before = host.around.inboxes[0].len();
        let next = host.turn();
        awake += host.around.now.since(turn_begins);
        if host.around.inboxes[0].len() < before {
            longest = longest.max(turn_begins.since(oldest.take().unwrap()));
            // The socket takes no more than this.
            host.around.inboxes[0].clear();
        }
        if let NextTurn::Sleep(sleep) = next {
            let frame = if host.around.inboxes[0].is_empty() { at_of(arrived) } else { host.around.now };
            let due = sleep.until;
            let wakes = due.into_iter().chain(sleep.hears_frames.then_some(frame)).min().unwrap();
            host.wake_at(wakes.max(host.around.now), due);
        }
    }
    (awake, longest)
}

#[test]
fn a_flood_of_unknown_peers_takes_no_more_of_the_processor_than_looks_are_charged() {
    let platform = platform();
    let mut host = Host::new(platform.clone(), micros(200));
    let (awake, longest) = flooded(&mut host);
    // The share of a look in a round, and 10 ms of credit; here a look takes longer than it is charged with, and rests are cut to
    // what the bounds have room for.
    let rest = platform.round() - platform.look() - platform.wake_up;
    let most = micros(10_000) + micros(100_000).mul_ratio(5, 5 + rest.as_nanos() / 1_000);
    assert!(awake <= most, "awake for {awake} of 100 ms, at most {most}");
    assert!(longest <= platform.round(), "a frame waited {longest}");
    // It is over, and a message is found as it comes.
    let sleep = host.rest();
    assert!(sleep.hears_frames, "{sleep:?}");
    let (channel, key) = host.receiver(0, best_effort());
    host.message_arrives(0, (channel, key), 0);
    assert!(host.did_in_turn().contains(&DriverCall::Step(channel.index())));
}

/// Takes turns of 10 µs for 50 ms with nothing to do; whether it was never restricted.
fn is_free_after_turns(spins: bool) -> (Host, bool) {
    let throttle = (micros(100_000), micros(1_000_000));
    let mut host = Host::with_throttle(platform(), micros(200), Some(throttle));
    host.rest();
    let is_free = (0..5_000).all(|_| {
        if spins {
            host.driver.spins = true;
        }
        host.around.now += micros(10);
        matches!(host.turn(), NextTurn::Sleep(sleep) if !sleep.is_restricted)
    });
    (host, is_free)
}

#[test]
fn turns_of_a_driver_that_spins_take_nothing_from_its_share() {
    assert!(!is_free_after_turns(false).1, "9 ms of every 100 are its share");
    let (mut host, is_free) = is_free_after_turns(true);
    assert!(is_free);
    // A frame that leads to nothing is no reason to rest: the credit of looks is whole.
    host.around.inboxes[0].push_back(vec![0; 20]);
    host.driver.spins = true;
    assert!(matches!(host.turn(), NextTurn::Look(_)));
}

#[test]
fn work_that_a_driver_finds_while_it_spins_is_a_part_of_its_share() {
    let (mut host, best, _) = used_up();
    host.driver.spins = true;
    let sleep = host.rest();
    assert!(sleep.is_restricted && host.around.count(DriverCall::Step(best.index())) >= 9);
}

#[test]
fn what_comes_while_a_driver_spins_is_found_by_the_next_turn() {
    let mut host = Host::new(platform(), micros(200));
    let sender = host.sender(0, real_time(1_000, 4), Overload::Block, 8);
    let receiver = host.receiver(1, real_time(1_000, 4));
    host.rest();
    host.around.did.clear();
    host.driver.spins = true;
    assert!(matches!(host.turn(), NextTurn::Sleep(_)));
    host.send(sender, 1);
    host.message_arrives(1, receiver, 0);
    host.driver.spins = true;
    assert_eq!(host.turn(), NextTurn::Again);
    host.rest();
    assert_eq!(host.around.count(DriverCall::Deliver(receiver.0.index())), 1);
    assert_eq!(host.around.count(DriverCall::Step(sender.index())), 1);
}

/// Many channels end at the same time. A round ends some, tells of some, and the inputs are looked at in between.
fn end_some_at_a_time(host: &mut Host, expected: End) {
    host.around.events.clear();
    let mut turns = 0;
    while host.around.events.len() < CHANNELS {
        let before = host.around.events.len();
        assert!(host.did_in_turn().contains(&DriverCall::Look(0)), "turn {turns}");
        let told = host.around.events.len() - before;
        assert!(told <= TIMERS_AT_ONCE, "{told} events in turn {turns}");
        turns += 1;
        assert!(turns <= CHANNELS, "{} are told", host.around.events.len());
    }
    let is_it = |event: &Event| matches!(event, Event::Ended { end, .. } if *end == expected);
    assert!(host.around.events.iter().all(is_it), "{:?}", host.around.events);
    assert_eq!(host.rest().until, None);
}

#[test]
fn leases_that_end_together_take_several_rounds() {
    let mut host = Host::new(platform(), micros(200));
    for _ in 0..CHANNELS {
        host.receiver(0, best_effort());
    }
    let end = host.rest().until.expect("no peer has named its channel");
    host.wake_at(end, Some(end));
    end_some_at_a_time(&mut host, End::PeerLost);
}

#[test]
fn events_are_told_some_at_a_time() {
    let mut host = Host::new(platform(), micros(200));
    let channels: Vec<_> = (0..CHANNELS).map(|_| host.open(0, best_effort(), Overload::Block, 1)).collect();
    host.rest();
    for channel in channels {
        host.driver.close(host.around.now, channel, &mut host.around);
    }
    end_some_at_a_time(&mut host, End::Closed { report: None });
}

/// No round comes after the last one.
#[test]
fn a_driver_that_stops_tells_of_everything() {
    let mut host = Host::new(platform(), micros(200));
    for _ in 0..CHANNELS {
        host.open(0, best_effort(), Overload::Block, 1);
    }
    host.rest();
    host.around.stop = true;
    while host.turn() != NextTurn::Stop {}
    assert_eq!(host.around.events.len(), CHANNELS);
}

/// What was due before the driver got to it is no reason to call the thread late that it runs on.
#[test]
fn a_sleep_does_not_end_before_it_begins() {
    let mut host = Host::new(platform(), micros(200));
    for _ in 0..CHANNELS {
        host.receiver(0, best_effort());
    }
    let due = host.rest().until.expect("no peer has named its channel");
    host.wake_at(due + micros(300), None);
    let NextTurn::Sleep(sleep) = host.turn() else { panic!("there is nothing to run") };
    assert_eq!(sleep.until, Some(host.around.now), "more are due");
}
