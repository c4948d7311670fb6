//! Hosts in a row, in virtual time: a sender, relays, a receiver. Nothing here takes processor time; links do.

#[path = "../common/config.rs"]
mod config;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Config, Destination, Endpoint, LinkConfig, ReceiveGrant, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, End, Event, Name, PeerRequest};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::platform::LinkModel;
use laxity_core::receive::{DeliveredMessage, Evidence, FrameTimes};
use laxity_core::relay::RelayGrant;
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_core::wire::DATA_HEADER_BYTES;

pub(crate) const PACKET: u32 = 1000;
pub(crate) const FRAMES: usize = 400;
pub(crate) const LEASE: Duration = Duration::from_millis(800);
/// The sender's stages together, the way between two hosts, a relay's stage, the receiver's.
pub(crate) const SENDING: Duration = ms(4);
pub(crate) const WAY: Duration = ms(1);
pub(crate) const RELAYING: Duration = ms(3);
pub(crate) const RECEIVING: Duration = ms(4);
/// How long a packet is on the wire after it has left.
pub(crate) const PROPAGATION: Duration = Duration::from_micros(50);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
pub(crate) fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}
pub(crate) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7000))
}
pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// The shortest deadline of a channel over `relays` relays.
pub(crate) fn deadline(relays: u64) -> Duration {
    SENDING + WAY + (RELAYING + WAY) * relays + RECEIVING
}

pub(crate) fn contract(max: u64, interval: Duration, burst: u64, relays: u64) -> Service {
    Service::RealTime(Contract::new(max, 1, interval, burst, deadline(relays)).unwrap())
}

/// What befalls a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFate {
    Arrives,
    Lost,
    Late(Duration),
    Twice,
}

pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) frames: HeapFrames,
    pub(crate) packet: u32,
    /// Where a name leads; a name that leads nowhere ends here.
    pub(crate) routes: BTreeMap<String, usize>,
    /// Requests whose way onward is being opened, by that channel.
    asked: BTreeMap<ChannelId, PeerRequest>,
    pub(crate) delivered: Vec<(ChannelId, DeliveredMessage, Option<Evidence>)>,
    /// What the network took of each beyond its grant, and the platform.
    pub(crate) excess: Vec<(Duration, Duration)>,
    pub(crate) events: Vec<Event>,
    /// Both sides of what it relays, and what it receives, as they were accepted.
    pub(crate) accepted: Vec<(ChannelId, Option<ChannelId>)>,
    pub(crate) dead: bool,
}

/// What befalls a frame that leaves at a time: from, to, bytes.
type Fates = dyn FnMut(Instant, usize, usize, &[u8]) -> FrameFate;

/// From, to, bytes.
type FrameInTransit = (usize, usize, Vec<u8>);

pub(crate) struct RelayNetwork {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    wire: BTreeMap<(Instant, u64), FrameInTransit>,
    sent: u64,
    /// What befalls a frame from a host to another.
    pub(crate) fate: Box<Fates>,
    /// Refuse instead of accept, at this host.
    pub(crate) refuses: Option<(usize, Refusal)>,
    /// Frames were injected with other contents.
    pub(crate) forged: bool,
    /// The last frame that each host sent.
    pub(crate) latest: Vec<Option<Vec<u8>>>,
    /// A host does nothing until then; frames that come meanwhile wait.
    pub(crate) stalled: BTreeMap<usize, Instant>,
}

impl RelayNetwork {
    /// `count` hosts that share a clock, with links of a megabyte per second times `mega`.
    pub(crate) fn new(count: usize, mega: u64) -> Self {
        Self::with_clocks(&vec![7; count], mega)
    }

    pub(crate) fn with_clocks(clocks: &[u64], mega: u64) -> Self {
        let all: Vec<_> =
            clocks.iter().enumerate().map(|(number, &clock)| config(number as u64, clock, mega)).collect();
        Self::of(all)
    }

    pub(crate) fn of(configs: Vec<Config>) -> Self {
        let host = |config: Config| Host {
            packet: config.packet,
            endpoint: Endpoint::new(config),
            frames: HeapFrames::new(FRAMES, DATA_HEADER_BYTES + PACKET as usize + 500),
            routes: BTreeMap::new(),
            asked: BTreeMap::new(),
            delivered: Vec::new(),
            excess: Vec::new(),
            events: Vec::new(),
            accepted: Vec::new(),
            dead: false,
        };
        let count = configs.len();
        Self {
            now: at(1000),
            hosts: configs.into_iter().map(host).collect(),
            wire: BTreeMap::new(),
            sent: 0,
            fate: Box::new(|_, _, _, _| FrameFate::Arrives),
            refuses: None,
            forged: false,
            latest: vec![None; count],
            stalled: BTreeMap::new(),
        }
    }

    /// Every host knows the way to `to` by that name: the next host of the row.
    pub(crate) fn listen(&mut self, to: usize, called: &str) {
        for number in 1..self.hosts.len() {
            self.hosts[number].endpoint.listen(name(called));
            if number < to {
                self.hosts[number].routes.insert(called.into(), number + 1);
            }
        }
    }

