//! The live executive and the simulator are twins: what surrounds a live driver, on a clock that is set by hand and wires in
//! virtual time, is given the same inputs as a simulated world, and every decision of both is compared.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use laxity_core::contract::{Contract, Overload, SendingStages, Service, packets};
use laxity_core::endpoint::{Destination, SendSetup};
use laxity_core::frames::{FrameId, HeapFrames};
use laxity_core::platform::BestEffort;
use laxity_core::send::SendConfig;
use laxity_core::wire::DATA_HEADER_BYTES;
use laxity_link::emulated::EmulatedLink;
use laxity_link::{Counters, Link, LinkEvent, Received};
use laxity_sim::{ChannelHandle, ChannelPlan, Gap, HostConfig, HostId, Observation, World};
use proptest::prelude::*;

use super::*;
use crate::calibration::WindowClaims;
use crate::port::{self, ReceivePort, SendPort};

/// Bytes of the check sequence that the simulator's wires carry behind each frame.
const CHECK_BYTES: usize = 4;

/// What was decided: where, what, from when, until when. A number says of which channel, or how many bytes.
type Decision = (usize, &'static str, u64, Instant, Instant);

/// The virtual time of one live host.
#[derive(Debug)]
struct VirtualTime {
    number: usize,
    platform: Platform,
    now: Instant,
    gaps: VecDeque<Gap>,
    stolen: Duration,
    decisions: Vec<Decision>,
}

impl VirtualTime {
    fn spend(&mut self, what: &'static str, which: u64, cost: Duration) {
        let (start, mut end) = (self.now, self.now + cost);
        while let Some(gap) = self.gaps.pop_front_if(|gap| gap.start < end) {
            end += gap.length;
            self.stolen += gap.excess;
        }
        self.now = end;
        self.decisions.push((self.number, what, which, start, end));
    }
}

#[derive(Clone, Debug)]
struct ManualClock(Rc<RefCell<VirtualTime>>);

impl Clock for ManualClock {
    fn now(&mut self) -> Instant {
        self.0.borrow().now
    }
    fn after(&mut self, work: &WorkDone) -> Instant {
        let mut time = self.0.borrow_mut();
        let platform = &time.platform;
        match work.channel {
            Some(channel) => {
                let cost = platform.step(work.piece, work.switched);
                time.spend(work.piece.name(), channel.index().into(), cost);
            }
            None if work.piece == Piece::Demultiplex && work.count > 0 => {
                let cost = platform.demultiplex * work.count as u64;
                time.spend("look", 0, cost);
            }
            // The wire charges hand-overs one by one.
            None => {}
        }
        time.now
    }
    fn delayed(&mut self, _: Instant, _: Instant) -> Duration {
        Duration::ZERO
    }

    fn stolen(&mut self, _: Instant, _: Duration) -> Duration {
        std::mem::take(&mut self.0.borrow_mut().stolen)
    }
}

/// Frames that have arrived at a host and were not looked at: when, from where.
type Arrivals = Rc<RefCell<VecDeque<(Instant, SocketAddr, Vec<u8>)>>>;

/// A link over an emulated wire.
struct WireLink {
    time: Rc<RefCell<VirtualTime>>,
    address: SocketAddr,
    wire: Rc<RefCell<EmulatedLink>>,
    arrived: Arrivals,
    buffered: Vec<(FrameId, usize, SocketAddr)>,
}

impl Link for WireLink {
    fn local_address(&self) -> SocketAddr {
        self.address
    }
    fn room(&self) -> usize {
        self.wire.borrow().room(self.time.borrow().now)
    }
    fn transmit(&mut self, frame: FrameId, len: usize, peer: SocketAddr) {
        self.buffered.push((frame, len, peer));
    }
    fn buffered(&self) -> usize {
        self.buffered.len()
    }
    fn wants_writable(&self) -> bool {
        false
    }
    fn poll_event(&mut self) -> Option<LinkEvent> {
        None
    }
    /// It loses nothing.
    fn counters(&self) -> Counters {
        Counters { sent_frames: u64::MAX / 2, ..Counters::default() }
    }
}

impl LinkOver<HeapFrames> for WireLink {
    fn flush(&mut self, frames: &mut HeapFrames) -> io::Result<usize> {
        let mut time = self.time.borrow_mut();
        for (frame, len, peer) in self.buffered.drain(..) {
            let cost = time.platform.link_cost;
            time.spend("hand-over", len as u64, cost);
            let mut bytes = frames.packet(&frame)[..len].to_vec();
            bytes.extend([0; CHECK_BYTES]);
            let mut wire = self.wire.borrow_mut();
            let begin = wire.busy_until().max(time.now);
            let end = wire.transmit(time.now, &bytes, self.address, peer).expect("the wire has room");
            let number = time.number;
            time.decisions.push((number, "wire", len as u64, begin, end));
            frames.free(frame);
        }
        Ok(0)
    }

    fn rewrite(&mut self, _: &mut HeapFrames, _: impl FnMut(&mut [u8])) {}

    fn receive(
        &mut self,
        limit: usize,
        frames: &mut HeapFrames,
        mut sink: impl FnMut(Received, &mut HeapFrames),
    ) -> io::Result<usize> {
        let now = self.time.borrow().now;
        for found in 0..limit {
            let arrived = self.arrived.borrow_mut().pop_front_if(|(at, ..)| *at <= now);
            let Some((at, peer, bytes)) = arrived else { return Ok(found) };
            let frame = frames.take().expect("a frame for what arrives");
            frames.packet_mut(&frame)[..bytes.len()].copy_from_slice(&bytes);
            sink(Received { frame, len: bytes.len(), peer, tos: 0, arrived: Some(at) }, frames);
        }
        Ok(limit)
    }
}

/// A live host but for its thread.
struct LiveHost {
    time: Rc<RefCell<VirtualTime>>,
    wire: Rc<RefCell<EmulatedLink>>,
    arrived: Arrivals,
    driver: Driver<HeapFrames>,
    around: LiveEnvironment<WireLink, ManualClock>,
    commands: rtrb::Producer<ExecutiveCommand>,
    notices: rtrb::Consumer<Notice>,
    doorbell: Arc<Doorbell>,
    asleep: Option<Sleep>,
    /// Turns that it takes with nothing to do before each sleep, and has taken.
    spins: u32,
    spun: u32,
    messages: VecDeque<(Instant, usize, u32)>,
    sends: Vec<Option<SendPort>>,
    receives: Vec<(usize, ReceivePort)>,
    opened: Vec<Option<ChannelId>>,
    /// Whether the peer has accepted: nothing is sent before, as in the simulator.
    accepted: Vec<bool>,
}

impl LiveHost {
    fn new(number: usize, config: &HostConfig, endpoint: Endpoint, channels: usize) -> Self {
        let platform = config.platform.clone();
        let time = Rc::new(RefCell::new(VirtualTime {
            number,
            platform: platform.clone(),
            now: Instant::ZERO,
            gaps: config.gaps.iter().copied().collect(),
            stolen: Duration::ZERO,
            decisions: Vec::new(),
        }));
        let wire = Rc::new(RefCell::new(EmulatedLink::new(&config.wire, 1).expect("a wire")));
        let arrived = Arrivals::default();
        let link = WireLink {
            time: Rc::clone(&time),
            address: config.address,
            wire: Rc::clone(&wire),
            arrived: Rc::clone(&arrived),
            buffered: Vec::new(),
        };
        let (command_writer, commands) = rtrb::RingBuffer::new(64);
        let (notices, notice_reader) = rtrb::RingBuffer::new(1024);
        let doorbell = Arc::new(Doorbell::new(config.channels).unwrap());
        let parts = ExecutiveParts {
            platform: platform.clone(),
            channels: config.channels,
            commands,
            notices,
            doorbell: Arc::clone(&doorbell),
            published: Arc::default(),
            looped: LoopedPackets::new(OwnAddresses::One(config.address), 8),
            meter: Meter::new(Instant::ZERO, &platform, &WindowClaims::default(), None),
            waker: Arc::new(Wake::new().unwrap()),
        };
        let around = LiveEnvironment::new(ManualClock(Rc::clone(&time)), link, parts);
        let frames = HeapFrames::new(config.frames + 64, DATA_HEADER_BYTES + platform.packet as usize);
        let driver = Driver::new(Instant::ZERO, endpoint, frames, platform, Duration::ZERO);
        Self {
            time,
            wire,
            arrived,
            driver,
            around,
            commands: command_writer,
            notices: notice_reader,
            doorbell,
            asleep: None,
            spins: 0,
            spun: 0,
            messages: VecDeque::new(),
            sends: (0..channels).map(|_| None).collect(),
            receives: Vec::new(),
            opened: vec![None; channels],
            accepted: vec![false; channels],
        }
    }

    /// When it does something next by itself, and how late it wakes up for that.
    fn next_turn(&self) -> Option<(Instant, Duration)> {
        let time = self.time.borrow();
        let Some(sleep) = self.asleep else { return Some((time.now, Duration::ZERO)) };
        let arrival = self.arrived.borrow().front().map(|(at, ..)| *at).filter(|_| sleep.hears_frames);
        let message = self.messages.front().map(|&(at, ..)| at);
        let command = (!self.commands_are_empty()).then_some(time.now);
        let due = [arrival, message, sleep.until, command].into_iter().flatten().min()?;
        let wake_up = time.platform.wake_up;
        Some(if due > time.now { (due + wake_up, wake_up) } else { (time.now, Duration::ZERO) })
    }

    fn commands_are_empty(&self) -> bool {
        self.around.parts.commands.is_empty()
    }

    fn turn(&mut self, at: Instant, lateness: Duration) {
        let slept = self.asleep.take();
        if slept.is_some() {
            self.spun = 0;
        }
        let mut late = lateness;
        {
            let mut time = self.time.borrow_mut();
            let asleep = time.now;
            time.now = time.now.max(at);
            let begin = time.now;
            if slept.is_some() && begin > asleep {
                let number = time.number;
                time.decisions.push((number, "asleep", 0, asleep, begin));
            }
            let mut evidence = Duration::ZERO;
            let now = time.now;
            while let Some(gap) = time.gaps.pop_front_if(|gap| gap.start <= now) {
                if gap.start + gap.length > time.now {
                    time.now = gap.start + gap.length;
                    evidence += gap.excess;
                }
            }
            let taken = evidence.min(time.now.since(begin));
            if slept.is_some() {
                late += taken;
            } else {
                time.stolen += taken;
            }
        }
        while let Some((arrival, channel, bytes)) = self.messages.pop_front_if(|&mut (due, ..)| due <= at) {
            let Some(send) = self.sends[channel].as_mut().filter(|_| self.accepted[channel]) else { continue };
            let mut message = send.free().expect("a buffer: what is sent conforms");
            message.set_len(bytes as usize);
            send.put(laxity_drive::OutboundMessage { message, arrival, waited: Duration::ZERO });
            self.doorbell.ring(&send.port);
        }
        if slept.is_some() {
            let now = self.time.borrow().now;
            self.driver.woke(now, Some(now.before(late)), false, &mut self.around);
        }
        let next = self.driver.turn(&mut self.around);
        // Applications read at once, and give back what they read.
        for (channel, receive) in &mut self.receives {
            while let Some(inbound) = receive.pop() {
                let (sequence, completion) = (inbound.told.sequence, inbound.told.completion);
                let mut time = self.time.borrow_mut();
                let (number, which) = (time.number, (*channel as u64) << 32 | sequence);
                time.decisions.push((number, "delivered", which, completion, completion));
                receive.returned.push(inbound.message);
                self.doorbell.announce(&receive.port);
            }
        }
        match next {
            NextTurn::Sleep(sleep) if self.spun < self.spins && sleep.hears_frames => {
                self.spun += 1;
                self.driver.spins = true;
            }
            NextTurn::Sleep(sleep) if self.doorbell.is_silent() => self.asleep = Some(sleep),
            _ => {}
        }
    }

    fn command(&mut self, command: ExecutiveCommand) {
        self.commands.push(command).expect("room for a command");
    }
}

/// What both are given.
#[derive(Clone, Debug)]
struct TestScript {
    platforms: [Platform; 2],
    plans: Vec<(usize, ChannelPlan)>,
    messages: Vec<(Instant, usize, u32)>,
    gaps: Vec<(usize, Gap)>,
}

const UNTIL: Instant = Instant::from_nanos(60_000_000);

impl TestScript {
    fn configs(&self) -> [HostConfig; 2] {
        [0, 1].map(|host| {
            let address = SocketAddr::from(([10, 0, 0, 1 + host as u8], 7));
            let mut config = HostConfig::new(self.platforms[host].clone(), address);
            config.gaps = self.gaps.iter().filter(|(at, _)| *at == host).map(|&(_, gap)| gap).collect();
            config
        })
    }

    /// Every decision of the simulator.
    fn simulated(&self) -> Vec<Decision> {
        let (mut world, ids, channels) = self.world();
        let receivers = channels.into_iter().zip(self.plans.iter().map(|(from, _)| 1 - from)).collect();
        let log = Rc::new(RefCell::new(DecisionLog { ids, receivers, decisions: Vec::new() }));
        let told = Rc::clone(&log);
        world.set_observer(Box::new(move |seen| told.borrow_mut().observe(seen)));
        world.run_until(UNTIL);
        std::mem::take(&mut log.borrow_mut().decisions)
    }

    fn world(&self) -> (World, [HostId; 2], Vec<ChannelHandle>) {
        let mut world = World::new(7);
        let ids = self.configs().map(|config| world.add_host(config));
        let channels: Vec<_> =
            self.plans.iter().map(|(from, plan)| world.open(ids[*from], ids[1 - from], plan.clone())).collect();
        for &(at, channel, bytes) in &self.messages {
            world.submit_at(at, channels[channel], bytes);
        }
        (world, ids, channels)
    }

    /// Every decision of two live drivers that take so many turns before each sleep.
    fn live(&self, spins: u32) -> Vec<Decision> {
        let (world, ids, _) = self.world();
        let configs = self.configs();
        let mut hosts: Vec<_> = (0..2)
            .map(|number| {
                let mut endpoint = Endpoint::new(world.endpoint(ids[number]).config().clone());
                for (_, plan) in self.plans.iter().filter(|(from, _)| *from != number) {
                    endpoint.listen(plan.name);
                }
                let host = LiveHost::new(number, &configs[number], endpoint, self.plans.len());
                LiveHost { spins, ..host }
            })
            .collect();
        for (channel, (from, plan)) in self.plans.iter().enumerate() {
            let packet = configs[*from].platform.packet;
            let (service, overload, priority) = (plan.service, plan.overload, plan.priority);
            let config = SendConfig { service, overload, priority, packet, work_conserving: false };
            let destination = Destination { link: 0, peer: configs[1 - from].address, name: plan.name };
            let queue = plan.send_messages * packets(service.max_message(), packet);
            let upstream = plan.stages.processor + plan.stages.link;
            let pace = laxity_core::event::SenderPace {
                rate: configs[*from].platform.link.rate,
                ahead: configs[*from].look_ahead,
                spacing: configs[*from].platform.link.spacing,
            };
            let outgoing =
                SendSetup::new(destination, config, upstream, plan.lease, plan.send_messages, queue).paced(pace);
            let (send, slot) = port::sending(plan.send_messages as usize + 64, service.max_message() as usize);
            hosts[*from].sends[channel] = Some(send);
            hosts[*from].command(ExecutiveCommand::Open {
                ticket: channel as u64,
                outgoing,
                slot: Box::new(ExecutivePort::Send(slot)),
            });
        }
        for &(at, channel, bytes) in &self.messages {
            hosts[self.plans[channel].0].messages.push_back((at, channel, bytes));
        }
        loop {
            let turns = (0..2).filter_map(|host| Some((hosts[host].next_turn()?, 1, host)));
            let arrivals = (0..2).filter_map(|host| {
                let at = hosts[host].wire.borrow().next_arrival()?;
                Some(((at, Duration::ZERO), 0, host))
            });
            let Some(((at, lateness), kind, host)) =
                arrivals.chain(turns).min_by_key(|next| (next.0.0, next.1, next.2))
            else {
                break;
            };
            if at > UNTIL {
                break;
            }
            if kind == 0 {
                let mut bytes = vec![0; 1 << 12];
                let arrival = hosts[host].wire.borrow_mut().poll_arrival(at, &mut bytes);
                if let Some((len, from, _)) = arrival {
                    bytes.truncate(len - CHECK_BYTES);
                    hosts[1 - host].arrived.borrow_mut().push_back((at, from, bytes));
                }
                continue;
            }
            hosts[host].turn(at, lateness);
            self.control(&mut hosts[host]);
        }
        hosts.iter().flat_map(|host| std::mem::take(&mut host.time.borrow_mut().decisions)).collect()
    }

    /// What the control thread does about notices.
    fn control(&self, host: &mut LiveHost) {
        while let Ok(notice) = host.notices.pop() {
            match notice {
                Notice::Event(Event::Requested(request)) => {
                    let planned = self.plans.iter().position(|(_, plan)| plan.name == request.from.name).unwrap();
                    let plan = &self.plans[planned].1;
                    let incoming = plan.receiving(&request, false);
                    let (receive, slot) = port::receiving(plan.receive_messages as usize);
                    host.receives.push((planned, receive));
                    let slot = Box::new(ExecutivePort::Receive(slot));
                    host.command(ExecutiveCommand::Accept { ticket: 99, request, incoming, slot });
                }
                Notice::Installed { ticket, result: Ok(channel) } if ticket < self.plans.len() as u64 => {
                    host.opened[ticket as usize] = Some(channel);
                }
                Notice::Event(Event::Accepted { channel, .. }) => {
                    let number = host.opened.iter().position(|opened| *opened == Some(channel)).unwrap();
                    host.accepted[number] = true;
                    host.command(ExecutiveCommand::Begin { channel, stages: self.plans[number].1.stages });
                }
                Notice::Installed { result: Ok(_), .. } => {}
                Notice::Installed { result: Err(refusal), .. } => panic!("{refusal}"),
                Notice::Event(event) => panic!("{event:?}"),
                _ => panic!("a notice that no host of these tests is told"),
            }
        }
    }
}

/// What the simulator's observer is told, as decisions.
struct DecisionLog {
    ids: [HostId; 2],
    /// Each channel, and the host that receives it.
    receivers: Vec<(ChannelHandle, usize)>,
    decisions: Vec<Decision>,
}

impl DecisionLog {
    fn number(&self, host: HostId) -> usize {
        self.ids.iter().position(|id| *id == host).unwrap()
    }

    fn observe(&mut self, seen: Observation) {
        let decision = match seen {
            Observation::Worked { host, work, start, end } => {
                let (what, which) = match work {
                    laxity_sim::Activity::Step { kind, .. } => (kind.name(), u64::MAX),
                    laxity_sim::Activity::HandOver { .. } => ("hand-over", u64::MAX),
                    laxity_sim::Activity::Look => ("look", 0),
                    laxity_sim::Activity::Upcall { .. } => ("upcall", u64::MAX),
                };
                (self.number(host), what, which, start, end)
            }
            Observation::Slept { host, start, end } if end > start => (self.number(host), "asleep", 0, start, end),
            Observation::Transmitted { host, bytes, start, end, .. } => {
                (self.number(host), "wire", bytes as u64, start, end)
            }
            Observation::Delivered { channel, sequence, completion, .. } => {
                let number = self.receivers.iter().position(|(handle, _)| *handle == channel).unwrap();
                let which = (number as u64) << 32 | sequence;
                (self.receivers[number].1, "delivered", which, completion, completion)
            }
            _ => return,
        };
        self.decisions.push(decision);
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn script() -> impl Strategy<Value = TestScript> {
    let channel = (0..2usize, 1..3u32, 1..4000u32, 1..5u64, any::<bool>());
    let platform = (1..6u32, 1..4u32, 1..20u64, 0..40u64, 1..8u32);
    let message = (2_000..50_000u64, any::<prop::sample::Index>(), 1..4000u32);
    let gap = (0..2usize, 0..60_000u64, 1..3000u64);
    let platforms = [platform.clone(), platform];
    let parts = (
        platforms,
        prop::collection::vec(channel, 1..5),
        prop::collection::vec(message, 0..60),
        prop::collection::vec(gap, 0..4),
    );
    parts.prop_map(|(platforms, channels, messages, gaps)| {
        let platforms = platforms.map(|(quantum, batch, cost, wake_up, frames)| Platform {
            packet: 600,
            best_effort: BestEffort { packet_max: 600, ..Platform::assumed_host().best_effort },
            quantum,
            transmit_batch: batch,
            receive_batch: frames,
            wake_up: micros(wake_up),
            first_packet: micros(cost + 3),
            packet_cost: micros(cost),
            receive_first: micros(cost + 5),
            receive_packet: micros(cost + 1),
            ..Platform::assumed_host()
        });
        let plans: Vec<_> = channels
            .iter()
            .enumerate()
            .map(|(number, &(from, burst, most, deadline, real_time))| {
                let service = if real_time {
                    let (interval, deadline) = (micros(2000), micros(deadline * 1000));
                    Service::RealTime(Contract::new(most.into(), 1, interval, burst.into(), deadline).unwrap())
                } else {
                    Service::BestEffort { max_message: most, queue: 60 }
                };
                let stages = SendingStages { processor: micros(deadline * 300), link: micros(deadline * 300) };
                let overload = Overload::Drop;
                (
                    from,
                    ChannelPlan {
                        overload,
                        ..ChannelPlan::new(&format!("c{number}"), service, stages, micros(deadline * 400))
                    },
                )
            })
            .collect();
        let mut messages: Vec<_> = messages
            .into_iter()
            .map(|(at, channel, bytes)| {
                let channel = channel.index(plans.len());
                (Instant::ZERO + micros(at), channel, bytes.min(plans[channel].1.service.max_message()))
            })
            .collect();
        messages.sort_unstable();
        let gap = |(host, start, length)| {
            let length = micros(length);
            (host, Gap { start: Instant::ZERO + micros(start), length, excess: length })
        };
        let mut gaps: Vec<_> = gaps.into_iter().map(gap).collect();
        gaps.sort_by_key(|(_, gap)| gap.start);
        // Gaps do not overlap.
        gaps.dedup_by(|next, before| next.1.start < before.1.start + before.1.length);
        TestScript { platforms, plans, messages, gaps }
    })
}

/// In the order of time, host by host; what only one of the two can say is left out.
fn comparable(mut decisions: Vec<Decision>) -> Vec<Decision> {
    for decision in &mut decisions {
        if !matches!(decision.1, "wire" | "delivered") {
            decision.2 = 0;
        }
    }
    decisions.retain(|decision| decision.4 <= UNTIL);
    decisions.sort_by_key(|&(host, what, which, start, end)| (host, start, end, what, which));
    decisions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_live_driver_and_the_simulator_decide_the_same(script in script()) {
        let (live, simulated) = (comparable(script.live(0)), comparable(script.simulated()));
        if let Some(place) = live.iter().zip(&simulated).position(|(live, simulated)| live != simulated) {
            let from = place.saturating_sub(3);
            prop_assert!(
                false,
                "decision {place}:\nlive {:#?}\nsimulated {:#?}",
                &live[from..(place + 2).min(live.len())],
                &simulated[from..(place + 2).min(simulated.len())]
            );
        }
        prop_assert_eq!(live.len(), simulated.len());
        prop_assert!(live.iter().any(|decision| decision.1 == "hand-over"), "something happened");
        // A turn that finds nothing takes no time on this clock: a driver that spins decides the same. Not beside gaps, which delay who is
        // awake and not who sleeps through them.
        let undisturbed = TestScript { gaps: Vec::new(), ..script };
        prop_assert_eq!(comparable(undisturbed.live(3)), comparable(undisturbed.live(0)));
    }
}
