//! Windows that follow one another depend on one another: a stall that outlasts one steals from the next. Which of them count?
//!
//! **The stride.** A stride m is enough if, for it and for every longer one, a window and the one m later exceed upper quantiles
//! of what was measured together no more often than independent windows would. Of n windows let E exceed a quantile (and
//! p = E/n), and let J(m) be how many of them do so m windows later again, the last followed by the first. Then
//!
//! ```text
//! μ = E²/n                                         what independence gives
//! ρ_j = (J(j) − μ)⁺/(E (1 − p))                    how much windows j apart agree
//! c = 1 + 2 Σ over strides j < m of (j' − j) ρ_j²  J comes in clusters of so many; j' is the next stride
//! m is refused if J(m) > μ + 4 √(c μ) (1 − p) + (2c − 1, or 0 if μ < c/1000)
//! ```
//!
//! The quantiles are 1/8, 1/4, 1/2, 3/4, 7/8 and so on, up to the one that is exceeded twice. The lower ones see whether windows
//! as a whole depend on one another, by their ranks; the upper ones whether large values come in clusters. `√(c μ) (1 − p)` is
//! the standard deviation of a count in clusters of c; the addend lets rare events meet once, unless even that is a
//! coincidence of less than one in a thousand. Now and then windows are thinned without need, which costs confidence and
//! never soundness.
//!
//! Strides are primes next below powers of two. What comes every so many windows, as a timer's tick does, is then not met again
//! a stride later, but goes through all places of the thinned windows.
//!
//! **The claim.** The stride has m phases: windows i, m + i, 2m + i ... Each phase is a calibration of independent windows, whose
//! claim is wrong in a share alpha of all calibrations at most; and k depends on its number of windows alone. The largest value and
//! the largest exceedance of all phases claim no more than the first phase does, so they are wrong no more often. So no window is
//! wasted, and no stall that was seen is left out by luck of the phase. The price is in n, which is that of one phase.
//!
//! **What this cannot show.** That windows are independent: only that nothing speaks against it in the pairs that were
//! looked at. A host that changes its ways less often than the calibration lasts looks like a steady one, whatever is
//! computed here. What recurs exactly with a multiple of the stride does so in one phase alone; the largest value of all
//! phases then contains it, but that is an argument for the value, not for the confidence. And less than about 4 √(c μ) pairs
//! too many among n are not seen; they add a part of 8 √(c/n) to the variance of a phase's count, for each such lag.

use alloc::vec::Vec;

use super::Probability;
use super::samples::{Allowed, Claim};
use crate::units::Duration;

/// What is tried, shortest first.
pub const STRIDES: [usize; 13] = [1, 2, 3, 7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093];

/// A stride is tried only with so many windows in each of its phases: from 32 on, windows that agree as much at every distance,
/// as those of a host that changed once, are refused although c grows with the stride.
const FEWEST_IN_PHASE: usize = 64;

/// Fewer windows show nothing about each other.
pub const FEWEST_WINDOWS: usize = FEWEST_IN_PHASE;

/// What is claimed of windows that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinned {
    /// m: how far apart windows were taken as independent.
    pub stride: u64,
    /// The claim of m phases together; `samples` and `allowed` are those of the shortest phase.
    pub claim: Claim,
}

/// The claim for what is stolen in a window, from all windows in the order of time, nanoseconds each. With too few windows for
/// the target it claims no more than they carry, as [`Samples::claim`](super::Samples::claim).
///
/// `None` if there are fewer than [`FEWEST_WINDOWS`], or no stride is enough: then nothing is known of a window but that no more
/// than all of it can be stolen. Takes time in proportion to n log n, and memory for n values.
pub fn claim(stolen: &[u32], target: Probability, alpha: Probability) -> Option<Thinned> {
    let stride = stride(stolen)?;
    let fewest = stolen.len() / stride;
    // A phase has this many windows or one more.
    let allowed = [fewest, fewest + 1].map(|windows| Allowed::or_none(windows as u64, target, alpha));
    let mut phase: Vec<u32> = Vec::with_capacity(fewest + 1);
    let mut value = 0;
    for first in 0..stride {
        phase.clear();
        phase.extend(stolen[first..].iter().step_by(stride));
        // k is less than the number of windows.
        let place = phase.len() - 1 - allowed[phase.len() - fewest].exceedances as usize;
        value = value.max(*phase.select_nth_unstable(place).1);
    }
    let longer = !stolen.len().is_multiple_of(stride);
    let exceedance = if longer { allowed[0].exceedance.max(allowed[1].exceedance) } else { allowed[0].exceedance };
    let (value, allowed) = (Duration::from_nanos(value.into()), allowed[0].exceedances);
    Some(Thinned { stride: stride as u64, claim: Claim { value, samples: fewest as u64, allowed, exceedance, alpha } })
}

