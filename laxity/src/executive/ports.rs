//! What surrounds a driver on a live host: the clock, the link, and the applications' mailboxes.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use laxity_core::endpoint::{Endpoint, Transmit};
use laxity_core::event::{ChannelId, LinkId};
use laxity_core::frames::{Frames, MessageBuf};
use laxity_core::platform::Platform;
use laxity_core::receive::{EarlyHandling, ExpectedChannel, FinalJudgement, FrameTimes, ReceiveCounters, TimeLoss};
use laxity_core::send::{AcceptedMessage, RejectedMessage, SendCounters};
use laxity_core::units::{Duration, Instant};
use laxity_drive::{Clock, Delivery, Environment, Links, OutboundMessage, PassedPackets, Ports};
use laxity_link::{LinkEvent, LinkOver, Received};

use super::fault::{self, Fault};
use super::looped::LoopedPacket;
use super::{LiveEnvironment, Meter, Notice, PublishedState};
use crate::port::{ExecutivePort, InboundMessage, MessageInfo, ReceiveSlot, SendSlot};

impl<L, C> LiveEnvironment<L, C> {
    fn slot(&self, place: u32) -> Option<&ExecutivePort> {
        self.slots.get(place as usize)?.as_deref()
    }

    fn sender(&mut self, place: u32) -> Option<&mut SendSlot> {
        let slot = self.slots.get_mut(place as usize)?.as_deref_mut()?;
        if let ExecutivePort::Send(slot) = slot { Some(slot) } else { None }
    }

    fn receiver(&mut self, place: u32) -> Option<&mut ReceiveSlot> {
        let slot = self.slots.get_mut(place as usize)?.as_deref_mut()?;
        if let ExecutivePort::Receive(slot) = slot { Some(slot) } else { None }
    }

    /// Gives at most so many packets of the host to itself to the endpoint: how many there were.
    fn receive_own<F: Frames>(
        &mut self,
        now: Instant,
        link: LinkId,
        limit: usize,
        frames: &mut F,
        endpoint: &mut Endpoint,
    ) -> usize {
        for found in 0..limit {
            let Some(LoopedPacket { frame, len, address, since }) = self.parts.looped.pop() else { return found };
            if fault::is_on(Fault::DiscardReceived) {
                frames.free(frame);
                continue;
            }
            let own = FrameTimes { at: now, arrived: Some(since), is_own: true, transit: None };
            endpoint.handle_frame(own, link, address, frame, len, frames);
        }
        limit
    }

    /// A handler in the kernel was done with messages: the endpoint has to know, and who looks at the channels.
    fn handled(&mut self, now: Instant, early: &EarlyHandling, endpoint: &mut Endpoint) {
        if let Some(channel) = endpoint.handle_handled(now, early.place, &early.handled) {
            self.publish_counters(channel, endpoint);
        }
        if let Some((place, messages, bytes)) = early.replies
            && let Some(channel) = endpoint.handle_replied(place, messages, bytes)
        {
            self.publish_counters(channel, endpoint);
        }
    }

    /// Publishes what the endpoint has counted of a channel.
    pub(super) fn publish_counters(&self, channel: ChannelId, endpoint: &Endpoint) {
        let Some(slot) = self.slot(channel.index()) else { return };
        let statistics = &slot.port().statistics;
        if let Some(counters) = endpoint.receive_counters(channel) {
            statistics.receive(&counters);
        }
        if let Some(counters) = endpoint.send_counters(channel) {
            statistics.send(&counters);
        }
    }
}

/// Publishes that the platform took so much at once.
pub(super) fn note_gap(published: &PublishedState, platform: &Platform, taken: Duration) {
    if taken > platform.interference.within(taken) {
        published.gaps.fetch_add(1, Ordering::Relaxed);
    }
    published.largest_gap.fetch_max(taken.as_nanos(), Ordering::Relaxed);
}

impl<F: Frames, L: LinkOver<F>, C: Clock> Environment<F> for LiveEnvironment<L, C> {
    type Clock = C;
    type Meter = Meter;

    fn clock(&mut self) -> &mut C {
        &mut self.clock
    }
    fn meter(&mut self) -> &mut Meter {
        &mut self.parts.meter
    }
}

