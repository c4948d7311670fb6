//! Exact response times under fixed priorities with delayed preemption [rtu §5]: of upcalls, and of channels' handlers.
//!
//! The upcalls of [`Upcall`], the shorter period first, equal ones as they are given, preempted by each other only
//! between iterations, and by X anywhere: what runs above them all, and what the platform takes. Time is in whole nanoseconds; what is
//! released at an instant is seen by a dispatch at that instant.
//!
//! ```text
//! c_i  = C_i b_i/B_i                          the longest iteration, rounded up
//! F_i  = C_i ((B_i mod b_i) or b_i)/B_i       the last iteration, rounded down: none of the others interrupts it
//! C'_i = C_i + C_cs                           of the upcall in question; C'_h = C_h + 2 C_cs above: to it, and back
//! Bl_i = max_{j below} (C_cs + c_j) − 1 ns    it began just before; 0 if there is none
//! L    = Bl_i + Σ_{h above, i} ⌈(L + J)/T_h⌉ C'_h + X(L)
//! for k = 0 … ⌈(L + J)/T_i⌉ − 1:
//!   σ(s) = Bl_i + (k + 1) C'_i − F_i + Σ_{h above} (⌊(s + J)/T_h⌋ + 1) C'_h
//!   s    = σ(s) + X(s)                        the last iteration begins
//!   f    = σ(s) + F_i + X(f)                  it ends
//!   R_k  = f − k T_i
//! R_i  = J + max_k R_k                        from the nominal release; it holds if R_i ≤ T_i
//! ```
//!
//! **What is above.** X counts work that is *released*, not work that is due: the demand bound function of a channel is no bound of how
//! much of it runs in a window. (C 5, I 10, d 10 above an upcall C 5, T 9: the demand bound function gives 5, the upcall needs 10.) And it
//! goes on during the last iteration. (C 2, I 5 above an iteration of 6: 8 without that, 10 with it.)
//!
//! All k have to be looked at: where an iteration is long, the second run of a busy period may be later than the first.
//! Rounding F down is safe, because s + F never grows with F.
//!
//! **Jitter.** J is the most by which a release may come after its nominal instant, k T from a phase, each by a lag of its own
//! (a clock tick, a late wake-up). A late release may then be followed by one in time, so J also counts in every ⌈ ⌉ and
//! ⌊ ⌋; to add it to R alone would be right only if all releases were late by the same.
//!
//! **What is exact.** Without X, switch cost and jitter, and if the iterations are whole nanoseconds, R is attained: by the
//! longest iteration below that starts 1 ns before all others are released. With C_cs > 0 it is sufficient: a switch is
//! charged to each run above, twice, whether it came in between or not.
//!
//! **Another implementation.** With `C_cs = 0` and whole iterations this is the limited-preemptive fixed-priority analysis of
//! the crate `response-time-analysis` (`fixed_priority::limited_preemptive`), which follows a proof that a machine checked:
//! there a run's last segment is F, `blocking_bound` is the longest segment below *minus* ε, ε being its unit of time and here a
//! nanosecond, and its arrivals are sporadic with the jitter J. There R counts from the actual release, which with J > 0 may give
//! up to J less than here. The tests compare the two.

use alloc::vec::Vec;

use super::walk::{self, ONE, StolenTime};
use crate::units::Duration;
use crate::upcall::Upcall;

/// Most terms (one upcall's releases, counted once) of one question, some tenth of a second. A question that is not answered by then counts
/// as without a bound. Only a set that uses the processor all but up, or a period far shorter than others, comes near it.
const MOST_VISITS: u64 = 1 << 24;

/// R_i of each upcall, in the order given; `switch` is C_cs, `jitter` is J.
///
/// `None` is no bound: the upcall and those above it use the processor up (their shares, switches included and rounded up at the
/// 40th binary place, add up to one or more), R does not fit a [`Duration`], or finding it would take too long.
pub fn response_times(upcalls: &[Upcall], switch: Duration, jitter: Duration) -> Vec<Option<Duration>> {
    beside(upcalls, &[], switch, jitter, StolenTime::default())
}

