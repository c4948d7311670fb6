//! Windows that follow one another depend on one another: a stall that outlasts one steals from the next. So what is counted is not
//! windows but *batches* of windows that follow one another.
//!
//! **Premises.** The batches of a calibration do not depend on one another, though the windows within one may do so in any way; and no
//! batch has more than m windows beyond the budget of its b. Both are stated with the claim ([`BatchedClaim`]). Then at most m/b of the windows are
//! beyond the budget for each batch that has any, and how many batches have is bounded by Clopper and Pearson:
//!
//! ```text
//! P(a window exceeds q) ≤ m/b · p_up(K, N, alpha)       K of N batches have a window beyond q
//! ```
//!
//! m is a hundredth of b, or two, and no less than the most that a batch has of the values beyond the fourth largest that batches have: what the
//! rarest stalls that were seen do in a batch, rarer ones are taken to do no worse. With a larger m a budget fails sooner or claims more of a chance, so where
//! the premise holds the claim does, whichever way m was found.
//!
//! Hosts change their ways; then batches are not alike, and the claim is about their mean over the time of the calibration: of independent
//! trials with different probabilities, as few successes are no likelier than if each had their mean [Hoeffding 1956, theorem 4].
//!
//! **The budget.** Budgets are tried downwards, each at the whole alpha, until one fails: because more batches exceed it than the target allows,
//! or more than m windows of a batch do. The claim is the last one that did not fail. All that can be claimed wrongly is claimed
//! only if the first budget that does not deserve it passes, so the claim is wrong no more often than that one test. For this the budgets
//! must not follow from the values: they are those of a fixed grid, each a sixty-fourth less than the one before. With too few batches for
//! the target the same is done for the least target that they carry, which follows from N alone: then no window of the calibration exceeds
//! the budget.
//!
//! **How the length of a batch matters.** Where nothing exceeds the budget the claim is about `ln(1/alpha) m` over all windows, whatever the
//! length of a batch; longer ones make independence likelier, and cost nothing but that m grows. [`Batching::of`] has what is taken.
//!
//! **What this cannot show.** That the premises hold. What a calibration meets once or twice cannot be told from chance, and what it does not meet
//! at all is unknown to it: `core/tests/confidence` states how often claims are wrong on hosts with and without the premises.

use alloc::vec::Vec;

use super::{Probability, exceedances_allowed, upper_bound};
use crate::units::Duration;

/// Fewer batches carry no claim: what is said of them would be the premise alone.
pub const FEWEST_BATCHES: usize = 12;

/// Each budget that is tried is by one part in so many less than the one before.
const FINENESS: u64 = 64;

/// A batch has at most one window beyond the budget of so many, or two.
const ONE_IN: usize = 100;

/// Batches that a calibration is cut into, if each is neither too short to be independent of the next nor longer than it has to be.
const USUAL_BATCHES: u64 = 60;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// From so many batches that have the largest values follows how many windows of a batch are bad together.
const RARE_BATCHES: usize = 3;

/// The rule by which windows are counted, and the premise that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// b: windows that are counted together.
    pub windows: usize,
    /// m: how many of them exceed the budget at most; before a calibration the least that it may find.
    pub most_bad: usize,
}

impl Batching {
    /// For windows that begin `apart`, measured for `time`: sixty batches, of half a second to ten seconds; in each a hundredth of
    /// the windows exceeds the budget at most, or two do.
    pub fn of(apart: Duration, time: Duration) -> Self {
        let batch = time.mul_ratio(1, USUAL_BATCHES).clamp(SHORTEST, LONGEST);
        let windows = usize::try_from(batch.div_ceil(apart)).unwrap_or(usize::MAX).max(1);
        Self { windows, most_bad: (windows / ONE_IN).max(2).min(windows) }
    }

    /// The share of the windows of a batch that has one beyond the budget, of a probability that it has.
    fn of_windows(self, batches: Probability) -> Probability {
        let parts = u128::from(batches.parts()) * self.most_bad as u128;
        Probability::from_parts(u64::try_from(parts.div_ceil(self.windows as u128)).unwrap_or(u64::MAX))
    }

