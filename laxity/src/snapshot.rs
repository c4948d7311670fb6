//! Everything that a host counts, in one structure.
//!
//! It serializes to JSON with stable keys: integers in nanoseconds, bytes and bytes per second; unknown values are `null`; every key is
//! always present.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use laxity_core::admission::Utilisation;
use laxity_core::contract::{Contract, Service};
use laxity_core::endpoint::{EndpointCounters, PeerPremises};
use laxity_core::event::End;
use laxity_core::figures::{Figures, Misses};
use laxity_core::send::SendCounters;
use laxity_core::units::Duration;
use laxity_core::wire::MessageCounts;
use laxity_link::Counters;
use laxity_link::xdp::{EarlyFigures, XdpStatus};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::calibration::Premises;
use crate::channel_executive::ChannelExecutive;
use crate::grant::Grant;
use crate::link::DropAllowance;
use crate::port::Port;
use crate::sender::ChannelWatch;
use crate::sync::locked;

pub use crate::calibration::watch::Gaps;
pub use laxity_link::xdp::EarlyDrops;

/// Everything that a host counts, as of one call of [`Host::snapshot`](crate::Host::snapshot).
///
/// ```
/// # use laxity::{Host, HostConfig, Platform};
/// # let host = Host::start(HostConfig::emulated(Platform::assumed_host())).unwrap();
/// let snapshot = host.snapshot();
/// for channel in &snapshot.channels {
///     println!("{}: {} messages delivered, {} missed", channel.figures.name, channel.figures.delivered, channel.figures.misses.all());
/// }
/// // With the crate `serde_json`:
/// println!("{}", serde_json::to_string(&snapshot).unwrap());
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// The channels of this process that are open, or whose sender or receiver still exists, in the order of opening. If the process of the
    /// executive was killed, they have the figures that it published last; [`Sender::snapshot`](crate::Sender::snapshot) and
    /// [`Receiver::snapshot`](crate::Receiver::snapshot) know more.
    pub channels: Vec<ChannelSnapshot>,
    /// The link's counters; `None` if the executive is in another process.
    pub link: Option<Counters>,
    /// The early demultiplexer of the interface; `None` with a UDP socket.
    pub early: Option<EarlySnapshot>,
    /// Counts of frames that belonged to no channel or were not genuine, as of the executive's last sleep; `None` if the executive is in
    /// another process.
    pub frames: Option<EndpointCounters>,
    /// The premises of the bounds, as the executive saw them until its last sleep.
    pub premises: Premises,
    /// Rounds of the executive that took longer than the platform's figures allow.
    pub gaps: Gaps,
    /// The long-run shares of processor and link that admitted channels take; `None` if the executive is in another process.
    pub utilisation: Option<Utilisation>,
}

/// The direction of a channel, as its host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The host sends its messages.
    Sends,
    /// The host receives its messages.
    Receives,
}

/// One channel of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSnapshot {
    /// The direction: this host sends or receives.
    pub direction: Direction,
    /// The other host.
    pub peer: SocketAddr,
    /// The channel's figures. At a sender, `delivered` and the fields after it are known only once the channel is closed: the receiver
    /// reports them then.
    pub figures: Figures,
    /// True if the misses are known by cause: always at a receiver; at a sender once the channel is closed and the receiver has reported.
    pub misses_known: bool,
}

impl Serialize for ChannelSnapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            direction: Direction,
            peer: SocketAddr,
            #[serde(flatten)]
            figures: ChannelFigures<'a>,
        }
        let Self { direction, peer, ref figures, misses_known: has_causes } = *self;
        let figures = ChannelFigures { figures, has_causes };
        Fields { direction, peer, figures }.serialize(serializer)
    }
}

impl ChannelSnapshot {
    /// A sending channel; its receiver has told a report if it ended so. Messages that may be lost with an executive (`unresolved`) count as lost,
    /// by Laxity's fault; those that the report of a closed channel leaves out count as lost, unexplained.
    pub(crate) fn of_sender(grant: &Grant, counters: &SendCounters, end: Option<End>, unresolved: u64) -> Self {
        let report = if let Some(End::Closed { report }) = end { report } else { None };
        let contract = grant.service.contract();
        let mut figures = Figures {
            name: grant.name.clone(),
            best_effort: matches!(grant.service, Service::BestEffort { .. }),
            sent: counters.accepted,
            lost: unresolved,
            misses: Misses { laxity: unresolved, ..Misses::default() },
            deadline: contract.map(Contract::deadline),
            bound: grant.deadline,
            ..Figures::default()
        };
        if let Some(report) = report {
            let MessageCounts { late, lost, dropped, undecided, clock_error, misses, over_bound, .. } = report;
            figures = Figures { late, lost, dropped, undecided, clock_error, misses, over_bound, ..figures };
            figures.delivered = report.delivered + late + undecided;
            figures.response = Some(report.largest);
            if !figures.best_effort {
                figures.lost += figures.sent.saturating_sub(figures.delivered + figures.lost + figures.dropped);
                figures.misses.unexplained +=
                    (figures.late + figures.lost + figures.dropped).saturating_sub(report.misses.all());
            }
        }
        Self { direction: Direction::Sends, peer: grant.peer, figures, misses_known: report.is_some() }
    }
}

