//! Traffic that comes together at one host: the last switch port is a FIFO, and everything that is admitted may have something in it.

mod common;

use common::{address, at, best_effort, contract, draw, ms, us};
use laxity_core::admission::Admission;
use laxity_core::admission::answer::Role;
use laxity_core::admission::incoming::{Flow, FlowSource, IncomingGrant, IncomingTraffic};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::figures::Misses;
use laxity_core::platform::{LinkModel, Platform};
use laxity_core::units::{Duration, Rate};
use laxity_sim::{ChannelHandle, ChannelPlan, HostConfig, HostId, Source, World, port_like};

/// 100 Mbit/s; the platform takes nothing, because only what is granted is looked at.
fn platform() -> Platform {
    Platform { interference: Default::default(), ..Platform::assumed_host() }
}

/// A host behind a switch port that holds as many packets as an ordinary switch gives a port.
fn receiver(platform: Platform) -> HostConfig {
    let port = Some(port_like(&platform, 256));
    HostConfig {
        port,
        channels: 64,
        frames: 8192,
        best_effort_frames: 4096,
        receive_ring: 4096,
        ..HostConfig::new(platform, address(1))
    }
}

fn origin(host: u64, admission: &Admission) -> FlowSource {
    let LinkModel { rate, spacing, .. } = admission.platform().link;
    FlowSource { host, rate, ahead: admission.look_ahead(), spacing }
}

/// A real-time channel as both hosts would grant it, with this allowance for its way in.
fn granted(name: &str, contract: &Contract, room: &IncomingGrant) -> ChannelPlan {
    let host = Admission::new(platform()).unwrap();
    let input_delay = host.input_delay() + room.allowance;
    let outside = platform().propagation + input_delay;
    let (_, sending) = host.clone().reserve(contract, Role::Sends, contract.deadline()).unwrap();
    let (_, receiving) = host.clone().reserve(contract, Role::Receives, contract.deadline()).unwrap();
    let needed = sending.processor + sending.link + platform().handover + receiving.processor + outside;
    let left = contract.deadline().checked_sub(needed).expect("both hosts have room");
    let stages = SendingStages { link: sending.link + left, ..sending };
    let transit = host.look_ahead() + platform().link.occupancy(platform().packet) + outside;
    ChannelPlan {
        input_delay,
        transit,
        ..ChannelPlan::new(name, Service::RealTime(*contract), stages, receiving.processor)
    }
}

/// 32 hosts with one best-effort channel each that always has more to send, and one with a guaranteed channel: what became of that,
/// and how many packets the port dropped.
fn crowd(spacing: Option<Duration>, room: &IncomingGrant) -> (u64, Misses, u64) {
    let mut world = World::new(5);
    let to = world.add_host(receiver(platform()));
    let control = contract(200, ms(5), 1, ms(40));
    let from = world.add_host(HostConfig::new(platform(), address(2)));
    let channel = world.open(from, to, granted("control", &control, room));
    for host in 0..32 {
        let from = world.add_host(HostConfig { frames: 512, ..HostConfig::new(platform(), address(3 + host)) });
        let plan = ChannelPlan {
            spacing: spacing.unwrap_or(Duration::ZERO),
            ..best_effort(&format!("bulk-{host}"), 14_000, 8)
        };
        let bulk = world.open(from, to, plan);
        world.add_source(Source { until: at(2_000), ..Source::at_rate(bulk, 14_000, 12_500_000, 8, at(50)) });
    }
    world.run_until(at(100));
    world.add_source(Source { until: at(2_000), ..Source::full(channel, &control, at(100)) });
    world.run_until(at(2_100));
    let figures = world.report(channel).figures;
    assert!(figures.sent >= 370, "{figures:?}");
    (figures.delivered, figures.misses, world.host_counters(to).port.dropped_queue)
}

/// The finding: all were granted, and nothing of the guarantee was left. Now they are told to be slower, and it is kept.
#[test]
fn thirty_two_hosts_with_best_effort_break_no_guarantee() {
    let admission = Admission::new(platform()).unwrap();
    let mut incoming = IncomingTraffic::new(&admission);
    for host in 0..32 {
        let flow = Flow::best_effort(origin(host, &admission), 1400, None);
        let room = incoming.room(&flow, Duration::MAX).unwrap();
        incoming.insert(flow, room.allowance);
    }
    let control = contract(200, ms(5), 1, ms(40));
    let flow = Flow::real_time(origin(99, &admission), &control, 1400, control.deadline());
    let room = incoming.room(&flow, ms(20)).unwrap();
    println!("32 hosts: a packet each {:?}, the way in takes {} at most", room.spacing, room.wait);
    let (delivered, misses, dropped) = crowd(room.spacing, &room);
    println!("told so: {delivered} delivered, {misses:?}, {dropped} dropped at the port");
    assert_eq!((misses, dropped), (Misses::default(), 0));
    assert!(delivered >= 370);
    // As it was: they send as fast as they can.
    let (delivered, misses, dropped) = crowd(None, &room);
    println!("not told so: {delivered} delivered, {misses:?}, {dropped} dropped at the port");
    assert!(delivered < 300 && misses.network > 100 && dropped > 1_000, "{delivered} {misses:?} {dropped}");
}

