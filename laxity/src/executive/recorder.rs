//! What a calibration records of the windows of one length: their values in the order of time, in bounded memory.
//!
//! There is room for all windows of ten milliseconds and more that a week has, since those are the ones that may show that little is
//! taken with a high probability. Of shorter ones so many are kept as ten minutes have; of a longer measurement only every n-th,
//! evenly from its beginning to its end. Windows that are passed over are counted, and the largest of all is known; nothing else
//! of them is claimed.

use laxity_core::units::{Duration, Instant};

use super::windows::WindowPairs;

/// Windows that are kept at most; of four bytes each.
const MOST: u64 = 1 << 25;
/// The same for shorter windows than `LONG`.
const MOST_SHORT: u64 = 1 << 22;
const LONG: Duration = Duration::from_millis(10);

/// Stolen time of each window of one length, in the order of time.
#[derive(Clone, Debug)]
pub struct Recorder {
    windows: WindowPairs,
    values: Vec<u32>,
    /// Only every so manieth is kept.
    stride: u64,
    /// So many are passed over before the next one is kept.
    pass: u64,
    /// All that are over.
    seen: u64,
    largest: Duration,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRecord {
    /// How long each window is.
    pub length: Duration,
    /// Of every so manieth window what was stolen in it, ns.
    pub values: Vec<u32>,
    /// Every how manieth window was kept.
    pub stride: u64,
    /// How many windows there were.
    pub windows: u64,
    /// The most that was stolen in any of them.
    pub largest: Duration,
}

impl Recorder {
    /// For windows of `length`, shorter than four seconds, of a measurement that takes about `time`: if it takes a quarter longer,
    /// what comes then is not kept.
    pub fn new(start: Instant, length: Duration, time: Duration) -> Self {
        Self::one_of(1, start, length, time)
    }

    /// As [`Recorder::new`], one of so many that share the room.
    pub fn one_of(recorders: u64, start: Instant, length: Duration, time: Duration) -> Self {
        let expected = time.div_ceil(length);
        let most = if length < LONG { MOST_SHORT } else { MOST };
        let stride = stride(expected, (most / recorders.max(1)).max(1));
        let kept = expected / stride;
        let values = Vec::with_capacity((kept + kept / 4 + 64) as usize);
        Self { windows: WindowPairs::new(start, length), values, stride, pass: 0, seen: 0, largest: Duration::ZERO }
    }

    /// So much was stolen until `end`.
    pub fn note(&mut self, end: Instant, stolen: Duration) {
        let mut windows = self.windows;
        windows.note(end, stolen, |stolen, count| self.keep(stolen, count));
        self.windows = windows;
    }

    /// Closes what is over at `end`.
    pub fn advance(&mut self, end: Instant) {
        let mut windows = self.windows;
        windows.advance(end, |stolen, count| self.keep(stolen, count));
        self.windows = windows;
    }

    /// Goes on at `start` with a new window; the open one is forgotten.
    pub fn resume(&mut self, start: Instant) {
        self.windows = WindowPairs::new(start, self.windows.length());
    }

    /// What was recorded.
    pub fn finish(self) -> WindowRecord {
        let Self { windows, values, stride, seen, largest, .. } = self;
        WindowRecord { length: windows.length(), values, stride, windows: seen, largest }
    }

    /// So many windows in a row are over, and in each so much was stolen.
    fn keep(&mut self, stolen: Duration, count: u64) {
        self.seen += count;
        self.largest = self.largest.max(stolen);
        let Some(behind) = count.checked_sub(self.pass + 1) else {
            self.pass -= count;
            return;
        };
        let kept = behind / self.stride + 1;
        self.pass = self.stride - 1 - behind % self.stride;
        let room = self.values.capacity() - self.values.len();
        let kept = usize::try_from(kept).unwrap_or(usize::MAX).min(room);
        let stolen = u32::try_from(stolen.as_nanos()).unwrap_or(u32::MAX);
        self.values.extend(std::iter::repeat_n(stolen, kept));
    }
}

impl WindowRecord {
    /// Only the windows that lie between `from` and `until`, of those that began one after the other at `begin`. The largest stays that
    /// of all of them.
    pub fn between(mut self, begin: Instant, from: Instant, until: Instant) -> Self {
        let first = from.since(begin).div_ceil(self.length).min(self.windows);
        // The second window of a pair ends half a window later.
        let half = self.length.as_nanos().div_ceil(2);
        let over = until.since(begin).as_nanos().saturating_sub(half) / self.length.as_nanos();
        let last = over.clamp(first, self.windows);
        // The first of all was kept, and every so manieth after it.
        let place = |window: u64| usize::try_from(window.div_ceil(self.stride)).unwrap_or(usize::MAX);
        let (first_place, last_place) = (place(first), place(last));
        self.values.truncate(last_place);
        self.values.drain(..first_place.min(self.values.len()));
        Self { windows: last - first, ..self }
    }

