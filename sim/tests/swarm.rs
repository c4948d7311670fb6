//! A swarm of short worlds: nothing is found, and it is the same on any number of threads.

use laxity_sim::swarm;

#[test]
fn nothing_is_found_and_threads_change_nothing() {
    let totals = swarm::run(1_000, 400, 1, |_| {});
    assert!(totals.failures.is_empty(), "{:#?}", totals.failures);
    assert_eq!(totals, swarm::run(1_000, 400, 3, |_| {}));
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

/// Worlds that found something once; what it was stands where it was mended, in `laxity_core::receive`.
#[test]
fn what_was_found_stays_mended() {
    // A message whose last packets come later than its first one, the clocks differing.
    let spread = [200, 224, 266];
    // Copies that take the places of packets; messages that come late and defer others; messages that overtake others.
    let (doubled, deferred) = ([55, 89, 114, 121], [17_739, 22_438, 37_871, 48_817]);
    let overtaken = [27_733, 39_140, 46_581, 50_009, 50_156, 51_162, 200_456, 242_914];
    for seed in spread.into_iter().chain(doubled).chain(deferred).chain(overtaken) {
        let outcome = swarm::world(seed);
        assert!(outcome.findings.is_empty(), "{outcome:#?}");
    }
}
