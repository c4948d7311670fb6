//! Draws small worlds by a seed: hosts, what admission grants them, who submits what, what goes wrong.
//!
//! Every channel is admitted at both ends by the real [`Admission`], with no or little slack, so that what a world shows is held
//! against what an analysis promised.

use std::net::SocketAddr;

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::incoming::{Flow, FlowSource, IncomingTraffic, usual_batch};
use laxity_core::admission::{Admission, ReservationId, Settings};
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::ClockConfig;
use laxity_core::limits;
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform, Starts};
use laxity_core::units::{Duration, Instant, Rate};

use crate::search::promise::least_budget;
use crate::{
    ChannelHandle, ChannelPlan, Clock, Fault, FaultKind, Gap, GrantedBounds, HostConfig, HostId, Random, StepCosts,
    WakeUp, World, port_like, us,
};

/// Microseconds from `least` to `most`.
fn micros(random: &mut Random, least: u64, most: u64) -> Duration {
    us(least + random.up_to(most - least))
}

/// A host of a world that is drawn.
pub(super) struct DrawnHost {
    pub(super) admission: Admission,
    /// The flows through the last switch port, if there is one.
    incoming: Option<IncomingTraffic>,
    pub(super) config: HostConfig,
}

/// A channel that both ends granted.
pub(super) struct DrawnChannel {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) plan: ChannelPlan,
    pub(super) promise: GrantedBounds,
    /// The reservation at the host that receives.
    receiver: ReservationId,
}

/// The longest set-up; faults and messages come after it.
pub(super) const SET_UP: Duration = Duration::from_millis(12);
/// Frames that hosts have for channels.
const FRAMES: usize = 1024;

/// Two to four hosts. `same_clock`: whether they share one.
pub(super) fn hosts(random: &mut Random, same_clock: bool) -> Vec<DrawnHost> {
    let count = 2 + random.up_to(2).saturating_sub(random.up_to(1));
    let packet = random.pick(&[200, 480, 1000, 1400]);
    let rule = if random.one_in(4) { Rule::Composite } else { Rule::Split };
    let slow = random.one_in(3);
    // One network: a frame takes as much of a switch port as of its sender's link.
    let framing = (60 + random.up_to(80) as u32, random.pick(&[0, 64, 100, 200]));
    let platforms: Vec<_> = (0..count).map(|_| platform(random, packet, slow, framing)).collect();
    let host = |(number, mut platform): (u64, Platform)| {
        let is_behind_port = random.one_in(2);
        // What comes in is admitted there, so it need not find all in one look.
        if is_behind_port && random.one_in(2) {
            platform.receive_batch = usual_batch(&platform);
        }
        let settings = Settings { rule, send_early: random.one_in(4), receive_early: random.one_in(3) };
        let admission = Admission::with_settings(platform.clone(), settings).expect("a platform that can be");
        let address = SocketAddr::from(([10, 0, 0, number as u8 + 1], 7000));
        let base = HostConfig::new(platform, address);
        let mut config = HostConfig {
            clock: if same_clock { 7 } else { 10 + number },
            reading: if same_clock { Clock::default() } else { Clock::ahead(us(random.up_to(5_000_000))) },
            send_early: settings.send_early,
            receive_early: settings.receive_early,
            look_ahead: admission.look_ahead(),
            channels: 24,
            frames: FRAMES,
            receive_ring: 512,
            // Worlds are short, and clocks drift by up to a twentieth in them.
            peer_clocks: ClockConfig { period: us(2_000), drift_ppm: 100_000, ..ClockConfig::default() },
            wake_up: if random.one_in(2) { WakeUp::Uniform } else { WakeUp::Worst },
            step_costs: if random.one_in(3) { StepCosts::From { least_permille: 300 } } else { StepCosts::Worst },
            ..base
        };
        (config.wire.queue_packets, config.wire.capacity) = (256, 512);
        let incoming = is_behind_port.then(|| IncomingTraffic::new(&admission));
        config.port = incoming.is_some().then(|| port_like(&config.platform, 256));
        DrawnHost { admission, incoming, config }
    };
    (0..).zip(with_looks_for_all(&platforms)).map(host).collect()
}

