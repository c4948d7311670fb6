//! The outcomes of messages: which were late, for which cause, and what the sender is told.
//!
//! If the sender's clock is not this host's, the latency of a message is an interval ([`crate::clock`]). If it is late, that is known as soon as it is
//! complete, by the lower end; if it is in time, that is known with a later report of the sender's host, or never.

use super::super::attribution::{Evidence, TimeLoss};
use super::super::config::ReceiveCounters;
use super::super::delivered::{DeliveredMessage, SenderStamps};
use super::ReceivingChannel;
use crate::clock::{ClockRelation, CompletedMessage, DeadlineVerdict, JudgedMessage, MAX_EPOCH, PeerClock};
use crate::units::{Duration, Instant};
use crate::wire::{MessageCounts, micros_saturating};

/// The knowledge about a sender's clock.
#[derive(Clone, Copy, Debug)]
pub struct SenderClock<'a> {
    /// Its clock.
    pub clock: &'a PeerClock,
    /// This host's epoch.
    pub own_epoch: u8,
    /// The time at which that epoch began, if it is not the first one.
    pub begun: Option<Instant>,
    /// True if the channel comes from that host, and not through a relay.
    pub is_direct: bool,
    /// The largest uncertainty of the clock that admission allows for.
    pub allowed_error: Duration,
}

/// The final judgement of a message between two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalJudgement {
    /// The least time that it can have taken from its logical arrival until it was complete.
    pub lower: Duration,
    /// The longest time, if that is known.
    pub upper: Option<Duration>,
    /// The longest time that it can have taken from its application's call on, if that is known; otherwise, for a late message, the least.
    pub latency: Option<Duration>,
    /// The longest time that it was allowed to take; `None` for best effort.
    pub allowed: Option<Duration>,
    /// The verdict: in time or not.
    pub verdict: DeadlineVerdict,
    /// The part of a delay for which there is evidence outside Laxity.
    pub excused: Duration,
    /// True if the sender's clock was more uncertain than admission allows for.
    pub is_unsure: bool,
}

impl FinalJudgement {
    /// True if the message was in time, and complete after its bound, `spare` before the deadline, and nothing outside Laxity explains it. The
    /// upper end counts, unless the sender's clock was more uncertain than the bound allows for: then the lower one.
    pub fn breaks_bound(&self, spare: Duration) -> bool {
        let (Some(allowed), Some(upper), DeadlineVerdict::InTime) = (self.allowed, self.upper, self.verdict) else {
            return false;
        };
        let took = if self.is_unsure { self.lower } else { upper };
        took.saturating_sub(allowed.saturating_sub(spare)) > self.excused
    }
}

impl ReceivingChannel {
    /// The next message for the application, complete at `now`; counts it, with the evidence if it is late. `clock` is the knowledge of the sender's
    /// clock, which counts where it is not this host's. `taken` gives the time taken at this host since a point in time. The last part of the result is
    /// the judgement of another message, if it was judged to make room for this one.
    pub fn deliver(
        &mut self,
        now: Instant,
        clock: SenderClock<'_>,
        taken: impl Fn(Instant) -> TimeLoss,
    ) -> Option<(DeliveredMessage, Option<Evidence>, Option<FinalJudgement>)> {
        let mut delivered = self.complete.pop()?;
        self.buffers.lent += 1;
        delivered.completion = now;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += delivered.message.len() as u64;
        let displaced = delivered.stamps.and_then(|stamps| self.pend(&mut delivered, stamps, clock, &taken));
        if delivered.stamps.is_none() {
            self.counters.largest = self.counters.largest.max(delivered.response());
        }
        let lateness = delivered.lateness();
        if lateness.is_zero() {
            return Some((delivered, None, displaced));
        }
        self.counters.late += 1;
        let evidence = self.judge(&delivered, lateness, Duration::ZERO, taken(delivered.since));
        *self.counters.misses.of(evidence.cause) += 1;
        Some((delivered, Some(evidence), displaced))
    }

