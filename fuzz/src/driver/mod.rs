//! Two or three drivers in virtual time, with surroundings that behave by a script: against a model.
//!
//! The input is read as a sequence of operations ([`run`]): applications send, close, and give buffers back late; links have
//! little room, block, lose, double and forge; work stalls, sleeps end late; a control plane opens, accepts, begins, refuses,
//! closes, releases and stops at any moment, also channels that are gone. What is checked, besides that nothing panics:
//!
//! - **messages**: each that was put into a mailbox is still there, held, accepted, refused, made, or given back at release,
//!   and never two of them; a channel's are accepted in order, each at the logical arrival of the contract's definition,
//!   however long it was held, and buffers come back with the bytes that they were sent with;
//! - **inputs**: as a round begins every mailbox that had rung is looked at, and a held message is taken as soon as its contract
//!   has room; handlers change nowhere else; buffers that could not be taken back are looked for 200 µs later;
//! - **bounds**: a turn takes at most K frames of each link and at most one step; links are looked at after P steps at most and
//!   after every turn that had nothing to do, and fed after k steps at most;
//! - **sleep**: never while something is to be run, an application to be woken or a packet to be handed over, never beyond what waits,
//!   and never for nothing, one turn after the other; deaf only if the share is used up or the driver is about to stop;
//! - **stop**: within a second, and before that only if everything that was taken has left;
//! - **gaps**: no more is told than there is evidence of;
//! - **frames**: none is used after it was freed or freed twice, and all come back;
//! - **memory**: a driver allocates nothing once it is set up.

mod around;
mod host;
mod model;
#[path = "../endpoint/region.rs"]
mod region;

use std::collections::VecDeque;
use std::net::SocketAddr;

use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::{Destination, SendSetup};
use laxity_core::event::{ChannelId, PeerRequest};
use laxity_core::frames::Frames;
use laxity_core::limits::MIN_PACKET_BYTES;
use laxity_core::send::SendConfig;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::MAX_CONTROL_BYTES;
use laxity_drive::NextTurn;

use super::bytes::Bytes;
use super::wire::made;
use around::{FuzzEnvironment, answer_to, holds_any};
use host::{Command, CurrentSleep, FrameInTransit, Host, LINK_HOLDS, NAMES, START, Turn, address, name};
use model::{ChannelSetup, LEAST, ReceivedChannel, SentChannel};

const HOSTS: usize = 3;
/// The largest message that this driver has memory for.
const LARGEST: u64 = 600;
/// Turns of a run before its end, and of the end: more is without end.
const MOST_TURNS: u32 = 6_000;
const MOST_LAST_TURNS: u32 = 20_000;
/// Messages in a mailbox at most.
const MAILBOX: usize = 6;

/// A run without an eye on the allocator.
pub fn driver(data: &[u8]) {
    run(data, || 0);
}

/// One run; `allocations` is how often the calling thread has allocated so far.
pub fn run(data: &[u8], allocations: fn() -> u64) {
    let mut bytes = Bytes::new(data);
    let mut world = World::new(&mut bytes, allocations);
    while !bytes.is_empty() {
        world.operation(&mut bytes);
    }
    world.finish();
}

pub struct World {
    /// ns; a driver may be ahead of it by a turn, and far behind while it sleeps.
    now: u64,
    hosts: Vec<Host>,
    sent: Vec<SentChannel>,
    received: Vec<ReceivedChannel>,
    /// Channels that were asked for.
    opened: usize,
    /// The messages that applications send while drivers work: a channel and so many bytes.
    meanwhile: VecDeque<(usize, usize)>,
    /// A frame was forged that may be of a channel: its contents are not promised.
    is_forged: bool,
    turns: u32,
    allocations: fn() -> u64,
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

impl World {
    fn new(bytes: &mut Bytes<'_>, allocations: fn() -> u64) -> Self {
        Self {
            now: START,
            hosts: (0..HOSTS).map(|number| Host::new(number, bytes)).collect(),
            sent: Vec::new(),
            received: Vec::new(),
            opened: 0,
            meanwhile: VecDeque::new(),
            is_forged: false,
            turns: 0,
            allocations,
        }
    }

