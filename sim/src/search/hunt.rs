//! Many systems by number, on many threads, with one outcome.

use std::collections::BTreeMap;

use super::{Analysis, AttackOutcome, CounterExample, NumberSource, PromisedCase, SearchCase, draws, shrink};
use crate::content::Random;
use crate::parallel::in_order;

/// Episodes of a system that is climbed.
const CLIMB: u64 = 160;
/// Of each test: so many counter-examples are made small, and the smallest is told.
const SHRUNK: usize = 3;

/// The parameters of a hunt: its target, and the systems in which it looks.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Everything follows from this.
    pub seed: u64,
    /// The analyses, in turn.
    pub tests: Vec<Analysis>,
}

/// The outcome of all systems of one analysis.
#[derive(Debug, Default)]
pub struct Summary {
    /// Systems that were admitted.
    pub systems: u64,
    /// Episodes.
    pub worlds: u64,
    /// Messages.
    pub messages: u64,
    /// Systems in which a promise was broken, by number.
    pub broken: Vec<u64>,
    /// The largest response of each channel by its bound, in parts per million: how many channels have which.
    pub largest: BTreeMap<u64, u64>,
}

impl Summary {
    /// Adds what system `number` showed.
    pub fn add(&mut self, number: u64, outcome: AttackOutcome) {
        self.systems += 1;
        self.worlds += outcome.worlds;
        self.messages += outcome.messages;
        if outcome.first.is_some() {
            self.broken.push(number);
        }
        for largest in outcome.largest {
            *self.largest.entry(largest).or_default() += 1;
        }
    }

    /// Channels of all systems.
    pub fn channels(&self) -> u64 {
        self.largest.values().sum()
    }

    /// The largest response by its bound that so many thousandths of the channels do not exceed, in parts per million.
    pub fn largest_at(&self, permille: u64) -> Option<u64> {
        let rank = (self.channels() * permille).div_ceil(1000).max(1);
        let mut below = 0;
        self.largest.iter().find_map(|(&largest, &channels)| {
            below += channels;
            (below >= rank).then_some(largest)
        })
    }
}

impl Hunt {
    /// The analysis that system `number` is for.
    pub fn test(&self, number: u64) -> Analysis {
        self.tests[(number % self.tests.len() as u64) as usize]
    }

    fn draws(&self, number: u64) -> impl NumberSource + use<> {
        draws(Random(self.seed).next() ^ number)
    }

    /// Draws system `number` and attacks it. `None` if a hundred systems were refused.
    pub fn attack(&self, number: u64) -> Option<AttackOutcome> {
        self.broken(number).map(|(_, _, outcome)| outcome)
    }

    fn broken(&self, number: u64) -> Option<(SearchCase, PromisedCase, AttackOutcome)> {
        let mut draw = self.draws(number);
        let (case, bounded) = self.test(number).draw(&mut draw)?;
        // In turn, for each test: every phasing, and climbing.
        let turn = number / self.tests.len() as u64;
        let outcome = case.attack(&bounded, &mut draw, (turn % 2 == 1).then_some(CLIMB));
        Some((case, bounded, outcome))
    }

    /// Attacks the systems from 0 on, fewer than `count`, as long as `go_on` says so. `done` is told the number and the outcome
    /// of each, in no order.
    pub fn run(
        &self,
        threads: usize,
        count: u64,
        go_on: impl Fn() -> bool + Sync,
        done: impl Fn(u64, Option<&AttackOutcome>) + Sync,
    ) -> (u64, Vec<(Analysis, Summary)>) {
        let attack = |number| {
            let outcome = self.attack(number);
            done(number, outcome.as_ref());
            outcome
        };
        let found = in_order(threads, count, go_on, attack);
        let (systems, mut by_place) = (found.len() as u64, BTreeMap::<u64, Summary>::new());
        for (number, outcome) in (0..).zip(found) {
            let summary = by_place.entry(number % self.tests.len() as u64).or_default();
            if let Some(outcome) = outcome {
                summary.add(number, outcome);
            }
        }
        (systems, by_place.into_iter().map(|(place, summary)| (self.test(place), summary)).collect())
    }

    /// System `number` again; if it breaks a promise, made as small as it gets.
    pub fn smallest(&self, number: u64) -> Option<CounterExample> {
        let (case, bounded, outcome) = self.broken(number)?;
        Some(shrink::shrink(CounterExample { case, bounded, violation: outcome.first? }))
    }

    /// The smallest counter-example that the first of these systems give, and the system's number.
    pub fn smallest_of(&self, threads: usize, numbers: &[u64]) -> Option<(u64, CounterExample)> {
        let first = &numbers[..numbers.len().min(SHRUNK)];
        let made = in_order(
            threads,
            first.len() as u64,
            || true,
            |place| {
                let number = first[place as usize];
                self.smallest(number).map(|smallest| (number, smallest))
            },
        );
        made.into_iter().flatten().min_by_key(|(_, smallest)| smallest.size())
    }
}
