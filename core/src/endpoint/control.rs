//! The control frames that an endpoint writes: each tells the state of a channel.

use core::fmt::Write as _;
use core::net::SocketAddr;

use super::Endpoint;
use super::link::{ControlFrame, SENDING};
use crate::admission::Refusal;
use crate::event::{ChannelId, Event, LinkId};
use crate::signal::{SignalState, clock_sign};
use crate::units::{Duration, Instant};
use crate::wire::fields::MAX_DETAIL_BYTES;
use crate::wire::{
    Accept, Close, Control, ControlType, Keepalive, MAJOR, Open, Refuse, RequestedService, Status, Versions, token,
};

impl Endpoint {
    /// A channel is to say this to its peer. It is written when it leaves, and says what holds then.
    pub(super) fn say(&mut self, key: ChannelId, frame: ControlType) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.state.unsaid.add(frame);
        self.links[usize::from(channel.at.link)].speaking.push_back(channel.state.list, key.index());
    }

    /// Answers a frame of a channel's peer that came at `now`, unless it repeats itself too often.
    pub(super) fn answer_channel(&mut self, now: Instant, key: ChannelId, frame: ControlType) {
        if self.channels.get_mut(key).is_some_and(|channel| channel.association.may_answer(now)) {
            self.say(key, frame);
        }
    }

    /// The next control frame of `link`'s channels: of those that are sent from here first, then last words.
    pub(super) fn pop_control(&mut self, now: Instant, link: LinkId) -> Option<ControlFrame> {
        loop {
            let state = self.links.get_mut(usize::from(link))?;
            let sending = state.speaking.pop_front(SENDING);
            if sending.is_none()
                && let farewell @ Some(_) = state.farewells.pop()
            {
                return farewell;
            }
            let id = sending.or_else(|| state.next_receiving())?;
            let Some(key) = self.channels.key_at(id) else { continue };
            let frame = self.channels.get_mut(key).and_then(|channel| channel.state.unsaid.pop());
            let written = frame.and_then(|frame| self.write_control(Some(now), key, frame));
            if let Some(channel) = self.channels.get(key).filter(|channel| !channel.state.unsaid.is_empty()) {
                self.links[usize::from(link)].speaking.push_back(channel.state.list, id);
            }
            if written.is_some() {
                return written;
            }
        }
    }

    /// A channel goes: what it has still to say of its end stays.
    pub(super) fn say_farewell(&mut self, key: ChannelId) {
        while let Some(channel) = self.channels.get_mut(key)
            && let Some(frame) = channel.state.unsaid.pop()
        {
            let link = usize::from(channel.at.link);
            if matches!(frame, ControlType::Close | ControlType::Closed)
                && let Some(farewell) = self.write_control(None, key, frame)
                && self.links[link].farewells.push(farewell).is_err()
            {
                self.counters.control_overflow += 1;
            }
        }
    }

    /// The frame that a channel says at this time, or as its last word, which has no time. (The frame about its end is the same at any time.)
    fn write_control(&mut self, now: Option<Instant>, key: ChannelId, frame: ControlType) -> Option<ControlFrame> {
        let exchange = now.and_then(|now| self.exchange(now, key, frame));
        let channel = self.channels.get(key)?;
        let (association, job, (slot, nonce)) = (&channel.association, &channel.job, channel.state.remote);
        let unsent = self.links.get(usize::from(channel.at.link))?.unsent.saturating_sub(channel.state.unsent_before);
        let sign = |same_clock: bool| match same_clock {
            true => clock_sign(self.config.clock, now.unwrap_or_default(), association.token, frame),
            false => 0,
        };
        let control = match frame {
            ControlType::Open => {
                let offer = job.offer()?;
                let offered = RequestedService::from(offer.service);
                Control::Open(Open {
                    name: channel.at.name.as_str(),
                    traffic: if channel.state.is_question { offered.as_question() } else { offered },
                    packet: offer.packet as u16,
                    upstream: channel.upstream,
                    lease: association.lease,
                    clock: sign(offer.same_clock),
                    oversize: offer.oversize as u8,
                    pace: channel.state.pace,
                })
            }
            ControlType::Accept => {
                let (receive, packet, same_clock) = job.terms()?;
                let clock = sign(same_clock);
                let (packet, lease) = (packet as u16, association.lease);
                let spacing = channel.state.spacing;
                Control::Accept(Accept { channel: slot, key: nonce, receive, packet, lease, clock, spacing })
            }
            ControlType::Keepalive => {
                let (sent, spacing) = (job.messages()?, channel.state.spacing);
                Control::Keepalive(Keepalive { channel: slot, key: nonce, sent, unsent, spacing, exchange })
            }
            ControlType::Status => {
                Control::Status(Status { counts: self.counts(key), spacing: channel.state.spacing, exchange })
            }
            ControlType::Closed => Control::Closed(self.counts(key)),
            ControlType::Close => {
                let sent = job.messages().unwrap_or_else(|| self.counts(key).delivered);
                let (reason, reverse) = (channel.state.reason, job.is_receiving());
                Control::Close(Close { channel: slot, key: nonce, sent, unsent, reason, reverse, exchange })
            }
            ControlType::Refuse | ControlType::Version | ControlType::Challenge => return None,
        };
        let mut written = ControlFrame::new(channel.at.peer, association.token, &control);
        if let Some(authentication) = &self.signalling.authentication {
            let numbers = &mut self.channels.get_mut(key)?.state.numbers;
            let number = if frame == ControlType::Open { numbers.challenge } else { numbers.next() };
            written = written.and_then(|written| written.sealed(number, authentication));
        }
        self.counters.control_invalid += u64::from(written.is_none());
        written
    }

    /// Asks the sender of a best-effort channel to start its packets so far apart from now on, at most
    /// [`MAX_SPACING`](crate::admission::incoming::MAX_SPACING); [`Event::Spaced`] tells that it does. Call this again if that event does not come.
    pub fn ask_spacing(&mut self, channel: ChannelId, spacing: Duration) {
        let Some(found) = self.channels.get_mut(channel).filter(|found| found.job.is_receiving()) else { return };
        // A caller that asks for something else is told again when it is so, even if it was so before.
        if core::mem::replace(&mut found.state.spacing, spacing) != spacing {
            found.state.is_unconfirmed = true;
        }
        if matches!(found.association.state, SignalState::Open) {
            self.say(channel, ControlType::Status);
        }
    }

    /// The sender says how far apart its packets start.
    pub(super) fn note_spacing(&mut self, key: ChannelId, spacing: Duration) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if spacing == channel.state.spacing && core::mem::take(&mut channel.state.is_unconfirmed) {
            self.push_event(Event::Spaced { channel: key, spacing });
        }
    }

    /// The receiver says how far apart packets have to start. True if that is new.
    pub(super) fn obey_spacing(&mut self, now: Instant, key: ChannelId, spacing: Duration) -> bool {
        let Some(channel) = self.channels.get_mut(key).filter(|channel| channel.state.spacing != spacing) else {
            return false;
        };
        // Who is promised something keeps its contract, whatever its receiver says.
        if channel.job.is_real_time() {
            return false;
        }
        channel.state.spacing = spacing;
        self.links[usize::from(channel.at.link)].scheduler.set_spacing(now, key.index(), spacing);
        true
    }

    pub(super) fn send_refusal(&mut self, link: LinkId, peer: SocketAddr, token: u64, refusal: &Refusal) {
        let mut detail = ShortText::default();
        if let Some(error) = refusal.contract {
            let _ = write!(detail, "{error}");
        }
        self.answer(link, peer, token, &Control::Refuse(Refuse { refusal: *refusal, detail: detail.as_str() }), 1);
    }

    /// Answers a frame of another major version, unless it is such an answer itself.
    pub(super) fn answer_version(&mut self, link: LinkId, peer: SocketAddr, frame: &[u8]) {
        if let Some(token) = token(frame).filter(|_| self.signalling.authentication.is_none()) {
            self.answer(link, peer, token, &Control::Version(Versions { lowest: MAJOR, highest: MAJOR }), 1);
        }
    }

    /// Answers a peer that has no channel here, with this number if hosts have a key.
    pub(super) fn answer(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>, number: u64) {
        let frame = ControlFrame::new(peer, token, control);
        let frame = match &self.signalling.authentication {
            Some(authentication) => frame.and_then(|frame| frame.sealed(number, authentication)),
            None => frame,
        };
        let Some(frame) = frame else {
            self.counters.control_invalid += 1;
            return;
        };
        if let Some(state) = self.links.get_mut(usize::from(link))
            && !state.push_answer(frame)
        {
            self.counters.control_overflow += 1;
        }
    }
}

/// A short text without allocation; what does not fit is cut at a character.
pub(super) struct ShortText {
    bytes: [u8; MAX_DETAIL_BYTES],
    len: usize,
}

impl Default for ShortText {
    fn default() -> Self {
        Self { bytes: [0; MAX_DETAIL_BYTES], len: 0 }
    }
}

impl ShortText {
    pub(super) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl core::fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let cut = text.floor_char_boundary(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.len += cut;
        Ok(())
    }
}
