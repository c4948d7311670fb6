//! A host in virtual time: an endpoint, its frames, its wire, and one processor that takes time for everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use laxity_core::admission::Admission;
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{Config, Endpoint, EndpointCounters, LinkConfig};
use laxity_core::event::ChannelId;
use laxity_core::frames::{FrameId, Frames, HeapFrames, MessageBuf};
use laxity_core::piece::Piece;
use laxity_core::receive::TimeLoss;
use laxity_core::units::{Duration, Instant};
use laxity_drive::{Driver, Sleep};
use laxity_link::emulated::{EmulatedCounters, EmulatedLink};

use crate::clock::Clock;
use crate::content::{HEADERS, Random};
use crate::fault::LastFrames;
use crate::host_config::{Gap, HostConfig, StepCosts, WakeUp, frame_capacity, region};
use crate::papers::{PapersState, link_model};
use crate::upcalls::{RunningUpcall, Thread};
use crate::{HostDriver, Side, SimulatedEnvironment};

/// Most turns of a thread that leaves before another has to go on.
const MOST_TURNS: u64 = 12;

/// The counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Frames that belonged to no channel.
    pub endpoint: EndpointCounters,
    /// Its outgoing wire.
    pub wire: EmulatedCounters,
    /// The port before it.
    pub port: EmulatedCounters,
    /// Steps of handlers.
    pub steps: u64,
    /// Of these, after another handler.
    pub switches: u64,
    /// Packets handed to the link.
    pub transmitted: u64,
    /// Frames looked at.
    pub received: u64,
    /// Frames that found the receive ring full.
    pub ring_full: u64,
    /// Frames whose check sequence was wrong.
    pub damaged: u64,
    /// Frames that came while it was down.
    pub missed: u64,
    /// Frames of floods.
    pub flooded: u64,
    /// The number of times that it went to sleep.
    pub sleeps: u64,
    /// Processor time used.
    pub busy: Duration,
}

