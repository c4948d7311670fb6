//! Runs systems against what was promised for them.

use std::time::Instant as Clock;

use laxity_core::units::Duration;
use laxity_sim::tiny::{Bench, Release, Role, Seen, System};

use super::small::{self, Bounded, Draw, Kind, Pattern};
use super::us;

/// What all systems together showed.
#[derive(Default)]
pub struct Totals {
    pub systems: u64,
    pub episodes: u64,
    pub messages: u64,
    pub violations: u64,
    /// Responses longer than the bound, violations or not.
    pub late: u64,
    /// The first violation.
    pub first: Option<String>,
    /// How much longer a channel that is received may take.
    pub wait: Duration,
    /// Seen by bound, in parts per million: the largest, and the sum of the systems' largest.
    pub largest: u64,
    sum: u64,
}

impl Totals {
    /// One episode; how close it comes to the bound of any channel, in parts per million.
    pub fn episode(&mut self, bounded: &Bounded, bench: &mut Bench, pattern: &Pattern) -> u64 {
        self.episodes += 1;
        let mut largest = 0;
        let seen = bench.run_with_gaps(&pattern.releases, &pattern.gaps);
        for (number, (seen, promise)) in seen.into_iter().zip(&bounded.promises).enumerate() {
            let received = bounded.system.channels[number].role == Role::Receives;
            self.late += u64::from(seen.end > promise.bound.worst);
            let wait = if received { self.wait } else { Duration::ZERO };
            let within = Seen { handler: seen.handler.saturating_sub(wait), end: seen.end.saturating_sub(wait) };
            if !promise.covers(within) {
                self.violations += 1;
                self.first.get_or_insert_with(|| {
                    format!("channel {number}: {seen:?}, {promise:#?}\n{:?}\n{pattern:?}", bounded.system)
                });
            }
            largest = largest.max(ratio(seen, promise.bound.worst));
        }
        largest
    }

    /// Runs each pattern in turn.
    pub fn run(&mut self, bounded: &Bounded, patterns: impl Iterator<Item = Pattern>) {
        let mut bench = bounded.system.bench();
        let largest = patterns.map(|pattern| self.episode(bounded, &mut bench, &pattern)).max();
        self.note(&bench, largest.unwrap_or(0));
    }

    /// Random patterns, every other one close to that which came closest to a bound so far.
    pub fn climb(&mut self, bounded: &Bounded, draw: &mut impl Draw, episodes: u64) {
        let (mut bench, mut best) = (bounded.system.bench(), (0, Pattern::default()));
        for number in 0..episodes {
            let pattern = match number % 2 {
                1 => small::moved(draw, &bounded.system, &best.1),
                _ => small::random_pattern(draw, &bounded.system),
            };
            let close = self.episode(bounded, &mut bench, &pattern);
            if close >= best.0 {
                best = (close, pattern);
            }
        }
        self.note(&bench, best.0);
    }

    fn note(&mut self, bench: &Bench, largest: u64) {
        self.systems += 1;
        self.messages += bench.messages();
        self.largest = self.largest.max(largest);
        self.sum += largest;
    }

    /// As many systems as there must be, and no violation.
    pub fn check(&self, systems: u64) {
        assert!(
            self.violations == 0,
            "{} violations, the first one: {}",
            self.violations,
            self.first.as_ref().unwrap()
        );
        assert!(self.systems >= systems, "{} systems", self.systems);
    }

    pub fn report(&self, title: &str, started: Clock) {
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{title}: {} systems, {} episodes, {} messages, {} violations; seen/bound at most {:.3}, on average {:.3}; \
             {:.1} s, {:.0} systems/s, {:.0} messages/s",
            self.systems,
            self.episodes,
            self.messages,
            self.violations,
            self.largest as f64 / 1e6,
            self.sum as f64 / 1e6 / self.systems.max(1) as f64,
            seconds,
            self.systems as f64 / seconds,
            self.messages as f64 / seconds,
        );
    }
}

fn ratio(seen: Seen, bound: Duration) -> u64 {
    (u128::from(seen.end.as_nanos()) * 1_000_000 / u128::from(bound.as_nanos().max(1))) as u64
}

/// The phases of all channels on a grid of `points` points, the first channel's included: against best effort that is phase
/// zero, and where there is none, against sleep.
fn phasings(channels: usize, points: u64, step: Duration) -> impl Iterator<Item = Vec<Duration>> {
    (0..points.pow(channels as u32))
        .map(move |number| (0..channels as u32).map(|channel| step * (number / points.pow(channel) % points)).collect())
}

/// Each channel sends its largest messages as soon as it may, twice.
fn full(system: &System, phases: &[Duration], best_effort: &[Release], after: Duration) -> Pattern {
    let mut releases = best_effort.to_vec();
    for (number, (channel, phase)) in system.channels.iter().zip(phases).enumerate() {
        let (interval, bytes) = (channel.contract.interval(), channel.contract.max_message());
        releases.extend((0..2).map(|message| Release::of(number, *phase + after + interval * message, bytes)));
    }
    Pattern { releases, gaps: Vec::new() }
}

/// Every phasing of one system on a small grid, in saturating best effort.
pub fn every_phasing(system: &System) -> impl Iterator<Item = Pattern> {
    let (points, step) = [(48, us(1)), (10, us(4)), (5, us(7)), (3, us(9))][system.channels.len() - 1];
    let best_effort = small::saturating(&system.platform, us(200), true);
    // Just after the instants at which something else happens.
    let after = us(12) + Duration::from_nanos(1);
    let patterns = phasings(system.channels.len(), points, step);
    patterns.map(move |phases| full(system, &phases, &best_effort, after))
}

/// So many systems of a kind, each in every phasing.
pub fn phase(kind: Kind, seed: u64, systems: u64) -> Totals {
    let (mut totals, mut draw) = (Totals::default(), super::draw(seed));
    for _ in 0..systems {
        let Some(bounded) = small::system(&mut draw, kind) else { continue };
        totals.run(&bounded, every_phasing(&bounded.system));
    }
    totals
}

/// So many systems of a kind, each in so many random episodes.
pub fn climb(kind: Kind, seed: u64, systems: u64, episodes: u64) -> Totals {
    let (mut totals, mut draw) = (Totals::default(), super::draw(seed));
    for _ in 0..systems {
        let Some(bounded) = small::system(&mut draw, kind) else { continue };
        totals.climb(&bounded, &mut draw, episodes);
    }
    totals
}