/// The figures of one channel, as all commands print them.
#[derive(Clone, Copy, Debug)]
pub struct ChannelFigures<'a> {
    figures: &'a Figures,
    /// False if the causes of misses are left out.
    has_causes: bool,
}

impl<'a> From<&'a Figures> for ChannelFigures<'a> {
    fn from(figures: &'a Figures) -> Self {
        Self { figures, has_causes: true }
    }
}

impl ChannelFigures<'_> {
    /// Returns the same figures without the causes of misses (`null`).
    #[must_use]
    pub fn without_causes(self) -> Self {
        Self { has_causes: false, ..self }
    }
}

impl Serialize for ChannelFigures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { figures, has_causes } = *self;
        // The receiver's knowledge of the sender's clock: its own, known up to an error, or unknown.
        let relation = match figures.clock_error {
            Some(Duration::ZERO) => "same",
            Some(_) => "estimated",
            None => "unknown",
        };
        let latencies = figures.latencies;
        json!({
            "name": figures.name,
            "kind": if figures.best_effort { "best-effort" } else { "real-time" },
            "sent": figures.sent,
            "delivered": figures.delivered,
            "late": figures.late,
            "lost": figures.lost,
            "dropped": figures.dropped,
            "misses": has_causes.then_some(figures.misses),
            "over_bound": figures.over_bound,
            "undecided": figures.undecided,
            "clock": { "relation": relation, "error_ns": figures.clock_error },
            "deadline_ns": figures.deadline,
            "bound_ns": figures.bound,
            "response_max_ns": figures.response,
            "min_ns": latencies.min,
            "p50_ns": latencies.p50,
            "p99_ns": latencies.p99,
            "p999_ns": latencies.p999,
            "max_ns": latencies.max,
        })
        .serialize(serializer)
    }
}

/// The early demultiplexer of an interface: the program that judges frames before they reach the host.
#[derive(Clone, Debug, Serialize)]
pub struct EarlySnapshot {
    /// The interface that is driven.
    pub interface: String,
    /// `native` or `generic`.
    pub mode: String,
    /// True if the device itself reads and writes the frames (zero copy).
    pub zero_copy: bool,
    /// The interface's receive queues when it was opened.
    pub queues: u32,
    /// Its receive queues now. Queues beyond `queues` are not policed.
    pub queues_now: u32,
    /// True if the interface or its program is gone, so that the link is a UDP socket now.
    pub is_gone: bool,
    /// Frames that were left to the kernel.
    pub passed: u64,
    /// Frames that were given to the socket of their class.
    pub taken: u64,
    /// Frames that were dropped, by reason.
    pub dropped: EarlyDrops,
    /// Frames that were lost because as many as may wait already waited, by class.
    pub full: ByClass,
    /// Frames that were lost because the kernel had no free frame.
    pub no_frame: u64,
    /// The cost of dropping one frame in the program, measured at the start.
    #[serde(rename = "drop_cost_ns")]
    pub drop_cost: Duration,
    /// The cost of one drop in the bounds: `drop_cost`, and the time that driver and kernel take; `None` if bounds contain none.
    #[serde(rename = "allowed_drop_cost_ns")]
    pub allowed_drop_cost: Option<Duration>,
    /// The time that dropping took, by the cost in the bounds, or the measured one if bounds have none.
    #[serde(rename = "dropping_ns")]
    pub dropping: Duration,
    /// The largest rate of drops, in frames a second, measured over about a tenth of a second.
    pub most_dropped_per_second: u64,
    /// The rate of drops, in frames a second, that the bounds allow for.
    pub allowed_dropped_per_second: Option<u64>,
}

/// Frames by the class of their channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByClass {
    /// Frames of real-time channels.
    pub real_time: u64,
    /// Control frames.
    pub control: u64,
    /// Frames of best-effort channels.
    pub best_effort: u64,
}

