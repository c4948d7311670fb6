//! Small systems with deadlines that were not admitted, run again and again: an analysis has to bound their responses.
//!
//! One host is under test; its peer costs nothing and has no say. Its channels are open before anything counts. An *episode*
//! begins with the host at rest, takes a list of releases, and ends when all of them and all gaps are through. A [`SmallRun`] runs one
//! episode after another and tells the largest response of each channel.
//!
//! ```
//! use laxity_core::contract::{Contract, SendingStages};
//! use laxity_core::platform::Platform;
//! use laxity_core::units::Duration;
//! use laxity_sim::tiny::{SmallChannel, Release, Role, SmallSystem};
//!
//! let us = Duration::from_micros;
//! let contract = Contract::new(4096, 4096, us(50_000), 1, us(10_000)).unwrap();
//! let stages = SendingStages { processor: us(5_000), link: us(5_000) };
//! let system = SmallSystem::new(Platform::papers_table_2b(), vec![SmallChannel { stages, ..SmallChannel::new(Role::Sends, contract) }]);
//! let seen = system.bench().run(&[Release::of(0, us(0), 4096)])[0];
//! // C_sw + C_cm + C_p^1st + C_l + L_x(S)
//! assert_eq!((seen.handler, seen.end), (us(55 + 90 + 420), us(55 + 90 + 420 + 160 + 245)));
//! ```

use std::net::SocketAddr;

pub use laxity_core::admission::answer::Role;
use laxity_core::contract::{Contract, SendingStages, Service, packets};
use laxity_core::limits;
use laxity_core::platform::{BestEffort, Field, LinkModel, PARAMETERS, Platform};
use laxity_core::processor::Policy;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Upcall;

use crate::{ChannelHandle, ChannelPlan, Gap, HostConfig, HostCounters, HostId, RunCounts, StepCosts, WakeUp, World};

/// A channel of a small system.
#[derive(Clone, Copy, Debug)]
pub struct SmallChannel {
    /// The role of the host under test. It sends: the response is that of the last packet's transmission. Or it receives what the
    /// peer releases, and hands it over at once: the response is that of the handler, from the logical arrival here, which is
    /// later than the release by [`SmallSystem::ahead`]. It relays nothing.
    pub role: Role,
    /// Sizes, interval and burst; enforced. The deadline is not looked at.
    pub contract: Contract,
    /// The deadlines that the run time goes by; a channel that is received has the processor's only.
    pub stages: SendingStages,
    /// Its level under fixed priorities.
    pub priority: u8,
    /// The time beyond the least deadline that it asks admission for.
    pub slack: Duration,
    /// True if it gives back in the end what it does not need.
    pub tighten: bool,
}

impl SmallChannel {
    /// A channel without stages, of the highest level, that asks for the least deadline.
    pub fn new(role: Role, contract: Contract) -> Self {
        let stages = SendingStages::default();
        Self { role, contract, stages, priority: 0, slack: Duration::ZERO, tighten: false }
    }
}

/// A host under test and its channels.
#[derive(Clone, Debug)]
pub struct SmallSystem {
    /// Costs, link and machine of the host under test.
    pub platform: Platform,
    /// Its channels.
    pub channels: Vec<SmallChannel>,
    /// Its upcalls, below the executive.
    pub upcalls: Vec<Upcall>,
    /// Its upcalls on the executive's own thread, and how long after its release a run of each is to be done for the scheduler.
    pub trusted: Vec<(Upcall, Duration)>,
    /// True if messages may be sent on before their logical arrival.
    pub send_early: bool,
    /// The time before their logical arrival from which packets may leave then.
    pub horizon: Duration,
    /// True if messages may be reassembled before their logical arrival.
    pub receive_early: bool,
    /// The costs of its steps. If that is not always the worst, it also wakes up earlier than at worst.
    pub step_costs: StepCosts,
    /// The time before its logical arrival here at which a message that is received comes in. A host that looks at its inputs only
    /// now and then finds a frame that comes at the last moment too late for the deadline that counts from then.
    pub ahead: Duration,
    /// The order of handlers.
    pub policy: Policy,
    /// The stages that its channels change to in each episode, without the last one, which begins after that; `None` if nothing changes.
    pub change: Option<Vec<SendingStages>>,
    /// Draws what the costs leave open.
    pub seed: u64,
}

/// A message that is submitted in an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Release {
    /// The number of its channel; `None` for best effort.
    pub channel: Option<usize>,
    /// The time, from the beginning of the episode.
    #[serde(rename = "at_ns")]
    pub at: Duration,
    /// Its size.
    pub bytes: u32,
}

