//! Processor time that the platform took, and how much of it was beyond what it was said to take: the evidence behind
//! `platform`.

use crate::platform::Interference;
use crate::units::{Duration, Instant};

const REMEMBERED: usize = 64;
/// Older gaps within so long are remembered as one, so that those of half of `REMEMBERED` times as long are not forgotten: a platform
/// that takes a millisecond out of every two for a quarter of a second is seen to have done so.
const GRAIN: Duration = Duration::from_millis(8);

/// A gap, or several that are remembered as one: all of them between `begin` and `end`, which took `taken` together.
#[derive(Clone, Copy, Debug)]
struct Gap {
    begin: Instant,
    end: Instant,
    taken: Duration,
}

/// The latest of a number of gaps.
#[derive(Debug)]
struct Latest {
    gaps: [Gap; REMEMBERED],
    /// Where the last one is.
    last: usize,
}

impl Latest {
    fn none() -> Self {
        let none = Gap { begin: Instant::ZERO, end: Instant::ZERO, taken: Duration::ZERO };
        Self { gaps: [none; REMEMBERED], last: 0 }
    }

    /// Remembers another one instead of the first.
    fn push(&mut self, gap: Gap) -> Gap {
        self.last = (self.last + 1) % REMEMBERED;
        core::mem::replace(&mut self.gaps[self.last], gap)
    }

    /// From the last one back.
    fn back(&self) -> impl Iterator<Item = &Gap> {
        let (after, before) = self.gaps.split_at(self.last + 1);
        after.iter().rev().chain(before.iter().rev()).take_while(|gap| !gap.taken.is_zero())
    }
}

/// The latest gaps. Older ones are forgotten, which can only turn `platform` into `laxity`, never the reverse.
#[derive(Debug)]
pub(super) struct Gaps {
    envelope: Interference,
    each: Latest,
    /// Those before them, several in one.
    older: Latest,
    latest: Instant,
    /// When this host last had nothing current and real-time to do: a gap since then still delays what it does now.
    pub(super) caught_up: Instant,
}

impl Gaps {
    /// No gaps yet; what the platform may take without being blamed is `envelope`.
    pub(super) fn new(envelope: Interference) -> Self {
        let (each, older) = (Latest::none(), Latest::none());
        Self { envelope, each, older, latest: Instant::ZERO, caught_up: Instant::ZERO }
    }

    /// Notes a gap that ended at `end` and took `taken` of the processor.
    pub(super) fn note(&mut self, end: Instant, taken: Duration) {
        self.latest = self.latest.max(end);
        let gap = self.each.push(Gap { begin: end.before(taken), end, taken });
        let last = &mut self.older.gaps[self.older.last];
        if last.taken.is_zero() || gap.end.since(last.begin) > GRAIN {
            self.older.push(gap);
        } else {
            (last.end, last.taken) = (gap.end.max(last.end), last.taken + gap.taken);
        }
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
        // Of several that are one, what cannot have been taken before.
        let part = |gap: &Gap| gap.taken.saturating_sub(since.since(gap.begin));
        let each = self.each.back().map(|gap| (gap, gap.taken));
        let all = each.chain(self.older.back().map(|gap| (gap, part(gap)))).take_while(|(gap, _)| gap.end >= since);
        let (mut taken, mut most) = (Duration::ZERO, Duration::ZERO);
        for (gap, of_it) in all {
            taken += of_it;
            most = most.max(taken.saturating_sub(self.envelope.within(now.since(gap.begin))));
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

    /// A machine from which a neighbour took three quarters of the time, a millisecond or so at once, for seconds: messages that were
    /// 180 ms late were said to be so by Laxity's own fault, as no more than 64 gaps were remembered, of 70 ms together.
    #[test]
    fn many_small_gaps_are_remembered_as_well_as_few_large_ones() {
        let mut gaps = Gaps::new(Interference { burst: ms(11), ..Interference::default() });
        for number in 0..300 {
            gaps.note(Instant::ZERO + Duration::from_micros(2_000 * (number + 1)), Duration::from_micros(1_500));
        }
        assert_eq!(gaps.excess(at(350), at(600)), Duration::from_micros(175_500));
    }

    #[test]
    fn old_gaps_are_forgotten_in_favour_of_new_ones() {
        let mut gaps = Gaps::new(Interference::default());
        for number in 1..=200 {
            gaps.note(at(10 * number), ms(1));
        }
        assert_eq!(gaps.excess(at(0), at(2000)), ms(128));
    }
}