impl EarlySnapshot {
    pub(crate) fn new(status: &XdpStatus, allowed: DropAllowance) -> Self {
        let opened = &status.opened;
        let EarlyFigures { passed, taken, dropped, full, most_dropped_per_second, no_frame } = status.early();
        let [real_time, control, best_effort] = full;
        Self {
            interface: opened.interface.clone(),
            mode: opened.mode.to_string(),
            zero_copy: opened.zero_copy,
            queues: opened.queues,
            queues_now: status.queues(),
            is_gone: status.is_gone(),
            passed,
            taken,
            dropped,
            full: ByClass { real_time, control, best_effort },
            no_frame,
            drop_cost: opened.drop_cost,
            allowed_drop_cost: Some(allowed.cost),
            dropping: allowed.cost * dropped.all(),
            most_dropped_per_second,
            allowed_dropped_per_second: Some(allowed.frames_per_second),
        }
    }

    /// The cost of one drop by which `dropping` is computed.
    pub fn cost(&self) -> Duration {
        self.allowed_drop_cost.unwrap_or(self.drop_cost)
    }
}

/// The premises about a peer with another clock, under the name by which a report calls it.
#[derive(Clone, Debug, Serialize)]
pub struct PeerReport<'a> {
    peer: &'a str,
    round_trip_ns: Duration,
    error_ns: Duration,
    by_wall_clocks: bool,
    network: u64,
    clock: u64,
}

impl<'a> PeerReport<'a> {
    /// Those of `watched`, called `name`.
    pub fn new(watched: &PeerPremises, name: &'a str) -> Self {
        Self {
            peer: name,
            round_trip_ns: watched.round_trip,
            error_ns: watched.error,
            by_wall_clocks: watched.by_wall_clocks,
            network: watched.network.count,
            clock: watched.clock.count,
        }
    }
}

impl Serialize for Premises {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let windows = self.windows.iter().filter(|window| window.is_counted_on || window.windows > 0);
        let windows = windows.map(|watched| {
            let mut of = json!(watched);
            of["withdrawn"] = watched.is_withdrawn().into();
            of
        });
        let overruns = self.overruns().map(|(kind, of)| {
            let kind = kind.name();
            json!({ "kind": kind, "count": of.count, "largest_ns": of.largest })
        });
        let peers = self.peers.iter().map(|of| json!(PeerReport::new(of, &of.peer.to_string())));
        let [windows, overruns, peers]: [Value; 3] = [windows.collect(), overruns.collect(), peers.collect()];
        json!({ "windows": windows, "overruns": overruns, "peers": peers }).serialize(serializer)
    }
}

/// The channels that a process has opened or accepted at a host, for [`Snapshot::channels`].
#[derive(Default)]
pub(crate) struct ChannelList(Mutex<Vec<ListedChannel>>);

#[derive(Clone)]
struct ListedChannel {
    direction: Direction,
    /// Gone when neither the application nor the executive has the channel any more.
    port: Weak<Port>,
    grant: Arc<Grant>,
    home: Arc<dyn ChannelExecutive>,
}

impl ChannelList {
    /// Lists one more channel, and forgets those that are gone.
    pub(crate) fn add(&self, direction: Direction, ChannelWatch { port, grant, home }: ChannelWatch) {
        let mut listed = locked(&self.0);
        listed.retain(|channel| channel.port.strong_count() > 0);
        listed.push(ListedChannel { direction, port: Arc::downgrade(&port), grant, home });
    }