    pub(crate) fn open(&mut self, from: usize, called: &str, service: Service) -> ChannelId {
        self.open_with(from, called, service, Overload::Drop)
    }

    pub(crate) fn open_with(&mut self, from: usize, called: &str, service: Service, overload: Overload) -> ChannelId {
        let to = Destination { link: 0, peer: address(from + 1), name: name(called) };
        let config = SendConfig { service, overload, priority: 0, packet: PACKET, work_conserving: false };
        let outgoing = SendSetup::new(to, config, SENDING, LEASE, 8, 64);
        self.hosts[from].endpoint.open(self.now, outgoing).map_err(|(_, refusal)| refusal).unwrap()
    }

    pub(crate) fn submit(&mut self, host: usize, channel: ChannelId, bytes: usize) -> bool {
        let host = &mut self.hosts[host];
        let sequence = host.endpoint.send_counters(channel).map_or(0, |counters| counters.accepted);
        let mut message = MessageBuf::with_capacity(bytes);
        message.set_len(bytes);
        message.iter_mut().enumerate().for_each(|(place, found)| *found = byte(sequence, place));
        host.endpoint.submit(self.now, channel, self.now, Duration::ZERO, message).is_ok()
    }

    /// A frame as if from `from`.
    pub(crate) fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.sent += 1;
        self.wire.insert((self.now, self.sent), (from, to, bytes.to_vec()));
    }

    pub(crate) fn run_until(&mut self, until: Instant) {
        let mut idle = 0;
        loop {
            let mut rounds = 0;
            while self.round() {
                rounds += 1;
                assert!(rounds < 10_000, "busy for ever at {:?}", self.now);
            }
            self.stalled.retain(|_, until| *until > self.now);
            let awake = self.hosts.iter().enumerate();
            let awake = awake.filter(|(number, host)| !host.dead && !self.stalled.contains_key(number));
            let timeouts = awake.filter_map(|(_, host)| host.endpoint.poll_timeout(self.now));
            let arrivals = self.wire.iter().map(|(&(at, _), (_, to, _))| (at, to));
            let arrival = arrivals.filter(|(_, to)| !self.stalled.contains_key(to)).map(|(at, _)| at).next();
            let next = timeouts.chain(arrival).chain(self.stalled.values().copied()).min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            idle = if next <= self.now { idle + 1 } else { 0 };
            let timeouts: Vec<_> = self.hosts.iter().map(|host| host.endpoint.poll_timeout(self.now)).collect();
            assert!(idle < 4, "woken for nothing at {:?}: {timeouts:?}", self.now);
            self.now = self.now.max(next);
        }
        self.now = until;
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    /// Everything that can be done now; true if there was something.
    fn round(&mut self) -> bool {
        let mut worked = false;
        let arrived = self.wire.range(..=(self.now, u64::MAX)).filter(|(_, way)| !self.stalled.contains_key(&way.1));
        let arrived: Vec<_> = arrived.map(|(&key, _)| key).collect();
        for key in arrived {
            let Some((from, to, bytes)) = self.wire.remove(&key) else { continue };
            worked = true;
            let host = &mut self.hosts[to];
            let Some(frame) = (if host.dead { None } else { host.frames.take() }) else { continue };
            host.frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(&bytes);
            let found = FrameTimes { arrived: Some(key.0), ..FrameTimes::from(self.now) };
            host.endpoint.handle_frame(found, 0, address(from), frame, bytes.len(), &mut host.frames);
        }
        for number in 0..self.hosts.len() {
            if !self.hosts[number].dead && !self.stalled.contains_key(&number) {
                worked |= self.drive(number);
            }
        }
        worked
    }

    fn drive(&mut self, number: usize) -> bool {
        let now = self.now;
        let mut worked = false;
        let host = &mut self.hosts[number];
        host.endpoint.handle_timeout(now);
        host.endpoint.handle_link_ready(now, 0, 64);
        while let Some(out) = host.endpoint.poll_transmit(now, 0, &mut host.frames) {
            worked = true;
            let bytes = host.frames.packet(&out.frame)[..out.len].to_vec();
            host.frames.free(out.frame);
            self.latest[number] = Some(bytes.clone());
            let to = (0..).find(|&to| address(to) == out.peer).unwrap();
            let mut arrive = |after: Duration| {
                self.sent += 1;
                self.wire
                    .insert((out.completes.max(now) + PROPAGATION + after, self.sent), (number, to, bytes.clone()));
            };
            match (self.fate)(now, number, to, &bytes) {
                FrameFate::Arrives => arrive(Duration::ZERO),
                FrameFate::Lost => {}
                FrameFate::Late(by) => arrive(by),
                FrameFate::Twice => (0..2).for_each(|_| arrive(Duration::ZERO)),
            }
        }
        while host.endpoint.poll_step(now, &mut host.frames).is_some() {
            worked = true;
        }
        while let Some((key, delivered, evidence)) = host.endpoint.poll_delivery(now) {
            let exact = |(place, &found): (usize, &u8)| found == byte(delivered.sequence, place);
            let whole = delivered.message.iter().enumerate().all(exact);
            assert!(whole || self.forged, "message {}", delivered.sequence);
            let judged = host.endpoint.judge(now, key, &delivered, (Duration::ZERO, Duration::ZERO)).unwrap();
            host.excess.push((judged.network, judged.platform));
            let message = MessageBuf::with_capacity(delivered.message.capacity());
            host.endpoint.recycle(key, message);
            host.delivered.push((key, delivered, evidence));
            worked = true;
        }
        while host.endpoint.poll_judged(now).is_some() {
            worked = true;
        }
        while let Some(event) = self.hosts[number].endpoint.poll_event() {
            self.hosts[number].events.push(event);
            self.answer(number, event);
            worked = true;
        }
        worked
    }

    /// What a driver does.
    fn answer(&mut self, number: usize, event: Event) {
        let now = self.now;
        let host = &mut self.hosts[number];
        match event {
            Event::Requested(request) => {
                if let Some((at, refusal)) = self.refuses
                    && at == number
                {
                    return host.endpoint.refuse(request.id, &refusal);
                }
                let upstream = request.upstream + WAY;
                match host.routes.get(request.from.name.as_str()) {
                    Some(&next) => {
                        let to = Destination { link: 0, peer: address(next), name: request.from.name };
                        let outgoing = SendSetup::relay(to, &request, host.packet, upstream + RELAYING, 64);
                        match host.endpoint.open(now, outgoing) {
                            Ok(onward) => drop(host.asked.insert(onward, request)),
                            Err((_, refusal)) => host.endpoint.refuse(request.id, &refusal),
                        }
                    }
                    None => {
                        let reception = ReceiveGrant {
                            stage: RECEIVING,
                            input_delay: Duration::ZERO,
                            upstream,
                            transit: WAY,
                            work_conserving: true,
                            priority: 0,
                            messages: 8,
                            packets: 64,
                        };
                        match host.endpoint.accept(now, &request, ReceiveSetup::new(&request, reception)) {
                            Ok(key) => host.accepted.push((key, None)),
                            Err((_, refusal)) => assert_eq!(refusal.code, Code::Protocol, "it lapsed"),
                        }
                    }
                }
            }
            Event::Accepted { channel, receive, .. } => match host.asked.remove(&channel) {
                Some(request) => {
                    let passage = RelayGrant {
                        stage: RELAYING,
                        input_delay: Duration::ZERO,
                        upstream: request.upstream + WAY,
                        transit: WAY,
                        onward: WAY + receive,
                    };
                    let incoming = ReceiveSetup::relay(&request, channel, passage);
                    match host.endpoint.accept(now, &request, incoming) {
                        Ok(inward) => host.accepted.push((inward, Some(channel))),
                        Err((_, refusal)) => assert_eq!(refusal.stage, Stage::ReceivingProcessor),
                    }
                }
                None => {
                    let stages = SendingStages { processor: ms(1), link: SENDING - ms(1) };
                    host.endpoint.begin(now, channel, stages);
                }
            },
            Event::Spaced { .. } | Event::Ended { .. } | Event::Overflow { .. } => {}
        }
    }

    /// Sends `count` messages, one every `interval` from now on.
    pub(crate) fn stream(&mut self, channel: ChannelId, bytes: usize, interval: Duration, count: u64) {
        for _ in 0..count {
            assert!(self.submit(0, channel, bytes));
            self.run_for(interval);
        }
    }

    /// How a channel of a host ended, if it has.
    pub(crate) fn end(&self, host: usize, channel: ChannelId) -> Option<End> {
        self.hosts[host].events.iter().rev().find_map(|event| match event {
            Event::Ended { channel: other, end } if *other == channel => Some(*end),
            _ => None,
        })
    }

    /// Takes every channel out; then every frame must be free.
    pub(crate) fn release_all(&mut self) {
        for host in &mut self.hosts {
            for place in 0..host.endpoint.config().channels as u32 {
                if let Some(key) = host.endpoint.key_at(place) {
                    assert!(host.endpoint.release(key, &mut host.frames, drop).is_some());
                }
            }
            assert_eq!((host.endpoint.channels(), host.frames.available()), (0, FRAMES));
        }
    }
}

/// What stands at a place of a message.
pub(crate) fn byte(sequence: u64, place: usize) -> u8 {
    sequence.wrapping_mul(31).wrapping_add((place * 7 + place / 1000) as u64) as u8
}

pub(crate) fn config(secret: u64, clock: u64, mega: u64) -> Config {
    let link = LinkConfig {
        model: LinkModel { rate: Rate::bytes_per_second(mega * 1_000_000), ..LinkModel::UNLIMITED },
        look_ahead: Duration::from_nanos(1),
        ..config::unlimited()
    };
    Config {
        channels: 12,
        frames: FRAMES - 60,
        best_effort_frames: 40,
        quantum: 4,
        links: vec![link],
        ..config::config(clock, secret.into(), PACKET)
    }
}
