//! The time that was taken at this host, and the part of it that the platform took beyond its stated limit: the evidence for the cause
//! `platform`, and against it.

use alloc::collections::VecDeque;
use core::ops::AddAssign;

use crate::mutant::{self, Mutant};
use crate::platform::Interference;
use crate::receive::TimeLoss;
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
    taken: TimeLoss,
}

impl TimeLoss {
    fn all(&self) -> Duration {
        self.platform + self.own + self.flooded
    }
}

impl AddAssign for TimeLoss {
    fn add_assign(&mut self, other: Self) {
        self.platform += other.platform;
        self.own += other.own;
        self.flooded += other.flooded;
    }
}

/// Puts `gap` in front, and gives the last one back if there were [`REMEMBERED`] already.
fn remember(gaps: &mut VecDeque<Gap>, gap: Gap) -> Option<Gap> {
    let last = if gaps.len() < REMEMBERED { None } else { gaps.pop_back() };
    gaps.push_front(gap);
    last
}

/// The latest gaps. Older ones are forgotten, which can only turn `platform` into `laxity`, never the reverse: what this host wasted itself
/// is remembered until it has caught up.
pub(super) struct RecentGaps {
    /// The time that the platform may take without being blamed.
    pub(super) envelope: Interference,
    /// The latest one first; at most [`REMEMBERED`].
    each: VecDeque<Gap>,
    /// Those before them, several in one; likewise.
    older: VecDeque<Gap>,
    latest: Instant,
    /// The time that this host has wasted since it had caught up at that time.
    wasted: (Instant, Duration),
    /// The time at which this host last had no current real-time work: a gap since then still delays its present work.
    pub(super) caught_up: Instant,
}

impl RecentGaps {
    /// No gaps yet; what the platform may take without being blamed is `envelope`.
    pub(super) fn new(envelope: Interference) -> Self {
        let [each, older] = [(); 2].map(|()| VecDeque::with_capacity(REMEMBERED));
        let wasted = (Instant::ZERO, Duration::ZERO);
        Self { envelope, each, older, latest: Instant::ZERO, wasted, caught_up: Instant::ZERO }
    }

    /// Notes a gap that ended at `end` and took `taken` of the processor.
    pub(super) fn note(&mut self, end: Instant, taken: TimeLoss) {
        if taken == TimeLoss::default() {
            return;
        }
        let TimeLoss { platform, own, .. } = taken;
        let is_excused = mutant::is_on(Mutant::OwnIsPlatform);
        let taken =
            if is_excused { TimeLoss { platform: platform + own, own: Duration::ZERO, ..taken } } else { taken };
        self.latest = self.latest.max(end);
        if self.wasted.0 != self.caught_up {
            self.wasted = (self.caught_up, Duration::ZERO);
        }
        self.wasted.1 += taken.own;
        let gap = Gap { begin: end.before(taken.all()), end, taken };
        let Some(gap) = remember(&mut self.each, gap) else { return };
        match self.older.front_mut() {
            Some(last) if gap.end.since(last.begin) <= GRAIN => {
                last.end = gap.end.max(last.end);
                last.taken += gap.taken;
            }
            _ => {
                remember(&mut self.older, gap);
            }
        }
    }

    /// The time that may have delayed work that this host began at `since` and does at `now`; of the platform's time, the excess. A few
    /// instructions where there was no gap.
    #[inline]
    pub(super) fn taken(&self, since: Instant, now: Instant) -> TimeLoss {
        let since = if mutant::is_on(Mutant::OldGapsCount) { Instant::ZERO } else { since.min(self.caught_up) };
        if self.latest < since || self.latest == Instant::ZERO { TimeLoss::default() } else { self.excess(since, now) }
    }

    /// The platform's part of it; none where this host wasted at least as much itself. A gap does not excuse what we did beside it.
    #[inline]
    pub(super) fn stolen(&self, since: Instant, now: Instant) -> Duration {
        let TimeLoss { platform, own, .. } = self.taken(since, now);
        if own >= platform { Duration::ZERO } else { platform }
    }

