//! Small systems without slack, drawn by a seed, and what comes over them.
//!
//! One to four channels of one to four packets, some of them alike, at most three packets between preemption points, costs
//! of some whole microseconds; with and without best effort (policed or not), interference, wake-ups, early service.

use laxity_core::admission::answer::Rule;
use laxity_core::contract::{Contract, SendingStages};
use laxity_core::platform::{BestEffort, Interference, LinkModel, MachineModel, Platform, Starts};
use laxity_core::units::{Duration, Rate};
use laxity_sim::StepCosts;
use laxity_sim::tiny::{Channel, Release, Role, System};

use super::promise::{self, Promise};
use super::us;

/// Frames are in before their logical arrival by more than there is between two looks at the inputs.
pub const AHEAD: Duration = us(400);

/// More frames than these systems receive at once.
pub const ALL_FRAMES: u32 = 16;

/// Whose run time, and which test admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub machine: MachineModel,
    pub rule: Rule,
}

impl Kind {
    pub fn all() -> impl Iterator<Item = Self> {
        let machines = [MachineModel::Executive, MachineModel::PapersInline, MachineModel::PapersOffload];
        let with = |machine| [Rule::Split, Rule::Composite].map(|rule| Self { machine, rule });
        machines.into_iter().flat_map(with)
    }
}

/// A system with a promise for each of its channels.
pub struct Bounded {
    pub system: System,
    pub promises: Vec<Promise>,
}

/// Numbers from 0 to what is asked for.
pub trait Draw: FnMut(u64) -> u64 {}
impl<F: FnMut(u64) -> u64> Draw for F {}

/// Draws systems until one is admitted; `None` after a hundred.
pub fn system(draw: &mut impl Draw, kind: Kind) -> Option<Bounded> {
    (0..100).find_map(|_| {
        let mut system = unbounded(draw, kind.machine);
        let settings = promise::settings(&system, kind.rule);
        let platform = system.platform.clone();
        let most = draw(1) * 150;
        let slack: Vec<_> = system.channels.iter().map(|_| us(draw(most))).collect();
        let tighten = system.channels.iter().map(|_| draw(7) > 0).collect::<Vec<_>>();
        let (mut slack, mut tighten) = (slack.into_iter(), tighten.into_iter());
        let (slack, tighten) = (|| slack.next().unwrap(), || most > 0 && tighten.next().unwrap());
        let promises = promise::promises(&platform, &mut system.channels, settings, slack, tighten)?;
        Some(Bounded { system, promises })
    })
}

/// A system whose channels have no stages yet.
pub fn unbounded(draw: &mut impl Draw, machine: MachineModel) -> System {
    let mut platform = platform(draw, machine);
    let pace = 1 + draw(3);
    let mut channels: Vec<Channel> = Vec::new();
    for _ in 0..=draw(3) {
        let alike = channels.last().copied().filter(|_| draw(2) == 0);
        channels.push(alike.unwrap_or_else(|| channel(draw, &platform, pace)));
    }
    if machine.is_papers() && !in_time(&platform, &channels) {
        platform.demultiplex = Duration::ZERO;
    }
    let early = draw(3) == 0;
    System {
        ahead: AHEAD,
        seed: draw(u64::MAX >> 1),
        send_early: early && draw(3) > 0,
        receive_early: early && draw(1) > 0,
        step_costs: if draw(2) == 0 { StepCosts::From { least_permille: 300 } } else { StepCosts::Worst },
        ..System::new(platform, channels)
    }
}

/// Whether a link as slow as this one brings what is received before its logical arrival. (It has to be as slow only where
/// inputs interrupt.)
fn in_time(platform: &Platform, channels: &[Channel]) -> bool {
    let occupancy = platform.link.occupancy(platform.packet);
    let of = |channel: &Channel| occupancy * u64::from(channel.contract.max_message().div_ceil(platform.packet));
    let received = || channels.iter().filter(|channel| channel.role == Role::Receives);
    let share: u64 =
        received().map(|channel| of(channel).as_nanos() * 1000 / channel.contract.interval().as_nanos()).sum();
    received().map(of).sum::<Duration>() * 2 < AHEAD && share < 800
}

fn platform(draw: &mut impl Draw, machine: MachineModel) -> Platform {
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
    // 48 bytes of headers count, and take a microsecond; so S takes 3 to 9, or up to 27: as long as a control frame.
    let packet = 48 * (2 + if draw(2) > 0 { draw(6) } else { draw(24) }) as u32;
    let packet_max = if draw(1) == 0 { packet } else { 64 + draw(u64::from(packet) - 64) as u32 };
    let packet_min = 1 + draw(u64::from(packet_max) - 1) as u32;
    let starts = (draw(2) == 0).then(|| Starts { burst: 1 + draw(2) as u32, spacing: us(5 + draw(55)) });
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
        link: LinkModel { setup, rate: Rate::bytes_per_second(48_000_000), overhead_bytes: 48, floor_bytes: 0 },
        wake_up,
        best_effort: BestEffort { message_packets: draw(3) as u32, packet_min, packet_max, starts },
        interference: interference(draw),
        ..Platform::channels_table_2b()
    }
}

