//! The surroundings of a driver here: they do what the script says, and check what they are asked.

use std::net::SocketAddr;

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{Endpoint, ReceiveGrant, ReceiveSetup, Transmit};
use laxity_core::event::{ChannelId, Event, LinkId, PeerRequest};
use laxity_core::frames::{Frames, MessageBuf};
use laxity_core::piece::Piece;
use laxity_core::platform::Platform;
use laxity_core::receive::{ExpectedChannel, FinalJudgement, ReceiveCounters};
use laxity_core::send::{AcceptedMessage, RejectedMessage, SendCounters};
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome};
use laxity_drive::{
    Clock, Control, Delivery, Driver, Environment, IterationResult, Links, Meter, OutboundMessage, PassedPackets,
    Ports, UpcallRunner, WorkDone,
};

use super::host::{Command, FrameInTransit, Host, address};
use super::model::{ReceivedChannel, SentChannel};
use super::region::Region;
use super::{HOSTS, LARGEST, World, micros};

/// A mailbox that could not be emptied is looked at again after so long, ns.
const RETURNED_LATER: u64 = 200_000;

pub struct FuzzEnvironment<'a> {
    pub world: &'a mut World,
    pub number: usize,
    /// Allocations of this thread when the driver was last called.
    mark: u64,
}

impl<'a> FuzzEnvironment<'a> {
    pub fn new(world: &'a mut World, number: usize) -> Self {
        let mark = (world.allocations)();
        Self { world, number, mark }
    }

    pub fn host(&mut self) -> &mut Host {
        &mut self.world.hosts[self.number]
    }

    /// The driver has called, or has come back.
    pub fn left(&self) {
        assert_eq!((self.world.allocations)(), self.mark, "a driver allocates after its set-up");
    }
    fn back(&mut self) {
        self.mark = (self.world.allocations)();
    }

    /// Does something that the driver asks for.
    fn outside<R>(&mut self, what: impl FnOnce(&mut Self) -> R) -> R {
        self.left();
        let result = what(self);
        self.back();
        result
    }
    /// Asks the driver for something in between.
    fn inside<R>(&mut self, what: impl FnOnce(&mut Self) -> R) -> R {
        self.back();
        let result = what(self);
        self.left();
        result
    }

    fn effect(&mut self) {
        self.host().turn.effect = true;
    }

    fn sent_at(&self, place: u32) -> Option<usize> {
        let number = self.number;
        self.world.sent.iter().position(|sent| sent.host == number && !sent.released && sent.id.index() == place)
    }
    fn received_at(&self, place: u32) -> Option<usize> {
        let is_there = |r: &ReceivedChannel| r.host == self.number && !r.released && r.id.index() == place;
        self.world.received.iter().position(is_there)
    }

    /// The turn has begun a round: every mailbox that had rung was looked at, and what had its time is done.
    pub fn check_inputs(&mut self) {
        let host = &mut self.world.hosts[self.number];
        let Some(at) = host.turn.obeyed.filter(|_| !std::mem::replace(&mut host.turn.checked, true)) else { return };
        assert!(host.turn.unheard.is_empty(), "mailboxes that have rung are not looked at: {:?}", host.turn.unheard);
        let host = &self.world.hosts[self.number];
        for &place in host.turn.heard.iter().filter(|place| !host.rung.contains(place)) {
            let Some(sent) = self.sent_at(place).map(|sent| &self.world.sent[sent]) else { continue };
            assert!(!sent.begun || sent.is_mailbox_empty() || sent.held().is_some(), "a message stays in its mailbox");
        }
        for sent in self.world.sent.iter().filter(|sent| sent.host == self.number && !sent.released) {
            let room = sent.has_room_at();
            assert!(room.is_none_or(|room| room > at), "a message is held at {at}, its contract has room: {room:?}");
        }
        for received in self.world.received.iter().filter(|r| r.host == self.number && !r.released) {
            let due = received.was_busy.map(|since| since + RETURNED_LATER);
            assert!(due.is_none_or(|due| due > at), "buffers that are returned are not looked at again");
        }
    }

