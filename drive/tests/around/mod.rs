//! A driver with surroundings that are set by hand and write down what they are asked.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

#[path = "../../../core/tests/common/config.rs"]
mod config;

use std::collections::VecDeque;
use std::net::SocketAddr;

use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Channel, Config, Destination, Endpoint, ReceiveGrant, ReceiveSetup, SendSetup, Transmit};
use laxity_core::event::{ChannelId, Event, LinkId, Name};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::platform::Platform;
use laxity_core::receive::{ExpectedChannel, FinalJudgement, ReceiveCounters};
use laxity_core::send::{AcceptedMessage, RejectedMessage, SendConfig, SendCounters};
use laxity_core::signal::clock_sign;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{CompletedRun, PickedRun, RunOutcome};
use laxity_core::wire::{
    Accept, Control as Frame, ControlType, DATA_HEADER_BYTES, DataHeader, MAX_CONTROL_BYTES, Open,
};
use laxity_drive::{
    Clock, Control, Delivery, Driver, Environment, IterationResult, Links, Meter, NextTurn, OutboundMessage,
    PassedPackets, Ports, Sleep, UpcallRunner, WorkDone,
};

/// Payload bytes of a packet.
pub const PACKET: usize = 100;
pub const LINKS: usize = 2;
pub const CHANNELS: usize = 40;

pub fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The beginning of each test, and so long after it.
pub fn start() -> Instant {
    Instant::from_nanos(100_000_000_000)
}
pub fn at(after_start: u64) -> Instant {
    start() + micros(after_start)
}

pub fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 5709))
}

/// The requests of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverCall {
    /// A look at a link.
    Look(LinkId),
    /// A step of the channel at a place.
    Step(u32),
    /// A packet was buffered for a link.
    Stage(LinkId),
    /// An iteration of an upcall on the thread, with so many units of its run done before.
    Iteration(u32),
    Flush(LinkId),
    /// A message of the channel at a place was accepted, with this logical arrival.
    Submit(u32, Instant),
    Refuse(u32),
    Deliver(u32),
    Wake(u32),
    /// Buffers were asked for.
    Return(u32),
    Gap(Duration),
}

pub struct TestEnvironment {
    pub now: Instant,
    /// The time that a step takes; everything else takes none.
    pub step: Duration,
    /// The time that the next work takes beside that, and how much of it the platform is known to have taken.
    pub stall: Duration,
    pub evidence: Duration,
    /// The time that it waited for a processor, and an application after its stamp, when a message comes late.
    pub delay: Duration,
    pub withheld: Duration,
    pub did: Vec<DriverCall>,
    pub mailboxes: Vec<VecDeque<OutboundMessage>>,
    pub rung: VecDeque<u32>,
    pub inboxes: [VecDeque<Vec<u8>>; LINKS],
    /// The packets that each link was given and has not flushed, and those that it has.
    pub buffered: [Vec<Vec<u8>>; LINKS],
    pub flushed: [Vec<Vec<u8>>; LINKS],
    /// Links whose network takes nothing.
    pub full: [bool; LINKS],
    /// Links whose last flush left something.
    is_blocked: [bool; LINKS],
    pub retry: Option<Duration>,
    /// Buffers are unavailable without waiting.
    pub is_busy: bool,
    /// But for acceptances.
    pub events: Vec<Event>,
    /// Tells it to stop as the next round begins.
    pub stop: bool,
    /// An upcall of the host is ready.
    pub is_upcall_ready: bool,
    /// The time of an iteration of an upcall on the driver's thread, and runs that were done.
    pub iteration: Duration,
    pub completed: u64,
    /// The time that the handler of every message takes; zero if channels have none.
    pub handler: Duration,
}

/// A driver and what surrounds it.
pub struct Host {
    pub driver: Driver<HeapFrames>,
    pub around: TestEnvironment,
    opened: u64,
}

