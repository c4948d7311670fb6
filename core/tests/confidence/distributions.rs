//! Distributions whose tails are known, of whole nanoseconds.

use crate::Random;

/// A distribution.
pub(crate) struct Distribution {
    pub(crate) name: &'static str,
    pub(crate) sample: Box<dyn Fn(&mut Random) -> u64>,
    /// P(X > value).
    pub(crate) exceeds: Box<dyn Fn(u64) -> f64>,
    /// Whether values are hardly ever equal: then a claim is wrong just as often as it may be.
    pub(crate) plain: bool,
}

/// No value is larger.
const LARGEST: f64 = 1e18;

/// The whole part of what exceeds x with the probability tail(x); `quantile` is the tail's inverse.
fn plain(name: &'static str, quantile: fn(f64) -> f64, tail: fn(f64) -> f64) -> Distribution {
    Distribution {
        name,
        sample: Box::new(move |random| quantile(random.unit()).min(LARGEST) as u64),
        exceeds: Box::new(move |value| if value as f64 >= LARGEST { 0.0 } else { tail((value + 1) as f64) }),
        plain: true,
    }
}

fn pareto_tail(x: f64, shape: f64) -> f64 {
    (1000.0 / x.max(1000.0)).powf(shape)
}

/// 1 − Φ(x), by the Chebyshev approximation of erfc whose relative error is below 1.2·10⁻⁷ (Press et al., Numerical Recipes).
fn normal_tail(x: f64) -> f64 {
    let z = x.abs() / 2f64.sqrt();
    let t = 1.0 / (1.0 + 0.5 * z);
    let terms = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let half = 0.5 * t * (sum - z * z).exp();
    if x >= 0.0 { half } else { 1.0 - half }
}

/// Values with their probabilities.
fn atoms(name: &'static str, atoms: &'static [(u64, f64)]) -> Distribution {
    Distribution {
        name,
        sample: Box::new(move |random| {
            let mut left = random.unit();
            let found = atoms.iter().find(|atom| {
                left -= atom.1;
                left < 0.0
            });
            found.or(atoms.last()).map_or(0, |atom| atom.0)
        }),
        exceeds: Box::new(move |value| atoms.iter().filter(|atom| atom.0 > value).map(|atom| atom.1).sum()),
        plain: false,
    }
}

/// The end of a histogram's bin: values of more than five bits by the upper five.
fn bin_end(value: u64) -> u64 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(5);
    value | ((1 << shift) - 1)
}

pub(crate) fn all() -> Vec<Distribution> {
    let heavy = || plain("Pareto 1.1", |u| 1000.0 * u.powf(-1.0 / 1.1), |x| pareto_tail(x, 1.1));
    let binned = heavy();
    vec![
        plain("uniform", |u| 1e9 * (1.0 - u), |x| (1.0 - x / 1e9).max(0.0)),
        plain("exponential", |u| -1e6 * u.ln(), |x| (-x / 1e6).exp()),
        heavy(),
        plain("Pareto 0.5", |u| 1000.0 * u.powf(-2.0), |x| pareto_tail(x, 0.5)),
        plain("Weibull 0.3", |u| 1e5 * (-u.ln()).powf(1.0 / 0.3), |x| (-(x / 1e5).powf(0.3)).exp()),
        Distribution {
            name: "log-normal 3",
            sample: Box::new(|random| {
                let (radius, turn) = ((-2.0 * random.unit().ln()).sqrt(), std::f64::consts::TAU * random.unit());
                (1e6 * (3.0 * radius * turn.cos()).exp()).min(LARGEST) as u64
            }),
            exceeds: Box::new(|value| normal_tail(((value + 1) as f64 / 1e6).ln() / 3.0)),
            plain: true,
        },
        Distribution {
            name: "mostly nothing, and stalls of 10 ms once in 10,000",
            sample: Box::new(|random| match random.unit() {
                u if u < 1e-4 => 10_000_000,
                u if u < 0.3 => random.exponential(3000.0) as u64,
                _ => 0,
            }),
            exceeds: Box::new(|value| {
                let stalls = if value < 10_000_000 { 1e-4 } else { 0.0 };
                stalls + 0.2999 * (-((value + 1) as f64) / 3000.0).exp()
            }),
            plain: false,
        },
        atoms(
            "few different values",
            &[(0, 0.5), (1, 0.3), (5, 0.15), (100, 0.04), (10_000, 0.0099), (1_000_000, 0.0001)],
        ),
        atoms("as many stalls as the target allows", &[(7, 0.99), (50_000, 0.01)]),
        atoms("always the same", &[(42, 1.0)]),
        Distribution {
            name: "Pareto 1.1, by the ends of a histogram's bins",
            sample: Box::new(move |random| bin_end((binned.sample)(random))),
            // Of the value itself, not of its bin's end.
            exceeds: heavy().exceeds,
            plain: false,
        },
    ]
}

#[test]
fn the_tails_are_those_of_the_samples() {
    assert!((normal_tail(1.959_964) - 0.025).abs() < 1e-7 && (normal_tail(-1.0) - 0.841_344_75).abs() < 1e-6);
    for known in all() {
        let mut random = Random::new(99);
        let mut values: Vec<u64> = (0..20_000).map(|_| (known.sample)(&mut random)).collect();
        values.sort_unstable();
        for rank in [2000, 10_000, 18_000, 19_800] {
            let value = values[rank];
            let above = values.iter().filter(|other| **other > value).count() as f64 / 20_000.0;
            let expected = (known.exceeds)(value);
            let deviation = (expected * (1.0 - expected) / 20_000.0).sqrt();
            // A bin's end is not exceeded by what is in the bin.
            assert!((above - expected).abs() <= 4.0 * deviation + 1e-9, "{}: {above} against {expected}", known.name);
        }
    }
}
