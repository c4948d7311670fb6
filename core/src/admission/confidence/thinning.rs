//! Windows that follow one another depend on one another: a stall that outlasts one steals from the next. Which of them count?
//!
//! **The stride.** A stride m is enough if, for it and for every longer one, windows that are multiples of m apart exceed upper
//! quantiles of what was measured together no more often than independent windows would. Of n windows let E exceed a
//! quantile (and p = E/n), and let J be how many pairs do, of N pairs: all that are m apart, the first following on the last;
//! and all that are in the same block of b = 4, 32, 256, 2048 windows of a phase (windows i, i + m, i + 2m ...). Then
//!
//! ```text
//! μ = E (E − 1) N / (n (n − 1))                    what independence gives
//! ρ_j = (J(j) − μ)⁺/(E (1 − p))                    how much windows j apart agree
//! c = 1 + 2 Σ over strides j < m of (j' − j) ρ_j²  J comes in clusters of so many; j' is the next stride
//! m is refused if J > μ + 4 √(c μ) (1 − p) + (2c − 1, or 0 if μ < c/1000) + (8 b p (1 − p) for blocks)
//! ```
//!
//! The quantiles are 1/8, 1/4, 1/2, 3/4, 7/8 and so on, up to the one that is exceeded twice. The lower ones see whether windows
//! as a whole depend on one another, by their ranks; the upper ones whether large values come in clusters, and blocks see
//! it also where they are scattered over many windows. `√(c μ) (1 − p)` is the standard deviation of a count in clusters of c;
//! the first addend lets rare events meet once, unless even that is a coincidence of less than one in a thousand; the
//! second is for counts of blocks, whose squares have a longer tail (Laurent and Massart's bound for 4 deviations). About
//! one in ten calibrations of independent windows is thinned without need, mostly by little: that costs confidence and
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
//! **Parts.** Over minutes hosts change their ways: what else runs on them does, and what shares their processor with them. Then no stride is
//! enough, for windows agree at every distance. So what cannot be thinned as a whole is cut into 2, 4, 8 or 16 parts, one after the
//! other, until each of them can be: each is claimed by itself, at alpha divided among them, and the largest value and the largest exceedance
//! are claimed. That is true of the host as it was in the worst of the parts, and so of any mixture of them. How many parts there are follows
//! from the values; where the claim is the largest value of all, as with every target that is rarer than there are windows, that cannot make it
//! wrong more often, and else no more often than with each of the five numbers of parts together.
//!
//! **What this cannot show.** That windows are independent: only that nothing speaks against it in the pairs that were
//! looked at. What a calibration meets once or twice cannot be told from chance, and what it does not meet at all is unknown
//! to it: a host with times of many stalls, of which a calibration meets only a few, is believed too much (with ten times of
//! two scattered stalls each, one claim in ten was wrong at an alpha of one in twenty: `core/tests/confidence`),
//! whatever is computed here. And what recurs exactly with a multiple of the stride does so in one phase alone; the
//! largest value of all phases then contains it, but that is an argument for the value, not for the confidence. What recurs
//! nearly so, as throttling for 50 ms in every second may, has no stride at all.

use alloc::vec;
use alloc::vec::Vec;

use super::Probability;
use super::samples::{Allowed, Claim};
use crate::units::Duration;

/// What is tried, shortest first.
pub const STRIDES: [usize; 13] = [1, 2, 3, 7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093];

/// A stride is tried only with so many windows in each of its phases: from 32 on, windows that agree as much at every distance,
/// as those of a host that changed once, are refused although c grows with the stride.
const FEWEST_IN_PHASE: usize = 64;

/// Windows of a phase that are looked at together, and how many such blocks there have to be.
const BLOCKS: [usize; 4] = [4, 32, 256, 2048];
const FEWEST_BLOCKS: usize = 16;

/// Fewer windows show nothing about each other.
pub const FEWEST_WINDOWS: usize = FEWEST_IN_PHASE;

/// What is claimed of windows that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinned {
    /// In so many parts, one after the other, the windows are claimed by themselves.
    pub parts: u64,
    /// m: how far apart windows were taken as independent; of all parts the farthest.
    pub stride: u64,
    /// The claim of m phases of all parts together; `samples` and `allowed` are those of the shortest phase.
    pub claim: Claim,
}

/// What is tried, fewest first.
pub const PARTS: [usize; 5] = [1, 2, 4, 8, 16];

/// The claim for what is stolen in a window, from all windows in the order of time, nanoseconds each. With too few windows for
/// the target it claims no more than they carry, as [`Samples::claim`](super::Samples::claim).
///
/// `None` if there are fewer than [`FEWEST_WINDOWS`], or no stride is enough for any of [`PARTS`]: then nothing is known of a window but
/// that no more than all of it can be stolen. Takes time in proportion to n log n, and memory for n values.
pub fn claim(stolen: &[u32], target: Probability, alpha: Probability) -> Option<Thinned> {
    PARTS.iter().find_map(|&parts| in_parts(stolen, parts, target, alpha))
}

