//! The share of the processor that a driver takes, and what the platform takes of it.
#![allow(missing_docs)]

mod around;

use around::{Did, Host, at, best_effort, micros, platform, real_time};
use laxity_core::contract::Overload;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_drive::{Next, Why};

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
    let steps = host.around.count(Did::Step(best.index()));
    // The share is counted as rounds end, after P = 4 steps and at the end of a message.
    assert!((9..=12).contains(&steps), "{steps} of 30 ms");
    assert!(!sleep.hears_frames && sleep.is_restricted);
    assert_eq!(sleep.until, Some((host.around.now + micros(500), Why::Poll)));
    // What arrives is found, though nobody was woken for it.
    let (now, looks) = (host.around.now, host.around.count(Did::Look(0)));
    host.wake_at(now + micros(500), Some(now + micros(500)));
    host.rest();
    assert_eq!(host.around.count(Did::Look(0)), looks + 1);
    assert_eq!(host.around.count(Did::Step(best.index())), steps, "best effort waits");
}

#[test]
fn what_is_current_and_real_time_goes_on_when_the_share_is_used_up() {
    let (mut host, best, real) = used_up();
    host.rest();
    let steps = host.around.count(Did::Step(best.index()));
    host.send(real, 2);
    host.rest();
    assert_eq!(host.around.count(Did::Step(real.index())), 2);
    assert_eq!(host.around.count(Did::Step(best.index())), steps);
}

#[test]
fn best_effort_goes_on_with_the_next_window() {
    let (mut host, best, _) = used_up();
    let mut sleep = host.rest();
    let steps = host.around.count(Did::Step(best.index()));
    while host.around.count(Did::Step(best.index())) == steps {
        let (until, _) = sleep.until.expect("it looks now and then");
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
    assert_eq!(host.around.count(Did::Step(best.index())), 30);
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
    while !matches!(host.turn(), Next::Sleep(_)) {}
    host.around.did.iter().find_map(|did| if let Did::Gap(taken) = did { Some(*taken) } else { None })
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
        while !matches!(host.turn(), Next::Sleep(_)) {}
        let told = host.around.did.iter().find_map(|did| if let Did::Gap(taken) = did { Some(*taken) } else { None });
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
        host.around.did.iter().find_map(|did| if let Did::Gap(taken) = did { Some(*taken) } else { None })
    };
    assert_eq!(late(0), None);
    assert_eq!(late(50), None, "50 µs are the wake-up's");
    assert_eq!(late(51), Some(micros(1)), "to know it costs nothing, however short it is");
    assert_eq!(late(2_050), Some(micros(2_000)));
}
