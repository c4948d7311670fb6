//! Many hosts, each with many admitted channels across relays: what it costs, and that every promise is kept there, too.
//!
//! All hosts are alike: a server of today on a gigabit. Channel k of every host goes to the host so many places further on, through
//! two in between, by offsets that the seed draws; so each host sends `channels`, passes on twice as many and receives as many as it
//! sends. Each host on the path admits, with the least that it needs: nothing is left over anywhere.

use std::net::SocketAddr;

use laxity_core::admission::Admission;
use laxity_core::contract::{Contract, packets};
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform};
use laxity_core::units::{Duration, Rate};
use serde::{Serialize, Serializer};

use crate::route::{GrantedRoute, admit};
use crate::{ChannelHandle, HostConfig, HostId, Random, Source, World};

/// The parameters of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleRun {
    /// Hosts; at least [`ScaleRun::LEAST_HOSTS`], at most [`ScaleRun::MOST_HOSTS`].
    pub hosts: usize,
    /// Channels that each of them sends; at most [`ScaleRun::MOST_CHANNELS`].
    pub channels: usize,
    /// The time for which they send, in virtual time.
    pub span: Duration,
    /// Of offsets, contracts and phases.
    pub seed: u64,
}

/// The outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScaleOutcome {
    /// Channels that all four hosts of their routes admitted.
    pub admitted: u64,
    /// Channels that one of them refused.
    pub refused: u64,
    /// Admitted channels that did not come to be open.
    pub unopened: u64,
    /// Messages.
    pub sent: u64,
    /// Of these, delivered.
    pub delivered: u64,
    /// Delivered late.
    pub late: u64,
    /// Lost.
    pub lost: u64,
    /// Dropped.
    pub dropped: u64,
    /// Messages after their bound, though in time.
    pub over_bound: u64,
    /// Messages that left a relay after its stage.
    pub late_at_relays: u64,
    /// The findings of the checkers, beside those that are counted here.
    pub findings: u64,
    /// Packets' payload that relays handed on, bytes.
    pub relayed_bytes: u64,
    /// The largest latency of a channel by its deadline, in parts per million.
    #[serde(rename = "latency_by_deadline_ppm")]
    pub latency_by_deadline: u64,
    /// The largest response at a relay by its stage, in parts per million.
    #[serde(rename = "response_by_stage_ppm")]
    pub response_by_stage: u64,
    /// Steps of handlers, frames that were looked at, packets that were handed over.
    pub events: u64,
    /// Of every channel's figures.
    #[serde(serialize_with = "hex")]
    pub digest: u64,
}

fn hex<S: Serializer>(digest: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{digest:016x}"))
}

impl ScaleOutcome {
    /// Promises that were not kept.
    pub fn violations(&self) -> u64 {
        self.late + self.lost + self.dropped + self.over_bound + self.late_at_relays + self.unopened + self.findings
    }

    fn add(&mut self, world: &World, handle: ChannelHandle, granted: &GrantedRoute, hosts: &[HostId]) {
        let figures = world.report(handle).figures;
        self.sent += figures.sent;
        self.delivered += figures.delivered;
        self.late += figures.late;
        self.lost += figures.lost;
        self.dropped += figures.dropped;
        self.over_bound += figures.over_bound;
        let part = |part: Duration, whole: Duration| part.mul_ratio(1_000_000, whole.as_nanos().max(1)).as_nanos();
        let largest = figures.response.unwrap_or(Duration::ZERO);
        self.latency_by_deadline = self.latency_by_deadline.max(part(largest, granted.contract.deadline()));
        let mut seen = [figures.sent, figures.delivered, largest.as_nanos(), 0];
        for (hop, planned) in world.hops(handle).iter().zip(granted.hops(hosts)) {
            self.relayed_bytes += hop.counters.passed_bytes;
            self.late_at_relays += hop.counters.late;
            self.response_by_stage = self.response_by_stage.max(part(hop.response, planned.passage.stage));
            seen[3] += hop.response.as_nanos();
        }
        for number in seen {
            self.digest = Random(self.digest ^ number).next();
        }
    }
}

/// The phase of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Channels are admitted.
    Admitting,
    /// They are opened, hop by hop.
    Opening,
    /// They send; counted in milliseconds.
    Sending,
    /// They are closed, and everything is checked.
    Closing,
}

