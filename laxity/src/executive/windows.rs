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

/// Windows of one length on two grids, the second half a window after the first. Of each pair, a window of the first and the one of the second that begins
/// half a window later, what was stolen in the one from which more was.
///
/// A stall that falls on the border of two windows of one grid lies within one of the other: so it counts once over spans of up to half a window
/// ([`laxity_core::platform::Interference::envelopes`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowPairs {
    first: Windows,
    second: Windows,
    /// Windows of the first grid that are over, of which those of the second are not: what was stolen in each, and in how many in a row.
    open: [(Duration, u64); 8],
}

impl WindowPairs {
    /// `length` is not zero.
    pub(crate) fn new(start: Instant, length: Duration) -> Self {
        let half = Duration::from_nanos(length.as_nanos().div_ceil(2));
        let (first, second) = (Windows::new(start, length), Windows::new(start + half, length));
        Self { first, second, open: [(Duration::ZERO, 0); 8] }
    }

    pub(crate) fn length(&self) -> Duration {
        self.first.length
    }

    /// As [`Windows::note`], of pairs.
    pub(crate) fn note(&mut self, end: Instant, stolen: Duration, close: impl FnMut(Duration, u64)) {
        self.both(|windows, close| windows.note(end, stolen, close), close);
    }

    /// As [`Windows::advance`], of pairs.
    pub(crate) fn advance(&mut self, now: Instant, close: impl FnMut(Duration, u64)) {
        self.both(|windows, close| windows.advance(now, close), close);
    }

    fn both(
        &mut self,
        step: impl Fn(&mut Windows, &mut dyn FnMut(Duration, u64)),
        mut close: impl FnMut(Duration, u64),
    ) {
        let Self { first, second, open } = self;
        step(first, &mut |stolen, count| {
            // At most one is left from before, and three come at a time: there is room.
            if let Some(free) = open.iter_mut().find(|(_, left)| *left == 0) {
                *free = (stolen, count);
            }
        });
        step(second, &mut |stolen, mut count| {
            while count > 0 {
                let (of_first, left) = open[0];
                if left == 0 {
                    break;
                }
                let both = left.min(count);
                close(stolen.max(of_first), both);
                count -= both;
                open[0].1 -= both;
                if open[0].1 == 0 {
                    open.rotate_left(1);
                }
            }
        });
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

        #[test]
        fn of_each_pair_the_window_counts_from_which_more_was_stolen(
            length in 2u64..20, spans in prop::collection::vec((0u64..30, 0u64..50), 0..20), rest in 0u64..100,
        ) {
            let start = Instant::from_nanos(1000);
            let mut pairs = WindowPairs::new(start, Duration::from_nanos(length));
            let (mut closed, mut at, mut taken) = (Vec::new(), 0, Vec::new());
            let mut close = |stolen: Duration, count: u64| {
                closed.extend(std::iter::repeat_n(stolen.as_nanos(), count as usize));
            };
            for (pause, stolen) in spans {
                taken.push((at + pause, at + pause + stolen));
                at += pause + stolen;
                pairs.note(start + Duration::from_nanos(at), Duration::from_nanos(stolen), &mut close);
            }
            let until = at + rest;
            pairs.advance(start + Duration::from_nanos(until), &mut close);
            let half = length.div_ceil(2);
            let later: Vec<(u64, u64)> =
                taken.iter().map(|&(begin, end)| (begin.saturating_sub(half), end.saturating_sub(half))).collect();
            let second = naive(length, &later, until.saturating_sub(half));
            let expected: Vec<u64> = naive(length, &taken, until).into_iter().zip(second).map(|(one, other)| one.max(other)).collect();
            prop_assert_eq!(closed, expected);
        }
    }
}