    /// The longest sleep that messages waiting in mailboxes allow.
    pub fn longest_sleep(&self) -> Option<u64> {
        let sent = self.world.sent.iter().filter(|sent| sent.host == self.number && !sent.released);
        let received = self.world.received.iter().filter(|r| r.host == self.number && !r.released);
        let returned = received.filter_map(|r| Some(r.was_busy? + RETURNED_LATER));
        sent.filter_map(|sent| sent.has_room_at()).chain(returned).min()
    }

    /// A packet is on its way.
    fn carry(&mut self, link: usize, peer: SocketAddr, bytes: Vec<u8>) {
        let host = &mut self.world.hosts[self.number];
        let (from, source) = (address(self.number), &mut host.links[link]);
        if source.loses > 0 {
            source.loses -= 1;
            return;
        }
        let copies = if source.doubles > 0 { 2 } else { 1 };
        source.doubles = source.doubles.saturating_sub(1);
        let at = host.now + source.delay;
        // Answers to unknown peers go nowhere.
        let Some(to) = (0..HOSTS).find(|host| address(*host) == peer) else { return };
        let links = self.world.hosts[to].links.len();
        let inbox = &mut self.world.hosts[to].links[link % links].inbox;
        for _ in 0..copies {
            let place = inbox.partition_point(|flying| flying.at <= at);
            inbox.insert(place, FrameInTransit { at, from, bytes: bytes.clone() });
        }
    }
}

impl Clock for FuzzEnvironment<'_> {
    fn now(&mut self) -> Instant {
        let host = self.host();
        host.now += host.costs.tick;
        Instant::from_nanos(host.now)
    }

    fn after(&mut self, work: &WorkDone) -> Instant {
        self.outside(|around| {
            if let Some(channel) = work.channel {
                around.check_inputs();
                around.stepped(work, channel);
            }
            // An application that runs meanwhile.
            if let Some((channel, bytes)) = around.world.meanwhile.pop_front() {
                around.world.put(channel, 0, bytes);
                around.effect();
            }
            let host = around.host();
            let cost = match (work.piece, work.channel) {
                (piece, Some(_)) => host.platform.step(piece, work.switched),
                (Piece::Demultiplex, _) => host.platform.demultiplex * work.count as u64,
                (Piece::Link, _) => host.platform.link_cost * work.count as u64,
                (Piece::Submit, _) => Duration::from_nanos(500) * work.count as u64,
                _ => Duration::from_nanos(300),
            };
            let (stall, evidence) = std::mem::take(&mut host.costs.stall);
            host.evidence += evidence;
            host.now += cost.as_nanos() * host.costs.scale / 8 + stall;
            Instant::from_nanos(host.now)
        })
    }

    fn delayed(&mut self, _: Instant, _: Instant) -> Duration {
        Duration::ZERO
    }

    fn stolen(&mut self, _: Instant, _: Duration) -> Duration {
        let host = self.host();
        let evidence = std::mem::take(&mut host.evidence);
        host.given += evidence;
        Duration::from_nanos(evidence)
    }
}

impl FuzzEnvironment<'_> {
    fn stepped(&mut self, work: &WorkDone, channel: ChannelId) {
        assert_eq!(work.count, 1);
        if work.piece == Piece::First {
            let sent = self.sent_at(channel.index()).expect("who makes packets sends");
            self.world.sent[sent].began_message();
        }
        let host = self.host();
        assert!(!std::mem::replace(&mut host.turn.stepped, true), "two steps in a turn");
        host.turn.effect = true;
        let begins = host.turn.obeyed.is_some();
        assert!(begins || !work.switched, "the handler changes where no inputs were taken");
        assert!(begins || !host.preempted, "inputs are not taken at a preemption point");
        host.unlooked += 1;
        host.unobeyed = if begins { 1 } else { host.unobeyed + 1 };
        assert!(host.unlooked <= host.platform.quantum, "no look at the links for {} steps", host.unlooked);
        assert!(host.unobeyed <= host.platform.quantum, "no inputs for {} steps", host.unobeyed);
        for link in &host.links {
            link.unfed.set(link.unfed.get() + 1);
            let most = if link.is_blocked { 1 } else { host.platform.transmit_batch };
            assert!(link.unfed.get() <= most, "packets wait for {} steps", link.unfed.get());
        }
        host.preempted = false;
    }
}

