//! One host: a driver, and the script by which its surroundings behave.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use laxity_core::admission::Refusal;
use laxity_core::contract::SendingStages;
use laxity_core::endpoint::{ClockConfig, Config, Endpoint, LinkConfig, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, Name, PeerRequest};
use laxity_core::frames::FrameId;
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform, Starts};
use laxity_core::processor::Policy;
use laxity_core::units::{Duration, Instant, Rate};
use laxity_core::wire::{DATA_HEADER_BYTES, MAX_CONTROL_BYTES};
use laxity_drive::{Driver, NextTurn};

use super::super::bytes::Bytes;
use super::model::ChannelSetup;
use super::region::Region;

/// Names that every host listens on: one for each channel that may be opened in a run.
pub const NAMES: usize = 12;
/// Frames that the channels that receive best effort share.
const BEST_EFFORT_FRAMES: usize = 24;
/// Most packets that a link holds before they are flushed.
pub const LINK_HOLDS: usize = 8;
/// The time at which the world begins.
pub const START: u64 = 100_000_000_000;

/// The requests of the control plane at the beginning of a round.
pub enum Command {
    Open { outgoing: SendSetup, sent: ChannelSetup },
    Accept { request: PeerRequest, incoming: ReceiveSetup },
    Refuse { request: PeerRequest, refusal: Refusal },
    Begin { channel: ChannelId, stages: SendingStages },
    Close(ChannelId),
    Release(ChannelId),
    Stop,
}

/// A frame under way.
pub struct FrameInTransit {
    pub at: u64,
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

pub struct Link {
    pub buffered: VecDeque<(FrameId, usize, SocketAddr)>,
    /// The number of packets that it holds.
    pub capacity: usize,
    /// The number of them that the network takes at a flush.
    pub takes: usize,
    pub is_blocked: bool,
    /// Steps since it was fed.
    pub unfed: Cell<u32>,
    pub retry: Option<Duration>,
    pub inbox: VecDeque<FrameInTransit>,
    /// So many of the next packets are lost, or come twice.
    pub loses: u64,
    pub doubles: u64,
    /// The time that packets are in transit.
    pub delay: u64,
}

/// The costs and the lateness until the script changes them.
pub struct Costs {
    /// Eighths of what the platform says.
    pub scale: u64,
    /// The time of a look at the clock, ns.
    pub tick: u64,
    /// Taken at the next work, and how much of that there is evidence of, ns.
    pub stall: (u64, u64),
    /// The lateness of the ends of sleeps.
    pub lateness: u64,
}

/// A driver that sleeps.
#[derive(Clone, Copy)]
pub struct CurrentSleep {
    pub due: Option<u64>,
    pub hears_frames: bool,
}

/// The observations of a turn while it runs.
#[derive(Default)]
pub struct Turn {
    /// The time at which it began a round.
    pub obeyed: Option<u64>,
    pub stepped: bool,
    /// Links that were looked at.
    pub looked: usize,
    /// Frames that were found.
    pub found: usize,
    /// Mailboxes that had rung before, and were not asked for yet; those that were.
    pub unheard: Vec<u32>,
    pub heard: Vec<u32>,
    /// True once the checks at the first work are done.
    pub checked: bool,
    /// Something was done.
    pub effect: bool,
}

pub struct Host {
    /// Out of it during its turn.
    pub driver: Option<Driver<Region>>,
    pub platform: Platform,
    pub handover: u64,
    pub throttled: bool,
    pub now: u64,
    pub links: Vec<Link>,
    pub rung: VecDeque<u32>,
    pub commands: VecDeque<Command>,
    pub asleep: Option<CurrentSleep>,
    /// Requests and acceptances are answered at once.
    pub is_prompt: bool,
    /// Ended channels are released at once.
    pub releases: bool,
    /// The link refuses the next channels.
    pub refuses: u64,
    pub requests: Vec<PeerRequest>,
    /// Every channel that ever was here.
    pub channels: Vec<ChannelId>,
    pub costs: Costs,
    /// Packets that the link policed itself, of a place.
    pub policed: Option<(u32, u64)>,

