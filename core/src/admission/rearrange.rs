//! All channels of a host served in another way together, where a newcomer does not fit beside them as they are served.
//!
//! Each channel has a share of its deadline at this host, which is divided between processor and link when it is granted. The channel that
//! comes first takes the division that suits it, so a set of channels may be refused in one order and granted in another; and some sets pass only
//! the composite test, others only the split one. So where a newcomer is refused the shares are divided anew, shortest first or longest first, with the newcomer at its
//! place among them; and then by the composite rule. The promise to each channel stays: its share of the deadline, the hand-over, its tolerance.
//!
//! **When the change is made** is what makes it sound. Stages cannot be changed between the messages of each channel: of two channels with C = 4 and stage deadlines of 10 and 5
//! that are to have 5 and 10, the new message of the first beside the old one of the second makes 8 due within 5, though both sets pass. An executive changes them
//! all at an instant at which no current real-time message is unfinished on its processor ([`Endpoint::restage`](crate::endpoint::Endpoint::restage)), and the newcomer begins
//! when its links have had such an instant after that. This holds for a change of rule as well:
//!
//! - *Processor.* What has a deadline counts from the beginning of a busy period, and none spans the change.
//! - *Link.* Deadlines on the link are the share's end under both rules, so the order there is the same. Follow a late packet back to the beginning s of the link's
//!   busy time with packets due by its deadline t. If s is after the change, the new test speaks of all that is in it. If not, the newcomer has no part in it. What is due by t of each channel was, or is,
//!   enqueued after s; each message that arrives after the change arrives after s, so there are no more of them than the old test reckons with (it counts from `s − d_cpu` on under the split rule, from before s under the composite one), and
//!   their link time is all that the link has to do.
//!
//! Both instants come: a busy period ends within `span` while the premises hold.

use alloc::vec::Vec;
use core::iter;

use super::answer::{Role, Rule};
use super::ledger::{DemandLedger, LedgerChange};
use super::reserve::{Admission, Reservation, ReservationId, Reserved, Settings};
use super::{Code, Refusal};
use crate::contract::{Contract, SendingStages};
use crate::limits;
use crate::units::Duration;

/// With more channels nothing is tried: a change is one piece of work of the executive, and has to be short.
pub const MOST: usize = 64;

/// The outcome for a newcomer that was admitted.
#[derive(Clone, Debug)]
pub enum RearrangeResult {
    /// Beside the others as they are: its reservation and its least stages.
    Now(ReservationId, SendingStages),
    /// It was not; but it would be on this host, which has the same channels and ids. To be asked again once they are served so.
    After(alloc::boxed::Box<Admission>),
}

impl Admission {
    /// As [`Admission::reserve_at`]; but where that refuses, or where a channel that is sent would leave the receiver less time than it needs on an idle host like
    /// this one, other ways to serve those that are there are tried.
    ///
    /// # Errors
    /// As [`Admission::reserve`], where no way was found either.
    pub fn reserve_or_rearrange(
        &mut self,
        contract: &Contract,
        role: Role,
        priority: u8,
        budget: Duration,
    ) -> Result<RearrangeResult, Refusal> {
        if !self.may_rearrange() {
            let reserved = self.reserve_at(contract, role, priority, budget);
            return reserved.map(|(id, stages)| RearrangeResult::Now(id, stages));
        }
        let wanted = if role == Role::Sends { self.receiving_alone(contract) } else { Duration::ZERO };
        // On a copy: what comes of it is taken back where there is a better way.
        let mut with = self.clone();
        let found = with.reserve_at(contract, role, priority, budget);
        match &found {
            Ok((id, stages)) if with.handover(*id) + stages.total() + wanted <= budget => {
                *self = with;
                return Ok(RearrangeResult::Now(*id, *stages));
            }
            Err(refusal) if !helps(refusal.code) => return Err(*refusal),
            _ => {}
        }
        let other = |budget| self.rearranged(contract, role, budget).map(|other| RearrangeResult::After(other.into()));
        let leaving = budget.checked_sub(wanted).filter(|_| !wanted.is_zero()).and_then(other);
        match (leaving, found) {
            (Some(after), _) => Ok(after),
            (None, Ok((id, stages))) => {
                *self = with;
                Ok(RearrangeResult::Now(id, stages))
            }
            (None, Err(refusal)) => other(budget).ok_or(refusal),
        }
    }

    /// As [`Admission::reserve_or_rearrange`]; served in another way at once, where nothing runs.
    ///
    /// # Errors
    /// As [`Admission::reserve`].
    pub fn reserve_rearranged(&mut self, contract: &Contract, role: Role, priority: u8, budget: Duration) -> Reserved {
        match self.reserve_or_rearrange(contract, role, priority, budget)? {
            RearrangeResult::Now(id, stages) => Ok((id, stages)),
            RearrangeResult::After(other) => {
                *self = *other;
                self.reserve_at(contract, role, priority, budget)
            }
        }
    }