impl Links<Region> for FuzzEnvironment<'_> {
    fn links(&self) -> LinkId {
        self.world.hosts[self.number].links.len() as LinkId
    }

    fn room(&self, link: LinkId) -> usize {
        let host = &self.world.hosts[self.number];
        let link = &host.links[usize::from(link)];
        // The driver that asks is about to feed it.
        link.unfed.set(0);
        link.capacity.saturating_sub(link.buffered.len())
    }

    fn transmit(&mut self, link: LinkId, packet: Transmit, frames: &mut Region) {
        self.outside(|around| {
            around.effect();
            assert!(packet.len <= frames.packet_capacity());
            let link = &mut around.host().links[usize::from(link)];
            assert!(link.buffered.len() < link.capacity, "a packet for which there is no room");
            link.buffered.push_back((packet.frame, packet.len, packet.peer));
        });
    }

    fn flush(&mut self, link: LinkId, frames: &mut Region) {
        self.outside(|around| {
            let number = usize::from(link);
            let link = &mut around.host().links[number];
            let taken = link.takes.min(link.buffered.len());
            for _ in 0..taken {
                let link = &mut around.host().links[number];
                let (frame, len, peer) = link.buffered.pop_front().expect("as many as there are");
                let bytes = frames.packet(&frame)[..len].to_vec();
                frames.free(frame);
                around.carry(number, peer, bytes);
                around.effect();
            }
            let link = &mut around.host().links[number];
            link.is_blocked = !link.buffered.is_empty();
        });
    }

    fn is_blocked(&self, link: LinkId) -> bool {
        self.world.hosts[self.number].links[usize::from(link)].is_blocked
    }

    fn buffered(&self, _: LinkId) -> usize {
        0
    }

    fn rewrite(&mut self, _: LinkId, _: &mut Region, _: impl FnMut(&mut [u8])) {}

    fn passed(&self, _: LinkId) -> PassedPackets {
        PassedPackets { departed: u64::MAX, ..PassedPackets::default() }
    }

    fn retry_after(&self, link: LinkId) -> Option<Duration> {
        let link = &self.world.hosts[self.number].links[usize::from(link)];
        link.retry.filter(|_| link.is_blocked)
    }

    fn receive(
        &mut self,
        now: Instant,
        link: LinkId,
        limit: usize,
        frames: &mut Region,
        endpoint: &mut Endpoint,
    ) -> usize {
        self.left();
        let host = self.host();
        let Platform { receive_batch, quantum, .. } = host.platform;
        let most = if endpoint.has_promises() { receive_batch } else { receive_batch.min(quantum) };
        assert_eq!(limit, most as usize);
        assert_eq!(usize::from(link), host.turn.looked, "each link is looked at once");
        host.turn.looked += 1;
        if host.turn.looked == host.links.len() {
            (host.unlooked, host.must_look) = (0, false);
        }
        let mut found = 0;
        while found < limit {
            let host = self.host();
            let at = host.now;
            let Some(flying) = host.links[usize::from(link)].inbox.pop_front_if(|flying| flying.at <= at) else {
                break;
            };
            let frame = frames.take().expect("frames beyond the quotas and what is staged are free");
            let len = flying.bytes.len().min(frames.packet_capacity());
            frames.packet_mut(&frame)[..len].copy_from_slice(&flying.bytes[..len]);
            self.inside(|_| endpoint.handle_frame(now, link, flying.from, frame, len, frames));
            self.effect();
            found += 1;
        }
        if let Some((place, packets)) = self.host().policed.take() {
            self.inside(|_| endpoint.handle_policed(now, place, packets));
        }
        self.back();
        found
    }

    fn expect(&mut self, _: LinkId, place: u32, expected: &ExpectedChannel) -> bool {
        assert!(self.sent_at(place).is_none() && self.received_at(place).is_none(), "two channels at {place}");
        let _ = expected;
        self.is_expected()
    }
    fn expect_control(&mut self, _: LinkId, place: u32, _: SocketAddr) -> bool {
        assert!(self.sent_at(place).is_none() && self.received_at(place).is_none(), "two channels at {place}");
        self.is_expected()
    }
    fn expect_nothing(&mut self, place: u32) {
        assert!(self.sent_at(place).is_some() || self.received_at(place).is_some(), "no channel is at {place}");
        self.host().owed.remove(&place);
    }
}

