//! A claim about a probability, watched for as long as one likes: evidence against it that counts whenever it is looked at.
//!
//! The claim is that an event has a probability of p at most, whatever happened before it. For a factor r, with r p below one, the *stake*
//!
//! ```text
//! E_r = r^k · ((1 − r p)/(1 − p))^(n − k)       after k events in n trials
//! ```
//!
//! grows by r with each event and shrinks with each other trial, such that if the claim is true no trial makes it larger in the mean: it is a
//! non-negative supermartingale that begins at one, and so is the mean of those of several factors. By Ville's inequality it ever reaches
//! 1/alpha with a probability of alpha at most. So a claim against which the stake once reaches that is withdrawn, and a true one is withdrawn
//! in a share alpha of all cases at most, *however long it is watched*: no number of trials has to be chosen beforehand. (Ville 1939; such
//! processes are called e-processes, or test martingales.)
//!
//! A claim that was true for a long time may become false; what its stakes lost meanwhile would hide that for as long. So stakes begin anew before each trial, the one that begins before
//! trial n with 1/(n (n + 1)) in the place of one: these add up to one over all trials, so the whole still is a supermartingale that begins at one. A supermartingale that was begun anew is kept where it is
//! more than what the older ones are worth.
//!
//! The tested claim is that no event is likelier than claimed, whatever happened before. A host that keeps the claim only in the mean, with times in which it does not, is accused.
//!
//! The factors are 2, 4, 8 and so on; what one of R factors has reached divided by R is no more than the mean. Logarithms to base two are integers in
//! units of 2⁻³², those of what is lost rounded up, so a stake is never above the true one.

use super::Probability;

/// Factors at most: with the largest of them even a claim of 10⁻¹² loses most by one event.
const FACTORS: usize = 16;

/// So many units of a logarithm are one.
const ONE: i64 = 1 << 32;

/// Evidence against a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimEvidence {
    /// Of each factor that there is, what a trial without an event takes off.
    losses: [i64; FACTORS],
    /// The number of factors.
    factors: usize,
    /// The value that a stake has to reach.
    enough: i64,
    stakes: [i64; FACTORS],
    /// Trials so far.
    seen: u64,
    withdrawn: bool,
}

impl ClaimEvidence {
    /// Against the claim that an event has a probability of `claimed` at most. A true claim is withdrawn with a probability of `alpha` at most.
    pub fn new(claimed: Probability, alpha: Probability) -> Self {
        let (whole, p) = (u128::from(Probability::ONE.0), u128::from(claimed.0.max(1)));
        let loss = |factor: usize| {
            let staked = p << (factor + 1);
            (staked < whole).then(|| logarithm(whole - p, whole - staked))
        };
        let mut evidence = Self::default();
        for loss in (0..FACTORS).map_while(loss) {
            evidence.losses[evidence.factors] = loss;
            evidence.factors += 1;
        }
        let factors = evidence.factors.max(1) as u128;
        evidence.enough = logarithm(whole * factors, u128::from(alpha.0.max(1)));
        evidence
    }

    /// So many trials, one after the other, with the event in each of them or in none.
    pub fn trials(&mut self, count: u64, event: bool) {
        if count == 0 {
            return;
        }
        // 1/(n (n + 1)) before trial n = seen + 1, a little less.
        let begun = |before: u64| -2 * logarithm(u128::from(before) + 2, 1);
        let first = begun(self.seen);
        self.seen = self.seen.saturating_add(count);
        let last = begun(self.seen - 1);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        for factor in 0..self.factors {
            let step = if event { (factor as i64 + 1) * ONE } else { -self.losses[factor] };
            // Of the stakes that begin within these trials one at either end is the largest: what they begin with falls ever more slowly.
            let whole = self.stakes[factor].max(first).saturating_add(step.saturating_mul(count));
            let stake = whole.max(last + step);
            self.stakes[factor] = stake;
            self.withdrawn |= stake >= self.enough;
        }
    }

    /// True if there ever was enough evidence.
    pub fn is_enough(&self) -> bool {
        self.withdrawn
    }
}

/// log₂(above/below) in units of 2⁻³², rounded up; `above` is at least `below`, which is not zero, and at most 2⁶⁵.
fn logarithm(above: u128, below: u128) -> i64 {
    const POINT: u32 = 60;
    const UNIT: u128 = 1 << POINT;
    let mut x = (above << POINT).div_ceil(below.max(1));
    let mut whole = 0i64;
    while x >= 2 * UNIT {
        x = x.div_ceil(2);
        whole += 1;
    }
    let mut fraction = 0i64;
    for _ in 0..32 {
        x = (x * x).div_ceil(UNIT);
        fraction <<= 1;
        if x >= 2 * UNIT {
            x = x.div_ceil(2);
            fraction |= 1;
        }
    }
    // What is left of it.
    whole * ONE + fraction + i64::from(x > UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHA: Probability = Probability::from_millionths(50_000);

    #[test]
    fn logarithms_are_rounded_up() {
        assert_eq!(logarithm(1, 1), 0);
        assert_eq!(logarithm(8, 1), 3 * ONE);
        // Computed elsewhere.
        for (above, below, exact) in
            [(3, 2, 2_512_394_809), (10, 1, 14_267_572_527), (9, 8, 729_822_323), (1_000_001, 1_000_000, 6_196)]
        {
            let found = logarithm(above, below);
            assert!((exact + 1..exact + 4).contains(&found), "{above}/{below}: {found}");
        }
    }

    #[test]
    fn an_event_that_should_be_rare_is_enough_and_one_that_should_not_is_none() {
        let mut rare = ClaimEvidence::new(Probability::from_parts(1_000_000), ALPHA);
        rare.trials(10, false);
        rare.trials(1, true);
        assert!(rare.is_enough());
        let mut often = ClaimEvidence::new(Probability::HALF, ALPHA);
        often.trials(1000, true);
        assert!(!often.is_enough(), "nothing can be staked against it");
        // One in ten: ten in a hundred are as claimed, nine in a row are not.
        let mut tenth = ClaimEvidence::new(Probability::from_millionths(100_000), ALPHA);
        for _ in 0..10 {
            tenth.trials(9, false);
            tenth.trials(1, true);
        }
        assert!(!tenth.is_enough());
        tenth.trials(9, true);
        assert!(tenth.is_enough());
        // What was enough once stays so.
        tenth.trials(10_000, false);
        assert!(tenth.is_enough());
    }

    #[test]
    fn a_stake_grows_by_its_factor_and_shrinks_by_what_makes_that_fair() {
        let mut evidence = ClaimEvidence::new(Probability::from_millionths(100_000), ALPHA);
        // 2, 4 and 8; sixteen tenths cannot be staked.
        assert_eq!(evidence.factors, 3);
        evidence.trials(3, true);
        evidence.trials(2, false);
        let loss = |factor: u128| 2 * logarithm(9, 10 - factor);
        assert_eq!(evidence.stakes[..3], [3 * ONE - loss(2), 6 * ONE - loss(4), 9 * ONE - loss(8)]);
        // One that has lost more begins anew.
        evidence.trials(1_000_000, false);
        evidence.trials(1, true);
        let anew = 2 * logarithm(1_000_007, 1);
        assert_eq!(evidence.stakes[..3], [ONE - anew, 2 * ONE - anew, 3 * ONE - anew]);
        assert_eq!(evidence.enough, logarithm(60, 1));
    }
}
