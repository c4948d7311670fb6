//! What the control thread asks for, and what it is told.

use laxity_core::admission::Refusal;
use laxity_core::endpoint::{Channel, Endpoint};
use laxity_core::event::{ChannelId, Event};
use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};
use laxity_drive::{Clock, Control, Driver};
use laxity_link::LinkOver;

use super::fault::{self, Fault};
use super::ports::note_gap;
use super::{ExecutiveCommand, Garbage, LiveEnvironment, Notice};
use crate::port::ExecutivePort;

/// How often an executive that never sleeps tells what it counted.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// Commands of one round. Applications of other processes can ask without end; the rest comes in the next round, before which nothing sleeps.
const COMMANDS_AT_ONCE: usize = 16;

impl<F: Frames, L: LinkOver<F>, C: Clock> Control<F> for LiveEnvironment<L, C> {
    fn obey(&mut self, driver: &mut Driver<F>, now: Instant) {
        fault::point(Fault::Round);
        fault::of_core();
        if !self.unsent.is_empty() {
            self.pass_on();
        }
        for _ in 0..COMMANDS_AT_ONCE {
            let Ok(command) = self.parts.commands.pop() else { break };
            match command {
                ExecutiveCommand::Listen(name) => {
                    driver.endpoint.listen(name);
                }
                ExecutiveCommand::Unlisten(name) => driver.endpoint.unlisten(&name),
                ExecutiveCommand::Open { ticket, outgoing, slot } => {
                    let result = driver.open(now, outgoing, self);
                    self.install(ticket, slot, result, &mut driver.endpoint);
                }
                ExecutiveCommand::Accept { ticket, request, incoming, slot } => {
                    let result = driver.accept(now, &request, incoming, self);
                    self.install(ticket, slot, result, &mut driver.endpoint);
                }
                ExecutiveCommand::Begin { channel, stages } => driver.begin(now, channel, stages, self),
                ExecutiveCommand::Refuse { request, refusal } => driver.endpoint.refuse(request.id, &refusal),
                ExecutiveCommand::Close(channel) => driver.close(now, channel, self),
                ExecutiveCommand::Space { channel, spacing } => driver.endpoint.ask_spacing(channel, spacing),
                ExecutiveCommand::Release(channel) => self.release(driver, channel),
                ExecutiveCommand::Restage(stages) => driver.endpoint.restage(stages),
                ExecutiveCommand::CountOn(mut interference) => {
                    self.parts.meter.count_on(&interference.envelopes);
                    driver.endpoint.count_on(&mut interference);
                    self.notice(Notice::Garbage([Some(interference), None]), &mut driver.endpoint);
                }
                ExecutiveCommand::Serve(set) => self.bells.set = Some(set),
                ExecutiveCommand::Attach(bell) => {
                    if let Some(bell) = self.bells.add(bell) {
                        self.notice(Notice::Garbage([Some(bell), None]), &mut driver.endpoint);
                    }
                }
                ExecutiveCommand::Detach(application) => {
                    let bell = self.bells.remove(application).map(|bell| bell as _);
                    self.notice(Notice::Garbage([bell, None]), &mut driver.endpoint);
                }
                ExecutiveCommand::Upcalls(mut upcalls) => {
                    upcalls.is_here();
                    self.upcalls = Some(upcalls);
                }
                ExecutiveCommand::Stop => driver.stop(now, self),
            }
        }
        if let Some(over) = self.upcalls.take_if(|upcalls| !upcalls.obey(now, &mut driver.endpoint)) {
            self.notice(Notice::Garbage([Some(over), None]), &mut driver.endpoint);
        }
    }

    /// Passes it on, with the final figures of what ended.
    fn event(&mut self, driver: &mut Driver<F>, _: Instant, event: Event) {
        if let Event::Ended { channel, .. } = event {
            self.publish_counters(channel, &driver.endpoint);
        }
        self.notice(Notice::Event(event), &mut driver.endpoint);
    }

