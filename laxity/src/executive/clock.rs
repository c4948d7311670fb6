//! The live host's clock, and its evidence of time that the platform took.

use laxity_core::units::{Duration, Instant};
use laxity_drive::{Clock, Work};
use laxity_link::sys;

/// CLOCK_MONOTONIC; what the platform took is the clock's time against the thread's own.
#[derive(Debug, Default)]
pub(crate) struct SystemClock {
    /// The thread's processor time when it was last asked for.
    own: Duration,
}

impl Clock for SystemClock {
    fn now(&mut self) -> Instant {
        sys::now()
    }

    fn after(&mut self, _: &Work) -> Instant {
        sys::now()
    }

    fn stolen(&mut self, awake: Duration) -> Duration {
        let own = sys::thread_processor_time();
        let used = own.saturating_sub(std::mem::replace(&mut self.own, own));
        awake.saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use laxity_link::sys::now;

    use super::*;

    /// What the clock says that `work` took.
    fn timed(work: impl FnOnce()) -> Duration {
        let start = now();
        work();
        now().since(start)
    }

    #[test]
    fn time_without_a_processor_counts_and_own_work_does_not() {
        let mut clock = SystemClock::default();
        clock.stolen(Duration::ZERO);
        let nap = Duration::from_millis(20);
        let awake = timed(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        // The sleeper has no processor for as long as it sleeps, whatever else the machine does.
        assert!(clock.stolen(awake) >= nap.mul_ratio(9, 10));

        let own = sys::thread_processor_time();
        let mut wasted = 0u64;
        let ran = timed(|| {
            while sys::thread_processor_time() - own < nap {
                wasted = wasted.wrapping_mul(31).wrapping_add(1);
            }
        });
        assert!(clock.stolen(ran) <= ran.saturating_sub(nap), "20 ms of {ran} were our own work ({wasted})");
    }
}
