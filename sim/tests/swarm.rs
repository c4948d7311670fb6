//! A swarm of short worlds: nothing is found, and it is the same on any number of threads.

use laxity_sim::swarm;

#[test]
fn nothing_is_found_and_threads_change_nothing() {
    let totals = swarm::run(30_000, 400, 1, |_| {});
    assert!(totals.failures.is_empty(), "{:#?}", totals.failures);
    assert_eq!(totals, swarm::run(30_000, 400, 3, |_| {}));
    // It is no idle world either: every fault came, and everything that it can do happened.
    let counts = &totals.counts;
    assert!(counts.faults.iter().all(|&count| count > 0), "{counts:?}");
    assert!(counts.late > 0 && counts.lost > 0 && counts.violations > 0 && counts.refused > 0, "{counts:?}");
    let misses = counts.misses;
    assert!(misses.network > 0 && misses.platform > 0 && misses.receiver > 0 && misses.sender > 0, "{misses:?}");
    assert_eq!((misses.laxity, counts.over_bound), (0, 0));
}

#[test]
fn a_seed_is_a_world() {
    let mut digests: Vec<_> = (0..50).map(|seed| swarm::world(seed).digest.0).collect();
    assert_eq!(digests[7], swarm::world(7).digest.0);
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 50);
}

/// A world that found something once: over-contract messages push out others that wait for their time, and what is left of those
/// is in the way of the next one. (What was found before is in `core/tests/late_packets.rs` alone: the drawing has changed since.)
#[test]
fn what_was_found_stays_mended() {
    let outcome = swarm::world(37_443);
    assert!(outcome.findings.is_empty(), "{outcome:#?}");
}

/// What the swarm found when turns became the driver's: what was made since the links were last fed still waited when the endpoint
/// was asked whether it had caught up; a gap in a hand-over was told after the next packet was stamped; a late wake-up of less than
/// 100 µs was not told; and the envelope of a message's whole life was taken off a gap in its last stage. Then, while that was
/// mended: a host that slept while packets waited for its link was taken to have caught up.
#[test]
fn what_the_driver_told_too_late_is_told() {
    for seed in [36_717, 75_970, 88_462, 65_481, 5_972, 8_972, 15_784] {
        let outcome = swarm::world(seed);
        assert!(outcome.findings.is_empty(), "{seed}: {outcome:#?}");
    }
}
