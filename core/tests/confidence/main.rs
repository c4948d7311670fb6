//! What measured values let one claim, against what is known: the bound itself against floating point, claims on known
//! distributions and on windows that depend on one another, and what follows for a message.

mod correlated;
mod distributions;
mod evidence;
mod independent;
mod messages;
mod reference;

use laxity_core::admission::confidence::Probability;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    /// Above 0, below 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
}

fn probability(p: f64) -> Probability {
    Probability::from_parts((p * 1e12).round() as u64)
}

fn float(p: Probability) -> f64 {
    p.parts() as f64 / 1e12
}

/// Fewest and most of `trials` that can be wrong if each is with a probability of `alpha`: 3.5 standard deviations around their
/// mean, which is left about once in 2,000 such tests, and one.
fn chance(trials: u32, alpha: f64) -> (f64, f64) {
    let (mean, deviation) = (f64::from(trials) * alpha, (f64::from(trials) * alpha * (1.0 - alpha)).sqrt());
    (mean - 3.5 * deviation - 1.0, mean + 3.5 * deviation + 1.0)
}
