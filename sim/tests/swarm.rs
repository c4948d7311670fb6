//! A swarm of short worlds: nothing is found, and it is the same on any number of threads.

use laxity_sim::{FaultKind, swarm};

#[test]
fn nothing_is_found_and_threads_change_nothing() {
    let totals = swarm::run(swarm::world, 30_000, 400, 1, |_| {});
    assert!(totals.failures.is_empty(), "{:#?}", totals.failures);
    assert_eq!(totals, swarm::run(swarm::world, 30_000, 400, 3, |_| {}));
    // It is no idle world either: every fault came, and everything that it can do happened.
    let counts = &totals.counts;
    assert!(counts.faults.iter().all(|&count| count > 0), "{counts:?}");
    assert!(counts.late > 0 && counts.lost > 0 && counts.violations > 0 && counts.refused > 0, "{counts:?}");
    let misses = counts.misses;
    assert!(misses.network > 0 && misses.platform > 0 && misses.receiver > 0 && misses.sender > 0, "{misses:?}");
    assert_eq!((misses.laxity, counts.over_bound), (0, 0));
}

#[test]
fn worlds_of_two_clocks_find_nothing_and_are_no_idle_worlds() {
    let of_clocks = |threads| swarm::run(swarm::clocks::world, 0, 400, threads, |_| {});
    let totals = of_clocks(1);
    assert!(totals.failures.is_empty(), "{:#?}", totals.failures);
    assert_eq!(totals, of_clocks(3));
    let counts = &totals.counts;
    let [late, undecided, decidable] = [counts.late, counts.undecided, counts.decidable].map(|part| part * 50);
    assert!(late > counts.delivered && undecided > counts.delivered && decidable > counts.delivered, "{counts:?}");
    assert!(counts.undecided * 2 < counts.delivered, "{counts:?}");
    let faults = counts.faults.iter().zip(FaultKind::NAMES);
    let came: Vec<_> = faults.filter(|(count, _)| **count > 0).map(|(_, name)| *name).collect();
    let expected = ["loss", "reordering", "duplication", "delay", "clock_step", "clock_drift", "clock_standstill"];
    assert_eq!(came, expected);
}

/// What the worlds of two clocks found: for how long a message was held back was counted by its sender's clock. Where that was fast, it was
/// more than all that the message took, and the message undecided.
#[test]
fn spans_of_a_fast_clock_are_not_taken_for_ours() {
    for seed in [2_211, 2_843, 5_971] {
        let outcome = swarm::clocks::world(seed);
        assert!(outcome.findings.is_empty(), "{outcome:#?}");
    }
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
