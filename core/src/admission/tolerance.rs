//! Which claims of the platform a host counts on: as much interference as the channel needs that tolerates least.
//!
//! A platform may have several claims ([`Platform::claims`]), each of budgets with the probability that they are exceeded: large ones that are hardly ever
//! exceeded, and smaller ones that are exceeded more often. A contract that tolerates a fraction of late messages can be kept with small ones.
//!
//! **One for all channels of a host.** It counts on the claim with the smallest budgets under which no channel misses more often than it tolerates;
//! if one of them tolerates nothing, or there are upcalls, on the rarest one. So a newcomer that tolerates less makes the budgets larger for all, and is refused if one that is
//! there could not keep its deadline then; one that takes so much that another would miss more often than it tolerates has larger budgets, too. Mixed tolerances with a budget for each would be
//! finer, and unsound if they were taken as they stand: the budget until t must be that of the strictest channel with a stage deadline up to t. Channels
//! keep their stages whatever the claim; when it changes nothing changes in how they are served.
//!
//! **The fraction** is that of `span` for what is claimed of windows, and for a channel that is sent what was claimed of its hand-over when it was granted. A message may miss at either
//! of two hosts, so each has half of what is tolerated.

use super::answer::Role;
use super::confidence::Probability;
use super::ledger::DemandLedger;
use super::link::PacketStream;
use super::machine::Machine;
use super::reserve::{Admission, ReservationId};
use super::split::LONGEST;
use super::upcalls::{UpcallDenial, UpcallRefusal};
use super::{Code, Refusal, Stage};
use crate::contract::Contract;
use crate::limits;
use crate::platform::{Interference, Platform, ToleranceClaim};
use crate::units::Duration;

/// The hosts at which a message may miss.
const HOSTS: u64 = 2;

impl Admission {
    /// The claim that it counts on; `None` if nothing is claimed of what it counts on.
    pub fn claim(&self) -> Option<&ToleranceClaim> {
        self.platform().claims.get(self.place()?)
    }

    /// The same host, of whose platform no more is claimed than of this one.
    #[must_use]
    pub fn with_claims_of(mut self, platform: &Platform) -> Self {
        self.machine.platform.claims.clone_from(&platform.claims);
        self
    }

    /// Of the messages of each channel that is admitted now no larger share misses its deadline because of this host's platform; `None` if nothing
    /// is claimed.
    pub fn miss_share(&self) -> Option<Probability> {
        Some(self.miss_probability(&self.claim()?.exceedances)?.or(self.late_handover()))
    }

    /// The share of messages whose hand-over takes longer than was counted on: of the channel that is sent of which that is the greatest.
    pub fn late_handover(&self) -> Probability {
        self.reservations().map(|held| held.late_handover).max().unwrap_or(Probability::ZERO)
    }

    /// The longest time from `send()` until this host begins with a message of a channel that it sends; zero for other channels, and if
    /// `id` is of no reservation.
    pub fn handover(&self, id: ReservationId) -> Duration {
        self.reservation(id).map_or(Duration::ZERO, |held| held.handover)
    }

    /// The hand-over that a newcomer counts on, and how often it takes longer.
    pub(super) fn claimed_handover(&self, role: Role) -> (Duration, Probability) {
        if role != Role::Sends {
            return (Duration::ZERO, Probability::ZERO);
        }
        // The rarest, where what it counts on is none of the claims.
        let claim = self.claim().or(self.platform().claims.first());
        (self.platform().handover, claim.map_or(Probability::ZERO, |claim| claim.late_handover))
    }

    /// Does something about a newcomer at this host as it has to be for it; if that fails nothing changes.
    pub(super) fn tolerating<T>(
        &mut self,
        contract: &Contract,
        role: Role,
        work: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let other = self.for_newcomer(contract, role)?;
        if other.is_none() && (self.place().is_none() || self.tolerated(Some(contract)).is_none()) {
            return work(self);
        }
        let mut host = other.unwrap_or_else(|| self.clone());
        let done = work(&mut host)?;
        // With the stages that it has now.
        host.keeps_tolerances()?;
        *self = host;
        Ok(done)
    }

