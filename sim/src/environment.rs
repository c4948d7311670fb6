//! The surroundings of a host's driver in virtual time: a clock that lets costs pass, a wire, applications, and a control thread
//! that decides as the world says.

use std::net::SocketAddr;

use laxity_core::clock::WallReading;
use laxity_core::contract::Contract;
use laxity_core::endpoint::{Endpoint, Transmit};
use laxity_core::event::{ChannelId, End, Event, LinkId};
use laxity_core::frames::{HeapFrames, MessageBuf};
use laxity_core::piece::Piece;
use laxity_core::receive::{Cause, ExpectedChannel, FinalJudgement, ReceiveCounters};
use laxity_core::send::{AcceptedMessage, RejectedMessage, SendCounters};
use laxity_core::units::{Duration, Instant};
use laxity_drive::{
    Clock, Control, Delivery, Driver, Environment, Links, Meter, OutboundMessage, PassedPackets, Ports, WorkDone,
};

use crate::content;
use crate::observe::{self, due};
use crate::{ChannelHandle, ChannelRecord, Host, Observation, PostedMessage, Side, World};

/// A host's driver, which is out of its host during its turn.
pub(crate) type HostDriver = Driver<HeapFrames>;

/// A world as the driver of one of its hosts sees it.
pub(crate) struct SimulatedEnvironment<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) number: usize,
}

impl SimulatedEnvironment<'_> {
    pub(crate) fn host(&mut self) -> &mut Host {
        &mut self.world.hosts[self.number]
    }

    /// The channel whose end is at a place of this host.
    fn channel_at(&self, place: u32) -> Option<usize> {
        self.world.hosts[self.number].ports.get(place as usize)?.channel
    }
}

impl Clock for SimulatedEnvironment<'_> {
    fn now(&mut self) -> Instant {
        self.host().local()
    }

    fn after(&mut self, work: &WorkDone) -> Instant {
        let number = self.number;
        let host = self.host();
        let start = host.now;
        match (work.piece, work.channel) {
            (_, Some(channel)) => {
                let cost = host.step_cost(work.piece, work.switched);
                host.spend(cost);
                self.world.tell_step(number, start, channel, work.piece, work.switched);
            }
            (Piece::Demultiplex, None) if work.count > 0 => {
                host.spend(host.config.platform.demultiplex * work.count as u64);
                self.world.tell_work(number, start, observe::Activity::Look);
            }
            // Hand-overs were charged one by one; what else there is costs nothing here, and admission charges a look for it.
            _ => {}
        }
        self.host().local()
    }

    fn jumps(&mut self, _: Instant) -> [u64; 2] {
        self.host().memory.clock_jumps
    }

    fn wall(&mut self) -> Option<WallReading> {
        let host = self.host();
        let (off, error) = host.config.wall?;
        let at = host.local();
        let [time, at_ns] = [host.now, at].map(|instant| instant.as_nanos().cast_signed());
        Some(WallReading { at, ahead: time + off - at_ns, error })
    }

    fn delayed(&mut self, _: Instant, _: Instant) -> Duration {
        core::mem::take(&mut self.host().memory.stolen)
    }

    fn stolen(&mut self, _: Instant, _: Duration) -> Duration {
        core::mem::take(&mut self.host().memory.stolen)
    }
}

