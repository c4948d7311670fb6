//! A relay's channel: two that are joined. One is the sender's, as any receiver holds it; the other one goes on to the next
//! host, as any sender holds it. Packets pass from the one to the other without a handler; what is signalled stays between
//! neighbours, and what it says is carried on.
//!
//! The driver gets a request as for a channel that it would receive, opens the onward side ([`Outgoing::relay`]), and accepts
//! the request when the onward side was ([`Incoming::relay`]). From then on the two sides live and end together.

use alloc::boxed::Box;
use core::net::SocketAddr;

use super::channel::{Channel, Half, NOTHING};
use super::{Departed, Destination, Endpoint, Incoming, Outgoing, Transmit};
use crate::admission::{Code, Refusal, Stage};
use crate::event::{ChannelId, End, LinkId, Request, RequestId};
use crate::frames::{FrameId, Frames};
use crate::receive::{Drop, stretched};
use crate::relay::{Passage, RelayConfig, Relaying};
use crate::send::link_scheduler::Class;
use crate::signal::{Association, State};
use crate::units::{Duration, Instant};
use crate::wire::{Control, Counts, DataView, ROUTE_LOST, write_evidence, write_receiver};

/// The side towards the sender.
#[derive(Debug)]
pub(super) struct Inward {
    pub(super) onward: ChannelId,
    passage: Passage,
    /// S as the next host accepted it, bytes.
    packet: u32,
    /// The clock of the receiver at the end of the route.
    clock: u64,
    /// What became of the messages, once the onward side is over.
    counts: Counts,
    /// True if those are of all messages.
    pub(super) is_counted: bool,
}

/// The side towards the receiver.
#[derive(Debug)]
pub(super) struct Onward {
    pub(super) relaying: Relaying,
    /// What it was opened for.
    request: RequestId,
    inward: Option<ChannelId>,
    /// The clock of the times in its packets: the sender's at the beginning of the route.
    pub(super) clock: u64,
    /// The clock that ACCEPT named.
    pub(super) receiver_clock: u64,
    /// Messages that the sender sent, finally.
    sent: Option<u64>,
}

impl Onward {
    /// Messages that the sender has sent, as far as is known here.
    pub(super) fn sent(&self) -> u64 {
        self.sent.unwrap_or(self.relaying.next())
    }
}

impl Channel {
    /// The other side, if this is one side of a relay.
    pub(super) fn partner(&self) -> Option<ChannelId> {
        match &self.half {
            Half::Inward(inward) => Some(inward.onward),
            Half::Onward(onward) => onward.inward,
            Half::Sending(_) | Half::Receiving(_) => None,
        }
    }
}

impl Inward {
    /// What ACCEPT says beside the channel: the deadline of all that follows from here on, S, and the receiver's clock.
    pub(super) fn terms(&self) -> (Duration, u32, u64) {
        let Passage { stage, input_delay, onward, .. } = self.passage;
        (stage + input_delay + onward, self.packet, self.clock)
    }
}

impl Outgoing {
    /// The onward side of a channel that is asked for by `request` and goes on to `destination`: with packets of at most
    /// `packet` bytes, or the request's, and room for `packets` of them ([`crate::admission::buffers::receive_packets`] with
    /// the relay's stage), and for one message at least. `upstream` is what all hosts up to this one need of the deadline at
    /// least, with the way to the next host.
    pub fn relay(destination: Destination, request: &Request, packet: u32, upstream: Duration, packets: u32) -> Self {
        let config = RelayConfig {
            service: request.service,
            packet: request.packet.min(packet),
            oversize: request.oversize,
            same_clock: request.same_clock,
            passage: Passage::default(),
        };
        let onward = Onward {
            relaying: Relaying::new(config, packets),
            request: request.id,
            inward: None,
            clock: request.clock,
            receiver_clock: 0,
            sent: None,
        };
        let association = Association::opening(Instant::ZERO, 0, request.lease);
        let Destination { link, peer, name } = destination;
        Self(Box::new(Channel::new(Half::Onward(onward), association, (peer, link, name), upstream)))
    }
}

impl Incoming {
    /// The channel that answers `request` and is joined to `onward`, which was opened for it and has been accepted. `passage`
    /// is what this host grants to it.
    pub fn relay(request: &Request, onward: ChannelId, passage: Passage) -> Self {
        let inward = Inward { onward, passage, packet: 0, clock: 0, counts: NOTHING, is_counted: false };
        let association = Association::accepted(Instant::ZERO, 0, request.lease);
        let at = (request.peer, request.link, request.name);
        Self(Box::new(Channel::new(Half::Inward(inward), association, at, request.upstream)))
    }
}

impl Endpoint {
    // ------------------------------------------------------------------------------------------------ set-up