impl Release {
    /// A message of a channel.
    pub fn of(channel: usize, at: Duration, bytes: u32) -> Self {
        Self { channel: Some(channel), at, bytes }
    }
    /// A best-effort message.
    pub fn best_effort(at: Duration, bytes: u32) -> Self {
        Self { channel: None, at, bytes }
    }
}

/// The events of an episode.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// Messages, each within its contract.
    pub releases: Vec<Release>,
    /// The gaps of the platform: their begin and length; ascending, without overlap.
    pub gaps: Vec<(Duration, Duration)>,
    /// The time of each upcall's first release.
    pub phases: Vec<Duration>,
    /// From when on stages change, if they do.
    pub change: Duration,
}

/// The largest responses of a channel in an episode, zero if it released nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedResponses {
    /// Until the handler was done with the message: for a channel that is received, until it was handed over.
    pub handler: Duration,
    /// Until the last packet's transmission was over; for a channel that is received as above.
    pub end: Duration,
}

impl ObservedResponses {
    /// The larger one of each.
    pub fn max(self, other: Self) -> Self {
        Self { handler: self.handler.max(other.handler), end: self.end.max(other.end) }
    }
}

/// A small system that runs.
pub struct SmallRun {
    system: SmallSystem,
    world: World,
    host: HostId,
    /// Those of the system, then best effort, then one that runs before each episode, so that the episode's first handler is never
    /// the one that ran last.
    channels: Vec<ChannelHandle>,
    /// Messages that episodes released and that were through in the end, and runs of upcalls that were completed.
    pub messages: u64,
    worlds: u64,
}

/// Messages that may wait in each queue.
const BACKLOG: u32 = 128;
/// A world is as old as this at most: channels say that they are alive after 15 s, and that would disturb.
const OLDEST: Duration = Duration::from_secs(10);
/// The longest time of an episode.
const EPISODE: Duration = Duration::from_secs(2);

impl SmallSystem {
    /// A system whose messages are not sent early and cost what the platform says.
    pub fn new(platform: Platform, channels: Vec<SmallChannel>) -> Self {
        Self {
            platform,
            channels,
            upcalls: Vec::new(),
            trusted: Vec::new(),
            send_early: false,
            horizon: Duration::MAX,
            receive_early: false,
            step_costs: StepCosts::Worst,
            ahead: Duration::ZERO,
            policy: Policy::EarliestDeadline,
            change: None,
            seed: 1,
        }
    }

    /// All of its upcalls: those below the executive, then those on its thread.
    pub fn periodic(&self) -> impl Iterator<Item = &Upcall> {
        self.upcalls.iter().chain(self.trusted.iter().map(|(upcall, _)| upcall))
    }

    /// Opens the channels.
    ///
    /// # Panics
    /// If the platform cannot be, or so much is to be sent that channels cannot be opened.
    pub fn bench(&self) -> SmallRun {
        let (world, host, channels) = self.open(0);
        SmallRun { system: self.clone(), world, host, channels, messages: 0, worlds: 1 }
    }