fn platform(random: &mut Random, packet: u32, slow: bool, framing: (u32, u32)) -> Platform {
    let scale = if slow { 4 } else { 1 };
    let packet_max = if random.one_in(2) { packet } else { 100 + random.up_to(u64::from(packet) - 100) as u32 };
    Platform {
        packet,
        quantum: 1 + random.up_to(7) as u32,
        switch: micros(random, 0, 2) * scale,
        cache: micros(random, 0, 3) * scale,
        first_packet: micros(random, 2, 12) * scale,
        packet_cost: micros(random, 1, 8) * scale,
        receive_first: micros(random, 2, 12) * scale,
        receive_packet: micros(random, 1, 8) * scale,
        demultiplex: Duration::from_nanos(200 + random.up_to(800)),
        receive_batch: 1,
        link_cost: micros(random, 1, 6),
        transmit_batch: if random.one_in(3) { 1 + random.up_to(3) as u32 } else { 1 },
        link: LinkModel {
            setup: micros(random, 0, 3),
            rate: Rate::bytes_per_second(if slow { 6_000_000 } else { 12_500_000 } * (1 + random.up_to(2))),
            overhead_bytes: framing.0,
            floor_bytes: framing.1,
            spacing: if random.one_in(3) { micros(random, 20, 200) } else { Duration::ZERO },
        },
        wake_up: micros(random, 0, 60),
        propagation: micros(random, 0, 120),
        best_effort: BestEffort {
            message_packets: 1 + random.up_to(5) as u32,
            packet_min: 1 + random.up_to(99) as u32,
            packet_max,
            starts: random.one_in(4).then(|| Starts { burst: 2 + random.up_to(4) as u32, spacing: us(150) }),
        },
        interference: interference(random),
        ..Platform::channels_table_2b()
    }
}

fn interference(random: &mut Random) -> Interference {
    let mut found = Interference::default();
    if random.one_in(3) {
        found.burst = micros(random, 1, 80);
    }
    if random.one_in(3) {
        found.periodic.push((micros(random, 2_000, 9_000), micros(random, 5, 60)));
    }
    found
}

/// The platforms with looks at their inputs that take all that the links of the others can bring between two of them: what the
/// analysis of the input delay assumes.
fn with_looks_for_all(platforms: &[Platform]) -> Vec<Platform> {
    let with = |(number, platform): (usize, &Platform)| {
        let mut platform = platform.clone();
        let others = || platforms.iter().enumerate().filter(|&(other, _)| other != number).map(|(_, other)| other.link);
        loop {
            let delay = Admission::new(platform.clone()).expect("a platform that can be").input_delay();
            let frames: u64 = others().map(|link| delay.div_ceil(link.unspaced().occupancy(1)) + 2).sum();
            if u64::from(platform.receive_batch) >= frames || platform.receive_batch >= MOST_FRAMES {
                return platform;
            }
            platform.receive_batch = (frames + frames / 4).min(MOST_FRAMES.into()) as u32;
        }
    };
    platforms.iter().enumerate().map(with).collect()
}

/// Frames that a look takes at most. A host that would need more gets no channels: its input delay is longer than any deadline.
const MOST_FRAMES: u32 = 512;

/// The gaps in which the platform takes the processor away within its calibration.
pub(super) fn gaps(random: &mut Random, interference: &Interference, until: Instant) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for &(period, cost) in &interference.periodic {
        let mut start = Instant::ZERO + Duration::from_nanos(random.up_to(period.as_nanos()));
        while start < until {
            gaps.push(Gap { start, length: cost, excess: cost });
            start += period + Duration::from_nanos(random.up_to(period.as_nanos() / 4));
        }
    }
    if !interference.burst.is_zero() {
        // Once in any window, so once.
        let start = Instant::ZERO + Duration::from_nanos(random.up_to(until.as_nanos()));
        gaps.push(Gap { start, length: interference.burst, excess: interference.burst });
    }
    gaps.sort_by_key(|gap| gap.start);
    gaps
}

