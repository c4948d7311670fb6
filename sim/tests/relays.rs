//! Channels that pass through hosts: what is admitted on every hop is kept on every hop, whatever else goes on there.

mod common;

use std::net::SocketAddr;

use common::{address, at, best_effort, contract, draw, modern, ms, us};
use laxity_core::admission::answer::Rule;

use laxity_core::admission::{Admission, ReservationId, Settings};
use laxity_core::contract::Contract;
use laxity_core::event::End;
use laxity_core::figures::Misses;
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform, Starts};
use laxity_core::units::{Duration, Instant, Rate};
use laxity_link::emulated::EmulatedConfig;
use laxity_sim::route::{GrantedRoute, admit};
use laxity_sim::scale::{Phase, ScaleRun};
use laxity_sim::{ChannelPlan, Fault, FaultKind, Gap, HostConfig, HostId, Source, World};

/// Hosts alike in a row, and a channel from the first to the last one.
fn row(
    count: usize,
    traffic: &Contract,
    wire: impl Fn(usize, EmulatedConfig) -> EmulatedConfig,
) -> (World, Vec<HostId>, GrantedRoute) {
    let mut admissions: Vec<_> = (0..count).map(|_| Admission::new(modern()).unwrap()).collect();
    let route: Vec<_> = (0..count).collect();
    let granted = admit(&mut admissions, &route, traffic, Some(traffic.deadline())).unwrap();
    let mut world = World::new(3);
    let hosts: Vec<_> = (0..count)
        .map(|number| {
            let config = HostConfig::new(modern(), address(number as u8 + 1));
            world.add_host(HostConfig { wire: wire(number, config.wire), ..config })
        })
        .collect();
    (world, hosts, granted)
}

#[test]
fn a_channel_passes_three_relays_and_closes_with_its_counts() {
    let traffic = contract(6_000, ms(10), 3, ms(40));
    let (mut world, hosts, granted) = row(5, &traffic, |_, wire| wire);
    assert_eq!(granted.contract.deadline(), ms(40), "what was left is divided");
    let channel = world.open_via(hosts[0], &granted.hops(&hosts), hosts[4], granted.plan("a"));
    world.promise(channel, granted.promise(&modern()));
    world.run_until(at(500));
    world.add_source(Source::full(channel, &traffic, at(500)));
    world.run_until(at(2_000));
    world.finish();
    let report = world.report(channel);
    assert!(matches!(report.sender_end, Some(End::Closed { report: Some(_) })), "{:?}", report.sender_end);
    assert_eq!((report.figures.delivered, report.figures.misses), (report.figures.sent, Misses::default()));
    assert!(report.figures.sent > 150);
    for (hop, planned) in world.hops(channel).iter().zip(granted.hops(&hosts)) {
        assert_eq!((hop.counters.passed, hop.counters.late), (report.figures.sent, 0));
        assert!(!hop.response.is_zero() && hop.response <= planned.passage.stage, "{hop:?} {planned:?}");
        // Frames are looked at and handed on, and that is all that a relay's processor does.
        assert_eq!(world.host_counters(hop.host).steps, 0);
    }
}

#[test]
fn what_is_lost_in_transit_and_what_relays_drop_adds_up() {
    for (lossy, seed) in [(0, 1), (1, 2), (2, 3)] {
        let traffic = contract(6_000, ms(10), 3, ms(40));
        let wire = |number, wire| match number == lossy {
            true => EmulatedConfig { loss_ppm: 50_000, duplication_ppm: 50_000, ..wire },
            false => wire,
        };
        let (mut world, hosts, granted) = row(4, &traffic, wire);
        let real_time = world.open_via(hosts[0], &granted.hops(&hosts), hosts[3], granted.plan("a"));
        // Best effort has room for four messages at the relays, and comes faster than it goes.
        let mut hops = granted.hops(&hosts);
        hops.iter_mut().for_each(|hop| hop.messages = 4);
        let much = world.open_via(hosts[0], &hops, hosts[3], best_effort("b", 6_000, 8));
        world.run_until(at(500));
        world.add_source(Source::full(real_time, &traffic, at(500)));
        world.add_source(Source::at_rate(much, 6_000, 14_000_000, 6, at(500)));
        // The second relay is stopped for a moment now and then: everything comes at once after that.
        for stop in 0..4 {
            let gap = Gap { start: at(700 + 200 * stop), length: ms(8), excess: ms(8) };
            world.take_away(hosts[2], gap);
        }
        world.run_until(at(1_500));
        world.finish();
        for channel in [real_time, much] {
            let figures = world.report(channel).figures;
            assert_eq!(figures.sent, figures.delivered + figures.lost + figures.dropped, "seed {seed}");
            assert_eq!(figures.misses.laxity, 0, "{figures:?}");
        }
        let figures = world.report(real_time).figures;
        assert!(figures.lost > 10, "{figures:?}");
        assert_eq!(figures.dropped, 0, "its room is what admission computed");
        let hops = world.hops(real_time);
        assert!(hops.iter().map(|hop| hop.counters.frames_stale).sum::<u64>() > 0 || lossy == 2);
    }
}

