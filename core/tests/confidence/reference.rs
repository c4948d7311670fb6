//! The bound of Clopper and Pearson against floating point.

use laxity_core::admission::confidence::{Probability, exceedances_allowed, upper_bound};
use proptest::prelude::*;

/// P(Bin(n, p) ≤ k), by logarithms.
fn tail(k: u64, n: u64, p: f64) -> f64 {
    let mut log = n as f64 * (-p).ln_1p();
    let mut logs = vec![log];
    for j in 0..k {
        log += ((n - j) as f64 / (j + 1) as f64).ln() + p.ln() - (-p).ln_1p();
        logs.push(log);
    }
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most.exp() * logs.iter().map(|log| (log - most).exp()).sum::<f64>()
}

fn reference(k: u64, n: u64, alpha: f64) -> f64 {
    let (mut below, mut enough) = (0.0, 1.0);
    for _ in 0..80 {
        let middle = (below + enough) / 2.0;
        if tail(k, n, middle) <= alpha { enough = middle } else { below = middle }
    }
    enough
}

/// Never below, apart from the reference's own error; above by less than a part in 10⁶ or two steps.
fn check(k: u64, n: u64, alpha: Probability) {
    let claimed = upper_bound(k, n, alpha).parts() as f64 / 1e12;
    let true_bound = reference(k, n, alpha.parts() as f64 / 1e12);
    assert!(claimed >= true_bound * (1.0 - 1e-8), "{k} of {n}: {claimed} < {true_bound}");
    assert!(claimed <= true_bound * (1.0 + 1e-6) + 2e-12, "{k} of {n}: {claimed} > {true_bound}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_bound_is_that_of_clopper_and_pearson(
        n in prop_oneof![1u64..100, 1u64..10_000, 1u64..10_000_000], share in 0.0f64..1.0, power in 1.0f64..6.0,
        alpha in prop_oneof![1u64..500_000, 1u64..1000],
    ) {
        let k = ((share.powf(power) * n as f64) as u64).min(2000).min(n - 1);
        check(k, n, Probability::from_millionths(alpha));
    }
}

#[test]
fn corners() {
    for alpha in [50_000_000_000, 10_000_000_000, 1_000_000, 1].map(Probability::from_parts) {
        for (k, n) in [(0, 1), (0, 10_000_000), (1, 10_000_000), (1000, 10_000_000), (999, 1000), (500, 1000)] {
            check(k, n, alpha);
        }
    }
}

#[test]
fn many_exceedances_take_no_longer_than_a_moment() {
    // p = .3 ± .0003: the normal approximation, 1.6449 standard deviations above.
    let claimed = upper_bound(3_000_000, 10_000_000, Probability::from_millionths(50_000)).parts() as f64 / 1e12;
    assert!((claimed - 0.300_238_4).abs() < 1e-6, "{claimed}");
}

#[test]
fn clean_windows() {
    for (target, alpha) in [(0.01, 0.05), (0.001, 0.01), (0.000_001, 0.05), (0.25, 0.3)] {
        let millionths = |p: f64| Probability::from_millionths((p * 1e6).round() as u64);
        let windows = (f64::ln(alpha) / f64::ln_1p(-target)).ceil() as u64;
        let allowed = |windows| exceedances_allowed(windows, millionths(target), millionths(alpha));
        assert_eq!((allowed(windows), allowed(windows - 1)), (Some(0), None));
    }
}
