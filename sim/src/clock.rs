//! A host's clock: what it reads at a point in the world's time, and when it will read something.
//!
//! The world has one time, in which everything takes as long as it takes. An endpoint sees its host's clock alone: every time
//! that it is told is a reading, and every time that it tells is turned back here. A clock may be stepped forward, may drift and
//! may stand still; it never runs backwards, which is what an endpoint relies on.

use laxity_core::units::{Duration, Instant};

const PPM: i128 = 1_000_000;

/// A clock of a host. A new one reads the world's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// From when on which line holds; ascending, the first one from the origin on.
    lines: Vec<ClockLine>,
}

/// From `from` on the clock reads `reads` and what has passed since, stretched; or `reads` alone, if it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockLine {
    from: Instant,
    reads: Instant,
    drift_ppm: i32,
    is_stopped: bool,
}

impl ClockLine {
    fn reading(&self, at: Instant) -> Instant {
        if self.is_stopped {
            return self.reads;
        }
        if self.drift_ppm == 0 {
            return self.reads + at.since(self.from);
        }
        let nanos = i128::from(at.since(self.from).as_nanos()) * (PPM + i128::from(self.drift_ppm)) / PPM;
        self.reads + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The first point from `from` on at which it reads `reading` or more.
    fn when(&self, reading: Instant) -> Instant {
        let ahead = reading.since(self.reads);
        if self.is_stopped && !ahead.is_zero() {
            return Instant::MAX;
        }
        if self.drift_ppm == 0 {
            return self.from + ahead;
        }
        let rate = PPM + i128::from(self.drift_ppm);
        let nanos = (i128::from(ahead.as_nanos()) * PPM + rate - 1) / rate;
        self.from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Default for Clock {
    fn default() -> Self {
        let line = ClockLine { from: Instant::ZERO, reads: Instant::ZERO, drift_ppm: 0, is_stopped: false };
        Self { lines: vec![line] }
    }
}

impl Clock {
    /// The most that a clock may drift, either way: a tenth. A worse one is broken, not adrift.
    pub const MAX_DRIFT_PPM: i32 = 100_000;

    /// A clock that is `ahead` of the world's time from the beginning.
    pub fn ahead(ahead: Duration) -> Self {
        let mut clock = Self::default();
        clock.lines[0].reads = Instant::ZERO + ahead;
        clock
    }

    /// From `at` on it is `by` further ahead. Changes are made in the order of time; one while it stands still is made when it goes on.
    pub fn step(&mut self, at: Instant, by: Duration) {
        let (from, last) = self.last_by(at);
        self.lines.push(ClockLine { from, reads: last.reading(from) + by, ..last });
    }

    /// It stands still from `at`, or from when it goes on if it stands still then, until `until`. The span.
    pub fn stand_still(&mut self, at: Instant, until: Instant) -> (Instant, Duration) {
        let (from, last) = self.last_by(at);
        let until = until.max(from);
        let reads = last.reading(from);
        self.lines.push(ClockLine { from, reads, is_stopped: true, ..last });
        self.lines.push(ClockLine { from: until, reads, ..last });
        (from, until.since(from))
    }

    /// From `at` on it is that much faster than time, or slower, in parts per million.
    ///
    /// # Panics
    /// Beyond [`Clock::MAX_DRIFT_PPM`].
    pub fn drift(&mut self, at: Instant, drift_ppm: i32) {
        assert!(
            drift_ppm.unsigned_abs() <= Self::MAX_DRIFT_PPM.unsigned_abs(),
            "a clock that drifts by {drift_ppm} ppm"
        );
        let (from, last) = self.last_by(at);
        self.lines.push(ClockLine { from, reads: last.reading(from), drift_ppm, ..last });
    }

    /// Its reading at `at`.
    pub fn reading(&self, at: Instant) -> Instant {
        let line = self.lines.iter().rev().find(|line| line.from <= at).unwrap_or(&self.lines[0]);
        line.reading(at)
    }

    /// The first point in time at which it reads `reading` or more.
    pub fn when(&self, reading: Instant) -> Instant {
        if reading == Instant::MAX {
            return Instant::MAX;
        }
        let mut next = Instant::MAX;
        for (number, line) in self.lines.iter().enumerate().rev() {
            if line.reads < reading || number == 0 {
                // A step forward passes over readings: they are read when it is made.
                return line.when(reading).min(next);
            }
            next = line.from;
        }
        next
    }

    /// The time that it went on from one point to a later one, without its steps.
    pub(crate) fn went_on(&self, from: Instant, until: Instant) -> Duration {
        let stepped = |pair: &[ClockLine]| match pair {
            [before, after] if from < after.from && after.from <= until => {
                after.reads.since(before.reading(after.from))
            }
            _ => Duration::ZERO,
        };
        let steps = self.lines.windows(2).map(stepped).fold(Duration::ZERO, |sum, step| sum + step);
        self.reading(until).since(self.reading(from)) - steps
    }

    /// The time for which it stood still from one point to a later one.
    pub(crate) fn stood_still(&self, from: Instant, until: Instant) -> Duration {
        let spans = self.lines.windows(2).filter(|pair| pair[0].is_stopped);
        spans.fold(Duration::ZERO, |sum, pair| sum + pair[1].from.min(until).since(pair[0].from.max(from)))
    }

    /// The last line, and `at`, or from when on that holds if this is later.
    fn last_by(&self, at: Instant) -> (Instant, ClockLine) {
        let last = *self.lines.last().expect("a clock has a first line");
        (at.max(last.from), last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn when_is_the_first_point_with_that_reading() {
        let mut clock = Clock::ahead(Duration::from_nanos(1_000));
        clock.drift(at(10_000), 100_000);
        clock.step(at(20_000), Duration::from_nanos(5_000));
        clock.drift(at(30_000), -70_000);
        assert_eq!(clock.stand_still(at(40_000), at(47_000)), (at(40_000), Duration::from_nanos(7_000)));
        let mut before = Instant::ZERO;
        for nanos in (0..60_000).step_by(7) {
            let reading = clock.reading(at(nanos));
            assert!(reading >= before, "it never runs backwards");
            before = reading;
        }
        for reading in 900..70_000 {
            let when = clock.when(at(reading));
            assert!(clock.reading(when) >= at(reading), "{reading}");
            assert!(
                when == Instant::ZERO || clock.reading(when.before(Duration::from_nanos(1))) < at(reading),
                "{reading}"
            );
        }
        assert_eq!((clock.reading(at(0)), clock.reading(at(20_000))), (at(1_000), at(27_000)));
        assert_eq!(clock.when(at(25_000)), at(20_000), "passed over by the step");
        assert_eq!(clock.when(Instant::MAX), Instant::MAX);
    }

    #[test]
    fn a_clock_that_stood_still_is_behind_by_that_and_what_changes_meanwhile_changes_afterwards() {
        let mut clock = Clock::ahead(Duration::from_nanos(100));
        clock.stand_still(at(1_000), at(3_000));
        assert_eq!(clock.stand_still(at(2_000), at(3_500)), (at(3_000), Duration::from_nanos(500)), "after the first");
        clock.step(at(3_200), Duration::from_nanos(40));
        assert_eq!(
            [999, 1_000, 2_999, 3_499].map(|nanos| clock.reading(at(nanos))),
            [1_099, 1_100, 1_100, 1_100].map(at)
        );
        assert_eq!((clock.reading(at(3_500)), clock.reading(at(3_510))), (at(1_140), at(1_150)));
        assert_eq!([1_099, 1_100, 1_101, 1_141].map(|nanos| clock.when(at(nanos))), [999, 1_000, 3_500, 3_501].map(at));
        let went_on = |from, until| clock.went_on(at(from), at(until)).as_nanos();
        assert_eq!((went_on(900, 3_600), went_on(1_000, 3_499), went_on(3_500, 3_600)), (200, 0, 100));
        let stood = |from, until| clock.stood_still(at(from), at(until)).as_nanos();
        assert_eq!((stood(0, 900), stood(900, 1_100), stood(2_900, 9_000), stood(3_500, 9_000)), (0, 100, 600, 0));
    }

    #[test]
    fn a_new_clock_reads_the_time() {
        let clock = Clock::default();
        assert_eq!((clock.reading(at(7)), clock.when(at(7))), (at(7), at(7)));
    }
}