#[test]
fn a_relay_that_crashes_is_passed_again_when_it_is_back() {
    for relay in [1, 2] {
        let traffic = contract(6_000, ms(10), 3, ms(40));
        let (mut world, hosts, granted) = row(4, &traffic, |_, wire| wire);
        let plan = ChannelPlan { lease: ms(400), ..granted.plan("a") };
        let channel = world.open_via(hosts[0], &granted.hops(&hosts), hosts[3], plan);
        world.promise(channel, granted.promise(&modern()));
        world.add_source(Source { until: at(2_500), ..Source::full(channel, &traffic, at(300)) });
        let kind = FaultKind::Crash { reopen: true };
        world.add_fault(Fault { host: hosts[relay], from: at(600), until: at(650), kind });
        world.run_until(at(3_000));
        let again = world.successor(channel).expect("it was opened again");
        world.finish();
        let ended = world.report(channel).sender_end;
        assert!(matches!(ended, Some(End::PeerLost | End::RouteLost)), "relay {relay}: {ended:?}");
        let figures = world.report(again).figures;
        assert_eq!((figures.delivered, figures.misses), (figures.sent, Misses::default()), "relay {relay}");
        assert!(figures.sent > 100, "relay {relay}: {figures:?}");
    }
}

/// A host with parameters drawn by `next`; packets are cut once, at the sender, and no relay cuts them again.
fn platform(packet: u32, next: &mut impl FnMut(u64) -> u64) -> Platform {
    let quantum = 1 + next(7) as u32;
    let starts = (next(2) > 0).then(|| Starts { burst: 1 + next(3) as u32, spacing: us(200 + next(800)) });
    let message_packets = 1 + next(11) as u32;
    let interference = match next(2) {
        0 => Interference::default(),
        _ => Interference {
            // As long as all that a relay is granted, now and then: what is passed on has no processor's stage that the burst could delay instead.
            burst: if next(2) == 0 { us(4_000) } else { us(next(300)) },
            periodic: vec![(ms(3 + next(7)), us(next(300)))],
            ..Interference::default()
        },
    };
    Platform {
        packet,
        quantum,
        switch: us(next(4)),
        cache: us(next(4)),
        first_packet: us(4 + next(12)),
        packet_cost: us(2 + next(8)),
        receive_first: us(4 + next(12)),
        receive_packet: us(2 + next(8)),
        demultiplex: us(next(2)),
        receive_batch: 1 + next(15) as u32,
        transmit_batch: 1 + next(1) as u32,
        link_cost: us(1 + next(8)),
        link: LinkModel {
            setup: Duration::ZERO,
            rate: Rate::bytes_per_second(4_000_000 + 1_000_000 * next(20)),
            overhead_bytes: 126,
            floor_bytes: 100 + next(200) as u32,
            spacing: Duration::ZERO,
        },
        wake_up: us(next(200)),
        propagation: us(next(100)),
        best_effort: BestEffort { message_packets, packet_min: 50, packet_max: 500, starts },
        interference,
        ..modern()
    }
}

