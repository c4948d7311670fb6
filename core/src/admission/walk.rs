//! Which instants have to be looked at, and does the demand until one fit before it?
//!
//! Both halves of the split test have one shape. `demand(t)` is the work that is due within `t` of a simultaneous release,
//! the longest block included; it never falls as `t` grows. `J(s)` ([`StolenTime`]) is what others take of any window `s`. The
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
const MOST_VISITS: u64 = 1 << 24;

/// Most instants of one test that are looked at.
///
/// A walk takes about a step for each channel whose deadline is tight, n visits each, so some 4,000 tight channels can be
/// told apart; few sets need more unless the resource is all but used up, when the instants to look at have no useful
/// bound. A test that is given up counts as a utilisation that is too high.
const MOST_STEPS: u32 = 1 << 13;

/// The share that `cost` every `period` takes, rounded up; a period of zero takes all.
pub(super) fn share(cost: u128, period: u64) -> u128 {
    if period == 0 { ONE } else { cost.saturating_mul(ONE).div_ceil(u128::from(period)) }
}

/// The verdict of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every instant holds.
    Fits,
    /// This instant does not; the first such one if the walk was asked to explain.
    Fails(u64),
    /// The share is used up, or so nearly that the walk was given up.
    TooLong,
}

/// The most time that is taken of any window `s`: a constant, and `cost` for each `period` begun in `s + offset`.
#[derive(Clone, Debug, Default)]
pub(super) struct StaircaseLine {
    constant: u64,
    terms: Vec<StaircaseTerm>,
    /// Long-run share of all terms, rounded down and up.
    share_down: u128,
    share_up: u128,
}

#[derive(Clone, Copy, Debug)]
struct StaircaseTerm {
    period: u64,
    cost: u64,
    offset: u64,
}

impl StaircaseLine {
    /// Taken once in any window.
    pub(super) fn constant(nanos: u64) -> Self {
        Self { constant: nanos, ..Self::default() }
    }
    /// Adds what is taken once in any window.
    pub(super) fn add_constant(&mut self, nanos: u64) {
        self.constant = self.constant.saturating_add(nanos);
    }
    /// `cost · ⌈(s + offset) / period⌉`; a period of zero counts as one nanosecond.
    pub(super) fn term(period: u64, cost: u64, offset: u64) -> Self {
        Self::default().and_term(period, cost, offset)
    }
    /// With such a term beside that.
    pub(super) fn and_term(mut self, period: u64, cost: u64, offset: u64) -> Self {
        self.add_term(period, cost, offset);
        self
    }
    /// Adds such a term.
    pub(super) fn add_term(&mut self, period: u64, cost: u64, offset: u64) {
        let period = period.max(1);
        self.terms.push(StaircaseTerm { period, cost, offset });
        self.share_down = self.share_down.saturating_add(u128::from(cost) * ONE / u128::from(period));
        self.share_up = self.share_up.saturating_add(share(cost.into(), period));
    }
    /// `x` with the line at most share·s + x for all s: each term is at most cost·((s + offset)/period + 1).
    fn excess(&self) -> u128 {
        self.terms.iter().fold(self.constant.into(), |sum: u128, term| {
            let begun = u128::from(term.offset.div_ceil(term.period)) + 1;
            sum.saturating_add(begun.saturating_mul(term.cost.into()))
        })
    }
    fn within(&self, s: u64) -> u128 {
        self.terms.iter().fold(self.constant.into(), |sum: u128, term| {
            let begun = (u128::from(s) + u128::from(term.offset)).div_ceil(term.period.into());
            sum.saturating_add(begun.saturating_mul(term.cost.into()))
        })
    }
}

/// J(s): what is taken in any case, and of each choice what is least, as each of its lines holds by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct StolenTime {
    base: StaircaseLine,
    choices: Vec<Vec<StaircaseLine>>,
    /// Everything is this many times as much (numerator, denominator), rounded up.
    stretch: Option<(u64, u64)>,
}

