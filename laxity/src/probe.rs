//! A probe for stolen time: a thread that reads the clock without a pause, and reports the gaps.
//!
//! ```
//! use laxity::probe;
//! use laxity::units::Duration;
//!
//! let mut largest = Duration::ZERO;
//! probe::spin(Duration::from_millis(2), Duration::from_micros(1), |_end, gap| largest = largest.max(gap));
//! println!("the largest gap was {largest}");
//! ```

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

/// Spins for `length`, and calls `tell` for each gap between two reads of the clock that is longer than `least`, with its end and
/// its length.
///
/// The caller chooses the scheduling of its thread. At a real-time priority no other thread of this processor runs meanwhile, and
/// the kernel's throttle stops a thread that spins for too long.
///
/// Two reads are some tens of nanoseconds apart, so a `least` of one microsecond separates them from interrupts.
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