impl Links<HeapFrames> for SimulatedEnvironment<'_> {
    fn links(&self) -> LinkId {
        1
    }

    fn room(&self, _: LinkId) -> usize {
        let host = &self.world.hosts[self.number];
        host.wire.room(host.now)
    }

    /// Charges C_l, and puts the packet on the wire when that has passed.
    fn transmit(&mut self, _: LinkId, packet: Transmit, frames: &mut HeapFrames) {
        let number = self.number;
        let host = self.host();
        let (start, completes) = (host.now, host.clock.when(packet.completes));
        host.spend(host.config.platform.link_cost);
        self.world.tell_hand_over(number, start, &packet);
        self.world.hand_over(number, packet, completes, frames);
    }

    fn flush(&mut self, _: LinkId, _: &mut HeapFrames) {}

    fn is_blocked(&self, _: LinkId) -> bool {
        false
    }

    fn buffered(&self, _: LinkId) -> usize {
        0
    }
    fn rewrite(&mut self, _: LinkId, _: &mut HeapFrames, _: impl FnMut(&mut [u8])) {}
    /// Nothing that leaves is lost here.
    fn passed(&self, _: LinkId) -> PassedPackets {
        PassedPackets { departed: u64::MAX, received: 0, lost: self.world.hosts[self.number].memory.lost }
    }
    fn retry_after(&self, _: LinkId) -> Option<Duration> {
        None
    }

    fn receive(
        &mut self,
        now: Instant,
        link: LinkId,
        limit: usize,
        frames: &mut HeapFrames,
        endpoint: &mut Endpoint,
    ) -> usize {
        for found in 0..limit {
            let host = self.host();
            let at = host.now;
            let Some(arrived) = host.memory.inbox.pop_front_if(|arrived| arrived.at <= at) else { return found };
            self.world.handle_frame(self.number, link, now, arrived, frames, endpoint);
        }
        limit
    }

    fn expect(&mut self, _: LinkId, _: u32, _: &ExpectedChannel) -> bool {
        true
    }
    fn expect_control(&mut self, _: LinkId, _: u32, _: SocketAddr) -> bool {
        true
    }
    fn expect_nothing(&mut self, _: u32) {}
}

