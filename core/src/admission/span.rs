//! The span in which stolen time can delay a message, and so the probability that a message misses.
//!
//! The claim about the platform's envelopes ([`super::confidence`]) is a probability for a pair of windows, of which the second begins half a window
//! after the first. A message that misses its
//! deadline at t2 has an interval [t1, t2] in which the host was never done with what it had to do, and into which a window falls
//! that exceeded its budget. Windows of one kind cover the interval, the first of pairs or the second, so if m pairs of windows of length w did so there,
//! each took w − q more than J at most, and
//!
//! ```text
//! t2 − t1 ≤ m R_w,   R_w = least s with s ≥ work begun within s + blocks + J_w(s) + (w − q)
//! ```
//!
//! J_w being the interference with this envelope alone: m R_w fulfils the inequality for m (w − q), because work, blocks and J_w are
//! in m R_w no more than m times what they are in R_w.
//!
//! **How many messages a stall makes late.** One stall may outlast many deadlines, and what it left behind delays what comes long after.
//! So the windows within one busy period of the undisturbed host are too few to look at. But each pair that exceeds its budget
//! answers for an R_w + 3w/2 of the time at most: lay a mass of that on its begin; then every t2 above ends an interval that
//! carries at least its own length of mass, and such t2 make up no more than the whole mass (F. Riesz's lemma of the rising
//! sun). As a share of the time, and so for a message whose deadline does not depend on the stalls,
//!
//! ```text
//! P(a message misses) ≤ p_w (R_w/w + 2) + Σ over the other envelopes v of p_v (R⁰_w/v + 2)
//! ```
//!
//! where R⁰_w is R_w without the w − q: if none of the windows of length w exceeded its budget, the interval is no longer than
//! that. Which envelope is w is free, so the least counts. It is a share of all messages in the long run, no promise that
//! misses are spread evenly: they come together, after a stall.
//!
//! **Split rule.** From a packet that is late on the link its busy time is followed back; if a packet in it had been late on
//! the processor, that one's busy time is followed on. So R is the sum of both, the link's with packets that may have been as
//! long on the processor as R there. If the test rests on how long packets are on their way (`reach` in the link's tax), a
//! stall voids that too, and nothing is claimed. **Composite rule.** The interval is that of its proof, which rests on no
//! deadline of a stage.
//!
//! **What it leaves out.** Messages that come together because of stalls, their sender's or another host's; what such a host
//! passes on in a bunch. Each host of a route has its own probability; they add up.

use alloc::vec;

use super::Admission;
use super::answer::Rule;
use super::confidence::{self, Probability};
use super::link::{LinkTest, PacketStream};
use super::machine::Machine;
use super::processor::ProcessorTest;
use super::walk::{Demand as _, Verdict, busy, walk};
use crate::units::Duration;

impl Admission {
    /// R⁰: how long the host is busy with the channels admitted now at most, from when it had nothing to do until it has nothing
    /// again, as long as the platform takes no more than its interference. Zero without channels; [`Duration::MAX`] if that cannot
    /// be told, because what is left of a resource is too little.
    pub fn span(&self) -> Duration {
        self.longest(&self.machine, Duration::ZERO).unwrap_or(Duration::MAX)
    }

    /// The share of messages, of those on the channels admitted now, that may miss their deadline because the platform took
    /// more than it was claimed to: `exceedances` has, for each of the platform's envelopes, the probability that a window
    /// exceeds its budget. Only the platform's part is bounded.
    ///
    /// `None` if there are no envelopes, or not as many as exceedances: then nothing was measured of which this could be said.
    pub fn miss_probability(&self, exceedances: &[Probability]) -> Option<Probability> {
        let envelopes = &self.platform().interference.envelopes;
        if envelopes.is_empty() || envelopes.len() != exceedances.len() {
            return None;
        }
        if self.channels.iter().next().is_none() {
            return Some(Probability::ZERO);
        }
        let with = |&(window, budget): &(Duration, Duration)| {
            let mut alone = self.machine.clone();
            alone.platform.interference.envelopes = vec![(window, budget)];
            let undisturbed = self.longest(&alone, Duration::ZERO)?;
            let disturbed = self.longest(&alone, window.saturating_sub(budget))?;
            let parts = envelopes.iter().zip(exceedances).map(|(&envelope, &exceedance)| {
                let span = if envelope == (window, budget) { disturbed } else { undisturbed };
                confidence::miss_probability(span, envelope.0, exceedance)
            });
            Some(parts.fold(Probability::ZERO, Probability::or))
        };
        Some(envelopes.iter().filter_map(with).min().unwrap_or(Probability::ONE))
    }

    /// R, if the platform takes `gap` more than its interference; `None` if it cannot be told.
    fn longest(&self, machine: &Machine, gap: Duration) -> Option<Duration> {
        if self.channels.iter().next().is_none() {
            return Some(Duration::ZERO);
        }
        let gap = gap.as_nanos();
        // A message that is seen early may have been sent by so much later than it counts.
        let handover = self.reservations().map(|held| held.handover.as_nanos()).max().unwrap_or(0);
        if self.settings().rule == Rule::Composite {
            let test = self.composite_test(machine, None)?;
            return busy(&test, gap, |s| test.begun(s.saturating_add(handover))).map(Duration::from_nanos);
        }
        if self.rests_on_reach() {
            return None;
        }
        let mut on_processor = 0;
        if self.reservations().any(|held| held.job.is_some()) {
            let test = self.without_reach(machine);
            on_processor = busy(&test, gap, |s| test.due(u64::MAX, s.saturating_add(handover)))?;
        }
        let (streams, mut on_link) = (self.streams(), 0);
        if !streams.is_empty() {
            let jitter = on_processor.saturating_add(handover);
            let late = streams.into_iter().map(|stream| PacketStream { jitter, ..stream });
            let test = LinkTest::new(machine, late.collect(), None);
            // The burst may fall into either part. That the link's test leaves it out rests on deadlines, and this does not.
            let burst = machine.platform.interference.burst.as_nanos();
            let gap = if machine.platform.machine.is_papers() { gap } else { gap.saturating_add(burst) };
            on_link = busy(&test, gap, |s| test.due(u64::MAX, s))?;
        }
        Some(Duration::from_nanos(on_processor) + Duration::from_nanos(on_link))
    }

    /// True if the processor's test holds only because packets are in transit for a short time, so that fewer are handed over.
    fn rests_on_reach(&self) -> bool {
        self.machine.tax_reaches() && walk(&self.without_reach(&self.machine), false) != Verdict::Fits
    }

    /// The processor's test, however long packets are in transit.
    fn without_reach(&self, machine: &Machine) -> ProcessorTest {
        let stolen = machine.stolen_by_link(machine.least_occupancy(&self.streams()));
        let jobs = self.reservations().filter_map(|held| held.job).collect();
        ProcessorTest::new(machine, jobs, None, stolen)
    }
}

#[cfg(test)]
mod tests;
