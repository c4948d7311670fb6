//! A clock of this process alone that drifts and steps, for a laboratory with two clocks on one machine: the reading of [`now`](super::now) is a linear function of
//! CLOCK_MONOTONIC. Without one, reading the time costs a load and a branch more.
//!
//! It never runs backwards: a step goes forward. Points in time from the kernel are converted to it ([`from_kernel`]), and spans for which the
//! kernel is to wait are converted back (`kernel_span`). Not subject to it: CLOCK_REALTIME, processor time, `std::time::Instant`, other processes, and BPF
//! programs. [`clock_identity`](super::clock_identity) does not know of it: give the process a time namespace of its own as well.

use std::sync::OnceLock;

use laxity_core::units::{Duration, Instant};

use super::clock::kernel_now;

/// The most that it may drift, either way, in parts per million: a tenth.
pub const MOST_DRIFT_PPM: i32 = 100_000;

const PPM: i128 = 1_000_000;

/// If there is one: the time from which on it drifts, by CLOCK_MONOTONIC, and by how many parts per million.
static BASE_AND_DRIFT: OnceLock<(Instant, i32)> = OnceLock::new();
/// The time at which it steps, by CLOCK_MONOTONIC, and the size of the step.
static STEP: OnceLock<(Instant, Duration)> = OnceLock::new();

/// Gives the process a clock of its own, which is faster than CLOCK_MONOTONIC by so many parts per million, or slower. Call it once, before the
/// process starts another thread.
///
/// # Panics
/// Beyond [`MOST_DRIFT_PPM`]; if it has one already.
pub fn set_process_clock(drift_ppm: i32) {
    let limit = MOST_DRIFT_PPM.unsigned_abs();
    assert!(drift_ppm.unsigned_abs() <= limit, "a clock that drifts by {drift_ppm} ppm, expected {limit} at most");
    let is_first = BASE_AND_DRIFT.set((kernel_now(), drift_ppm)).is_ok();
    assert!(is_first, "the process has a clock of its own already");
}

/// Makes the process's own clock step forward by `by` once it reads `at`, which lies ahead. Call it once.
///
/// # Panics
/// If the process has no clock of its own, or if that clock has a step already.
pub fn step_process_clock(at: Instant, by: Duration) {
    let line = line().expect("a process with a clock of its own");
    let is_first = STEP.set((line.when(at), by)).is_ok();
    assert!(is_first, "the clock has a step already");
}

/// The reading of the process's clock when CLOCK_MONOTONIC reads `kernel`.
#[inline]
pub fn from_kernel(kernel: Instant) -> Instant {
    if has_process_clock() { reading(kernel) } else { kernel }
}

/// For how long the kernel has to wait until the process's clock has moved on by `span`: rounded up, and not longer than until a step passes that.
#[inline]
pub(crate) fn kernel_span(span: Duration) -> Duration {
    if has_process_clock() { waited(span) } else { span }
}

/// True if the process has a clock of its own.
#[inline]
pub(crate) fn has_process_clock() -> bool {
    BASE_AND_DRIFT.get().is_some()
}

/// True if that has made its step.
#[inline]
pub(crate) fn has_stepped() -> bool {
    has_process_clock() && line().is_some_and(|line| kernel_now() >= line.step_at)
}

#[cold]
fn reading(kernel: Instant) -> Instant {
    line().map_or(kernel, |line| line.reading(kernel))
}

#[cold]
fn waited(span: Duration) -> Duration {
    let now = kernel_now();
    line().map_or(span, |line| line.when(line.reading(now) + span).since(now))
}

fn line() -> Option<ClockLine> {
    let &(base, drift_ppm) = BASE_AND_DRIFT.get()?;
    let (step_at, step_by) = STEP.get().copied().unwrap_or((Instant::MAX, Duration::ZERO));
    Some(ClockLine { base, drift_ppm, step_at, step_by })
}

/// The reading of such a clock: from `base` on it drifts, and at `step_at` by CLOCK_MONOTONIC it steps.
#[derive(Clone, Copy, Debug)]
struct ClockLine {
    base: Instant,
    drift_ppm: i32,
    step_at: Instant,
    step_by: Duration,
}

impl ClockLine {
    fn reading(&self, kernel: Instant) -> Instant {
        let drifted = self.drifted(kernel);
        if kernel >= self.step_at { drifted + self.step_by } else { drifted }
    }

    /// The first point of CLOCK_MONOTONIC at which it reads `reading` or more.
    fn when(&self, reading: Instant) -> Instant {
        let before = self.undrifted(reading);
        if before < self.step_at {
            return before;
        }
        // A step passes over readings: they are read when it is made.
        self.undrifted(reading.before(self.step_by)).max(self.step_at)
    }

    /// Without the step.
    fn drifted(&self, kernel: Instant) -> Instant {
        if kernel <= self.base {
            return kernel;
        }
        let elapsed = i128::from(kernel.since(self.base).as_nanos());
        self.base + span(elapsed * (PPM + i128::from(self.drift_ppm)) / PPM)
    }

    fn undrifted(&self, reading: Instant) -> Instant {
        if reading <= self.base {
            return reading;
        }
        let (elapsed, rate) = (i128::from(reading.since(self.base).as_nanos()), PPM + i128::from(self.drift_ppm));
        self.base + span((elapsed * PPM + rate - 1) / rate)
    }
}

fn span(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_line_never_runs_backwards_and_its_inverse_is_the_first_such_reading() {
        for drift_ppm in [-100_000, -70, 0, 100, 50_000, 100_000] {
            for (step_at, step_by) in [(u64::MAX, 0), (30_000, 5_000), (30_000, 0), (1_000, 7)] {
                let (step_at, step_by) = (at(step_at), Duration::from_nanos(step_by));
                let line = ClockLine { base: at(1_000), drift_ppm, step_at, step_by };
                let mut before = Instant::ZERO;
                for kernel in (0..60_000).step_by(7) {
                    let reading = line.reading(at(kernel));
                    assert!(reading >= before, "{line:?} {kernel}");
                    before = reading;
                }
                for reading in (0..60_000).step_by(3) {
                    let when = line.when(at(reading));
                    assert!(line.reading(when) >= at(reading), "{line:?} {reading}");
                    let earlier = when.before(Duration::from_nanos(1));
                    assert!(when == Instant::ZERO || line.reading(earlier) < at(reading), "{line:?} {reading}");
                }
            }
        }
    }

    #[test]
    fn it_drifts_from_its_base_on_and_steps_once() {
        let (step_at, step_by) = (at(2_000_000_000), Duration::from_millis(3));
        let line = ClockLine { base: at(1_000_000_000), drift_ppm: 100, step_at, step_by };
        assert_eq!(line.reading(at(999)), at(999));
        assert_eq!(line.reading(at(1_500_000_000)), at(1_500_050_000));
        assert_eq!(line.reading(at(2_000_000_000)), at(2_003_100_000));
        assert_eq!(line.when(at(2_001_000_000)), step_at, "passed over by the step");
        assert!(line.when(Instant::MAX) > at(1 << 62));
    }

    #[test]
    fn without_one_the_time_is_the_kernels() {
        assert!(!has_process_clock());
        assert_eq!((from_kernel(at(5)), kernel_span(Duration::from_nanos(7))), (at(5), Duration::from_nanos(7)));
    }
}