/// P = 4, K = 2, k = 1.
pub fn platform() -> Platform {
    Platform {
        packet: PACKET as u32,
        quantum: 4,
        receive_batch: 2,
        transmit_batch: 1,
        wake_up: micros(50),
        ..Platform::assumed_host()
    }
}

impl Host {
    pub fn new(platform: Platform, handover: Duration) -> Self {
        Self::with_throttle(platform, handover, None)
    }

    pub fn with_throttle(platform: Platform, handover: Duration, throttle: Option<(Duration, Duration)>) -> Self {
        let endpoint = Endpoint::new(Config {
            channels: CHANNELS,
            frames: 30 * CHANNELS,
            upcalls: 4,
            best_effort_frames: 40,
            quantum: platform.quantum,
            links: vec![config::unlimited(); LINKS],
            handover,
            ..config::config(7, 9, PACKET as u32)
        });
        let frames = HeapFrames::new(30 * CHANNELS + 100, (DATA_HEADER_BYTES + PACKET).max(MAX_CONTROL_BYTES));
        let mut driver = Driver::new(start(), endpoint, frames, platform, Duration::from_micros(100));
        driver.endpoint.listen(Name::new("here").unwrap());
        driver.start(start(), throttle);
        let around = TestEnvironment {
            now: start(),
            step: Duration::ZERO,
            stall: Duration::ZERO,
            evidence: Duration::ZERO,
            delay: Duration::ZERO,
            withheld: Duration::ZERO,
            did: Vec::new(),
            mailboxes: (0..CHANNELS).map(|_| VecDeque::new()).collect(),
            rung: VecDeque::new(),
            inboxes: Default::default(),
            buffered: Default::default(),
            flushed: Default::default(),
            full: [false; LINKS],
            is_blocked: [false; LINKS],
            retry: None,
            is_busy: false,
            events: Vec::new(),
            stop: false,
            is_upcall_ready: false,
            iteration: Duration::ZERO,
            handler: Duration::ZERO,
            completed: 0,
        };
        Self { driver, around, opened: 0 }
    }

    pub fn turn(&mut self) -> NextTurn {
        self.driver.turn(&mut self.around)
    }

    /// The requests of a turn.
    pub fn did_in_turn(&mut self) -> Vec<DriverCall> {
        self.around.did.clear();
        self.turn();
        std::mem::take(&mut self.around.did)
    }

    /// Turns until it sleeps.
    pub fn rest(&mut self) -> Sleep {
        for _ in 0..1000 {
            if let NextTurn::Sleep(sleep) = self.turn()
                && sleep.until.is_none_or(|until| until > self.around.now)
            {
                return sleep;
            }
        }
        panic!("it does not sleep");
    }

    /// It sleeps and is woken at `now`.
    pub fn wake_at(&mut self, now: Instant, due: Option<Instant>) {
        self.around.now = now;
        self.driver.woke(now, due, false, &mut self.around);
    }

    /// A sending channel that waits for its receiver's answer.
    pub fn open(&mut self, link: LinkId, service: Service, overload: Overload, messages: u32) -> ChannelId {
        let config = SendConfig { service, overload, priority: 0, packet: PACKET as u32, work_conserving: false };
        let to = Destination { link, peer: peer(), name: Name::new("there").unwrap() };
        let outgoing = SendSetup::new(to, config, micros(500), Duration::from_secs(2), messages, 20);
        self.driver.open(self.around.now, outgoing, &mut self.around).expect("there is room")
    }

    /// The receiver's answer to the last OPEN.
    pub fn is_accepted(&mut self, link: LinkId) {
        self.rest();
        let opens = self.around.flushed[usize::from(link)].iter().rev();
        let mut tokens = opens.filter_map(|frame| match Frame::parse(frame) {
            Ok((token, Frame::Open(_))) => Some(token),
            _ => None,
        });
        let token = tokens.next().expect("OPEN has left");
        let (receive, lease) = (micros(500), Duration::from_secs(2));
        let clock = clock_sign(7, self.around.now, token, ControlType::Accept);
        let accept =
            Accept { channel: 5, key: 6, receive, packet: PACKET as u16, lease, clock, spacing: Duration::ZERO };
        self.control_arrives(link, token, &Frame::Accept(accept));
        self.rest();
    }

