//! Hosts, wires and a switch in virtual time.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use laxity_core::admission::Refusal;
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{DepartedMessage, Endpoint, Transmit};
use laxity_core::event::{ChannelId, Name, PeerRequest};
use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Upcall;
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_drive::{Clock as _, NextTurn};
use laxity_link::emulated::{EmulatedCounters, EmulatedLink};

use crate::content::{self, CHECK_BYTES};
use crate::fault::Faults;
use crate::order::{EventOrder, NextEvent};
use crate::source::RunningSource;
use crate::{
    ChannelPlan, ChannelRecord, ChannelReport, Checks, Departure, FindingKind, Gap, Host, HostConfig, HostCounters,
    HostDriver, LargestResponses, Ledger, Observer, PlannedCommand, Random, RunCounts, Side, SimulatedEnvironment,
    Source,
};

/// A host of a world, by number: they are counted from zero as they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// A channel of a world, by number: they are counted from zero as they are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelHandle(pub usize);

/// Turns without any work, after which a host counts as hung: `poll_timeout` promised work that does not exist. There are so many more as it has
/// channels: of the timers that are due a turn handles some.
const HUNG: u32 = 4;

/// Something that happens from outside at a point in time.
type Happening = Box<dyn FnOnce(&mut World, Instant)>;

/// Hosts in virtual time, on one ideal switch.
///
/// Whatever comes first happens first: what happens from outside, as faults and frames that were injected, then a frame that arrives, then a host's turn;
/// ties go to the lower number. A turn is one of the driver that ships ([`laxity_drive::Driver::turn`]): inputs, links, one step. It sees what
/// arrived by its beginning; what it does takes effect when its cost is paid.
///
/// Checked all the time: what the head of `checkers` says ([`World::findings`]); and, by a panic, that no host is told to wake up
/// for nothing. Checked by [`World::finish`]: each message ended once; all frames are free again.
#[derive(Default)]
pub struct World {
    now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) channels: Vec<ChannelRecord>,
    pub(crate) sources: Vec<RunningSource>,
    pub(crate) faults: Faults,
    pub(crate) checks: Checks,
    seed: u64,
    /// The host that has an address.
    pub(crate) addresses: BTreeMap<SocketAddr, usize>,
    /// Channels that a host was not asked for yet, or has not accepted, by the host before, the host and the name, and the side there.
    pub(crate) waiting: BTreeMap<(usize, usize, Name), Vec<(usize, Side)>>,
    /// What happens from outside.
    due: BTreeMap<(Instant, u64), Happening>,
    coming: EventOrder,
    /// The answer to all requests, if they are refused.
    pub refusal: Option<Refusal>,
    pub(crate) observer: Option<Observer>,
    pub(crate) order: u64,
    random: Random,
    pub(crate) scratch: Vec<u8>,
    idle_turns: u32,
}

impl World {
    /// An empty world at time zero.
    pub fn new(seed: u64) -> Self {
        Self { seed, random: Random(seed), scratch: vec![0; 1 << 16], ..Self::default() }
    }

    /// Adds a host.
    ///
    /// # Panics
    /// If the configuration cannot be, or its wire is slower than its link's model.
    pub fn add_host(&mut self, config: HostConfig) -> HostId {
        let (seed, number) = (self.random.next(), self.hosts.len());
        self.addresses.entry(config.address).or_insert(number);
        self.hosts.push(Host::new(config, seed));
        self.hosts[number].suffered = self.observer.is_some().then(Vec::new);
        self.touch(number);
        HostId(number)
    }

    /// Opens a channel as planned, now.
    pub fn open(&mut self, from: HostId, to: HostId, plan: ChannelPlan) -> ChannelHandle {
        self.open_via(from, &[], to, plan)
    }

    /// Lets a source submit.
    pub fn add_source(&mut self, source: Source) {
        let (host, start, mut first) = (self.channels[source.channel.0].from.0, source.start, source.first);
        let mut seed = Random(self.seed ^ (self.sources.len() as u64) << 32);
        let mut running = RunningSource { source, random: Random(seed.next()), place: 0 };
        if running.source.more.is_some() {
            (_, first) = running.next(1);
        }
        self.sources.push(running);
        self.schedule(host, start, PlannedCommand::Emit { source: self.sources.len() - 1, messages: first });
    }

