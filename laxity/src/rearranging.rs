//! All channels of this host served in another way together, while it runs: what [`laxity_core::admission::rearrange`] finds.
//!
//! The executive is told the stages and changes them at an instant at which that is sound ([`laxity_core::endpoint::Endpoint::restage`]). Until it says that it
//! has, nothing is admitted: openers wait, peers' requests wait, and a channel that its receiver has accepted meanwhile begins after that.

use std::sync::MutexGuard;
use std::time::Instant as StdInstant;

use laxity_core::admission::answer::Role;
use laxity_core::admission::rearrange::Reserved;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage};
use laxity_core::contract::SendingStages;

use crate::advice;
use crate::control::{Shared, State};
use crate::error::Error;
use crate::executive::{Command, Notice};
use crate::registry::PATIENCE;
use crate::sharing::Wanted;

/// A change that the executive has been told of.
pub(crate) struct Rearranging {
    ticket: u64,
    /// What it told meanwhile that begins channels.
    deferred: Vec<Notice>,
}

impl State {
    pub(crate) fn is_rearranging(&self) -> bool {
        self.rearranging.is_some()
    }

    /// Keeps what would begin a channel while stages are about to change; gives back everything else.
    pub(crate) fn defer(&mut self, notice: Notice) -> Option<Notice> {
        match &mut self.rearranging {
            Some(change) if notice.begins_channel() => {
                change.deferred.push(notice);
                None
            }
            _ => Some(notice),
        }
    }
}

impl Shared {
    /// Admits a sending channel where the link is not shared, in another way to serve the others if need be.
    pub(crate) fn admit_alone<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wanted: &Wanted,
    ) -> Result<(MutexGuard<'a, State>, ReservationId, SendingStages), Error> {
        let Wanted { contract, priority, .. } = wanted;
        state = self.settled(state);
        let found = state.admission.reserve_or_rearrange(contract, Role::Sends, *priority, wanted.budget());
        let refusal = match found {
            Ok(Reserved::Now(id, least)) => return Ok((state, id, least)),
            Ok(Reserved::After(arranged)) => {
                self.rearrange(&mut state, *arranged);
                state = self.rearranged(state)?;
                match state.admission.reserve_least_at(contract, Role::Sends, *priority, wanted.budget()) {
                    Ok((id, least)) => return Ok((state, id, least)),
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => refusal,
        };
        // Nothing is granted within no time, and whoever is refused then hears what would fit.
        let refusal = wanted.end_to_end(refusal);
        let question = state.question(state.admission.clone()).filter(|_| advice::helps(&refusal));
        drop(state);
        let advice = question.map(|question| question.ask(contract, wanted.outside));
        Err(Error::refused_here(refusal, advice))
    }

    /// Has the executive serve its channels as `arranged` has them, which are those of now. Nothing else is changing.
    pub(crate) fn rearrange(&self, state: &mut State, arranged: Admission) {
        state.admission = arranged;
        // No bound is exceeded on the way from one to the other: what is published only grows.
        state.review_bounds();
        state.publish_bounds();
        state.review_share();
        let admission = &state.admission;
        let stages = state.channels.iter().filter(|(_, known)| !known.is_receiving).filter_map(|(channel, known)| {
            let id = known.reservation?;
            Some((*channel, admission.stages(id)?.with_handover(admission.handover(id))))
        });
        let stages = stages.collect();
        state.rearranged += 1;
        let ticket = state.rearranged;
        state.rearranging = Some(Rearranging { ticket, deferred: Vec::new() });
        self.command(Command::Restage { ticket, stages });
    }

    /// Waits until the channels are served so.
    ///
    /// # Errors
    /// The host stops; or its processor or its link is never at rest, which no host is that keeps its bounds.
    pub(crate) fn rearranged<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>, Error> {
        let until = StdInstant::now() + PATIENCE;
        while state.is_rearranging() {
            self.check_running()?;
            if StdInstant::now() > until {
                let refusal = Refusal::new(Code::ProcessorDeadline, Stage::SendingProcessor);
                return Err(Error::refused_here(refusal, None));
            }
            state = self.wait_for_change(state);
        }
        // Others who waited may have been admitted before.
        let state = self.settled(state);
        self.check_running()?;
        Ok(state)
    }

    /// The executive says that only the new stages count.
    pub(crate) fn restaged(self: &std::sync::Arc<Self>, ticket: u64) {
        let change = self.state().rearranging.take_if(|change| change.ticket == ticket);
        for notice in change.into_iter().flat_map(|change| change.deferred) {
            self.handle(notice);
        }
        self.share_changed.notify_all();
        self.notified.notify();
    }
}