    /// A sending channel that is open.
    pub fn sender(&mut self, link: LinkId, service: Service, overload: Overload, messages: u32) -> ChannelId {
        let channel = self.open(link, service, overload, messages);
        self.is_accepted(link);
        self.begin(channel);
        channel
    }

    pub fn begin(&mut self, channel: ChannelId) {
        self.begin_by(channel, micros(500));
    }
    fn begin_by(&mut self, channel: ChannelId, processor: Duration) {
        let stages = SendingStages { processor, link: micros(500) };
        self.driver.begin(self.around.now, channel, stages, &mut self.around);
    }

    /// As [`Self::sender`], with this deadline of its stage at the processor.
    pub fn sender_by(&mut self, link: LinkId, service: Service, processor: Duration) -> ChannelId {
        let channel = self.open(link, service, Overload::Block, 8);
        self.is_accepted(link);
        self.begin_by(channel, processor);
        channel
    }

    /// A receiving channel, and the key that its packets carry.
    pub fn receiver(&mut self, link: LinkId, service: Service) -> (ChannelId, u64) {
        self.opened += 1;
        let (upstream, lease) = (micros(500), Duration::from_secs(2));
        let packet = PACKET as u16;
        let clock = clock_sign(7, self.around.now, self.opened, ControlType::Open);
        let open = Open {
            name: "here",
            traffic: service.into(),
            packet,
            upstream,
            lease,
            clock,
            oversize: 1,
            pace: laxity_core::event::SenderPace::default(),
        };
        self.control_arrives(link, self.opened, &Frame::Open(open));
        self.rest();
        let Some(Event::Requested(request)) = self.around.events.pop() else { panic!("no request") };
        let reception = ReceiveGrant {
            stage: micros(1000),
            input_delay: micros(0),
            upstream,
            transit: upstream,
            work_conserving: true,
            priority: 0,
            messages: 16,
            packets: 40,
        };
        let incoming = ReceiveSetup::new(&request, reception);
        let channel = self.driver.accept(self.around.now, &request, incoming, &mut self.around).expect("there is room");
        self.rest();
        let accepts = self.around.flushed[usize::from(link)].iter().rev();
        let mut keys = accepts.filter_map(|frame| match Frame::parse(frame) {
            Ok((_, Frame::Accept(accept))) => Some(accept.key),
            _ => None,
        });
        (channel, keys.next().expect("ACCEPT has left"))
    }

    pub fn control_arrives(&mut self, link: LinkId, token: u64, control: &Frame<'_>) {
        let mut frame = [0; MAX_CONTROL_BYTES];
        let len = control.write(token, &mut frame).unwrap();
        self.around.inboxes[usize::from(link)].push_back(frame[..len].to_vec());
    }

    /// A message of one packet arrives.
    pub fn message_arrives(&mut self, link: LinkId, (channel, key): (ChannelId, u64), sequence: u64) {
        let header = DataHeader {
            channel: channel.index(),
            key,
            message_bytes: PACKET as u32,
            sequence,
            logical_arrival: self.around.now,
            index: 0,
            payload: PACKET as u16,
            ..DataHeader::default()
        };
        let mut frame = vec![1; DATA_HEADER_BYTES + PACKET];
        header.write(&mut frame).unwrap();
        self.around.inboxes[usize::from(link)].push_back(frame);
    }

    /// The application sends a message of so many packets, stamped `arrival`.
    pub fn send_at(&mut self, channel: ChannelId, packets: usize, arrival: Instant) {
        let mut message = MessageBuf::with_capacity(packets * PACKET);
        message.set_len(packets * PACKET);
        let place = channel.index();
        self.around.mailboxes[place as usize].push_back(OutboundMessage { message, arrival, waited: Duration::ZERO });
        self.around.ring(place);
    }
    pub fn send(&mut self, channel: ChannelId, packets: usize) {
        self.send_at(channel, packets, self.around.now);
    }

