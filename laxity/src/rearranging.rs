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
use laxity_core::event::ChannelId;
use laxity_core::units::Duration;

use crate::advice;
use crate::control::{Shared, State};
use crate::error::Error;
use crate::executive::Command;
use crate::experiments::Marks;
use crate::registry::PATIENCE;
use crate::sharing::Wanted;

/// A channel that its receiver has accepted.
pub(crate) struct Begins {
    pub(crate) channel: ChannelId,
    /// What of the deadline is the receiver's.
    pub(crate) receive: Duration,
    pub(crate) same_clock: bool,
    pub(crate) marks: Marks,
}

impl State {
    pub(crate) fn is_rearranging(&self) -> bool {
        self.rearranging.is_some()
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
        state = self.settled_soon(state)?;
        let found = state.admission.reserve_or_rearrange(contract, Role::Sends, *priority, wanted.budget());
        let refusal = match found {
            Ok(Reserved::Now(id, least)) => return Ok((state, id, least)),
            Ok(Reserved::After(arranged)) => {
                self.rearrange(&mut state, *arranged);
                state = self.settled_soon(state)?;
                match state.admission.reserve_least_at(contract, Role::Sends, *priority, wanted.budget()) {
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
    pub(crate) fn rearrange(&self, state: &mut State, arranged: Admission) {
        state.admission = arranged;
        // No bound is exceeded on the way from one to the other: what is published only grows, and it is before the executive is told.
        state.review_bounds();
        state.review_share();
        let admission = &state.admission;
        let stages = state.channels.iter().filter(|(_, known)| !known.is_receiving).filter_map(|(channel, known)| {
            let id = known.reservation?;
            Some((*channel, admission.stages(id)?.with_handover(admission.handover(id))))
        });
        let stages = stages.collect();
        state.rearranging = Some(Vec::new());
        // After what was to begin before, and after the bounds are published.
        state.push_command(Command::Restage(stages));
        self.notified.notify();
    }

    /// Waits until the share and the stages are what admission reckons with.
    ///
    /// # Errors
    /// The host stops; or its processor or its link is not at rest for a second, which no host is that keeps its bounds.
    pub(crate) fn settled_soon<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>, Error> {
        let until = StdInstant::now() + PATIENCE;
        while state.is_unsettled() {
            self.check_running()?;
            if state.is_rearranging() && StdInstant::now() > until {
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
        accepted.into_iter().flatten().for_each(|begins| self.accepted(begins));
        self.share_changed.notify_all();
        self.notified.notify();
    }
}
