//! A relay's channel: two channels that are joined. One comes from the sender, like that of any receiver. The other goes on to the next
//! host, like that of any sender. Packets pass from one to the other without a handler. Signalling stays between neighbours, and its
//! contents are carried on.
//!
//! The driver gets a request as for a channel to be received, opens the onward side ([`SendSetup::relay`]), and accepts
//! the request when the onward side was accepted ([`ReceiveSetup::relay`]). From then on the two sides live and end together.

use alloc::boxed::Box;

use super::channel::Channel;
use super::job::ChannelJob;
use super::{Destination, Endpoint, ReceiveSetup, SendSetup};
use crate::admission::{Code, Refusal, Stage};
use crate::contract::ChannelTerms;
use crate::event::{ChannelId, End, PeerRequest, RequestId};
use crate::frames::FrameId;
use crate::receive::{DropReason, FrameTimes, stretched};
use crate::relay::{RelayGrant, RelayedChannel};
use crate::signal::SignalState;
use crate::units::{Duration, Instant};
use crate::wire::{DataView, MessageCounts, ROUTE_LOST};

/// The side towards the sender.
pub(super) struct UpstreamSide {
    pub(super) onward: ChannelId,
    passage: RelayGrant,
    /// S as the next host accepted it, bytes.
    packet: u32,
    /// True if the sender's clock and the receiver's at the end of the route are ours.
    same_clock: bool,
    /// The outcomes of the messages, once the onward side is over.
    counts: MessageCounts,
    /// True if those are of all messages.
    pub(super) is_counted: bool,
}

/// The side towards the receiver.
pub(super) struct DownstreamSide {
    pub(super) relaying: RelayedChannel,
    /// The request that it was opened for.
    request: RequestId,
    pub(super) inward: Option<ChannelId>,
    /// True if the receiver's clock is ours, as ACCEPT showed.
    pub(super) receiver_has_same_clock: bool,
    /// Messages that the sender sent, finally.
    sent: Option<u64>,
}

impl DownstreamSide {
    /// Messages that the sender has sent, as far as is known here.
    pub(super) fn sent(&self) -> u64 {
        self.sent.unwrap_or(self.relaying.next())
    }
}

impl UpstreamSide {
    /// The contents of ACCEPT beside the channel: the deadline of all that follows from here on, S, and whether sender and receiver have
    /// our clock.
    pub(super) fn terms(&self) -> (Duration, u32, bool) {
        let RelayGrant { stage, input_delay, onward, .. } = self.passage;
        (stage + input_delay + onward, self.packet, self.same_clock)
    }
}

impl SendSetup {
    /// The onward side of a channel that is asked for by `request` and goes on to `destination`: with packets of at most
    /// `packet` bytes, or the request's, and room for `packets` of them ([`crate::admission::buffers::receive_packets`] with
    /// the relay's stage), and for one message at least. `upstream` is the part of the deadline that all hosts up to this one need at
    /// least, with the network path to the next host.
    pub fn relay(
        destination: Destination,
        request: &PeerRequest,
        packet: u32,
        upstream: Duration,
        packets: u32,
    ) -> Self {
        let terms = ChannelTerms { packet: request.terms.packet.min(packet), ..request.terms };
        let onward = DownstreamSide {
            relaying: RelayedChannel::new(terms, packets),
            request: request.id,
            inward: None,
            receiver_has_same_clock: false,
            sent: None,
        };
        Self(Box::new(Channel::new(ChannelJob::Onward(onward), request.lease, destination, upstream)))
    }
}

impl ReceiveSetup {
    /// The channel that answers `request` and is joined to `onward`, which was opened for it and has been accepted. `passage`
    /// is this host's grant.
    pub fn relay(request: &PeerRequest, onward: ChannelId, passage: RelayGrant) -> Self {
        let inward = UpstreamSide {
            onward,
            passage,
            packet: 0,
            same_clock: false,
            counts: MessageCounts::default(),
            is_counted: false,
        };
        Self(Box::new(Channel::new(ChannelJob::Inward(inward), request.lease, request.from, request.upstream)))
    }
}

impl Endpoint {
    // ------------------------------------------------------------------------------------------------ set-up

    /// True if `onward` waits for the acceptance of request `id`.
    pub(super) fn can_join(&self, onward: ChannelId, id: RequestId) -> bool {
        self.channels.get(onward).is_some_and(|channel| {
            let joins = |onward: &DownstreamSide| onward.request == id && onward.inward.is_none();
            channel.association.state == SignalState::Accepted && channel.job.try_as_onward_ref().is_some_and(joins)
        })
    }

    /// Joins the two sides: packets may pass from now on.
    pub(super) fn join(&mut self, now: Instant, key: ChannelId) {
        let Some(&UpstreamSide { onward, passage, .. }) =
            self.channels.get(key).and_then(|channel| channel.job.try_as_inward_ref())
        else {
            return;
        };
        let Some(channel) = self.channels.get_mut(onward) else { return };
        let Some(side) = channel.job.try_as_onward_mut() else { return };
        side.inward = Some(key);
        side.relaying.begin(now, passage);
        let ChannelTerms { packet, same_clock, .. } = side.relaying.terms;
        let terms = (packet, same_clock && side.receiver_has_same_clock);
        channel.association.enter(SignalState::Open, now);
        self.set_timer(onward);
        if let Some(inward) = self.channels.get_mut(key).and_then(|channel| channel.job.try_as_inward_mut()) {
            (inward.packet, inward.same_clock) = terms;
        }
    }

