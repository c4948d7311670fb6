//! Worlds of two hosts with two clocks: whatever the network and the clocks do, no true latency is outside of its interval, and without
//! faults the clocks decide.
//!
//! The ways between the two differ, and so do their clocks, which drift within what is stated, are stepped forward and stand still; some know the time of the world; frames
//! are lost, late, doubled or overtaken. Deadlines are near what the way takes, so that all verdicts come, or far from it. Nothing is
//! promised: whether messages are in time is not the question, only whether it is known.
//!
//! It leaves out clocks that drift more than is stated, of which nothing is true, and hosts that crash.

use std::net::SocketAddr;

use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::endpoint::ClockConfig;
use laxity_core::limits;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};

use super::{SwarmCounts, WorldOutcome, count_faults, outcome};
use crate::channel::DecidableCounts;
use crate::{
    ChannelHandle, ChannelPlan, Clock, Fault, FaultKind, HostConfig, HostId, Random, Source, StepCosts, WakeUp, World,
    us,
};

/// The spans by which clocks go ahead or stand still: less than a round trip, and more.
const JUMPS: [Duration; 7] = [us(1), us(10), us(100), us(500), us(2_000), us(8_000), us(30_000)];
/// The drifts of a clock, either way, parts per million.
const DRIFTS: [u32; 5] = [0, 20, 500, 5_000, 50_000];
/// The errors with which hosts know true time.
const WALL_ERRORS: [Duration; 4] = [Duration::ZERO, us(1), us(50), us(1_000)];
/// The times that frames are in transit.
const PROPAGATIONS: [Duration; 4] = [Duration::ZERO, us(20), us(300), us(5_000)];
/// The most that hosts add to a round trip: wake-ups, messages in front of control frames, and their own costs.
const AT_HOSTS: Duration = us(6_000);
/// Messages of a channel.
const MESSAGES: u64 = 150;

/// The two hosts, as they were drawn.
struct DrawnHosts {
    period: Duration,
    /// The most that each clock drifts.
    drifts: [u32; 2],
    configs: [HostConfig; 2],
    /// A frame there and one back are at most so long on their ways.
    ways: Duration,
    /// By how much an interval may be wide.
    margin: Duration,
    start: Instant,
    end: Instant,
}

fn drawn(random: &mut Random) -> DrawnHosts {
    let period = random.pick(&[us(2_000), us(10_000), us(50_000)]);
    let drifts = [(); 2].map(|()| random.pick(&DRIFTS));
    let both: u32 = drifts.iter().sum();
    let more = if random.one_in(2) { random.up_to(both.into()) as u32 } else { 0 };
    let peer_clocks = ClockConfig { period, drift_ppm: (both + more).max(1), ..ClockConfig::default() };
    let configs = [0, 1].map(|number| host(random, number, drifts[number], peer_clocks));
    let ways = configs.iter().map(|config| config.wire.propagation + config.wire.jitter);
    let ways = ways.fold(Duration::ZERO, |sum, way| sum + way);
    // A report comes a period and a round trip after a message, and what it is held against is as old.
    let old = (period + ways + AT_HOSTS) * 2;
    let margin = (ways + AT_HOSTS) * 2 + old.mul_ratio(u64::from(peer_clocks.drift_ppm) * 2, 1_000_000);
    let start = Instant::ZERO + ways * 2 + AT_HOSTS;
    let end = start + (period * 20 + us(100_000)).min(us(1_000_000));
    DrawnHosts { period, drifts, configs, ways, margin, start, end }
}