impl StolenTime {
    pub(super) fn new(base: StaircaseLine) -> Self {
        Self { base, ..Self::default() }
    }
    /// With the least of `lines` beside that; nothing if there is none.
    pub(super) fn and_least_of(mut self, lines: impl IntoIterator<Item = StaircaseLine>) -> Self {
        let lines: Vec<StaircaseLine> = lines.into_iter().collect();
        self.choices.extend(Some(lines).filter(|lines| !lines.is_empty()));
        self
    }
    /// All that was added so far, and will be, multiplied by `numerator / denominator` ≥ 1.
    pub(super) fn stretched_by(self, numerator: u64, denominator: u64) -> Self {
        Self { stretch: Some((numerator, denominator.max(1))), ..self }
    }

    /// The long-run share, rounded up.
    pub(super) fn share(&self) -> u128 {
        self.stretched(self.sum(|line| line.share_up))
    }
    /// No more than J(s)/s for any s.
    fn share_down(&self) -> u128 {
        self.sum(|line| line.share_down)
    }
    /// `x` with J(s) ≤ share·s + x for all s: that of the lines whose share counts.
    pub(super) fn excess(&self) -> u128 {
        let least =
            |lines: &Vec<StaircaseLine>| lines.iter().min_by_key(|line| line.share_up).map_or(0, StaircaseLine::excess);
        let excess = self.choices.iter().fold(self.base.excess(), |sum, lines| sum.saturating_add(least(lines)));
        // Two roundings: of the excess, and of J itself.
        self.stretched(excess).saturating_add(u128::from(self.stretch.is_some()))
    }
    /// J(s).
    pub(super) fn within(&self, s: u64) -> u128 {
        self.stretched(self.sum(|line| line.within(s)))
    }

    /// What a line has, of the base and of each choice the least.
    fn sum(&self, of: impl Fn(&StaircaseLine) -> u128) -> u128 {
        let least = |lines: &Vec<StaircaseLine>| lines.iter().map(&of).min().unwrap_or(0);
        self.choices.iter().fold(of(&self.base), |sum, lines| sum.saturating_add(least(lines)))
    }

    fn stretched(&self, nanos: u128) -> u128 {
        self.stretch.map_or(nanos, |(numerator, denominator)| {
            nanos.checked_mul(numerator.into()).map_or(u128::MAX, |nanos| nanos.div_ceil(denominator.into()))
        })
    }

    /// The number of terms that one call of [`StolenTime::within`] visits.
    pub(super) fn terms(&self) -> usize {
        self.base.terms.len() + self.choices.iter().flatten().map(|line| line.terms.len()).sum::<usize>()
    }

