//! The test of the tests: the search notices each mistake that can be switched on in the core; or the table of verdicts does, if it is one
//! in the judgement of misses; or the swarm of two clocks, if it is one in the bounds of peers' clocks.
//!
//! Needs the feature `mutants`, which nothing that ships has: `cargo test --release -p laxity-sim --features mutants --test
//! mutants`. A mistake is one in the whole process, so that there is one test for all.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant as Clock;

use common::verdicts::cases;
use laxity_core::mutant::{Mutant, turn_on};
use laxity_core::platform::MachineModel;
use laxity_sim::search::case::Analysis;
use laxity_sim::search::hunt::Hunt;
use laxity_sim::swarm;
use strum::VariantArray;

/// Within so many worlds of the search, each mistake is to be found.
const MOST: u64 = 200_000;
/// Within so many of the swarm of two clocks, each mistake that makes an interval wrong.
const MOST_CLOCKS: u64 = 20_000;

/// A mistake in the run time shows where the shipping executive runs, or the papers' machine; one in the analysis where
/// admission decides.
fn hunt(mutant: Mutant) -> Hunt {
    let executive_only = matches!(mutant, Mutant::NoGap | Mutant::NoWakeUp | Mutant::NoLooks);
    let is_of = |test: &Analysis| match mutant {
        Mutant::NoUpcallStep => matches!(test, Analysis::Trusted(_)),
        Mutant::NoHandler => matches!(test, Analysis::Handlers(_)),
        _ => matches!(test, Analysis::Admission(_)),
    };
    let tests = Analysis::all().into_iter().filter(is_of);
    let tests = tests.filter(|test| !executive_only || test.machine() == MachineModel::Executive).collect();
    Hunt { seed: 1, tests }
}

#[test]
fn every_mistake_is_noticed() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut unnoticed = Vec::new();
    for mutant in Mutant::VARIANTS.iter().copied().filter(|mutant| mutant.judges()) {
        turn_on(Some(mutant));
        let wrong: Vec<_> =
            cases().into_iter().filter(|case| !case.is_right(case.verdict())).map(|case| case.what).collect();
        println!("{mutant:?}: {wrong:?}");
        if wrong.is_empty() {
            unnoticed.push(Some(mutant));
        }
    }
    let of_clocks =
        Mutant::VARIANTS.iter().copied().filter(|mutant| mutant.is_of_clocks() && !Mutant::SMALL.contains(mutant));
    for mutant in [None].into_iter().chain(of_clocks.map(Some)) {
        let started = Clock::now();
        turn_on(mutant);
        let is_wrong = |outcome: &swarm::WorldOutcome| match mutant {
            Some(_) => outcome.findings.iter().any(|finding| finding.starts_with("interval")),
            None => !outcome.findings.is_empty(),
        };
        let most = if mutant.is_some() { MOST_CLOCKS } else { MOST_CLOCKS / 10 };
        let mut runs =
            (0..most).step_by(200).map(|first| swarm::run(swarm::clocks::world, first, 200, threads, |_| {}));
        let first = runs.find_map(|totals| Some(totals.failures.iter().find(|outcome| is_wrong(outcome))?.seed));
        println!("{mutant:?}: {first:?} is the first world, {:.1} s", started.elapsed().as_secs_f64());
        if mutant.is_some() != first.is_some() {
            unnoticed.push(mutant);
        }
    }
    let searched = Mutant::VARIANTS.iter().copied().filter(|mutant| !mutant.judges() && !mutant.is_of_clocks());
    for mutant in [None].into_iter().chain(searched.map(Some)) {
        let started = Clock::now();
        turn_on(mutant);
        let (worlds, found) = (AtomicU64::new(0), AtomicBool::new(false));
        let hunt = mutant.map_or_else(|| hunt(Mutant::NoYieldAtMessageEnd), hunt);
        // Without a mistake a tenth of the worlds is looked at: the other tests look at more.
        let most = if mutant.is_some() { MOST } else { MOST / 10 };
        let go_on = || !found.load(Ordering::Relaxed) && worlds.load(Ordering::Relaxed) < most;
        let (systems, outcome) = hunt.run(threads, u64::MAX, go_on, |_, outcome| {
            worlds.fetch_add(outcome.map_or(0, |outcome| outcome.worlds), Ordering::Relaxed);
            found.fetch_or(outcome.is_some_and(|outcome| outcome.first.is_some()), Ordering::Relaxed);
        });
        let first = outcome
            .iter()
            .filter_map(|(test, summary)| Some((*summary.broken.first()?, test)))
            .min_by_key(|first| first.0);
        let worlds: u64 = outcome.iter().map(|(_, summary)| summary.worlds).sum();
        println!("{mutant:?}: {systems} systems, {worlds} worlds, {:.1} s: {first:?}", started.elapsed().as_secs_f64());
        if mutant.is_some() != first.is_some() {
            unnoticed.push(mutant);
        }
    }
    turn_on(None);
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
