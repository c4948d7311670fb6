//! Each kind of fault by itself: it does what it says, only what it did is blamed, and it is over when it is over.

mod common;

use common::{address, at, best_effort, contract, modern, ms, us};
use laxity_core::admission::Code;
use laxity_core::contract::{SendingStages, Service};
use laxity_core::endpoint::ClockConfig;
use laxity_core::event::End;
use laxity_core::figures::Misses;
use laxity_sim::{
    ChannelHandle, ChannelPlan, ChannelReport, Clock, Fault, FaultKind, GrantedBounds, HostConfig, HostCounters,
    HostId, Sizes, Source, World,
};

struct FaultFixture {
    world: World,
    hosts: [HostId; 2],
    channel: ChannelHandle,
}

/// A channel with more than it needs, that is held to it. The clocks differ unless `same_clock`.
fn scene(same_clock: bool) -> FaultFixture {
    let mut world = World::new(5);
    world.collect_findings();
    let config = |number: u8| {
        let (clock, reading) = match same_clock {
            true => (1, Clock::default()),
            false => (10 + u64::from(number), Clock::ahead(ms(1_000 * u64::from(number)))),
        };
        let peer_clocks = ClockConfig { drift_ppm: 100_000, ..ClockConfig::default() };
        HostConfig { clock, reading, peer_clocks, ..HostConfig::new(modern(), address(number)) }
    };
    let hosts = [1, 2].map(|number| world.add_host(config(number)));
    let contract = contract(6_000, ms(5), 3, ms(12));
    let stages = SendingStages { processor: ms(4), link: ms(4) };
    let plan = ChannelPlan {
        transit: ms(2),
        lease: ms(400),
        ..ChannelPlan::new("a", Service::RealTime(contract), stages, ms(3))
    };
    let channel = world.open(hosts[0], hosts[1], plan);
    world.promise(channel, GrantedBounds { contract, bound: ms(12), queues: [5, 36, 5, 36] });
    world.add_source(Source { until: at(900), ..Source::bursts(channel, &contract, at(100)) });
    FaultFixture { world, hosts, channel }
}

/// What a fault from 300 to 400 ms at a host does, and that nothing but it is blamed.
fn with(host: usize, kind: FaultKind, same_clock: bool) -> (ChannelReport, [HostCounters; 2]) {
    let FaultFixture { mut world, hosts, channel } = scene(same_clock);
    world.add_fault(Fault { host: hosts[host], from: at(300), until: at(400), kind });
    world.run_until(at(600));
    let before = world.report(channel).figures.misses;
    world.run_until(at(1000));
    world.finish();
    let (findings, _) = world.findings();
    assert!(findings.is_empty(), "{kind:?}: {findings:#?}");
    let report = world.report(channel);
    if report.sender_end.is_some_and(|end| matches!(end, End::Closed { .. })) {
        assert_eq!(report.figures.misses, before, "{kind:?}: when it is over, it is over");
    }
    (report, hosts.map(|host| world.host_counters(host)))
}

/// The misses alone.
fn misses(host: usize, kind: FaultKind) -> Misses {
    with(host, kind, true).0.figures.misses
}

const NONE: Misses = Misses { sender: 0, receiver: 0, network: 0, platform: 0, laxity: 0, unexplained: 0 };

#[test]
fn what_the_way_does_is_the_networks_fault() {
    let network = |kind| {
        let misses = misses(0, kind);
        assert_eq!(Misses { network: 0, ..misses }, NONE, "{kind:?}");
        misses.network
    };
    assert_eq!(network(FaultKind::LinkDown), 20, "all messages of a tenth of a second");
    assert!((4..20).contains(&network(FaultKind::Loss { ppm: 100_000 })));
    assert!((4..20).contains(&network(FaultKind::Corruption { ppm: 100_000 })));
    assert!((18..=20).contains(&network(FaultKind::Delay { extra: ms(13) })));
    assert_eq!(network(FaultKind::Delay { extra: ms(4) }), 0, "within what the channel has to spare");
    assert!(network(FaultKind::Reordering { most: ms(14) }) > 0);
    assert_eq!(network(FaultKind::Duplication { ppm: 1_000_000 }), 0);
    // What the receiver sends is control alone, and that is said again.
    assert_eq!(misses(1, FaultKind::LinkDown), NONE);
}

#[test]
fn a_damaged_frame_ends_at_the_check_sequence_and_a_copy_at_the_door() {
    let (_, [_, receiver]) = with(0, FaultKind::Corruption { ppm: 100_000 }, true);
    assert!(receiver.damaged > 0, "{receiver:?}");
    let (report, _) = with(0, FaultKind::Duplication { ppm: 1_000_000 }, true);
    assert!(report.receive.frames_stale >= 20 * 6, "{report:?}");
}

