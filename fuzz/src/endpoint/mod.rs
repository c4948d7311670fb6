//! Three endpoints, applications that do what they like, and a network that loses, doubles, reorders, damages and forges:
//! against a model.
//!
//! The input is read as a sequence of operations ([`run`]); one global clock, no other state. What is checked, besides that
//! nothing panics:
//!
//! - **enforcement**: the verdict on each message is that of the contract's definition, and no packet leaves before the
//!   logical arrival that it has by that definition, so the link sees no more than the contract;
//! - **the handlers** make each message's packets in order, whole, and no more than one a step;
//! - **delivery** is exact and in order, each message at most once; a receiver that was told how many were sent accounts for
//!   every one of them; on a way without faults none is lost, and no honest sender is blamed;
//! - **frames**: no channel holds more than its quota, none is used after it was freed or freed twice, all come back;
//! - **time**: after the drains `poll_timeout` is later than now (no busy loop), and before that instant there is nothing to do;
//! - **bounds**: a call moves at most one frame, allocates nothing, and counters only grow;
//! - **early policing**: packets that ended before the host saw them are counted at their channel, whatever their number, and nowhere
//!   else; messages that miss them end like all others;
//! - **ends**: on a network that works again every channel ends, and nothing is left.
//!
//! Nothing is promised to the two ends of a connection of which a frame was forged with all its secrets; to all others
//! it is, and to all if the hosts share a key. Deadlines are arbitrary here, nothing was admitted: whether messages are in time is the simulator's subject.

mod ends;
mod host;
mod model;
mod network;
mod region;
mod work;

use std::collections::VecDeque;

use laxity_core::admission::incoming::MAX_SPACING;
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Destination, ReceiveGrant, ReceiveSetup, SendSetup};
use laxity_core::event::{End, Event};
use laxity_core::frames::MessageBuf;
use laxity_core::limits::MIN_PACKET_BYTES;
use laxity_core::receive::TimeLoss;
use laxity_core::send::SendConfig;
use laxity_core::units::Duration;

use super::bytes::Bytes;
use host::{Host, NAMES};
use model::{ReceivedChannel, SentChannel, Verdict, content, verdict_of};
use network::FrameInTransit;

const HOSTS: usize = 3;
/// The largest message that this driver has memory for.
const LARGEST: u64 = 2_000;

/// A run without an eye on the allocator.
pub fn endpoint(data: &[u8]) {
    run(data, || 0);
}

/// One run; `allocations` is how often the calling thread has allocated so far.
pub fn run(data: &[u8], allocations: fn() -> u64) {
    let mut bytes = Bytes::new(data);
    let mut world = World::new(&mut bytes, allocations);
    while !bytes.is_empty() {
        world.operation(&mut bytes);
        world.check();
    }
    world.finish();
}

struct World {
    /// ns since long before the first operation.
    now: u64,
    /// The hosts share a key, which no other program has.
    is_keyed: bool,
    hosts: Vec<Host>,
    sent: Vec<SentChannel>,
    received: Vec<ReceivedChannel>,
    wire: VecDeque<FrameInTransit>,
    /// By sending and receiving host: something happened in transit.
    disturbed: [[bool; HOSTS]; HOSTS],
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

impl World {
    fn new(bytes: &mut Bytes<'_>, allocations: fn() -> u64) -> Self {
        let mut is_keyed = None;
        let hosts = (0..HOSTS).map(|number| Host::new(number, bytes, &mut is_keyed, allocations)).collect();
        let (sent, received, wire) = (Vec::new(), Vec::new(), VecDeque::new());
        let is_keyed = is_keyed.unwrap_or(false);
        Self { now: 100_000_000_000, is_keyed, hosts, sent, received, wire, disturbed: [[false; HOSTS]; HOSTS] }
    }

