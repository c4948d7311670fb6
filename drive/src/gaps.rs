//! The search for time that the platform takes away in the middle of the loop. The endpoint is told of it, and judges misses by it.

use laxity_core::clock::ClockJump;
use laxity_core::frames::Frames;
use laxity_core::receive::TimeLoss;
use laxity_core::units::{Duration, Instant};

use crate::driver::Driver;
use crate::environment::{Clock, Environment};

/// A part of the loop: its begin, and its cost by the platform's figures. Time beyond that was taken by the
/// platform, as far as there is evidence.
pub(crate) struct TimedRound {
    pub(crate) start: Instant,
    pub(crate) allowance: Duration,
    /// Awake by the clock before this round, since evidence was last asked for.
    awake: Duration,
}

impl TimedRound {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, allowance: Duration::ZERO, awake: Duration::ZERO }
    }

    /// Another round begins at `start`.
    pub(crate) fn begin(&mut self, start: Instant) {
        (self.start, self.allowance) = (start, Duration::ZERO);
    }

    /// The round is over.
    pub(crate) fn end(&mut self, now: Instant) {
        self.awake += now.since(self.start);
        self.begin(now);
    }
}

impl<F: Frames> Driver<F> {
    /// Compares a round, as far as it has come, with its cost. Time beyond that the platform took, as far as there is
    /// evidence; the rest we did ourselves, and that is evidence, too: a slow handler is not an excuse. A round that was too long is settled, and begins anew.
    pub(crate) fn watch(&mut self, now: Instant, env: &mut impl Environment<F>) {
        let beyond = now.since(self.round.start).saturating_sub(self.round.allowance);
        if beyond > self.least_gap {
            self.round.end(now);
            let stolen = env.clock().stolen(now, core::mem::take(&mut self.round.awake)).min(beyond);
            let own = beyond.saturating_sub(stolen);
            self.endpoint.note_gap(now, TimeLoss { platform: stolen, own, ..TimeLoss::default() });
            if !stolen.is_zero() {
                env.gap(stolen);
            }
        }
    }

    /// Looks whether the clock has jumped by when it read `now`: stamps from before it is found are not believed to be from after it. Where it is
    /// compared with no other one, that does not matter. Reads the wall clock if a peer has told of its clock. The time by then.
    pub(crate) fn watch_clock(&mut self, now: Instant, env: &mut impl Environment<F>) -> Instant {
        if !self.endpoint.compares_clocks() {
            return now;
        }
        let wall = self.endpoint.wants_wall().then(|| env.clock().wall());
        let now = wall.flatten().map_or(now, |wall| now.max(wall.at));
        let jumps = env.clock().jumps(now);
        for ((seen, known), jump) in jumps.iter().zip(&self.jumps).zip([ClockJump::StoodStill, ClockJump::Ahead]) {
            if seen != known {
                self.endpoint.note_clock_jump(env.clock().now(), jump);
            }
        }
        self.jumps = jumps;
        if let Some(wall) = wall {
            self.endpoint.note_wall(wall);
        }
        now
    }

    /// Notes that the platform took `taken` of the processor until now.
    pub fn note_gap(&mut self, now: Instant, taken: Duration, env: &mut impl Environment<F>) {
        if !taken.is_zero() {
            self.endpoint.note_gap(now, TimeLoss::by_platform(taken));
            env.gap(taken);
        }
    }
}
