//! Small systems at the edge of admission, drawn by a seed.
//!
//! One to four channels of one to four packets, some of them alike, at most three packets between preemption points, costs
//! of some whole microseconds; with and without best effort (policed or not), interference, wake-ups, early service.

use laxity_core::admission::answer::Rule;
use laxity_core::contract::Contract;
use laxity_core::platform::{BestEffort, Interference, LinkModel, MachineModel, Platform, Starts, ToleranceClaim};
use laxity_core::probability::Probability;
use laxity_core::processor::Policy;
use laxity_core::units::{Duration, Rate};

use super::{Analysis, NumberSource, SearchCase, us};
use crate::content::HEADERS;
use crate::host_config::StepCosts;
use crate::tiny::{Role, SmallChannel, SmallSystem};

/// Frames are in before their logical arrival by more than there is between two looks at the inputs.
pub const AHEAD: Duration = us(400);

/// More frames than these systems receive at once.
pub const ALL_FRAMES: u32 = 16;

/// The machine whose run time it is, and the test of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemKind {
    /// The run time.
    pub machine: MachineModel,
    /// The test.
    pub rule: Rule,
}

impl SystemKind {
    /// Both tests for each machine.
    pub fn all() -> impl Iterator<Item = Self> {
        let machines = [MachineModel::Executive, MachineModel::PapersInline, MachineModel::PapersOffload];
        let with = |machine| [Rule::Split, Rule::Composite].map(|rule| Self { machine, rule });
        machines.into_iter().flat_map(with)
    }
}

/// One system, admitted or not; every other one has no slack at all.
pub fn case(draw: &mut impl NumberSource, kind: SystemKind) -> SearchCase {
    let mut system = tolerating(unbounded(draw, kind.machine));
    let most = draw(1) * 150;
    system.channels.iter_mut().for_each(|channel| channel.slack = us(draw(most)));
    // From the last to the first, as they give it back.
    system.channels.iter_mut().rev().for_each(|channel| channel.tighten = draw(7) > 0 && most > 0);
    SearchCase { test: Analysis::Admission(kind), system }
}

/// One system of the executive for another analysis, which takes more than its channels into account.
pub(super) fn on_executive(draw: &mut impl NumberSource, rule: Rule, test: Analysis) -> SearchCase {
    SearchCase { test, ..case(draw, SystemKind { machine: MachineModel::Executive, rule }) }
}

/// The system, some of whose channels tolerate misses: then a quarter of the interference may be what is counted on, if all of them do. Not drawn, so that each
/// seed stays the system that it was.
fn tolerating(mut system: SmallSystem) -> SmallSystem {
    let Platform { interference, handover, .. } = &system.platform;
    if interference.envelopes.is_empty() || !system.seed.is_multiple_of(3) {
        return system;
    }
    let claim = |quarters| ToleranceClaim {
        envelopes: interference.envelopes.iter().map(|&(span, budget)| (span, budget.mul_ratio(quarters, 4))).collect(),
        exceedances: vec![Probability::from_parts(1); interference.envelopes.len()],
        handover: *handover,
        late_handover: Probability::ZERO,
    };
    system.platform.claims = vec![claim(4), claim(1)];
    for (place, channel) in system.channels.iter_mut().enumerate() {
        if (system.seed >> (2 * place + 8)) & 3 > 0 {
            channel.contract = channel.contract.tolerate(Probability::HALF).expect("a fraction that can be");
        }
    }
    system
}

/// A system whose handlers run by level: two thirds of its channels have one of three.
pub fn levels_case(draw: &mut impl NumberSource) -> SearchCase {
    let mut system = unbounded(draw, MachineModel::Executive);
    system.policy = Policy::FixedPriority;
    for channel in &mut system.channels {
        let level = draw(2) as u8;
        // A channel that is received has the most urgent level, as on a live host.
        channel.priority = if channel.role == Role::Receives { 0 } else { level };
    }
    SearchCase { test: Analysis::Levels, system }
}

/// A packet that is made early leaves at once, or waits at the link for its time.
fn horizon(seed: u64) -> Duration {
    if seed.is_multiple_of(2) { Duration::MAX } else { Duration::ZERO }
}

