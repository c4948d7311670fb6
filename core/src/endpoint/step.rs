//! Steps, and the time from which their results show.
//!
//! A host with one thread does nothing else during a step: [`Endpoint::poll_step`]. Where the link is served at interrupt
//! level, a transmission may end in the middle of a step, and the packet that is being made must not leave before it is
//! complete: [`Endpoint::begin_step`] and [`Endpoint::end_step`].
//!
//! Upcalls on the driver's own thread stand among the handlers of channels, in the same order, by deadline or level: code that is trusted to give
//! the thread back. A step of theirs is an iteration, and each ends at a preemption point. The driver runs them: [`Endpoint::poll_upcall`]
//! says which, when [`Endpoint::poll_step`] has no step.

use alloc::boxed::Box;

use super::{Endpoint, Step};
use crate::event::LinkId;
use crate::frames::Frames;
use crate::piece::StepResult;
use crate::processor::{Preemption, RemainingWork};
use crate::signal::SignalState;
use crate::units::Instant;
use crate::upcall::{CompletedRun, PickedRun, RunOutcome, Upcalls};

impl Endpoint {
    /// Does the work of one packet for the job that the processor scheduler picks; `None` if none may run, or an upcall is next
    /// ([`Endpoint::poll_upcall`]).
    pub fn poll_step(&mut self, now: Instant, frames: &mut impl Frames) -> Option<Step> {
        let step = self.begin_step(now, frames);
        self.end_step(now);
        step
    }

    /// As [`Endpoint::poll_step`], but the packet that is made may leave only after [`Endpoint::end_step`], which must come
    /// before the next step is begun.
    pub fn begin_step(&mut self, now: Instant, frames: &mut impl Frames) -> Option<Step> {
        if !self.jobs.processor.has_current(now) && self.links.iter().all(|link| !link.scheduler.has_current(now)) {
            self.gaps.caught_up = now;
        }
        if self.restaging.is_some() {
            self.go_on_restaging(now);
        }
        loop {
            let pick = self.jobs.processor.pick(now)?;
            let Some(key) = self.channels.key_at(pick.id) else {
                self.next_upcall = Some(pick).filter(|&pick| self.jobs.has(pick));
                if self.next_upcall.is_some() {
                    return None;
                }
                self.jobs.processor.remove(pick.id);
                continue;
            };
            let channel = self.channels.get_mut(key).map(Box::as_mut)?;
            let Some((worked, after)) = channel.job.step(channel.state.remote, self.config.quantum, frames) else {
                // No frame: the quotas make that impossible while the driver keeps its part; try again with new room.
                self.jobs.processor.stepped(now, RemainingWork::Blocked);
                self.starved.push_back(0, pick.id);
                continue;
            };
            if channel.job.packets() > 0 {
                self.making = Some(pick.id);
            }
            if let Some(receiving) = channel.job.try_as_receiver_mut() {
                // A step of a receiver is done with one packet.
                self.frames_shared -= usize::from(receiving.shares_frames());
                if receiving.has_delivery() {
                    self.deliverable.push_back(0, pick.id);
                }
                receiving.explain_lost_by_host(now, &mut self.lost);
            }
            let quantum_end = self.jobs.processor.stepped(now, after);
            if matches!(channel.association.state, SignalState::Finishing { .. }) {
                self.conclude_if_complete(now, key);
            }
            let StepResult { piece, bytes, spent, .. } = worked;
            return Some(Step { channel: key, kind: piece, switched: pick.switched, quantum_end, bytes, spent });
        }
    }

    /// Ends the step that was begun: its packet may leave.
    pub fn end_step(&mut self, now: Instant) {
        let Some(id) = self.making.take() else { return };
        let Some(channel) = self.channels.key_at(id).and_then(|key| self.channels.get(key)) else { return };
        // If others are before it, the first of them stands at the link, and this one follows when its turn comes.
        if channel.job.packets() == 1
            && let Some(head) = channel.job.head()
        {
            self.links[usize::from(channel.at.link)].scheduler.enqueue(now, id, head);
        }
    }

    /// The time at which [`Endpoint::poll_transmit`] may have a packet for `link` that it does not have now; `None` if only an input, a
    /// step or room can change that. Part of [`Endpoint::poll_timeout`].
    pub fn link_timeout(&self, link: LinkId) -> Option<Instant> {
        self.links.get(usize::from(link))?.next_time()
    }

    /// Sets the restriction: while restricted, only current real-time work is done. So a driver keeps its share of the processor within what the
    /// platform allows, without delaying what was promised.
    pub fn set_restricted(&mut self, restricted: bool) {
        self.restricted = restricted;
        self.jobs.processor.restricted = restricted || self.signalling.held_until.is_some();
    }

    /// Sets the hold: while `held`, because an upcall of this host is ready, only current real-time work is done; packets of best effort and control frames
    /// leave [`HELD_SPACING`](crate::limits::HELD_SPACING) apart at least, early ones not at all, and signalling asks for no timeout more often (U1 and U2 of
    /// [`crate::admission::upcalls`]).
    pub fn set_held(&mut self, now: Instant, held: bool) {
        self.signalling.held_until = held.then(|| self.signalling.held_until.unwrap_or(now));
        self.jobs.processor.restricted = self.restricted || held;
        self.links.iter_mut().for_each(|link| link.scheduler.set_held(now, held));
    }

    /// Switches cooperative preemption off from now on. For the experiments of `[channels Fig. 9]` only: no bound holds then.
    pub fn set_preemption(&mut self, preemption: Preemption) {
        self.jobs.processor.preemption = preemption;
    }
}

/// Upcalls on the driver's own thread.
impl Endpoint {
    /// The upcalls on the driver's own thread: to be created, run and suspended. The endpoint picks among them and the channels' handlers, and is
    /// told what they did ([`poll_upcall`](Self::poll_upcall), [`upcall_ran`](Self::upcall_ran)): the caller does neither by itself.
    pub fn upcalls_mut(&mut self) -> &mut Upcalls {
        &mut self.jobs
    }

    /// True if the last [`poll_step`](Self::poll_step) found that an upcall is next.
    pub fn has_upcall(&self) -> bool {
        self.next_upcall.is_some()
    }

    /// The upcall whose iteration is next, if the last [`poll_step`](Self::poll_step) found one. The driver runs it, and says what it did
    /// ([`upcall_ran`](Self::upcall_ran)) before it asks for another step.
    pub fn poll_upcall(&mut self, now: Instant) -> Option<PickedRun> {
        let picked = self.next_upcall.take()?;
        self.jobs.picked(now, picked)
    }

    /// Tells that the upcall that was picked handled so many `units` more. Returns the run, if it is over.
    pub fn upcall_ran(&mut self, now: Instant, units: u32, outcome: RunOutcome) -> Option<CompletedRun> {
        self.jobs.ran(now, units, outcome)
    }
}