    pub(crate) fn snapshots(&self) -> Vec<ChannelSnapshot> {
        // The executive may be another process's, which takes its time to answer: not under the lock.
        let listed = locked(&self.0).clone();
        let snapshot = |ListedChannel { direction, port, grant, home }: ListedChannel| {
            let port = port.upgrade()?;
            Some(match direction {
                Direction::Sends => {
                    // Before the counters, which are then no older than what the receiver told at the end.
                    let end = port.end();
                    ChannelSnapshot::of_sender(&grant, &home.send_counters(&port), end, 0)
                }
                Direction::Receives => {
                    let figures = home.figures(&port, &grant);
                    ChannelSnapshot { direction, peer: grant.peer, figures, misses_known: true }
                }
            })
        };
        listed.into_iter().filter_map(snapshot).collect()
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::endpoint::ExceededPremise;
    use laxity_core::figures::Latencies;
    use laxity_core::wire::MessageCounts;

    use super::*;
    use crate::guard::Coverage;

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn the_json_of_a_channel_is_the_contract() {
        let ms = |millis| Some(Duration::from_millis(millis));
        let figures = Figures {
            name: "camera".to_owned(),
            sent: 200,
            delivered: 198,
            delivered_bytes: 12_000_000,
            late: 1,
            lost: 2,
            misses: Misses { network: 2, platform: 1, ..Misses::default() },
            clock_error: Some(Duration::ZERO),
            deadline: ms(40),
            bound: ms(30),
            response: Some(Duration::from_micros(41_500)),
            latencies: Latencies {
                min: ms(2),
                p50: ms(5),
                p99: None,
                p999: None,
                max: Some(Duration::from_micros(41_500)),
            },
            ..Figures::default()
        };
        let expected = concat!(
            r#""name":"camera","kind":"real-time","sent":200,"#,
            r#""delivered":198,"late":1,"lost":2,"dropped":0,"misses":{"sender":0,"receiver":0,"network":2,"platform":1,"#,
            r#""laxity":0,"unexplained":0},"over_bound":0,"undecided":0,"clock":{"relation":"same","error_ns":0},"#,
            r#""deadline_ns":40000000,"bound_ns":30000000,"response_max_ns":41500000,"min_ns":2000000,"p50_ns":5000000,"#,
            r#""p99_ns":null,"p999_ns":null,"max_ns":41500000}"#
        );
        assert_eq!(json(&ChannelFigures::from(&figures)), format!("{{{expected}"));
        let (peer, direction) = (SocketAddr::from(([10, 0, 0, 1], 7)), Direction::Receives);
        let mut channel = ChannelSnapshot { direction, peer, figures, misses_known: true };
        assert_eq!(json(&channel), format!(r#"{{"direction":"receives","peer":"10.0.0.1:7",{expected}"#));
        channel.misses_known = false;
        assert!(serde_json::to_value(&channel).unwrap()["misses"].is_null());
    }

    #[test]
    fn the_json_of_premises_is_the_contract() {
        assert_eq!(json(&Premises::default()), r#"{"windows":[],"overruns":[],"peers":[]}"#);
        let broken = ExceededPremise { count: 3, largest: Duration::from_millis(9), limit: Duration::from_millis(2) };
        let [round_trip, error] = [9, 4].map(Duration::from_micros);
        let peer = SocketAddr::from(([10, 0, 0, 1], 7));
        let (network, clock) = (broken, ExceededPremise::default());
        let seen = PeerPremises { peer, round_trip, error, by_wall_clocks: true, network, clock };
        assert_eq!(
            json(&PeerReport::new(&seen, "b")),
            r#"{"peer":"b","round_trip_ns":9000,"error_ns":4000,"by_wall_clocks":true,"network":3,"clock":0}"#
        );
    }

    /// A channel on which ten messages were sent, by the receiver's report.
    fn of(service: Service, report: Option<MessageCounts>) -> Figures {
        let grant = Grant {
            name: "camera".to_owned(),
            peer: "192.0.2.1:5709".parse().unwrap(),
            service,
            stages: Default::default(),
            receive: Duration::ZERO,
            deadline: None,
            guarantee: Default::default(),
            covers: Coverage::Laxity,
            same_clock: false,
            executive: 1,
        };
        let counters = SendCounters { accepted: 10, ..SendCounters::default() };
        ChannelSnapshot::of_sender(&grant, &counters, Some(End::Closed { report }), 0).figures
    }

    fn guaranteed() -> Service {
        let ms = Duration::from_millis;
        Service::RealTime(Contract::new(100, 1, ms(10), 1, ms(50)).unwrap())
    }

    #[test]
    fn undecided_messages_are_delivered() {
        let error = Some(Duration::from_micros(40));
        let report = MessageCounts { delivered: 7, undecided: 3, clock_error: error, ..MessageCounts::default() };
        let figures = of(guaranteed(), Some(report));
        assert_eq!((figures.delivered, figures.undecided, figures.clock_error), (10, 3, error));
        assert_eq!((figures.lost, figures.misses), (0, Misses::default()));
    }

    #[test]
    fn messages_that_a_report_leaves_out_are_lost_and_unexplained() {
        let network = |network| Misses { network, ..Misses::default() };
        let report = MessageCounts {
            delivered: 4,
            late: 1,
            lost: 1,
            dropped: 1,
            misses: network(2),
            undecided: 1,
            ..MessageCounts::default()
        };
        let told = of(guaranteed(), Some(report));
        assert_eq!((told.delivered, told.late, told.lost, told.dropped), (6, 1, 3, 1));
        assert_eq!(told.misses, Misses { unexplained: 3, ..network(2) }, "one without a cause, two without an end");
        // Nothing was promised, or nothing was reported: nothing is added.
        let best_effort = of(Service::best_effort(100, 1).unwrap(), Some(report));
        assert_eq!((best_effort.lost, best_effort.misses), (1, network(2)));
        let silent = of(guaranteed(), None);
        assert_eq!((silent.lost, silent.misses, silent.clock_error), (0, Misses::default(), None));
    }
}
