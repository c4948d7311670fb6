//! New stages for all sent channels together: the idle-instant protocol. The proof is in
//! [`crate::admission::rearrange`].

use alloc::boxed::Box;

use super::Endpoint;
use super::link::LinkState;
use crate::contract::SendingStages;
use crate::event::ChannelId;
use crate::units::Instant;

/// Sent channels and their new stages. For each channel the sum of the stages stays the same.
pub type Stages = Box<[(ChannelId, SendingStages)]>;

/// A change of stages that is under way.
pub(super) struct StageChange {
    stages: Stages,
    is_made: bool,
    /// Links, by number, that had an instant without current packets since then: those before this one.
    idle_links: usize,
}

impl Endpoint {
    /// Gives channels these stages together, at the first instant at which no current real-time message is unfinished on the processor. Packets that are
    /// enqueued at the links keep their deadlines. One change at a time: a second one, before [`Endpoint::poll_restaged`] has told of the first, takes its place,
    /// and channels keep the stages that they have. Takes time in proportion to the number of channels, once.
    pub fn restage(&mut self, stages: Stages) {
        self.restaging = Some(StageChange { stages, is_made: false, idle_links: 0 });
    }

    /// Returns the memory, once, when a change of stages is over: the stages are in force, and each link has had an instant without current
    /// packets since. A newcomer that was admitted beside these stages may begin. Call it between steps.
    pub fn poll_restaged(&mut self, now: Instant) -> Option<Stages> {
        self.restaging.as_ref()?;
        self.go_on_restaging(now);
        let links = self.links.len();
        let is_over = |change: &mut StageChange| change.is_made && change.idle_links >= links;
        self.restaging.take_if(is_over).map(|change| change.stages)
    }

    /// Makes the change if this is an instant for it.
    #[cold]
    pub(super) fn go_on_restaging(&mut self, now: Instant) {
        let Some(change) = &mut self.restaging else { return };
        if !change.is_made {
            if self.jobs.processor.has_current(now) {
                return;
            }
            for &(channel, stages) in &change.stages {
                let Some(state) = self.channels.get_mut(channel) else { continue };
                let Some(sending) = state.job.try_as_sender_mut() else { continue };
                sending.stages = stages;
                if let Some(work) = state.job.work(self.config.quantum) {
                    self.jobs.processor.renew(now, channel.index(), work);
                }
            }
            change.is_made = true;
        }
        let is_idle = |link: &LinkState| !link.scheduler.has_current(now);
        while self.links.get(change.idle_links).is_some_and(is_idle) {
            change.idle_links += 1;
        }
    }
}