    /// By how much the gaps that end after `since` exceed what the envelope allows, in the window until `now` in which they do so
    /// most: a bound contains what is allowed in a busy period, which may be shorter than the time since `since`.
    #[cold]
    fn excess(&self, since: Instant, now: Instant) -> TimeLoss {
        // Of several that are one, what cannot have been taken before.
        let part = |gap: &Gap| {
            let before = since.since(gap.begin);
            let TimeLoss { platform, own, flooded } = gap.taken;
            let [platform, own, flooded] = [platform, own, flooded].map(|taken| taken.saturating_sub(before));
            TimeLoss { platform, own, flooded }
        };
        let each = self.each.iter().map(|gap| (gap, gap.taken));
        let all = each.chain(self.older.iter().map(|gap| (gap, part(gap)))).take_while(|(gap, _)| gap.end >= since);
        let (mut taken, mut most) = (TimeLoss::default(), Duration::ZERO);
        for (gap, of_it) in all {
            taken += of_it;
            let allowed = self.envelope.within(now.since(gap.begin));
            let allowed = if mutant::is_on(Mutant::EnvelopeExcuses) { Duration::ZERO } else { allowed };
            most = most.max(taken.platform.saturating_sub(allowed));
        }
        let wasted = if self.wasted.0 == self.caught_up { self.wasted.1 } else { Duration::ZERO };
        TimeLoss { platform: most, own: taken.own.max(wasted), ..taken }
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
    fn excess(gaps: &RecentGaps, since: Instant, now: Instant) -> Duration {
        gaps.excess(since, now).platform
    }

    #[test]
    fn what_the_envelope_allows_is_nobodys_fault_and_what_is_beyond_is_counted() {
        let mut gaps = RecentGaps::new(Interference {
            burst: ms(2),
            periodic: alloc::vec![(ms(10), ms(1))],
            ..Interference::default()
        });
        assert_eq!(excess(&gaps, at(0), at(100)), Duration::ZERO);
        gaps.note(at(50), TimeLoss::by_platform(ms(3)));
        assert_eq!(excess(&gaps, at(45), at(55)), Duration::ZERO, "2 + 1 are allowed in 10 ms");
        gaps.note(at(53), TimeLoss::by_platform(ms(3)));
        assert_eq!(excess(&gaps, at(45), at(55)), ms(3), "two gaps within one envelope");
        assert_eq!(excess(&gaps, at(0), at(55)), ms(3), "however long the message had been under way before");
        assert_eq!(excess(&gaps, at(51), at(55)), Duration::ZERO, "only the second one overlaps");
        assert_eq!(excess(&gaps, at(54), at(60)), Duration::ZERO);
    }

    /// A machine from which a neighbour took three quarters of the time, a millisecond or so at once, for seconds: messages that were
    /// 180 ms late were said to be so by Laxity's own fault, as no more than 64 gaps were remembered, of 70 ms together.
    #[test]
    fn many_small_gaps_are_remembered_as_well_as_few_large_ones() {
        let mut gaps = RecentGaps::new(Interference { burst: ms(11), ..Interference::default() });
        for number in 0..300 {
            let taken = TimeLoss::by_platform(Duration::from_micros(1_500));
            gaps.note(Instant::ZERO + Duration::from_micros(2_000 * (number + 1)), taken);
        }
        assert_eq!(excess(&gaps, at(350), at(600)), Duration::from_micros(175_500));
    }

    #[test]
    fn old_gaps_are_forgotten_in_favour_of_new_ones() {
        let mut gaps = RecentGaps::new(Interference::default());
        for number in 1..=200 {
            gaps.note(at(10 * number), TimeLoss::by_platform(ms(1)));
        }
        assert_eq!(excess(&gaps, at(0), at(2000)), ms(128));
    }
}