#[test]
fn a_processor_that_is_gone_is_the_platforms_fault() {
    let short = |host| {
        let FaultFixture { mut world, hosts, channel } = scene(true);
        let kind = FaultKind::Interference;
        world.add_fault(Fault { host: hosts[host], from: at(300), until: at(320), kind });
        world.run_until(at(1000));
        world.finish();
        assert_eq!(world.findings(), (vec![], 0));
        world.report(channel).figures
    };
    for figures in [short(0), short(1)] {
        assert!(figures.late > 0, "{figures:?}");
        assert_eq!(figures.misses, Misses { platform: figures.late, ..NONE }, "{figures:?}");
    }
}

#[test]
fn a_slow_application_is_the_receivers_fault() {
    let channel = scene(true).channel;
    let (report, _) = with(1, FaultKind::SlowReceiver { channel, each: ms(12) }, true);
    let misses = report.figures.misses;
    assert!(misses.receiver > 5, "{misses:?}");
    assert_eq!(Misses { receiver: 0, ..misses }, NONE);
}

#[test]
fn a_ring_without_places_loses_and_a_flood_is_looked_at() {
    let (report, [_, receiver]) = with(1, FaultKind::SmallRing { places: 0 }, true);
    assert_eq!((report.figures.misses, receiver.ring_full >= 20 * 6), (Misses { network: 20, ..NONE }, true));
    // The peer floods back: the sender's host looks at all of it, and its own channel does not notice.
    for same_clock in [true, false] {
        let kind = FaultKind::FloodBack { peer: scene(true).hosts[1], spacing: us(10) };
        let (report, [sender, _]) = with(0, kind, same_clock);
        assert_eq!((report.figures.misses, sender.flooded), (NONE, 10_000));
        let ends = sender.endpoint;
        assert!(ends.unknown_channel >= 5_000 && sender.received > 10_000, "{sender:?}");
    }
}

#[test]
fn a_clock_that_steps_or_drifts_is_no_other_hosts_fault() {
    for host in [0, 1] {
        for kind in [
            FaultKind::ClockStep { by: ms(50) },
            FaultKind::ClockDrift { ppm: 50_000 },
            FaultKind::ClockDrift { ppm: -50_000 },
        ] {
            let (report, _) = with(host, kind, false);
            assert_eq!((report.figures.misses.laxity, report.figures.misses.network), (0, 0), "{kind:?}: {report:?}");
            assert!(report.figures.delivered > report.figures.sent - 15, "{kind:?}: {report:?}");
        }
    }
    // To a receiver that was suspended a sender that uses its whole rate is ahead from then on.
    for host in [0, 1] {
        let FaultFixture { mut world, hosts, channel } = scene(false);
        let kind = FaultKind::ClockStandstill;
        world.add_fault(Fault { host: hosts[host], from: at(300), until: at(400), kind });
        world.run_until(at(1000));
        world.finish();
        let figures = world.report(channel).figures;
        assert_eq!((world.findings(), figures.misses.laxity), ((vec![], 0), 0), "{figures:?}");
        assert!(figures.delivered > figures.sent - 25, "{figures:?}");
    }
    // Without a fault, clocks that differ do not matter.
    let FaultFixture { mut world, channel, .. } = scene(false);
    world.run_until(at(1000));
    world.finish();
    assert_eq!((world.report(channel).figures.misses, world.findings()), (NONE, (vec![], 0)));
}

#[test]
fn a_host_that_crashes_forgets_everything_and_its_applications_open_again() {
    for (host, reopen) in [(0, true), (0, false), (1, true), (1, false)] {
        let FaultFixture { mut world, hosts, channel } = scene(true);
        let kind = FaultKind::Crash { reopen };
        world.add_fault(Fault { host: hosts[host], from: at(300), until: at(320), kind });
        world.run_until(at(1000));
        let successor = world.successor(channel);
        assert_eq!(successor.is_some(), reopen, "host {host}");
        if let Some(successor) = successor {
            assert!(world.is_open(successor), "host {host}");
            assert!(world.report(successor).figures.delivered > 20, "host {host}: {:?}", world.report(successor));
        }
        world.finish();
        assert_eq!(world.findings(), (vec![], 0), "host {host}");
        let report = world.report(channel);
        // The one that is left learns it within its lease.
        let left = if host == 0 { report.receiver_end } else { report.sender_end };
        assert_eq!(left, Some(End::PeerLost), "host {host}");
        assert!((30..=45).contains(&report.figures.delivered), "host {host}: {report:?}");
    }
}