fn host(random: &mut Random, number: usize, drift: u32, peer_clocks: ClockConfig) -> HostConfig {
    let platform = Platform { wake_up: us(random.up_to(200)), ..Platform::assumed_host() };
    let mut reading = Clock::ahead(us(random.up_to(5_000_000)));
    reading.drift(Instant::ZERO, signed(random, drift));
    let send_early = random.one_in(2);
    let base = HostConfig::new(platform, SocketAddr::from(([10, 0, 0, number as u8 + 1], 7000)));
    let mut config = HostConfig {
        clock: 10 + number as u64,
        reading,
        peer_clocks,
        send_early,
        receive_early: random.one_in(2),
        look_ahead: if send_early && random.one_in(2) { Duration::MAX } else { base.look_ahead },
        inline: random.one_in(3),
        wake_up: if random.one_in(2) { WakeUp::Uniform } else { WakeUp::Worst },
        step_costs: if random.one_in(3) { StepCosts::From { least_permille: 300 } } else { StepCosts::Worst },
        ..base
    };
    config.wire.propagation = random.pick(&PROPAGATIONS);
    config.wire.jitter = if random.one_in(2) { us(1 + random.up_to(2_000)) } else { Duration::ZERO };
    (config.wire.queue_packets, config.wire.capacity) = (256, 512);
    if random.one_in(2) {
        let error = random.pick(&WALL_ERRORS);
        let off = random.pick(&[error, error.mul_ratio(1, 2), Duration::ZERO]).as_nanos().cast_signed();
        config.wall = Some((if random.one_in(2) { -off } else { off }, error));
    }
    config
}

/// So much, less, or nothing, either way.
fn signed(random: &mut Random, most: u32) -> i32 {
    let ppm = random.pick(&[most, most, most / 3, 0]) as i32;
    if random.one_in(2) { -ppm } else { ppm }
}

/// Runs the world with this seed.
pub fn world(seed: u64) -> WorldOutcome {
    let mut random = Random(seed);
    // Seeds in a row must not give worlds in a row.
    random = Random(random.next());
    let drawn = drawn(&mut random);
    let mut world = World::new(random.next());
    world.collect_findings();
    let hosts = drawn.configs.clone().map(|config| world.add_host(config));
    let mut channels = Vec::new();
    for number in 0..1 + random.up_to(1) {
        let from = random.up_to(1) as usize;
        let Some((contract, plan)) = channel(&mut random, &drawn, from, number) else { continue };
        let handle = world.open(hosts[from], hosts[1 - from], plan);
        channels.push((handle, contract));
    }
    faults(&mut random, &mut world, &drawn, hosts);
    for (handle, contract) in &channels {
        feed(&mut random, &mut world, *handle, contract, &drawn);
        // A message waits four periods for a report.
        if world.faults().is_empty() && drawn.ways + us(1_000) <= drawn.period * 2 {
            // When they have exchanged stamps for the first time, until they close: what leaves after that is not accompanied by stamps.
            let sent =
                [drawn.start + drawn.period * 4 + (drawn.ways + AT_HOSTS) * 2, drawn.end.before(drawn.period * 5)];
            world.channels[handle.0].ledger.decidable =
                Some(DecidableCounts { sent, margin: drawn.margin, judged: 0, undecided: 0 });
        }
    }
    world.run_until(drawn.start);
    let opened = channels.iter().filter(|(handle, _)| world.is_open(*handle)).count() as u64;
    let mut counts = SwarmCounts { hosts: 2, channels: opened, ..SwarmCounts::default() };
    count_faults(&world, &mut counts);
    world.run_until(drawn.end);
    counts.span = world.now().since(Instant::ZERO);
    world.finish();
    let mut findings = Vec::new();
    for (number, record) in world.channels.iter().enumerate() {
        let Some(DecidableCounts { judged, undecided, margin, .. }) = record.ledger.decidable else { continue };
        counts.decidable += judged;
        if undecided > 0 {
            findings.push(format!(
                "undecided: channel {number}: found {undecided} of {judged} messages that were complete more than {margin} \
                 from their deadline, expected none"
            ));
        }
    }
    outcome(seed, &world, counts, findings, || setting(&drawn, &channels, &world))
}

