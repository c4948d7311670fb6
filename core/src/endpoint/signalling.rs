//! The endpoint's side of [`crate::signal`]: which frame is written when, and what an arriving one means.

use alloc::boxed::Box;
use core::fmt::Write as _;
use core::net::SocketAddr;

use super::channel::{Channel, Half, Incoming, Outgoing, Released};
use super::link::{ControlFrame, For};
use super::{Endpoint, incoming_token};
use crate::admission::{Code, Refusal, Stage};
use crate::contract::{self, ContractError, Overload, SendingStages, Service, packets};
use crate::event::{ChannelId, End, Event, LinkId, Name, Request, RequestId};
use crate::frames::{Frames, MessageBuf};
use crate::limits;
use crate::platform::BestEffort;
use crate::signal::{Association, Due, GRACE, RETRY, State};
use crate::units::{Duration, Instant};
use crate::wire::fields::MAX_DETAIL_BYTES;
use crate::wire::{
    Accept, Close, Control, Counts, Keepalive, MAJOR, MAX_CONTROL_BYTES, Open, Refuse, Versions, same_clock, token,
};

/// A request that waits for the driver.
#[derive(Debug)]
pub(super) struct Pending {
    request: Request,
    token: u64,
    expires: Instant,
}

/// How long the driver has to decide on a request; the peer asks again anyway.
const DECISION: Duration = Duration::from_secs(2);

impl Endpoint {
    // ------------------------------------------------------------------------------------------------ commands

    /// Lets peers ask for channels to `name`. False if there are too many names, or it is listened on already.
    pub fn listen(&mut self, name: Name) -> bool {
        if self.listeners.len() >= limits::MAX_LISTENERS || self.listeners.contains(&name) {
            return false;
        }
        self.listeners.push(name);
        true
    }

    /// Peers that ask for `name` from now on are told that nobody listens.
    pub fn unlisten(&mut self, name: &Name) {
        self.listeners.retain(|other| other != name);
    }

    /// Asks the peer for a channel that this host has admitted. OPEN leaves at the next `handle_timeout`.
    ///
    /// # Errors
    /// [`Code::Memory`] if channels or frames are used up, [`Code::BadParameters`] if its messages need more packets than the
    /// wire can number or best effort may have here ([`LinkConfig`](super::LinkConfig)); the channel's memory comes back.
    pub fn open(&mut self, now: Instant, outgoing: Outgoing) -> Result<ChannelId, (Outgoing, Refusal)> {
        let Outgoing(mut channel) = outgoing;
        let lease = channel.association.lease;
        let token = self.next_nonce();
        channel.association = Association::opening(now, token, lease);
        let Some(link) = self.links.get(usize::from(channel.link)) else {
            return Err((Outgoing(channel), Refusal::new(Code::BadParameters, Stage::Link)));
        };
        let refusal = match &mut channel.half {
            Half::Sending(sending) if sending.config().packet <= self.config.packet => {
                let service = sending.config().service;
                if service.contract().is_none() {
                    sending.set_packet(link.best_effort.packet_max);
                }
                check_packets(&service, &link.best_effort, sending.config().packet, limits::MAX_PACKETS_PER_MESSAGE)
                    .err()
                    .map(Refusal::from)
            }
            _ => Some(Refusal::new(Code::BadParameters, Stage::Contract)),
        };
        if let Some(refusal) = refusal {
            return Err((Outgoing(channel), refusal));
        }
        match self.install(channel, token) {
            Ok(key) => Ok(key),
            Err(channel) => Err((Outgoing(channel), Refusal::new(Code::Memory, Stage::SendingProcessor))),
        }
    }

    /// Starts the data of a channel that the peer has accepted, with the final stages.
    pub fn begin(&mut self, now: Instant, channel: ChannelId, stages: SendingStages) {
        let Some(state) = self.channels.get_mut(channel) else { return };
        if state.association.state != State::Accepted {
            return;
        }
        if let Half::Sending(sending) = &mut state.half {
            sending.set_stages(stages);
        }
        state.association.enter(State::Open, now);
        self.set_timer(channel);
    }

