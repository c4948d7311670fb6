//! The endpoint's side of [`crate::signal`]: when each frame is written, and what an arriving one means.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Endpoint;
use super::channel::{Channel, ReceiveSetup, SendSetup};
use super::link::{SENDING, SHARES};
use super::seal::{Authentication, SharedKey};
use super::secret::Secret;
use crate::admission::{Code, Refusal, Stage};
use crate::collections::{DeadlineHeap, Ring, TokenMap};
use crate::contract::{self, ChannelTerms, ContractError, SendingStages, Service, packets};
use crate::event::{ChannelId, Destination, End, Event, LinkId, Name, PeerRequest, RequestId};
use crate::frames::{Frames, MessageBuf};
use crate::limits;
use crate::platform::BestEffort;
use crate::receive::FrameTimes;
use crate::signal::{Association, DueAction, RETRY, SignalState, is_same_clock};
use crate::units::{Duration, Instant};
use crate::wire::{Accept, Control, ControlType, MessageCounts, Open, ROUTE_LOST, Refuse, Versions, token};

/// A request that waits for the driver.
pub(super) struct PendingRequest {
    request: PeerRequest,
    token: u64,
    expires: Instant,
}

/// The signalling of an endpoint, beside that of each channel.
pub(super) struct Signalling {
    /// The time of the next signal on each channel.
    pub(super) timers: DeadlineHeap,
    /// The channels by their peers and tokens ([`Secret::place`]).
    tokens: TokenMap,
    pending: Vec<PendingRequest>,
    listeners: Vec<Name>,
    pub(super) secret: Secret,
    /// If hosts have a key.
    pub(super) authentication: Option<Authentication>,
    /// The challenges that were met lately, and when they were forgotten anyway, the oldest first: each serves once.
    pub(super) met: Ring<(u64, Instant)>,
    /// The instant at which the endpoint was driven first.
    begin: Option<Instant>,
    /// While an upcall is ready: when a timer may ask for the processor next.
    pub(super) held_until: Option<Instant>,
}

impl Signalling {
    /// For `capacity` channels; tokens and keys come from `secret`.
    pub(super) fn new(capacity: usize, secret: u128, key: Option<&SharedKey>) -> Self {
        Self {
            timers: DeadlineHeap::with_capacity(capacity),
            tokens: TokenMap::with_capacity(capacity),
            pending: Vec::with_capacity(limits::MAX_PENDING_REQUESTS),
            listeners: Vec::with_capacity(limits::MAX_LISTENERS),
            secret: Secret::new(secret),
            authentication: key.map(Authentication::new),
            met: Ring::with_capacity(if key.is_some() { limits::MAX_PENDING_REQUESTS + capacity } else { 0 }),
            begin: None,
            held_until: None,
        }
    }
}

/// The time in which the driver has to decide on a request; the peer asks again anyway.
pub const DECISION: Duration = Duration::from_secs(2);

impl Endpoint {
    // ------------------------------------------------------------------------------------------------ commands

    /// Lets peers ask for channels to `name`. False if there are too many names, or it is listened on already.
    pub fn listen(&mut self, name: Name) -> bool {
        if self.signalling.listeners.len() >= limits::MAX_LISTENERS || self.signalling.listeners.contains(&name) {
            return false;
        }
        self.signalling.listeners.push(name);
        true
    }

    /// Stops listening on `name`: peers that ask for it from now on are told that there is no such name.
    pub fn unlisten(&mut self, name: &Name) {
        self.signalling.listeners.retain(|other| other != name);
    }