    /// The same channels, with the same ids, served in another way with which the newcomer fits within `budget`; `None` if none was found.
    pub fn rearranged(&self, contract: &Contract, role: Role, budget: Duration) -> Option<Self> {
        // Only what has two stages can have others.
        if !self.may_rearrange() || role != Role::Sends && !self.reservations().any(is_divided) {
            return None;
        }
        // Counting on what it would with the newcomer.
        let other = self.for_newcomer(contract, role).ok()?;
        let host = other.as_ref().unwrap_or(self);
        let divided = |longest_first| host.divided(longest_first, contract, role, budget);
        let composite = iter::once_with(|| host.composite()).flatten();
        [false, true].into_iter().filter_map(divided).chain(composite).find_map(|served| {
            // And on what it does now, until the newcomer is there.
            let arranged = self.with_deadlines_of(&served)?;
            let mut with = arranged.clone();
            with.reserve(contract, role, budget).is_ok().then_some(arranged)
        })
    }

    /// True if other ways are looked for at all: not where handlers run by level, and not among more than [`MOST`] channels.
    pub fn may_rearrange(&self) -> bool {
        self.settings.rule != Rule::Levels && self.channels.len() <= MOST
    }

    /// The least time that a host like this one needs to receive a channel, without other channels: its stage, and the wait for a look.
    pub fn receiving_alone(&self, contract: &Contract) -> Duration {
        let mut idle = Self::on(self.machine.clone(), self.settings);
        let least = idle.reserve(contract, Role::Receives, limits::MAX_DEADLINE);
        least.map_or(Duration::ZERO, |(_, stages)| stages.processor + idle.input_delay())
    }

    /// Goes back to the rule that it began with, if no channel is left that it matters to.
    pub(super) fn return_to_rule(&mut self) {
        if self.settings.rule == self.first_rule || self.reservations().any(is_divided) {
            return;
        }
        let mut host = self.clone();
        host.settings.rule = self.first_rule;
        if host.holds() {
            *self = host;
        }
    }

    /// True if everything that it has promised holds as it serves its channels.
    fn holds(&self) -> bool {
        self.test().is_ok() && self.upcalls_keep_time(None).is_ok() && self.keeps_tolerances().is_ok()
    }

    /// By the composite rule; `None` if that is how they are served.
    fn composite(&self) -> Option<Self> {
        let rule = self.settings.rule;
        if rule == Rule::Composite {
            return None;
        }
        let mut host = self.anew(Rule::Composite);
        for (id, held) in self.channels.iter() {
            let total = held.stages(rule).total().as_nanos();
            host.put(id, held.with(total, total));
        }
        Some(host)
    }

    /// By the split rule, divided in the order of their shares; `None` if one does not fit then.
    fn divided(&self, longest_first: bool, contract: &Contract, role: Role, budget: Duration) -> Option<Self> {
        let share = |held: &Reservation| held.handover + held.stages(self.settings.rule).total();
        let mut host = Self { channels: self.channels.emptied(), ..self.anew(Rule::Split) };
        let mut shares: Vec<(Duration, Option<(ReservationId, Reservation)>)> = alloc::vec![(budget, None)];
        for (id, held) in self.channels.iter() {
            if held.role.is_some() {
                shares.push((share(held), Some((id, *held))));
            } else {
                host.put(id, *held);
            }
        }
        shares.sort_by_key(|(share, _)| *share);
        if longest_first {
            shares.reverse();
        }
        let mut newcomer = None;
        for (share, held) in &shares {
            match held {
                Some((id, held)) => {
                    let decided = host.decide_newcomer(Reservation { service: 0, ..*held }, *share).ok()?;
                    host.put(*id, decided);
                }
                None => newcomer = Some(host.reserve(contract, role, *share).ok()?.0),
            }
        }
        for (id, held) in self.channels.iter().filter(|(_, held)| held.role.is_some()) {
            host.relax(id, share(held)).ok()?;
        }
        newcomer.map(|id| host.release(id));
        Some(host)
    }

    /// The same channels with the deadlines and the rule that they have there, if all keep them.
    fn with_deadlines_of(&self, other: &Self) -> Option<Self> {
        let mut host = self.anew(other.settings.rule);
        for (id, held) in self.channels.iter() {
            let (processor, link) = other.reservation(id)?.deadlines();
            let after = held.with(processor, link);
            // No share may be less; where the link's tax grows with it, one may not be as long again.
            if after.stages(host.settings.rule).total() != held.stages(self.settings.rule).total() {
                return None;
            }
            host.put(id, after);
        }
        host.holds().then_some(host)
    }

    /// This host with another rule; its channels are to be [`put`](Self::put) anew.
    fn anew(&self, rule: Rule) -> Self {
        Self { settings: Settings { rule, ..self.settings }, ledger: DemandLedger::new(), ..self.clone() }
    }

    /// Puts a channel in its place, of which the ledger knows nothing yet.
    pub(super) fn put(&mut self, id: ReservationId, held: Reservation) {
        self.ledger.change(LedgerChange::Enters, self.machine.switch, held.parts());
        self.channels.put(id, held);
    }
}

fn is_divided(held: &Reservation) -> bool {
    held.job.is_some() && held.stream.is_some()
}

/// True if serving the others in another way may help against this refusal.
fn helps(code: Code) -> bool {
    !matches!(code, Code::BadParameters | Code::Memory | Code::DeadlineBelowServiceTime | Code::Tolerance)
}

#[cfg(test)]
mod tests;