/// As [`response_times`], below X, and with iterations that are below them all.
pub(super) fn beside(
    upcalls: &[Upcall],
    below: &[Duration],
    switch: Duration,
    jitter: Duration,
    stolen: StolenTime,
) -> Vec<Option<Duration>> {
    let mut order: Vec<usize> = (0..upcalls.len()).collect();
    order.sort_by_key(|&index| upcalls[index].period());
    let (switch, jitter) = (u128::from(switch.as_nanos()), u128::from(jitter.as_nanos()));

    // Bl, from the lowest priority up.
    let mut longest = below.iter().max().map(|iteration| u128::from(iteration.as_nanos()));
    let mut blocking = alloc::vec![0; upcalls.len()];
    for &index in order.iter().rev() {
        blocking[index] = longest.map_or(0, |quantum: u128| (switch + quantum).saturating_sub(1));
        longest = longest.max(Some(u128::from(upcalls[index].quantum().as_nanos())));
    }

    let mut responses = alloc::vec![None; upcalls.len()];
    let mut level = HigherPriority::new(jitter, stolen);
    for index in order {
        let (upcall, blocking) = (&upcalls[index], blocking[index]);
        let cost = u128::from(upcall.cost().as_nanos());
        let period = u128::from(upcall.period().as_nanos());
        let own = PeriodicCost { period, cost: cost + switch };
        let last = u128::from(upcall.last_iteration().as_nanos());
        responses[index] = level.response(own, last, blocking).map(Duration::from_nanos);
        level.push(PeriodicCost { period, cost: cost + 2 * switch });
    }
    responses
}

/// Does every upcall have a response time, and is it at most the upcall's period?
pub fn holds(upcalls: &[Upcall], switch: Duration, jitter: Duration) -> bool {
    let responses = response_times(upcalls, switch, jitter);
    upcalls.iter().zip(responses).all(|(upcall, response)| response.is_some_and(|response| response <= upcall.period()))
}

/// T and C'.
#[derive(Clone, Copy)]
pub(super) struct PeriodicCost {
    pub(super) period: u128,
    pub(super) cost: u128,
}

impl PeriodicCost {
    fn share(&self) -> u128 {
        // A period is at most an hour.
        walk::share(self.cost, self.period as u64)
    }
}

/// The load above the job in question.
pub(super) struct HigherPriority {
    above: Vec<PeriodicCost>,
    /// Their long-run share, that of X included, rounded up.
    share: u128,
    /// J.
    jitter: u128,
    /// X.
    stolen: StolenTime,
    /// Over all levels.
    visits: u64,
}

impl HigherPriority {
    pub(super) fn new(jitter: u128, stolen: StolenTime) -> Self {
        Self { above: Vec::new(), share: stolen.share(), jitter, stolen, visits: 0 }
    }

    pub(super) fn push(&mut self, run: PeriodicCost) {
        self.share = self.share.saturating_add(run.share());
        self.above.push(run);
    }

    /// R of `own`, J included. Sums saturate, and what exceeds 2⁶⁴ is no bound.
    pub(super) fn response(&mut self, own: PeriodicCost, last: u128, blocking: u128) -> Option<u64> {
        if self.share.saturating_add(own.share()) >= ONE {
            return None;
        }
        let jitter = self.jitter;
        let begun = |run: PeriodicCost, span: u128| (span + jitter).div_ceil(run.period).saturating_mul(run.cost);
        let first = self.above.iter().fold(blocking + own.cost, |sum, run| sum + run.cost);
        let active = self.least(first, |above, active| {
            above.iter().chain([&own]).fold(blocking, |sum, run| sum.saturating_add(begun(*run, active)))
        })?;
        let runs = (u128::from(active) + jitter).div_ceil(own.period);

        let (mut most, mut s) = (0, 0u64);
        for k in 0..runs {
            let once = blocking + (k + 1) * own.cost - last;
            let due = |above: &[PeriodicCost], s: u128| {
                above
                    .iter()
                    .fold(once, |sum, run| sum.saturating_add(((s + jitter) / run.period + 1).saturating_mul(run.cost)))
            };
            // The s before was less than this one, by a cost at least.
            let from = if k == 0 { once } else { u128::from(s) + own.cost };
            s = self.least(from, due)?;
            let whole = due(&self.above, s.into()).saturating_add(last);
            let end = self.least(whole, |_, _| whole)?;
            most = most.max(u128::from(end).saturating_sub(k * own.period));
        }
        u64::try_from(most + jitter).ok()
    }

    /// The least fixed point of `sum` and X, which never fall; `from` is not above it.
    fn least(&mut self, from: u128, sum: impl Fn(&[PeriodicCost], u128) -> u128) -> Option<u64> {
        let mut found = from;
        loop {
            self.visits = self.visits.saturating_add(1 + self.above.len() as u64 + self.stolen.terms() as u64);
            let taken = u64::try_from(found).ok().map(|found| self.stolen.within(found))?;
            let needed = sum(&self.above, found).saturating_add(taken);
            if needed > u64::MAX.into() || self.visits > MOST_VISITS {
                return None;
            }
            if needed <= found {
                return Some(needed as u64);
            }
            found = needed;
        }
    }
}

#[cfg(test)]
mod tests;
