//! The search itself: what decides is not broken, what is published and wrong is, and everything follows from the seed.

mod common;

use common::totals::admitted;
use laxity_core::admission::answer::Rule;
use laxity_core::admission::published::d_order::BlockTerm;
use laxity_core::platform::MachineModel;
use laxity_sim::search::case::{Analysis, PromisedCase};
use laxity_sim::search::draws;
use laxity_sim::search::hunt::{Hunt, Summary};
use laxity_sim::search::small::SystemKind;

const SYSTEMS: u64 = 100;

fn search(seed: u64, threads: usize) -> (Hunt, Vec<(Analysis, Summary)>) {
    let hunt = Hunt { seed, tests: Analysis::all() };
    let (systems, found) = hunt.run(threads, SYSTEMS, || true, |_, _| {});
    assert_eq!(systems, SYSTEMS);
    (hunt, found)
}

#[test]
fn only_the_published_test_for_channels_is_broken() {
    let (hunt, found) = search(1, 2);
    for (test, summary) in &found {
        println!(
            "{test:?}: {} systems, {} worlds, at most {:?}",
            summary.systems,
            summary.worlds,
            summary.largest_at(1000)
        );
        assert!(summary.systems >= SYSTEMS / Analysis::all().len() as u64 - 1, "{test:?}");
        assert!(!test.decides() || summary.broken.is_empty(), "{test:?}: {:?}", summary.broken);
    }
    let of = |test| found.iter().find(|found| found.0 == test).map(|found| &found.1).unwrap();
    let broken = &of(Analysis::DOrder(BlockTerm::Min)).broken;
    let (number, smallest) = hunt.smallest_of(2, broken).expect("D_order as it is evidently meant is broken");
    // The defect that needs least: one channel of one packet beside best effort.
    println!("system {number}: {smallest:?}");
    assert_eq!(smallest.case.system.channels.len(), 1);
    let promised = smallest.bounded.promises[smallest.violation.channel].bound.worst;
    assert!(smallest.violation.seen.end > promised);
    // The exact response times of upcalls are attained.
    assert_eq!(of(Analysis::ResponseTimes).largest_at(1000), Some(1_000_000));
}

#[test]
fn a_seed_tells_everything_on_any_number_of_threads() {
    let text = |seed, threads| format!("{:?}", search(seed, threads).1);
    assert_eq!(text(5, 1), text(5, 3));
    assert_ne!(text(5, 1), text(6, 1));
}

/// Some of the systems count on less interference than their platform may take, because all of their channels tolerate misses; others, one of whose channels does not,
/// on all of it.
#[test]
fn tolerances_are_searched_too() {
    let (mut less, mut all) = (0, 0);
    for seed in 0..3000 {
        let kind =
            SystemKind { machine: MachineModel::Executive, rule: [Rule::Split, Rule::Composite][seed as usize % 2] };
        let Some(PromisedCase { system, .. }) = admitted(&mut draws(seed), kind) else { continue };
        let counted_on = &system.platform.interference.envelopes;
        let tolerates = system.channels.iter().filter(|channel| channel.contract.tolerance().is_some()).count();
        match &system.platform.claims[..] {
            [_, tolerant] if tolerant.envelopes == *counted_on => {
                assert_eq!(tolerates, system.channels.len());
                less += 1;
            }
            [rarest, _] if rarest.envelopes == *counted_on => all += usize::from(tolerates > 0),
            claims => assert!(claims.is_empty(), "{claims:?}"),
        }
    }
    assert!(less > 20 && all > 20, "{less} and {all}");
}