/// What the control thread of a host is asked for.
pub(crate) type Order = Box<dyn FnOnce(&mut SimulatedEnvironment<'_>, &mut HostDriver, Instant)>;

/// The action that is due at a host at a point in time.
pub(crate) enum PlannedCommand {
    Submit {
        channel: usize,
        bytes: u32,
    },
    Emit {
        source: usize,
        messages: u32,
    },
    Order {
        /// True if it is due also if the host crashes before.
        outlives_crash: bool,
        order: Order,
    },
}

pub(crate) struct ArrivedFrame {
    pub(crate) at: Instant,
    pub(crate) peer: SocketAddr,
    pub(crate) frame: FrameId,
    pub(crate) len: usize,
}

const BETWEEN_TURNS: &str = "the driver is here between the turns of its host";

/// The application's side of a channel at a host.
#[derive(Debug, Default)]
pub(crate) struct SimulatedPort {
    /// The channel.
    pub(crate) channel: Option<usize>,
    /// Buffers that the application has read and given back.
    pub(crate) returned: Vec<MessageBuf>,
}

/// What a host loses when it crashes, beside its driver.
#[derive(Default)]
pub(crate) struct HostMemory {
    pub(crate) inbox: VecDeque<ArrivedFrame>,
    /// The sides of channels that are here.
    pub(crate) keys: BTreeMap<ChannelId, (usize, Side)>,
    /// The requests of the control thread at the next look.
    pub(crate) orders: VecDeque<Order>,
    /// Places whose mailbox has rung.
    pub(crate) rung: BTreeSet<u32>,
    /// The sleep that it is in, and the lateness of its wake-up.
    asleep: Option<(Sleep, Duration)>,
    /// The time that the platform took since the driver last asked, as far as there is evidence.
    pub(crate) stolen: Duration,
    /// It has crashed and is not there again yet.
    down: bool,
    /// Frames that found the receive ring full though it was as long as it should be.
    pub(crate) lost: u64,
    /// Buffers of messages that applications keep, by when they give them back.
    pub(crate) lent: BTreeMap<(Instant, u64), (ChannelId, MessageBuf)>,
    /// The numbers of times that it stood still, and was stepped, as far as its executive can see.
    pub(crate) clock_jumps: [u64; 2],
}

pub(crate) struct Host {
    pub(crate) config: HostConfig,
    pub(crate) memory: HostMemory,
    /// Only its own turn takes it out.
    pub(crate) driver: Option<Box<Driver<HeapFrames>>>,
    pub(crate) wire: EmulatedLink,
    pub(crate) port: Option<EmulatedLink>,
    pub(crate) agenda: BTreeMap<(Instant, u64), PlannedCommand>,
    /// The applications' side of the channels, by place.
    pub(crate) ports: Vec<SimulatedPort>,
    /// Buffers that applications use again, by capacity.
    buffers: BTreeMap<usize, Vec<MessageBuf>>,
    pub(crate) gaps: VecDeque<Gap>,
    /// Gaps that were, if that is recorded.
    pub(crate) suffered: Option<Vec<Gap>>,
    random: Random,
    /// Inline, how many turns the thread that is inside still makes before it leaves with something to do.
    turns_left: Option<u64>,
    pub(crate) clock: Clock,
    /// Until when its processor is busy, or was.
    pub(crate) now: Instant,
    /// Messages of which it was told whether they were in time.
    pub(crate) judged: u64,
    /// Frames that find a place which arrive and have not been looked at.
    pub(crate) ring: usize,
    /// Its last frames, if a flood is to be made of them.
    pub(crate) said: Option<LastFrames>,
    /// Its present work, if it is a machine of the papers.
    pub(crate) papers: Option<PapersState>,
    pub(crate) counters: HostCounters,
    /// The thread that has the processor while the executive sleeps, if there are upcalls.
    pub(crate) upcalls: Option<Thread>,
    /// Upcalls on its own thread, by number.
    pub(crate) trusted: Vec<RunningUpcall>,
    /// The change of stages that is under way.
    pub(crate) restaging: Option<Vec<(usize, SendingStages)>>,
    /// The upcalls have made way for what the executive had left.
    poked: bool,
}

/// A driver of an endpoint without channels, and as many frames as `config` says.
fn driver(config: &HostConfig, secret: u64, now: Instant) -> Option<Box<Driver<HeapFrames>>> {
    let platform = &config.platform;
    let mut endpoint = Endpoint::new(Config {
        channels: config.channels,
        frames: config.frames,
        upcalls: config.trusted,
        best_effort_frames: config.best_effort_frames,
        peer_clocks: config.peer_clocks,
        packet: platform.packet,
        quantum: platform.quantum,
        policy: config.policy,
        links: vec![LinkConfig {
            model: link_model(platform),
            look_ahead: config.look_ahead,
            // The papers' adapter knows nothing of what the processor has to do.
            horizon: if config.send_early && !config.platform.machine.is_papers() {
                config.horizon
            } else {
                Duration::ZERO
            },
            best_effort: platform.best_effort,
        }],
        // Applications do not lie here, and how long the executive leaves a message lying is what is measured.
        handover: config.handover,
        envelope: platform.interference.clone(),
        stretch_ppm: Admission::new(platform.clone()).expect("a platform that can be").stretch_ppm(),
        clock: config.clock,
        secret: secret.into(),
        key: None,
    });
    endpoint.set_preemption(config.preemption);
    let frames = HeapFrames::new(region(config), frame_capacity(platform.packet));
    Some(Box::new(Driver::new(now, endpoint, frames, platform.clone(), Duration::ZERO)))
}

impl Host {
    pub(crate) fn new(config: HostConfig, seed: u64) -> Self {
        let platform = &config.platform;
        let largest = platform.link.occupancy(platform.packet);
        let frame = platform.packet + HEADERS;
        let late = if config.wake_up == WakeUp::Worst { platform.wake_up } else { Duration::ZERO };
        assert!(config.wire.model.occupancy(frame) <= largest, "the wire is slower than the link's model");
        Self {
            memory: HostMemory::default(),
            driver: driver(&config, seed, config.reading.reading(Instant::ZERO)),
            wire: EmulatedLink::new(&config.wire, seed).expect("a wire that can be"),
            port: config.port.map(|port| EmulatedLink::new(&port, seed).expect("a port that can be")),
            agenda: BTreeMap::new(),
            ports: (0..config.channels).map(|_| SimulatedPort::default()).collect(),
            buffers: BTreeMap::new(),
            gaps: config.gaps.iter().copied().collect(),
            suffered: None,
            random: Random(!seed),
            turns_left: None,
            clock: config.reading.clone(),
            now: Instant::ZERO,
            judged: 0,
            ring: config.receive_ring,
            said: None,
            papers: PapersState::new(config.platform.machine),
            counters: HostCounters::default(),
            trusted: Vec::new(),
            restaging: None,
            upcalls: (config.upcalls > 0).then(|| Thread::new(config.upcalls, &config.platform, late)),
            poked: false,
            config,
        }
    }

    /// It loses all its state, and what it has seen of its clock; its address, its clock and what is on its wire stay.
    pub(crate) fn crash(&mut self, secret: u64) {
        self.driver = driver(&self.config, secret, self.local());
        self.papers = PapersState::new(self.config.platform.machine);
        self.memory = HostMemory { down: true, ..HostMemory::default() };
        self.ports.iter_mut().for_each(|port| *port = SimulatedPort::default());
    }

    /// Its clock is stepped. To an executive, which has no other clock, that much processor time is gone.
    pub(crate) fn step_clock(&mut self, at: Instant, by: Duration) {
        self.clock.step(at, by);
        let reading = self.clock.reading(at.max(self.now));
        self.memory.clock_jumps[1] += 1;
        if self.memory.asleep.is_none() {
            self.memory.stolen += by;
            return;
        }
        self.endpoint_mut().note_gap(reading, TimeLoss::by_platform(by));
    }

    /// Its clock stands still until `until`: from `at`, or, if what it does then was simulated already, from when that is done. The span.
    pub(crate) fn stand_still(&mut self, at: Instant, until: Instant) -> (Instant, Duration) {
        self.memory.clock_jumps[0] += 1;
        self.clock.stand_still(at.max(self.now), until)
    }

    /// It is there again.
    pub(crate) fn restart(&mut self, at: Instant) {
        (self.memory.down, self.now) = (false, self.now.max(at));
        let now = self.local();
        self.driver.as_mut().expect(BETWEEN_TURNS).start(now, None);
    }

    /// The part that decides here.
    ///
    /// # Panics
    /// During its own turn, in which the driver is told instead.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.driver.as_ref().expect(BETWEEN_TURNS).endpoint
    }

    /// See [`Host::endpoint`].
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.driver.as_mut().expect(BETWEEN_TURNS).endpoint
    }

    /// A channel's end is at this place from now on.
    pub(crate) fn attach(&mut self, key: ChannelId, channel: usize, end: Side) {
        self.memory.keys.insert(key, (channel, end));
        self.ports[key.index() as usize] = SimulatedPort { channel: Some(channel), returned: Vec::new() };
    }

    /// A side of a channel is gone.
    pub(crate) fn detach(&mut self, key: ChannelId) {
        if self.memory.keys.remove(&key).is_some() {
            self.ports[key.index() as usize] = SimulatedPort::default();
            self.memory.rung.remove(&key.index());
        }
    }

    /// Applications give buffers back.
    pub(crate) fn take_back(&mut self) {
        while let Some(entry) = self.memory.lent.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (key, message) = entry.remove();
            self.give_back(key, message);
        }
    }

    /// An application has read a message. That wakes no executive.
    pub(crate) fn give_back(&mut self, key: ChannelId, message: MessageBuf) {
        if self.memory.keys.contains_key(&key) {
            self.ports[key.index() as usize].returned.push(message);
            self.memory.rung.insert(key.index());
        }
    }

    /// True if no application and no control thread wants anything.
    pub(crate) fn is_silent(&self) -> bool {
        self.memory.rung.is_empty() && self.memory.orders.is_empty()
    }

    /// Values of which some change whenever the host does something.
    pub(crate) fn progress(&self) -> (Instant, u64, u64, u64, usize) {
        let HostCounters { steps, transmitted, received, .. } = self.counters;
        (self.now, steps, transmitted, received + self.judged, self.memory.orders.len() + self.memory.rung.len())
    }

    /// The reading of its clock.
    pub(crate) fn local(&self) -> Instant {
        self.clock.reading(self.now)
    }

    /// The time at which this host next does something by itself.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        if self.memory.down {
            return None;
        }
        if let Some(papers) = &self.papers {
            return self.next_interrupt_or_step(papers);
        }
        let Some((Sleep { until, hears_frames, .. }, lateness)) = self.memory.asleep else {
            return Some(self.now);
        };
        if self.poked {
            return Some(self.now);
        }
        let arrival = self.memory.inbox.front().map(|arrived| arrived.at).filter(|_| hears_frames);
        let command = self.agenda.first_key_value().map(|(&(at, _), _)| at);
        let timeout = until.map(|at| self.clock.when(at));
        // Room comes when a packet has left, or, on a wire that holds all that it can, when one arrives.
        let left = Some(self.wire.busy_until()).filter(|&left| left > self.now);
        let room = if self.wire.room(self.now) == 0 { left.or(self.wire.next_arrival()) } else { None };
        let due = [arrival, command, timeout, room].into_iter().flatten().min()?;
        Some(if due > self.now { due + lateness } else { self.now })
    }

    /// The processor is this host's again at `at`, or when the gap that has begun by then is over. If it slept, how late that is,
    /// as far as there is evidence.
    pub(crate) fn wake(&mut self, at: Instant) -> Option<Duration> {
        if self.memory.asleep.is_some() && !self.poked {
            self.let_upcalls_run(at);
            self.upcalls.iter_mut().for_each(Thread::preempt);
        }
        self.poked = false;
        let lateness =
            self.memory.asleep.take().map(|(_, lateness)| if at > self.now { lateness } else { Duration::ZERO });
        self.now = self.now.max(at);
        let begin = self.now;
        let mut evidence = Duration::ZERO;
        while let Some(gap) = self.gaps.pop_front_if(|gap| gap.start <= self.now) {
            self.note_suffered(gap);
            let end = gap.start + gap.length;
            if end > self.now {
                self.now = end;
                evidence += gap.excess;
            }
        }
        let taken = evidence.min(self.now.since(begin));
        if lateness.is_none() {
            self.memory.stolen += taken;
        }
        lateness.map(|lateness| lateness + taken)
    }

    pub(crate) fn note_suffered(&mut self, gap: Gap) {
        if let Some(suffered) = &mut self.suffered {
            suffered.push(gap);
        }
    }

    /// Since when it sleeps, if it does.
    pub(crate) fn asleep_since(&self) -> Option<Instant> {
        self.memory.asleep.map(|_| self.now)
    }

    /// The executive sleeps until `until`, at least.
    pub(crate) fn let_upcalls_run(&mut self, until: Instant) {
        let Self { upcalls: Some(thread), memory: HostMemory { asleep: Some(_), .. }, gaps, now, .. } = self else {
            return;
        };
        thread.advance(*now, until, gaps);
    }

    /// The time at which the upcalls may be done, if the executive waits for that.
    pub(crate) fn next_making_way(&self) -> Option<Instant> {
        let (sleep, _) = self.memory.asleep.as_ref()?;
        let thread = self.upcalls.as_ref().filter(|_| sleep.is_held && !self.poked)?;
        thread.next_event(self.now)
    }

    /// If the upcalls are done at `at`, the executive goes on with what it had left.
    pub(crate) fn make_way(&mut self, at: Instant) {
        self.let_upcalls_run(at);
        if self.upcalls.as_ref().is_some_and(|thread| !thread.is_ready(at)) {
            (self.poked, self.now) = (true, self.now.max(at));
        }
    }

    pub(crate) fn sleep(&mut self, sleep: Sleep) {
        self.counters.sleeps += 1;
        self.memory.asleep = Some((sleep, self.lateness()));
        self.turns_left = self.config.inline.then(|| {
            let most = self.random.up_to(MOST_TURNS);
            self.random.up_to(most)
        });
    }

    /// The lateness of the next thread that is woken.
    fn lateness(&mut self) -> Duration {
        let worst = self.config.platform.wake_up;
        let worst = if self.config.inline { worst.mul_ratio(1, 2) } else { worst };
        match self.config.wake_up {
            WakeUp::Worst => worst,
            WakeUp::Uniform => Duration::from_nanos(self.random.up_to(worst.as_nanos())),
        }
    }

    /// True if the thread that does the executive's work leaves before this turn.
    pub(crate) fn leaves(&mut self) -> bool {
        let leaves = self.turns_left == Some(0);
        self.turns_left = self.turns_left.and_then(|left| left.checked_sub(1));
        leaves
    }

    /// It has left, until another one has woken up.
    pub(crate) fn change_threads(&mut self) {
        let late = self.lateness();
        self.pass(late);
    }

    /// Takes `cost` of processor time, and whatever the platform takes in between.
    pub(crate) fn spend(&mut self, cost: Duration) {
        self.counters.busy += cost;
        self.pass(cost);
    }

    fn pass(&mut self, span: Duration) {
        let mut end = self.now + span;
        while let Some(gap) = self.gaps.pop_front_if(|gap| gap.start < end) {
            self.note_suffered(gap);
            end += gap.length;
            self.memory.stolen += gap.excess;
        }
        self.now = end;
    }

    /// The cost of a step; the step that completes a message pays for its first packet.
    pub(crate) fn step_cost(&mut self, piece: Piece, switched: bool) -> Duration {
        self.counters.steps += 1;
        self.counters.switches += u64::from(switched);
        self.drawn(self.config.platform.step(piece, switched))
    }

    /// The time of work that costs so much at worst.
    pub(crate) fn drawn(&mut self, cost: Duration) -> Duration {
        match self.config.step_costs {
            StepCosts::Worst => cost,
            StepCosts::From { least_permille } => {
                let spread = u64::from(1000 - least_permille.min(1000));
                cost.mul_ratio(1000 - self.random.up_to(spread), 1000)
            }
        }
    }

    /// A buffer for a message of `bytes` bytes. Capacities are powers of two, so that sizes that differ share buffers.
    pub(crate) fn take_buffer(&mut self, bytes: usize) -> MessageBuf {
        let capacity = bytes.next_power_of_two();
        let free = self.buffers.get_mut(&capacity).and_then(Vec::pop);
        let mut buffer = free.unwrap_or_else(|| MessageBuf::with_capacity(capacity));
        buffer.set_len(bytes);
        buffer
    }

    /// The buffer is free again.
    pub(crate) fn give_buffer(&mut self, buffer: MessageBuf) {
        self.buffers.entry(buffer.capacity()).or_default().push(buffer);
    }

    /// A frame arrives at the host, whatever its executive does.
    pub(crate) fn receive(&mut self, at: Instant, peer: SocketAddr, bytes: &[u8]) {
        if self.memory.down {
            self.counters.missed += 1;
            return;
        }
        let frames = &mut self.driver.as_mut().expect(BETWEEN_TURNS).frames;
        let full = self.memory.inbox.len() >= self.ring || bytes.len() > frames.packet_capacity();
        match if full { None } else { frames.take() } {
            Some(frame) => {
                frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
                self.memory.inbox.push_back(ArrivedFrame { at, peer, frame, len: bytes.len() });
            }
            None => {
                self.counters.ring_full += 1;
                // A ring that a fault made small is the way's.
                self.memory.lost += u64::from(self.ring == self.config.receive_ring);
            }
        }
    }

    /// The number of frames that should be free or wait to be looked at, and the number that do, if some are missing once no channel is left.
    pub(crate) fn missing_frames(&self) -> Option<(usize, usize)> {
        let driver = self.driver.as_ref()?;
        let found = driver.frames.available() + self.memory.inbox.len();
        let expected = region(&self.config);
        (driver.endpoint.channels() == 0 && found != expected).then_some((expected, found))
    }
}
