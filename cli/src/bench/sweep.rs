//! Many runs on parallel threads, their outcomes in the order of what was asked for, whoever was first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

/// Runs `run` on each case, on at most `threads` threads, with a bar on standard error.
pub(super) fn sweep<C: Sync, R: Send>(cases: &[C], threads: usize, run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let style =
        ProgressStyle::with_template("{bar:24} {pos} of {len} runs, {eta} left").expect("the template is valid");
    let bar = ProgressBar::new(cases.len() as u64).with_style(style);
    bar.tick();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((place, case)) = cases.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((place, run(case)));
            bar.inc(1);
        }
        done
    };
    let mut outcomes = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, cases.len().max(1))).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        // A world that finds its own invariants broken ends the command.
        joined.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect::<Vec<_>>()
    });
    bar.finish_and_clear();
    outcomes.sort_by_key(|outcome| outcome.0);
    outcomes.into_iter().map(|outcome| outcome.1).collect()
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