    /// Asks the peer for a channel that this host has admitted. OPEN leaves at the next `handle_timeout`.
    ///
    /// # Errors
    /// [`Code::Memory`] if channels or frames are used up, [`Code::BadParameters`] if its messages need more packets than the
    /// wire can number or best effort may have here ([`LinkConfig`](super::LinkConfig)); the channel's memory comes back.
    pub fn open(&mut self, now: Instant, outgoing: SendSetup) -> Result<ChannelId, (Box<Channel>, Refusal)> {
        let SendSetup(mut channel) = outgoing;
        let lease = channel.association.lease;
        let token = self.signalling.secret.draw();
        channel.association = Association::opening(now, token, lease);
        let Some(link) = self.links.get(usize::from(channel.at.link)) else {
            return Err((channel, Refusal::new(Code::BadParameters, Stage::Link)));
        };
        channel.state.unsent_before = link.unsent;
        let best_effort = self.config.links[usize::from(channel.at.link)].best_effort;
        let refusal = match channel.job.offer().filter(|offer| offer.packet <= self.config.packet) {
            Some(ChannelTerms { service, packet, .. }) => {
                let packet = if service.is_real_time() { packet } else { packet.min(best_effort.packet_max) };
                channel.job.set_packet(packet);
                let checked = check_packets(&service, &best_effort, packet, limits::MAX_PACKETS_PER_MESSAGE);
                checked.err().map(Refusal::from)
            }
            None => Some(Refusal::new(Code::BadParameters, Stage::Contract)),
        };
        if let Some(refusal) = refusal {
            return Err((channel, refusal));
        }
        self.install(channel).map_err(|channel| (channel, Refusal::new(Code::Memory, Stage::SendingProcessor)))
    }

    /// Starts the data of a channel that the peer has accepted, with the final stages.
    pub fn begin(&mut self, now: Instant, channel: ChannelId, stages: SendingStages) {
        let Some(state) = self.channels.get_mut(channel) else { return };
        if state.association.state != SignalState::Accepted {
            return;
        }
        let Some(sending) = state.job.try_as_sender_mut() else { return };
        sending.stages = stages;
        state.association.enter(SignalState::Open, now);
        self.set_timer(channel);
    }

    /// Accepts a request that this host has admitted: to receive, or to relay ([`ReceiveSetup::relay`]).
    ///
    /// # Errors
    /// [`Code::WouldFit`] if it is a question: the peer is told so, and nothing is opened. [`Code::Memory`] if channels or frames are used up, [`Code::Protocol`] if the request has lapsed, or if the onward
    /// channel of a relay was not opened for it or has not been accepted; the peer is told the former. The channel's memory
    /// comes back. A channel onward that was opened for the request is closed.
    pub fn accept(
        &mut self,
        now: Instant,
        request: &PeerRequest,
        incoming: ReceiveSetup,
    ) -> Result<ChannelId, (Box<Channel>, Refusal)> {
        let ReceiveSetup(mut channel) = incoming;
        let onward = channel.job.try_as_inward_ref().map(|inward| inward.onward);
        if request.is_question {
            // It would be granted, and nothing is opened.
            let refusal = Refusal::new(Code::WouldFit, Stage::Route);
            self.refuse(request.id, &refusal);
            onward.inspect(|&onward| self.close_side(now, onward, 0));
            return Err((channel, refusal));
        }
        if onward.is_some_and(|onward| !self.can_join(onward, request.id)) {
            return Err((channel, Refusal::new(Code::Protocol, Stage::Route)));
        }
        let Some(pending) = self.take_pending(request.id) else {
            onward.inspect(|&onward| self.close_side(now, onward, 0));
            return Err((channel, Refusal::new(Code::Protocol, Stage::ReceivingProcessor)));
        };
        channel.association = Association::accepted(now, pending.token, pending.request.lease);
        channel.state.opened = now;
        if let Some(receiving) = channel.job.try_as_receiver_mut() {
            receiving.begin_at(now, self.config.stretch_ppm);
        }
        match self.install(channel) {
            Ok(key) => {
                let nonce = self.signalling.secret.draw();
                if let Some(channel) = self.channels.get_mut(key) {
                    channel.state.remote = (key.index(), nonce);
                    channel.state.seal = self.signalling.seal(channel.association.token, channel.state.remote);
                }
                self.join(now, key);
                self.say(key, ControlType::Accept);
                Ok(key)
            }
            Err(channel) => {
                let refusal = Refusal::new(Code::Memory, Stage::ReceivingProcessor);
                self.send_refusal(request.from.link, request.from.peer, pending.token, &refusal);
                onward.inspect(|&onward| self.close_side(now, onward, 0));
                Err((channel, refusal))
            }
        }
    }

    /// Refuses a request; the peer is told why.
    pub fn refuse(&mut self, id: RequestId, refusal: &Refusal) {
        if let Some(PendingRequest { request, token, .. }) = self.take_pending(id) {
            self.send_refusal(request.from.link, request.from.peer, token, refusal);
        }
    }

