//! What the control thread asks for: channels come and go, and the executive ends.

use laxity_core::admission::Refusal;
use laxity_core::event::ChannelId;
use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};
use laxity_link::LinkOver;
use laxity_link::sys::now;

use super::gaps::Round;
use super::{Command, Executive, GOODBYE, GOODBYE_LOOK, Notice, Opener, SEND_OUT};
use crate::port::Slot;

impl<L: LinkOver<F>, F: Frames> Executive<L, F> {
    /// Does what the control thread asked for; false to stop.
    pub(super) fn obey(&mut self, time: Instant) -> bool {
        while let Ok(command) = self.commands.pop() {
            match command {
                Command::Listen(name) => {
                    self.endpoint.listen(name);
                }
                Command::Unlisten(name) => self.endpoint.unlisten(&name),
                Command::Open { ticket, outgoing, slot } => {
                    let result = self.endpoint.open(time, outgoing);
                    self.announce(time, result.as_ref().ok().copied());
                    self.install(ticket, slot, result.map_err(|(out, refusal)| (Opener::Outgoing(out), refusal)));
                }
                Command::Accept { ticket, request, incoming, slot } => {
                    let result = self.endpoint.accept(time, &request, incoming);
                    self.announce(time, result.as_ref().ok().copied());
                    self.install(ticket, slot, result.map_err(|(inc, refusal)| (Opener::Incoming(inc), refusal)));
                }
                Command::Begin { channel, stages } => {
                    self.endpoint.begin(time, channel, stages);
                    if let Some(Slot::Send(slot)) = self.slots[channel.index() as usize].as_deref_mut() {
                        slot.begun = true;
                    }
                    self.drain(time, channel.index());
                }
                Command::Refuse { request, refusal } => self.endpoint.refuse(&request, &refusal),
                Command::Close(channel) => self.close(time, channel),
                Command::Release(channel) => self.release(channel),
                Command::SetLink { ticket, model } => {
                    self.endpoint.set_link_model(time, 0, model);
                    self.setting = Some(ticket);
                }
                Command::Stop => {
                    for place in 0..self.slots.len() as u32 {
                        if let Some(channel) = self.endpoint.key_at(place) {
                            self.close(time, channel);
                        }
                    }
                    self.stops_at = Some(time + SEND_OUT);
                }
            }
        }
        match self.stops_at {
            Some(at) if at <= time || self.endpoint.is_sent_out() => {
                self.say_goodbye(time);
                false
            }
            _ => true,
        }
    }

    /// Sends the control frames that wait, as fast as the link's share allows: a peer that misses our last word waits for its
    /// lease to end.
    fn say_goodbye(&mut self, start: Instant) {
        let mut time = start;
        loop {
            self.transmit(time, &mut Round { start: time, allowance: Duration::ZERO });
            self.flush();
            if !self.endpoint.has_control(0) || time.since(start) >= GOODBYE {
                return;
            }
            std::thread::sleep(GOODBYE_LOOK);
            time = now();
        }
    }

    /// Closes a channel once its mailbox is empty.
    fn close(&mut self, time: Instant, channel: ChannelId) {
        match self.slots[channel.index() as usize].as_deref_mut() {
            Some(Slot::Send(slot)) if self.endpoint.key_at(channel.index()) == Some(channel) => {
                slot.closing = true;
                self.drain(time, channel.index());
            }
            _ => self.endpoint.close(time, channel),
        }
    }

    fn install(&mut self, ticket: u64, slot: Box<Slot>, result: Result<ChannelId, (Opener, Refusal)>) {
        let result = match result {
            Ok(channel) => {
                slot.port().assign(channel.index());
                self.slots[channel.index() as usize] = Some(slot);
                Ok(channel)
            }
            Err((opener, refusal)) => {
                self.notice(Notice::Garbage { _channel: None, _slot: Some(slot), _opener: Some(opener) });
                Err(refusal)
            }
        };
        self.notice(Notice::Installed { ticket, result });
    }

    /// Tells the link what may arrive for a channel that was installed. One for which nothing can arrive is closed.
    fn announce(&mut self, time: Instant, channel: Option<ChannelId>) {
        let Some(channel) = channel else { return };
        let told = match (self.endpoint.expected(channel), self.endpoint.peer_of(channel)) {
            (Some(expected), _) => self.link.expect(channel.index(), &expected),
            (None, Some(peer)) => self.link.expect_control(channel.index(), peer),
            (None, None) => Ok(()),
        };
        if told.is_err() {
            self.endpoint.close(time, channel);
        }
    }

    fn release(&mut self, channel: ChannelId) {
        self.link.expect_nothing(channel.index());
        let mut slot = self.slots[channel.index() as usize].take();
        let released = self.endpoint.release(channel, &mut self.frames, |message| {
            if let Some(Slot::Send(slot)) = slot.as_deref_mut() {
                let _ = slot.free.push(message);
            }
        });
        if let Some(slot) = &slot {
            slot.port().retire();
        }
        self.retries.remove(channel.index());
        self.wakes.remove(channel.index());
        self.notice(Notice::Garbage { _channel: released, _slot: slot, _opener: None });
    }
}
