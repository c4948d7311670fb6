//! Runs one system against what was promised for it, in every phasing on a grid or climbing towards the bounds.

use laxity_core::units::Duration;

use super::{NumberSource, Pattern, PromisedCase, pattern, us};
use crate::RunCounts;
use crate::tiny::{ObservedResponses, Release, Role, SmallRun, SmallSystem};

/// A response that was promised to be shorter.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The channel.
    pub channel: usize,
    /// The responses that were seen.
    pub seen: ObservedResponses,
    /// In which episode.
    pub pattern: Pattern,
}

/// The outcome of the episodes of one system.
#[derive(Clone, Debug, Default)]
pub struct AttackOutcome {
    /// Episodes: each is a world that begins at rest.
    pub worlds: u64,
    /// Messages that were released.
    pub messages: u64,
    /// Seen by bound, in parts per million: the largest of each channel.
    pub largest: Vec<u64>,
    /// Responses that broke a promise.
    pub violations: u64,
    /// Responses longer than the bound, violations or not.
    pub late: u64,
    /// The first violation.
    pub first: Option<Violation>,
}

/// A system under attack.
pub struct SystemAttack<'a> {
    bounded: &'a PromisedCase,
    bench: SmallRun,
    /// The additional time that a channel that is received may take.
    pub wait: Duration,
    outcome: AttackOutcome,
}

impl<'a> SystemAttack<'a> {
    /// Opens the channels.
    pub fn new(bounded: &'a PromisedCase) -> Self {
        let outcome = AttackOutcome { largest: vec![0; bounded.promises.len()], ..AttackOutcome::default() };
        Self { bounded, bench: bounded.system.bench(), wait: Duration::ZERO, outcome }
    }

    /// One episode; how close it comes to the bound of each channel, in parts per million.
    pub fn episode(&mut self, pattern: &Pattern) -> Vec<u64> {
        let outcome = &mut self.outcome;
        outcome.worlds += 1;
        let (mut seen, runs) = self.bench.run_pattern(pattern);
        // A run that did not begin in its period was never done.
        let response = |runs: RunCounts| if runs.skipped > 0 { Duration::MAX } else { runs.longest };
        seen.extend(runs.into_iter().map(response).map(|end| ObservedResponses { handler: end, end }));
        let mut close = Vec::with_capacity(seen.len());
        for (channel, (seen, promise)) in seen.into_iter().zip(&self.bounded.promises).enumerate() {
            outcome.late += u64::from(seen.end > promise.bound.worst);
            let of = self.bounded.system.channels.get(channel);
            let received = of.is_some_and(|channel| channel.role == Role::Receives);
            let wait = if received { self.wait } else { Duration::ZERO };
            let within =
                ObservedResponses { handler: seen.handler.saturating_sub(wait), end: seen.end.saturating_sub(wait) };
            if !promise.covers(within) {
                outcome.violations += 1;
                outcome.first.get_or_insert_with(|| Violation { channel, seen, pattern: pattern.clone() });
            }
            let ratio = ratio(seen, promise.bound.worst);
            outcome.largest[channel] = outcome.largest[channel].max(ratio);
            close.push(ratio);
        }
        close
    }

    /// Runs each pattern in turn, until one shows a violation.
    pub fn run(&mut self, patterns: impl Iterator<Item = Pattern>) {
        for pattern in patterns {
            self.episode(&pattern);
            if self.outcome.first.is_some() {
                break;
            }
        }
    }

    /// So many random patterns, every other one close to that which came closest to the bound of some channel so far; until
    /// one shows a violation.
    pub fn climb<D: NumberSource>(
        &mut self,
        draw: &mut D,
        episodes: u64,
        random: impl Fn(&mut D, &SmallSystem) -> Pattern,
    ) {
        let mut best = vec![(0, Pattern::default()); self.bounded.promises.len()];
        for number in 0..episodes {
            let target = draw(best.len() as u64 - 1) as usize;
            let pattern = match number % 2 {
                1 => pattern::moved(draw, &self.bounded.system, &best[target].1),
                _ => random(draw, &self.bounded.system),
            };
            for (close, best) in self.episode(&pattern).into_iter().zip(&mut best) {
                if close >= best.0 {
                    *best = (close, pattern.clone());
                }
            }
            if self.outcome.first.is_some() {
                break;
            }
        }
    }

    /// The outcome of all episodes.
    pub fn finish(self) -> AttackOutcome {
        AttackOutcome { messages: self.bench.messages, ..self.outcome }
    }
}

fn ratio(seen: ObservedResponses, bound: Duration) -> u64 {
    (u128::from(seen.end.as_nanos()) * 1_000_000 / u128::from(bound.as_nanos().max(1))) as u64
}

/// The phases of all channels on a grid of `points` points, the first channel's included: against best effort that is phase
/// zero, and where there is none, against sleep.
fn phasings(channels: usize, points: u64, step: Duration) -> impl Iterator<Item = Vec<Duration>> {
    (0..points.pow(channels as u32))
        .map(move |number| (0..channels as u32).map(|channel| step * (number / points.pow(channel) % points)).collect())
}

/// Each channel sends its largest messages as soon as it may, twice.
fn full(system: &SmallSystem, phases: &[Duration], best_effort: &[Release], after: Duration) -> Pattern {
    let mut releases = best_effort.to_vec();
    for (number, (channel, phase)) in system.channels.iter().zip(phases).enumerate() {
        let (interval, bytes) = (channel.contract.interval(), channel.contract.max_message());
        releases.extend((0..2).map(|message| Release::of(number, *phase + after + interval * message, bytes)));
    }
    Pattern { releases, ..Pattern::default() }
}

/// Every phasing of one system on a small grid, in saturating best effort.
pub fn every_phasing(system: &SmallSystem) -> impl Iterator<Item = Pattern> + use<> {
    let (points, step) = match system.channels.len() {
        0 | 1 => (48, us(1)),
        2 => (10, us(4)),
        3 => (5, us(7)),
        4 => (3, us(9)),
        _ => (2, us(13)),
    };
    let best_effort = pattern::saturating(&system.platform, us(200), true);
    // Just after the instants at which something else happens.
    let after = us(12) + Duration::from_nanos(1);
    let patterns = phasings(system.channels.len(), points, step);
    let system = system.clone();
    patterns.map(move |phases| full(&system, &phases, &best_effort, after))
}
