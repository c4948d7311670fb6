//! The claims that measured interference supports, and their confidence.
//!
//! Values are measured n times, and do not depend on one another: so it is with costs. Stolen time is measured in windows of length w, which do:
//! of these, batches are counted in the windows' place ([`batches`]), and the rest is the same. A budget q is then
//! claimed for the platform's envelope ([`crate::platform::Interference`]): a window exceeds q with probability p at most, and this
//! claim is wrong in a share alpha of all calibrations at most.
//!
//! ```text
//! p_up(k, n, alpha) = the p with P(Bin(n, p) ≤ k) = alpha       Clopper and Pearson; 1 − alpha^{1/n} for k = 0
//! k = the largest with p_up(k, n, alpha) ≤ target               none if n < ln alpha / ln (1 − target)
//! q = the (n − k)-th smallest of the n values
//! P(a message misses) ≤ (⌈R/w⌉ + 2) p_up                        R touches so many pairs of windows at most
//! ```
//!
//! k follows from n, the target and alpha alone, never from the values: whatever their distribution is, its true exceedance
//! of the (n − k)-th value is more than p_up only if at most k of n windows lie in its upper p_up, which has probability
//! alpha. That fewer than k windows exceed q, because values are equal, is therefore no ground for a smaller claim.
//! The last line adds up probabilities, so windows inside R may depend on one another. R has to be the longest span
//! over which the analysis counts on the budget: a busy period in which a message would miss may have begun before the message
//! came. And as one stall may make many messages late, also such as come when it is long over, R is how long it can be felt:
//! longer than any busy period without it. The head of `span.rs` says what R is then, and why the line holds; it also
//! takes care of several envelopes ([`super::Admission::miss_probability`]). If several lengths of window are claimed at
//! once, alpha is divided among them; and if the analysis counts on more than one of them, their miss
//! probabilities add up.
//!
//! With too few windows for the target, no budget carries it. Then the largest value is claimed with the p_up of k = 0, which
//! is above the target ([`Samples::claim`]): k still follows from n alone.
//!
//! **What it rests on.** What is measured is drawn as what the run time will be: same load, same machine. A host that changes afterwards voids the claim; that is found by counting violations, not here.
//!
//! **Integers.** Probabilities are multiples of 10⁻¹². The binomial sum is computed in a number of 64 significant bits and
//! a wide exponent, every step rounded up, so it is never less than the true one; and p_up is the least probability found
//! whose sum, so computed, is at most alpha. So a claim is never below the true bound. Each step errs by 2⁻⁶³ and a power to the
//! n by some n·2⁻⁶², so that for up to 10¹² windows a claim is above by less than a part in 10⁶, or by two units.

use super::walk::least_above;
pub use crate::probability::Probability;
use crate::units::Duration;
use up::RoundedUp;

pub mod batches;
pub mod evidence;
mod samples;
mod up;

pub use samples::{QuantileClaim, Samples};

impl Probability {
    /// `1 − self`.
    const fn complement(self) -> Self {
        Self(Self::ONE.0 - self.0)
    }
    /// Rounded up.
    fn up(self) -> RoundedUp {
        RoundedUp::from(self.0).divided_by(Self::ONE.0)
    }
}

/// Most exceedances that are told apart: the work grows with them, some tenths of a second for so many.
pub const MOST_EXCEEDANCES: u64 = 1 << 22;

/// p_up: an upper bound for a probability, after `exceedances` in `windows` draws, wrong in a share `alpha` of all cases at most.
/// The bound of Clopper and Pearson, rounded up. One if nothing can be said: no windows, alpha zero, each window an exceedance, or
/// more exceedances than [`MOST_EXCEEDANCES`].
pub fn upper_bound(exceedances: u64, windows: u64, alpha: Probability) -> Probability {
    let alpha = alpha.min(Probability::HALF);
    if exceedances >= windows || exceedances > MOST_EXCEEDANCES || alpha == Probability::ZERO {
        return Probability::ONE;
    }
    let alpha = RoundedUp::parts_rounded_down(alpha.0, Probability::ONE.0);
    let ways = (0..exceedances).fold(RoundedUp::ONE, |ways, j| ways.times(windows - j).divided_by(j + 1));
    // With p = k/n, half of all cases have k or fewer: the bound is not below, as alpha is not above a half.
    let ratio = u128::from(exceedances) * u128::from(Probability::ONE.0) / u128::from(windows);
    let is_enough = |p| tail(exceedances, windows, Probability(p), ways) <= alpha;
    Probability(least_above(ratio as u64, Probability::ONE.0, is_enough))
}

/// P(Bin(n, p) ≤ k), rounded up, for k/n ≤ p < 1 and k < n; `ways` is n over k.
///
/// Summed from k downwards: from j to j − 1 a term changes by the factor `j (1 − p) / ((n − j + 1) p)`, which is at most
/// one for `j ≤ (n + 1) p`, so that the terms only fall, and those that are left are each at most the last one.
fn tail(k: u64, n: u64, p: Probability, ways: RoundedUp) -> RoundedUp {
    let (p, q) = (p.0, p.complement().0);
    let mut term = ways.mul(Probability(p).up().power(k)).mul(Probability(q).up().power(n - k));
    let mut sum = term;
    let factor = RoundedUp::from(q).divided_by(p);
    for j in (1..=k).rev() {
        term = term.mul(factor).times(j).divided_by(n - j + 1);
        let rest = term.times(j);
        if rest.is_negligible_beside(sum) {
            return sum.add(rest);
        }
        sum = sum.add(term);
    }
    sum
}

/// The largest number of windows that may exceed a budget of this exceedance: the largest k with `p_up(k, n, alpha) ≤ target`,
/// at most [`MOST_EXCEEDANCES`]. `None` if there are too few windows even for k = 0. Takes time in proportion to k.
pub fn exceedances_allowed(windows: u64, target: Probability, alpha: Probability) -> Option<u64> {
    let alpha = alpha.min(Probability::HALF);
    if windows == 0 || target == Probability::ZERO || alpha == Probability::ZERO {
        return None;
    }
    if target == Probability::ONE {
        return Some((windows - 1).min(MOST_EXCEEDANCES));
    }
    // p_up(k) ≤ target just if P(Bin(n, target) ≤ k) ≤ alpha.
    let alpha = RoundedUp::parts_rounded_down(alpha.0, Probability::ONE.0);
    let factor = RoundedUp::from(target.0).divided_by(target.complement().0);
    let mut term = target.complement().up().power(windows);
    let mut sum = term;
    if sum > alpha {
        return None;
    }
    let mut k = 0;
    while k + 1 < windows && k < MOST_EXCEEDANCES {
        term = term.mul(factor).times(windows - k).divided_by(k + 1);
        sum = sum.add(term);
        if sum > alpha {
            break;
        }
        k += 1;
    }
    Some(k)
}

/// The largest number of pairs of windows that a span touches, of which one begins half a window after the other, and the next pair half a window after that.
pub fn touched(span: Duration, window: Duration) -> u64 {
    span.div_ceil(window).saturating_add(2)
}

/// (⌈R/w⌉ + 2) p: the most that the probability of a miss is, if windows of this length are counted on, in spans of `response` at
/// most (see the module's head).
/// One for a length of zero.
pub fn miss_probability(response: Duration, window: Duration, exceedance: Probability) -> Probability {
    if window.is_zero() {
        return Probability::ONE;
    }
    exceedance.times(touched(response, window))
}

#[cfg(test)]
mod tests;
