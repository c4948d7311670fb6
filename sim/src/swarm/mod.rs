//! Many short worlds, each drawn by its seed: what holds for all of them.
//!
//! A world has two to four hosts whose clocks may differ, channels that admission granted at both ends with little slack,
//! applications that keep their contracts to the edge, or break them, and up to three faults. Everything in it follows from the
//! seed alone. So a seed that fails fails again, by itself ([`world`]), and a run over many seeds ([`run`]) gives the same
//! [`Totals`] on any number of threads.
//!
//! It leaves out the papers' machine, relays and long runs. Worlds of two clocks, in which it is only asked what each knows of the
//! other's, are in [`clocks`].

pub mod clocks;
mod draw;
mod faults;

use std::panic::{AssertUnwindSafe, catch_unwind};

use laxity_core::contract::Contract;
use laxity_core::figures::Misses;
use laxity_core::units::{Duration, Instant};

use crate::parallel::for_each_in_order;
use crate::{ChannelHandle, Digest, FaultKind, HostConfig, Plan, Random, Sizes, Source, Varied, World};
use draw::{Granted, SET_UP};

/// What became of messages, and what went wrong on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hosts.
    pub hosts: u64,
    /// Real-time channels that were admitted and opened.
    pub channels: u64,
    /// Channels that admission refused.
    pub refused: u64,
    /// Messages that were accepted, best effort included.
    pub messages: u64,
    /// Delivered, late ones included.
    pub delivered: u64,
    /// Of these, after the deadline.
    pub late: u64,
    /// Never complete.
    pub lost: u64,
    /// Messages that were refused because they broke a contract or found a queue full.
    pub violations: u64,
    /// Misses by cause, of channels that are promised to have none.
    pub misses: Misses,
    /// Complete after the bound without a cause outside.
    pub over_bound: u64,
    /// Delivered between two clocks that do not say whether in time.
    pub undecided: u64,
    /// Those of worlds of two clocks of which the clocks have to say it: they were far from their deadlines, and nothing went wrong.
    pub decidable: u64,
    /// Faults that were injected, by [`FaultKind::NAMES`].
    pub faults: [u64; FaultKind::NAMES.len()],
    /// Virtual time.
    pub span: Duration,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        let Self { hosts, channels, refused, messages, delivered, late, lost, violations, misses, .. } = other;
        for (sum, more) in [
            (&mut self.hosts, hosts),
            (&mut self.channels, channels),
            (&mut self.refused, refused),
            (&mut self.messages, messages),
            (&mut self.delivered, delivered),
            (&mut self.late, late),
            (&mut self.lost, lost),
            (&mut self.violations, violations),
            (&mut self.over_bound, &other.over_bound),
            (&mut self.undecided, &other.undecided),
            (&mut self.decidable, &other.decidable),
            (&mut self.misses.sender, &misses.sender),
            (&mut self.misses.receiver, &misses.receiver),
            (&mut self.misses.network, &misses.network),
            (&mut self.misses.platform, &misses.platform),
            (&mut self.misses.laxity, &misses.laxity),
            (&mut self.misses.unexplained, &misses.unexplained),
        ] {
            *sum += more;
        }
        self.faults.iter_mut().zip(&other.faults).for_each(|(sum, more)| *sum += more);
        self.span += other.span;
    }
}

/// What one world showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What was counted.
    pub counts: Counts,
    /// What the checkers found, as text, in the order of time; a panic, too.
    pub findings: Vec<String>,
    /// If there are findings: the hosts, the channels and the faults.
    pub setting: Vec<String>,
    /// All that was seen.
    pub digest: Digest,
}

/// What many worlds showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Worlds.
    pub worlds: u64,
    /// What was counted.
    pub counts: Counts,
    /// The worlds with findings; at most [`Totals::MOST`] are kept.
    pub failures: Vec<Outcome>,
    /// Worlds with findings.
    pub failed: u64,
    /// Of all digests, in the order of seeds.
    pub digest: Digest,
}

impl Totals {
    /// Worlds that are kept.
    pub const MOST: usize = 100;

    fn add(&mut self, outcome: Outcome) {
        self.worlds += 1;
        self.counts.add(&outcome.counts);
        self.digest.take(outcome.digest.0);
        if !outcome.findings.is_empty() {
            self.failed += 1;
            if self.failures.len() < Self::MOST {
                self.failures.push(outcome);
            }
        }
    }
}