    pub turn: Turn,
    /// True if the last turn ended at a preemption point.
    pub preempted: bool,
    /// Steps since the last look at the links, and since the last round began.
    pub unlooked: u32,
    pub unobeyed: u32,
    /// The last turn had nothing to do: the next one looks.
    pub must_look: bool,
    /// Turns without effect, one at once after the other.
    pub spinning: u32,
    /// Applications that have to be woken.
    pub owed: BTreeSet<u32>,
    /// Evidence of time that was taken and not told yet; what was told of it.
    pub evidence: u64,
    pub given: u64,
    pub told: u64,
    /// The time at which it has to stop.
    pub stops_at: Option<u64>,
    pub stopped: bool,
}

pub fn name(number: usize) -> Name {
    Name::new(&format!("c{number}")).expect("a name")
}

pub fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + host as u8], 5709))
}

impl Host {
    pub fn new(number: usize, bytes: &mut Bytes<'_>) -> Self {
        let shape = bytes.u8();
        let links = 1 + usize::from(shape & 1);
        let (channels, frames) = (2 + usize::from(shape >> 1 & 3) * 2, 16 + bytes.up_to(48) as usize);
        let platform = Platform {
            packet: 128 + u32::from(bytes.u8()) / 4,
            quantum: 1 + u32::from(shape >> 3 & 3),
            receive_batch: 1 + bytes.up_to(5) as u32,
            transmit_batch: 1 + u32::from(shape >> 5 & 3),
            wake_up: Duration::from_micros(50),
            ..Platform::assumed_host()
        };
        let more = bytes.u8();
        let handover = [0, 0, 200_000, 50_000_000][usize::from(more & 3)];
        let mut endpoint = Endpoint::new(Config {
            channels,
            frames,
            upcalls: 0,
            best_effort_frames: BEST_EFFORT_FRAMES,
            peer_clocks: ClockConfig::default(),
            packet: platform.packet,
            quantum: platform.quantum,
            policy: if more & 4 == 0 { Policy::EarliestDeadline } else { Policy::FixedPriority },
            links: (0..links).map(|_| link(bytes)).collect(),
            handover: Duration::from_nanos(handover),
            envelope: Interference::default(),
            stretch_ppm: 1_250_000,
            clock: if more & 8 == 0 { 7 } else { 8 + number as u64 },
            secret: 0x5eed + number as u128,
            key: None,
        });
        for number in 0..NAMES {
            assert!(endpoint.listen(name(number)));
        }
        let capacity = (DATA_HEADER_BYTES + platform.packet as usize).max(MAX_CONTROL_BYTES);
        // What channels may hold, what is buffered, and a frame on its way to the endpoint.
        let region = Region::new(frames + BEST_EFFORT_FRAMES + links * LINK_HOLDS + 1, capacity);
        let now = Instant::from_nanos(START);
        let mut driver = Driver::new(now, endpoint, region, platform.clone(), Duration::ZERO);
        let throttled = more & 0x30 == 0x30;
        // 1.8 ms in each window of 100.
        driver.start(now, throttled.then(|| (Duration::from_millis(20), Duration::from_millis(1000))));
        Self {
            driver: Some(driver),
            handover,
            throttled,
            now: START,
            links: (0..links).map(|_| Link::default()).collect(),
            rung: VecDeque::with_capacity(channels),
            commands: VecDeque::new(),
            asleep: None,
            is_prompt: more & 0xC0 != 0xC0,
            releases: more & 0x80 != 0,
            refuses: 0,
            requests: Vec::new(),
            channels: Vec::new(),
            costs: Costs { scale: 8, tick: 0, stall: (0, 0), lateness: 0 },
            policed: None,
            turn: Turn::default(),
            preempted: false,
            unlooked: platform.quantum,
            unobeyed: 0,
            must_look: true,
            spinning: 0,
            owed: BTreeSet::new(),
            evidence: 0,
            given: 0,
            told: 0,
            stops_at: None,
            stopped: false,
            platform,
        }
    }

    pub fn ring(&mut self, place: u32) {
        if !self.rung.contains(&place) {
            self.rung.push_back(place);
        }
    }

