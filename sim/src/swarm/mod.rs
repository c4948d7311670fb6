//! Many short worlds, each drawn by its seed: what holds for all of them.
//!
//! A world has two to four hosts whose clocks may differ, channels that admission granted at both ends with little slack,
//! applications that keep their contracts to the edge, or break them, and up to three faults. Everything in it follows from the
//! seed alone. So a seed that fails fails again, by itself ([`world`]), and a run over many seeds ([`run`]) gives the same
//! [`SwarmTotals`] on any number of threads.
//!
//! It leaves out the papers' machine, relays and long runs. Worlds of two clocks, in which it is only asked what each knows of the
//! other's, are in [`clocks`].

pub mod clocks;
mod draw;

use std::panic::{AssertUnwindSafe, catch_unwind};

use laxity_core::contract::Contract;
use laxity_core::figures::Misses;
use laxity_core::units::{Duration, Instant};
use serde::Serialize;

use crate::parallel::for_each_in_order;
use crate::{ChannelHandle, ChannelPlan, Digest, FaultKind, HostConfig, Random, Sizes, Source, World};
use draw::{DrawnChannel, SET_UP};

/// The outcomes of messages, and the faults that were injected. As JSON, in this order, a part of what `laxity sim --swarm --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwarmCounts {
    /// Virtual time.
    #[serde(rename = "virtual_ns")]
    pub span: Duration,
    /// Hosts.
    pub hosts: u64,
    /// Real-time channels that were admitted and opened.
    pub channels: u64,
    /// Channels that admission refused.
    #[serde(rename = "refused_channels")]
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
    #[serde(skip)]
    pub faults: [u64; FaultKind::NAMES.len()],
}

impl SwarmCounts {
    /// All counters.
    fn counters(&mut self) -> impl Iterator<Item = &mut u64> {
        let Self { hosts, channels, refused, messages, delivered, late, lost, violations, .. } = self;
        let Self { misses, over_bound, undecided, decidable, faults, .. } = self;
        let Misses { sender, receiver, network, platform, laxity, unexplained } = misses;
        let of_channels = [refused, messages, delivered, late, lost, violations, over_bound, undecided, decidable];
        let by_cause = [sender, receiver, network, platform, laxity, unexplained];
        [hosts, channels].into_iter().chain(of_channels).chain(by_cause).chain(faults)
    }

    fn add(&mut self, mut other: Self) {
        self.counters().zip(other.counters()).for_each(|(sum, more)| *sum += *more);
        self.span += other.span;
    }
}

/// The outcome of one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOutcome {
    /// Its seed.
    pub seed: u64,
    /// The counters.
    pub counts: SwarmCounts,
    /// The findings of the checkers, as text, in the order of time; a panic, too.
    pub findings: Vec<String>,
    /// If there are findings: the hosts, the channels and the faults.
    pub setting: Vec<String>,
    /// All that was seen.
    pub digest: Digest,
}

/// The outcome of many worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmTotals {
    /// Worlds.
    pub worlds: u64,
    /// The counters.
    pub counts: SwarmCounts,
    /// The worlds with findings; at most [`SwarmTotals::MOST`] are kept.
    pub failures: Vec<WorldOutcome>,
    /// Worlds with findings.
    pub failed: u64,
    /// Of all digests, in the order of seeds.
    pub digest: Digest,
}

impl SwarmTotals {
    /// Worlds that are kept.
    pub const MOST: usize = 100;

    fn add(&mut self, outcome: WorldOutcome) {
        self.worlds += 1;
        self.counts.add(outcome.counts.clone());
        self.digest.take(outcome.digest.0);
        if !outcome.findings.is_empty() {
            self.failed += 1;
            if self.failures.len() < Self::MOST {
                self.failures.push(outcome);
            }
        }
    }
}

