//! A step and when its result shows.
//!
//! A host with one thread does nothing else during a step: [`Endpoint::poll_step`]. Where the link is served at interrupt
//! level, a transmission may end in the middle of a step, and the packet that is being made must not leave before it is
//! complete: [`Endpoint::begin_step`] and [`Endpoint::end_step`].

use super::{Endpoint, Step};
use crate::event::LinkId;
use crate::frames::Frames;
use crate::processor::Preemption;
use crate::units::Instant;

impl Endpoint {
    /// Does the work of one packet for the job that the processor scheduler picks; `None` if none may run.
    pub fn poll_step(&mut self, now: Instant, frames: &mut impl Frames) -> Option<Step> {
        let step = self.begin_step(now, frames);
        self.end_step(now);
        step
    }

    /// The step that was begun is over: its packet may leave.
    pub fn end_step(&mut self, now: Instant) {
        let Some(id) = self.making.take() else { return };
        let Some(channel) = self.channels.key_at(id).and_then(|key| self.channels.get(key)) else { return };
        // If others are before it, the first of them stands at the link, and this one follows when its turn comes.
        if channel.job.packets() == 1
            && let Some(head) = channel.job.head()
        {
            self.links[usize::from(channel.link)].scheduler.enqueue(now, id, head);
        }
    }

    /// When [`Endpoint::poll_transmit`] may have a packet for `link` that it does not have now; `None` if only an input, a
    /// step or room can change that. Part of [`Endpoint::poll_timeout`].
    pub fn link_timeout(&self, link: LinkId) -> Option<Instant> {
        self.links.get(usize::from(link))?.next_time()
    }

    /// Does without cooperative preemption from now on. For the experiments of `[channels Fig. 9]` only: no bound holds then.
    pub fn set_preemption(&mut self, preemption: Preemption) {
        self.processor.set_preemption(preemption);
    }
}