    fn gap(&mut self, taken: Duration) {
        note_gap(&self.parts.published, &self.parts.platform, taken);
        if let Some(upcalls) = &mut self.upcalls {
            upcalls.taken(taken);
        }
    }

    fn is_upcall_ready(&mut self, now: Instant) -> bool {
        self.parts.published.readiness.is_ready(now)
    }

    fn round_over(&mut self, driver: &mut Driver<F>, now: Instant) {
        if let Some(stages) = driver.endpoint.poll_restaged(now) {
            self.notice(Notice::Restaged { _stages: stages }, &mut driver.endpoint);
        }
        // An executive that never sleeps is heard, too.
        if now.since(self.told_at) >= TOLD_EVERY {
            self.publish_premises(now, &driver.endpoint);
        }
    }
}

impl<L, C> LiveEnvironment<L, C> {
    fn install(
        &mut self,
        ticket: u64,
        slot: Box<ExecutivePort>,
        result: Result<ChannelId, (Box<Channel>, Refusal)>,
        endpoint: &mut Endpoint,
    ) {
        let result = match result {
            Ok(channel) => {
                slot.port().assign(channel.index());
                if let Some(bell) = slot.other_bell() {
                    self.bells.set_place(bell, Some(channel.index()));
                }
                self.slots[channel.index() as usize] = Some(slot);
                Ok(channel)
            }
            Err((channel, refusal)) => {
                self.notice(Notice::Garbage([Some(channel), Some(slot)]), endpoint);
                Err(refusal)
            }
        };
        self.notice(Notice::Installed { ticket, result }, endpoint);
    }

    fn release<F: Frames>(&mut self, driver: &mut Driver<F>, channel: ChannelId)
    where
        L: LinkOver<F>,
        C: Clock,
    {
        let mut slot = self.slots[channel.index() as usize].take();
        let spent = |message| {
            if let Some(ExecutivePort::Send(slot)) = slot.as_deref_mut() {
                slot.give(message);
            }
        };
        let released = driver.release(channel, spent, self);
        if let Some(slot) = &slot {
            slot.port().retire();
            if let Some(bell) = slot.other_bell() {
                self.bells.set_place(bell, None);
            }
        }
        let garbage: [Garbage; 2] = [released.map(|channel| channel as _), slot.map(|slot| slot as _)];
        self.notice(Notice::Garbage(garbage), &mut driver.endpoint);
    }

    pub(super) fn notice(&mut self, notice: Notice, endpoint: &mut Endpoint) {
        // The ring has room for all notices that every channel can have at once; what peers can cause beyond that may not use
        // up that room. A request that is dropped is forgotten, so that the peer's next try is heard.
        let crowded = self.parts.notices.slots() <= 4 * self.slots.len();
        match &notice {
            Notice::Event(Event::Requested(request)) if crowded => return endpoint.forget(request),
            Notice::Unreachable(_) | Notice::Event(Event::Overflow { .. }) if crowded => return,
            _ => {}
        }
        self.unsent.push_back(notice);
        self.pass_on();
    }

    /// Tells the control thread what it has not been told yet, as far as there is room.
    fn pass_on(&mut self) {
        while let Some(notice) = self.unsent.pop_front() {
            if let Err(rtrb::PushError::Full(back)) = self.parts.notices.push(notice) {
                // A control thread that has ended reads nothing any more.
                if !self.parts.notices.is_abandoned() {
                    self.unsent.push_front(back);
                }
                break;
            }
        }
        self.parts.published.notified.notify();
    }

    /// Tells what was counted until now, if no thread is reading it at the moment.
    pub(super) fn publish_premises(&mut self, now: Instant, endpoint: &Endpoint) {
        self.parts.meter.settle();
        if let Ok(mut premises) = self.parts.published.premises.try_lock() {
            premises.copy_from(&self.parts.meter.premises);
            let (peers, revision) = endpoint.watched_peers();
            if self.told_of_peers != revision {
                // Without allocating: there is room for them.
                peers.clone_into(&mut premises.peers);
                self.told_of_peers = revision;
            }
            self.told_at = now;
        }
    }
}