/// Runs the world with this seed.
pub fn world(seed: u64) -> Outcome {
    caught(seed, one)
}

/// A world, or the panic that it ended with.
fn caught(seed: u64, one: impl FnOnce(u64) -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| one(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let findings = vec![format!("panic: {}", text.unwrap_or_default())];
        Outcome { seed, counts: Counts::default(), findings, setting: Vec::new(), digest: Digest::default() }
    })
}

/// Runs `count` worlds from `first_seed` on, on so many threads. `progress` is told how many are done.
pub fn run(first_seed: u64, count: u64, threads: usize, progress: impl FnMut(u64)) -> Totals {
    run_of(world, first_seed, count, threads, progress)
}

/// As [`run`], of these worlds.
pub fn run_of(
    world: impl Fn(u64) -> Outcome + Sync,
    first_seed: u64,
    count: u64,
    threads: usize,
    mut progress: impl FnMut(u64),
) -> Totals {
    let mut totals = Totals::default();
    let world = |number| world(first_seed.wrapping_add(number));
    for_each_in_order(
        threads,
        count,
        || true,
        world,
        |outcome| {
            totals.add(outcome);
            progress(totals.worlds);
        },
    );
    totals
}

/// Messages that a world may be expected to carry.
const MESSAGES: u64 = 220;

fn one(seed: u64) -> Outcome {
    let mut random = Random(seed);
    // Seeds in a row must not give worlds in a row.
    random = Random(random.next());
    let same_clock = !random.one_in(3);
    let mut hosts = draw::hosts(&mut random, same_clock);
    // By itself: seeds keep the worlds that they have had.
    let mut placement = Random(!seed);
    hosts.iter_mut().for_each(|host| host.config.inline = placement.one_in(3));
    let mut counts = Counts { hosts: hosts.len() as u64, ..Counts::default() };
    let mut granted = Vec::new();
    for number in 0..2 + random.up_to(4) {
        match draw::channel(&mut random, &mut hosts, number as usize) {
            Some(channel) => granted.push(channel),
            None => counts.refused += 1,
        }
    }
    draw::settle(&hosts, &mut granted);
    let span = span(&mut random, &granted);
    let (start, end) = (Instant::ZERO + SET_UP, Instant::ZERO + SET_UP + span);

    let mut world = World::new(random.next());
    world.collect_findings();
    let mut ids = Vec::new();
    for host in &hosts {
        let mut config = host.config.clone();
        config.gaps = draw::gaps(&mut random, &config.platform.interference, end);
        ids.push(world.add_host(config));
    }
    let channels: Vec<_> = granted
        .iter()
        .map(|channel| {
            let handle = world.open(ids[channel.from], ids[channel.to], channel.plan.clone());
            world.promise(handle, channel.promise);
            handle
        })
        .collect();
    let drawn: Vec<_> =
        (0..random.up_to(2)).filter_map(|number| draw::best_effort(&mut random, &mut hosts, number as usize)).collect();
    // All of it as far apart as what came last makes it.
    let open = |(from, to, plan, bytes): (usize, usize, _, _)| {
        let plan = Plan { spacing: draw::spacing(&hosts, to), ..plan };
        (world.open(ids[from], ids[to], plan), bytes)
    };
    let best_effort: Vec<_> = drawn.into_iter().map(open).collect();
    world.run_until(start);
    counts.channels = channels.iter().filter(|&&channel| world.is_open(channel)).count() as u64;

    let critical = start + Duration::from_nanos(random.up_to(span.as_nanos() / 4));
    for (&handle, channel) in channels.iter().zip(&granted) {
        feed(&mut random, &mut world, handle, &channel.contract, [critical, end]);
    }
    for &(handle, bytes) in &best_effort {
        let rate = random.pick(&[100_000, 1_000_000, 5_000_000]);
        let group = 1 + random.up_to(2) as u32;
        let until = (critical + Duration::from_millis(10)).min(end);
        world.add_source(Source { until, ..Source::at_rate(handle, bytes, rate, group, start) });
    }
    faults::add(&mut random, &mut world, (&ids, &channels, &granted), same_clock, (start, end));
    count_faults(&world, &mut counts);
    world.run_until(end);
    counts.span = world.now().since(Instant::ZERO);
    world.finish();
    outcome(seed, &world, counts, Vec::new(), || setting(&hosts, &granted, &world))
}