    /// Closes a channel. A sender first sends its queued messages. A receiver takes nothing more. It closes at once, or, if it has another
    /// clock, when a last report of its sender has told whether the messages were in time, after a quarter of a second at most. Of a relay
    /// both sides are closed: packets that wait are sent on, and nothing more is taken.
    pub fn close(&mut self, now: Instant, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(channel) else { return };
        let (stands, is_drained) = (state.association.state, state.job.is_drained());
        match stands {
            SignalState::Open if !is_drained => state.association.state = SignalState::Draining,
            SignalState::Open if !self.is_judged(now, channel) => self.start_draining(now, channel),
            SignalState::Open | SignalState::Accepted => self.start_closing(now, channel),
            SignalState::Opening => self.end(now, channel, End::Closed { report: None }),
            _ => return,
        }
        if let Some(partner) = self.channels.get(channel).and_then(|channel| channel.job.partner()) {
            self.close_side(now, partner, 0);
        }
    }

    /// Takes a channel out, ended or not, without a word to the peer: its frames go back to the region, its messages and
    /// memory to the caller. Of a relay both sides are taken out one by one; if one is left alone before its end, it is closed.
    pub fn release(
        &mut self,
        channel: ChannelId,
        frames: &mut impl Frames,
        spent: impl FnMut(MessageBuf),
    ) -> Option<Box<Channel>> {
        self.say_farewell(channel);
        self.leave_clock(channel);
        let mut removed = self.channels.remove(channel)?;
        let id = channel.index();
        self.jobs.processor.remove(id);
        self.links[usize::from(removed.at.link)].remove(id);
        self.signalling.timers.remove(id);
        self.deliverable.remove(id);
        self.starved.remove(id);
        let place = self.place_of(&removed);
        self.signalling.tokens.remove(place);
        self.frames_in_quota -= removed.job.frame_quota();
        self.frames_shared -= removed.job.shared_frames();
        self.promises -= usize::from(removed.job.is_real_time());
        removed.job.clear(frames, spent);
        if let Some(partner) = removed.job.partner().filter(|&partner| self.is_orphan(partner)) {
            self.signalling.timers.set(partner.index(), Instant::ZERO);
        }
        Some(removed)
    }