impl FuzzEnvironment<'_> {
    fn is_expected(&mut self) -> bool {
        let host = self.host();
        let refuses = host.refuses > 0;
        host.refuses = host.refuses.saturating_sub(1);
        !refuses
    }
}

impl Ports for FuzzEnvironment<'_> {
    fn rung(&mut self) -> Option<u32> {
        self.outside(|around| {
            let turn = &around.host().turn;
            assert!(turn.obeyed.is_some() && !turn.stepped, "mailboxes are looked at as a round begins");
            let place = around.host().rung.pop_front()?;
            let turn = &mut around.host().turn;
            turn.unheard.retain(|other| *other != place);
            turn.heard.push(place);
            turn.effect = true;
            Some(place)
        })
    }

    fn take(&mut self, place: u32) -> Option<OutboundMessage> {
        self.outside(|around| {
            let sent = around.sent_at(place)?;
            let outbound = around.world.sent[sent].take()?;
            around.effect();
            Some(outbound)
        })
    }

    fn withheld(&self, _: Instant, _: u32, _: Instant) -> Duration {
        Duration::ZERO
    }

    fn take_returned(&mut self, place: u32, mut give: impl FnMut(MessageBuf)) -> bool {
        self.left();
        let now = self.host().now;
        let Some(received) = self.received_at(place) else { return true };
        let received = &mut self.world.received[received];
        if received.busy > 0 {
            received.busy -= 1;
            received.was_busy = Some(now);
            return false;
        }
        received.was_busy = None;
        received.returned.drain(..).for_each(&mut give);
        self.left();
        true
    }

    fn submitted(&mut self, now: Instant, channel: ChannelId, submitted: &AcceptedMessage) {
        self.outside(|around| {
            let sent = around.sent_at(channel.index()).expect("who submits sends");
            let sent = &mut around.world.sent[sent];
            assert!(sent.id == channel && sent.begun);
            sent.submitted(now, submitted);
        });
    }

    fn refused(&mut self, _: Instant, channel: ChannelId, rejected: RejectedMessage, _: &SendCounters) {
        self.outside(|around| {
            let number = around.sent_at(channel.index()).expect("who submits sends");
            assert!(!rejected.would_block);
            around.world.sent[number].refused(number, &rejected.message);
        });
    }

    fn spent(&mut self, _: Instant, channel: ChannelId, message: MessageBuf) {
        self.outside(|around| {
            let number = around.sent_at(channel.index()).expect("who made packets sends");
            around.world.sent[number].made(number, &message);
            around.host().owed.insert(channel.index());
        });
    }

    fn sent(&mut self, channel: ChannelId, counters: &SendCounters) {
        let sent = self.sent_at(channel.index()).expect("a sender");
        assert!(counters.sent <= self.world.sent[sent].accepted.len() as u64);
    }

    fn spare(&self, _: u32) -> Duration {
        micros(100)
    }

    fn handler(&self, place: u32) -> Duration {
        // Some have one.
        if place % 3 == 2 { micros(30) } else { Duration::ZERO }
    }

    fn judged(&mut self, _: ChannelId, decision: &FinalJudgement, _: Duration, _: &ReceiveCounters) {
        assert!(decision.upper.is_none_or(|upper| decision.lower <= upper), "{decision:?}");
    }

    fn deliver(&mut self, now: Instant, delivery: Delivery, counters: &ReceiveCounters) -> Option<MessageBuf> {
        self.outside(|around| {
            let Delivery { channel, delivered, .. } = delivery;
            assert_eq!(delivered.completion, now);
            let place = channel.index();
            let number = around.received_at(place).expect("a receiver");
            let is_forged = around.world.is_forged;
            let received = &mut around.world.received[number];
            assert!(delivered.sequence >= received.next, "out of order");
            assert_eq!(received.id, channel);
            received.next = delivered.sequence + 1;
            if let Some(sender) = received.sender.filter(|_| !is_forged) {
                around.world.sent[sender].check_delivered(sender, delivered.sequence, &delivered.message);
            }
            // A handler is done with every other message.
            let is_done = !around.handler(place).is_zero() && delivered.sequence % 2 == 0;
            let received = &mut around.world.received[number];
            let spent = if is_done {
                Some(delivered.message)
            } else {
                received.lent.push(delivered.message);
                None
            };
            assert!(counters.delivered >= 1);
            let host = around.host();
            assert!(host.turn.stepped, "a message is delivered though nothing was done");
            if spent.is_none() {
                host.owed.insert(place);
            }
            spent
        })
    }

    fn wake(&mut self, place: u32) {
        self.outside(|around| {
            assert!(around.host().owed.remove(&place), "{place} is woken for nothing");
        });
    }
}