fn setting(drawn: &DrawnHosts, channels: &[(ChannelHandle, Contract)], world: &World) -> Vec<String> {
    let host = |(number, config): (usize, &HostConfig)| {
        let HostConfig { reading, peer_clocks, send_early, receive_early, look_ahead, inline, wire, .. } = config;
        format!(
            "host {number}: {reading:?}, {peer_clocks:?}, early {send_early} {receive_early} by {look_ahead}, inline {inline}, \
             propagation {}, jitter {}",
            wire.propagation, wire.jitter
        )
    };
    let channel = |(handle, contract): &(ChannelHandle, Contract)| {
        let record = &world.channels[handle.0];
        format!("channel {} from {} to {}: {contract:?}", handle.0, record.from.0, record.to.0)
    };
    let hosts = drawn.configs.iter().enumerate().map(host);
    let faults = world.faults().iter().map(|fault| format!("{fault:?}"));
    hosts.chain(channels.iter().map(channel)).chain(faults).collect()
}

fn channel(random: &mut Random, drawn: &DrawnHosts, from: usize, number: u64) -> Option<(Contract, ChannelPlan)> {
    let HostConfig { wire, send_early, .. } = &drawn.configs[from];
    let max = 1 + random.up_to(4_000);
    let interval =
        us(1_000 + random.up_to(9_000)).max(Duration::from_nanos(drawn.end.since(drawn.start).as_nanos() / MESSAGES));
    let deadline = if random.one_in(2) {
        // About what the way takes: late or in time, by little.
        wire.propagation + us(random.up_to(2_500)) + wire.jitter
    } else {
        wire.propagation + wire.jitter + drawn.margin + us(random.up_to(40_000))
    };
    let burst = 1 + random.up_to(3);
    let contract = Contract::new(max, 1, interval, burst, deadline.max(limits::MIN_DEADLINE * 5)).ok()?;
    let catches_up = *send_early && random.one_in(2);
    let contract = contract.with_catch_up(if catches_up { interval.mul_ratio(5, 2) } else { Duration::ZERO }).ok()?;
    let fifth = contract.deadline().mul_ratio(1, 5);
    let stages = SendingStages { processor: fifth, link: fifth };
    let plan = ChannelPlan {
        lease: us(400_000),
        ..ChannelPlan::new(&format!("c{number}"), Service::RealTime(contract), stages, fifth)
    };
    // What comes late must not be refused for want of room.
    let messages = plan.receive_messages + MESSAGES as u32;
    Some((contract, ChannelPlan { receive_messages: messages, ..plan }))
}

/// The faults: none in two worlds of five.
fn faults(random: &mut Random, world: &mut World, drawn: &DrawnHosts, hosts: [HostId; 2]) {
    let span = drawn.end.since(drawn.start).as_nanos();
    for _ in 0..random.pick(&[0, 0, 1, 2, 3]) {
        let number = random.up_to(1) as usize;
        let from = drawn.start + Duration::from_nanos(random.up_to(span));
        let mut length = Duration::from_nanos(random.up_to(span / 2));
        let kind = match random.up_to(8) {
            0..=2 => FaultKind::ClockStep { by: random.pick(&JUMPS) },
            3 | 4 => {
                length = random.pick(&JUMPS);
                FaultKind::ClockStandstill
            }
            5 => FaultKind::ClockDrift { ppm: signed(random, drawn.drifts[number]) },
            6 => FaultKind::Delay { extra: us(random.up_to(12_000)) },
            7 => FaultKind::Reordering { most: us(random.up_to(5_000)) },
            _ if random.one_in(2) => FaultKind::Loss { ppm: random.pick(&[20_000, 200_000, 600_000]) },
            _ => FaultKind::Duplication { ppm: 200_000 },
        };
        world.add_fault(Fault { host: hosts[number], from, until: from + length, kind });
    }
}

/// The behaviour of a channel's application.
fn feed(random: &mut Random, world: &mut World, handle: ChannelHandle, contract: &Contract, drawn: &DrawnHosts) {
    let (start, until) = (drawn.start + us(random.up_to(20_000)), drawn.end);
    let source = match random.up_to(5) {
        0 => Source::full(handle, contract, start),
        1..=3 => Source::bursts(handle, contract, start),
        4 => Source::violating(handle, contract, start, 2),
        _ => Source::conforming(handle, contract, start),
    };
    world.add_source(Source { until, ..source });
}
