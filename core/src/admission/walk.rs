//! Which instants have to be looked at, and does the demand until one fit before it?
//!
//! Both halves of the split test have one shape. `demand(t)` is the work that is due within `t` of a simultaneous release,
//! the longest block included; it never falls as `t` grows. `J(s)` ([`Stolen`]) is what others take of any window `s`. The
//! test is, for every `t` at which work is due,
//!
//! ```text
//! h(t) = FIX(demand(t), J) = least s with s ≥ demand(t) + J(s),   h(t) ≤ t
//! ```
//!
//! QPA [Zhang, Burns 2009: Schedulability analysis for real-time systems with EDF scheduling] walks downwards. From
//! `h(t) < t` follows `h(t') ≤ h(t) ≤ t'` for all `t'` in `[h(t), t]`, so the walk goes on at `h(t)`. At `h(t) = t` it goes
//! on at `t − 1`: if nothing is due at `t`, then `h(t − 1) = h(t) > t − 1`, and the last instant before `t` at which
//! something is due does fail; so every integer may be asked, not only those at which something is due.

use alloc::vec::Vec;

/// One, as a long-run share: shares are fixed point with 40 bits behind the point.
pub(super) const ONE: u128 = 1 << 40;

/// Most visits (one task, or one term of J, looked at once) of one test: about a tenth of a second.
///
/// A walk takes about a step for each channel whose deadline is tight, n visits each, so some 4,000 tight channels can be
/// told apart; few sets need more unless the resource is all but used up, when the instants to look at have no useful
/// bound. A test that is given up counts as a utilisation that is too high.
const MOST_VISITS: u64 = 1 << 24;

/// The share that `cost` every `period` takes, rounded up; a period of zero takes all.
pub(super) fn share(cost: u128, period: u64) -> u128 {
    if period == 0 { ONE } else { cost.saturating_mul(ONE).div_ceil(u128::from(period)) }
}

/// What a test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every instant holds.
    Fits,
    /// This instant does not; the first such one if the walk was asked to explain.
    Fails(u64),
    /// The share is used up, or so nearly that the walk was given up.
    TooLong,
}

/// J(s): a constant, and terms of `cost` for each `period` begun in `s + offset`.
#[derive(Clone, Debug, Default)]
pub(super) struct Stolen {
    constant: u64,
    terms: Vec<Term>,
    /// Long-run share of all terms, rounded down and up.
    share_down: u128,
    share_up: u128,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    period: u64,
    cost: u64,
    offset: u64,
}

impl Stolen {
    /// Taken once in any window.
    pub(super) fn constant(nanos: u64) -> Self {
        Self { constant: nanos, ..Self::default() }
    }
    /// Adds what is taken once in any window.
    pub(super) fn add_constant(&mut self, nanos: u64) {
        self.constant = self.constant.saturating_add(nanos);
    }
    /// Adds `cost · ⌈(s + offset) / period⌉`; a period of zero counts as one nanosecond.
    pub(super) fn add_term(&mut self, period: u64, cost: u64, offset: u64) {
        let period = period.max(1);
        self.terms.push(Term { period, cost, offset });
        self.share_down += u128::from(cost) * ONE / u128::from(period);
        self.share_up += share(cost.into(), period);
    }
    /// The long-run share, rounded up.
    pub(super) fn share(&self) -> u128 {
        self.share_up
    }
    /// `x` with J(s) ≤ share·s + x for all s: each term is at most cost·((s + offset)/period + 1).
    pub(super) fn excess(&self) -> u128 {
        self.terms.iter().fold(self.constant.into(), |sum: u128, term| {
            sum.saturating_add(u128::from(term.cost) * (u128::from(term.offset.div_ceil(term.period)) + 1))
        })
    }
    /// J(s).
    pub(super) fn within(&self, s: u64) -> u128 {
        self.terms.iter().fold(self.constant.into(), |sum: u128, term| {
            let begun = (u128::from(s) + u128::from(term.offset)).div_ceil(term.period.into());
            sum.saturating_add(begun.saturating_mul(term.cost.into()))
        })
    }