    fn open(&self, number: u64) -> (World, HostId, Vec<ChannelHandle>) {
        let [here, there] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 7000)));
        let packet = self.platform.packet;
        let largest = self.platform.best_effort.packet_max;
        let most = packets(limits::MAX_MESSAGE_BYTES, largest).min(self.platform.best_effort.message_packets.max(1));
        let best_effort_bytes = most * largest;
        let count = self.channels.len() + 2;
        let frames: u32 =
            self.channels.iter().map(|channel| BACKLOG * packets(channel.contract.max_message(), packet)).sum::<u32>()
                + BACKLOG * (most + 1);
        let config = |platform: Platform, address| HostConfig {
            channels: count,
            frames: frames as usize + 64,
            receive_ring: 1024,
            ..HostConfig::new(platform, address)
        };
        let mut world = World::new(self.seed.wrapping_add(number));
        // The channels that only this experiment needs are there also where the system has no best effort; they say nothing.
        let mut platform = self.platform.clone();
        platform.best_effort.message_packets = platform.best_effort.message_packets.max(1);
        let tested = HostConfig {
            send_early: self.send_early,
            horizon: self.horizon,
            receive_early: self.receive_early,
            step_costs: self.step_costs,
            policy: self.policy,
            upcalls: self.upcalls.len(),
            trusted: self.trusted.len(),
            wake_up: if self.step_costs == StepCosts::Worst { WakeUp::Worst } else { WakeUp::Uniform },
            ..config(platform, here)
        };
        let host = world.add_host(tested);
        for upcall in &self.upcalls {
            world.add_upcall(host, *upcall);
        }
        for &(upcall, stage) in &self.trusted {
            world.add_trusted(host, upcall, stage);
        }
        let mut other = ideal(packet);
        // Where inputs interrupt, what is known of them is that their link needs time for each.
        if self.platform.machine.is_papers() && !self.platform.demultiplex.is_zero() {
            other.link = self.platform.link;
        }
        let peer = world.add_host(config(other, there));
        let lease = limits::MAX_INTERVAL;
        let mut handles = Vec::new();
        for (number, channel) in self.channels.iter().enumerate() {
            let service = Service::RealTime(channel.contract);
            let name = format!("c{number}");
            let sends = channel.role == Role::Sends;
            let (stages, receive, upstream) = match sends {
                true => (channel.stages, Duration::ZERO, channel.stages.total()),
                false => (SendingStages::default(), channel.stages.processor, self.ahead),
            };
            let plan = ChannelPlan {
                upstream,
                priority: channel.priority,
                lease,
                send_messages: BACKLOG,
                receive_messages: BACKLOG,
                ..ChannelPlan::new(&name, service, stages, receive)
            };
            let (from, to) = if sends { (host, peer) } else { (peer, host) };
            handles.push(world.open(from, to, plan));
        }
        for (name, bytes) in [("bulk", best_effort_bytes), ("idler", 1)] {
            let service = Service::best_effort(bytes.into(), BACKLOG.into()).expect("bytes that can be");
            let plan = ChannelPlan {
                lease,
                send_messages: BACKLOG,
                receive_messages: BACKLOG,
                ..ChannelPlan::new(name, service, SendingStages::default(), Duration::ZERO)
            };
            handles.push(world.open(host, peer, plan));
        }
        for _ in 0..100 {
            world.run_until(world.now() + Duration::from_millis(10));
            if handles.iter().all(|&handle| world.is_open(handle)) {
                break;
            }
        }
        assert!(handles.iter().all(|&handle| world.is_open(handle)), "channels that cannot be opened");
        (world, host, handles)
    }
}

/// A host that takes no time for anything.
fn ideal(packet: u32) -> Platform {
    let (table, best_effort) =
        (Platform::channels_table_2b(), BestEffort { packet_max: packet, ..BestEffort::UNLIMITED });
    let mut platform =
        Platform { packet, receive_batch: 1024, link: LinkModel::UNLIMITED, best_effort, ..table.clone() };
    for parameter in PARAMETERS.iter().filter(|parameter| parameter.is_given(&table)) {
        if let Field::Span(span) = parameter.field {
            *span(&mut platform) = Duration::ZERO;
        }
    }
    platform
}

impl SmallRun {
    /// Runs an episode of nothing but these: the largest responses of each channel in it.
    ///
    /// # Panics
    /// As [`SmallRun::run_pattern`].
    pub fn run(&mut self, releases: &[Release]) -> Vec<ObservedResponses> {
        self.run_pattern(&Pattern { releases: releases.to_vec(), ..Pattern::default() }).0
    }