/// Arenas: a channel for which there is no place, or there are no frames, is refused; those that are there do not notice.
#[test]
fn what_finds_no_memory_is_refused_and_disturbs_no_channel() {
    for (channels, frames) in [(1, 2048), (16, 40)] {
        let mut world = World::new(5);
        let config = HostConfig { channels, frames, ..HostConfig::new(modern(), address(2)) };
        let (from, to) = (world.add_host(HostConfig::new(modern(), address(1))), world.add_host(config));
        let contract = contract(6_000, ms(5), 1, ms(12));
        let first = world.open(from, to, common::plan("a", contract, ms(3), ms(1)));
        world.run_until(at(50));
        let second = world.open(from, to, common::plan("b", contract, ms(3), ms(1)));
        world.add_source(Source { until: at(900), ..Source::full(first, &contract, at(50)) });
        world.run_until(at(1000));
        world.finish();
        assert!(matches!(world.report(second).sender_end, Some(End::Refused(why)) if why.code == Code::Memory));
        let report = world.report(first);
        assert_eq!((report.figures.misses, report.figures.delivered), (NONE, 170), "{report:?}");
    }
}

#[test]
fn sources_keep_their_contracts_or_break_them_as_they_say() {
    let contract = contract(6_000, ms(5), 3, ms(12));
    let run = |add: &dyn Fn(&mut World, ChannelHandle)| {
        let mut world = World::new(5);
        let (from, to) = (
            world.add_host(HostConfig::new(modern(), address(1))),
            world.add_host(HostConfig::new(modern(), address(2))),
        );
        let channel = world.open(from, to, common::plan("a", contract, ms(3), ms(1)));
        add(&mut world, channel);
        world.run_until(at(1100));
        world.finish();
        world.report(channel).send
    };
    let until = at(1100);
    for conforming in [Source::full, Source::bursts] {
        let send = run(&|world, channel| world.add_source(Source { until, ..conforming(channel, &contract, at(100)) }));
        assert_eq!((send.refused, send.accepted >= 200), (0, true), "{send:?}");
    }
    let send =
        run(&|world, channel| world.add_source(Source { until, ..Source::conforming(channel, &contract, at(100)) }));
    assert_eq!((send.refused, (60..200).contains(&send.accepted)), (0, true), "{send:?}");
    assert!(send.sent_bytes < send.accepted * 4_500 && send.sent_bytes > send.accepted * 1_500, "{send:?}");
    let film = |world: &mut World, channel| {
        let sizes = Sizes::film(1, 6_000);
        world.add_source(Source { until: at(220), ..Source::recorded(channel, &contract, sizes, at(100)) });
    };
    let send = run(&film);
    let bytes: u32 = laxity_sim::FILM_PERMILLE.iter().map(|permille| permille * 6).sum();
    assert_eq!((send.accepted, send.refused, send.sent_bytes), (24, 0, u64::from(bytes)), "each frame once");
    let broken = |source: Source| {
        let send = run(&|world, channel| world.add_source(Source { channel, until, ..source.clone() }));
        (send.accepted, send.violations)
    };
    let channel = scene(true).channel;
    let (accepted, violations) = broken(Source::violating(channel, &contract, at(100), 2));
    assert!((200..=204).contains(&accepted) && violations.burst > 150 && violations.size == 0, "{violations:?}");
    let (accepted, violations) = broken(Source::too_large(channel, &contract, at(100), 2));
    assert_eq!((accepted, violations.size > 190, violations.burst), (0, true, 0), "{violations:?}");
    let (accepted, violations) = broken(Source::too_many(channel, &contract, at(100), 4));
    assert!((40..=60).contains(&accepted) && violations.burst > 100, "{accepted} {violations:?}");
}

/// Best effort gets what is left, and a slow application of its own slows no other channel.
#[test]
fn a_slow_application_of_best_effort_slows_no_other_channel() {
    let FaultFixture { mut world, hosts, channel } = scene(true);
    let bulk = world.open(hosts[0], hosts[1], best_effort("bulk", 5_000, 4));
    world.add_source(Source { until: at(900), ..Source::at_rate(bulk, 5_000, 2_000_000, 1, at(100)) });
    let kind = FaultKind::SlowReceiver { channel: bulk, each: ms(50) };
    world.add_fault(Fault { host: hosts[1], from: at(300), until: at(700), kind });
    world.run_until(at(1000));
    world.finish();
    assert_eq!((world.findings(), world.report(channel).figures.misses), ((vec![], 0), NONE));
    assert!(world.report(bulk).receive.misses.receiver > 100);
}
