//! Channels come and go between hosts that stop and over wires that lose.

mod common;

use common::{address, at, best_effort, contract, modern, ms, plan};
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::event::End;
use laxity_core::units::Duration;
use laxity_link::emulated::EmulatedConfig;
use laxity_sim::{ChannelPlan, Gap, HostConfig, HostId, Source, World};

fn pair(world: &mut World, loss_ppm: u32) -> (HostId, HostId) {
    let mut add = |host| {
        let mut config = HostConfig::new(modern(), address(host));
        config.wire = EmulatedConfig { loss_ppm, ..config.wire };
        world.add_host(config)
    };
    (add(1), add(2))
}

#[test]
fn a_host_that_stops_is_noticed_within_the_lease_and_can_be_reached_again() {
    for receiver_stops in [true, false] {
        let mut world = World::new(5);
        let (from, to) = pair(&mut world, 0);
        let contract = contract(5_000, ms(10), 2, ms(20));
        let channel = world.open(from, to, plan("a", contract, ms(8), ms(1)));
        world.add_source(Source::full(channel, &contract, at(100)));
        world.run_until(at(3000));
        let stopped = if receiver_stops { to } else { from };
        world.take_away(stopped, Gap { start: at(3000), length: ms(5000), excess: ms(5000) });
        // The lease counts from the last sign of life, at most a quarter of it before.
        world.run_until(at(3000) + Duration::from_millis(1400));
        let ends = |world: &World| {
            let report = world.report(channel);
            if receiver_stops { report.sender_end } else { report.receiver_end }
        };
        assert_eq!(ends(&world), None, "three quarters of a lease of silence are no proof");
        world.run_until(at(3000) + Duration::from_millis(2001));
        assert_eq!(ends(&world), Some(End::PeerLost));
        // It comes back, finds out by itself, and a new channel of the same name works.
        world.run_until(at(8000));
        world.run_until(at(11_000));
        let report = world.report(channel);
        assert_eq!((report.sender_end, report.receiver_end), (Some(End::PeerLost), Some(End::PeerLost)));
        let again = world.open(from, to, plan("a", contract, ms(8), ms(1)));
        world.add_source(Source::full(again, &contract, at(11_100)));
        world.run_until(at(12_000));
        world.finish();
        let report = world.report(again);
        assert_eq!((report.figures.sent, report.figures.delivered), (91, 91));
        assert_eq!(report.figures.misses, Default::default());
    }
}

#[test]
fn channels_open_and_close_although_three_frames_in_ten_get_lost() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let (from, to) = pair(&mut world, 300_000);
        let contract = contract(5_000, ms(10), 2, ms(20));
        // Four keep-alives in a lease: at this loss all four fail every fifteenth time, so the lease is a long one.
        let lease = |plan| ChannelPlan { lease: Duration::from_secs(20), ..plan };
        let channels = [
            world.open(from, to, lease(plan("a", contract, ms(8), ms(1)))),
            world.open(to, from, lease(plan("a", contract, ms(8), ms(1)))),
            world.open(from, to, lease(best_effort("b", 5_000, 2))),
        ];
        world.run_until(at(2500));
        for channel in channels {
            assert!(world.is_open(channel), "seed {seed}");
            world.add_source(Source { period: ms(10), ..Source::at_rate(channel, 900, 90_000, 1, at(2500)) });
        }
        world.run_until(at(3500));
        world.close_by_receiver(channels[2]);
        world.run_until(at(10_000));
        // The second one is closed by both sides at once.
        world.close_by_receiver(channels[1]);
        world.finish();
        {
            let report = world.report(channels[0]);
            assert!(matches!(report.sender_end, Some(End::Closed { report: Some(_) })), "seed {seed}: {report:?}");
            assert!(matches!(report.receiver_end, Some(End::Closed { .. })), "seed {seed}: {report:?}");
            let figures = report.figures;
            assert!(figures.lost > 0 && figures.delivered > 0 && figures.lost + figures.delivered == figures.sent);
        }
        let report = world.report(channels[2]);
        let ends = (report.sender_end, report.receiver_end);
        assert!(matches!(ends, (Some(End::ClosedByPeer), Some(End::Closed { .. }))), "seed {seed}: {ends:?}");
    }
}

#[test]
fn a_refusal_arrives_and_an_absent_host_does_not_answer() {
    let mut world = World::new(5);
    let (from, to) = pair(&mut world, 0);
    world.refusal = Some(Refusal::new(Code::ProcessorDeadline, Stage::ReceivingProcessor));
    let contract = contract(5_000, ms(10), 2, ms(20));
    let refused = world.open(from, to, plan("a", contract, ms(8), ms(1)));
    world.run_until(at(500));
    let Some(End::Refused(refusal)) = world.report(refused).sender_end else { panic!() };
    assert_eq!((refusal.code, refusal.stage), (Code::ProcessorDeadline, Stage::ReceivingProcessor));
    world.take_away(to, Gap { start: at(500), length: ms(3500), excess: ms(3500) });
    let unanswered = world.open(from, to, plan("b", contract, ms(8), ms(1)));
    world.run_until(at(4000));
    assert_eq!(world.report(unanswered).sender_end, Some(End::NoAnswer));
    world.finish();
}