/// When the platform takes the processor: as much as it may, from `start` on.
fn gaps(interference: &Interference, start: Instant, next: &mut impl FnMut(u64) -> u64) -> Vec<Gap> {
    let Some(&(period, cost)) = interference.periodic.first() else { return Vec::new() };
    let first = start + Duration::from_nanos(next(period.as_nanos()));
    let mut gaps = Vec::new();
    // The burst comes once, together with one of the others, about when messages meet.
    let with_burst = ms(120).div_floor(period) + next(2);
    for number in 0..100 {
        let length = if number == with_burst { cost + interference.burst } else { cost };
        gaps.push(Gap { start: first + period * number, length, excess: Duration::ZERO });
    }
    gaps
}

struct AdmittedRoute {
    granted: GrantedRoute,
    held: Vec<(usize, ReservationId)>,
}

/// Channels over random routes of hosts, with no more than each of them needs there.
fn admitted(admissions: &mut [Admission], next: &mut impl FnMut(u64) -> u64) -> Vec<AdmittedRoute> {
    let mut found = Vec::new();
    for _ in 0..14 {
        let mut route: Vec<usize> = (0..admissions.len()).collect();
        for place in 0..route.len() {
            let left = route.len() - 1 - place;
            route.swap(place, place + next(left as u64) as usize);
        }
        // Two of three pass through the middle: there they meet.
        route.truncate(3 + next((admissions.len() - 3) as u64) as usize);
        let size = 200 + 100 * next(120);
        let interval = us(2_000 + 500 * next(60));
        let smallest = if next(1) == 0 { size } else { 1 + next(size - 1) };
        let traffic = Contract::new(size, smallest, interval, 1 + next(2), ms(120)).unwrap();
        if let Ok(granted) = admit(admissions, &route, &traffic, None) {
            let held = route.iter().copied().zip(granted.reservations.iter().copied()).collect();
            found.push(AdmittedRoute { granted, held });
        }
    }
    found
}

#[derive(Debug, Default)]
struct RelayTotals {
    channels: u64,
    relayed: u64,
    messages: u64,
    /// Of each hop: the largest response by the bound, in thousandths.
    tightness: Vec<u64>,
}

fn attack(seed: u64, rule: Rule, seen: &mut RelayTotals) {
    let mut next = draw(seed);
    let count = 3 + next(2) as usize;
    let packet = 500 + 100 * next(10) as u32;
    let platforms: Vec<_> = (0..count).map(|_| platform(packet, &mut next)).collect();
    let settings = Settings { rule, ..Settings::default() };
    let mut admissions: Vec<_> =
        platforms.iter().map(|platform| Admission::with_settings(platform.clone(), settings).unwrap()).collect();
    let channels = admitted(&mut admissions, &mut next);
    let mut world = World::new(seed);
    let ids: Vec<_> = platforms
        .iter()
        .enumerate()
        .map(|(number, platform)| {
            let address = SocketAddr::from(([10, 0, 1, number as u8], 7000));
            let gaps = gaps(&platform.interference, at(300), &mut next);
            world.add_host(HostConfig {
                gaps,
                channels: 64,
                frames: 8192,
                ..HostConfig::new(platform.clone(), address)
            })
        })
        .collect();
    let opened: Vec<_> = channels
        .iter()
        .enumerate()
        .map(|(number, AdmittedRoute { granted, .. })| {
            let (from, to) = (ids[granted.route[0]], ids[*granted.route.last().unwrap()]);
            let handle = world.open_via(from, &granted.hops(&ids), to, granted.plan(&format!("c{number}")));
            world.promise(handle, granted.promise(&platforms[0]));
            handle
        })
        .collect();
    // Best effort from every host to the next one, and over a relay.
    let smallest = platforms.iter().map(|platform| platform.best_effort.message_packets).min().unwrap();
    let bytes = u64::from(smallest) * 500;
    for from in 0..count {
        let to = (from + 1) % count;
        let channel = world.open(ids[from], ids[to], best_effort(&format!("b{from}"), bytes, 4));
        world.add_source(Source::at_rate(channel, bytes as u32, 8_000_000, 2, at(320)));
    }
    world.run_until(at(310));
    // At one of the hosts all that pass it arrive at the same instant; elsewhere by chance.
    let meeting = next(count as u64 - 1) as usize;
    let instant = at(420);
    for (number, (&handle, AdmittedRoute { granted, .. })) in opened.iter().zip(&channels).enumerate() {
        assert!(world.is_open(handle), "seed {seed}: channel {number} {:?}", world.report(handle).sender_end);
        let place = granted.route.iter().position(|&host| host == meeting);
        let begin = match place {
            Some(place) => instant.before(granted.upstream[place]),
            None => instant.before(us(next(20_000))),
        };
        world.add_source(Source::full(handle, &granted.contract, begin));
    }
    world.run_until(at(600));
    world.finish();
    for (number, (&handle, AdmittedRoute { granted, held })) in opened.iter().zip(&channels).enumerate() {
        let report = world.report(handle);
        let context = || format!("seed {seed} {rule:?} channel {number}: {:?} {report:?}", granted.route);
        assert_eq!(
            (report.figures.misses, report.figures.lost, report.figures.dropped),
            Default::default(),
            "{}",
            context()
        );
        assert_eq!((report.figures.late, report.figures.over_bound), (0, 0), "{}", context());
        assert!(report.sender_laxity.is_none_or(|least| least >= 0), "{}", context());
        assert!(report.figures.delivered > 0, "{}", context());
        seen.channels += 1;
        seen.messages += report.figures.delivered;
        for (hop, planned) in world.hops(handle).iter().zip(granted.hops(&ids)) {
            let &(host, id) = held.iter().find(|(host, _)| ids[*host] == hop.host).unwrap();
            let bounds = admissions[host].bounds();
            let bound = bounds.iter().find(|(other, _)| *other == id).unwrap().1.worst;
            assert!(bound <= planned.passage.stage, "{bound} {planned:?} {}", context());
            assert!(hop.response <= bound, "{} > {bound}: {hop:?} {}", hop.response, context());
            assert_eq!(
                (hop.counters.late, hop.counters.dropped(), hop.counters.frames_stale),
                (0, 0, 0),
                "{}",
                context()
            );
            seen.relayed += 1;
            seen.tightness.push(hop.response.as_nanos() * 1000 / bound.as_nanos().max(1));
        }
    }
}