/// One link, number zero.
impl<F: Frames, L: LinkOver<F>, C: Clock> Links<F> for LiveEnvironment<L, C> {
    fn links(&self) -> LinkId {
        1
    }
    fn room(&self, _: LinkId) -> usize {
        self.link.room().min(self.parts.looped.room())
    }
    fn transmit(&mut self, _: LinkId, packet: Transmit, frames: &mut F) {
        if fault::is_on(Fault::DiscardSent) && packet.message.is_some() {
            return frames.free(packet.frame);
        }
        let Transmit { frame, len, peer, .. } = packet;
        if self.parts.looped.is_own(peer) {
            let since = self.clock.now();
            return self.parts.looped.push(LoopedPacket { frame, len, address: peer, since });
        }
        self.link.transmit(frame, len, peer);
    }
    fn flush(&mut self, _: LinkId, frames: &mut F) {
        if fault::is_on(Fault::WithholdFlush) {
            return;
        }
        // An error of the whole link leaves the frames buffered; the next flush tries again, and the leases notice.
        let _ = self.link.flush(frames);
    }
    fn is_blocked(&self, _: LinkId) -> bool {
        self.link.wants_writable()
    }
    fn buffered(&self, _: LinkId) -> usize {
        self.link.buffered()
    }
    fn rewrite(&mut self, _: LinkId, frames: &mut F, write: impl FnMut(&mut [u8])) {
        self.link.rewrite(frames, write);
    }
    fn passed(&self, _: LinkId) -> PassedPackets {
        let counters = self.link.counters();
        PassedPackets {
            // A packet that the kernel refused has left this host's stages: the network, or the path to it, did not take it.
            departed: counters.sent_frames
                + counters.send_dropped
                + self.link.buffered() as u64
                + self.parts.looped.sent,
            received: counters.received_frames + self.parts.looped.received(),
            lost: self.link.lost(),
        }
    }
    fn retry_after(&self, _: LinkId) -> Option<Duration> {
        self.link.retry_after()
    }

    fn receive(&mut self, now: Instant, link: LinkId, limit: usize, frames: &mut F, endpoint: &mut Endpoint) -> usize {
        if fault::is_on(Fault::SkipLook) {
            return 0;
        }
        // What comes from others has its turn in each look, and what neither wants is the other's.
        let share = self.parts.looped.share(limit);
        let mut found = self.receive_own(now, link, share, frames, endpoint);
        let Self { clock, parts, slept_at, .. } = self;
        let got = self.link.receive(limit - found, frames, |received, frames| {
            let Received { frame, len, peer, arrived, .. } = received;
            if let Some(slept_at) = slept_at.take() {
                // The first that came while the executive slept should have woken it.
                let due = arrived
                    .filter(|arrived| *arrived > slept_at)
                    .map_or(now, |arrived| arrived + parts.platform.wake_up);
                if now > due {
                    let taken = clock.delayed(due, now).min(now.since(due));
                    endpoint.note_gap(now, TimeLoss::by_platform(taken));
                    note_gap(&parts.published, &parts.platform, taken);
                }
            }
            if fault::is_on(Fault::DiscardReceived) {
                return frames.free(frame);
            }
            endpoint.handle_frame(
                FrameTimes { at: now, arrived, is_own: false, transit: None },
                link,
                peer,
                frame,
                len,
                frames,
            );
        });
        for _ in 0..limit {
            let Some((place, packets)) = self.link.poll_policed() else { break };
            endpoint.handle_policed(now, place, packets);
        }
        for _ in 0..limit {
            let Some(early) = self.link.poll_handled() else { break };
            self.handled(now, &early, endpoint);
        }
        // As many as frames: reports may come without end.
        for _ in 0..limit {
            match self.link.poll_event() {
                Some(LinkEvent::Unreachable(peer)) => self.notice(Notice::Unreachable(peer), endpoint),
                Some(LinkEvent::TooLarge { .. }) => {}
                None => break,
            }
        }
        found += got.unwrap_or(0);
        found + self.receive_own(now, link, limit - found, frames, endpoint)
    }

    fn expect(&mut self, _: LinkId, place: u32, expected: &ExpectedChannel) -> bool {
        self.link.expect(place, expected).is_ok()
    }
    fn expect_control(&mut self, _: LinkId, place: u32, peer: SocketAddr) -> bool {
        self.link.expect_control(place, peer).is_ok()
    }
    fn expect_nothing(&mut self, place: u32) {
        self.link.expect_nothing(place);
    }
}