    /// The time at which it does something next, and true if a mailbox rang it out of its sleep; `now` is the world's time.
    pub fn next_turn(&self, now: u64) -> Option<(u64, bool)> {
        if self.stopped {
            return None;
        }
        let Some(CurrentSleep { due, hears_frames }) = self.asleep else { return Some((self.now, false)) };
        if !self.rung.is_empty() || !self.commands.is_empty() {
            return Some((now.max(self.now), true));
        }
        let arrival = self.links.iter().filter_map(|link| link.inbox.front().map(|flying| flying.at)).min();
        let can_write = self.links.iter().any(|link| link.is_blocked && link.takes > 0);
        let heard = [arrival, can_write.then_some(now)].into_iter().flatten().filter(|_| hears_frames);
        let due = due.map(|due| due + self.costs.lateness);
        heard.chain(due).min().map(|at| (at.max(self.now), false))
    }

    /// After a turn that began at `began`: what it may say comes next.
    pub fn check_next(&mut self, next: NextTurn, held: bool) {
        let driver = self.driver.as_ref().expect("it is back");
        let over = self.turn.obeyed.is_some_and(|at| self.stops_at.is_some_and(|stops_at| stops_at <= at));
        assert!(!over || next == NextTurn::Stop, "it goes on a second after it was told to stop");
        let now = self.now;
        match next {
            NextTurn::Again | NextTurn::Look(_) => {}
            NextTurn::Sleep(sleep) => {
                assert!(!self.turn.stepped, "it sleeps though there may be more to run");
                assert!(self.owed.is_empty(), "it sleeps, and has not woken {:?}", self.owed);
                let is_fed = self.links.iter().all(|link| link.unfed.get() == 0);
                assert!(is_fed, "it sleeps on packets that were not handed over");
                let until = sleep.until.map(Instant::as_nanos);
                if !sleep.hears_frames {
                    let can_rest = self.turn.found > 0 && !self.links.iter().any(|link| link.is_blocked);
                    assert!(self.throttled || self.stops_at.is_some() || can_rest, "deaf for no reason");
                    assert!(until.is_some_and(|until| until <= now + 500_000), "deaf for too long");
                }
                let retry = self.links.iter().filter(|link| link.is_blocked).filter_map(|link| link.retry).min();
                assert!(
                    retry.is_none_or(|retry| until.is_some_and(|until| until <= now + retry.as_nanos())),
                    "no timer flushes again what is blocked"
                );
            }
            NextTurn::Stop => {
                assert!(self.stops_at.is_some(), "it stops and was not told to");
                let left =
                    driver.endpoint.is_sent_out() && !held && self.links.iter().all(|link| link.buffered.is_empty());
                assert!(over || left, "it stops before everything has left");
                self.stopped = true;
            }
        }
        let at_once = match next {
            NextTurn::Again | NextTurn::Look(_) => true,
            NextTurn::Sleep(sleep) => sleep.until.is_some_and(|until| until.as_nanos() <= now),
            NextTurn::Stop => false,
        };
        self.spinning = if self.turn.effect || !at_once { 0 } else { self.spinning + 1 };
        assert!(self.spinning <= 8, "it spins for nothing: {next:?} at {now}");
        self.must_look = !self.turn.stepped;
    }
}

impl Default for Link {
    fn default() -> Self {
        Self {
            buffered: VecDeque::with_capacity(LINK_HOLDS),
            capacity: LINK_HOLDS,
            takes: usize::MAX,
            is_blocked: false,
            unfed: Cell::new(0),
            retry: None,
            inbox: VecDeque::new(),
            loses: 0,
            doubles: 0,
            delay: 20_000,
        }
    }
}

fn link(bytes: &mut Bytes<'_>) -> LinkConfig {
    let shape = bytes.u8();
    let model = match shape & 3 {
        0 => LinkModel::UNLIMITED,
        slow => LinkModel {
            setup: Duration::from_micros(10 * u64::from(slow)),
            rate: Rate::bytes_per_second(10_000_000 >> slow),
            overhead_bytes: DATA_HEADER_BYTES as u32,
            floor_bytes: 32 * u32::from(slow),
            spacing: Duration::ZERO,
        },
    };
    let policed = Starts { burst: 2, spacing: Duration::from_micros(500) };
    LinkConfig {
        model,
        look_ahead: Duration::from_micros([0, 50, 400, 5_000][usize::from(shape >> 2 & 3)]),
        horizon: Duration::from_micros([0, 0, 100, 900][usize::from(shape >> 4 & 3)]),
        best_effort: match shape >> 6 & 1 {
            0 => BestEffort::UNLIMITED,
            _ => BestEffort { message_packets: 20, packet_min: 40, packet_max: 100, starts: Some(policed) },
        },
    }
}