    fn operation(&mut self, bytes: &mut Bytes<'_>) {
        // Six choices for each; what is left over is for what came last, so that the corpus keeps its meaning.
        let operation = match bytes.u8() {
            250.. => 40,
            choice => choice % 40,
        };
        let host = usize::from(bytes.u8()) % HOSTS;
        match operation {
            0 | 1 => self.open(host, bytes),
            2 => {
                self.open(host, bytes);
                self.connect();
            }
            3 => self.connect(),
            4..=9 => self.submit(bytes),
            10..=12 => self.deliver_next(bytes, false),
            13 => self.deliver_next(bytes, true),
            14 => self.lose(bytes),
            15 => self.damage(bytes),
            16 => self.forge(host, bytes),
            17 => self.answer(host, bytes),
            18 => self.begin(bytes),
            19 => self.close(host, bytes),
            20 => self.release(host, bytes),
            21 | 22 => {
                let link = bytes.place(usize::from(self.hosts[host].links())) as u8;
                self.transmit(host, link);
            }
            23..=25 => {
                self.step(host);
            }
            26 => self.step_in_two(host, bytes),
            27 => {
                self.deliver_message(host);
            }
            28 => self.recycle(host, bytes),
            29 => self.timeout(host),
            30 => self.pass(bytes.up_to(2_000_000)),
            31 => self.pass(bytes.up_to(255) * 10_000_000),
            32 | 33 => self.pass_to_timeout(),
            34 => self.settle(host),
            35 => self.run_network(3),
            36 => {
                let (now, taken) = (self.hosts[host].time(self.now), micros(bytes.up_to(60_000)));
                self.hosts[host].call(0, |endpoint, _| endpoint.note_gap(now, TimeLoss::by_platform(taken)));
            }
            37 => {
                let restricted = bytes.bool();
                self.hosts[host].restricted = restricted;
                self.hosts[host].call(0, |endpoint, _| endpoint.set_restricted(restricted));
            }
            38 => {
                self.hosts[host].room = if bytes.bool() { usize::MAX } else { bytes.up_to(3) as usize };
                self.hosts[host].offer_room(self.now);
            }
            // Of an operation that is gone; so the corpus keeps its meaning.
            39 => drop((bytes.u8(), bytes.up_to(7))),
            _ => self.police(host, bytes),
        }
        for host in 0..HOSTS {
            self.drain_events(host);
        }
    }

    // ------------------------------------------------------------------------------------------------ channels

    fn open(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        if self.sent.len() >= NAMES {
            return;
        }
        let to = (host + 1 + bytes.place(HOSTS - 1)) % HOSTS;
        let shape = bytes.u8();
        let max_message = 1 + bytes.up_to(LARGEST - 1);
        let service = match shape & 3 {
            0 => Service::best_effort(max_message, 1 + bytes.up_to(7)).expect("within the limits"),
            _ => {
                let min_message = if shape & 4 == 0 { 1 } else { 1 + bytes.up_to(max_message - 1) };
                let interval = micros(100 << bytes.up_to(9));
                let (burst, deadline) = (1 + bytes.up_to(4), micros(10 << bytes.up_to(14)));
                Service::RealTime(
                    Contract::new(max_message, min_message, interval, burst, deadline).expect("within the limits"),
                )
            }
        };
        let overload = [Overload::Block, Overload::Drop, Overload::Decay, Overload::Block][usize::from(shape >> 3 & 3)];
        let packet = MIN_PACKET_BYTES + u32::from(bytes.u8()) / 2;
        let config =
            SendConfig { service, overload, priority: shape >> 5, packet, work_conserving: shape >> 5 & 1 == 1 };
        let (link, lease) = (bytes.u8() % 2, micros(400_000 + 10_000 * bytes.up_to(255)));
        let (messages, quota) = (1 + bytes.up_to(7) as u32, 1 + bytes.up_to(15) as u32);
        let destination = Destination { link, peer: host::address(to), name: host::name(self.sent.len()) };
        let outgoing = SendSetup::new(destination, config, micros(500), lease, messages, quota);
        let now = self.hosts[host].time(self.now);
        match self.hosts[host].call(0, |endpoint, _| endpoint.open(now, outgoing)) {
            Ok(id) => self.sent.push(SentChannel::new(
                host,
                to,
                link,
                id,
                service,
                overload,
                messages as usize,
                quota as usize,
            )),
            Err((_, refusal)) => {
                let full = self.live(host) == self.hosts[host].endpoint.config().channels
                    || self.quotas(host) + quota as usize > self.hosts[host].endpoint.config().frames;
                assert_eq!(refusal.code == Code::Memory, full && refusal.code != Code::BadParameters, "{refusal:?}");
            }
        }
    }