    fn operation(&mut self, bytes: &mut Bytes<'_>) {
        let (operation, number) = (bytes.u8() % 40, usize::from(bytes.u8()) % HOSTS);
        match operation {
            0 => self.open(number, bytes),
            1 | 2 => {
                self.open(number, bytes);
                self.pass(3_000_000);
            }
            3..=9 => self.send(bytes, false),
            10 => self.send(bytes, true),
            11..=14 => self.pass(bytes.up_to(255) * 4_000),
            15 | 16 => self.pass(bytes.up_to(255) * 100_000),
            17 => self.pass(bytes.up_to(255) * 4_000_000),
            18 => {
                // A few turns of one host, whatever the others do.
                for _ in 0..bytes.up_to(7) {
                    self.next_turn(number, u64::MAX);
                }
            }
            19 => self.answer(number, bytes),
            20 => self.order_one(number, bytes, |channel, bytes| {
                let (processor, link) = (micros(bytes.up_to(60_000)), micros(bytes.up_to(60_000)));
                Command::Begin { channel, stages: SendingStages { processor, link } }
            }),
            21 | 22 => self.order_one(number, bytes, |channel, _| Command::Close(channel)),
            23 => self.order_one(number, bytes, |channel, _| Command::Release(channel)),
            24 if bytes.u8() < 64 => self.hosts[number].commands.push_back(Command::Stop),
            24 => self.hosts[number].refuses = bytes.up_to(3),
            25 => {
                let link = self.link(number, bytes);
                link.capacity = bytes.up_to(LINK_HOLDS as u64) as usize;
                // There is room, or will be: the host hears of it.
                self.stir(number);
            }
            26 | 27 => {
                let link = self.link(number, bytes);
                link.takes = [0, 0, 1, 2, usize::MAX][bytes.place(5)];
                link.retry = bytes.bool().then(|| micros(10 + 40 * bytes.up_to(255)));
            }
            28 => self.link(number, bytes).loses = bytes.up_to(7),
            29 => {
                let link = self.link(number, bytes);
                (link.doubles, link.delay) = (bytes.up_to(7), bytes.up_to(255) * 1_000);
            }
            30 => self.forge(number, bytes),
            31 => self.hosts[number].costs.scale = [0, 1, 8, 16, 200][bytes.place(5)],
            32 => {
                let (stall, part) = (bytes.up_to(255) * 20_000, bytes.up_to(8));
                self.hosts[number].costs.stall = (stall, stall * part / 8);
            }
            33 => self.hosts[number].costs.lateness = bytes.up_to(255) * 2_000,
            34 => self.hosts[number].costs.tick = bytes.up_to(255) * 4,
            35 | 36 => self.give_back(number, bytes),
            37 => {
                let own: Vec<_> = (0..self.received.len()).filter(|&r| self.received[r].host == number).collect();
                if !own.is_empty() {
                    self.received[own[bytes.place(own.len())]].busy = bytes.up_to(3);
                }
            }
            38 => {
                let choice = bytes.u8();
                (self.hosts[number].is_prompt, self.hosts[number].releases) = (choice & 6 != 6, choice & 1 == 0);
            }
            _ => self.hosts[number].policed = Some((u32::from(bytes.u8() % 9), bytes.number())),
        }
    }

    fn link(&mut self, number: usize, bytes: &mut Bytes<'_>) -> &mut host::Link {
        let links = &mut self.hosts[number].links;
        let link = bytes.place(links.len());
        &mut links[link]
    }

    // -------------------------------------------------------------------------------------------- control plane

    fn open(&mut self, number: usize, bytes: &mut Bytes<'_>) {
        if self.opened >= NAMES {
            return;
        }
        let to = (number + 1 + bytes.place(HOSTS - 1)) % HOSTS;
        let shape = bytes.u8();
        let max_message = LEAST as u64 + bytes.up_to(LARGEST - LEAST as u64);
        let service = match shape & 3 {
            0 => Service::best_effort(max_message, 1 + bytes.up_to(7)).expect("within the limits"),
            _ => {
                let interval = Duration::from_nanos(100_000 + bytes.u64() % 5_000_000);
                let (burst, deadline) = (1 + bytes.up_to(3), micros(10 << bytes.up_to(14)));
                let contract = Contract::new(max_message, LEAST as u64, interval, burst, deadline);
                Service::RealTime(contract.expect("within the limits"))
            }
        };
        let overload = [Overload::Block, Overload::Block, Overload::Drop, Overload::Decay][usize::from(shape >> 2 & 3)];
        let packet = MIN_PACKET_BYTES + u32::from(bytes.u8()) / 4;
        let work_conserving = shape & 16 == 0;
        let config = SendConfig { service, overload, priority: shape >> 5, packet, work_conserving };
        let (messages, quota) = (1 + bytes.up_to(7) as u32, 1 + bytes.up_to(9) as u32);
        let destination = Destination { link: shape >> 4 & 1, peer: address(to), name: name(self.opened) };
        let lease = micros(400_000 + 10_000 * bytes.up_to(255));
        let outgoing = SendSetup::new(destination, config, micros(500), lease, messages, quota);
        let sent = ChannelSetup { name: self.opened, service, overload, room: u64::from(messages) };
        self.opened += 1;
        self.hosts[number].commands.push_back(Command::Open { outgoing, sent });
    }