    /// Handles timers that are due by `now`, the earliest first: at most [`TIMERS_AT_ONCE`](limits::TIMERS_AT_ONCE) of them. If more are due, it
    /// asks to be called again at once ([`poll_timeout`](Endpoint::poll_timeout)).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.signalling.begin.get_or_insert(now);
        if self.signalling.timers.peek().is_some_and(|(at, _)| at <= now) || self.has_event() {
            self.signalling.held_until = self.signalling.held_until.map(|_| now + limits::HELD_SPACING);
        }
        for _ in 0..limits::TIMERS_AT_ONCE {
            let Some((_, id)) = self.signalling.timers.pop_due(now) else { break };
            let Some(key) = self.channels.key_at(id) else { continue };
            if self.is_orphan(key) {
                self.close_side(now, key, ROUTE_LOST);
            }
            let Some(channel) = self.channels.get_mut(key) else { continue };
            match channel.association.timeout(now) {
                DueAction::Nothing => {}
                DueAction::Say(frame) => self.say(key, frame),
                DueAction::Finish => self.conclude(now, key),
                DueAction::NoAnswer => self.end(now, key, End::NoAnswer),
                DueAction::PeerLost => self.end(now, key, End::PeerLost),
            }
            self.set_timer(key);
        }
        self.signalling.pending.retain(|pending| pending.expires > now);
        self.clocks.timeout(now);
    }

    // ------------------------------------------------------------------------------------------------ inputs

    pub(super) fn handle_control(&mut self, found: FrameTimes, link: LinkId, peer: SocketAddr, frame: &[u8]) {
        let now = found.at;
        let number = match self.signalling.authentication.as_ref().map(|authentication| authentication.check(frame)) {
            Some(None) => {
                self.counters.unauthenticated += 1;
                return;
            }
            checked => checked.flatten(),
        };
        let (token, control) = match Control::parse(frame) {
            Ok(parsed) => parsed,
            Err(_) => {
                self.counters.control_invalid += 1;
                // An OPEN that cannot be read gets an answer, so that its sender does not wait; nothing else does. It may be a few bytes, and its address
                // another host's: the answer has no text.
                if let (Some(token), Some(&1)) = (token(frame), frame.get(4)) {
                    let refusal = Refusal::new(Code::Protocol, Stage::Contract);
                    self.answer(link, peer, token, &Control::Refuse(Refuse { refusal, detail: "" }), 1);
                }
                return;
            }
        };
        if let Some(number) = number
            && !self.is_new(now, (link, peer), token, &control, number)
        {
            return;
        }
        match control {
            // It has been taken, or this host has no key and expects no challenge.
            Control::Challenge => {}
            Control::Open(open) => self.handle_open(found, link, peer, token, &open),
            Control::Accept(accept) => self.handle_accept(now, peer, token, &accept),
            Control::Refuse(refuse) => {
                let Some(key) = self.opening(peer, token) else { return };
                let mut refusal = refuse.refusal;
                if refusal.code == Code::WouldFit && self.channels.get(key).is_none_or(|it| !it.state.is_question) {
                    // It says so to who did not ask.
                    refusal = Refusal::new(Code::Protocol, Stage::ReceivingProcessor);
                }
                self.end(now, key, End::Refused(refusal));
            }
            Control::Version(Versions { lowest, highest }) => {
                let Some(key) = self.opening(peer, token) else { return };
                self.end(now, key, End::Version { lowest, highest });
            }
            Control::Keepalive(keepalive) => {
                if let Some(key) = self.incoming(peer, token, (keepalive.channel, keepalive.key)) {
                    self.note_unsent(key, keepalive.unsent);
                    self.note_spacing(key, keepalive.spacing);
                    self.hear_exchange(found, key, keepalive.exchange);
                    match self.confirm(now, key) {
                        true => self.say(key, ControlType::Status),
                        false => self.answer_channel(now, key, ControlType::Status),
                    }
                }
            }
            Control::Status(status) => {
                if let Some(key) = self.outgoing(peer, token) {
                    self.confirm(now, key);
                    self.hear_exchange(found, key, status.exchange);
                    if status.exchange.is_some() && self.state(key) == Some(SignalState::Closing) {
                        // Its last messages wait for one more report.
                        self.answer_channel(now, key, ControlType::Close);
                    }
                    if self.obey_spacing(now, key, status.spacing) {
                        // It comes behind everything that was sent before.
                        self.say(key, ControlType::Keepalive);
                    }
                    let report = self.believed(key, status.counts);
                    if let Some(channel) = self.channels.get_mut(key).filter(|_| report.is_some()) {
                        channel.state.report = report;
                    }
                }
            }
            Control::Close(close) => self.handle_close(found, peer, token, &close),
            Control::Closed(counts) => {
                let closing = |key: &ChannelId| self.state(*key) == Some(SignalState::Closing);
                let sending = self.outgoing(peer, token).filter(closing);
                let Some(key) = sending.or_else(|| self.find(peer, token, true).filter(closing)) else { return };
                let report = sending.and_then(|key| self.believed(key, counts));
                self.end(now, key, End::Closed { report });
            }
        }
    }

    fn handle_open(&mut self, found: FrameTimes, link: LinkId, peer: SocketAddr, token: u64, open: &Open<'_>) {
        let now = found.at;
        if let Some(key) = self.find(peer, token, true) {
            // A repetition.
            if self.lacks_accept(key) {
                self.answer_channel(now, key, ControlType::Accept);
            }
            return;
        }
        if self.is_pending(peer, token) {
            return;
        }
        let name = Name::new(open.name).ok().filter(|name| self.signalling.listeners.contains(name));
        let Some(name) = name else {
            // Who has just begun may be about to listen; the peer asks again.
            if self.signalling.begin.is_none_or(|begin| now.since(begin) < RETRY) {
                return;
            }
            let refusal = Refusal::new(Code::NoSuchName, Stage::ReceivingProcessor);
            return self.send_refusal(link, peer, token, &refusal);
        };
        let service = match Service::try_from(open.traffic) {
            Ok(service) => service,
            Err(error) => return self.send_refusal(link, peer, token, &Refusal::from(error)),
        };
        let packet = u32::from(open.packet).min(self.config.packet);
        // Of a real-time channel the driver admits as many packets as the request says.
        let most = limits::MAX_PACKETS_PER_MESSAGE;
        if let Some(config) = self.config.links.get(usize::from(link))
            && let Err(error) = check_packets(&service, &config.best_effort, packet, most)
        {
            return self.send_refusal(link, peer, token, &Refusal::from(error));
        }
        let of_its_host =
            self.signalling.pending.iter().filter(|pending| pending.request.from.peer.ip() == peer.ip()).count();
        if self.signalling.pending.len() >= limits::MAX_PENDING_REQUESTS || of_its_host >= limits::MAX_WAITING_OF_HOST {
            return;
        }
        // What this host said itself is taken from itself, and not from who heard it.
        let same_clock = (found.is_own || self.named(peer, token, false).is_none())
            && is_same_clock(self.config.clock, now, token, ControlType::Open, open.clock);
        let request = PeerRequest {
            id: RequestId(self.signalling.secret.draw()),
            from: Destination { link, peer, name },
            terms: ChannelTerms { service, packet, oversize: open.oversize.into(), same_clock },
            is_question: open.traffic.is_question(),
            upstream: open.upstream,
            lease: open.lease,
            pace: open.pace,
        };
        self.clocks.is_compared |= !same_clock;
        self.signalling.pending.push(PendingRequest { request, token, expires: now + DECISION });
        self.push_event(Event::Requested(request));
    }

    fn handle_accept(&mut self, now: Instant, peer: SocketAddr, token: u64, accept: &Accept) {
        let Some(key) = self.opening(peer, token) else { return };
        let same_clock = is_same_clock(self.config.clock, now, token, ControlType::Accept, accept.clock);
        let Some(channel) = self.channels.get_mut(key) else { return };
        let Some(ChannelTerms { service, packet, .. }) = channel.job.offer() else { return };
        if channel.state.is_question || accept.check(packet as u16).is_err() {
            return self.end(now, key, End::Refused(Refusal::new(Code::Protocol, Stage::ReceivingProcessor)));
        }
        // Smaller packets are fine as long as a message needs no more of them than this host has admitted, or a relay has room
        // for.
        let most = packets(service.max_message(), packet);
        let best_effort = self.config.links[usize::from(channel.at.link)].best_effort;
        let mut checked = check_packets(&service, &best_effort, accept.packet.into(), most);
        if let Some(onward) = channel.job.try_as_onward_mut() {
            onward.receiver_has_same_clock = same_clock;
            let (most, packet) = (onward.relaying.most_packets(), u32::from(accept.packet).max(1));
            checked = checked.and_then(|()| contract::check_packets(service.max_message(), packet, most));
        }
        if let Err(error) = checked {
            return self.end(now, key, End::Refused(Refusal::from(error)));
        }
        channel.job.set_packet(u32::from(accept.packet));
        channel.state.remote = (accept.channel, accept.key);
        channel.state.seal = self.signalling.seal(token, channel.state.remote);
        channel.association.accept(now, accept.lease);
        let is_sender = channel.job.try_as_sender_ref().is_some();
        if !same_clock && is_sender {
            self.watch_clock(key);
        }
        self.obey_spacing(now, key, accept.spacing);
        self.set_timer(key);
        self.push_event(Event::Accepted {
            channel: key,
            receive: accept.receive,
            same_clock,
            packet: u32::from(accept.packet),
            receiver: (accept.channel, accept.key),
        });
    }

    /// The peer says how many packets it made and lost itself.
    pub(super) fn note_unsent(&mut self, key: ChannelId, unsent: u64) {
        if let Some(receiving) = self.channels.get_mut(key).and_then(|channel| channel.job.try_as_receiver_mut()) {
            receiving.note_unsent(unsent);
        }
    }

    /// Forgets a request that the driver could not handle; the peer's next try is a new one.
    pub fn forget(&mut self, request: &PeerRequest) {
        self.take_pending(request.id);
    }

    /// True if everything that was taken has been handed to the links, control frames included. It looks at every channel.
    pub fn is_sent_out(&self) -> bool {
        self.links.iter().all(|link| !link.has_frames())
            && self
                .channels
                .iter()
                .all(|(_, channel)| channel.job.is_drained() || channel.association.state == SignalState::Ended)
    }

    /// The last report of a sending channel's receiver.
    pub fn report(&self, channel: ChannelId) -> Option<MessageCounts> {
        self.channels.get(channel)?.state.report
    }

    // ------------------------------------------------------------------------------------------------ look-ups

    fn install(&mut self, mut channel: Box<Channel>) -> Result<ChannelId, Box<Channel>> {
        let (quota, place) = (channel.job.frame_quota(), self.place_of(&channel));
        let is_promised = channel.job.is_real_time();
        if self.frames_in_quota + quota > self.config.frames {
            return Err(channel);
        }
        if channel.job.is_receiving() {
            channel.state.list = SENDING + 1 + self.signalling.secret.share(&channel.at.peer, SHARES);
        }
        let link = channel.at.link;
        let key = self.channels.insert(channel)?;
        if !self.signalling.tokens.insert(place, key.index()) {
            return Err(self.channels.remove(key).expect("it was just inserted"));
        }
        self.frames_in_quota += quota;
        self.promises += usize::from(is_promised);
        self.links[usize::from(link)].scheduler.set_spacing(Instant::ZERO, key.index(), Duration::ZERO);
        self.set_timer(key);
        Ok(key)
    }

    fn take_pending(&mut self, id: RequestId) -> Option<PendingRequest> {
        let at = self.signalling.pending.iter().position(|pending| pending.request.id == id)?;
        Some(self.signalling.pending.swap_remove(at))
    }

    /// Under what number a channel stands in the table of tokens.
    fn place_of(&self, channel: &Channel) -> u64 {
        self.signalling.secret.place(&channel.at.peer, channel.association.token, channel.job.is_receiving())
    }

    /// The channel of `peer` that `token` names, `receiving` or sending.
    pub(super) fn find(&self, peer: SocketAddr, token: u64, receiving: bool) -> Option<ChannelId> {
        self.named(peer, token, receiving).filter(|key| self.channels.get(*key).is_some_and(|it| it.at.peer == peer))
    }

    /// Likewise; a sending channel by its token alone.
    fn named(&self, peer: SocketAddr, token: u64, receiving: bool) -> Option<ChannelId> {
        let place = self.signalling.tokens.get(self.signalling.secret.place(&peer, token, receiving))?;
        let key = self.channels.key_at(place)?;
        let channel = self.channels.get(key)?;
        (channel.association.token == token && channel.job.is_receiving() == receiving).then_some(key)
    }

    /// The sending channel to `peer` that `token` names.
    pub(super) fn outgoing(&self, peer: SocketAddr, token: u64) -> Option<ChannelId> {
        self.find(peer, token, false)
    }

    /// Likewise, while it waits for an answer to OPEN.
    pub(super) fn opening(&self, peer: SocketAddr, token: u64) -> Option<ChannelId> {
        self.outgoing(peer, token).filter(|&key| self.state(key) == Some(SignalState::Opening))
    }

    /// The receiving channel from `peer` that token, slot and nonce name.
    pub(super) fn incoming(&self, peer: SocketAddr, token: u64, remote: (u32, u64)) -> Option<ChannelId> {
        let key = self.find(peer, token, true)?;
        (self.channels.get(key)?.state.remote == remote).then_some(key)
    }

    /// A peer's report of a channel to it, if it can be true: it counts no more messages than there were.
    pub(super) fn believed(&mut self, key: ChannelId, report: MessageCounts) -> Option<MessageCounts> {
        let believed = self.channels.get(key).is_some_and(|channel| channel.job.can_have_become(&report));
        self.counters.control_invalid += u64::from(!believed);
        believed.then_some(report)
    }

    /// True if the peer that opened a channel has not shown yet that it has ACCEPT.
    pub(super) fn lacks_accept(&self, key: ChannelId) -> bool {
        let association = self.channels.get(key).map(|channel| channel.association);
        association.is_some_and(|association| association.state == SignalState::Open && !association.confirmed)
    }

    /// True if the driver has still to decide on what `peer` asked for under `token`.
    pub(super) fn is_pending(&self, peer: SocketAddr, token: u64) -> bool {
        self.signalling.pending.iter().any(|pending| pending.token == token && pending.request.from.peer == peer)
    }

    pub(super) fn is_inward(&self, key: ChannelId) -> bool {
        self.channels.get(key).is_some_and(|channel| channel.job.try_as_inward_ref().is_some())
    }

    pub(super) fn state(&self, key: ChannelId) -> Option<SignalState> {
        self.channels.get(key).map(|channel| channel.association.state)
    }

    /// The peer of a channel has named it; true if it is the first time.
    pub(super) fn confirm(&mut self, now: Instant, key: ChannelId) -> bool {
        let first = self.channels.get_mut(key).is_some_and(|channel| channel.association.confirm(now));
        if first {
            self.set_timer(key);
        }
        first
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
