//! Claims that are watched: how often is a true one withdrawn, and how soon a false one?

use laxity_core::admission::confidence::evidence::ClaimEvidence;

use crate::{Random, chance, probability};

/// Hosts of which the claim, one in fifty, is withdrawn within so many trials.
fn withdrawn(hosts: u32, trials: u64, event: impl Fn(&mut Random, u64) -> bool) -> u32 {
    let host = |seed: &u32| {
        let (mut random, mut evidence) =
            (Random::new(u64::from(*seed) + 1), ClaimEvidence::new(probability(0.02), probability(0.05)));
        (0..trials).for_each(|trial| evidence.trials(1, event(&mut random, trial)));
        evidence.is_enough()
    };
    (0..hosts).filter(host).count() as u32
}

/// However long it is watched: a claim that is exactly true, and one that is not.
#[test]
fn a_true_claim_is_seldom_withdrawn_and_a_false_one_soon() {
    let (_, most) = chance(2000, 0.05);
    let accused = withdrawn(2000, 5000, |random, _| random.unit() < 0.02);
    assert!(accused > 0 && f64::from(accused) <= most, "{accused}");
    let found = withdrawn(200, 500, |random, _| random.unit() < 0.06);
    assert!(found > 180, "{found}");
    // A host that changes its ways after two thousand.
    let changed = withdrawn(200, 3000, |random, trial| random.unit() < if trial < 2000 { 0.01 } else { 0.1 });
    // And one that does so after a million, at five times what is claimed.
    let late = withdrawn(20, 1, |random, _| {
        let mut evidence = ClaimEvidence::new(probability(0.02), probability(0.05));
        evidence.trials(1_000_000, false);
        (0..1000).for_each(|_| evidence.trials(1, random.unit() < 0.1));
        assert!(evidence.is_enough());
        false
    });
    assert_eq!(late, 0);
    println!(
        "of 2,000 true claims {accused} are withdrawn, of 200 false ones {found}, of 200 that became false {changed}"
    );
    assert!(changed > 100, "{changed}");
}