    /// All best effort, and what is none, is asked to start its packets so far apart.
    fn ask_spacing(&mut self, host: usize, micros_apart: u64) {
        let here: Vec<_> =
            self.received.iter().filter(|received| received.host == host).map(|received| received.id).collect();
        for id in here {
            self.hosts[host].call(0, |endpoint, _| endpoint.ask_spacing(id, micros(micros_apart)));
        }
    }

    /// Runs everything until all channels that can be are open.
    fn connect(&mut self) {
        for _ in 0..3 {
            self.run_network(1);
            for host in 0..HOSTS {
                while !self.hosts[host].requests.is_empty() {
                    self.answer(host, &mut Bytes::new(&[0, 0, 40, 9, 9]));
                }
            }
        }
        for channel in 0..self.sent.len() {
            self.begin_channel(channel, micros(300), micros(300));
        }
    }

    fn answer(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        if self.hosts[host].requests.is_empty() {
            return;
        }
        let place = bytes.place(self.hosts[host].requests.len());
        let request = self.hosts[host].requests.remove(place);
        // No memory for that here, as a driver would find.
        let choice = if u64::from(request.terms.service.max_message()) > LARGEST { 1 } else { bytes.u8() % 8 };
        match choice {
            1 => {
                let refusal = Refusal::new(Code::Declined, Stage::Route);
                return self.hosts[host].call(0, |endpoint, _| endpoint.refuse(request.id, &refusal));
            }
            2 => return self.hosts[host].call(0, |endpoint, _| endpoint.forget(&request)),
            3 => self.ask_spacing(host, bytes.up_to(255)),
            _ => {}
        }
        let upstream = micros(2_000 + 100 * bytes.up_to(255));
        let (messages, quota) = (1 + bytes.up_to(15) as u32, 1 + bytes.up_to(31) as u32);
        let reception = ReceiveGrant {
            stage: micros(1_000),
            input_delay: micros(100),
            upstream,
            transit: upstream,
            work_conserving: choice & 1 == 0,
            priority: 3,
            messages,
            packets: quota,
        };
        let spacing = if choice & 4 != 0 { micros(u64::from(messages)) } else { micros(0) };
        let incoming = ReceiveSetup::new(&request, reception).spaced(spacing);
        let now = self.hosts[host].time(self.now);
        let Ok(id) = self.hosts[host].call(0, |endpoint, _| endpoint.accept(now, &request, incoming)) else { return };
        let sender = (0..self.sent.len()).find(|number| host::name(*number) == request.from.name);
        self.received.push(ReceivedChannel {
            host,
            id,
            request,
            accepted: now.as_nanos(),
            quota: if request.terms.service.contract().is_some() { quota as usize } else { 0 },
            sender: sender.unwrap_or(usize::MAX),
            remotes: Vec::new(),
            tainted: sender.is_none(),
            stalled: false,
            closed: false,
            end: None,
            released: false,
            next: 0,
            delivered: 0,
            counters: Default::default(),
        });
    }

    fn begin(&mut self, bytes: &mut Bytes<'_>) {
        if !self.sent.is_empty() {
            let channel = bytes.place(self.sent.len());
            self.begin_channel(channel, micros(bytes.up_to(60_000)), micros(bytes.up_to(60_000)));
        }
    }

    fn begin_channel(&mut self, channel: usize, processor: Duration, link: Duration) {
        let sent = &mut self.sent[channel];
        let now = self.hosts[sent.host].time(self.now);
        self.hosts[sent.host].call(0, |endpoint, _| endpoint.begin(now, sent.id, SendingStages { processor, link }));
        // What was not accepted yet cannot be begun.
        sent.begun |= sent.packet.is_some() && !sent.closed && sent.end.is_none() && !sent.released;
    }

    fn close(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let now = self.hosts[host].time(self.now);
        let ids: Vec<_> = self.ids(host).collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[bytes.place(ids.len())];
        self.hosts[host].call(0, |endpoint, _| endpoint.close(now, id));
        self.sent.iter_mut().filter(|s| s.host == host && s.id == id && !s.released).for_each(|s| s.closed = true);
        self.received.iter_mut().filter(|r| r.host == host && r.id == id && !r.released).for_each(|r| r.closed = true);
    }

    fn release(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let ids: Vec<_> = self.ids(host).collect();
        if !ids.is_empty() {
            let id = ids[bytes.place(ids.len())];
            self.release_channel(host, id);
        }
    }