    /// Submits one message of `bytes` bytes at `at`.
    pub fn submit_at(&mut self, at: Instant, channel: ChannelHandle, bytes: u32) {
        let host = self.channels[channel.0].from.0;
        self.schedule(host, at, PlannedCommand::Submit { channel: channel.0, bytes });
    }

    /// Closes a channel from its sender's side, now.
    pub fn close(&mut self, channel: ChannelHandle) {
        self.close_side(channel, self.channels[channel.0].from, Side::Sender);
    }

    /// The receiver of a best-effort channel asks its sender, now, to start its packets so far apart.
    pub fn ask_spacing(&mut self, channel: ChannelHandle, spacing: Duration) {
        self.instruct(self.channels[channel.0].to.0, self.now, true, move |around, driver, _| {
            if let Some(key) = around.world.channels[channel.0].ledger.receiver.key {
                driver.endpoint.ask_spacing(key, spacing);
            }
        });
    }

    /// The spacing that the sender of a best-effort channel has confirmed, and the time; `None` if nothing.
    pub fn spaced(&self, channel: ChannelHandle) -> Option<(Instant, Duration)> {
        self.channels[channel.0].ledger.spaced
    }

    /// Closes a channel from its receiver's side, now.
    pub fn close_by_receiver(&mut self, channel: ChannelHandle) {
        self.close_side(channel, self.channels[channel.0].to, Side::Receiver);
    }

    fn close_side(&mut self, channel: ChannelHandle, host: HostId, side: Side) {
        self.instruct(host.0, self.now, true, move |around, driver, now| {
            if let Some(key) = around.world.channels[channel.0].side(side).key {
                driver.close(now, key, around);
            }
        });
    }

    /// Restricts a host to current real-time work, or lifts that, at `at`.
    pub fn restrict_at(&mut self, at: Instant, host: HostId, restricted: bool) {
        self.instruct(host.0, at, false, move |_, driver, _| driver.endpoint.set_restricted(restricted));
    }

    /// A host gives channels that it sends these stages together, now or as soon as that is sound. While one change is under way, no other.
    pub fn restage(&mut self, host: HostId, stages: impl Iterator<Item = (ChannelHandle, SendingStages)>) {
        self.hosts[host.0].restaging = Some(stages.map(|(channel, stages)| (channel.0, stages)).collect());
        self.instruct(host.0, self.now, false, |around, driver, _| {
            let key =
                |&(channel, stages): &(usize, _)| Some((around.world.channels[channel].ledger.sender.key?, stages));
            let stages = around.world.hosts[around.number].restaging.iter().flatten();
            driver.endpoint.restage(stages.filter_map(key).collect());
        });
    }

    /// True if the last change of stages at a host is over.
    pub fn is_restaged(&self, host: HostId) -> bool {
        self.hosts[host.0].restaging.is_none()
    }

    /// Adds an upcall to a host; it is suspended. Its number there.
    ///
    /// # Panics
    /// If that is more than the host's configuration has room for.
    pub fn add_upcall(&mut self, host: HostId, upcall: Upcall) -> usize {
        self.hosts[host.0].upcalls.as_mut().expect("a host with upcalls").add(upcall)
    }

    /// Releases an upcall of a host every period from `first` on, which has not passed.
    pub fn run_upcall(&mut self, host: HostId, number: usize, first: Instant) {
        let now = self.now;
        if let Some(thread) = &mut self.hosts[host.0].upcalls {
            thread.run(now, number, first);
        }
        self.touch(host.0);
    }

    /// Lets the upcalls of a host be as far as they are by now, and stops them all. Returns the results of the runs of each since the
    /// last call.
    pub fn stop_upcalls(&mut self, host: HostId) -> Vec<RunCounts> {
        let now = self.now;
        self.touch(host.0);
        let host = &mut self.hosts[host.0];
        host.let_upcalls_run(now);
        host.upcalls.as_mut().map_or_else(Vec::new, |thread| {
            thread.suspend_all();
            thread.take_runs()
        })
    }

    /// A frame that no host sent arrives at `host`, as if from `peer`.
    pub fn inject_at(&mut self, at: Instant, host: HostId, peer: SocketAddr, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.happens(at, move |world, at| {
            world.hosts[host.0].receive(at, peer, &bytes);
            world.touch(host.0);
        });
    }

