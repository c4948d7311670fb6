//! All channels of this host served in another way together, while it runs: what [`laxity_core::admission::rearrange`] finds.
//!
//! The executive is told the stages and changes them at an instant at which that is sound ([`laxity_core::endpoint::Endpoint::restage`]). Until it says that it
//! has, nothing is admitted: openers wait, peers' requests wait, and a channel that its receiver has accepted meanwhile begins after that.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::answer::Role;
use laxity_core::admission::rearrange::RearrangeResult;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage};
use laxity_core::contract::{Contract, SendingStages};
use laxity_core::units::Duration;

use crate::advice;
use crate::channel_executive::ChannelExecutive;
use crate::control::{ControlState, HostShared};
use crate::error::Error;
use crate::executive::ExecutiveCommand;

/// The time that an opener waits until the executive serves its channels in another way.
const PATIENCE: StdDuration = StdDuration::from_secs(1);

/// A sending real-time channel that is to be admitted.
pub(crate) struct SenderRequest {
    pub(crate) contract: Contract,
    /// The part of the deadline outside this host.
    pub(crate) outside: Duration,
    /// The level of its handler under fixed priorities.
    pub(crate) priority: u8,
}

impl SenderRequest {
    /// The refusal with the least end-to-end deadline, as far as this host knows it.
    pub(crate) fn end_to_end(&self, refusal: Refusal) -> Refusal {
        Refusal { least_deadline: refusal.least_deadline.map(|least| least + self.outside), ..refusal }
    }

    /// This host's part of the deadline; nothing is granted within no time.
    pub(crate) fn budget(&self) -> Duration {
        self.contract.deadline().saturating_sub(self.outside)
    }
}

impl HostShared {
    /// The least stages with which a channel that is only asked about would be sent, and what handing it over takes; nothing changes.
    pub(crate) fn would_send<'a>(
        &'a self,
        state: MutexGuard<'a, ControlState>,
        wanted: &SenderRequest,
    ) -> Result<(MutexGuard<'a, ControlState>, SendingStages, Duration), Error> {
        let state = self.settled_soon(state)?;
        let mut copy = state.admission.clone();
        let found = copy.reserve_rearranged(&wanted.contract, Role::Sends, wanted.priority, wanted.budget());
        let (id, least) = found.map_err(|refusal| Error::refused_here(wanted.end_to_end(refusal), None))?;
        Ok((state, least, copy.handover(id)))
    }

    /// Admits a sending channel, in another way to serve the others if need be.
    pub(crate) fn admit_sending<'a>(
        &'a self,
        mut state: MutexGuard<'a, ControlState>,
        wanted: &SenderRequest,
    ) -> Result<(MutexGuard<'a, ControlState>, ReservationId, SendingStages), Error> {
        let SenderRequest { contract, priority, .. } = wanted;
        state = self.settled_soon(state)?;
        let found = state.admission.reserve_or_rearrange(contract, Role::Sends, *priority, wanted.budget());
        let refusal = match found {
            Ok(RearrangeResult::Now(id, least)) => return Ok((state, id, least)),
            Ok(RearrangeResult::After(arranged)) => {
                self.rearrange(&mut state, *arranged);
                state = self.settled_soon(state)?;
                match state.admission.reserve_at(contract, Role::Sends, *priority, wanted.budget()) {
                    Ok((id, least)) => return Ok((state, id, least)),
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => refusal,
        };
        // Nothing is granted within no time, and an application that is refused then hears what would fit.
        let refusal = wanted.end_to_end(refusal);
        let question = state.question(state.admission.clone()).filter(|_| advice::helps(&refusal));
        drop(state);
        let advice = question.map(|question| question.ask(contract, wanted.outside));
        Err(Error::refused_here(refusal, advice))
    }

    /// Has the executive serve its channels as `arranged` has them, which are those of now. Nothing else is changing.
    pub(crate) fn rearrange(&self, state: &mut ControlState, arranged: Admission) {
        state.admission = arranged;
        // No bound is exceeded during the change: published bounds only grow, and they are published before the executive is told.
        state.bounds_are_stale = true;
        let admission = &state.admission;
        let stages = state.channels.iter().filter(|(_, known)| !known.is_receiving).filter_map(|(channel, known)| {
            let id = known.reservation?;
            Some((*channel, admission.stages(id)?.with_handover(admission.handover(id))))
        });
        let stages = stages.collect();
        state.rearranging = Some(Vec::new());
        // After what was to begin before, and after the bounds are published.
        state.due.push(ExecutiveCommand::Restage(stages));
        self.published.notified.notify();
    }

    /// Waits until the executive serves its channels as admission reckons with.
    pub(crate) fn settled<'a>(&'a self, mut state: MutexGuard<'a, ControlState>) -> MutexGuard<'a, ControlState> {
        while state.rearranging.is_some() && !self.is_stopped() {
            state = self.wait_for_change(state);
        }
        state
    }

    fn wait_for_change<'a>(&self, state: MutexGuard<'a, ControlState>) -> MutexGuard<'a, ControlState> {
        let waited = self.rearranged.wait_timeout(state, StdDuration::from_millis(50));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// As [`HostShared::settled`], but not for long.
    ///
    /// # Errors
    /// The host stops; or its processor or its link is not at rest for a second, which no host is that keeps its bounds.
    pub(crate) fn settled_soon<'a>(
        &'a self,
        mut state: MutexGuard<'a, ControlState>,
    ) -> Result<MutexGuard<'a, ControlState>, Error> {
        let until = StdInstant::now() + PATIENCE;
        while state.rearranging.is_some() {
            self.check_running()?;
            if StdInstant::now() > until {
                let refusal = Refusal::new(Code::ProcessorDeadline, Stage::SendingProcessor);
                return Err(Error::refused_here(refusal, None));
            }
            state = self.wait_for_change(state);
        }
        self.check_running()?;
        Ok(state)
    }

    /// The executive says that only the new stages count.
    pub(crate) fn restaged(&self) {
        let accepted = self.state().rearranging.take();
        accepted.into_iter().flatten().for_each(|event| self.accepted(event));
        self.rearranged.notify_all();
        self.published.notified.notify();
    }
}