impl<L, C: Clock> Ports for LiveEnvironment<L, C> {
    fn look_begins(&mut self) {
        self.bells.look_begins();
    }

    fn rung(&mut self) -> Option<u32> {
        self.bells.next()
    }

    fn take(&mut self, place: u32) -> Option<OutboundMessage> {
        let slot = self.sender(place)?;
        let outbound = slot.take()?;
        if let Some((application, _)) = slot.bell {
            self.bells.earn(application, 1);
        }
        Some(outbound)
    }

    fn withheld(&self, now: Instant, place: u32, begin: Instant) -> Duration {
        let Some(ExecutivePort::Send(slot)) = self.slot(place) else { return Duration::ZERO };
        slot.put_at(now, begin).since(begin)
    }

    fn take_returned(&mut self, place: u32, mut give: impl FnMut(MessageBuf)) -> bool {
        let Some(slot) = self.receiver(place) else { return true };
        if slot.handling.as_mut().is_some_and(|handling| handling.exchange()) {
            slot.port.signal.notify();
        }
        let mut returned = 0;
        let is_through = slot.take_returned(|message| {
            returned += 1;
            give(message);
        });
        if let Some((application, _)) = slot.bell.filter(|_| returned > 0) {
            self.bells.earn(application, returned);
        }
        is_through
    }

    fn submitted(&mut self, _: Instant, _: ChannelId, _: &AcceptedMessage) {}

    fn refused(&mut self, _: Instant, channel: ChannelId, rejected: RejectedMessage, counters: &SendCounters) {
        if let Some(slot) = self.sender(channel.index()) {
            slot.give(rejected.message);
            slot.port.statistics.send(counters);
            slot.port.signal.notify();
        }
    }

    fn spent(&mut self, _: Instant, channel: ChannelId, message: MessageBuf) {
        if let Some(slot) = self.sender(channel.index()) {
            slot.give(message);
        }
    }

    fn sent(&mut self, channel: ChannelId, counters: &SendCounters) {
        if let Some(slot) = self.sender(channel.index()) {
            slot.port.statistics.send(counters);
        }
    }

    fn spare(&self, place: u32) -> Duration {
        self.slot(place).map_or(Duration::ZERO, |slot| slot.port().statistics.spare())
    }

    fn handler(&self, place: u32) -> Duration {
        let Some(ExecutivePort::Receive(slot)) = self.slot(place) else { return Duration::ZERO };
        slot.handling.as_ref().map_or(Duration::ZERO, |handling| handling.cost())
    }

    fn deliver(&mut self, _: Instant, delivery: Delivery, counters: &ReceiveCounters) -> Option<MessageBuf> {
        let Delivery { channel, delivered, evidence, beyond_bound } = delivery;
        let slot = self.slots.get_mut(channel.index() as usize)?.as_deref_mut()?;
        let ExecutivePort::Receive(slot) = slot else { return None };
        let statistics = &slot.port.statistics;
        statistics.delivered(&delivered);
        let over_bound = beyond_bound.filter(|judged| judged.cause.breaks_promise());
        if over_bound.is_some() {
            statistics.over_bound();
        }
        statistics.receive(counters);
        let told = MessageInfo {
            sequence: delivered.sequence,
            logical_arrival: delivered.logical_arrival,
            sent: delivered.sent(),
            completion: delivered.completion,
            segments: delivered.segments(),
            evidence,
            over_bound,
        };
        let inbound = InboundMessage { message: delivered.message, told };
        if let Some(handling) = &mut slot.handling {
            let declared = handling.cost();
            let (is_done, took) = handling.run(&inbound);
            // It is no piece of ours, and held against its own cost. What is around it is.
            self.parts.meter.mark += took.min(declared);
            if is_done {
                return Some(inbound.message);
            }
        }
        slot.push(inbound);
        None
    }

    fn judged(&mut self, channel: ChannelId, decision: &FinalJudgement, spare: Duration, counters: &ReceiveCounters) {
        if let Some(ExecutivePort::Receive(slot)) = self.slot(channel.index()) {
            slot.port.statistics.judged(decision, spare);
            slot.port.statistics.receive(counters);
        }
    }

    fn wake(&mut self, place: u32) {
        if self.leader == Some(place) {
            self.parts.waker.wake();
        }
        if let Some(slot) = self.slot(place) {
            slot.port().signal.notify();
        }
    }
}