    // ------------------------------------------------------------------------------------------------ messages

    fn submit(&mut self, bytes: &mut Bytes<'_>) {
        if self.sent.is_empty() {
            return;
        }
        let channel = bytes.place(self.sent.len());
        let max = u64::from(self.sent[channel].service.max_message());
        let (size, age) = (bytes.u8(), bytes.up_to(255) * 2_000);
        let len = match size {
            0..=99 => max,
            100..=109 => max + 1 + max * u64::from(size - 100) / 2,
            _ => u64::from(size - 110) * max / 145,
        } as usize;
        let sent = &mut self.sent[channel];
        let mut message = MessageBuf::with_capacity(len);
        message.set_len(len);
        let number = sent.messages.len();
        message.iter_mut().enumerate().for_each(|(place, byte)| *byte = content(channel, number, place));
        let host = &mut self.hosts[sent.host];
        let now = host.time(self.now);
        let stamp = now.before(Duration::from_nanos(age));
        let (arrival, earliest) = (stamp.as_nanos(), now.before(host.endpoint.config().handover).as_nanos());
        match host.call(0, |endpoint, _| endpoint.submit(now, sent.id, stamp, Duration::ZERO, message)) {
            Ok(submitted) => {
                assert!(sent.is_open(), "a channel that is not open takes a message");
                assert_eq!(submitted.sequence, number as u64);
                let logical_arrival = submitted.logical_arrival.as_nanos();
                let expected = sent.verdict(arrival, len);
                let Verdict::Taken { weight, .. } = expected else { panic!("taken: {expected:?}") };
                assert_eq!(Verdict::Taken { logical_arrival, weight }, expected);
                let release = sent.served(logical_arrival, earliest);
                assert_eq!(submitted.release.as_nanos(), release);
                sent.take((logical_arrival, release), weight, len);
            }
            Err(rejected) => {
                assert!(rejected.message.iter().enumerate().all(|(at, byte)| *byte == content(channel, number, at)));
                if sent.is_open() {
                    let verdict = verdict_of(&rejected.violation);
                    assert_eq!(verdict, sent.verdict(arrival, len));
                    assert_eq!(rejected.would_block, verdict == Verdict::Burst && sent.overload == Overload::Block);
                } else {
                    assert!(!rejected.would_block && verdict_of(&rejected.violation) == Verdict::Burst);
                }
            }
        }
    }

    fn recycle(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let host = &mut self.hosts[host];
        if host.lent.is_empty() {
            return;
        }
        let (id, message) = host.lent.remove(bytes.place(host.lent.len()));
        // An application may hand back what it likes.
        let message = if bytes.u8() == 1 { MessageBuf::with_capacity(bytes.up_to(4_000) as usize) } else { message };
        host.call(0, |endpoint, _| endpoint.recycle(id, message));
    }

    // ------------------------------------------------------------------------------------------------ events

    fn drain_events(&mut self, host: usize) {
        while let Some(event) = self.hosts[host].call(0, |endpoint, _| endpoint.poll_event()) {
            match event {
                Event::Requested(request) => {
                    assert!(request.terms.packet <= self.hosts[host].endpoint.config().packet);
                    self.hosts[host].requests.push(request);
                }
                Event::Accepted { channel, packet, .. } => {
                    let sent = self.sender(host, channel).expect("a channel that was opened");
                    assert!(self.sent[sent].packet.is_none(), "a channel is accepted twice");
                    self.sent[sent].packet = Some(packet);
                }
                Event::Spaced { channel, spacing } => {
                    assert!(
                        self.receiver(host, channel).is_some() && spacing <= MAX_SPACING,
                        "{spacing} of {channel:?}"
                    );
                }
                Event::Ended { channel, end } => self.ended(host, channel, end),
                Event::Overflow { dropped } => panic!("{dropped} events are dropped though all are fetched"),
            }
        }
    }

    fn ended(&mut self, host: usize, channel: laxity_core::event::ChannelId, end: End) {
        if let Some(sent) = self.sender(host, channel) {
            assert_eq!(self.sent[sent].end.replace(end), None, "a channel ends twice");
        } else {
            let received = self.receiver(host, channel).expect("a channel of this host");
            assert_eq!(self.received[received].end.replace(end), None, "a channel ends twice");
        }
    }
}
