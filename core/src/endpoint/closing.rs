//! The end of channels: CLOSE and its answer, and the work that a receiver has to finish before it answers.

use core::net::SocketAddr;

use super::Endpoint;
use super::channel::PendingControls;
use crate::event::{ChannelId, End, Event};
use crate::receive::FrameTimes;
use crate::signal::{GRACE, RETRY, SignalState};
use crate::units::Instant;
use crate::wire::{Close, ControlType, ROUTE_LOST};

impl Endpoint {
    pub(super) fn handle_close(&mut self, found: FrameTimes, peer: SocketAddr, token: u64, close: &Close) {
        let now = found.at;
        if close.reverse {
            let Some(key) = self.outgoing(peer, token) else { return };
            let end = if close.reason == ROUTE_LOST { End::RouteLost } else { End::ClosedByPeer };
            self.end(now, key, end);
            self.answer_close(now, key, ControlType::Closed);
            return;
        }
        let Some(key) = self.incoming(peer, token, (close.channel, close.key)) else { return };
        self.confirm(now, key);
        self.note_unsent(key, close.unsent);
        self.hear_exchange(found, key, close.exchange);
        match self.state(key) {
            Some(SignalState::Open) => {
                if let Some(channel) = self.channels.get_mut(key) {
                    channel.association.enter(SignalState::Finishing { sent: close.sent }, now + GRACE);
                    channel.state.reason = close.reason;
                }
                self.set_timer(key);
                self.conclude_if_complete(now, key);
            }
            // Both sides close at once, our CLOSED was lost, or we had given the peer up: what has not come will not be taken
            // any more. A relay may not know yet what became of them: it only says that it closes.
            Some(SignalState::Closing | SignalState::Ended) => {
                let is_known = self.channels.get_mut(key).is_some_and(|channel| channel.job.finish(close.sent));
                self.answer_close(now, key, if is_known { ControlType::Closed } else { ControlType::Close });
            }
            // A relay closes hop by hop, which takes time; and the one report that a receiver waits for, or what it asked for it, may be lost.
            Some(SignalState::Finishing { .. })
                if self.is_inward(key) || self.channels.get(key).is_some_and(|it| it.state.asked_at.is_some()) =>
            {
                self.answer_channel(now, key, ControlType::Status);
            }
            _ => {}
        }
    }

    /// Answers CLOSE of a channel that closes or is over, unless the peer repeats itself too often.
    fn answer_close(&mut self, now: Instant, key: ChannelId, frame: ControlType) {
        if self.channels.get_mut(key).is_some_and(|channel| channel.association.may_answer_close(now)) {
            self.say(key, frame);
        }
    }

    pub(super) fn start_closing(&mut self, now: Instant, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.association.heard(now);
            channel.association.enter(SignalState::Closing, now + RETRY);
        }
        self.set_timer(key);
        self.say(key, ControlType::Close);
    }

    /// A receiver closes that waits for a last report first ([`Endpoint::is_judged`]).
    pub(super) fn start_draining(&mut self, now: Instant, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            channel.association.enter(SignalState::Draining, now + GRACE);
        }
        self.set_timer(key);
        self.conclude_if_complete(now, key);
    }

    /// A finishing receiver is through when every message that was sent has been delivered or given up, one that closes itself when all is judged
    /// that will be before the end.
    pub(super) fn conclude_if_complete(&mut self, now: Instant, key: ChannelId) {
        let Some(channel) = self.channels.get(key) else { return };
        if channel.association.state == SignalState::Draining && channel.job.try_as_receiver_ref().is_some() {
            let is_judged = self.is_judged(now, key);
            if is_judged || self.channels.get(key).is_some_and(|channel| channel.state.is_over) {
                self.start_closing(now, key);
            }
            return;
        }
        if channel.association.state != SignalState::Open && self.is_inward(key) {
            return self.finish_relay(now, key, false);
        }
        let (SignalState::Finishing { sent }, Some(receiving)) =
            (channel.association.state, channel.job.try_as_receiver_ref())
        else {
            return;
        };
        if receiving.is_through(sent) && self.is_judged(now, key) {
            self.conclude(now, key);
        }
    }

    /// Ends a finishing receiver. Once the grace is over what has not come is lost, but what has come is still processed.
    pub(super) fn conclude(&mut self, now: Instant, key: ChannelId) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let SignalState::Finishing { sent } = channel.association.state else {
            return self.conclude_if_complete(now, key);
        };
        let Some(receiving) = channel.job.try_as_receiver_mut() else {
            channel.association.enter(SignalState::Finishing { sent }, now + RETRY);
            return self.finish_relay(now, key, true);
        };
        if !receiving.is_drained() {
            channel.association.enter(SignalState::Finishing { sent }, now + GRACE);
            return;
        }
        if receiving.unjudged() > 0 {
            channel.association.enter(SignalState::Finishing { sent }, now + GRACE);
            self.is_judged(now, key);
            return;
        }
        receiving.finish(sent);
        receiving.explain_lost_by_host(now, &mut self.lost);
        self.close_finished(now, key);
    }

    /// Tells a peer that has closed what became of its messages.
    pub(super) fn close_finished(&mut self, now: Instant, key: ChannelId) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        let reason = channel.state.reason;
        if let Some(inward) = channel.job.try_as_inward_mut() {
            inward.is_counted = true;
        }
        let end = if reason == ROUTE_LOST { End::RouteLost } else { End::Closed { report: None } };
        self.end(now, key, end);
        self.say(key, ControlType::Closed);
    }

    pub(super) fn end(&mut self, now: Instant, key: ChannelId, end: End) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.association.state == SignalState::Ended {
            return;
        }
        channel.association.state = SignalState::Ended;
        channel.state.unsaid = PendingControls::default();
        if let End::Closed { report: report @ Some(_) } = end {
            channel.state.report = report;
        }
        self.jobs.processor.remove(key.index());
        self.links[usize::from(channel.at.link)].remove(key.index());
        self.signalling.timers.remove(key.index());
        self.starved.remove(key.index());
        (channel.state.ending, channel.state.is_over) = (Some(end), true);
        match channel.job.try_as_receiver_ref() {
            // By what is known now, some at a time.
            Some(receiving) if receiving.unjudged() > 0 => self.clocks.look(channel.state.clock),
            _ => self.tell_end(key),
        }
        self.end_partner(now, key, end);
    }

    /// The messages of a channel that has ended are judged: its application is told.
    pub(super) fn tell_end(&mut self, key: ChannelId) {
        if let Some(end) = self.channels.get_mut(key).and_then(|channel| channel.state.ending.take()) {
            self.leave_clock(key);
            self.push_event(Event::Ended { channel: key, end });
        }
    }
}