    /// FIX(demand, J) if it is at most `by`. Any start below the least fixed point leads to it, as J never falls; the
    /// start here is the line below J's steps.
    fn finish(&self, demand: u128, by: u64, visits: &mut u64) -> Option<u64> {
        let by_wide = u128::from(by);
        if demand > by_wide || self.share_down >= ONE {
            return None;
        }
        let mut s = (demand * ONE / (ONE - self.share_down)).min(by_wide);
        loop {
            *visits = visits.saturating_add(1 + self.terms.len() as u64);
            // `s` is at most `by`, so it fits.
            let needed = demand.saturating_add(self.within(s as u64));
            if needed <= s {
                return Some(s as u64);
            }
            if needed > by_wide || *visits > MOST_VISITS {
                return None;
            }
            s = needed;
        }
    }
}

/// The demand on one resource, for [`walk`].
pub(super) trait Demand {
    /// Work due within `t`, the longest block included; never falls as `t` grows.
    fn until(&self, t: u64) -> u128;
    /// J(s).
    fn stolen(&self) -> &Stolen;
    /// The first instant at which work is due; `None` without tasks.
    fn first(&self) -> Option<u64>;
    /// Long-run share of the tasks, rounded up, J not counted.
    fn share(&self) -> u128;
    /// `x` with until(t) ≤ share·t + x for all t.
    fn excess(&self) -> u128;
    /// How many tasks one call of [`Demand::until`] visits.
    fn tasks(&self) -> usize;
}

/// Does everything hold its deadline? With `explain`, a failure is the first instant that fails (or the earliest that was
/// found when the walk had to be given up); without, any.
///
/// Beyond `T = (x_tasks + x_J) / (1 − share_tasks − share_J)` all instants hold, so the walk starts there.
pub(super) fn walk(test: &impl Demand, explain: bool) -> Verdict {
    let Some(first) = test.first() else { return Verdict::Fits };
    let (stolen, used) = (test.stolen(), test.share().saturating_add(test.stolen().share()));
    if used >= ONE {
        return Verdict::TooLong;
    }
    let excess = test.excess().saturating_add(stolen.excess());
    let Ok(mut t) = u64::try_from(excess.saturating_mul(ONE).div_ceil(ONE - used)) else { return Verdict::TooLong };
    let mut visits = 0;
    let mut failed = None;
    while t >= first {
        visits += test.tasks() as u64 + 1;
        let demand = test.until(t);
        let finish = stolen.finish(demand, t, &mut visits);
        if visits > MOST_VISITS {
            return failed.map_or(Verdict::TooLong, Verdict::Fails);
        }
        let before = match finish {
            Some(finish) if finish < t => Some(finish),
            Some(_) => t.checked_sub(1),
            None if !explain => return Verdict::Fails(t),
            None => {
                let due = due_at(test, demand, first, t, &mut visits);
                failed = Some(due);
                due.checked_sub(1)
            }
        };
        match before {
            Some(before) => t = before,
            None => break,
        }
    }
    failed.map_or(Verdict::Fits, Verdict::Fails)
}

/// The least instant from `first` on at which the demand is already `demand`: something is due there.
fn due_at(test: &impl Demand, demand: u128, first: u64, t: u64, visits: &mut u64) -> u64 {
    let (mut least, mut most) = (first, t);
    while least < most {
        *visits += test.tasks() as u64 + 1;
        let middle = least + (most - least) / 2;
        if test.until(middle) >= demand { most = middle } else { least = middle + 1 }
    }
    least
}

#[cfg(test)]
pub(super) mod brute {
    use super::*;

    /// The twin of [`walk`]: every instant until `last`, each fixed point counted up from zero.
    pub(in super::super) fn walk(
        until: impl Fn(u64) -> u64,
        stolen: impl Fn(u64) -> u64,
        first: u64,
        last: u64,
    ) -> Verdict {
        for t in first..=last {
            let demand = until(t);
            if !(0..=t).any(|s| demand + stolen(s) <= s) {
                return Verdict::Fails(t);
            }
        }
        Verdict::Fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finish_is_the_least_fixed_point(
            demand in 0u64..300, by in 0u64..2000, constant in 0u64..50,
            terms in prop::collection::vec((1u64..60, 0u64..20, 0u64..100), 0..3),
        ) {
            let mut stolen = Stolen::constant(constant);
            for &(period, cost, offset) in &terms {
                stolen.add_term(period, cost, offset);
            }
            let naive = |s: u64| terms.iter().fold(constant, |sum, &(period, cost, offset)| sum + cost * (s + offset).div_ceil(period));
            let expected = (0..=by).find(|&s| demand + naive(s) <= s);
            // A share of one or more is refused before any fixed point is asked for.
            prop_assert!(stolen.share() >= ONE || stolen.finish(demand.into(), by, &mut 0) == expected);
        }
    }
}