    /// The platform takes the processor away from a host. Gaps should not overlap.
    pub fn take_away(&mut self, host: HostId, gap: Gap) {
        let gaps = &mut self.hosts[host.0].gaps;
        let place = gaps.partition_point(|other| other.start <= gap.start);
        gaps.insert(place, gap);
        self.touch(host.0);
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// A host's endpoint.
    pub fn endpoint(&self, host: HostId) -> &Endpoint {
        self.hosts[host.0].endpoint()
    }
    /// The counters of a host so far.
    pub fn host_counters(&self, host: HostId) -> HostCounters {
        let host = &self.hosts[host.0];
        let port = host.port.as_ref().map_or_else(EmulatedCounters::default, |wire| wire.counters);
        HostCounters { endpoint: host.endpoint().counters, wire: host.wire.counters, port, ..host.counters }
    }
    /// True while data may flow on the channel.
    pub fn is_open(&self, channel: ChannelHandle) -> bool {
        self.channels[channel.0].ledger.open
    }

    /// The channel that was opened in place of this one when it was lost, if its application did that.
    pub fn successor(&self, channel: ChannelHandle) -> Option<ChannelHandle> {
        self.channels[channel.0].ledger.successor
    }

    /// The name of a channel.
    pub fn name(&self, channel: ChannelHandle) -> &str {
        self.channels[channel.0].plan.name.as_str()
    }

    /// The report on a channel so far.
    pub fn report(&self, channel: ChannelHandle) -> ChannelReport {
        let record @ ChannelRecord { from, to, ledger, .. } = &self.channels[channel.0];
        let [from, to] = [from, to].map(|host| self.endpoint(*host));
        let send = ledger.sender.key.and_then(|key| from.send_counters(key)).unwrap_or(ledger.send);
        let receive = ledger.receiver.key.and_then(|key| to.receive_counters(key)).unwrap_or(ledger.receive);
        let mut report = record.report(send, receive);
        report.figures.drop_in_transit(self.dropped_in_transit(channel.0));
        report
    }

    /// The largest responses of a channel since this was last asked.
    pub fn take_responses(&mut self, channel: ChannelHandle) -> LargestResponses {
        core::mem::take(&mut self.channels[channel.0].ledger.responses)
    }

    /// Every packet of a channel that left its sender since this was last asked; the first call starts to keep them.
    pub fn take_departures(&mut self, channel: ChannelHandle) -> Vec<Departure> {
        self.channels[channel.0].ledger.departures.replace(Vec::new()).unwrap_or_default()
    }

    /// Lets everything happen that happens by `until`.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((at, next)) = self.next().filter(|&(at, _)| at <= until) {
            self.now = self.now.max(at);
            match next {
                NextEvent::Outside => {
                    if let Some(((at, _), what)) = self.due.pop_first() {
                        what(self, at);
                    }
                }
                NextEvent::Arrival(wire) => self.arrive(wire),
                NextEvent::Passed(host) => self.pass(host),
                NextEvent::Upcalls(host) => {
                    self.hosts[host].make_way(at);
                    self.touch(host);
                }
                NextEvent::Turn(host) => {
                    self.turn(host, at);
                    self.touch(host);
                }
            }
        }
        self.now = self.now.max(until);
    }

    /// Closes every channel from its sender's side. Sources stop, and no application opens a channel again.
    pub fn close_all(&mut self) {
        self.sources.iter_mut().for_each(|running| running.source.until = self.now);
        for number in 0..self.channels.len() {
            self.channels[number].ledger.reopens = false;
            self.close(ChannelHandle(number));
        }
    }

    /// Closes everything, waits until it is over, and checks that each message ended once and no frame leaked.
    ///
    /// # Panics
    /// If that is not so, or not over ten leases later, and the world does not collect what is found.
    pub fn finish(&mut self) {
        self.close_all();
        let lease = self.channels.iter().map(|record| record.plan.lease).max().unwrap_or(Duration::ZERO);
        self.run_until(self.now + lease * 10);
        let mut problems = Vec::new();
        for (number, record) in self.channels.iter().enumerate() {
            let left = record.sides().filter(|side| !side.is_over());
            let left = left.map(|side| (FindingKind::Memory, "a channel that is over".into(), format!("{side:?}")));
            let found = left.chain(record.ledger.check()).chain(self.check_relays(record));
            problems.extend(found.map(|problem| (Some(number), problem)));
        }
        for (number, host) in self.hosts.iter().enumerate() {
            if let Some((expected, found)) = host.missing_frames() {
                let found = format!("{found} at host {number}");
                problems.push((None, (FindingKind::Memory, format!("{expected} frames that are free again"), found)));
            }
        }
        for (channel, problem) in problems {
            self.find(channel, self.now, problem);
        }
        for channel in 0..self.channels.len() {
            let counters = self.channels[channel].ledger.receive;
            self.check_counters(channel, self.now, &counters);
        }
    }

    /// At this time, or now if it has passed, that happens from outside.
    pub(crate) fn happens(&mut self, at: Instant, what: impl FnOnce(&mut Self, Instant) + 'static) {
        self.order += 1;
        self.due.insert((at.max(self.now), self.order), Box::new(what));
    }

    pub(crate) fn schedule(&mut self, host: usize, at: Instant, command: PlannedCommand) {
        self.order += 1;
        self.hosts[host].agenda.insert((at.max(self.now), self.order), command);
        self.touch(host);
    }

    /// The control thread of a host is asked for something.
    pub(crate) fn instruct(
        &mut self,
        host: usize,
        at: Instant,
        outlives_crash: bool,
        order: impl FnOnce(&mut SimulatedEnvironment<'_>, &mut HostDriver, Instant) + 'static,
    ) {
        self.schedule(host, at, PlannedCommand::Order { outlives_crash, order: Box::new(order) });
    }

    /// Something happened at this host: what it does next may have changed.
    pub(crate) fn touch(&mut self, host: usize) {
        self.coming.touch(host);
    }

    /// The next event, and its time.
    fn next(&mut self) -> Option<(Instant, NextEvent)> {
        let hosts = &self.hosts;
        self.coming.refresh(|host| {
            let Host { wire, port, .. } = &hosts[host];
            let host = &hosts[host];
            let passed = port.as_ref().and_then(EmulatedLink::next_arrival);
            [wire.next_arrival(), passed, host.next_making_way(), host.next_turn()]
        });
        let outside = self.due.first_key_value().map(|(&(at, _), _)| (at, NextEvent::Outside));
        self.coming.first().into_iter().chain(outside).min()
    }

    /// The switch: a frame from a wire to the host with its address, or into the queue of the port before it.
    fn arrive(&mut self, wire: usize) {
        let Some(at) = self.hosts[wire].wire.next_arrival() else { return };
        let Some((len, from, to)) = self.hosts[wire].wire.poll_arrival(at, &mut self.scratch) else { return };
        self.touch(wire);
        let Some(&number) = self.addresses.get(&to) else { return };
        self.touch(number);
        if let Some(port) = &mut self.hosts[number].port {
            // If there is no room, its counters say so.
            let _ = port.transmit(at, &self.scratch[..len], from, to);
            return;
        }
        self.arrived(number, at, from, len);
    }

    /// A frame has passed the port before a host.
    fn pass(&mut self, number: usize) {
        self.touch(number);
        let Some(port) = &mut self.hosts[number].port else { return };
        let Some(at) = port.next_arrival() else { return };
        if let Some((len, from, _)) = port.poll_arrival(at, &mut self.scratch) {
            self.arrived(number, at, from, len);
        }
    }

    /// A frame has come to a host, undamaged or not.
    fn arrived(&mut self, number: usize, at: Instant, from: SocketAddr, len: usize) {
        let host = &mut self.hosts[number];
        let (frame, check) = self.scratch[..len].split_at(len - CHECK_BYTES);
        if content::check_sequence(frame) == *check {
            host.receive(at, from, frame);
        } else {
            host.counters.damaged += 1;
        }
    }

    /// One turn of a host.
    fn turn(&mut self, number: usize, at: Instant) {
        if self.hosts[number].papers.is_some() {
            return self.papers_turn(number, at);
        }
        let asleep = self.hosts[number].asleep_since();
        let woken = self.hosts[number].wake(at);
        self.tell_waking(number, asleep, at);
        self.hosts[number].take_back();
        self.post(number, at);
        let Some(mut driver) = self.hosts[number].driver.take() else { return };
        let before = self.hosts[number].progress();
        let mut around = SimulatedEnvironment { world: self, number };
        if let Some(late) = woken {
            let now = around.now();
            driver.woke(now, Some(now.before(late)), false, &mut around);
        }
        if woken.is_none() && around.host().leaves() {
            driver.left = Some(around.now());
            around.host().change_threads();
            driver.enter(around.now(), &mut around);
            around.host().memory.stolen = Duration::ZERO;
        }
        let next = driver.turn(&mut around);
        let host = &mut self.hosts[number];
        host.driver = Some(driver);
        let (worked, mut again) = (host.progress() != before, false);
        if let NextTurn::Sleep(sleep) = next
            && host.is_silent()
        {
            again = sleep.until.is_some_and(|until| until <= host.local());
            host.sleep(sleep);
        }
        self.tell_gaps(number);
        self.check_progress(number, worked, again);
    }

    /// The last packet of a message was made by `end`; the buffer is free again.
    pub(crate) fn message_made(&mut self, number: usize, key: ChannelId, message: MessageBuf, end: Instant) {
        let host = &mut self.hosts[number];
        host.give_buffer(message);
        if let Some(&(channel, Side::Sender)) = host.memory.keys.get(&key) {
            self.channels[channel].ledger.made(end);
        }
    }

    /// A timer that fires without consequence is work, too, if it does not fire `again` at once.
    pub(crate) fn check_progress(&mut self, number: usize, worked: bool, again: bool) {
        self.idle_turns = if worked || !again { 0 } else { self.idle_turns + 1 };
        let host = &self.hosts[number];
        let most = if again { HUNG + host.endpoint().channels() as u32 } else { HUNG };
        assert!(self.idle_turns < most, "host {number} is woken at {:?} for nothing", host.now);
    }

    /// Puts a packet on the wire; by the link's model its transmission ends at `completes`.
    pub(crate) fn hand_over(&mut self, number: usize, packet: Transmit, completes: Instant, frames: &mut HeapFrames) {
        let host = &mut self.hosts[number];
        let bytes = &frames.packet(&packet.frame)[..packet.len];
        self.scratch[..packet.len].copy_from_slice(bytes);
        self.scratch[packet.len..][..CHECK_BYTES].copy_from_slice(&content::check_sequence(bytes));
        let frame = &self.scratch[..packet.len + CHECK_BYTES];
        let busy_until = host.wire.busy_until();
        let end = host.wire.transmit(host.now, frame, host.config.address, packet.peer);
        let end = end.expect("the wire has the room that the endpoint was told of");
        self.tell_transmission(number, &packet, busy_until, end);
        let host = &mut self.hosts[number];
        frames.free(packet.frame);
        host.counters.transmitted += 1;
        let whose = packet.message.and_then(|departed| host.memory.keys.get(&departed.channel).copied());
        if let Some(said) = &mut host.said {
            let which = if packet.message.is_some() { &mut said.data } else { &mut said.control };
            which.note(end, &self.scratch[..packet.len]);
        }
        let Some((departed, (channel, side))) = packet.message.zip(whose) else { return };
        let record = &mut self.channels[channel];
        let logical_arrival = host.clock.when(departed.logical_arrival);
        if side == Side::Sender {
            let (now, early, payload) = (host.local(), host.config.send_early, (packet.len - DATA_HEADER_BYTES) as u32);
            let problem = record.ledger.promise.and_then(|promise| {
                record.ledger.watch.departs((&record.plan, &promise.contract, early), &departed, payload, now)
            });
            let departed =
                DepartedMessage { logical_arrival, deadline: host.clock.when(departed.deadline), ..departed };
            record.departed(&departed, payload, completes, end);
            let at = host.now;
            self.saw([channel as u64, departed.sequence, u64::from(payload), end.as_nanos()]);
            if let Some(problem) = problem {
                self.find(Some(channel), at, problem);
            }
        } else if let Side::Onward(place) = side
            && departed.last
        {
            record.hops[place].departed(logical_arrival, end);
        }
    }

    /// The first channel that `request` at host `number` can mean: planned, and not begun there yet. And its side.
    pub(crate) fn asked(&mut self, number: usize, request: &PeerRequest) -> Option<(usize, Side)> {
        let peer = *self.addresses.get(&request.from.peer)?;
        let waiting = self.waiting.get_mut(&(peer, number, request.from.name))?;
        let channels = &self.channels;
        waiting.retain(|&(channel, side)| {
            let ChannelRecord { hops, ledger: Ledger { sender, receiver, .. }, .. } = &channels[channel];
            let first = if let Side::Inward(place) = side { &hops[place].onward } else { receiver };
            first.key.is_none() && !first.released && sender.end.is_none() && !sender.released
        });
        waiting.first().copied()
    }
}
