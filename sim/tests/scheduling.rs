//! Duties of the drive loop beside deadlines: early work, restriction, equal deadlines, gaps and their cause.

mod common;

use common::{address, ample, at, best_effort, contract, modern, ms, plan, us};
use laxity_core::contract::{SendingStages, Service};
use laxity_core::figures::Misses;
use laxity_core::platform::Platform;
use laxity_core::processor::Policy;
use laxity_core::units::Duration;
use laxity_sim::{ChannelHandle, ChannelPlan, ChannelReport, Gap, HostConfig, HostId, Source, World};

fn run(sender: HostConfig, receiver: HostConfig, until: u64) -> (World, HostId, [ChannelHandle; 2]) {
    let mut world = World::new(11);
    let (from, to) = (world.add_host(sender), world.add_host(receiver));
    let contract = contract(6_000, ms(10), 3, ms(20));
    let channels = ["a", "b"].map(|name| world.open(from, to, plan(name, contract, ms(8), ms(1))));
    world.run_until(at(500));
    for channel in channels {
        world.add_source(Source::full(channel, &contract, at(500)));
    }
    world.run_until(at(until));
    (world, from, channels)
}

fn host(number: u8) -> HostConfig {
    HostConfig::new(modern(), address(number))
}

#[test]
fn early_work_makes_messages_early_and_never_late() {
    let mut largest = Vec::new();
    for (send_early, receive_early) in [(false, false), (false, true), (true, true)] {
        let (sender, receiver) = (HostConfig { send_early, ..host(1) }, HostConfig { receive_early, ..host(2) });
        let (mut world, _, channels) = run(sender, receiver, 2500);
        world.finish();
        for channel in channels {
            let report = world.report(channel);
            assert_eq!((report.figures.misses, report.figures.delivered), (Misses::default(), report.figures.sent));
        }
        largest.push(world.report(channels[0]).figures.response.unwrap());
    }
    // Held until its time at the receiver, or not.
    assert!(largest[0] >= ms(12) && largest[1] < ms(5) && largest[2] <= largest[1], "{largest:?}");
}

#[test]
fn while_restricted_only_what_was_promised_is_done() {
    let mut world = World::new(11);
    let (from, to) = (world.add_host(host(1)), world.add_host(HostConfig { frames: 4096, ..host(2) }));
    let contract = contract(6_000, ms(10), 1, ms(20));
    let promised = world.open(from, to, plan("a", contract, ms(8), ms(1)));
    let bulk = world.open(from, to, best_effort("b", 60_000, 4));
    world.run_until(at(500));
    world.add_source(Source::full(promised, &contract, at(500)));
    world.add_source(Source::at_rate(bulk, 60_000, 50_000_000, 4, at(500)));
    world.restrict_at(at(1000), from, true);
    world.restrict_at(at(2000), from, false);
    world.run_until(at(1100));
    let before = world.report(bulk);
    world.run_until(at(2000));
    assert_eq!(world.report(bulk).figures.delivered, before.figures.delivered, "no best effort while restricted");
    world.run_until(at(3000));
    assert!(world.report(bulk).figures.delivered > before.figures.delivered + 50, "it goes on afterwards");
    world.finish();
    let report = world.report(promised);
    assert_eq!((report.figures.misses, report.figures.sent), (Misses::default(), 250));
}

/// Two channels with the same deadlines, always: one message is finished before the other begins. If they took turns, each
/// quantum would cost a change of handler.
#[test]
fn equal_deadlines_do_not_take_turns() {
    for policy in [Policy::EarliestDeadline, Policy::FixedPriority] {
        let sender = HostConfig { policy, ..HostConfig::new(Platform { quantum: 1, ..modern() }, address(1)) };
        let (mut world, from, channels) = run(sender, host(2), 2500);
        let messages: u64 = channels.iter().map(|&channel| world.report(channel).send.sent).sum();
        let switches = world.host_counters(from).switches;
        assert!(switches <= messages, "{policy:?}: {switches} changes of handler for {messages} messages");
        world.finish();
    }
}

/// The largest lateness at the sending host, and the report.
fn with_gap(gaps: Vec<Gap>, receive_early: bool) -> ChannelReport {
    let sender = HostConfig { gaps, ..host(1) };
    let (mut world, _, channels) =
        run(sender, HostConfig { receive_early, ..HostConfig::new(ample(1000), address(2)) }, 4000);
    world.finish();
    world.report(channels[0])
}

#[test]
fn a_gap_makes_messages_late_by_the_platforms_fault_and_only_as_long_as_it_lasts() {
    let gap = |length| vec![Gap { start: at(1000), length: ms(length), excess: ms(length) }];
    // Within the slack: no channel notices.
    let calm = with_gap(gap(5), false);
    assert_eq!((calm.figures.misses, calm.figures.late), (Misses::default(), 0));
    for receive_early in [false, true] {
        let report = with_gap(gap(25), receive_early);
        assert!(report.figures.late > 0, "{report:?}");
        assert_eq!(report.figures.misses.laxity, 0, "early {receive_early}: {:?}", report.figures);
        assert_eq!(report.figures.misses.sender, 0, "early {receive_early}: {:?}", report.figures);
        assert!(report.figures.late <= 4, "early {receive_early}: {:?}", report.figures);
    }
}