    pub fn release(&mut self, channel: ChannelId) -> (Option<Box<Channel>>, usize) {
        let mut spent = 0;
        let released = self.driver.release(channel, |_| spent += 1, &mut self.around);
        (released, spent)
    }
}

/// `burst` messages of ten packets at most every `interval` µs, within 20 ms.
pub fn real_time(interval: u64, burst: u64) -> Service {
    let contract = Contract::new(10 * PACKET as u64, 1, micros(interval), burst, micros(20_000));
    Service::RealTime(contract.unwrap())
}
pub fn best_effort() -> Service {
    Service::best_effort(10 * PACKET as u64, 8).unwrap()
}

impl TestEnvironment {
    pub fn ring(&mut self, place: u32) {
        if !self.rung.contains(&place) {
            self.rung.push_back(place);
        }
    }
    /// The number of times that the driver did this since `did` was emptied.
    pub fn count(&self, what: DriverCall) -> usize {
        self.did.iter().filter(|did| **did == what).count()
    }
    /// The logical arrivals of messages that were accepted since then.
    pub fn logical_arrivals(&self) -> Vec<Instant> {
        self.did
            .iter()
            .filter_map(|did| if let DriverCall::Submit(_, arrival) = did { Some(*arrival) } else { None })
            .collect()
    }
}

impl Clock for TestEnvironment {
    fn now(&mut self) -> Instant {
        self.now
    }
    fn after(&mut self, work: &WorkDone) -> Instant {
        if let Some(channel) = work.channel {
            self.did.push(DriverCall::Step(channel.index()));
            self.now += self.step;
        }
        self.now += std::mem::take(&mut self.stall);
        self.now
    }
    fn delayed(&mut self, _: Instant, _: Instant) -> Duration {
        std::mem::take(&mut self.delay)
    }

    fn stolen(&mut self, _: Instant, _: Duration) -> Duration {
        std::mem::take(&mut self.evidence)
    }
}

impl Links<HeapFrames> for TestEnvironment {
    fn links(&self) -> LinkId {
        LINKS as LinkId
    }
    fn room(&self, link: LinkId) -> usize {
        16 - self.buffered[usize::from(link)].len()
    }
    fn transmit(&mut self, link: LinkId, packet: Transmit, frames: &mut HeapFrames) {
        self.did.push(DriverCall::Stage(link));
        self.buffered[usize::from(link)].push(frames.packet(&packet.frame)[..packet.len].to_vec());
        frames.free(packet.frame);
    }
    fn flush(&mut self, link: LinkId, _: &mut HeapFrames) {
        self.did.push(DriverCall::Flush(link));
        let link = usize::from(link);
        if !self.full[link] {
            let buffered = std::mem::take(&mut self.buffered[link]);
            self.flushed[link].extend(buffered);
        }
        self.is_blocked[link] = !self.buffered[link].is_empty();
    }
    fn is_blocked(&self, link: LinkId) -> bool {
        self.is_blocked[usize::from(link)]
    }
    fn buffered(&self, _: LinkId) -> usize {
        0
    }
    fn rewrite(&mut self, _: LinkId, _: &mut HeapFrames, _: impl FnMut(&mut [u8])) {}
    fn passed(&self, _: LinkId) -> PassedPackets {
        PassedPackets { departed: u64::MAX, ..PassedPackets::default() }
    }
    fn retry_after(&self, link: LinkId) -> Option<Duration> {
        self.retry.filter(|_| self.is_blocked(link))
    }
    fn receive(
        &mut self,
        now: Instant,
        link: LinkId,
        limit: usize,
        frames: &mut HeapFrames,
        endpoint: &mut Endpoint,
    ) -> usize {
        self.did.push(DriverCall::Look(link));
        let inbox = &mut self.inboxes[usize::from(link)];
        let count = inbox.len().min(limit);
        for bytes in inbox.drain(..count) {
            let frame = frames.take().expect("a free frame");
            frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(&bytes);
            endpoint.handle_frame(now, link, peer(), frame, bytes.len(), frames);
        }
        count
    }
    fn expect(&mut self, _: LinkId, _: u32, _: &ExpectedChannel) -> bool {
        true
    }
    fn expect_control(&mut self, _: LinkId, _: u32, _: SocketAddr) -> bool {
        true
    }
    fn expect_nothing(&mut self, _: u32) {}
}