/// Is told how far each phase is: how much of how much is done.
type Tell<'a> = dyn FnMut(Phase, u64, u64) + 'a;

/// Channels of a host that are opened at the same time: a host keeps a bounded number of requests.
const AT_ONCE: usize = 12;
/// The time that it takes.
const OPENING: Duration = Duration::from_millis(30);
const LEASE: Duration = Duration::from_secs(20);

impl ScaleRun {
    /// A route has four hosts, with three ways between them that differ.
    pub const LEAST_HOSTS: usize = 8;
    /// As many as have addresses.
    pub const MOST_HOSTS: usize = 1 << 16;
    /// So that the six sides that a host has of them fit an endpoint.
    pub const MOST_CHANNELS: usize = 10_000;

    /// Simulates it. `tell` is told how far each phase is: how much of how much is done.
    ///
    /// # Panics
    /// If a number is out of range, and as [`World`] does.
    pub fn run(&self, tell: &mut dyn FnMut(Phase, u64, u64)) -> ScaleOutcome {
        assert!((Self::LEAST_HOSTS..=Self::MOST_HOSTS).contains(&self.hosts), "hosts: {}", self.hosts);
        assert!((1..=Self::MOST_CHANNELS).contains(&self.channels), "channels: {}", self.channels);
        let mut outcome = ScaleOutcome::default();
        let granted = self.admit(&mut outcome, tell);
        let mut world = World::new(self.seed);
        world.collect_findings();
        let hosts = self.add_hosts(&mut world, &granted);
        let handles = open(&mut world, &hosts, &granted, tell);
        self.send(&mut world, &granted, &handles, tell);
        tell(Phase::Closing, 0, 1);
        let open: Vec<bool> = handles.iter().map(|&handle| world.is_open(handle)).collect();
        world.finish();
        let (findings, more) = world.findings();
        outcome.findings = findings.len() as u64 + more;
        outcome.unopened = open.iter().filter(|&&open| !open).count() as u64;
        for (handle, granted) in handles.into_iter().zip(granted.iter().flatten()) {
            outcome.add(&world, handle, granted, &hosts);
        }
        for &host in &hosts {
            let counters = world.host_counters(host);
            outcome.events += counters.steps + counters.received + counters.transmitted;
        }
        tell(Phase::Closing, 1, 1);
        outcome
    }

    /// Channel k of every host, then channel k + 1 of every host.
    fn admit(&self, outcome: &mut ScaleOutcome, tell: &mut Tell<'_>) -> Vec<Vec<GrantedRoute>> {
        let admission = Admission::new(platform()).expect("a platform that can be");
        let mut admissions = vec![admission; self.hosts];
        let mut random = Random(self.seed);
        let mut granted = Vec::with_capacity(self.channels);
        for channel in 0..self.channels {
            tell(Phase::Admitting, channel as u64, self.channels as u64);
            let offsets = offsets(self.hosts, &mut random);
            let traffic = traffic(&mut random);
            let mut of_hosts = Vec::with_capacity(self.hosts);
            for from in 0..self.hosts {
                let route = offsets.map(|offset| (from + offset) % self.hosts);
                match admit(&mut admissions, &route, &traffic, None) {
                    Ok(granted) => of_hosts.push(granted),
                    Err(_) => outcome.refused += 1,
                }
            }
            outcome.admitted += of_hosts.len() as u64;
            granted.push(of_hosts);
        }
        granted
    }

    fn add_hosts(&self, world: &mut World, granted: &[Vec<GrantedRoute>]) -> Vec<HostId> {
        let platform = platform();
        // What each host needs for its queues: the simulator gives it no more.
        let mut frames = vec![0; self.hosts];
        for granted in granted.iter().flatten() {
            let in_message = packets(granted.contract.max_message(), platform.packet);
            let plan = granted.plan("frames");
            let messages =
                [plan.send_messages, granted.relay_messages(1), granted.relay_messages(2), plan.receive_messages];
            for (&host, messages) in granted.route.iter().zip(messages) {
                frames[host] += (messages.max(2) * in_message) as usize;
            }
        }
        let add = |(number, frames): (usize, usize)| {
            let [high, low] = (number as u16).to_be_bytes();
            let address = SocketAddr::from(([10, 2, high, low], 7000));
            let channels = 6 * self.channels;
            let mut config =
                HostConfig { channels, frames, receive_ring: 512, ..HostConfig::new(platform.clone(), address) };
            (config.wire.queue_packets, config.wire.capacity) = (64, 256);
            world.add_host(config)
        };
        frames.into_iter().enumerate().map(add).collect()
    }