#[test]
fn a_gap_at_the_receiver_is_the_platforms_fault_and_a_slow_way_the_networks() {
    let run_with = |receiver: HostConfig, sender: HostConfig, transit: Duration| {
        let mut world = World::new(1);
        let (here, there) = (world.add_host(sender), world.add_host(receiver));
        let contract = contract(10_000, ms(20), 1, ms(12));
        let stages = SendingStages { processor: ms(4), link: ms(4) };
        let plan = ChannelPlan { transit, ..ChannelPlan::new("way", Service::RealTime(contract), stages, ms(3)) };
        let channel = world.open(here, there, plan);
        world.add_source(Source::full(channel, &contract, at(500)));
        world.run_until(at(2000));
        world.finish();
        world.report(channel).figures
    };
    let receiver = || HostConfig { receive_early: true, ..HostConfig::new(modern(), address(2)) };
    let sender = || HostConfig::new(modern(), address(1));
    let calm = run_with(receiver(), sender(), ms(1));
    assert_eq!((calm.late, calm.misses), (0, Misses::default()));

    // 15 ms without a processor while a message arrives (one every 20 ms): what lay in the socket is not the network's.
    let gaps = vec![Gap { start: at(1000), length: ms(15), excess: ms(15) }];
    let figures = run_with(HostConfig { gaps, ..receiver() }, sender(), ms(1));
    assert!(figures.late > 0, "{figures:?}");
    assert_eq!(figures.misses, Misses { platform: figures.late, ..Misses::default() });

    // A way of 15 ms where 1 ms was stated.
    let mut slow = sender();
    slow.wire.propagation = ms(15);
    let figures = run_with(receiver(), slow, ms(1));
    assert!(figures.late > 0, "{figures:?}");
    assert_eq!(figures.misses, Misses { network: figures.late, ..Misses::default() });
}

#[test]
fn the_backlog_of_a_gap_is_the_platforms_fault_for_those_who_come_after_it_too() {
    // Three channels that use most of the link; 40 ms without a processor leave a backlog that takes long to make up for, so
    // that messages are late whose logical arrival is after the gap.
    let mut world = World::new(5);
    let gaps = vec![Gap { start: at(1000), length: ms(40), excess: ms(40) }];
    let here = world.add_host(HostConfig { gaps, ..HostConfig::new(modern(), address(1)) });
    let there = world.add_host(HostConfig { receive_early: true, ..HostConfig::new(modern(), address(2)) });
    let contract = contract(80_000, ms(25), 1, ms(30));
    let stages = SendingStages { processor: ms(4), link: ms(24) };
    let channels: Vec<_> = ["x", "y", "z"]
        .into_iter()
        .map(|name| world.open(here, there, ChannelPlan::new(name, Service::RealTime(contract), stages, ms(2))))
        .collect();
    for channel in &channels {
        world.add_source(Source::full(*channel, &contract, at(500)));
    }
    world.run_until(at(2500));
    world.finish();
    let figures: Vec<_> = channels.iter().map(|channel| world.report(*channel).figures).collect();
    let late: u64 = figures.iter().map(|figures| figures.late).sum();
    assert!(late > 6, "the backlog outlives the messages of the gap: {figures:?}");
    for figures in figures {
        assert_eq!(figures.misses, Misses { platform: figures.late, ..Misses::default() }, "{figures:?}");
    }
}

/// A host that is slower than it said, without a gap, is Laxity's fault: attribution must not find excuses.
#[test]
fn slowness_without_a_gap_is_blamed_on_no_other_component() {
    let slow = Platform { packet_cost: ms(4), ..modern() };
    let (world, _, channels) = run(HostConfig::new(slow, address(1)), host(2), 1500);
    let misses = world.report(channels[0]).figures.misses;
    assert!(misses.laxity > 0, "{misses:?}");
    assert_eq!(Misses { laxity: 0, ..misses }, Misses::default());
}

#[test]
fn the_wake_up_is_paid_once_and_in_full() {
    let late = Platform { wake_up: us(700), ..modern() };
    let latency = |platform: Platform| {
        let (mut world, _, channels) = run(
            HostConfig::new(platform, address(1)),
            HostConfig { receive_early: true, ..HostConfig::new(ample(1000), address(2)) },
            1500,
        );
        world.finish();
        world.report(channels[0]).figures.latencies.p50.unwrap()
    };
    let (slow, fast) = (latency(late), latency(Platform { wake_up: Duration::ZERO, ..modern() }));
    assert!(slow >= fast + us(690) && slow <= fast + us(710), "{slow} {fast}");
}

/// A guarantee must not cost what it protects: 60 KB alone on a link of 100 Mbit/s take at most 1.3 times what the wire takes for them, which plain
/// datagrams cannot beat.
#[test]
fn a_large_message_alone_takes_little_longer_than_the_wire_does() {
    let platform = Platform { interference: Default::default(), ..Platform::assumed_host() };
    let early = |host| HostConfig { send_early: true, receive_early: true, ..host };
    let host = |number| early(HostConfig::new(platform.clone(), address(number)));
    let mut world = World::new(3);
    let (from, to) = (world.add_host(host(1)), world.add_host(host(2)));
    let contract = contract(60_000, ms(50), 1, ms(50));
    let channel = world.open(from, to, plan("frame", contract, ms(10), ms(1)));
    world.run_until(at(500));
    world.add_source(Source::full(channel, &contract, at(500)));
    world.run_until(at(2_500));
    let figures = world.report(channel).figures;
    assert!(figures.delivered >= 39 && figures.misses == Misses::default(), "{figures:?}");
    // 42 full packets and one of 1,200 bytes.
    let wire = platform.link.occupancy(1_400) * 42 + platform.link.occupancy(1_200);
    let largest = figures.latencies.max.unwrap();
    println!("{largest}, the wire takes {wire}");
    assert!(largest > wire && largest * 10 <= wire * 13, "{largest} where the wire takes {wire}");
}
