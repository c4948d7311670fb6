//! The outcome of attacks on many systems.

use std::time::Instant as Clock;

use laxity_core::units::Duration;
use laxity_sim::search::NumberSource;
use laxity_sim::search::attack::{SystemAttack, every_phasing};
use laxity_sim::search::case::{Analysis, PromisedCase};
use laxity_sim::search::pattern::{self, Pattern};
use laxity_sim::search::small::SystemKind;

/// The outcome of all systems together.
#[derive(Default)]
pub struct Totals {
    pub systems: u64,
    pub worlds: u64,
    pub messages: u64,
    pub violations: u64,
    /// Responses longer than the bound, violations or not.
    pub late: u64,
    /// The first violation.
    pub first: Option<String>,
    /// The additional time that a channel that is received may take.
    pub wait: Duration,
    /// Seen by bound, in parts per million: the largest, and the sum of the systems' largest.
    pub largest: u64,
    sum: u64,
}

impl Totals {
    /// Runs each pattern in turn.
    pub fn run(&mut self, bounded: &PromisedCase, patterns: impl Iterator<Item = Pattern>) {
        self.attack(bounded, |attack| attack.run(patterns));
    }

    /// Climbs with so many random patterns.
    pub fn climb(&mut self, bounded: &PromisedCase, draw: &mut impl NumberSource, episodes: u64) {
        self.attack(bounded, |attack| attack.climb(draw, episodes, pattern::random_pattern));
    }

    fn attack(&mut self, bounded: &PromisedCase, run: impl FnOnce(&mut SystemAttack<'_>)) {
        let mut attack = SystemAttack::new(bounded);
        attack.wait = self.wait;
        run(&mut attack);
        let outcome = attack.finish();
        self.systems += 1;
        self.worlds += outcome.worlds;
        self.messages += outcome.messages;
        self.violations += outcome.violations;
        self.late += outcome.late;
        let largest = outcome.largest.into_iter().max().unwrap_or(0);
        self.largest = self.largest.max(largest);
        self.sum += largest;
        if let Some(violation) = outcome.first {
            let promise = &bounded.promises[violation.channel];
            self.first.get_or_insert_with(|| format!("{violation:?}, {promise:#?}\n{:?}", bounded.system));
        }
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
            "{title}: {} systems, {} worlds, {} messages, {} violations; seen/bound at most {:.3}, on average {:.3}; \
             {:.1} s, {:.0} systems/s, {:.0} messages/s",
            self.systems,
            self.worlds,
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

/// A system of a kind that is admitted; `None` after a hundred that are not.
pub fn admitted(draw: &mut impl NumberSource, kind: SystemKind) -> Option<PromisedCase> {
    Analysis::Admission(kind).draw(draw).map(|(_, promised)| promised)
}

/// So many systems of a kind, each in every phasing.
pub fn phase(kind: SystemKind, seed: u64, systems: u64) -> Totals {
    let (mut totals, mut draw) = (Totals::default(), super::draw(seed));
    for _ in 0..systems {
        let Some(bounded) = admitted(&mut draw, kind) else { continue };
        totals.run(&bounded, every_phasing(&bounded.system));
    }
    totals
}

/// So many systems of a kind, each in so many random episodes.
pub fn climb(kind: SystemKind, seed: u64, systems: u64, episodes: u64) -> Totals {
    let (mut totals, mut draw) = (Totals::default(), super::draw(seed));
    for _ in 0..systems {
        let Some(bounded) = admitted(&mut draw, kind) else { continue };
        totals.climb(&bounded, &mut draw, episodes);
    }
    totals
}