    /// True if `onward` waits for the acceptance of request `id`.
    pub(super) fn can_join(&self, onward: ChannelId, id: RequestId) -> bool {
        self.channels.get(onward).is_some_and(|channel| {
            let joins = |half: &Onward| half.request == id && half.inward.is_none();
            channel.association.state == State::Accepted && matches!(&channel.half, Half::Onward(half) if joins(half))
        })
    }

    /// Joins the two sides: packets may pass from now on.
    pub(super) fn join(&mut self, now: Instant, key: ChannelId) {
        let Some(Channel { half: Half::Inward(inward), .. }) = self.channels.get(key) else { return };
        let (onward, passage) = (inward.onward, inward.passage);
        let Some(channel) = self.channels.get_mut(onward) else { return };
        let Half::Onward(half) = &mut channel.half else { return };
        half.inward = Some(key);
        half.relaying.begin(now, passage);
        let (packet, clock) = (half.relaying.config().packet, half.receiver_clock);
        channel.association.enter(State::Open, now);
        self.set_timer(onward);
        if let Some(Channel { half: Half::Inward(inward), .. }) = self.channels.get_mut(key) {
            (inward.packet, inward.clock) = (packet, clock);
        }
    }

    // ------------------------------------------------------------------------------------------------ data

    /// A packet came for the inward side of `onward`; gives the frame back if it is not taken.
    pub(super) fn pass_on(
        &mut self,
        now: Instant,
        onward: ChannelId,
        view: &DataView<'_>,
        frame: FrameId,
    ) -> Option<FrameId> {
        let Some(channel) = self.channels.get_mut(onward) else {
            self.counters.unknown_channel += 1;
            return Some(frame);
        };
        let Half::Onward(Onward { relaying, .. }) = &mut channel.half else { return Some(frame) };
        if !matches!(channel.association.state, State::Open | State::Draining) {
            relaying.refused(Drop::Stale);
            return Some(frame);
        }
        let waits_already = !relaying.is_drained();
        let (gaps, caught_up, stretch_ppm) = (&self.gaps, self.caught_up, self.config.stretch_ppm);
        let held_up = |since: Instant| stretched(gaps.excess(since.min(caught_up), now), stretch_ppm);
        if let Err((frame, _)) = relaying.accept(now, view, frame, held_up) {
            return Some(frame);
        }
        if let Some(head) = relaying.head().filter(|_| !waits_already) {
            self.links[usize::from(channel.link)].scheduler.enqueue(now, onward.index(), head);
        }
        None
    }

    /// The link scheduler picked the head packet of an onward side.
    pub(super) fn transmit_relayed(
        &mut self,
        now: Instant,
        link: LinkId,
        key: ChannelId,
        frames: &mut impl Frames,
    ) -> Option<Transmit> {
        let channel = self.channels.get_mut(key)?;
        let (peer, remote) = (channel.peer, channel.remote);
        let Half::Onward(Onward { relaying, .. }) = &mut channel.half else { return None };
        let packet = relaying.pop()?;
        let stolen = packet.stolen + self.gaps.excess(packet.under_way.min(self.caught_up), now);
        let area = frames.packet_mut(&packet.frame);
        write_receiver(area, remote.0, remote.1);
        write_evidence(area, stolen, packet.waited(now, relaying.config()));
        let is_real_time = relaying.config().service.contract().is_some();
        let class = if is_real_time { Class::RealTime } else { Class::BestEffort };
        let scheduler = &mut self.links[usize::from(link)].scheduler;
        let completes = scheduler.issued(now, class, packet.payload);
        if let Some(head) = relaying.head() {
            scheduler.enqueue(now, key.index(), head);
        }
        relaying.counters.passed_bytes += u64::from(packet.payload);
        if packet.last {
            relaying.counters.passed += 1;
            relaying.counters.late += u64::from(is_real_time && completes > packet.deadline);
        }
        if relaying.is_drained() && channel.association.state == State::Draining {
            self.start_closing(now, key);
        }
        let len = packet.len();
        let message = Departed {
            channel: key,
            sequence: packet.sequence,
            last: packet.last,
            logical_arrival: packet.release,
            deadline: packet.deadline,
        };
        Some(Transmit { frame: packet.frame, len, peer, message: Some(message), completes })
    }

    // ------------------------------------------------------------------------------------------------ endings

