//! Processor time that the platform took, and how much of it was beyond what it was said to take: the evidence behind
//! `platform`.

use crate::platform::Interference;
use crate::units::{Duration, Instant};

const REMEMBERED: usize = 64;

/// The latest gaps. Older ones are forgotten, which can only turn `platform` into `laxity`, never the reverse.
#[derive(Debug)]
pub(super) struct Gaps {
    envelope: Interference,
    gaps: [(Instant, Duration); REMEMBERED],
    next: usize,
    latest: Instant,
    /// When this host last had nothing current and real-time to do: a gap since then still delays what it does now.
    pub(super) caught_up: Instant,
}

impl Gaps {
    /// No gaps yet; what the platform may take without being blamed is `envelope`.
    pub(super) fn new(envelope: Interference) -> Self {
        let gaps = [(Instant::ZERO, Duration::ZERO); REMEMBERED];
        Self { envelope, gaps, next: 0, latest: Instant::ZERO, caught_up: Instant::ZERO }
    }

    /// Notes a gap that ended at `end` and took `taken` of the processor.
    pub(super) fn note(&mut self, end: Instant, taken: Duration) {
        self.gaps[self.next] = (end, taken);
        self.next = (self.next + 1) % REMEMBERED;
        self.latest = self.latest.max(end);
    }

    /// The excess that may have delayed what this host began at `since` and does at `now`. A few instructions where there was no
    /// gap.
    #[inline]
    pub(super) fn stolen(&self, since: Instant, now: Instant) -> Duration {
        let since = since.min(self.caught_up);
        if self.latest < since || self.latest == Instant::ZERO { Duration::ZERO } else { self.excess(since, now) }
    }

    /// By how much the gaps that end after `since` exceed what the envelope allows, in the window until `now` in which they do so
    /// most: a bound contains what is allowed in a busy period, which may be shorter than the time since `since`.
    #[cold]
    fn excess(&self, since: Instant, now: Instant) -> Duration {
        let (mut taken, mut most) = (Duration::ZERO, Duration::ZERO);
        for place in (0..REMEMBERED).map(|back| (self.next + REMEMBERED - 1 - back) % REMEMBERED) {
            let (end, length) = self.gaps[place];
            if end < since || length.is_zero() {
                break;
            }
            taken += length;
            most = most.max(taken.saturating_sub(self.envelope.within(now.since(end.before(length)))));
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    #[test]
    fn what_the_envelope_allows_is_nobodys_fault_and_what_is_beyond_is_counted() {
        let mut gaps =
            Gaps::new(Interference { burst: ms(2), periodic: alloc::vec![(ms(10), ms(1))], ..Interference::default() });
        assert_eq!(gaps.excess(at(0), at(100)), Duration::ZERO);
        gaps.note(at(50), ms(3));
        assert_eq!(gaps.excess(at(45), at(55)), Duration::ZERO, "2 + 1 are allowed in 10 ms");
        gaps.note(at(53), ms(3));
        assert_eq!(gaps.excess(at(45), at(55)), ms(3), "two gaps within one envelope");
        assert_eq!(gaps.excess(at(0), at(55)), ms(3), "however long the message had been under way before");
        assert_eq!(gaps.excess(at(51), at(55)), Duration::ZERO, "only the second one overlaps");
        assert_eq!(gaps.excess(at(54), at(60)), Duration::ZERO);
    }

    #[test]
    fn old_gaps_are_forgotten_in_favour_of_new_ones() {
        let mut gaps = Gaps::new(Interference::default());
        for number in 1..=100 {
            gaps.note(at(number), ms(1));
        }
        assert_eq!(gaps.excess(at(0), at(100)), ms(64));
    }
}