    /// Accepts a request that this host has admitted.
    ///
    /// # Errors
    /// [`Code::Memory`] if channels or frames are used up, [`Code::Protocol`] if the request has lapsed; the peer is told
    /// the former. The channel's memory comes back.
    pub fn accept(
        &mut self,
        now: Instant,
        request: &Request,
        incoming: Incoming,
    ) -> Result<ChannelId, (Incoming, Refusal)> {
        let Incoming(mut channel) = incoming;
        let Some(pending) = self.take_pending(request.id) else {
            return Err((Incoming(channel), Refusal::new(Code::Protocol, Stage::ReceivingProcessor)));
        };
        channel.association = Association::accepted(now, pending.token, pending.request.lease);
        if let Half::Receiving(receiving) = &mut channel.half {
            receiving.begin_at(now);
        }
        match self.install(channel, incoming_token(&request.peer, pending.token)) {
            Ok(key) => {
                let nonce = self.next_nonce() as u32;
                if let Some(channel) = self.channels.get_mut(key) {
                    channel.remote = (key.index(), nonce);
                }
                self.send_accept(key);
                Ok(key)
            }
            Err(channel) => {
                let refusal = Refusal::new(Code::Memory, Stage::ReceivingProcessor);
                self.send_refusal(request.link, request.peer, pending.token, &refusal);
                Err((Incoming(channel), refusal))
            }
        }
    }

    /// Refuses a request; the peer is told why.
    pub fn refuse(&mut self, request: &Request, refusal: &Refusal) {
        if let Some(pending) = self.take_pending(request.id) {
            self.send_refusal(request.link, request.peer, pending.token, refusal);
        }
    }

    /// Closes a channel. What a sender has queued is sent first; a receiver closes at once.
    pub fn close(&mut self, now: Instant, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(channel) else { return };
        match (state.association.state, &state.half) {
            (State::Open, Half::Sending(sending)) if !sending.is_drained() => {
                state.association.state = State::Draining;
            }
            (State::Open | State::Accepted, _) => self.start_closing(now, channel),
            (State::Opening, _) => self.end(channel, End::Closed { report: None }),
            _ => {}
        }
    }

    /// Takes a channel out, ended or not, without a word to the peer: its frames go back to the region, its messages and
    /// memory to the caller.
    pub fn release(
        &mut self,
        channel: ChannelId,
        frames: &mut impl Frames,
        spent: impl FnMut(MessageBuf),
    ) -> Option<Released> {
        let mut removed = self.channels.remove(channel)?;
        let id = channel.index();
        self.processor.remove(id);
        self.links[usize::from(removed.link)].scheduler.remove(id);
        self.timers.remove(id);
        self.deliverable.remove(id);
        self.starved.remove(id);
        self.tokens.remove(token_of(&removed));
        self.frames_in_quota -= removed.frame_quota();
        removed.clear(frames, spent);
        Some(Released(removed))
    }

