//! What became of the messages: which were late, by whose fault, and what the sender is told.

use super::super::attribution::{Evidence, TimeTaken};
use super::super::delivered::Delivered;
use super::Receiving;
use crate::units::{Duration, Instant};
use crate::wire::Counts;

impl Receiving {
    /// The next message for the application, complete at `now`; counts it, with the evidence if it is late. `taken` tells what took
    /// time at this host since a point in time.
    pub fn deliver(
        &mut self,
        now: Instant,
        taken: impl FnOnce(Instant) -> TimeTaken,
    ) -> Option<(Delivered, Option<Evidence>)> {
        let mut delivered = self.complete.pop()?;
        self.buffers.lent += 1;
        delivered.completion = now;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += delivered.message.len() as u64;
        self.counters.largest = self.counters.largest.max(delivered.response());
        let lateness = delivered.lateness();
        if lateness.is_zero() {
            return Some((delivered, None));
        }
        self.counters.late += 1;
        let evidence = self.judge(&delivered, lateness, Duration::ZERO, taken(delivered.since));
        *self.counters.misses.of(evidence.cause) += 1;
        Some((delivered, Some(evidence)))
    }

    /// Judges a message that was complete `lateness` after its deadline, or after a bound that is `spare` before it.
    pub(crate) fn judge(
        &self,
        delivered: &Delivered,
        lateness: Duration,
        spare: Duration,
        taken: TimeTaken,
    ) -> Evidence {
        let excess = delivered.delay.excess(&self.config, spare, self.stretch_ppm);
        let here = delivered.completion.since(delivered.due_here.before(spare));
        Evidence::judge(lateness, excess, here, taken, self.stretch_ppm)
    }

    /// What the sender is told.
    pub(crate) fn counts(&self) -> Counts {
        let c = &self.counters;
        Counts {
            delivered: c.delivered - c.late,
            late: c.late,
            lost: c.lost,
            dropped: c.dropped,
            largest: c.largest,
            misses: c.misses,
            ..Counts::default()
        }
    }
}
