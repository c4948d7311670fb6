//! Calculations with figures that all parts share.

use laxity_core::figures::{Figures, Misses};
use laxity_core::units::{Duration, NANOS_PER_SECOND};

/// The number a second, rounded down; 0 if no time passed.
pub fn per_second(number: u64, elapsed: Duration) -> u64 {
    let nanos = u128::from(elapsed.as_nanos());
    let rate = (u128::from(number) * u128::from(NANOS_PER_SECOND)).checked_div(nanos).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The value that `ppm` of `sorted` do not exceed; `None` if there is none.
pub fn quantile(sorted: &[u64], ppm: u64) -> Option<u64> {
    let at = (sorted.len() as u64 * ppm).div_ceil(1_000_000).max(1) as usize - 1;
    sorted.get(at.min(sorted.len().checked_sub(1)?)).copied()
}

/// The number of `sorted` that are longer than `limit`.
pub fn beyond(sorted: &[u64], limit: Duration) -> usize {
    sorted.len() - sorted.partition_point(|&nanos| nanos <= limit.as_nanos())
}

/// The mean, rounded down; `None` if there is none.
pub fn mean(samples: &[u64]) -> Option<u64> {
    let sum: u128 = samples.iter().copied().map(u128::from).sum();
    u64::try_from(sum.checked_div(samples.len() as u128)?).ok()
}

/// The standard deviation, rounded down; `None` if there are no samples.
pub fn deviation(samples: &[u64]) -> Option<u64> {
    let mean = mean(samples)?;
    let squares: u128 = samples.iter().map(|&sample| u128::from(sample.abs_diff(mean)).pow(2)).sum();
    u64::try_from((squares / samples.len() as u128).isqrt()).ok()
}

/// All values, in order of size.
pub(crate) fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut all: Vec<u64> = values.collect();
    all.sort_unstable();
    all
}

/// A figure as millionths of another one; `None` if that is 0, or very small.
pub(crate) fn ppm(of: u64, to: u64) -> Option<u64> {
    u64::try_from((u128::from(of) * 1_000_000).checked_div(to.into())?).ok()
}

/// The value in the middle, the lower one of two; `None` if there is none.
pub fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    quantile(&values, 500_000)
}

/// True if Laxity kept its promises: no miss of its own, nothing over a bound, nothing undecided. Misses by others do not count.
pub fn promises_kept<'a>(figures: impl IntoIterator<Item = &'a Figures>) -> bool {
    !figures.into_iter().any(Figures::is_broken)
}

/// The words to print instead of "kept" if it is unknown of some messages whether they were in time; `None` if it is known of all.
pub fn undecided<'a>(figures: impl IntoIterator<Item = &'a Figures>) -> Option<String> {
    let number = figures.into_iter().fold(0_u64, |sum, figures| sum.saturating_add(figures.undecided));
    let (messages, they) = if number == 1 { ("message", "it was") } else { ("messages", "they were") };
    (number > 0).then(|| {
        format!("UNDECIDED: {number} {messages}: the clocks of the two hosts do not tell whether {they} in time")
    })
}

/// The promise that Laxity broke, or is not known to have kept, on a real-time channel that was to bring something in `run`, in a line.
pub fn broken_promise(run: &str, figures: &Figures) -> Option<String> {
    let Figures { name, misses: Misses { laxity, unexplained, .. }, over_bound, .. } = figures;
    if figures.is_at_fault() {
        let unexplained =
            if *unexplained > 0 { format!(" and {unexplained} for an unknown cause") } else { String::new() };
        let undecided = undecided([figures]).map_or_else(String::new, |undecided| format!("; {undecided}"));
        return Some(format!(
            "{run}: {name} missed {laxity} by Laxity's fault{unexplained}, {over_bound} over the bound{undecided}"
        ));
    }
    if let Some(undecided) = undecided([figures]) {
        return Some(format!("{run}: {name}: {undecided}"));
    }
    figures.is_silent().then(|| format!("{run}: {name} brought nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_misses_of_our_own_break_a_promise() {
        let late = |misses| Figures { late: 1, misses, ..Figures::default() };
        assert!(promises_kept(&[late(Misses { network: 2, platform: 1, ..Misses::default() }), Figures::default()]));
        assert!(!promises_kept(&[Figures::default(), late(Misses { laxity: 1, ..Misses::default() })]));
        assert!(!promises_kept(&[Figures { over_bound: 1, ..Figures::default() }]));
    }

    #[test]
    fn what_is_undecided_is_not_kept_and_without_a_fault() {
        let of = |undecided| Figures { name: "a".to_owned(), delivered: 9, undecided, ..Figures::default() };
        assert!(promises_kept(&[of(0)]) && !promises_kept(&[of(0), of(1)]));
        assert_eq!((undecided(&[of(0)]), broken_promise("run", &of(0))), (None, None));
        let said = "UNDECIDED: 5 messages: the clocks of the two hosts do not tell whether they were in time";
        assert_eq!(undecided(&[of(2), of(3)]).as_deref(), Some(said));
        assert_eq!(broken_promise("run", &of(5)), Some(format!("run: a: {said}")));
        let both = Figures { over_bound: 1, ..of(5) };
        let at_fault = "run: a missed 0 by Laxity's fault, 1 over the bound";
        assert_eq!(broken_promise("run", &both), Some(format!("{at_fault}; {said}")));
    }

    #[test]
    fn a_deviation_is_around_the_mean() {
        assert_eq!((mean(&[2, 4, 4, 4, 5, 5, 7, 9]), deviation(&[2, 4, 4, 4, 5, 5, 7, 9])), (Some(5), Some(2)));
        assert_eq!((mean(&[7]), deviation(&[7]), median(vec![9, 1, 5, 2])), (Some(7), Some(0), Some(2)));
        assert_eq!((mean(&[]), deviation(&[]), median(Vec::new())), (None, None, None));
        assert_eq!((mean(&[u64::MAX, u64::MAX]), deviation(&[0, u64::MAX])), (Some(u64::MAX), Some(u64::MAX / 2)));
    }

    #[test]
    fn what_is_at_the_limit_is_not_beyond_it() {
        assert_eq!([0, 2, 3].map(|limit| beyond(&[1, 2, 3], Duration::from_nanos(limit))), [3, 1, 0]);
    }

    #[test]
    fn rates_are_exact_and_never_divide_by_zero() {
        assert_eq!(per_second(u64::MAX, Duration::from_nanos(1)), u64::MAX);
        assert_eq!(per_second(1, Duration::ZERO), 0);
        assert_eq!(per_second(1_500, Duration::from_millis(1_500)), 1_000);
    }
}