/// A sender does what it is told, says so behind everything that it sent before, and is as fast as before when it may be.
#[test]
fn a_sender_is_slower_when_it_is_told_and_faster_again() {
    let mut world = World::new(9);
    let to = world.add_host(receiver(platform()));
    let from = world.add_host(HostConfig { frames: 512, ..HostConfig::new(platform(), address(2)) });
    let bulk = world.open(from, to, best_effort("bulk", 14_000, 8));
    world.run_until(at(50));
    world.add_source(Source { until: at(3_000), ..Source::at_rate(bulk, 14_000, 12_500_000, 8, at(50)) });
    world.run_until(at(1_050));
    let bytes = |world: &World| world.report(bulk).send.sent_bytes;
    let free = bytes(&world);
    assert!(free > 10_000_000, "{free} in a second");
    world.ask_spacing(bulk, ms(10));
    world.run_until(at(1_060));
    let (confirmed, spacing) = world.spaced(bulk).expect("an answer at once");
    assert_eq!(spacing, ms(10));
    assert!(confirmed < at(1_055), "{confirmed:?}");
    let before = bytes(&world);
    world.run_until(at(2_060));
    let slow = bytes(&world) - before;
    assert!((99 * 1400..=101 * 1400).contains(&slow), "{slow} in a second");
    world.ask_spacing(bulk, Duration::ZERO);
    world.run_until(at(2_100));
    assert_eq!(world.spaced(bulk).map(|(_, spacing)| spacing), Some(Duration::ZERO));
    let before = bytes(&world);
    world.run_until(at(2_600));
    assert!(bytes(&world) - before > 5_000_000);
    world.finish();
}

/// What random peers are granted, real-time and best effort, from hosts of their own, is kept at the port and at the looks.
#[test]
fn what_is_granted_to_many_hosts_is_kept() {
    let (mut kept, mut refused) = (0, 0);
    for seed in 0..40 {
        let mut next = draw(seed);
        let admission = Admission::new(platform()).unwrap();
        let mut incoming = IncomingTraffic::new(&admission);
        let mut asked: Vec<(u64, Option<Contract>, IncomingGrant, u64)> = Vec::new();
        for host in 0..4 + next(12) {
            let real_time = next(2) > 0;
            let wanted = contract(1 + next(12_000), ms(10 + next(40)), 1 + next(1), ms(40 + next(60)));
            let origin = origin(host, &admission);
            let flow = match real_time {
                true => Flow::real_time(origin, &wanted, 1400, wanted.deadline()),
                false => Flow::best_effort(origin, 1400, None),
            };
            match incoming.room(&flow, ms(24)) {
                Ok(room) => {
                    asked.iter().for_each(|(_, contract, _, id)| {
                        if contract.is_none() {
                            incoming.set_spacing(*id, room.spacing);
                        }
                    });
                    let id = incoming.insert(flow, room.allowance);
                    incoming.set_spacing(id, room.spacing);
                    asked.push((host, real_time.then_some(wanted), room, id));
                }
                Err(_) => refused += 1,
            }
        }
        let spacing = asked.last().and_then(|(_, _, room, _)| room.spacing).unwrap_or(Duration::ZERO);
        let mut world = World::new(seed);
        let to = world.add_host(receiver(platform()));
        let mut channels: Vec<(ChannelHandle, Contract)> = Vec::new();
        for (host, wanted, room, _) in asked {
            let from: HostId =
                world.add_host(HostConfig { frames: 4096, ..HostConfig::new(platform(), address(2 + host as u8)) });
            let begin = at(200 + next(3));
            match wanted {
                Some(wanted) => {
                    let channel = world.open(from, to, granted(&format!("c{host}"), &wanted, &room));
                    world.add_source(Source {
                        until: at(1_200),
                        ..Source::full(channel, &wanted, begin + us(next(3_000)))
                    });
                    channels.push((channel, wanted));
                }
                None => {
                    let plan = ChannelPlan { spacing, ..best_effort(&format!("b{host}"), 14_000, 8) };
                    let bulk = world.open(from, to, plan);
                    world
                        .add_source(Source { until: at(1_200), ..Source::at_rate(bulk, 14_000, 12_500_000, 8, begin) });
                }
            }
        }
        world.run_until(at(1_400));
        for (channel, wanted) in channels {
            let figures = world.report(channel).figures;
            assert_eq!(figures.misses, Misses::default(), "seed {seed}: {wanted:?} {figures:?}");
            assert!(figures.sent > 0 && figures.delivered == figures.sent, "seed {seed}: {figures:?}");
            kept += 1;
        }
        assert_eq!(world.host_counters(to).port.dropped_queue, 0, "seed {seed}");
    }
    println!("{kept} channels kept, {refused} refused");
    assert!(kept > 80 && refused > 5, "{kept} {refused}");
}

/// A port that is slower than the host's own link is what counts.
#[test]
fn a_slower_port_admits_less() {
    let slow = Platform { receive_rate: Rate::bytes_per_second(1_250_000), ..platform() };
    let wanted = contract(10_000, ms(10), 1, ms(60));
    let fits = |platform: Platform| {
        let admission = Admission::new(platform).unwrap();
        let flow = Flow::real_time(origin(1, &admission), &wanted, 1400, wanted.deadline());
        IncomingTraffic::new(&admission).room(&flow, ms(40)).is_ok()
    };
    assert!(fits(platform()));
    // 10,000 bytes and 8 headers every 10 ms are 88 % of it; with what may have piled up in transit, more than it has.
    assert!(!fits(Platform { receive_rate: Rate::bytes_per_second(1_000_000), ..slow }));
}