/// A system whose channels have no stages yet.
pub fn unbounded(draw: &mut impl NumberSource, machine: MachineModel) -> SmallSystem {
    match draw(9) {
        0 => return with_fillers(draw, machine),
        1 => return with_brisk(draw, machine),
        _ => {}
    }
    let mut platform = platform(draw, machine);
    let pace = 1 + draw(3);
    let mut channels: Vec<SmallChannel> = Vec::new();
    for _ in 0..=draw(3) {
        let alike = channels.last().copied().filter(|_| draw(2) == 0);
        channels.push(alike.unwrap_or_else(|| channel(draw, &platform, pace)));
    }
    if machine.is_papers() && !in_time(&platform, &channels) {
        platform.demultiplex = Duration::ZERO;
    }
    let early = draw(3) == 0;
    let seed = draw(u64::MAX >> 1);
    SmallSystem {
        ahead: AHEAD,
        seed,
        send_early: early && draw(3) > 0,
        horizon: horizon(seed),
        receive_early: early && draw(1) > 0,
        step_costs: if draw(2) == 0 { StepCosts::From { least_permille: 300 } } else { StepCosts::Worst },
        ..SmallSystem::new(platform, channels)
    }
}

/// Early service, and channels whose deadlines are longer than the interval of another one, which may send several messages at
/// once: only then what is early can be in the way.
fn with_brisk(draw: &mut impl NumberSource, machine: MachineModel) -> SmallSystem {
    let mut platform = platform(draw, machine);
    platform.first_packet += us(draw(12));
    platform.packet_cost += us(draw(12));
    platform.demultiplex = Duration::ZERO;
    let of = |packets: u64, interval, burst| {
        let bytes = packets * u64::from(platform.packet);
        let contract = Contract::new(bytes, bytes, interval, burst, us(10)).expect("a contract that can be");
        SmallChannel::new(Role::Sends, contract)
    };
    let mut channels = vec![of(1 + draw(1), us(100 + 5 * draw(16)), 2 + draw(3))];
    for _ in 0..=draw(1) {
        channels.push(of(2 + draw(6), us(600 + 10 * draw(40)), 1));
    }
    let receive_early = draw(1) == 0;
    let seed = draw(u64::MAX >> 1);
    SmallSystem {
        ahead: AHEAD,
        seed,
        send_early: true,
        horizon: horizon(seed),
        receive_early,
        ..SmallSystem::new(platform, channels)
    }
}

/// A channel of several packets among many that declare a whole packet and may send a byte, on a host whose link asks for much
/// of the processor: what the smallest packet is matters here.
fn with_fillers(draw: &mut impl NumberSource, machine: MachineModel) -> SmallSystem {
    let mut platform = platform(draw, machine);
    // As many bytes as the headers have take a microsecond.
    platform.packet = HEADERS * (10 + draw(20)) as u32;
    platform.link.setup = Duration::ZERO;
    platform.link_cost = us(1 + draw(9));
    platform.demultiplex = Duration::ZERO;
    let best_effort = &mut platform.best_effort;
    (best_effort.packet_min, best_effort.packet_max) = (platform.packet, platform.packet);
    if draw(1) == 0 {
        best_effort.message_packets = 0;
    }
    let whole = |draw: &mut dyn FnMut(u64) -> u64, packets: u64, min: u64| {
        let interval = us(1_000 + 100 * draw(20));
        let contract = Contract::new(packets * u64::from(platform.packet), min, interval, 1, us(10));
        SmallChannel::new(Role::Sends, contract.expect("a contract that can be"))
    };
    let packets = 2 + draw(7);
    let mut channels = vec![whole(draw, packets, packets * u64::from(platform.packet))];
    let filler = whole(draw, 1, 1);
    channels.extend(vec![filler; 3 + draw(5) as usize]);
    SmallSystem { ahead: AHEAD, seed: draw(u64::MAX >> 1), ..SmallSystem::new(platform, channels) }
}

