//! Probabilities as decimal fractions, exact to their unit of 10⁻¹², as files and output have them.

use laxity_core::admission::confidence::Probability;

/// Writes a probability as a decimal without trailing zeros: `0.000075`, `0`, `1`.
pub fn decimal(probability: Probability) -> String {
    probability.to_string()
}