    /// What the sender is told: what the next host reported, and what was dropped here. The end of the route cannot tell a
    /// message that was dropped from one that was lost, so it is moved from there: each message counts once.
    pub(super) fn counts(&self, key: ChannelId) -> Counts {
        let Some(channel) = self.channels.get(key) else { return NOTHING };
        let Half::Inward(inward) = &channel.half else { return channel.counts() };
        let Some(next) = self.channels.get(inward.onward) else { return inward.counts };
        let Half::Onward(onward) = &next.half else { return inward.counts };
        let far = next.report.unwrap_or(NOTHING);
        let dropped = onward.relaying.counters.dropped().min(far.lost);
        Counts { lost: far.lost - dropped, dropped: far.dropped.saturating_add(dropped), ..far }
    }

    /// The sender has closed. Once nothing more can come, the onward side sends what waits and closes.
    pub(super) fn finish_relay(&mut self, now: Instant, key: ChannelId, grace_is_over: bool) {
        let Some(channel) = self.channels.get(key) else { return };
        let (State::Finishing { sent }, Half::Inward(inward)) = (channel.association.state, &channel.half) else {
            return;
        };
        let (onward, reason) = (inward.onward, channel.reason);
        let Some(Channel { half: Half::Onward(half), .. }) = self.channels.get_mut(onward) else { return };
        half.sent = Some(sent);
        if grace_is_over || half.relaying.has_seen_all(sent) {
            self.close_onward(now, onward, reason);
        }
    }

    /// Closes the onward side when what waits there has left.
    pub(super) fn close_onward(&mut self, now: Instant, key: ChannelId, reason: u8) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let Half::Onward(half) = &channel.half else { return };
        match channel.association.state {
            State::Open if !half.relaying.is_drained() => {
                channel.reason = reason;
                channel.association.state = State::Draining;
            }
            State::Open | State::Accepted => {
                channel.reason = reason;
                self.start_closing(now, key);
            }
            _ => {}
        }
    }

    /// Closes the inward side: its peer is told to stop.
    fn close_inward(&mut self, now: Instant, key: ChannelId, reason: u8) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if matches!(channel.association.state, State::Open | State::Finishing { .. }) {
            channel.reason = reason;
            self.start_closing(now, key);
        }
    }

    /// The driver closes one side of a relay: so it closes the other.
    pub(super) fn close_partner(&mut self, now: Instant, key: ChannelId) {
        match self.channels.get(key).map(|channel| &channel.half) {
            Some(Half::Inward(Inward { onward, .. })) => self.close_onward(now, *onward, 0),
            Some(Half::Onward(Onward { inward: Some(inward), .. })) => self.close_inward(now, *inward, 0),
            _ => {}
        }
    }

    /// One side of a relay is over in this way: so the other side ends, too.
    pub(super) fn end_partner(&mut self, now: Instant, key: ChannelId, end: End) {
        let reason = match end {
            End::Closed { .. } | End::ClosedByPeer => 0,
            _ => ROUTE_LOST,
        };
        match self.channels.get(key).map(|channel| &channel.half) {
            Some(Half::Inward(Inward { onward, .. })) => self.close_onward(now, *onward, reason),
            Some(&Half::Onward(Onward { inward: Some(inward), .. })) => {
                let counts = self.counts(inward);
                let Some(Channel { half: Half::Inward(half), association, .. }) = self.channels.get_mut(inward) else {
                    return;
                };
                half.counts = counts;
                match (association.state, end) {
                    (State::Finishing { .. }, End::Closed { report: Some(_) }) => self.close_finished(now, inward),
                    _ => self.close_inward(now, inward, reason),
                }
            }
            Some(&Half::Onward(Onward { request, inward: None, .. })) => {
                // Where nobody answered nobody is answered: the peer finds out as we did.
                let refusal = match end {
                    End::Refused(refusal) => refusal,
                    End::Version { .. } => Refusal::new(Code::Version, Stage::Route),
                    _ => return,
                };
                self.refuse_pending(request, &refusal);
            }
            _ => {}
        }
    }

    /// The driver took the other side of a relay out before its end.
    pub(super) fn is_orphan(&self, key: ChannelId) -> bool {
        let Some(channel) = self.channels.get(key) else { return false };
        let partner = channel.partner();
        let lives = matches!(channel.association.state, State::Open | State::Finishing { .. });
        lives && partner.is_some_and(|partner| self.channels.get(partner).is_none())
    }

    /// Ends a side that is left alone.
    pub(super) fn close_orphan(&mut self, now: Instant, key: ChannelId) {
        self.close_onward(now, key, ROUTE_LOST);
        if self.channels.get(key).is_some_and(Channel::is_receiving) {
            self.close_inward(now, key, ROUTE_LOST);
        }
    }

    /// Answers a repeated CLOSE while the onward side is still closing: a sign of life.
    pub(super) fn say_status(&mut self, link: LinkId, peer: SocketAddr, token: u64, key: ChannelId) {
        let counts = self.counts(key);
        self.reply(link, peer, token, &Control::Status(counts));
    }
}