fn count_faults(world: &World, counts: &mut Counts) {
    for (name, count) in FaultKind::NAMES.iter().zip(&mut counts.faults) {
        *count = world.faults().iter().filter(|fault| fault.kind.name() == *name).count() as u64;
    }
}

/// What a world showed that is over. `findings` are those that its checkers do not know, `setting` tells what it was.
fn outcome(
    seed: u64,
    world: &World,
    mut counts: Counts,
    mut findings: Vec<String>,
    setting: impl FnOnce() -> Vec<String>,
) -> Outcome {
    let handles = (0..world.channels.len()).map(ChannelHandle);
    let mut digest = world.digest();
    for handle in handles {
        let report = world.report(handle);
        let (figures, receive) = (&report.figures, &report.receive);
        counts.add(&Counts {
            messages: figures.sent,
            delivered: figures.delivered,
            late: figures.late,
            lost: figures.lost,
            violations: report.send.refused,
            over_bound: figures.over_bound,
            undecided: figures.undecided,
            misses: if world.channels[handle.0].promise.is_none() { Misses::default() } else { figures.misses },
            ..Counts::default()
        });
        let frames = [receive.frames_invalid, receive.frames_over_contract, receive.frames_receiver_full];
        let all =
            [figures.sent, figures.delivered, figures.late, figures.lost, report.send.refused, receive.frames_stale];
        all.into_iter().chain(frames).for_each(|count| digest.take(count));
    }
    let (found, more) = world.findings();
    findings.extend(found.iter().map(ToString::to_string));
    if more > 0 {
        findings.push(format!("and {more} more"));
    }
    let setting = if findings.is_empty() { Vec::new() } else { setting() };
    Outcome { seed, counts, findings, setting, digest }
}

/// What was drawn, for who looks into what was found.
fn setting(hosts: &[draw::Host], granted: &[Granted], world: &World) -> Vec<String> {
    let host = |(number, host): (usize, &draw::Host)| {
        let (settings, config) = (host.admission.settings(), &host.config);
        let HostConfig { clock, wake_up, inline, step_costs, platform, .. } = config;
        format!(
            "host {number}: clock {clock}, {settings:?}, {wake_up:?}, inline {inline}, {step_costs:?}, {platform:?}"
        )
    };
    let hosts = hosts.iter().enumerate().map(host);
    let channel = |(number, channel): (usize, &Granted)| {
        let Granted { from, to, plan, promise, .. } = channel;
        format!("channel {number} from {from} to {to}: {plan:?}, {promise:?}")
    };
    let channels = granted.iter().enumerate().map(channel);
    hosts.chain(channels).chain(world.faults().iter().map(|fault| format!("{fault:?}"))).collect()
}

/// How long the applications run: 20 to 200 ms, less where there are many messages.
fn span(random: &mut Random, granted: &[Granted]) -> Duration {
    let millis = Duration::from_millis;
    let per_second: u64 = granted.iter().map(|channel| 1_000_000_000 / channel.contract.interval().as_nanos()).sum();
    let enough = Duration::from_nanos(MESSAGES * 1_000_000_000 / per_second.max(1));
    (millis(20) + Duration::from_nanos(random.up_to(millis(180).as_nanos()))).min(enough.max(millis(20)))
}

/// What the application of a channel does.
fn feed(random: &mut Random, world: &mut World, handle: ChannelHandle, contract: &Contract, span: [Instant; 2]) {
    let [critical, until] = span;
    let factor = 2 + random.up_to(2);
    let source = match random.up_to(8) {
        0 | 1 => Source::full(handle, contract, critical),
        2 | 3 => Source::bursts(handle, contract, critical),
        4 => Source::violating(handle, contract, critical, factor),
        5 if random.one_in(2) => Source::too_large(handle, contract, critical, factor as u32),
        5 => Source::too_many(handle, contract, critical, factor as u32),
        6 => {
            let sizes = Sizes::film(contract.min_message(), contract.max_message());
            return world.add_varied(Varied { until, ..Varied::recorded(handle, contract, sizes, critical) });
        }
        _ => return world.add_varied(Varied { until, ..Varied::conforming(handle, contract, critical) }),
    };
    world.add_source(Source { until, ..source });
}