    /// A message between two clocks waits for its judgement, and is told the least that it took. The judgement of one that made room for it.
    fn pend(
        &mut self,
        delivered: &mut DeliveredMessage,
        stamps: SenderStamps,
        known: SenderClock<'_>,
        taken: &impl Fn(Instant) -> TimeLoss,
    ) -> Option<FinalJudgement> {
        let SenderClock { clock, own_epoch, begun, .. } = known;
        let completed = delivered.completion;
        let SenderStamps { logical_arrival, ahead, epoch } = stamps;
        // The clocks are compared when it was sent: until its logical arrival they may jump.
        let sent = logical_arrival.before(ahead);
        let deadline = delivered.allowed.map_or(Duration::MAX, |allowed| allowed + ahead);
        // What each host measured of it with its own clock, the sender's perhaps a fast one, unless that jumped meanwhile, or a relay has added what it was granted before.
        let at_hosts = delivered.delay.way.at_hosts(completed, known.is_direct);
        let arrival = delivered.delay.way.arrival();
        // How long a packet waited at its sender is not known of one that came through a relay, so it may always have left early.
        let early = if known.is_direct { delivered.delay.way.early(ahead) } else { ahead };
        let is_steady = epoch <= MAX_EPOCH && begun.is_none_or(|begun| begun < arrival);
        let mut message = CompletedMessage {
            sent,
            completed,
            epoch,
            own_epoch,
            least: if is_steady { clock.least_of((ahead + at_hosts).saturating_sub(early)) } else { Duration::ZERO },
            deadline,
            token: [0; 2],
        };
        let lower = clock.lower_latency(&message);
        delivered.least = lower.unwrap_or_default().max(message.least).saturating_sub(ahead);
        delivered.delay.way.took(completed, delivered.least, lower.is_some());
        let mut excused = Duration::ZERO;
        if delivered.allowed.is_some() {
            let evidence = self.judge(delivered, Duration::from_nanos(1), Duration::ZERO, taken(delivered.since));
            if !evidence.cause.breaks_promise() {
                excused = evidence.network + evidence.platform + evidence.sender;
            }
        }
        // Kept beside what its judgement needs, each to a microsecond, up to an hour.
        message.token = [ahead, excused].map(micros_saturating);
        let judged = self.pending.as_mut()?.push(clock, &message)?;
        Some(self.count(completed, known, &judged))
    }

    /// The next message whose judgement is final; of one that is not, if nothing more will be heard (`is_over`).
    pub(crate) fn settle(&mut self, now: Instant, known: SenderClock<'_>, is_over: bool) -> Option<FinalJudgement> {
        let clock = known.clock;
        let pending = self.pending.as_mut()?;
        let judged = if is_over { pending.finish(clock) } else { pending.settle(clock, now) }?;
        Some(self.count(now, known, &judged))
    }

    /// Messages that wait for their judgement.
    pub(crate) fn unjudged(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.len())
    }

    /// The counters so far, as application and sender are told: a message that waits for its judgement is undecided until then.
    pub(crate) fn told(&self) -> ReceiveCounters {
        let pending = self.pending.as_ref().filter(|_| self.terms.service.is_real_time());
        let undecided = pending.map_or(0, |pending| pending.undecided() as u64);
        ReceiveCounters { undecided: self.counters.undecided + undecided, ..self.counters }
    }

    fn count(&mut self, now: Instant, known: SenderClock<'_>, judged: &JudgedMessage) -> FinalJudgement {
        let is_estimated = known.clock.relation(now) == ClockRelation::Estimated;
        self.counters.clock_error = known.clock.error().filter(|_| is_estimated).unwrap_or(Duration::MAX);
        let JudgedMessage { verdict, token, .. } = *judged;
        let [ahead, excused] = token.map(|micros| Duration::from_micros(micros.into()));
        let lower = judged.lower.saturating_sub(ahead);
        let upper = judged.upper.map(|upper| upper.saturating_sub(ahead));
        let latency = judged.upper.or((verdict == DeadlineVerdict::Late).then_some(judged.lower));
        let allowed = self.terms.service.contract().map(|_| judged.deadline.saturating_sub(ahead));
        // One that is late was counted when it was delivered.
        self.counters.undecided += u64::from(allowed.is_some() && verdict == DeadlineVerdict::Undecided);
        self.counters.largest = self.counters.largest.max(upper.unwrap_or(lower));
        let is_unsure = judged.width().is_none_or(|width| known.clock.error_of(width) > known.allowed_error);
        FinalJudgement { lower, upper, latency, allowed, verdict, excused, is_unsure }
    }

    /// Judges a message that was complete `lateness` after its deadline, or after a bound that is `spare` before it.
    pub(crate) fn judge(
        &self,
        delivered: &DeliveredMessage,
        lateness: Duration,
        spare: Duration,
        taken: TimeLoss,
    ) -> Evidence {
        let excess = delivered.delay.excess(&self.grant, spare, self.stretch_ppm);
        let here = delivered.completion.since(delivered.due_here.before(spare));
        Evidence::judge(lateness, excess, here, taken, self.stretch_ppm)
    }

    /// The counts that the sender is told.
    pub(crate) fn counts(&self) -> MessageCounts {
        let c = self.told();
        MessageCounts {
            delivered: c.delivered.saturating_sub(c.late).saturating_sub(c.undecided),
            late: c.late,
            lost: c.lost,
            dropped: c.dropped,
            largest: c.largest,
            undecided: c.undecided,
            misses: c.misses,
            clock_error: Some(c.clock_error).filter(|error| *error < Duration::MAX),
            ..MessageCounts::default()
        }
    }
}