    /// The probability of a batch that gives windows one of `target` at most.
    pub fn of_batches(self, target: Probability) -> Probability {
        let parts = u128::from(target.parts()) * self.windows as u128 / self.most_bad.max(1) as u128;
        Probability::from_parts(u64::try_from(parts).unwrap_or(u64::MAX))
    }

    /// The least probability that a number of batches can show: if none of them has a window beyond the budget.
    pub fn least(self, batches: u64, alpha: Probability) -> Probability {
        self.of_windows(upper_bound(0, batches, alpha))
    }
}

/// A claim about windows that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchedClaim {
    /// More is stolen in a window only with the probability of `exceedance`.
    pub budget: Duration,
    /// N: on how many batches it rests.
    pub batches: u64,
    /// b and m.
    pub batching: Batching,
    /// The number of them that may have a window beyond the budget.
    pub allowed: u64,
    /// Wrong in a share alpha of all calibrations at most, if the premises hold.
    pub exceedance: Probability,
}

/// The claim for what is stolen in a window of `length`, from all windows in the order of time, nanoseconds each. Windows after
/// the last whole batch belong to it.
///
/// `None` with fewer than [`FEWEST_BATCHES`]. Takes time in proportion to the windows and the logarithm of their length.
pub fn claim(
    stolen: &[u32],
    length: Duration,
    batching: Batching,
    target: Probability,
    alpha: Probability,
) -> Option<BatchedClaim> {
    let Batching { windows, most_bad } = batching;
    let count = stolen.len() / windows.max(1);
    if count < FEWEST_BATCHES || windows == 0 {
        return None;
    }
    let batch = |number: usize| {
        let until = if number + 1 == count { stolen.len() } else { (number + 1) * windows };
        &stolen[number * windows..until]
    };
    let mut largest: Vec<u32> = (0..count).map(|number| batch(number).iter().copied().max().unwrap_or(0)).collect();
    largest.sort_unstable_by(|one, other| other.cmp(one));
    let rare = |number| batch(number).iter().filter(|value| **value > largest[RARE_BATCHES]).count();
    let together = (0..count).map(rare).max().unwrap_or(0);
    let most_bad = most_bad.max(together).min(windows);
    let batching = Batching { windows, most_bad };
    let batches = count as u64;
    let of_batches = batching.of_batches(target);
    let (allowed, exceedance) = match exceedances_allowed(batches, of_batches, alpha) {
        // No less than the target: how many are allowed follows from m, and m from the values.
        Some(allowed) => (allowed, target),
        None => (0, batching.least(batches, alpha)),
    };
    // A budget passes while no more batches have a window beyond it than are allowed, and none has more than m: that is, while it is at
    // least the largest of that many batches less one, and the largest but m of every batch.
    let by_batches = largest.get(usize::try_from(allowed).unwrap_or(usize::MAX)).copied().unwrap_or(0);
    let mut of_batch = Vec::new();
    let but_most_bad = |number| {
        of_batch.clear();
        of_batch.extend_from_slice(batch(number));
        let place = of_batch.len().checked_sub(most_bad + 1)?;
        Some(*of_batch.select_nth_unstable(place).1)
    };
    let by_windows = (0..count).filter_map(but_most_bad).max().unwrap_or(0);
    let least = u64::from(by_batches.max(by_windows));
    let budget = Duration::from_nanos(on_grid(length.as_nanos(), least));
    Some(BatchedClaim { budget, batches, batching, allowed, exceedance })
}