/// Asks both ends for a channel, each with the least stages and now and then a little more.
pub(super) fn channel(random: &mut Random, hosts: &mut [DrawnHost], number: usize) -> Option<DrawnChannel> {
    let (from, to) = ends(random, hosts);
    let packet = hosts[from].config.platform.packet;
    let most = u64::from(packet) * (1 + random.up_to(7));
    let max = if random.one_in(2) { most } else { 1 + random.up_to(most - 1) };
    let min = random.pick(&[1, max, max.div_ceil(2)]);
    let interval = micros(random, 1_000, 15_000);
    let burst = 1 + random.up_to(3);
    // The longest that its deadline can become: what its queues could hold then is what the analysis counts on.
    let longest = interval * 3 + us(10_000);
    let asked = Contract::new(max, min, interval, burst, longest).ok()?;
    // Not drawn, so that each seed stays the world that it was.
    let catches_up = hosts[from].config.send_early && (interval.as_nanos() / 1_000).is_multiple_of(2);
    let asked = asked.with_catch_up(if catches_up { interval.mul_ratio(5, 2) } else { Duration::ZERO }).ok()?;
    let flow = Flow::real_time(origin(hosts, from), &asked, packet, longest);
    let room = hosts[to].incoming.as_ref().map(|incoming| incoming.room(&flow, longest.mul_ratio(1, 4)));
    let waits = room.transpose().ok()?.map_or(Duration::ZERO, |room| room.allowance);
    let (receiver, receives) = least(&mut hosts[to].admission, &asked, Role::Receives)?;
    let Some((sender, sends)) = least(&mut hosts[from].admission, &asked, Role::Sends) else {
        hosts[to].admission.release(receiver);
        return None;
    };
    let more = |random: &mut Random| if random.one_in(3) { us(random.up_to(400)) } else { Duration::ZERO };
    let handover = hosts[from].config.platform.handover;
    let sends = hosts[from].admission.relax(sender, handover + sends.total() + more(random)).unwrap_or(sends);
    let receives = hosts[to].admission.relax(receiver, receives.total() + more(random)).unwrap_or(receives);
    let input_delay = hosts[to].admission.input_delay() + waits;
    let outside = hosts[from].config.platform.propagation + input_delay;
    let upstream = handover + sends.total() + outside;
    let stage = receives.processor;
    let contract = asked.with_deadline((upstream + stage).max(limits::MIN_DEADLINE)).ok();
    let Some(contract) = contract.filter(|contract| contract.deadline() <= longest) else {
        hosts[from].admission.release(sender);
        hosts[to].admission.release(receiver);
        return None;
    };
    let upstream = contract.deadline() - stage;
    let (platform, early) = (&hosts[from].config.platform, hosts[from].config.send_early);
    let ahead = if early { contract.most_ahead() } else { Duration::ZERO };
    let promise = GrantedBounds::of(&contract, [platform; 2], upstream + ahead, stage);
    let transit = hosts[from].config.look_ahead + platform.link.occupancy(packet) + outside;
    let plan = ChannelPlan {
        overload: random.pick(&[Overload::Drop, Overload::Drop, Overload::Block]),
        upstream,
        transit,
        input_delay,
        lease: us(400_000),
        // More than was computed, so that it shows if that is not enough.
        send_messages: promise.queues[0] + 2,
        receive_messages: promise.queues[2] + 2,
        ..ChannelPlan::new(&format!("c{number}"), Service::RealTime(contract), sends.with_handover(handover), stage)
    };
    if let Some(incoming) = &mut hosts[to].incoming {
        incoming.insert(flow, waits);
    }
    Some(DrawnChannel { from, to, plan, promise, receiver })
}

/// All channels are admitted: sets the bound of each one.
pub(super) fn settle(hosts: &[DrawnHost], granted: &mut [DrawnChannel]) {
    let bounds: Vec<_> = hosts.iter().map(|host| host.admission.bounds()).collect();
    for channel in granted {
        let found = bounds[channel.to].iter().find(|(id, _)| *id == channel.receiver);
        let worst = found.map_or(channel.plan.receive, |(_, bound)| bound.worst);
        channel.plan.spare = channel.plan.receive.saturating_sub(worst);
        channel.promise.bound = channel.promise.contract.deadline() - channel.plan.spare;
    }
}

fn origin(hosts: &[DrawnHost], number: usize) -> FlowSource {
    let HostConfig { platform, look_ahead, .. } = &hosts[number].config;
    let (host, LinkModel { rate, spacing, .. }) = (number as u64, platform.link);
    FlowSource { host, rate, ahead: *look_ahead, spacing }
}

/// The least time between two starts of the best-effort packets that `to` receives.
pub(super) fn spacing(hosts: &[DrawnHost], to: usize) -> Duration {
    hosts[to].incoming.as_ref().and_then(IncomingTraffic::spacing).unwrap_or(Duration::ZERO)
}

fn least(admission: &mut Admission, contract: &Contract, role: Role) -> Option<(ReservationId, SendingStages)> {
    least_budget(20, contract.deadline(), |budget| admission.reserve(contract, role, budget))
}