    /// Runs an episode: the largest responses of each channel in it. The upcalls run from their phases on for so long that the longest period
    /// begins three times; and what the runs of each showed. If its stages change, they do as soon as may be after that instant; the last
    /// channel's first release is then.
    ///
    /// # Panics
    /// If a message is refused, because it breaks its contract, or is not through after two seconds.
    pub fn run_pattern(&mut self, pattern: &Pattern) -> (Vec<ObservedResponses>, Vec<RunCounts>) {
        let Pattern { releases, gaps, phases, change } = pattern;
        if self.world.now() > Instant::ZERO + OLDEST {
            (self.world, self.host, self.channels) = self.system.open(self.worlds);
            self.worlds += 1;
        }
        let count = self.system.channels.len();
        let (best_effort, idler) = (self.channels[count], self.channels[count + 1]);
        let platform = &self.system.platform;
        let step = platform.change_of_handler() + platform.first_packet.max(platform.upcall_step) + platform.link_cost;
        let rest = (step + platform.link.occupancy(platform.packet) + platform.wake_up) * 4;
        // What left early was ahead of its time.
        let ahead = |contract: &Contract| if self.system.send_early { contract.most_ahead() } else { Duration::ZERO };
        let until_fresh = |channel: &SmallChannel| channel.contract.interval() + ahead(&channel.contract);
        let idle = self.world.now() + self.system.channels.iter().map(until_fresh).max().unwrap_or_default();
        let start = idle + rest;
        for (number, &phase) in phases.iter().skip(self.system.upcalls.len()).enumerate() {
            self.world.run_trusted(self.host, number, start + phase);
        }
        self.world.submit_at(idle, idler, 1);
        self.world.run_until(start.before(Duration::from_nanos(1)));
        let changes = self.system.change.is_some();
        let is_new = |release: &Release| changes && release.channel.is_some_and(|number| number + 1 == count);
        for release in releases.iter().filter(|release| !is_new(release)) {
            let handle = release.channel.map_or(best_effort, |number| self.channels[number]);
            self.world.submit_at(start + release.at, handle, release.bytes);
        }
        for (number, &phase) in phases.iter().take(self.system.upcalls.len()).enumerate() {
            self.world.run_upcall(self.host, number, start + phase);
        }
        for &(at, length) in gaps {
            self.world.take_away(self.host, Gap { start: start + at, length, excess: Duration::ZERO });
        }
        self.world.take_responses(best_effort);
        if let Some(stages) = self.system.change.clone() {
            self.world.run_until(start + *change);
            self.restage(&stages);
            let begin = self.world.now();
            let own = || releases.iter().filter(|release| is_new(release));
            let first = own().map(|release| release.at).min().unwrap_or_default();
            for release in own() {
                self.world.submit_at(begin + (release.at - first), self.channels[count - 1], release.bytes);
            }
        }
        let released = |channel| releases.iter().filter(|release| release.channel == channel).count() as u64;
        let mut missing: Vec<u64> = (0..count).map(|number| released(Some(number))).collect();
        let mut seen = vec![ObservedResponses::default(); count];
        let mut others = released(None);
        self.messages += releases.len() as u64;
        let chunk = releases.iter().map(|release| release.at).max().unwrap_or(Duration::ZERO) + rest;
        while others > 0 || missing.iter().any(|&missing| missing > 0) {
            self.world.run_until(self.world.now() + chunk);
            for ((number, &handle), missing) in self.channels.iter().enumerate().zip(&mut missing) {
                let responses = self.world.take_responses(handle);
                let (count, handler, end) = match self.system.channels[number].role == Role::Sends {
                    true => (responses.sent, responses.at_handler, responses.at_sender),
                    false => (responses.delivered, responses.at_receiver, responses.at_receiver),
                };
                *missing -= count;
                seen[number] = seen[number].max(ObservedResponses { handler, end });
            }
            others -= self.world.take_responses(best_effort).sent;
            assert!(self.world.now() < start + EPISODE, "not through: {missing:?} and {others} of {releases:?}");
        }
        // A gap that no message of this episode met is not the next one's.
        let last = gaps.last().map_or(Duration::ZERO, |&(at, length)| at + length);
        self.world.run_until(self.world.now().max(start + last));
        if self.system.change.is_some() {
            let stages: Vec<SendingStages> = self.system.channels.iter().map(|channel| channel.stages).collect();
            self.restage(&stages[..count - 1]);
        }
        if phases.is_empty() {
            return (seen, Vec::new());
        }
        let longest = self.system.periodic().map(Upcall::period).max().unwrap_or_default();
        let latest = phases.iter().copied().max().unwrap_or_default();
        self.world.run_until(self.world.now().max(start + latest + longest * 3));
        let mut runs = self.world.stop_upcalls(self.host);
        runs.extend(self.world.stop_trusted(self.host));
        self.messages += runs.iter().map(|runs| runs.completed).sum::<u64>();
        (seen, runs)
    }

    /// Changes stages, and waits until only the new ones count.
    fn restage(&mut self, stages: &[SendingStages]) {
        let sends = |(place, _): &(usize, &SendingStages)| self.system.channels[*place].role == Role::Sends;
        let handles = stages.iter().enumerate().filter(sends).map(|(place, stages)| (self.channels[place], *stages));
        let begin = self.world.now();
        self.world.restage(self.host, handles);
        while !self.world.is_restaged(self.host) {
            self.world.run_until(self.world.now() + Duration::from_micros(1));
            assert!(self.world.now() < begin + EPISODE, "never at rest");
        }
    }

    /// Runs an episode and raises `largest` to what it shows.
    ///
    /// # Panics
    /// As [`SmallRun::run`].
    pub fn raise(&mut self, largest: &mut [ObservedResponses], releases: &[Release]) {
        for (largest, seen) in largest.iter_mut().zip(self.run(releases)) {
            *largest = largest.max(seen);
        }
    }

    /// The counters of the host under test since its world began.
    pub fn counters(&self) -> HostCounters {
        self.world.host_counters(self.host)
    }
}