fn interference(draw: &mut impl Draw) -> Interference {
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

fn channel(draw: &mut impl Draw, platform: &Platform, pace: u64) -> Channel {
    let packets = 1 + draw(3);
    let max = (packets - 1) * u64::from(platform.packet) + 1 + draw(u64::from(platform.packet) - 1);
    let min = if draw(1) == 0 { max } else { 1 + draw(max - 1) };
    let interval = us((100 + 10 * draw(20)) * pace);
    let contract = Contract::new(max, min, interval, 1 + draw(1), us(10)).expect("a contract that can be");
    let role = if draw(3) == 0 { Role::Receives } else { Role::Sends };
    Channel { role, contract, stages: SendingStages::default() }
}

/// What comes over a system in an episode.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    pub releases: Vec<Release>,
    /// What the platform takes: from when on, how long.
    pub gaps: Vec<(Duration, Duration)>,
}

/// Best effort that keeps processor and link busy from the beginning of the episode for about `span`.
pub fn saturating(platform: &Platform, span: Duration, full: bool) -> Vec<Release> {
    let packets = platform.best_effort.message_packets;
    if packets == 0 {
        return Vec::new();
    }
    let (least, most) = (platform.best_effort.packet_min, platform.best_effort.packet_max);
    let bytes = (packets - 1) * most + if full { most } else { least };
    let cost = platform.first_packet + platform.packet_cost * u64::from(packets - 1);
    let count = (span.div_ceil(cost.max(platform.link.occupancy(least))) + 1).min(40);
    vec![Release::best_effort(Duration::ZERO, bytes); count as usize]
}

/// As much as the platform may take until `end`, mostly as often as it may; a gap beside another one is left out.
fn gaps(draw: &mut impl Draw, interference: &Interference, end: Duration) -> Vec<(Duration, Duration)> {
    let mut gaps: Vec<(Duration, Duration)> = Vec::new();
    let mut add = |at: Duration, length: Duration| {
        let free = gaps.iter().all(|&(other, taken)| at + length < other || other + taken < at);
        if free && !length.is_zero() {
            gaps.push((at, length));
        }
    };
    let anywhere = |draw: &mut dyn FnMut(u64) -> u64, span: Duration| Duration::from_nanos(draw(span.as_nanos()));
    add(anywhere(draw, end), interference.burst);
    for &(period, cost) in &interference.periodic {
        let mut at = anywhere(draw, period);
        while at < end {
            add(at, cost);
            at += period + if draw(3) == 0 { anywhere(draw, period) } else { Duration::ZERO };
        }
    }
    // The least of the envelopes counts; there is one at most.
    for &(window, budget) in &interference.envelopes {
        let mut begin = Duration::ZERO;
        while begin < end {
            // At the end of one window and at the beginning of the next, or anywhere.
            let within = match draw(2) {
                0 => Duration::ZERO,
                1 => window.saturating_sub(budget),
                _ => anywhere(draw, window.saturating_sub(budget)),
            };
            add(begin + within, budget);
            begin += window;
        }
    }
    gaps.sort_unstable();
    gaps
}

/// Bursts, late and small messages, best effort now and then; or everybody at once and as much as may be.
pub fn random_pattern(draw: &mut impl Draw, system: &System) -> Pattern {
    let mut releases = match draw(2) {
        0 => saturating(&system.platform, us(300), true),
        1 => saturating(&system.platform, us(300), false),
        _ => Vec::new(),
    };
    let together = draw(2) == 0;
    let mut phase = Duration::from_nanos(draw(120_000));
    let full = draw(1) == 0;
    for (number, channel) in system.channels.iter().enumerate() {
        let contract = &channel.contract;
        if !together {
            phase = Duration::from_nanos(draw(120_000));
        }
        let (mut at, mut ahead) = (phase + Duration::from_nanos(if together { draw(1) * draw(20_000) } else { 0 }), 0);
        for _ in 0..1 + draw(3) {
            let least = u64::from(contract.min_message());
            let bytes = match draw(2) {
                0 if !full => least + draw(u64::from(contract.max_message()) - least),
                _ => u64::from(contract.max_message()),
            };
            releases.push(Release::of(number, at, bytes as u32));
            // Within the burst, or when the next one may come, or later.
            if ahead + 1 < contract.burst() && draw(1) == 0 {
                ahead += 1;
            } else {
                at += contract.interval() * u64::from(ahead + 1) + Duration::from_nanos(draw(3) / 3 * draw(60_000));
                ahead = 0;
            }
        }
    }
    let end = releases.iter().map(|release| release.at).max().unwrap_or(Duration::ZERO) + us(200);
    let gaps = if draw(3) > 0 { gaps(draw, &system.platform.interference, end) } else { Vec::new() };
    Pattern { releases, gaps }
}

/// The same with something moved: a channel, best effort, all gaps.
pub fn moved(draw: &mut impl Draw, system: &System, pattern: &Pattern) -> Pattern {
    let mut pattern = pattern.clone();
    let span = [500, 3_000, 30_000][draw(2) as usize];
    let (earlier, by) = (draw(1) == 0, Duration::from_nanos(draw(span)));
    let shift = |at: &mut Duration, least: Duration| *at = if earlier { *at - by.min(least) } else { *at + by };
    let which = draw(system.channels.len() as u64 + 1) as usize;
    if which > system.channels.len() {
        let least = pattern.gaps.first().map_or(Duration::ZERO, |gap| gap.0);
        pattern.gaps.iter_mut().for_each(|(at, _)| shift(at, least));
    } else {
        let of = |release: &Release| match release.who {
            laxity_sim::tiny::Who::Channel(number) => number == which,
            laxity_sim::tiny::Who::BestEffort => which == system.channels.len(),
        };
        let least = pattern.releases.iter().filter(|release| of(release)).map(|release| release.at).min();
        for release in pattern.releases.iter_mut().filter(|release| of(release)) {
            shift(&mut release.at, least.unwrap_or(Duration::ZERO));
        }
    }
    pattern
}