/// A world, or the panic that it ended with.
fn caught(seed: u64, world: impl FnOnce(u64) -> WorldOutcome) -> WorldOutcome {
    catch_unwind(AssertUnwindSafe(|| world(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let findings = vec![format!("panic: {}", text.unwrap_or_default())];
        WorldOutcome { seed, counts: SwarmCounts::default(), findings, setting: Vec::new(), digest: Digest::default() }
    })
}

/// Runs `count` of these worlds from `first_seed` on, on so many threads. `progress` is told how many are done.
pub fn run(
    world: impl Fn(u64) -> WorldOutcome + Sync,
    first_seed: u64,
    count: u64,
    threads: usize,
    mut progress: impl FnMut(u64),
) -> SwarmTotals {
    let mut totals = SwarmTotals::default();
    let world = |number| caught(first_seed.wrapping_add(number), &world);
    let each = |outcome| {
        totals.add(outcome);
        progress(totals.worlds);
    };
    for_each_in_order(threads, count, || true, world, each);
    totals
}

/// Messages that a world may be expected to carry.
const MESSAGES: u64 = 220;

/// Runs the world with this seed.
pub fn world(seed: u64) -> WorldOutcome {
    let mut random = Random(seed);
    // Seeds in a row must not give worlds in a row.
    random = Random(random.next());
    let same_clock = !random.one_in(3);
    let mut hosts = draw::hosts(&mut random, same_clock);
    // By itself: seeds keep the worlds that they have had.
    let mut placement = Random(!seed);
    hosts.iter_mut().for_each(|host| host.config.inline = placement.one_in(3));
    let mut counts = SwarmCounts { hosts: hosts.len() as u64, ..SwarmCounts::default() };
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
        let plan = ChannelPlan { spacing: draw::spacing(&hosts, to), ..plan };
        (world.open(ids[from], ids[to], plan), bytes)
    };
    let best_effort: Vec<_> = drawn.into_iter().map(open).collect();
    world.run_until(start);
    counts.channels = channels.iter().filter(|&&channel| world.is_open(channel)).count() as u64;

    let critical = start + Duration::from_nanos(random.up_to(span.as_nanos() / 4));
    for (&handle, channel) in channels.iter().zip(&granted) {
        feed(&mut random, &mut world, handle, &channel.promise.contract, [critical, end]);
    }
    for &(handle, bytes) in &best_effort {
        let rate = random.pick(&[100_000, 1_000_000, 5_000_000]);
        let group = 1 + random.up_to(2) as u32;
        let until = (critical + Duration::from_millis(10)).min(end);
        world.add_source(Source { until, ..Source::at_rate(handle, bytes, rate, group, start) });
    }
    draw::add_faults(&mut random, &mut world, (&ids, &channels, &granted), same_clock, (start, end));
    count_faults(&world, &mut counts);
    world.run_until(end);
    counts.span = world.now().since(Instant::ZERO);
    world.finish();
    outcome(seed, &world, counts, Vec::new(), || setting(&hosts, &granted, &world))
}

fn count_faults(world: &World, counts: &mut SwarmCounts) {
    for (name, count) in FaultKind::NAMES.iter().zip(&mut counts.faults) {
        *count = world.faults().iter().filter(|fault| fault.kind.name() == *name).count() as u64;
    }
}

/// The outcome of a world that is over. `findings` are those that its checkers do not know, `setting` describes it.
fn outcome(
    seed: u64,
    world: &World,
    mut counts: SwarmCounts,
    mut findings: Vec<String>,
    setting: impl FnOnce() -> Vec<String>,
) -> WorldOutcome {
    let handles = (0..world.channels.len()).map(ChannelHandle);
    let mut digest = world.digest();
    for handle in handles {
        let report = world.report(handle);
        let (figures, receive) = (&report.figures, &report.receive);
        counts.add(SwarmCounts {
            messages: figures.sent,
            delivered: figures.delivered,
            late: figures.late,
            lost: figures.lost,
            violations: report.send.refused,
            over_bound: figures.over_bound,
            undecided: figures.undecided,
            misses: if world.channels[handle.0].ledger.promise.is_none() { Misses::default() } else { figures.misses },
            ..SwarmCounts::default()
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
    WorldOutcome { seed, counts, findings, setting, digest }
}

/// The drawn values, for a look into findings.
fn setting(hosts: &[draw::DrawnHost], granted: &[DrawnChannel], world: &World) -> Vec<String> {
    let host = |(number, host): (usize, &draw::DrawnHost)| {
        let (settings, config) = (host.admission.settings(), &host.config);
        let HostConfig { clock, wake_up, inline, step_costs, platform, .. } = config;
        format!(
            "host {number}: clock {clock}, {settings:?}, {wake_up:?}, inline {inline}, {step_costs:?}, {platform:?}"
        )
    };
    let hosts = hosts.iter().enumerate().map(host);
    let channel = |(number, channel): (usize, &DrawnChannel)| {
        let DrawnChannel { from, to, plan, promise, .. } = channel;
        format!("channel {number} from {from} to {to}: {plan:?}, {promise:?}")
    };
    let channels = granted.iter().enumerate().map(channel);
    hosts.chain(channels).chain(world.faults().iter().map(|fault| format!("{fault:?}"))).collect()
}

/// The time for which the applications run: 20 to 200 ms, less where there are many messages.
fn span(random: &mut Random, granted: &[DrawnChannel]) -> Duration {
    let millis = Duration::from_millis;
    let per_second: u64 =
        granted.iter().map(|channel| 1_000_000_000 / channel.promise.contract.interval().as_nanos()).sum();
    let enough = Duration::from_nanos(MESSAGES * 1_000_000_000 / per_second.max(1));
    (millis(20) + Duration::from_nanos(random.up_to(millis(180).as_nanos()))).min(enough.max(millis(20)))
}

/// The behaviour of a channel's application.
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
            Source::recorded(handle, contract, sizes, critical)
        }
        _ => Source::conforming(handle, contract, critical),
    };
    world.add_source(Source { until, ..source });
}