#[test]
fn what_is_admitted_on_every_hop_is_kept_on_every_hop() {
    for rule in [Rule::Split, Rule::Composite] {
        let mut seen = RelayTotals::default();
        (0..60).for_each(|seed| attack(seed, rule, &mut seen));
        seen.tightness.sort_unstable();
        let (largest, middle) = (seen.tightness[seen.tightness.len() - 1], seen.tightness[seen.tightness.len() / 2]);
        println!(
            "{rule:?}: {} channels, {} hops, {} messages, 0 late; response by bound at a relay: median .{middle:03}, largest .{largest:03}",
            seen.channels, seen.relayed, seen.messages
        );
        assert!(seen.relayed > 300 && seen.messages > 4_000, "{seen:?}");
        assert!(largest > 500, "no attack came near: {largest}");
    }
}

#[test]
fn many_hosts_keep_every_promise_and_a_seed_tells_everything() {
    let run = |hosts, seed| {
        let scale = ScaleRun { hosts, channels: 20, span: ms(600), seed };
        let mut phases = Vec::new();
        let outcome = scale.run(&mut |phase, done, of| {
            assert!(done <= of);
            phases.push(phase);
        });
        phases.dedup();
        assert_eq!(phases, [Phase::Admitting, Phase::Opening, Phase::Sending, Phase::Closing]);
        outcome
    };
    let outcome = run(12, 5);
    assert_eq!((outcome.admitted, outcome.refused, outcome.unopened), (240, 0, 0));
    assert_eq!((outcome.violations(), outcome.delivered), (0, outcome.sent));
    assert!(outcome.sent > 500 && outcome.relayed_bytes > 1_000_000, "{outcome:?}");
    // With nothing to spare, messages come near their deadlines, and relays use their stages.
    assert!((900_000..=1_000_000).contains(&outcome.latency_by_deadline), "{outcome:?}");
    assert!((500_000..=1_000_000).contains(&outcome.response_by_stage), "{outcome:?}");
    assert_eq!(run(12, 5), outcome);
    assert_ne!(run(12, 6).digest, outcome.digest);
    // The fewest hosts that have three ways which differ.
    assert_eq!(run(ScaleRun::LEAST_HOSTS, 5).violations(), 0);
}
