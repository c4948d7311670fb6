//! The time that is left of a processor: a thread of the lowest priority counts the time that it has.

use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use crate::conditions::stay_on;

/// Between two looks at the clock, if no other thread ran between: some tens of nanoseconds. An interrupt takes longer than this.
const UNDISTURBED: Duration = Duration::from_nanos(500);

/// The time for which the calling thread had `processor` to itself until `over`: without the time that interrupts, other threads, or a machine that this one
/// is a guest of took.
pub(super) fn until(over: &AtomicBool, processor: usize) -> Duration {
    stay_on(Some(processor));
    // Of this thread alone. Who may not do it takes a share of those that it waits for.
    let _ = rustix::process::setpriority_process(None, 19);
    let mut count = LeftOverTime { had: Duration::ZERO, last: now() };
    while !over.load(Ordering::Relaxed) {
        count.look(now());
    }
    count.had
}

/// The time between looks in which no other thread ran.
#[derive(Clone, Copy, Debug)]
struct LeftOverTime {
    had: Duration,
    last: Instant,
}

impl LeftOverTime {
    fn look(&mut self, time: Instant) {
        let step = time.since(self.last);
        if step < UNDISTURBED {
            self.had += step;
        }
        self.last = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_took_is_not_counted() {
        let mut count = LeftOverTime { had: Duration::ZERO, last: Instant::from_nanos(1_000) };
        for at in [1_040, 1_539, 2_039, 2_079, 90_000, 90_040] {
            count.look(Instant::from_nanos(at));
        }
        // Not the 500 ns before 2,039, nor what came between 2,079 and 90,000.
        assert_eq!(count.had, Duration::from_nanos(40 + 499 + 40 + 40));
    }
}
