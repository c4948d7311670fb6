//! Many runs on parallel threads with a bar that shows them, their outcomes in the order of what was asked for.

use laxity_core::units::Duration;
use laxity_link::emulated::SplitMix64;
use laxity_sim::parallel::in_order;

use super::arguments::BenchArguments;
use crate::progress;

/// How many runs at a time: as asked for, else as many as there are processors.
pub(super) fn threads(arguments: &BenchArguments) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments.threads.map_or_else(processors, usize::from)
}

/// The phases of a seed; 0 has none.
pub(super) fn phases(seed: u64) -> Option<SplitMix64> {
    (seed != 0).then_some(SplitMix64(seed))
}

/// When in its period a source starts: all together without random numbers, else each anywhere.
pub(super) fn phase(random: &mut Option<SplitMix64>, period: Duration) -> Duration {
    let next = random.as_mut().map_or(0, SplitMix64::next);
    Duration::from_nanos(next % period.as_nanos().max(1))
}

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