impl Meter for FuzzEnvironment<'_> {
    fn looked(&mut self, count: usize, _: Instant) {
        let host = self.host();
        assert_eq!(host.turn.looked, host.links.len(), "a look is one at every link");
        assert!(count <= host.links.len() * host.platform.receive_batch as usize);
        host.turn.found += count;
    }
    fn preemption_point(&mut self) {
        self.host().preempted = true;
    }
}

impl Environment<Region> for FuzzEnvironment<'_> {
    type Clock = Self;
    type Meter = Self;

    fn clock(&mut self) -> &mut Self {
        self
    }
    fn meter(&mut self) -> &mut Self {
        self
    }
}

impl Control<Region> for FuzzEnvironment<'_> {
    fn obey(&mut self, driver: &mut Driver<Region>, now: Instant) {
        self.outside(|around| {
            let turn = &mut around.host().turn;
            assert!(turn.obeyed.replace(now.as_nanos()).is_none(), "two rounds in a turn");
            while let Some(command) = around.host().commands.pop_front() {
                around.effect();
                around.order(driver, now, command);
            }
        });
    }

    fn event(&mut self, driver: &mut Driver<Region>, now: Instant, event: Event) {
        self.outside(|around| {
            around.effect();
            match event {
                Event::Requested(request) if around.host().is_prompt => around.answer(driver, now, request, 0),
                Event::Requested(request) => around.host().requests.push(request),
                Event::Accepted { channel, .. } => {
                    let known = around.world.sent.iter().any(|sent| sent.host == around.number && sent.id == channel);
                    assert!(known, "a channel that was opened");
                    if around.host().is_prompt {
                        let stages = SendingStages { processor: micros(300), link: micros(300) };
                        around.order(driver, now, Command::Begin { channel, stages });
                    }
                }
                Event::Ended { channel, .. } => {
                    if around.host().releases {
                        around.order(driver, now, Command::Release(channel));
                    }
                }
                Event::Spaced { .. } | Event::Overflow { .. } => {}
            }
        });
    }

    fn round_over(&mut self, _: &mut Driver<Region>, _: Instant) {}

    fn gap(&mut self, taken: Duration) {
        let host = self.host();
        host.told += taken.as_nanos();
        assert!(!taken.is_zero());
        assert!(host.told <= host.given, "more was taken than there is evidence of");
    }

    fn is_upcall_ready(&mut self, _: Instant) -> bool {
        false
    }
}

impl UpcallRunner<Region> for FuzzEnvironment<'_> {
    fn iterate(&mut self, now: Instant, upcall: &PickedRun) -> IterationResult {
        IterationResult { end: now, units: upcall.left, outcome: RunOutcome::Done }
    }
    fn iterated(&mut self, _: &mut Driver<Region>, _: Instant, _: &PickedRun, _: Option<CompletedRun>) {}
}