impl Ports for SimulatedEnvironment<'_> {
    fn rung(&mut self) -> Option<u32> {
        self.host().memory.rung.pop_first()
    }

    /// The message is made when it is taken: only then its number is known.
    fn take(&mut self, place: u32) -> Option<OutboundMessage> {
        let channel = self.channel_at(place)?;
        let ledger = &mut self.world.channels[channel].ledger;
        let (posted, sequence) = (ledger.posted.pop_front()?, ledger.accepted);
        ledger.offered = posted;
        let blocked = ledger.blocked.take();
        let host = &mut self.world.hosts[self.number];
        let mut message = host.take_buffer(posted.bytes as usize);
        content::write(channel, sequence, &mut message);
        let (arrival, now) = (host.clock.reading(posted.arrival), host.now);
        // There is room for what the application waits with.
        if let Some(command) = blocked {
            self.world.schedule(self.number, now, command);
        }
        Some(OutboundMessage { message, arrival, waited: Duration::ZERO })
    }

    fn withheld(&self, _: Instant, _: u32, _: Instant) -> Duration {
        Duration::ZERO
    }

    fn take_returned(&mut self, place: u32, give: impl FnMut(MessageBuf)) -> bool {
        self.host().ports[place as usize].returned.drain(..).for_each(give);
        true
    }

    fn submitted(&mut self, _: Instant, channel: ChannelId, submitted: &AcceptedMessage) {
        let Some(channel) = self.channel_at(channel.index()) else { return };
        let host = &self.world.hosts[self.number];
        let ChannelRecord { plan, ledger, .. } = &mut self.world.channels[channel];
        assert_eq!(submitted.sequence, ledger.accepted, "messages are numbered as they are accepted");
        let PostedMessage { arrival, bytes } = ledger.offered;
        let (sequence, logical_arrival) = (submitted.sequence, host.clock.when(submitted.logical_arrival));
        let release = host.clock.when(submitted.release);
        ledger.accepted(&AcceptedMessage { logical_arrival, release, ..*submitted }, bytes as usize);
        let deadline = due(logical_arrival, &plan.service, bytes, host.config.platform.packet);
        let channel = ChannelHandle(channel);
        self.world.tell(Observation::Submitted { channel, sequence, arrival, logical_arrival, deadline, bytes });
    }

    fn refused(&mut self, _: Instant, channel: ChannelId, rejected: RejectedMessage, _: &SendCounters) {
        let Some(channel) = self.channel_at(channel.index()) else { return };
        let (channel, at) = (ChannelHandle(channel), self.host().now);
        self.host().give_buffer(rejected.message);
        self.world.tell(Observation::Refused { channel, at, violation: rejected.violation });
    }

    fn spent(&mut self, _: Instant, channel: ChannelId, message: MessageBuf) {
        let (number, end) = (self.number, self.host().now);
        self.world.message_made(number, channel, message, end);
    }

    fn sent(&mut self, _: ChannelId, _: &SendCounters) {}

    fn spare(&self, place: u32) -> Duration {
        self.channel_at(place).map_or(Duration::ZERO, |channel| self.world.channels[channel].plan.spare)
    }

    fn handler(&self, place: u32) -> Duration {
        let contract = |channel: usize| self.world.channels[channel].plan.service.contract();
        self.channel_at(place).and_then(contract).map_or(Duration::ZERO, Contract::handler)
    }

    fn judged(&mut self, channel: ChannelId, decision: &FinalJudgement, spare: Duration, _: &ReceiveCounters) {
        let (at, Some(channel)) = (self.host().now, self.channel_at(channel.index())) else { return };
        self.host().judged += 1;
        let world = &mut *self.world;
        world.saw([channel as u64, decision.lower.as_nanos(), at.as_nanos(), decision.verdict as u64]);
        let ledger = &mut world.channels[channel].ledger;
        ledger.over_bound += u64::from(!spare.is_zero() && decision.breaks_bound(spare));
        if let Some(problem) = ledger.judged(decision) {
            world.find(Some(channel), at, problem);
        }
    }

    /// Handlers take their time, and are done with the message.
    fn deliver(&mut self, _: Instant, delivery: Delivery, counters: &ReceiveCounters) -> Option<MessageBuf> {
        let Delivery { channel: key, delivered, evidence, beyond_bound } = delivery;
        let handler = self.handler(key.index());
        let (at, Some(channel)) = (self.host().now, self.channel_at(key.index())) else { return None };
        let world = &mut *self.world;
        let is_direct = world.whole_route(channel).count() == 2;
        let record = &mut world.channels[channel];
        let sender = is_direct.then(|| &world.hosts[record.from.0].clock);
        let judged = beyond_bound.map(|evidence| evidence.cause);
        let over_bound = judged.is_some_and(Cause::breaks_promise);
        record.ledger.over_bound += u64::from(over_bound);
        let (arrival, problem) = record.delivered(at, &delivered, evidence, &world.hosts[self.number].clock, sender);
        let (sequence, latency) = (delivered.sequence, delivered.response());
        let host = &mut world.hosts[self.number];
        let mut spent = None;
        match record.ledger.reads {
            _ if !handler.is_zero() => {
                let takes = host.drawn(handler);
                host.spend(takes);
                record.handled(&delivered, takes);
                spent = Some(delivered.message);
            }
            None => host.give_back(key, delivered.message),
            Some(each) => {
                let until = &mut record.ledger.reading_until;
                *until = (*until).max(at) + each;
                world.order += 1;
                host.memory.lent.insert((*until, world.order), (key, delivered.message));
            }
        }
        let late = evidence.map(|evidence| evidence.cause);
        if let Some(cause) = late {
            *record.ledger.watch.late.of(cause) += 1;
        }
        let handle = ChannelHandle(channel);
        world.tell(Observation::Delivered { channel: handle, sequence, completion: at, cause: late, over_bound });
        world.saw([channel as u64, sequence, latency.as_nanos(), at.as_nanos()]);
        if let Some(problem) = problem {
            world.find(Some(channel), at, problem);
        }
        if let Some(arrival) = arrival {
            world.check_delivery(channel, at, (sequence, at.since(arrival)), late, judged);
        }
        world.check_counters(channel, at, counters);
        spent
    }

    fn wake(&mut self, _: u32) {}
}