/// The least budget of the grid below `whole` that is at least `least`, all of which pass above it; `whole` if none is below.
fn on_grid(whole: u64, least: u64) -> u64 {
    let mut budget = whole;
    while budget > least {
        let next = budget - (budget / FINENESS).max(1);
        if next < least {
            break;
        }
        budget = next;
    }
    budget
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALPHA: Probability = Probability::from_millionths(50_000);

    #[test]
    fn a_calibration_is_cut_into_sixty_batches_of_a_usual_length() {
        let of = |micros, seconds| {
            let Batching { windows, most_bad } =
                Batching::of(Duration::from_micros(micros), Duration::from_secs(seconds));
            (windows, most_bad)
        };
        assert_eq!(of(10_000, 300), (500, 5));
        assert_eq!(of(1000, 300), (5000, 50));
        assert_eq!(of(10_000, 7), (50, 2));
        assert_eq!(of(100_000, 100_000), (100, 2));
        assert_eq!(of(600_000, 1), (1, 1));
    }

    #[test]
    fn without_an_exceedance_the_claim_is_what_the_batches_carry() {
        let batching = Batching { windows: 500, most_bad: 5 };
        let (quiet, ms) = ([1000; 30_000], Duration::from_millis(10));
        let claim = |stolen: &[u32], target| claim(stolen, ms, batching, target, ALPHA).unwrap();
        let claimed = claim(&quiet, Probability::from_millionths(1));
        // 1 - 0.05^(1/60), a hundredth of it.
        assert_eq!(claimed.exceedance.parts() / 1_000_000, 487);
        assert_eq!((claimed.batches, claimed.allowed), (60, 0));
        // The grid's step is a sixty-fourth.
        assert!((1000..1016).contains(&claimed.budget.as_nanos()), "{}", claimed.budget);
        // With one bad batch in twenty allowed, a stall in one of sixty is left out.
        let mut stalled = quiet;
        stalled[777] = 5_000_000;
        assert!(claim(&stalled, Probability::from_millionths(1)).budget >= Duration::from_millis(5));
        let target = Probability::from_millionths(1000);
        let often = claim(&stalled, target);
        assert_eq!((often.budget, often.allowed), (claimed.budget, 1));
        assert!(often.exceedance <= target && often.exceedance > claimed.exceedance);
        // If ten windows of it are beyond it is no longer allowed: each bad batch then has as many.
        stalled[777..787].fill(5_000_000);
        let ten = claim(&stalled, target);
        assert_eq!((ten.batching.most_bad, ten.allowed), (10, 0));
        assert!(ten.budget >= Duration::from_millis(5) && ten.exceedance == target);
    }

    #[test]
    fn too_few_batches_claim_nothing_and_the_rest_belongs_to_the_last() {
        let batching = Batching { windows: 10, most_bad: 2 };
        let ms = Duration::from_millis(1);
        let claim = |stolen: &[u32]| claim(stolen, ms, batching, Probability::ZERO, ALPHA);
        assert_eq!(claim(&[1; 119]), None);
        let mut stolen = [1; 125];
        stolen[124] = 900_000;
        assert!(claim(&stolen).unwrap().budget >= Duration::from_micros(900));
        // A window that was lost entirely: no budget below it.
        stolen[0] = 1_000_000;
        assert_eq!(claim(&stolen).unwrap().budget, ms);
    }

    proptest! {
        /// The budget is the last that passes when they are tried one after the other.
        #[test]
        fn the_budget_is_the_last_that_passes(
            stolen in prop::collection::vec(0u32..3000, 60..400), windows in 1usize..20, most_bad in 1usize..4, target in 1u64..1_000_000,
        ) {
            let batching = Batching { windows, most_bad: most_bad.min(windows) };
            prop_assume!(stolen.len() / windows >= FEWEST_BATCHES);
            let claimed = claim(&stolen, Duration::from_nanos(2000), batching, Probability::from_millionths(target), ALPHA).unwrap();
            let batches = stolen.len() / windows;
            let passes = |budget: u64| {
                let bad = |number: usize| {
                    let until = if number + 1 == batches { stolen.len() } else { (number + 1) * windows };
                    stolen[number * windows..until].iter().filter(|value| u64::from(**value) > budget).count()
                };
                let bad: Vec<usize> = (0..batches).map(bad).collect();
                bad.iter().filter(|bad| **bad > 0).count() as u64 <= claimed.allowed && bad.iter().all(|bad| *bad <= claimed.batching.most_bad)
            };
            let (mut budget, mut expected) = (2000u64, 2000u64);
            while budget > 0 && passes(budget) {
                expected = budget;
                budget -= (budget / FINENESS).max(1);
            }
            if budget == 0 && passes(0) {
                expected = 0;
            }
            prop_assert_eq!(claimed.budget.as_nanos(), expected);
        }
    }
}