    /// The least s with s ≥ demand(s) + J(s), if it is at most `by`; `demand` never falls. Any start below the least fixed
    /// point leads to it; the start here is the line below J's steps.
    fn finish(&self, demand: impl Fn(u64) -> u128, by: u64, visits: &mut u64, each: u64) -> Option<u64> {
        let (by_wide, share) = (u128::from(by), self.share_down());
        let first = demand(0);
        if first > by_wide || share >= ONE {
            return None;
        }
        let mut s = first.checked_mul(ONE).map_or(by_wide, |scaled| (scaled / (ONE - share)).min(by_wide));
        let terms = self.terms() as u64 + 1 + each;
        loop {
            *visits = visits.saturating_add(terms);
            // `s` is at most `by`, so it fits.
            let needed = demand(s as u64).saturating_add(self.within(s as u64));
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

/// The messages of one channel in the long run.
#[derive(Clone, Copy)]
pub(super) struct LongRunTask {
    /// The time of one message.
    pub(super) cost: u128,
    pub(super) interval: u64,
    pub(super) deadline: u64,
}

impl LongRunTask {
    /// The long-run share, rounded up.
    pub(super) fn share(self) -> u128 {
        share(self.cost, self.interval)
    }
    /// By how much the demand until t exceeds the share of t at most: n(t) ≤ t/I + max(0, 1 − d/I).
    pub(super) fn excess(self) -> u128 {
        let early = u128::from(self.interval.saturating_sub(self.deadline));
        self.cost.saturating_mul(early).div_ceil(self.interval.into())
    }
}

/// The demand on one resource, for [`walk`] and [`latest`]. One of the tasks, the last, may have no deadline yet.
pub(super) trait Demand {
    /// Work due within `t` that begins before `s`, the longest block included; never falls as `s` grows, and at most [`Demand::until`].
    fn due(&self, t: u64, s: u64) -> u128;
    /// Work due within `t`, the longest block included; never falls as `t` grows.
    fn until(&self, t: u64) -> u128 {
        self.due(t, u64::MAX)
    }
    /// J(s).
    fn stolen(&self) -> &StolenTime;
    /// The tasks, each with how many are like it.
    fn tasks(&self) -> impl ExactSizeIterator<Item = (LongRunTask, u64)>;
    /// The longest blocks of all, and all else that counts once.
    fn blocks(&self) -> u128;
    /// The first instant at which work is due; `None` without tasks.
    fn first(&self) -> Option<u64> {
        self.tasks().map(|(task, _)| task.deadline).min()
    }
    /// The long-run share of everything, J included, in units of [`ONE`], rounded up.
    fn utilisation(&self) -> u128 {
        let share = |(task, count): (LongRunTask, u64)| task.share().saturating_mul(count.into());
        self.tasks().map(share).fold(self.stolen().share(), u128::saturating_add)
    }
    /// `x` with until(t) ≤ share·t + x for all t, share being that of the tasks.
    fn excess(&self) -> u128 {
        let excess = |(task, count): (LongRunTask, u64)| task.excess().saturating_mul(count.into());
        self.tasks().map(excess).fold(self.blocks(), u128::saturating_add)
    }
    /// Instants at which [`Demand::until`] may fall as `t` grows, ascending.
    fn falls(&self) -> &[u64] {
        &[]
    }
    /// Gives the newcomer a deadline. A longer one never adds to the demand.
    fn set_deadline(&mut self, deadline: u64);
    /// No deadline of the newcomer below this can do.
    fn least_possible(&self) -> u64;
}

/// The time for which work goes on, of which `begun(s)` begins within `s`, blocks included, if `gap` more is stolen than J: the least s with
/// `s ≥ begun(s) + J(s) + gap`. `None` if the shares leave nothing, or it had to be given up.
pub(super) fn busy(test: &impl Demand, gap: u64, begun: impl Fn(u64) -> u128) -> Option<u64> {
    let (stolen, each) = (test.stolen(), test.tasks().len() as u64);
    let gap = stolen.stretched(gap.into());
    stolen.finish(|s| begun(s).saturating_add(gap), u64::MAX >> 2, &mut 0, each)
}

/// The least s with `s ≥ work + J(s)`; `None` if the shares leave nothing.
pub(super) fn span_of(stolen: &StolenTime, work: u64) -> Option<u64> {
    stolen.finish(|_| work.into(), u64::MAX >> 2, &mut 0, 0)
}

/// Does everything hold its deadline? With `explain`, a failure is the first instant that fails (or the earliest that was
/// found when the walk had to be given up); without, any.
///
/// Beyond `T = (x_tasks + x_J) / (1 − share_tasks − share_J)` all instants hold, so the walk starts there.
pub(super) fn walk(test: &impl Demand, explain: bool) -> Verdict {
    let Some(first) = test.first() else { return Verdict::Fits };
    let Some(last) = last_instant(test) else { return Verdict::TooLong };
    walk_between(test, first, last, explain)
}

/// An instant beyond which all hold; `None` if the shares leave nothing, or so little that the instant does not fit.
pub(super) fn last_instant(test: &impl Demand) -> Option<u64> {
    let excess = test.excess().saturating_add(test.stolen().excess());
    let left = ONE.checked_sub(test.utilisation()).filter(|left| *left > 0)?;
    u64::try_from(excess.checked_mul(ONE)?.div_ceil(left)).ok()
}

/// As [`walk`], for the instants from `first` to `last`.
pub(super) fn walk_between(test: &impl Demand, first: u64, last: u64, explain: bool) -> Verdict {
    if first > last {
        return Verdict::Fits;
    }
    let (mut failed, mut steps, mut visits) = (None, 0, 0);
    for (low, high) in ranges(test.falls(), first, last) {
        let mut t = high;
        while t >= low {
            steps += 1;
            visits += test.tasks().len() as u64 + 1;
            let finish = finish_at(test, t, &mut visits);
            if visits > MOST_VISITS || steps > MOST_STEPS {
                return failed.map_or(Verdict::TooLong, Verdict::Fails);
            }
            let before = match finish {
                Some(finish) if finish < t => Some(finish),
                Some(_) => t.checked_sub(1),
                None if !explain => return Verdict::Fails(t),
                None => {
                    let due = due_at(test, low, t, &mut visits);
                    failed = Some(due);
                    due.checked_sub(1)
                }
            };
            let Some(before) = before else { break };
            t = before;
        }
    }
    failed.map_or(Verdict::Fits, Verdict::Fails)
}

/// The instants from `first` to `last`, cut where the demand may fall; the last range first.
fn ranges(falls: &[u64], first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
    let inside = falls.partition_point(|fall| *fall <= first)..falls.partition_point(|fall| *fall <= last);
    let cuts = falls[inside].iter().rev();
    let lows = cuts.clone().copied().chain([first]);
    let highs = [last].into_iter().chain(cuts.map(|fall| fall - 1));
    lows.zip(highs)
}

/// The least deadline of the newcomer, up to `longest`, with which all instants hold. Else the first instant that fails with the longest one,
/// or that there are too many to look at.
///
/// One walk downwards: where an instant fails, the deadline grows until it holds. The instants above held with a shorter one,
/// so they still do.
pub(super) fn least_deadline(test: &mut impl Demand, longest: u64) -> Result<u64, Verdict> {
    let mut deadline = test.least_possible().clamp(1, longest);
    test.set_deadline(deadline);
    let last = last_instant(test).ok_or(Verdict::TooLong)?;
    let falls = test.falls().to_vec();
    let (mut visits, mut steps) = (0, 0);
    for (low, high) in ranges(&falls, 1, last) {
        let mut t = high;
        while t >= low && test.first().is_some_and(|first| t >= first) {
            steps += 1;
            visits += test.tasks().len() as u64 + 1;
            let mut finish = finish_or_idle(test, t, &mut visits);
            if finish.is_none() {
                test.set_deadline(longest);
                finish = finish_or_idle(test, t, &mut visits);
                if finish.is_none() {
                    return Err(if visits > MOST_VISITS { Verdict::TooLong } else { walk(test, true) });
                }
                deadline = least_above(deadline, longest, |middle| {
                    test.set_deadline(middle);
                    visits += test.tasks().len() as u64 + 1;
                    let found = finish_or_idle(test, t, &mut visits);
                    finish = found.or(finish);
                    found.is_some()
                });
                test.set_deadline(deadline);
            }
            if visits > MOST_VISITS || steps > MOST_STEPS {
                return Err(Verdict::TooLong);
            }
            match finish {
                Some(finish) if finish < t => t = finish,
                _ => t -= 1,
            }
        }
    }
    Ok(deadline)
}

/// The least value above `no` at which `holds`, which does at `yes` and from there on.
pub(super) fn least_above(mut no: u64, mut yes: u64, mut holds: impl FnMut(u64) -> bool) -> u64 {
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}

/// As [`finish_at`]; an instant by which nothing is due holds in any case.
fn finish_or_idle(test: &impl Demand, t: u64, visits: &mut u64) -> Option<u64> {
    if test.first().is_none_or(|first| first > t) { Some(t) } else { finish_at(test, t, visits) }
}

/// The latest completion of all work that is due by `t`, if that is by `t`.
pub(super) fn finish_at(test: &impl Demand, t: u64, visits: &mut u64) -> Option<u64> {
    let demand = test.until(t);
    test.stolen().finish(|_| demand, t, visits, 0)
}

/// The least instant from `first` on at which the demand is already that until `t`: something is due there.
fn due_at(test: &impl Demand, first: u64, t: u64, visits: &mut u64) -> u64 {
    let (demand, mut least, mut most) = (test.until(t), first, t);
    while least < most {
        *visits += test.tasks().len() as u64 + 1;
        let middle = least + (most - least) / 2;
        if test.until(middle) >= demand { most = middle } else { least = middle + 1 }
    }
    least
}

/// The latest completion of work that is due from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LatenessWalk {
    /// The time at which it is due, from the start of the busy period.
    pub(super) due: u64,
    /// The latest time at which it is done; mostly before it is due.
    pub(super) done: u64,
}

impl LatenessWalk {
    fn exceeds(&self, other: &Self) -> bool {
        i128::from(self.done) - i128::from(self.due) > i128::from(other.done) - i128::from(other.due)
    }
}

/// The latest of all that is due from each of `marks` (ascending) on, for a test that holds; `None` if it had to be given up.
///
/// With `h(t) = least s with s ≥ due(t, s) + J(s)`, due(t, s) being what is due within t and begins before s, it is
/// `max over t ≥ mark of h(t) − t`. One walk downwards finds all: if the latest so far is λ = max h(t) − t, no instant in
/// `[h(t) − λ, t]` is later, because h never falls from there to t; so the walk goes on below. Marks split it, as do
/// the instants from which on the block is another (`falls`, ascending): h may fall there.
///
/// Nothing is later than the longest busy period L = least s with s ≥ due(∞, s) + J(s), so beyond L after the last mark no
/// instant counts more than that mark does.
pub(super) fn latest(test: &impl Demand, marks: &[u64]) -> Option<Vec<LatenessWalk>> {
    let mut visits = 0;
    let each = test.tasks().len() as u64;
    let done = |t: u64, by: u64, visits: &mut u64| test.stolen().finish(|s| test.due(t, s), by, visits, each);
    let longest = done(u64::MAX, u64::MAX >> 2, &mut visits)?;
    let mut t = marks.last()?.checked_add(longest)?;
    let mut found: Vec<LatenessWalk> = Vec::with_capacity(marks.len());
    let mut worst: Option<LatenessWalk> = None;
    let mut cuts: Vec<u64> = marks.iter().chain(test.falls()).copied().collect();
    cuts.sort_unstable();
    cuts.dedup();
    for &low in cuts.iter().rev() {
        while t >= low {
            visits += each;
            let end = done(t, u64::MAX >> 2, &mut visits)?;
            if visits > MOST_VISITS {
                return None;
            }
            // The least instant with the same end is the latest of those.
            let (mut least, mut most) = (low, t);
            while least < most {
                let middle = least + (most - least) / 2;
                if done(middle, u64::MAX >> 2, &mut visits)? >= end { most = middle } else { least = middle + 1 }
            }
            let here = LatenessWalk { due: least, done: end };
            let latest = worst.filter(|worst| !here.exceeds(worst)).unwrap_or(here);
            worst = Some(latest);
            // h(t') ≤ `done` for t' below; later than λ only if t' < done − λ.
            let below = i128::from(end) - (i128::from(latest.done) - i128::from(latest.due));
            let Ok(next) = u64::try_from(below.min(i128::from(least)) - 1) else {
                t = 0;
                break;
            };
            t = next;
        }
        let at_low = worst?;
        while found.len() < marks.len() && marks[marks.len() - 1 - found.len()] >= low {
            found.push(at_low);
        }
        if low == 0 {
            break;
        }
        // Above a fall nothing was learnt about what is below.
        t = if test.falls().binary_search(&low).is_ok() { low - 1 } else { t.min(low - 1) };
    }
    found.reverse();
    (found.len() == marks.len()).then_some(found)
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
            let mut line = StaircaseLine::constant(constant);
            for &(period, cost, offset) in &terms {
                line.add_term(period, cost, offset);
            }
            let stolen = StolenTime::new(line);
            let naive = |s: u64| terms.iter().fold(constant, |sum, &(period, cost, offset)| sum + cost * (s + offset).div_ceil(period));
            let expected = (0..=by).find(|&s| demand + naive(s) <= s);
            // A share of one or more is refused before any fixed point is asked for.
            prop_assert!(stolen.share() >= ONE || stolen.finish(|_| demand.into(), by, &mut 0, 0) == expected);
        }
    }
}