    fn send(&self, world: &mut World, granted: &[Vec<GrantedRoute>], handles: &[ChannelHandle], tell: &mut Tell<'_>) {
        let mut random = Random(!self.seed);
        let start = world.now();
        for (&handle, granted) in handles.iter().zip(granted.iter().flatten()) {
            let phase = Duration::from_nanos(random.up_to(granted.contract.interval().as_nanos()));
            let source = Source::full(handle, &granted.contract, start + phase);
            world.add_source(Source { until: start + self.span, ..source });
        }
        let whole = self.span.as_nanos() / 1_000_000;
        for done in 0..whole {
            tell(Phase::Sending, done, whole);
            world.run_until(start + Duration::from_millis(done));
        }
        // And what is still under way then.
        let longest = granted.iter().flatten().map(|granted| granted.contract.deadline()).max();
        world.run_until(start + self.span + longest.unwrap_or(Duration::ZERO) * 2);
    }
}

/// Opens them, some of each host at a time.
fn open(world: &mut World, hosts: &[HostId], granted: &[Vec<GrantedRoute>], tell: &mut Tell<'_>) -> Vec<ChannelHandle> {
    let (platform, mut handles) = (platform(), Vec::new());
    for (round, granted) in granted.chunks(AT_ONCE).enumerate() {
        tell(Phase::Opening, (round * AT_ONCE) as u64, (round * AT_ONCE + granted.len()) as u64);
        for (channel, of_hosts) in granted.iter().enumerate() {
            let name = format!("c{}", round * AT_ONCE + channel);
            for granted in of_hosts {
                let plan = crate::ChannelPlan { lease: LEASE, ..granted.plan(&name) };
                let (from, to) = (hosts[granted.route[0]], hosts[granted.route[3]]);
                let handle = world.open_via(from, &granted.hops(hosts), to, plan);
                world.promise(handle, granted.promise(&platform));
                handles.push(handle);
            }
        }
        world.run_until(world.now() + OPENING);
    }
    // A frame that found its queue full is sent again.
    world.run_until(world.now() + Duration::from_secs(1));
    handles
}

/// A server of today: a gigabit, about a microsecond a packet.
fn platform() -> Platform {
    let micros = Duration::from_micros;
    let nanos = Duration::from_nanos;
    Platform {
        packet: 1000,
        quantum: 8,
        switch: nanos(300),
        cache: nanos(700),
        first_packet: micros(2),
        packet_cost: micros(1),
        receive_first: micros(2),
        receive_packet: micros(1),
        demultiplex: nanos(200),
        receive_batch: 8,
        link_cost: nanos(500),
        link: LinkModel {
            setup: Duration::ZERO,
            rate: Rate::bytes_per_second(125_000_000),
            overhead_bytes: 138,
            floor_bytes: 400,
            spacing: Duration::ZERO,
        },
        wake_up: micros(20),
        handover: Duration::ZERO,
        propagation: micros(10),
        best_effort: BestEffort { message_packets: 4, packet_min: 1, packet_max: 1000, starts: None },
        interference: Interference::default(),
        ..Platform::assumed_host()
    }
}

/// The host itself, and three others in the order in which they are on the path. No two paths are equally long: so a name means
/// one channel between any two hosts.
fn offsets(hosts: usize, random: &mut Random) -> [usize; 4] {
    loop {
        let ways = [0; 3].map(|_: usize| 1 + random.up_to(hosts as u64 - 2) as usize);
        let offsets = [0, ways[0], (ways[0] + ways[1]) % hosts, (ways[0] + ways[1] + ways[2]) % hosts];
        let differ = |numbers: &[usize]| (1..numbers.len()).all(|place| !numbers[..place].contains(&numbers[place]));
        if differ(&ways) && differ(&offsets) {
            return offsets;
        }
    }
}

/// Up to three packets every 100 to 500 ms.
fn traffic(random: &mut Random) -> Contract {
    let size = 100 + random.up_to(2_900);
    let interval = Duration::from_millis(100 + random.up_to(400));
    let (smallest, burst) = (1 + random.up_to(size - 1), 1 + random.up_to(1));
    Contract::new(size, smallest, interval, burst, Duration::from_millis(100)).expect("within the limits")
}