/// The claim that holds for each of so many parts; `None` if one of them has none.
fn in_parts(stolen: &[u32], parts: usize, target: Probability, alpha: Probability) -> Option<Thinned> {
    let each = stolen.len() / parts;
    if each < FEWEST_WINDOWS {
        return None;
    }
    let own = alpha.divided_by(parts as u64);
    let part = |number| {
        let until = if number + 1 == parts { stolen.len() } else { (number + 1) * each };
        as_a_whole(&stolen[number * each..until], target, own)
    };
    let mut worst = part(0)?;
    for number in 1..parts {
        let Thinned { stride, claim, .. } = part(number)?;
        worst.stride = worst.stride.max(stride);
        worst.claim.value = worst.claim.value.max(claim.value);
        worst.claim.exceedance = worst.claim.exceedance.max(claim.exceedance);
        if claim.samples < worst.claim.samples {
            (worst.claim.samples, worst.claim.allowed) = (claim.samples, claim.allowed);
        }
    }
    Some(Thinned { parts: parts as u64, claim: Claim { alpha, ..worst.claim }, ..worst })
}

/// The claim of windows that are all alike; `None` if no stride is enough.
fn as_a_whole(stolen: &[u32], target: Probability, alpha: Probability) -> Option<Thinned> {
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
    let claim = Claim { value, samples: fewest as u64, allowed, exceedance, alpha };
    Some(Thinned { parts: 1, stride: stride as u64, claim })
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
        let blocks = BLOCKS.iter().filter(|block| stolen.len() / stride >= **block * FEWEST_BLOCKS);
        let mut independent = true;
        for block in blocks {
            let counts = levels.pairs_in_blocks(stride, *block);
            independent &=
                counts.iter().zip(&clusters).all(|(count, clusters)| count.may_be_chance(*block, clusters.length()));
        }
        for (count, clusters) in levels.pairs(stride).iter().zip(&mut clusters) {
            independent &= count.may_be_chance(0, clusters.length());
            clusters.add(count, until_next as u128);
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

    /// How many windows exceed each quantile, and do so `lag` later again.
    fn pairs(&self, lag: usize) -> Vec<Count> {
        let mut both = [0u64; 1 << 8];
        let (early, late) = self.of.split_at(lag);
        for (one, other) in self.of.iter().zip(late.iter().chain(early)) {
            both[usize::from(*one.min(other))] += 1;
        }
        let mut pairs: Vec<u64> = both[1..=self.exceeding.len()].to_vec();
        for level in (1..pairs.len()).rev() {
            pairs[level - 1] += pairs[level];
        }
        self.counts(&pairs, self.of.len() as u64)
    }

    /// How many pairs of windows exceed each quantile, of those in the same block: `block` windows of a phase of the stride, one
    /// after the other.
    fn pairs_in_blocks(&self, stride: usize, block: usize) -> Vec<Count> {
        let mut pairs = vec![0; self.exceeding.len()];
        let mut looked_at = 0;
        let mut in_block = [0u64; 1 << 8];
        for first in 0..stride {
            let mut phase = self.of[first..].iter().step_by(stride);
            loop {
                let windows = phase.by_ref().take(block).fold(0u64, |windows, level| {
                    in_block[usize::from(*level)] += 1;
                    windows + 1
                });
                if windows == 0 {
                    break;
                }
                looked_at += windows * (windows - 1) / 2;
                let mut exceeding = 0u64;
                for (pairs, count) in pairs.iter_mut().zip(&in_block[1..]).rev() {
                    exceeding += count;
                    *pairs += exceeding * exceeding.saturating_sub(1) / 2;
                }
                in_block[..=pairs.len()].fill(0);
            }
        }
        self.counts(&pairs, looked_at)
    }

    fn counts(&self, pairs: &[u64], looked_at: u64) -> Vec<Count> {
        let windows = self.of.len() as u128;
        let count = |(&exceeding, &pairs): (&u64, &u64)| Count {
            windows,
            exceeding: exceeding.into(),
            looked_at: looked_at.into(),
            pairs: pairs.into(),
        };
        self.exceeding.iter().zip(pairs).map(count).collect()
    }
}

/// Pairs of windows both of which exceed a quantile.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// n.
    windows: u128,
    /// E; at least two.
    exceeding: u128,
    /// How many pairs were looked at.
    looked_at: u128,
    /// J: how many of them do.
    pairs: u128,
}

/// Fixed point: so many to one.
const SCALE: u128 = 1 << 16;

impl Count {
    /// μ, scaled.
    fn expected(&self) -> u128 {
        let (n, exceeding) = (self.windows, self.exceeding);
        exceeding * (exceeding - 1) * self.looked_at * SCALE / (n * (n - 1))
    }

    /// Whether so many pairs need no dependence, in clusters of `length`, scaled; in blocks, or in none.
    fn may_be_chance(&self, block: usize, length: u128) -> bool {
        let expected = self.expected();
        let deviation = (length * expected).isqrt() * (self.windows - self.exceeding) / self.windows;
        let spread = self.exceeding * (self.windows - self.exceeding) * SCALE / self.windows;
        let together = block as u128 * spread / self.windows;
        let rare = if expected * 1000 < length { 0 } else { 2 * length - SCALE };
        self.pairs * SCALE <= expected + 4 * deviation + 8 * together + rare
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
