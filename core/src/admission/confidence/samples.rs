//! Values by how often they came, and what may be claimed of one of them.
//!
//! The claim is an order statistic: which one follows from how many values there are, never from the values (see the head of
//! [`super`]). It rests on values that do not depend on one another; for windows that follow one another, see
//! [`super::batches`].

use alloc::vec::Vec;

use super::{Probability, exceedances_allowed, upper_bound};
use crate::units::Duration;

/// A claim about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantileClaim {
    /// The value that is exceeded only with the probability `exceedance`.
    pub value: Duration,
    /// n: on how many values it rests.
    pub samples: u64,
    /// k: how many of them may have exceeded it.
    pub allowed: u64,
    /// p_up: it is exceeded with this probability at most,
    pub exceedance: Probability,
    /// which is wrong in this share of all calibrations at most.
    pub alpha: Probability,
}

/// Values by how often they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// (value, how often) by value, none of them never.
    counts: Vec<(Duration, u64)>,
    len: u64,
}

impl Samples {
    /// From (value, how often it came), in any order; for a histogram the upper ends of its bins. Counts add up to 2⁶⁴ − 1 at
    /// most; of what is above, the largest values are not taken.
    pub fn new(counts: impl IntoIterator<Item = (Duration, u64)>) -> Self {
        let mut counts: Vec<(Duration, u64)> = counts.into_iter().collect();
        counts.sort_unstable();
        let mut len = 0u64;
        for count in &mut counts {
            count.1 = count.1.min(u64::MAX - len);
            len += count.1;
        }
        counts.retain(|count| count.1 > 0);
        Self { counts, len }
    }

    /// n: how many values there are.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// True without values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The least value that half of them do not exceed. `None` without values.
    pub fn median(&self) -> Option<Duration> {
        self.ranked(self.len.div_ceil(2))
    }
    /// The largest value. `None` without values.
    pub fn largest(&self) -> Option<Duration> {
        self.counts.last().map(|&(value, _)| value)
    }

    /// The `rank`-th smallest, from 1; the largest for a rank beyond. `None` without values.
    fn ranked(&self, rank: u64) -> Option<Duration> {
        let mut seen = 0;
        let found = self.counts.iter().find(|&&(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map(|&(value, _)| value).or_else(|| self.largest())
    }

    /// The value whose exceedance is at most `target`, a claim that is wrong in a share `alpha` of all calibrations at most. If
    /// there are too few values for that, no more than they carry: the largest value, with the exceedance that none in n allows,
    /// which is above the target. `None` without values.
    ///
    /// Which of the two it is depends on the number of values alone, so either is wrong no more often.
    pub fn claim(&self, target: Probability, alpha: Probability) -> Option<QuantileClaim> {
        let (allowed, exceedance) = match exceedances_allowed(self.len, target, alpha) {
            // Either is a bound; they are rounded in different ways.
            Some(allowed) => (allowed, upper_bound(allowed, self.len, alpha).min(target)),
            None => (0, upper_bound(0, self.len, alpha)),
        };
        let value = self.ranked(self.len.saturating_sub(allowed))?;
        Some(QuantileClaim { value, samples: self.len, allowed, exceedance, alpha })
    }
}
