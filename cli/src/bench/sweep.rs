//! Many runs on parallel threads with a bar that shows them, their outcomes in the order of what was asked for.

use laxity_sim::parallel::in_order;

use crate::progress;

/// Runs `run` on each case, on at most `threads` threads, with a bar on standard error.
pub(super) fn sweep<C: Sync, R: Send>(cases: &[C], threads: usize, run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let number = cases.len() as u64;
    let bar = progress::bar("{bar:24} {pos} of {len} runs, {eta} left", number);
    bar.tick();
    let one = |place| {
        let outcome = run(&cases[place as usize]);
        bar.inc(1);
        outcome
    };
    in_order(threads, number, || true, one)
}