impl Ports for TestEnvironment {
    fn rung(&mut self) -> Option<u32> {
        self.rung.pop_front()
    }
    fn take(&mut self, place: u32) -> Option<OutboundMessage> {
        self.mailboxes[place as usize].pop_front()
    }
    fn withheld(&self, _: Instant, _: u32, _: Instant) -> Duration {
        self.withheld
    }

    fn take_returned(&mut self, place: u32, _: impl FnMut(MessageBuf)) -> bool {
        self.did.push(DriverCall::Return(place));
        !self.is_busy
    }
    fn submitted(&mut self, _: Instant, channel: ChannelId, submitted: &AcceptedMessage) {
        self.did.push(DriverCall::Submit(channel.index(), submitted.logical_arrival));
    }
    fn refused(&mut self, _: Instant, channel: ChannelId, _: RejectedMessage, _: &SendCounters) {
        self.did.push(DriverCall::Refuse(channel.index()));
    }
    fn spent(&mut self, _: Instant, _: ChannelId, _: MessageBuf) {}
    fn sent(&mut self, _: ChannelId, _: &SendCounters) {}
    fn spare(&self, _: u32) -> Duration {
        Duration::ZERO
    }
    fn handler(&self, _: u32) -> Duration {
        self.handler
    }
    fn deliver(&mut self, _: Instant, delivery: Delivery, _: &ReceiveCounters) -> Option<MessageBuf> {
        self.did.push(DriverCall::Deliver(delivery.channel.index()));
        self.now += self.handler;
        Some(delivery.delivered.message).filter(|_| !self.handler.is_zero())
    }
    fn judged(&mut self, _: ChannelId, _: &FinalJudgement, _: Duration, _: &ReceiveCounters) {}
    fn wake(&mut self, place: u32) {
        self.did.push(DriverCall::Wake(place));
    }
}

impl Meter for TestEnvironment {}

impl Environment<HeapFrames> for TestEnvironment {
    type Clock = Self;
    type Meter = Self;

    fn clock(&mut self) -> &mut Self {
        self
    }
    fn meter(&mut self) -> &mut Self {
        self
    }
}

impl UpcallRunner<HeapFrames> for TestEnvironment {
    fn iterate(&mut self, _: Instant, upcall: &PickedRun) -> IterationResult {
        self.now += self.iteration;
        self.did.push(DriverCall::Iteration(upcall.done));
        IterationResult { end: self.now, units: upcall.block.min(upcall.left), outcome: RunOutcome::Yields }
    }
    fn iterated(&mut self, _: &mut Driver<HeapFrames>, _: Instant, _: &PickedRun, completed: Option<CompletedRun>) {
        self.completed += u64::from(completed.is_some());
    }
}

impl Control<HeapFrames> for TestEnvironment {
    fn obey(&mut self, driver: &mut Driver<HeapFrames>, now: Instant) {
        if std::mem::take(&mut self.stop) {
            driver.stop(now, self);
        }
    }
    fn event(&mut self, _: &mut Driver<HeapFrames>, _: Instant, event: Event) {
        if !matches!(event, Event::Accepted { .. }) {
            self.events.push(event);
        }
    }
    fn round_over(&mut self, _: &mut Driver<HeapFrames>, _: Instant) {}

    fn gap(&mut self, taken: Duration) {
        self.did.push(DriverCall::Gap(taken));
    }

    fn is_upcall_ready(&mut self, _: Instant) -> bool {
        self.is_upcall_ready
    }
}
