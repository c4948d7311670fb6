//! Many runs on parallel threads with a bar that shows them, their outcomes in the order of what was asked for.

use indicatif::{ProgressBar, ProgressStyle};
use laxity_sim::parallel::in_order;

/// Runs `run` on each case, on at most `threads` threads, with a bar on standard error.
pub(super) fn sweep<C: Sync, R: Send>(cases: &[C], threads: usize, run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let style =
        ProgressStyle::with_template("{bar:24} {pos} of {len} runs, {eta} left").expect("the template is valid");
    let bar = ProgressBar::new(cases.len() as u64).with_style(style);
    bar.tick();
    let outcomes = in_order(
        threads,
        cases.len() as u64,
        || true,
        |place| {
            let outcome = run(&cases[place as usize]);
            bar.inc(1);
            outcome
        },
    );
    bar.finish_and_clear();
    outcomes
}

#[cfg(test)]
mod tests {
    use super::sweep;

    #[test]
    fn the_order_does_not_depend_on_the_threads() {
        let cases: Vec<u32> = (0..50).collect();
        for threads in [0, 1, 2, 7, 100] {
            assert_eq!(sweep(&cases, threads, |case| case * 2), cases.iter().map(|case| case * 2).collect::<Vec<_>>());
        }
        assert!(sweep(&[] as &[u32], 2, |case| *case).is_empty());
    }
}
