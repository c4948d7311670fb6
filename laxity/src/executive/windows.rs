//! Stolen time in windows that follow one another: what is calibrated, and what is watched at run time, by the same count.

use laxity_core::units::{Duration, Instant};

/// The windows of one length from a start on, of which one is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    length: Duration,
    /// When the open one began.
    opened: Instant,
    /// What was stolen in it so far.
    stolen: Duration,
    /// Until when it is known.
    noted: Instant,
}

impl Windows {
    /// `length` is not zero.
    pub(crate) fn new(start: Instant, length: Duration) -> Self {
        Self { length, opened: start, stolen: Duration::ZERO, noted: start }
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Time was stolen until `end`, for so long; calls come in the order of time. What reaches back beyond the last call's end is not
    /// counted again: no nanosecond is stolen twice. `close` is told what was stolen in each window that is over, and in how many in
    /// a row; three calls at the most.
    pub(crate) fn note(&mut self, end: Instant, stolen: Duration, mut close: impl FnMut(Duration, u64)) {
        let begin = end.before(stolen).max(self.opened).max(self.noted).min(end);
        self.noted = self.noted.max(end);
        self.advance(begin, &mut close);
        let closes = self.opened + self.length;
        if end < closes {
            self.stolen += end.since(begin);
            return;
        }
        close(self.stolen + closes.since(begin), 1);
        let rest = end.since(closes);
        let whole = rest.as_nanos() / self.length.as_nanos();
        if whole > 0 {
            close(self.length, whole);
        }
        self.opened = closes + self.length * whole;
        self.stolen = end.since(self.opened);
    }

    /// Closes the windows that are over at `now`.
    pub(crate) fn advance(&mut self, now: Instant, mut close: impl FnMut(Duration, u64)) {
        let over = now.since(self.opened).as_nanos() / self.length.as_nanos();
        if over == 0 {
            return;
        }
        close(std::mem::take(&mut self.stolen), 1);
        if over > 1 {
            close(Duration::ZERO, over - 1);
        }
        self.opened += self.length * over;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Nanosecond by nanosecond.
    fn naive(length: u64, spans: &[(u64, u64)], until: u64) -> Vec<u64> {
        (0..until / length)
            .map(|window| {
                let (from, to) = (window * length, (window + 1) * length);
                spans.iter().map(|&(begin, end)| end.min(to).saturating_sub(begin.max(from))).sum()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn each_nanosecond_is_counted_in_its_window(
            length in 1u64..20, spans in prop::collection::vec((0u64..30, 0u64..50, 0u64..40), 0..20), rest in 0u64..100,
        ) {
            let start = Instant::from_nanos(1000);
            let mut windows = Windows::new(start, Duration::from_nanos(length));
            let (mut closed, mut at, mut taken) = (Vec::new(), 0, Vec::new());
            let mut close = |stolen: Duration, count: u64| {
                closed.extend(std::iter::repeat_n(stolen.as_nanos(), count as usize));
            };
            // Some are said to have begun before the last one ended.
            for (pause, stolen, again) in spans {
                let again = if pause == 0 { again } else { 0 };
                taken.push((at + pause, at + pause + stolen));
                at += pause + stolen;
                windows.note(start + Duration::from_nanos(at), Duration::from_nanos(stolen + again), &mut close);
            }
            let until = at + rest;
            windows.advance(start + Duration::from_nanos(until), &mut close);
            prop_assert_eq!(closed, naive(length, &taken, until));
        }
    }
}