    /// Does what is due by `now`: one timer a channel at most.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.timers.pop_due(now) {
            let Some(key) = self.channels.key_at(id) else { continue };
            let Some(channel) = self.channels.get_mut(key) else { continue };
            let due = channel.association.timeout(now);
            match due {
                Due::Nothing => {}
                Due::Open => self.send_open(key),
                Due::Keepalive => self.send_keepalive(key),
                Due::Close => self.send_close(key),
                Due::Finish => self.conclude(now, key),
                Due::NoAnswer => self.end(key, End::NoAnswer),
                Due::PeerLost => self.end(key, End::PeerLost),
            }
            self.set_timer(key);
        }
        self.pending.retain(|pending| pending.expires > now);
    }

    // ------------------------------------------------------------------------------------------------ inputs

    pub(super) fn handle_control(&mut self, now: Instant, link: LinkId, peer: SocketAddr, frame: &[u8]) {
        match Control::parse(frame) {
            Ok((token, Control::Open(open))) => self.handle_open(now, link, peer, token, &open),
            Ok((token, Control::Accept(accept))) => self.handle_accept(now, peer, token, &accept),
            Ok((token, Control::Refuse(refuse))) => {
                if let Some(key) = self.outgoing(peer, token)
                    && self.state(key) == Some(State::Opening)
                {
                    self.end(key, End::Refused(refuse.refusal()));
                }
            }
            Ok((token, Control::Keepalive(keepalive))) => {
                if let Some(key) = self.incoming(peer, token, (keepalive.channel, keepalive.key)) {
                    self.heard(now, key);
                    let counts = self.channels.get(key).map(Channel::counts);
                    if let Some(counts) = counts {
                        self.reply(link, peer, token, &Control::Status(counts));
                    }
                }
            }
            Ok((token, Control::Status(counts))) => {
                if let Some(key) = self.outgoing(peer, token) {
                    self.heard(now, key);
                    if let Some(channel) = self.channels.get_mut(key) {
                        channel.report = Some(counts);
                    }
                }
            }
            Ok((token, Control::Close(close))) => self.handle_close(now, link, peer, token, &close),
            Ok((token, Control::Closed(counts))) => {
                if let Some(key) = self.outgoing(peer, token) {
                    if self.state(key) == Some(State::Closing) {
                        self.end(key, End::Closed { report: Some(counts) });
                    }
                } else if let Some(key) =
                    self.tokens.get(incoming_token(&peer, token)).and_then(|id| self.channels.key_at(id))
                    && self.state(key) == Some(State::Closing)
                {
                    self.end(key, End::Closed { report: None });
                }
            }
            Ok((token, Control::Version(versions))) => {
                if let Some(key) = self.outgoing(peer, token)
                    && self.state(key) == Some(State::Opening)
                {
                    self.end(key, End::Version { lowest: versions.lowest, highest: versions.highest });
                }
            }
            Err(error) => {
                self.counters.control_invalid += 1;
                // An OPEN that cannot be read gets an answer, so that its sender learns why; nothing else does.
                if let (Some(token), Some(&1)) = (token(frame), frame.get(4)) {
                    let mut detail = Text::default();
                    let _ = write!(detail, "OPEN: {error}");
                    let refusal = Refusal::new(Code::Protocol, Stage::Contract);
                    self.answer(link, peer, token, &Control::Refuse(Refuse::new(&refusal, detail.as_str())));
                }
            }
        }
    }

    fn handle_open(&mut self, now: Instant, link: LinkId, peer: SocketAddr, token: u64, open: &Open<'_>) {
        if let Some(id) = self.tokens.get(incoming_token(&peer, token)) {
            // A repetition: our ACCEPT was lost.
            if let Some(key) = self.channels.key_at(id)
                && self.state(key) == Some(State::Open)
            {
                self.heard(now, key);
                self.send_accept(key);
            }
            return;
        }
        if self.pending.iter().any(|pending| pending.token == token && pending.request.peer == peer) {
            return;
        }
        let name = Name::new(open.name).ok().filter(|name| self.listeners.contains(name));
        let Some(name) = name else {
            let refusal = Refusal::new(Code::NoSuchName, Stage::ReceivingProcessor);
            return self.send_refusal(link, peer, token, &refusal);
        };
        let service = match open.service() {
            Ok(service) => service,
            Err(error) => return self.send_refusal(link, peer, token, &Refusal::from(error)),
        };
        let packet = u32::from(open.packet).min(self.config.packet);
        // Of a real-time channel the driver admits as many packets as the request says.
        let most = limits::MAX_PACKETS_PER_MESSAGE;
        if let Some(state) = self.links.get(usize::from(link))
            && let Err(error) = check_packets(&service, &state.best_effort, packet, most)
        {
            return self.send_refusal(link, peer, token, &Refusal::from(error));
        }
        if self.pending.len() >= limits::MAX_PENDING_REQUESTS {
            return;
        }
        let request = Request {
            id: RequestId(self.next_nonce()),
            peer,
            link,
            name,
            service,
            packet,
            upstream: open.upstream,
            oversize: open.oversize.into(),
            same_clock: same_clock(self.config.clock, open.clock),
            lease: open.lease,
        };
        self.pending.push(Pending { request, token, expires: now + DECISION });
        self.push_event(Event::Requested(request));
    }

    fn handle_accept(&mut self, now: Instant, peer: SocketAddr, token: u64, accept: &Accept) {
        let Some(key) = self.outgoing(peer, token) else { return };
        if self.state(key) != Some(State::Opening) {
            return;
        }
        let clock = self.config.clock;
        let Some(channel) = self.channels.get_mut(key) else { return };
        let Half::Sending(sending) = &mut channel.half else { return };
        if accept.check(sending.config().packet as u16).is_err() {
            return self.end(key, End::Refused(Refusal::new(Code::Protocol, Stage::ReceivingProcessor)));
        }
        // Smaller packets are fine as long as a message needs no more of them than this host has admitted.
        let service = sending.config().service;
        let most = packets(service.max_message(), sending.config().packet);
        let best_effort = self.links[usize::from(channel.link)].best_effort;
        if let Err(error) = check_packets(&service, &best_effort, accept.packet.into(), most) {
            return self.end(key, End::Refused(Refusal::from(error)));
        }
        sending.set_packet(u32::from(accept.packet));
        channel.remote = (accept.channel, accept.key);
        channel.association.accept(now, accept.lease);
        self.set_timer(key);
        self.push_event(Event::Accepted {
            channel: key,
            receive: accept.receive,
            same_clock: same_clock(clock, accept.clock),
            packet: u32::from(accept.packet),
        });
    }

    fn handle_close(&mut self, now: Instant, link: LinkId, peer: SocketAddr, token: u64, close: &Close) {
        if close.reverse {
            let Some(key) = self.outgoing(peer, token) else { return };
            let nothing = Counts { delivered: 0, late: 0, lost: 0, dropped: 0, largest: Duration::ZERO };
            self.reply(link, peer, token, &Control::Closed(nothing));
            if self.state(key) != Some(State::Ended) {
                self.end(key, End::ClosedByPeer);
            }
            return;
        }
        let Some(key) = self.incoming(peer, token, (close.channel, close.key)) else { return };
        self.heard(now, key);
        match self.state(key) {
            Some(State::Open) => {
                if let Some(channel) = self.channels.get_mut(key) {
                    channel.association.enter(State::Finishing { sent: close.sent }, now + GRACE);
                }
                self.set_timer(key);
                self.conclude_if_complete(now, key);
            }
            // Both sides close at once: what has not come will not be taken any more.
            Some(State::Closing) => {
                if let Some(Channel { half: Half::Receiving(receiving), .. }) = self.channels.get_mut(key) {
                    receiving.finish(close.sent);
                }
                self.send_closed(key);
            }
            // CLOSED was lost.
            Some(State::Ended) => self.send_closed(key),
            _ => {}
        }
    }

    // ------------------------------------------------------------------------------------------------ endings

    pub(super) fn start_closing(&mut self, now: Instant, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.association.heard(now);
            channel.association.enter(State::Closing, now + RETRY);
        }
        self.set_timer(key);
        self.send_close(key);
    }

    /// A finishing receiver is through when every message that was sent has been delivered or given up.
    pub(super) fn conclude_if_complete(&mut self, now: Instant, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let (State::Finishing { sent }, Half::Receiving(receiving)) = (channel.association.state, &channel.half) else {
            return;
        };
        let c = &receiving.counters;
        let accounted = c.delivered + c.lost + c.dropped_receiver + c.dropped_sender;
        if receiving.is_drained() && accounted >= sent {
            self.conclude(now, key);
        }
    }

    /// Ends a finishing receiver. Once the grace is over what has not come is lost, but what has come is still processed.
    fn conclude(&mut self, now: Instant, key: ChannelId) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let (State::Finishing { sent }, Half::Receiving(receiving)) = (channel.association.state, &mut channel.half)
        else {
            return;
        };
        if !receiving.is_drained() {
            channel.association.enter(State::Finishing { sent }, now + GRACE);
            return;
        }
        receiving.finish(sent);
        self.send_closed(key);
        self.end(key, End::Closed { report: None });
    }

    fn end(&mut self, key: ChannelId, end: End) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.association.state == State::Ended {
            return;
        }
        channel.association.state = State::Ended;
        let end = match end {
            End::Closed { report: Some(report) } => {
                channel.report = Some(report);
                end
            }
            other => other,
        };
        self.processor.remove(key.index());
        self.links[usize::from(channel.link)].scheduler.remove(key.index());
        self.timers.remove(key.index());
        self.starved.remove(key.index());
        self.push_event(Event::Ended { channel: key, end });
    }

    /// Forgets a request that the driver could not look at; the peer's next try is a new one.
    pub fn forget(&mut self, request: &Request) {
        self.take_pending(request.id);
    }

    /// True if everything that was taken has been handed to the links, control frames included. Looks at every channel.
    pub fn is_sent_out(&self) -> bool {
        let sent = |channel: &Channel| match &channel.half {
            Half::Sending(sending) => sending.is_drained() || channel.association.state == State::Ended,
            Half::Receiving(_) => true,
        };
        self.links.iter().all(|link| !link.has_frames())
            && self.channels.keys().filter_map(|key| self.channels.get(key)).all(sent)
    }

    /// What the receiver of a sending channel last reported.
    pub fn report(&self, channel: ChannelId) -> Option<Counts> {
        self.channels.get(channel)?.report
    }

    // ------------------------------------------------------------------------------------------------ frames

    fn send_open(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let Half::Sending(sending) = &channel.half else { return };
        let (name, association) = (channel.name, channel.association);
        let oversize = if sending.config().overload == Overload::Decay { limits::DECAY_FACTOR as u8 } else { 1 };
        let open = Open {
            name: name.as_str(),
            traffic: sending.config().service.into(),
            packet: sending.config().packet as u16,
            upstream: channel.upstream,
            lease: association.lease,
            clock: self.config.clock,
            oversize,
        };
        let (link, peer) = (channel.link, channel.peer);
        self.reply(link, peer, association.token, &Control::Open(open));
    }

    fn send_accept(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let Half::Receiving(receiving) = &channel.half else { return };
        let accept = Accept {
            channel: channel.remote.0,
            key: channel.remote.1,
            receive: receiving.config().stage + receiving.config().input_delay,
            packet: receiving.config().packet as u16,
            lease: channel.association.lease,
            clock: self.config.clock,
        };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.set_timer(key);
        self.reply(link, peer, token, &Control::Accept(accept));
    }

    fn send_refusal(&mut self, link: LinkId, peer: SocketAddr, token: u64, refusal: &Refusal) {
        let mut detail = Text::default();
        if let Some(error) = refusal.contract {
            let _ = write!(detail, "{error}");
        }
        self.answer(link, peer, token, &Control::Refuse(Refuse::new(refusal, detail.as_str())));
    }

    fn send_keepalive(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let Half::Sending(sending) = &channel.half else { return };
        let (slot, nonce) = channel.remote;
        let keepalive = Keepalive { channel: slot, key: nonce, sent: sending.counters.sent };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.reply(link, peer, token, &Control::Keepalive(keepalive));
    }

    fn send_close(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let (slot, nonce) = channel.remote;
        let (sent, reverse) = match &channel.half {
            Half::Sending(sending) => (sending.counters.sent, false),
            Half::Receiving(receiving) => (receiving.counters.delivered, true),
        };
        let close = Close { channel: slot, key: nonce, sent, reason: 0, reverse };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.reply(link, peer, token, &Control::Close(close));
    }

    fn send_closed(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        let (link, peer, token) = (channel.link, channel.peer, channel.association.token);
        self.reply(link, peer, token, &Control::Closed(channel.counts()));
    }

    /// Answers a frame of another major version, unless it is such an answer itself.
    pub(super) fn answer_version(&mut self, link: LinkId, peer: SocketAddr, frame: &[u8]) {
        if let Some(token) = token(frame) {
            self.answer(link, peer, token, &Control::Version(Versions { lowest: MAJOR, highest: MAJOR }));
        }
    }

    fn reply(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>) {
        self.queue(link, peer, token, control, For::Channel);
    }

    /// Answers somebody who has no channel here.
    fn answer(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>) {
        self.queue(link, peer, token, control, For::Stranger);
    }

    fn queue(&mut self, link: LinkId, peer: SocketAddr, token: u64, control: &Control<'_>, whom: For) {
        let mut frame = ControlFrame { peer, bytes: [0; MAX_CONTROL_BYTES], len: 0 };
        let Ok(len) = control.write(token, &mut frame.bytes) else {
            self.counters.control_invalid += 1;
            return;
        };
        frame.len = len;
        if let Some(state) = self.links.get_mut(usize::from(link))
            && !state.push(frame, whom)
        {
            self.counters.control_overflow += 1;
        }
    }

    // ------------------------------------------------------------------------------------------------ look-ups

    fn install(&mut self, channel: Box<Channel>, token: u64) -> Result<ChannelId, Box<Channel>> {
        let quota = channel.frame_quota();
        if self.frames_in_quota + quota > self.config.frames {
            return Err(channel);
        }
        let key = self.channels.insert(channel)?;
        if !self.tokens.insert(token, key.index()) {
            return Err(self.channels.remove(key).expect("it was just inserted"));
        }
        self.frames_in_quota += quota;
        self.set_timer(key);
        Ok(key)
    }

    fn take_pending(&mut self, id: RequestId) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| pending.request.id == id)?;
        Some(self.pending.swap_remove(at))
    }

    /// The sending channel to `peer` that `token` names.
    fn outgoing(&self, peer: SocketAddr, token: u64) -> Option<ChannelId> {
        let key = self.channels.key_at(self.tokens.get(token)?)?;
        let channel = self.channels.get(key)?;
        (channel.peer == peer && !channel.is_receiving() && channel.association.token == token).then_some(key)
    }

    /// The receiving channel from `peer` that token, slot and nonce name.
    fn incoming(&self, peer: SocketAddr, token: u64, remote: (u32, u32)) -> Option<ChannelId> {
        let key = self.channels.key_at(self.tokens.get(incoming_token(&peer, token))?)?;
        let channel = self.channels.get(key)?;
        (channel.peer == peer && channel.is_receiving() && channel.remote == remote).then_some(key)
    }

    fn state(&self, key: ChannelId) -> Option<State> {
        self.channels.get(key).map(|channel| channel.association.state)
    }

    fn heard(&mut self, now: Instant, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.association.heard(now);
        }
    }
}

/// Checks that the largest message of a channel takes no more packets of `packet` bytes than the analysis counts on: `most` of
/// a real-time channel, what best effort may have of any other.
fn check_packets(service: &Service, best_effort: &BestEffort, packet: u32, most: u32) -> Result<(), ContractError> {
    match service {
        Service::RealTime(contract) => contract::check_packets(contract.max_message(), packet.max(1), most),
        Service::BestEffort { max_message, .. } => best_effort.check(*max_message, packet),
    }
}

/// The token under which a channel stands in the map.
fn token_of(channel: &Channel) -> u64 {
    match channel.is_receiving() {
        true => incoming_token(&channel.peer, channel.association.token),
        false => channel.association.token,
    }
}

/// A short text without allocation; what does not fit is cut at a character.
struct Text {
    bytes: [u8; MAX_DETAIL_BYTES],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; MAX_DETAIL_BYTES], len: 0 }
    }
}

impl Text {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.len() - self.len;
        let mut cut = text.len().min(room);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.bytes[self.len..self.len + cut].copy_from_slice(&text.as_bytes()[..cut]);
        self.len += cut;
        Ok(())
    }
}