/// No time passes but what work costs, so there is nothing to hold against it.
impl Meter for SimulatedEnvironment<'_> {}

impl Environment<HeapFrames> for SimulatedEnvironment<'_> {
    type Clock = Self;
    type Meter = Self;

    fn clock(&mut self) -> &mut Self {
        self
    }
    fn meter(&mut self) -> &mut Self {
        self
    }
}

impl Control<HeapFrames> for SimulatedEnvironment<'_> {
    fn obey(&mut self, driver: &mut HostDriver, now: Instant) {
        while let Some(order) = self.host().memory.orders.pop_front() {
            order(self, driver, now);
        }
    }

    fn event(&mut self, driver: &mut HostDriver, now: Instant, event: Event) {
        let number = self.number;
        match event {
            Event::Requested(request) => {
                // A request that no host here planned is not answered; it lapses.
                let Some((channel, side)) = self.world.asked(number, &request) else { return };
                if let Side::Inward(place) = side {
                    return self.relay(driver, now, &request, (channel, place));
                }
                if let Some(refusal) = &self.world.refusal {
                    return driver.endpoint.refuse(request.id, refusal);
                }
                let early = self.host().config.receive_early;
                let incoming = self.world.channels[channel].plan.receiving(&request, early);
                if let Ok(key) = driver.accept(now, &request, incoming, self) {
                    self.host().attach(key, channel, Side::Receiver);
                    self.world.channels[channel].ledger.receiver.key = Some(key);
                }
            }
            Event::Accepted { channel: key, .. } => {
                let (channel, side) = self.host().memory.keys[&key];
                if let Side::Onward(place) = side {
                    return self.relay_accepted(driver, now, key, (channel, place));
                }
                let record = &mut self.world.channels[channel];
                record.ledger.open = true;
                let stages = record.plan.stages;
                driver.begin(now, key, stages, self);
            }
            Event::Spaced { channel: key, spacing } => {
                let host = &self.world.hosts[number];
                // It is the receiver that asks.
                if let Some(&(channel, Side::Receiver)) = host.memory.keys.get(&key) {
                    self.world.channels[channel].ledger.spaced = Some((host.now, spacing));
                }
            }
            Event::Ended { channel: key, end } => {
                let host = &self.world.hosts[number];
                let ((channel, side), at) = (host.memory.keys[&key], host.now);
                let record = &mut self.world.channels[channel];
                record.side(side).end = Some(end);
                let sender = side == Side::Sender;
                record.ledger.open &= !sender;
                let later = at + record.plan.lease;
                if sender || side == Side::Receiver {
                    let counters = driver.endpoint.receive_counters(key).unwrap_or_default();
                    let over = counters.delivered + counters.lost + counters.dropped;
                    self.world.tell(Observation::Ended { channel: ChannelHandle(channel), at, sender, over, end });
                }
                // Kept for a while, so that a repeated CLOSE is answered.
                self.world.instruct(number, later, false, move |around, driver, _| around.release(driver, key));
                if sender && matches!(end, End::PeerLost | End::RouteLost | End::NoAnswer) {
                    self.world.reopen(channel);
                }
            }
            Event::Overflow { dropped } => panic!("host {number}: {dropped} events dropped"),
        }
    }

    fn round_over(&mut self, driver: &mut HostDriver, now: Instant) {
        if self.host().restaging.is_some() && driver.endpoint.poll_restaged(now).is_some() {
            self.host().restaging = None;
        }
    }

    fn gap(&mut self, _: Duration) {}

    fn is_upcall_ready(&mut self, _: Instant) -> bool {
        let host = self.host();
        host.upcalls.as_ref().is_some_and(|thread| thread.is_ready(host.now))
    }
}