    // ------------------------------------------------------------------------------------------------ data

    /// A packet came for this inward side; gives the frame back if it is not taken.
    pub(super) fn pass_on(
        &mut self,
        found: FrameTimes,
        inward: ChannelId,
        view: &DataView<'_>,
        frame: FrameId,
    ) -> Option<FrameId> {
        let now = found.at;
        let Some(onward) = self.taker(inward) else { return Some(frame) };
        let Some(channel) = self.channels.get_mut(onward) else {
            self.counters.unknown_channel += 1;
            return Some(frame);
        };
        let Some(DownstreamSide { relaying, .. }) = channel.job.try_as_onward_mut() else { return Some(frame) };
        if !matches!(channel.association.state, SignalState::Open | SignalState::Draining) {
            relaying.refused(DropReason::Stale);
            return Some(frame);
        }
        let waits_already = !relaying.packets.is_empty();
        let held_up = |since| stretched(self.gaps.stolen(since, now), self.config.stretch_ppm);
        if let Err((frame, _)) = relaying.accept(found, view, frame, held_up) {
            return Some(frame);
        }
        if let Some(head) = relaying.head().filter(|_| !waits_already) {
            self.links[usize::from(channel.at.link)].scheduler.enqueue(now, onward.index(), head);
        }
        None
    }

    // ------------------------------------------------------------------------------------------------ endings

    /// The counts that the sender is told: those of the next host's report, and messages that were dropped here. The end of the route cannot tell a
    /// message that was dropped from one that was lost, so it is moved from there: each message counts once.
    pub(super) fn counts(&self, key: ChannelId) -> MessageCounts {
        let Some(channel) = self.channels.get(key) else { return MessageCounts::default() };
        let Some(inward) = channel.job.try_as_inward_ref() else { return channel.job.counts() };
        let Some(next) = self.channels.get(inward.onward) else { return inward.counts };
        let Some(onward) = next.job.try_as_onward_ref() else { return inward.counts };
        let far = next.state.report.unwrap_or_default();
        let dropped = onward.relaying.counters.dropped().min(far.lost);
        MessageCounts { lost: far.lost - dropped, dropped: far.dropped.saturating_add(dropped), ..far }
    }

    /// The sender has closed. Once nothing more can come, the onward side sends what waits and closes.
    pub(super) fn finish_relay(&mut self, now: Instant, key: ChannelId, grace_is_over: bool) {
        let Some(channel) = self.channels.get(key) else { return };
        let (SignalState::Finishing { sent }, Some(inward)) =
            (channel.association.state, channel.job.try_as_inward_ref())
        else {
            return;
        };
        let (onward, reason) = (inward.onward, channel.state.reason);
        let Some(side) = self.channels.get_mut(onward).and_then(|channel| channel.job.try_as_onward_mut()) else {
            return;
        };
        side.sent = Some(sent);
        if grace_is_over || side.relaying.has_seen_all(sent) {
            self.close_side(now, onward, reason);
        }
    }

    /// Closes one side of a relay: the onward one when what waits there has left, the inward one at once.
    pub(super) fn close_side(&mut self, now: Instant, key: ChannelId, reason: u8) {
        let closes = |state| matches!(state, SignalState::Open | SignalState::Accepted | SignalState::Finishing { .. });
        let Some(channel) = self.channels.get_mut(key).filter(|channel| closes(channel.association.state)) else {
            return;
        };
        channel.state.reason = reason;
        if channel.association.state == SignalState::Open && !channel.job.is_drained() {
            channel.association.state = SignalState::Draining;
        } else {
            self.start_closing(now, key);
        }
    }

    /// One side of a relay is over in this way: so the other side ends, too.
    pub(super) fn end_partner(&mut self, now: Instant, key: ChannelId, end: End) {
        let reason = if matches!(end, End::Closed { .. } | End::ClosedByPeer) { 0 } else { ROUTE_LOST };
        let Some(channel) = self.channels.get(key) else { return };
        let Some(&DownstreamSide { inward, request, .. }) = channel.job.try_as_onward_ref() else {
            let onward = channel.job.partner();
            return onward.into_iter().for_each(|onward| self.close_side(now, onward, reason));
        };
        let Some(inward) = inward else {
            // If the next host did not answer, the request is not answered either: the peer finds out as this host did.
            let refusal = match end {
                End::Refused(refusal) => refusal,
                End::Version { .. } => Refusal::new(Code::Version, Stage::Route),
                _ => return,
            };
            return self.refuse(request, &refusal);
        };
        let counts = self.counts(inward);
        let Some(channel) = self.channels.get_mut(inward) else { return };
        let (association, Some(side)) = (channel.association, channel.job.try_as_inward_mut()) else { return };
        side.counts = counts;
        match (association.state, end) {
            (SignalState::Finishing { .. }, End::Closed { report: Some(_) }) => self.close_finished(now, inward),
            _ => self.close_side(now, inward, reason),
        }
    }

    /// The driver took the other side of a relay out before its end.
    pub(super) fn is_orphan(&self, key: ChannelId) -> bool {
        let Some(channel) = self.channels.get(key) else { return false };
        let lives = matches!(channel.association.state, SignalState::Open | SignalState::Finishing { .. });
        lives && channel.job.partner().is_some_and(|partner| self.channels.get(partner).is_none())
    }
}