impl FuzzEnvironment<'_> {
    fn answer(&mut self, driver: &mut Driver<Region>, now: Instant, request: PeerRequest, choice: u8) {
        let command = answer_to(request, choice);
        self.order(driver, now, command);
    }

    /// Does a command, in the middle of a turn or between two.
    pub fn order(&mut self, driver: &mut Driver<Region>, now: Instant, command: Command) {
        let number = self.number;
        match command {
            Command::Open { outgoing, sent } => {
                let opened = self.inside(|around| driver.open(now, outgoing, around));
                if let Ok(id) = opened {
                    self.host().channels.push(id);
                    self.world.sent.push(SentChannel::new(number, id, sent));
                }
            }
            Command::Accept { request, incoming } => {
                let accepted = self.inside(|around| driver.accept(now, &request, incoming, around));
                if let Ok(id) = accepted {
                    self.host().channels.push(id);
                    self.world.receive(number, id, &request);
                }
            }
            Command::Refuse { request, refusal } => driver.endpoint.refuse(request.id, &refusal),
            Command::Begin { channel, stages } => {
                let sent = self.world.sent.iter_mut().find(|s| s.host == number && s.id == channel && !s.released);
                sent.into_iter().for_each(|sent| sent.begun = true);
                self.inside(|around| driver.begin(now, channel, stages, around));
            }
            Command::Close(channel) => {
                let sent = self.world.sent.iter_mut().find(|s| s.host == number && s.id == channel && !s.released);
                sent.into_iter().for_each(|sent| sent.closing = true);
                self.inside(|around| driver.close(now, channel, around));
            }
            Command::Release(channel) => self.release(driver, channel),
            Command::Stop => {
                let sent = self.world.sent.iter_mut().filter(|sent| sent.host == number && !sent.released);
                sent.for_each(|sent| sent.closing = true);
                self.host().stops_at.get_or_insert(now.as_nanos() + 1_000_000_000);
                self.inside(|around| driver.stop(now, around));
            }
        }
    }

    pub fn release(&mut self, driver: &mut Driver<Region>, channel: ChannelId) {
        let number = self.number;
        let mut back = Vec::with_capacity(64);
        let released = self.inside(|around| driver.release(channel, |message| back.push(message), around));
        let sent = self.world.sent.iter().position(|s| s.host == number && s.id == channel && !s.released);
        let received = self.world.received.iter().position(|r| r.host == number && r.id == channel && !r.released);
        assert_eq!(released.is_some(), sent.is_some() || received.is_some(), "what is there can be released, once");
        if let Some(sent) = sent {
            back.iter().for_each(|message| self.world.sent[sent].given_back(sent, message));
            self.world.sent[sent].is_released();
        } else {
            assert!(back.is_empty(), "messages of no channel");
        }
        if let Some(received) = received {
            self.world.received[received].released = true;
        }
    }
}

/// The control plane's answer to a request.
pub fn answer_to(request: PeerRequest, choice: u8) -> Command {
    if choice & 7 == 7 || u64::from(request.terms.service.max_message()) > LARGEST || request.terms.oversize > 4 {
        return Command::Refuse { request, refusal: Refusal::new(Code::Declined, Stage::Route) };
    }
    let reception = ReceiveGrant {
        stage: micros(1_000),
        input_delay: micros(100),
        upstream: micros(2_000),
        transit: micros(2_000),
        work_conserving: choice & 8 == 0,
        priority: 3,
        messages: 1 + u32::from(choice >> 4),
        packets: 8,
    };
    Command::Accept { request, incoming: ReceiveSetup::new(&request, reception) }
}

/// True if the driver has a message of any of this host's channels that it has not said anything about.
pub fn holds_any(world: &World, number: usize) -> bool {
    let mut own = world.sent.iter().filter(|sent| sent.host == number && !sent.released);
    own.any(|sent| sent.held().is_some())
}