/// True if a link as slow as this one brings received messages before their logical arrival. (It has to be as slow only where
/// inputs interrupt.)
fn in_time(platform: &Platform, channels: &[SmallChannel]) -> bool {
    let occupancy = platform.link.occupancy(platform.packet);
    let of = |channel: &SmallChannel| occupancy * u64::from(channel.contract.max_message().div_ceil(platform.packet));
    let received = || channels.iter().filter(|channel| channel.role == Role::Receives);
    let share: u64 =
        received().map(|channel| of(channel).as_nanos() * 1000 / channel.contract.interval().as_nanos()).sum();
    received().map(of).sum::<Duration>() * 2 < AHEAD && share < 800
}

fn platform(draw: &mut impl NumberSource, machine: MachineModel) -> Platform {
    // Where not everything is there at once, each term matters more.
    let sparse = draw(1) == 0;
    let mut micros = |least, most| {
        let micros = least + draw(most - least);
        us(if sparse && draw(1) == 0 { least } else { micros })
    };
    let (switch, cache) = (micros(0, 4), micros(0, 1));
    let (first_packet, packet_cost) = (micros(1, 8), micros(1, 8));
    let (receive_first, receive_packet) = (micros(1, 8), micros(1, 8));
    let link_cost = micros(0, 3) * (1 + draw(3) / 3);
    let setup = if draw(3) > 0 { link_cost + us(draw(6)) } else { us(draw(3)) };
    let wake_up = us(draw(8) * draw(1) * (1 + draw(1) * draw(3)));
    let demultiplex = us(draw(3) / 2);
    // The headers count, and take a microsecond; so S takes 3 to 9, or up to 27: as long as a control frame.
    let packet = HEADERS * (2 + if draw(2) > 0 { draw(6) } else { draw(24) }) as u32;
    let packet_max = if draw(1) == 0 { packet } else { 64 + draw(u64::from(packet) - 64) as u32 };
    let packet_min = 1 + draw(u64::from(packet_max) - 1) as u32;
    let starts = (draw(2) == 0).then(|| Starts { burst: 1 + draw(2) as u32, spacing: us(5 + draw(55)) });
    // Without a draw of its own: what a seed stands for stays. The papers' machine knows no spacing.
    let is_spaced = machine == MachineModel::Executive && packet_max % 4 == 0;
    Platform {
        machine,
        packet,
        quantum: 1 + draw(2) as u32,
        switch,
        cache,
        first_packet,
        packet_cost,
        receive_first,
        receive_packet,
        demultiplex,
        receive_batch: [1, ALL_FRAMES][draw(1) as usize],
        link_cost,
        transmit_batch: if draw(1) == 0 { 1 } else { 1 + draw(2) as u32 },
        link: LinkModel {
            setup,
            rate: Rate::bytes_per_second(1_000_000 * u64::from(HEADERS)),
            overhead_bytes: HEADERS,
            floor_bytes: 0,
            spacing: us(if is_spaced { u64::from(5 + packet_min % 32) } else { 0 }),
        },
        wake_up,
        best_effort: BestEffort { message_packets: draw(3) as u32, packet_min, packet_max, starts },
        interference: interference(draw),
        ..Platform::channels_table_2b()
    }
}

fn interference(draw: &mut impl NumberSource) -> Interference {
    let mut found = Interference::default();
    if draw(1) == 0 {
        return found;
    }
    if draw(2) == 0 {
        found.burst = us(1 + draw(30));
    }
    if draw(1) == 0 {
        found.periodic.push((us(50 + draw(200)), us(1 + draw(8))));
    }
    if draw(2) == 0 {
        found.envelopes.push((us(80 + draw(200)), us(1 + draw(8))));
    }
    found
}

fn channel(draw: &mut impl NumberSource, platform: &Platform, pace: u64) -> SmallChannel {
    let packets = 1 + draw(3);
    let max = (packets - 1) * u64::from(platform.packet) + 1 + draw(u64::from(platform.packet) - 1);
    let min = if draw(1) == 0 { max } else { 1 + draw(max - 1) };
    let interval = us((100 + 10 * draw(20)) * pace);
    let contract = Contract::new(max, min, interval, 1 + draw(1), us(10)).expect("a contract that can be");
    let role = if draw(3) == 0 { Role::Receives } else { Role::Sends };
    SmallChannel::new(role, contract)
}