/// Two different hosts.
fn ends(random: &mut Random, hosts: &[DrawnHost]) -> (usize, usize) {
    let from = random.up_to(hosts.len() as u64 - 1) as usize;
    (from, (from + 1 + random.up_to(hosts.len() as u64 - 2) as usize) % hosts.len())
}

/// A best-effort channel, if its sender has any and its receiver lets it in.
pub(super) fn best_effort(
    random: &mut Random,
    hosts: &mut [DrawnHost],
    number: usize,
) -> Option<(usize, usize, ChannelPlan, u32)> {
    let (from, to) = ends(random, hosts);
    let [sender, receiver] = [from, to].map(|host| hosts[host].config.platform.best_effort);
    let bytes = sender.message_packets.min(receiver.message_packets) * sender.packet_max.min(receiver.packet_max);
    let service = Service::best_effort(bytes.into(), 4).ok()?;
    let flow = Flow::best_effort(origin(hosts, from), hosts[from].config.platform.packet, None);
    if let Some(incoming) = &mut hosts[to].incoming {
        let room = incoming.room(&flow, Duration::MAX).ok()?;
        incoming.insert(flow, room.allowance);
    }
    let plan = ChannelPlan::new(&format!("b{number}"), service, SendingStages::default(), Duration::ZERO);
    Some((from, to, ChannelPlan { lease: us(400_000), ..plan }, bytes))
}

/// Draws and adds the faults: up to three, each at a host, in a window; in two worlds of five there is none.
pub(super) fn add_faults(
    random: &mut Random,
    world: &mut World,
    (hosts, channels, granted): (&[HostId], &[ChannelHandle], &[DrawnChannel]),
    same_clock: bool,
    (start, end): (Instant, Instant),
) {
    let few_or_many = |random: &mut Random| random.pick(&[20_000, 200_000, 600_000]);
    let up_to = |random: &mut Random, most: u64| micros(random, 1, 1 + most);
    let count = random.pick(&[0, 0, 1, 2, 3]);
    let mut taken = vec![false; hosts.len()];
    for _ in 0..count {
        let number = random.up_to(hosts.len() as u64 - 1) as usize;
        let from = start + Duration::from_nanos(random.up_to(end.since(start).as_nanos()));
        let longest = random.pick(&[1_000, 8_000, 25_000]);
        let length = Duration::from_micros(200 + random.up_to(longest));
        let kind = match random.up_to(12) {
            0 => FaultKind::Loss { ppm: few_or_many(random) },
            1 => FaultKind::Reordering { most: up_to(random, 3_000) },
            2 => FaultKind::Duplication { ppm: few_or_many(random) },
            3 => FaultKind::Corruption { ppm: few_or_many(random) },
            4 => FaultKind::Delay { extra: up_to(random, 12_000) },
            5 => FaultKind::LinkDown,
            6 => FaultKind::Crash { reopen: random.one_in(2) },
            // Not drawn, so that each seed stays as near as can be to the world that it was.
            7 if !same_clock => match up_to(random, 30_000) {
                by if (by.as_nanos() / 1_000).is_multiple_of(2) => FaultKind::ClockStep { by },
                _ => FaultKind::ClockStandstill,
            },
            8 if !same_clock => FaultKind::ClockDrift { ppm: random.pick(&[-50_000, -300, 300, 50_000]) },
            7..=9 => FaultKind::Interference,
            10 => {
                let peer = (number + 1 + random.up_to(hosts.len() as u64 - 2) as usize) % hosts.len();
                FaultKind::FloodBack { peer: hosts[peer], spacing: up_to(random, 40) }
            }
            11 => {
                let received = channels.iter().zip(granted).filter(|(_, channel)| channel.to == number);
                let received: Vec<_> = received.map(|(&handle, _)| handle).collect();
                if received.is_empty() {
                    continue;
                }
                FaultKind::SlowReceiver { channel: random.pick(&received), each: up_to(random, 40_000) }
            }
            _ => FaultKind::SmallRing { places: random.up_to(4) as usize },
        };
        // A host without a processor twice at a time, or that crashes while it is down: once is enough.
        let alone = matches!(kind, FaultKind::Interference | FaultKind::Crash { .. });
        if alone && core::mem::replace(&mut taken[number], true) {
            continue;
        }
        world.add_fault(Fault { host: hosts[number], from, until: from + length, kind });
    }
}
