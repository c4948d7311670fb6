//! Many calibrations from each distribution: how often is a claim below the truth?

use laxity_core::admission::confidence::Samples;
use laxity_core::units::Duration;

use crate::distributions::{Distribution, all};
use crate::{Random, chance, float, probability};

/// Targets and alphas; no number of values here is enough for the last target.
const ASKED: [(f64, f64); 6] = [(0.1, 0.05), (0.01, 0.05), (0.001, 0.05), (0.01, 0.25), (0.01, 0.01), (1e-6, 0.05)];

/// Values of a calibration, and how many calibrations.
const SIZES: [(usize, u32); 5] = [(1, 600), (10, 600), (100, 600), (3000, 300), (30_000, 40)];

fn check(known: &Distribution, values: usize, trials: u32) {
    let mut wrong = [0u32; ASKED.len()];
    for trial in 0..trials {
        let mut random = Random::new(u64::from(trial) << 32 | values as u64);
        let samples = Samples::new((0..values).map(|_| (Duration::from_nanos((known.sample)(&mut random)), 1)));
        for ((target, alpha), wrong) in ASKED.iter().zip(&mut wrong) {
            let claim = samples.claim(probability(*target), probability(*alpha)).unwrap();
            *wrong += u32::from((known.exceeds)(claim.value.as_nanos()) > float(claim.exceedance));
            // Too few for the target: the largest, and no more than it carries.
            let is_enough = claim.exceedance <= probability(*target);
            assert!(is_enough || claim.allowed == 0 && Some(claim.value) == samples.largest());
        }
    }
    for ((target, alpha), wrong) in ASKED.iter().zip(wrong) {
        let (fewest, most) = chance(trials, *alpha);
        let at = format!("{}, {values} values, target {target}, alpha {alpha}: {wrong} of {trials}", known.name);
        assert!(f64::from(wrong) <= most, "{at}");
        // The bound is the exact one: fewer would show that the test cannot fail.
        assert!(!known.plain || f64::from(wrong) >= fewest, "{at}");
    }
}

#[test]
fn no_claim_is_below_the_truth_more_often_than_it_may_be() {
    for known in all() {
        for (values, trials) in SIZES {
            check(&known, values, trials);
        }
    }
}

/// The test of the test: a claim of what was merely seen is wrong far more often.
#[test]
fn what_was_merely_seen_is_no_claim() {
    for known in all().iter().filter(|known| known.plain) {
        let wrong = (0..200).filter(|trial| {
            let mut random = Random::new(*trial);
            let mut values: Vec<u64> = (0..1000).map(|_| (known.sample)(&mut random)).collect();
            values.sort_unstable();
            // 10 of 1,000 were above.
            (known.exceeds)(values[989]) > 0.01
        });
        assert!(wrong.count() > 60, "{}", known.name);
    }
}
