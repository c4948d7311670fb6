//! Probabilities as decimal fractions, exact to their unit of 10⁻¹², as files and output have them.

use laxity_core::admission::confidence::Probability;

/// `0.000075`: without trailing zeros; `0` and `1` as such.
pub fn decimal(probability: Probability) -> String {
    probability.to_string()
}