    /// A command for any channel that ever was here.
    fn order_one(
        &mut self,
        number: usize,
        bytes: &mut Bytes<'_>,
        command: impl FnOnce(ChannelId, &mut Bytes<'_>) -> Command,
    ) {
        let host = &mut self.hosts[number];
        if !host.channels.is_empty() {
            let channel = host.channels[bytes.place(host.channels.len())];
            host.commands.push_back(command(channel, bytes));
        }
    }

    fn answer(&mut self, number: usize, bytes: &mut Bytes<'_>) {
        let host = &mut self.hosts[number];
        if host.requests.is_empty() {
            return;
        }
        let place = bytes.place(host.requests.len());
        // One that is kept is answered again, when it has lapsed.
        let request = if bytes.u8() < 32 { host.requests[place] } else { host.requests.remove(place) };
        host.commands.push_back(answer_to(request, bytes.u8()));
    }

    /// A request was accepted.
    fn receive(&mut self, host: usize, id: ChannelId, request: &PeerRequest) {
        let is_of =
            |sent: &SentChannel| address(sent.host) == request.from.peer && name(sent.asked.name) == request.from.name;
        let sender = self.sent.iter().position(is_of);
        let (lent, returned) = (Vec::new(), Vec::with_capacity(64));
        let (busy, was_busy, released, next) = (0, None, false, 0);
        self.received.push(ReceivedChannel { host, id, sender, next, lent, returned, busy, was_busy, released });
    }

    // -------------------------------------------------------------------------------------------- applications

    fn send(&mut self, bytes: &mut Bytes<'_>, meanwhile: bool) {
        if self.sent.is_empty() {
            return;
        }
        let channel = bytes.place(self.sent.len());
        let (size, age) = (bytes.u8(), bytes.up_to(255) * 1_000);
        let most = u64::from(self.sent[channel].asked.service.max_message());
        let len = match size {
            0..=99 => most,
            100..=109 => most + most * u64::from(size - 100) / 2,
            _ => u64::from(size - 110) * most / 145,
        } as usize;
        for _ in 0..=size & 3 {
            match meanwhile {
                true => self.meanwhile.push_back((channel, len)),
                false => self.put(channel, age, len),
            }
        }
    }

    /// A message that was sent so long ago, ns.
    fn put(&mut self, channel: usize, age: u64, len: usize) {
        let sent = &mut self.sent[channel];
        let waiting = sent.messages.iter().filter(|message| message.fate == model::Fate::Mailbox).count();
        if sent.released || waiting >= MAILBOX {
            return;
        }
        let host = &mut self.hosts[sent.host];
        let now = host.now.max(self.now);
        sent.put(channel, Instant::from_nanos(now - age), len);
        host.ring(sent.id.index());
    }

    fn give_back(&mut self, number: usize, bytes: &mut Bytes<'_>) {
        let own: Vec<_> = (0..self.received.len())
            .filter(|&r| self.received[r].host == number && !self.received[r].released)
            .collect();
        if !own.is_empty() {
            let received = &mut self.received[own[bytes.place(own.len())]];
            let count = received.lent.len().min(bytes.up_to(7) as usize);
            received.returned.extend(received.lent.drain(..count));
            let place = received.id.index();
            self.hosts[number].ring(place);
        }
    }

    // -------------------------------------------------------------------------------------------- network

    /// A frame that no host sent, or one under way with other bytes.
    fn forge(&mut self, to: usize, bytes: &mut Bytes<'_>) {
        let from = match bytes.u8() % 5 {
            known @ 0..3 => address(usize::from(known)),
            _ => SocketAddr::from(([192, 0, 2, bytes.u8()], 9)),
        };
        let now = self.now;
        let kind = bytes.u8();
        match kind & 3 {
            0 => {
                let frame = bytes.slice(200).to_vec();
                let inbox = &mut self.link(to, bytes).inbox;
                inbox.push_front(FrameInTransit {
                    at: now.min(inbox.front().map_or(now, |f| f.at)),
                    from,
                    bytes: frame,
                });
            }
            1 => {
                let place = bytes.u8();
                let inbox = &mut self.link(to, bytes).inbox;
                if !inbox.is_empty() {
                    let place = usize::from(place) % inbox.len();
                    let flying = &mut inbox[place];
                    let at = usize::from(bytes.u8()) % flying.bytes.len().max(1);
                    if let Some(byte) = flying.bytes.get_mut(at) {
                        *byte ^= bytes.u8();
                    }
                }
                self.is_forged = true;
            }
            _ => {
                let (token, control) = (bytes.u64(), made(kind >> 2, bytes));
                let mut frame = [0; MAX_CONTROL_BYTES];
                let Ok(len) = control.write(token, &mut frame) else { return };
                let frame = frame[..len].to_vec();
                let inbox = &mut self.link(to, bytes).inbox;
                inbox.push_front(FrameInTransit {
                    at: now.min(inbox.front().map_or(now, |f| f.at)),
                    from,
                    bytes: frame,
                });
                self.is_forged = true;
            }
        }
    }

    // -------------------------------------------------------------------------------------------- time

    /// Something changed for a host that it may sleep on.
    fn stir(&mut self, number: usize) {
        let now = self.now;
        if let Some(asleep) = self.hosts[number].asleep.as_mut().filter(|asleep| asleep.hears_frames) {
            asleep.due = Some(asleep.due.map_or(now, |due| due.min(now)));
        }
    }

    /// Time passes, and all hosts work.
    fn pass(&mut self, span: u64) {
        let until = self.now + span;
        while self.turns < MOST_TURNS && self.next(until) {
            self.turns += 1;
        }
        self.now = until;
    }

    /// The next turn of the host that is first; false if none has anything to do until then.
    fn next(&mut self, until: u64) -> bool {
        let now = self.now;
        let next = (0..HOSTS).filter_map(|number| Some((self.hosts[number].next_turn(now)?.0, number))).min();
        next.is_some_and(|(_, number)| self.next_turn(number, until))
    }

    /// A turn of a host, if it has one until then.
    fn next_turn(&mut self, number: usize, until: u64) -> bool {
        let Some((at, rung)) = self.hosts[number].next_turn(self.now).filter(|(at, _)| *at <= until) else {
            return false;
        };
        self.now = self.now.max(at.min(until));
        let host = &mut self.hosts[number];
        host.now = at;
        let woken = host.asleep.take();
        host.turn = Turn { unheard: host.rung.iter().copied().collect(), ..Turn::default() };
        // Nothing of the model's own is counted as the driver's.
        host.turn.heard.reserve(16);
        let mut driver = host.driver.take().expect("it is between turns");
        if let Some(CurrentSleep { due, .. }) = woken {
            host.given += due.map_or(0, |due| at.saturating_sub(due));
        }
        let mut around = FuzzEnvironment::new(self, number);
        if let Some(CurrentSleep { due, .. }) = woken {
            driver.woke(Instant::from_nanos(at), due.map(Instant::from_nanos), rung, &mut around);
        }
        let next = driver.turn(&mut around);
        around.left();
        if next != NextTurn::Stop {
            around.check_inputs();
        }
        let (longest, must_look) = (around.longest_sleep(), around.host().must_look);
        assert!(next == NextTurn::Stop || !must_look, "no look at the links after a turn without work");
        let held = holds_any(self, number);
        let host = &mut self.hosts[number];
        host.driver = Some(driver);
        host.check_next(next, held);
        if let NextTurn::Sleep(sleep) = next {
            let until = sleep.until.map(|until| until.as_nanos());
            let longest = longest.map(|longest| longest.max(host.now));
            let in_time = longest.is_none_or(|longest| until.is_some_and(|until| until <= longest));
            assert!(in_time, "it sleeps until {until:?}, something waits until {longest:?}");
            // What rings as it goes to sleep keeps it awake.
            if host.rung.is_empty() && host.commands.is_empty() && until.is_none_or(|until| until > host.now) {
                host.asleep = Some(CurrentSleep { due: until, hears_frames: sleep.hears_frames });
            }
        }
        true
    }

    // -------------------------------------------------------------------------------------------- the end

    /// Every host is told to stop, and does; then every channel is released, and nothing is left.
    fn finish(&mut self) {
        for host in &mut self.hosts {
            host.commands.push_back(Command::Stop);
            // Or it looks at a link that stays blocked a hundred thousand times in its last second.
            for link in &mut host.links {
                link.retry = link.retry.map(|retry| retry.max(micros(500)));
            }
        }
        let mut turns = 0;
        while self.hosts.iter().any(|host| !host.stopped) {
            turns += 1;
            assert!(turns <= MOST_LAST_TURNS, "they do not stop");
            assert!(self.next(u64::MAX), "no host goes on, but not all have stopped");
        }
        for number in 0..HOSTS {
            let mut driver = self.hosts[number].driver.take().expect("it is between turns");
            let channels = self.hosts[number].channels.clone();
            // Twice: the second time they are gone.
            for &channel in channels.iter().chain(&channels) {
                FuzzEnvironment::new(self, number).release(&mut driver, channel);
            }
            assert_eq!(driver.endpoint.channels(), 0);
            assert_eq!(driver.mailbox_timeout(), None, "a mailbox of no channel is looked at again");
            for link in &mut self.hosts[number].links {
                while let Some((frame, ..)) = link.buffered.pop_front() {
                    driver.frames.free(frame);
                }
            }
            assert_eq!(driver.frames.held(), 0, "frames are lost");
        }
        assert!(self.sent.iter().all(|sent| sent.released) && self.received.iter().all(|r| r.released));
    }
}
