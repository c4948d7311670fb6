//! Looking at the clock without a pause: what a thread sees of the time that is taken from it.

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

/// Spins for `length` and tells each gap between two looks at the clock that is longer than `least`: when it ended, and how long
/// it was. What the calling thread runs as is up to the caller; at a real-time priority nothing else of this processor runs
/// meanwhile, and the kernel's throttle stops a thread that spins for too long.
///
/// Two looks are some tens of nanoseconds apart, so a `least` of a microsecond tells them from interrupts.
pub fn spin(length: Duration, least: Duration, mut tell: impl FnMut(Instant, Duration)) {
    let start = now();
    let mut before = start;
    loop {
        let after = now();
        let gap = after.since(before);
        if gap > least {
            tell(after, gap);
        }
        if after.since(start) >= length {
            return;
        }
        before = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_lie_within_the_time_that_was_spun() {
        let length = Duration::from_millis(5);
        let (start, mut last, mut sum) = (now(), Instant::ZERO, Duration::ZERO);
        spin(length, Duration::ZERO, |end, gap| {
            assert!(end > last && gap > Duration::ZERO);
            last = end;
            sum += gap;
        });
        let took = now().since(start);
        assert!(sum >= length && sum <= took, "{sum} of {took}");
    }
}
