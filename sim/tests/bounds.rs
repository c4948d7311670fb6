//! The bound of a receiving channel, held against what happens in virtual time: exact, every step at its worst cost.

mod common;

use common::{address, at, contract, modern, ms, us};
use laxity_core::admission::Admission;
use laxity_core::admission::answer::Role;
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::figures::Misses;
use laxity_core::units::Duration;
use laxity_sim::{ChannelPlan, ChannelReport, Gap, HostConfig, Source, World};

/// From the logical arrivals at the sender to those at the receiver, which are the same for all channels: they meet there.
const UPSTREAM: Duration = ms(15);

/// What a channel gets, and what by the analysis it needs.
struct GrantedBound {
    contract: Contract,
    stage: Duration,
    worst: Duration,
}

/// Three channels at a receiving host, each with `more` than its least stage.
fn granted(more: Duration) -> Vec<GrantedBound> {
    let mut admission = Admission::new(modern()).unwrap();
    let mut held = Vec::new();
    for (max, interval) in [(6_000, ms(10)), (20_000, ms(20)), (3_000, ms(5))] {
        let asked = contract(max, interval, 1, ms(50));
        let (id, _) = admission.reserve(&asked, Role::Receives, ms(10)).unwrap();
        held.push((id, asked));
    }
    let granted: Vec<_> = held
        .into_iter()
        .map(|(id, asked)| {
            let least = admission.bounds().iter().find(|(other, _)| *other == id).unwrap().1.worst;
            let stage = admission.relax(id, least.max(ms(1)) + more).unwrap().processor;
            (id, asked.with_deadline(UPSTREAM + stage).unwrap(), stage)
        })
        .collect();
    let bounds = admission.bounds();
    let worst = |id| bounds.iter().find(|(other, _)| *other == id).unwrap().1.worst;
    granted.into_iter().map(|(id, contract, stage)| GrantedBound { contract, stage, worst: worst(id) }).collect()
}

/// Runs them at full rate; `spare` is how long before its deadline a message is expected.
fn run(
    granted: &[GrantedBound],
    receive_early: bool,
    gaps: Vec<Gap>,
    spare: impl Fn(&GrantedBound) -> Duration,
) -> Vec<ChannelReport> {
    let mut world = World::new(5);
    let from = world.add_host(HostConfig::new(modern(), address(1)));
    let to = world.add_host(HostConfig { receive_early, gaps, ..HostConfig::new(modern(), address(2)) });
    let delay = Admission::new(modern()).unwrap().input_delay();
    // What lies outside both hosts' stages is in the plan: the way, and the wait until a frame is found.
    let sender = UPSTREAM - modern().propagation - delay;
    let stages = SendingStages { processor: sender.mul_ratio(3, 5), link: sender - sender.mul_ratio(3, 5) };
    let open = |(number, granted): (usize, &GrantedBound)| {
        let plan = ChannelPlan::new(&number.to_string(), Service::RealTime(granted.contract), stages, granted.stage);
        world.open(from, to, ChannelPlan { spare: spare(granted), ..plan })
    };
    let channels: Vec<_> = granted.iter().enumerate().map(open).collect();
    world.run_until(at(500));
    for (channel, granted) in channels.iter().zip(granted) {
        world.add_source(Source::full(*channel, &granted.contract, at(500)));
    }
    world.run_until(at(2_500));
    world.finish();
    let reports: Vec<ChannelReport> = channels.iter().map(|&channel| world.report(channel)).collect();
    for report in &reports {
        assert_eq!(report.figures.misses, Misses::default());
        assert!(report.figures.delivered >= 90);
    }
    reports
}

fn by_analysis(granted: &GrantedBound) -> Duration {
    granted.stage - granted.worst
}

#[test]
fn nothing_is_complete_after_its_bound() {
    let granted = granted(ms(3));
    for receive_early in [false, true] {
        let reports = run(&granted, receive_early, Vec::new(), by_analysis);
        for (granted, report) in granted.iter().zip(&reports) {
            let (bound, max) = (report.figures.bound.unwrap(), report.figures.response.unwrap());
            assert_eq!(bound, UPSTREAM + granted.worst);
            assert!(max <= bound && bound < granted.contract.deadline(), "{max} {bound}");
            assert_eq!(report.figures.over_bound, 0);
            // It is no bound out of the blue either: who waits for the logical arrival comes near it.
            assert!(receive_early || max > UPSTREAM, "{max} {bound}");
        }
    }
}

#[test]
fn a_bound_that_is_too_small_is_seen() {
    let granted = granted(ms(3));
    // As if one microsecond were enough for everything.
    for report in run(&granted, false, Vec::new(), |granted| granted.stage - us(1)) {
        assert_eq!(report.figures.over_bound, report.figures.delivered);
    }
}

#[test]
fn a_gap_is_not_held_against_the_bound_and_only_a_gap_that_was_seen() {
    let granted = granted(ms(5));
    let gap = |start: u64, excess| Gap { start: at(start), length: ms(4), excess };
    let starts = [614, 815, 1_016, 1_415];
    let over = |excess: Duration| -> u64 {
        let gaps = starts.iter().map(|&start| gap(start, excess)).collect();
        run(&granted, false, gaps, by_analysis).iter().map(|report| report.figures.over_bound).sum()
    };
    assert_eq!(over(ms(4)), 0);
    assert!(over(Duration::ZERO) > 0, "nothing explains it then");
}