    /// Of each window what was stolen from that one of two observers from which more was. They watched the same windows, and what a host
    /// does to both at once is no two pieces of evidence.
    pub fn and(mut self, other: &Self) -> Self {
        debug_assert_eq!((self.length, self.stride), (other.length, other.stride));
        self.values.truncate(other.values.len());
        for (value, other) in self.values.iter_mut().zip(&other.values) {
            *value = (*value).max(*other);
        }
        Self { windows: self.windows.min(other.windows), largest: self.largest.max(other.largest), ..self }
    }
}

/// The least that leaves `most` of `expected` windows at most: one, or a prime. What comes every so many windows, as a timer's tick
/// does, is then not always among those that are passed over; nor what comes at the same place of each turn of a measurement, so
/// 2 and 5 are no such primes.
fn stride(expected: u64, most: u64) -> u64 {
    let least = expected.div_ceil(most);
    let is_prime = |n: u64| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    if least <= 1 { 1 } else { (least.max(3)..).find(|&n| n != 5 && is_prime(n)).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    #[test]
    fn a_week_fits_into_bounded_memory_from_its_beginning_to_its_end() {
        for micros in [100, 1000, 10_000] {
            let length = Duration::from_micros(micros);
            let mut recorder = Recorder::new(Instant::ZERO, length, WEEK);
            let room = recorder.values.capacity();
            assert!(room as u64 <= MOST + MOST / 4 + 64, "{room} values");
            // A nanosecond of each of the last few windows, and all of one somewhere in the middle.
            let middle = Instant::ZERO + WEEK.mul_ratio(1, 2);
            recorder.note(middle, length * 2);
            let last = length * (10 * recorder.stride);
            recorder.advance(Instant::ZERO + WEEK.saturating_sub(last));
            for window in 1..=10 * recorder.stride {
                recorder.note(Instant::ZERO + WEEK.saturating_sub(last) + length * window, Duration::from_nanos(1));
            }
            let recorded = recorder.finish();
            // The second window of the last pair is not over.
            assert_eq!(recorded.windows, WEEK.div_ceil(length) - 1);
            assert_eq!(recorded.values.capacity(), room, "nothing was allocated");
            assert_eq!(recorded.values.len() as u64, recorded.windows.div_ceil(recorded.stride));
            assert!(recorded.stride > 1, "a week of nothing else is more than there is room for");
            assert!(recorded.values.iter().rev().take(9).all(|&stolen| stolen == 1));
            assert_eq!(recorded.largest, length);
        }
    }

    #[test]
    fn every_so_manieth_window_is_kept_however_they_come() {
        let mut recorder = Recorder::new(Instant::ZERO, Duration::from_nanos(100), Duration::from_micros(10));
        recorder.stride = 7;
        let mut at = Instant::ZERO;
        for (stolen, windows) in [(1, 3), (2, 4), (3, 1), (4, 20), (5, 6), (6, 7)] {
            for _ in 0..windows {
                at += Duration::from_nanos(100);
                recorder.note(at, Duration::from_nanos(stolen));
            }
        }
        let recorded = recorder.finish();
        assert_eq!((recorded.windows, recorded.values), (40, vec![1, 3, 4, 4, 5, 6]));
        let mut idle = Recorder::new(Instant::ZERO, Duration::from_nanos(100), Duration::from_micros(10));
        idle.stride = 7;
        idle.advance(Instant::from_nanos(100 * 41));
        assert_eq!(idle.finish().values, [0; 6]);
    }

    #[test]
    fn ten_minutes_are_kept_and_strides_are_primes() {
        let ten_minutes = Duration::from_secs(600).div_ceil(Duration::from_micros(100)) * 4 / 9;
        assert_eq!(stride(ten_minutes, MOST_SHORT), 1);
        let strides = [2, 3, 4, 5, 6, 8, 10, 642].map(|times| stride(times * MOST, MOST));
        assert_eq!(strides, [3, 3, 7, 7, 7, 11, 11, 643]);
    }

    #[test]
    fn what_was_recorded_before_and_after_the_work_does_not_count() {
        let nanos = Duration::from_nanos;
        let begin = Instant::from_nanos(1000);
        // The second window of each pair has what was stolen in the next one.
        for (stride, kept) in [(1, vec![4, 5, 6, 7]), (3, vec![4, 7]), (7, vec![])] {
            let mut recorder = Recorder::new(begin, nanos(100), nanos(2000));
            recorder.stride = stride;
            for window in 0..10 {
                recorder.note(begin + nanos(100 * window + window), nanos(window));
            }
            recorder.advance(begin + nanos(1000));
            let recorded = recorder.finish().between(begin, begin + nanos(201), begin + nanos(799));
            assert_eq!((recorded.windows, recorded.values, recorded.largest), (4, kept, nanos(9)), "{stride}");
        }
        let recorder = Recorder::new(begin, nanos(100), nanos(2000));
        let recorded = recorder.finish().between(begin, begin + nanos(201), begin);
        assert_eq!((recorded.windows, recorded.values), (0, vec![]));
    }

    #[test]
    fn what_two_saw_at_once_counts_once() {
        let recorded = |values: &[u32], largest| WindowRecord {
            length: Duration::from_nanos(100),
            values: values.to_vec(),
            stride: 1,
            windows: values.len() as u64,
            largest: Duration::from_nanos(largest),
        };
        assert_eq!(recorded(&[1, 9, 0], 9).and(&recorded(&[4, 2], 5)), recorded(&[4, 9], 9));
    }
}