    /// This host with the claim that it counts on with a newcomer; `None` if that is the one of now.
    pub(super) fn for_newcomer(&self, contract: &Contract, role: Role) -> Result<Option<Self>, Refusal> {
        let Some(place) = self.place() else { return Ok(None) };
        let tolerates_all = self.tolerates_all() && contract.tolerance().is_some();
        let Some(part) = self.tolerated(Some(contract)) else {
            return if place == 0 { Ok(None) } else { self.counting_on(0).map(Some) };
        };
        let mut refused = None;
        let most = if tolerates_all { self.platform().claims.len() } else { 1 };
        for wanted in (0..most).rev() {
            let host = if wanted == place { Ok(self.clone()) } else { self.counting_on(wanted) };
            match host {
                Ok(host) if host.share_with(contract, role)? <= part => {
                    return Ok(Some(host).filter(|_| wanted != place));
                }
                Ok(_) => {}
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        // What could not be granted within any deadline is refused for that.
        self.decide_newcomer(self.newcomer(contract, role)?, limits::MAX_DEADLINE)?;
        Err(refused.unwrap_or(Refusal::new(Code::Tolerance, Stage::Route)))
    }

    /// Reserves something for an upcall, on this host as upcalls need it, which tolerate nothing.
    pub(super) fn for_upcalls<T>(
        &mut self,
        reserve: impl FnOnce(&mut Self) -> Result<T, UpcallRefusal>,
    ) -> Result<T, UpcallRefusal> {
        if self.place().is_none_or(|place| place == 0) {
            return reserve(self);
        }
        let other = self.counting_on(0).and_then(|host| host.keeps_tolerances().map(|()| host));
        let mut host = other.map_err(|_| UpcallRefusal { why: UpcallDenial::BreaksOthers, fitting_cost: None })?;
        let reserved = reserve(&mut host)?;
        *self = host;
        Ok(reserved)
    }

    /// True if no channel misses more often than it tolerates.
    pub(super) fn keeps_tolerances(&self) -> Result<(), Refusal> {
        match (self.place(), self.tolerated(None)) {
            (Some(_), Some(part)) if self.miss_share().is_none_or(|share| share > part) => {
                Err(Refusal::new(Code::Tolerance, Stage::Route))
            }
            _ => Ok(()),
        }
    }

    /// True if no channel and no upcall needs the rarest claim.
    fn tolerates_all(&self) -> bool {
        self.upcalls.is_empty() && self.reservations().all(|held| held.contract.tolerance().is_some())
    }

    /// This host's part of the least tolerance, a newcomer's included; `None` if there is none.
    fn tolerated(&self, newcomer: Option<&Contract>) -> Option<Probability> {
        let there = self.reservations().map(|held| &held.contract).chain(newcomer);
        there.filter_map(Contract::tolerance).min().map(|least| least.divided_by(HOSTS))
    }

    /// Which of the platform's claims it counts on.
    fn place(&self) -> Option<usize> {
        let Platform { interference, handover, claims, .. } = self.platform();
        claims.iter().position(|claim| claim.envelopes == interference.envelopes && claim.handover == *handover)
    }

    /// The same channels, counting on another claim.
    fn counting_on(&self, place: usize) -> Result<Self, Refusal> {
        let platform = self.platform().clone();
        let Some(ToleranceClaim { envelopes, handover, .. }) = platform.claims.get(place).cloned() else {
            return Ok(self.clone());
        };
        let interference = Interference { envelopes, ..platform.interference };
        self.on_platform(Platform { interference, handover, ..platform })
    }

    /// The same channels, with their stage deadlines and ids, on other figures of the platform; everything is tested anew.
    fn on_platform(&self, platform: Platform) -> Result<Self, Refusal> {
        let bad = |_| Refusal::new(Code::BadParameters, Stage::Link);
        let machine = Machine::new(platform, self.settings.send_early).map_err(bad)?;
        let mut moved = Self { machine, ledger: DemandLedger::new(), ..self.clone() };
        for (id, held) in self.channels.iter() {
            let mut held = *held;
            if let (Some(stream), Some(role)) = (&mut held.stream, held.role)
                && let ((_, Some(anew)), _) = moved.machine.channel(&held.contract, role)?
            {
                *stream = PacketStream { deadline: stream.deadline, reach: stream.reach, ..anew };
            }
            moved.put(id, held);
        }
        moved.test()?;
        moved.upcalls_keep_time(None)?;
        Ok(moved)
    }

    /// The share with a newcomer, whatever its deadline.
    fn share_with(&self, contract: &Contract, role: Role) -> Result<Probability, Refusal> {
        let mut host = self.clone();
        host.insert(host.newcomer(contract, role)?.with(LONGEST, LONGEST))?;
        Ok(host.miss_share().unwrap_or(Probability::ONE))
    }
}

#[cfg(test)]
mod tests;
