//! Time that the platform takes away in the middle of the loop: found, and told to the endpoint, which judges misses by it.

use std::sync::atomic::Ordering;

use laxity_core::units::{Duration, Instant};
use laxity_link::sys;

use super::Executive;

/// Shorter gaps are part of what calibration calls the cost of a step.
const LEAST_GAP: Duration = Duration::from_micros(100);

/// How long the thread was on its way without its processor: the clock's time against its own.
#[derive(Debug, Default)]
pub(crate) struct OffProcessor {
    /// By the clock, since the last settlement, sleep excluded.
    pub(super) ran: Duration,
    /// The thread's processor time at the last settlement.
    own: Duration,
}

impl OffProcessor {
    /// The difference since the last settlement. A system call, so only when something took too long.
    pub(super) fn settle(&mut self) -> Duration {
        let own = sys::thread_processor_time();
        let off = self.ran.saturating_sub(own.saturating_sub(self.own));
        *self = Self { ran: Duration::ZERO, own };
        off
    }
}

/// A part of the loop: when it began, and what it may cost by the platform's figures. What is beyond that was taken by the
/// platform.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) start: Instant,
    pub(super) allowance: Duration,
}

impl<L, F> Executive<L, F> {
    /// Compares a round, as far as it has come, with what it may cost. What is beyond that, and was not our own processor time,
    /// the platform took: a slow handler is not an excuse. A round that was too long is settled, and begins anew.
    pub(super) fn watch(&mut self, end: Instant, round: &mut Round) {
        let ran = end.since(round.start);
        let beyond = ran.saturating_sub(round.allowance);
        if beyond >= LEAST_GAP {
            self.off_processor.ran += ran;
            let taken = self.off_processor.settle().min(beyond);
            self.note_gap(end, taken);
            *round = Round { start: end, allowance: Duration::ZERO };
        }
    }

    pub(super) fn note_gap(&mut self, end: Instant, taken: Duration) {
        if taken < LEAST_GAP {
            return;
        }
        self.endpoint.note_gap(end, taken);
        if taken > self.platform.interference.within(taken) {
            self.published.gaps.fetch_add(1, Ordering::Relaxed);
        }
        self.published.largest_gap.fetch_max(taken.as_nanos(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use laxity_link::sys::now;

    use super::*;

    /// `work`, and what the clock says that it took.
    fn timed(work: impl FnOnce()) -> Duration {
        let start = now();
        work();
        now().since(start)
    }

    #[test]
    fn time_without_a_processor_counts_and_own_work_does_not() {
        let mut off = OffProcessor::default();
        off.settle();
        let nap = Duration::from_millis(20);
        off.ran = timed(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        // The sleeper has no processor for as long as it sleeps, whatever else the machine does.
        assert!(off.settle() >= nap.mul_ratio(9, 10));

        let own = sys::thread_processor_time();
        let mut wasted = 0u64;
        off.ran = timed(|| {
            while sys::thread_processor_time() - own < nap {
                wasted = wasted.wrapping_mul(31).wrapping_add(1);
            }
        });
        let ran = off.ran;
        assert!(off.settle() <= ran.saturating_sub(nap), "20 ms of {ran} were our own work ({wasted})");
    }
}