/// The least of [`STRIDES`] from which on nothing speaks against independence; `None` if there is none, or too few windows.
pub fn stride(stolen: &[u32]) -> Option<usize> {
    if stolen.len() < FEWEST_WINDOWS {
        return None;
    }
    let levels = Levels::new(stolen);
    let mut clusters: Vec<Clusters> = levels.exceeding.iter().map(|_| Clusters::default()).collect();
    let mut enough = None;
    for (place, &stride) in STRIDES.iter().enumerate() {
        if stride > stolen.len() / FEWEST_IN_PHASE {
            break;
        }
        let until_next = STRIDES.get(place + 1).map_or(0, |next| next - stride);
        let mut independent = true;
        for ((&exceeding, pairs), clusters) in levels.exceeding.iter().zip(levels.pairs(stride)).zip(&mut clusters) {
            let count = Count { windows: stolen.len() as u128, exceeding: exceeding.into(), pairs: pairs.into() };
            independent &= count.may_be_chance(clusters.length());
            clusters.add(&count, until_next as u128);
        }
        enough = if independent { enough.or(Some(stride)) } else { None };
    }
    enough
}

/// How many of the quantiles each window exceeds.
struct Levels {
    /// For each window; there are less than 2⁶ quantiles.
    of: Vec<u8>,
    /// How many windows exceed each quantile: fewer with each.
    exceeding: Vec<u64>,
}

impl Levels {
    /// `stolen` is not empty.
    fn new(stolen: &[u32]) -> Self {
        let n = stolen.len();
        let mut sorted = stolen.to_vec();
        sorted.sort_unstable();
        let (mut quantiles, mut exceeding) = (Vec::new(), Vec::new());
        let upper = (1..usize::BITS).map(|halved| n >> halved).take_while(|above| *above >= 2);
        for above in [n - n / 8, n - n / 4].into_iter().chain(upper) {
            let quantile = sorted[n - 1 - above.min(n - 1)];
            let exceed = (n - sorted.partition_point(|value| *value <= quantile)) as u64;
            // Equal values may leave less above than asked for.
            if exceed >= 2 && quantiles.last() != Some(&quantile) {
                quantiles.push(quantile);
                exceeding.push(exceed);
            }
        }
        let level = |value: &u32| quantiles.partition_point(|quantile| quantile < value) as u8;
        Self { of: stolen.iter().map(level).collect(), exceeding }
    }

    /// J for each quantile: how many windows exceed it, and do so `lag` later again.
    fn pairs(&self, lag: usize) -> Vec<u64> {
        let mut both = [0u64; 1 << 8];
        let (early, late) = self.of.split_at(lag);
        for (one, other) in self.of.iter().zip(late.iter().chain(early)) {
            both[usize::from(*one.min(other))] += 1;
        }
        let mut pairs: Vec<u64> = both[1..=self.exceeding.len()].to_vec();
        for level in (1..pairs.len()).rev() {
            pairs[level - 1] += pairs[level];
        }
        pairs
    }
}

/// n, E and J.
struct Count {
    windows: u128,
    exceeding: u128,
    pairs: u128,
}

/// Fixed point: so many to one.
const SCALE: u128 = 1 << 16;

impl Count {
    /// μ, scaled.
    fn expected(&self) -> u128 {
        self.exceeding * self.exceeding * SCALE / self.windows
    }

    /// Whether so many pairs need no dependence, in clusters of `length`, scaled.
    fn may_be_chance(&self, length: u128) -> bool {
        let expected = self.expected();
        let deviation = (length * expected).isqrt() * (self.windows - self.exceeding) / self.windows;
        let rare = if expected * 1000 < length { 0 } else { 2 * length - SCALE };
        self.pairs * SCALE <= expected + 4 * deviation + rare
    }
}

/// c, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Clusters {
    /// Σ (j' − j) ρ_j² so far, scaled.
    sum: u128,
}

impl Clusters {
    fn length(self) -> u128 {
        SCALE + 2 * self.sum
    }
    fn add(&mut self, count: &Count, until_next: u128) {
        let excess = (count.pairs * SCALE).saturating_sub(count.expected());
        // The quantile itself does not exceed it, so there are windows that do not.
        let excess = excess * count.windows / (count.exceeding * (count.windows - count.exceeding));
        self.sum += until_next * (excess * excess / SCALE);
    }
}

#[cfg(test)]
mod tests;
