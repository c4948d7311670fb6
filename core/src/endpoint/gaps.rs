//! Processor time that the platform took beyond what it was said to take: the evidence behind `platform`.

use crate::units::{Duration, Instant};

const REMEMBERED: usize = 64;

/// The latest gaps. Older ones are forgotten, which can only turn `platform` into `laxity`, never the reverse.
#[derive(Debug)]
pub(super) struct Gaps {
    gaps: [(Instant, Duration); REMEMBERED],
    next: usize,
    latest: Instant,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { gaps: [(Instant::ZERO, Duration::ZERO); REMEMBERED], next: 0, latest: Instant::ZERO }
    }
}

impl Gaps {
    /// Notes a gap that ended at `end` and took `excess` beyond the envelope.
    pub(super) fn note(&mut self, end: Instant, excess: Duration) {
        self.gaps[self.next] = (end, excess);
        self.next = (self.next + 1) % REMEMBERED;
        self.latest = self.latest.max(end);
    }

    /// The sum of the excess of gaps that ended at or after `since`. Constant time where there was none.
    pub(super) fn since(&self, since: Instant) -> Duration {
        if self.latest < since {
            return Duration::ZERO;
        }
        self.gaps.iter().filter(|(end, _)| *end >= since).map(|&(_, excess)| excess).sum()
    }
}
