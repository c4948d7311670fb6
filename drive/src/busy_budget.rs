//! The executive's share of its processor: it never runs into the kernel's real-time throttle.
//!
//! A SCHED_FIFO thread that uses up `sched_rt_runtime_us` of a period is stopped for the rest of it, 50 ms as a rule, in the
//! middle of whatever it does. So the executive counts its own time in short windows. When a window's budget is used up it
//! does only current real-time work until the window ends, and looks for input only now and then: best effort waits,
//! promised work does not.

use laxity_core::units::{Duration, Instant};

/// The accounting window: a tenth of the kernel's usual period, so that several fit into one.
const WINDOW: Duration = Duration::from_millis(100);
/// While restricted, inputs are looked at this often.
pub(crate) const RESTRICTED_POLL: Duration = Duration::from_micros(500);

/// Busy time in the current window.
pub(crate) struct BusyBudget {
    /// Budget of a window; `None` if nothing throttles this thread.
    budget: Option<Duration>,
    /// The time at which the next window begins.
    pub(crate) window_ends: Instant,
    busy: Duration,
}

impl BusyBudget {
    /// `throttle` is (runtime, period) of the kernel's throttle, if it applies to this thread. Nine tenths of it are used.
    pub(crate) fn new(now: Instant, throttle: Option<(Duration, Duration)>) -> Self {
        let budget = throttle
            .map(|(runtime, period)| WINDOW.mul_ratio(runtime.as_nanos(), period.as_nanos().max(1)).mul_ratio(9, 10));
        Self { budget, window_ends: now + WINDOW, busy: Duration::ZERO }
    }

    /// Notes that the thread ran from `from` to `now`; whether the window's budget is used up, if there is one.
    pub(crate) fn ran(&mut self, from: Instant, now: Instant) -> Option<bool> {
        let budget = self.budget?;
        if now >= self.window_ends {
            self.window_ends = now + WINDOW;
            self.busy = Duration::ZERO;
        }
        self.busy += now.since(from);
        Some(self.busy >= budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_busy_thread_is_restricted_before_the_kernel_stops_it_and_free_in_the_next_window() {
        let throttle = (Duration::from_millis(950), Duration::from_millis(1000));
        let mut share = BusyBudget::new(ms(0), Some(throttle));
        assert_eq!(share.ran(ms(0), ms(85)), Some(false));
        assert_eq!(share.ran(ms(85), ms(86)), Some(true), "nine tenths of 95 ms are used");
        assert_eq!(share.window_ends, ms(100));
        assert_eq!(share.ran(ms(99), ms(100)), Some(false));
    }

    #[test]
    fn without_a_throttle_nothing_is_restricted() {
        let mut share = BusyBudget::new(ms(0), None);
        assert_eq!(share.ran(ms(0), ms(10_000)), None);
    }
}
