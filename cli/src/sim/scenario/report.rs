//! What became of a scenario: for people, and as JSON.

use std::fmt::Write as _;

use laxity::calibration::{PeerPremises, broken_of_peer};
use laxity::snapshot::PeerReport;
use laxity_core::event::End;
use laxity_core::figures::Figures;
use laxity_core::units::{Duration, Instant};
use laxity_lab::figures::{per_second, promises_kept, undecided};
use laxity_sim::{ChannelHandle, ChannelReport, Finding, HostCounters, HostId, World};
use serde::Serialize;
use serde_json::{Value, json};

use super::build::address;
use super::file::Scenario;
use crate::link::PREMISE;
use crate::numbers::{counted, list};
use crate::report::{self, escaped, to_json, with};
use crate::table::{Column, table};

/// What became of it.
pub(super) struct ScenarioReport {
    scenario: String,
    seed: u64,
    /// When sources stopped.
    sent_until: Instant,
    /// How long they sent.
    elapsed: Duration,
    hosts: Vec<HostRow>,
    channels: Vec<ChannelRow>,
    faults: Vec<FaultRow>,
    /// With the name of the channel, if it is of one.
    findings: Vec<(Option<String>, Finding)>,
    more_findings: u64,
}

struct HostRow {
    name: String,
    counters: HostCounters,
    /// What it saw of hosts with another clock, with their names.
    peers: Vec<(String, PeerPremises)>,
}

#[derive(Serialize)]
struct ChannelRow {
    from: String,
    to: String,
    via: Vec<String>,
    /// How many had its place before it, until a crash.
    reopened: u32,
    /// Messages of which it is not known what became of them.
    unaccounted: u64,
    /// Whether one of its hosts crashed, which explains them.
    #[serde(skip)]
    has_crashed: bool,
    #[serde(skip)]
    report: ChannelReport,
}

impl ChannelRow {
    /// Why it is not known that its promise was kept although no host crashed, in words.
    fn unknown(&self) -> Option<String> {
        let ChannelReport { figures, sender_end, receiver_end, .. } = &self.report;
        if self.has_crashed || figures.best_effort {
            return None;
        }
        let ends = [sender_end, receiver_end].map(|end| end.as_ref().map_or("none", <&str>::from).replace('_', " "));
        let ends = format!("its end at the sender: {}, at the receiver: {}", ends[0], ends[1]);
        if matches!(sender_end, Some(End::NoAnswer | End::Refused(_) | End::Version { .. })) {
            return Some(format!("the channel was never opened ({ends})"));
        }
        let (unaccounted, sent) = (self.unaccounted, figures.sent);
        (unaccounted > 0).then(|| {
            format!("{unaccounted} of {} that were sent are unaccounted for ({ends})", counted(sent, "message"))
        })
    }
}

#[derive(Serialize)]
struct FaultRow {
    kind: &'static str,
    on: String,
    at_ns: u64,
    until_ns: u64,
}

impl ScenarioReport {
    pub(super) fn new(scenario: &Scenario, world: &World, name: String, seed: u64, sent_until: Instant) -> Self {
        let host = |place: usize| scenario.hosts[place].name.clone();
        let mut of_channels = Vec::new();
        for (place, channel) in scenario.channels.iter().enumerate() {
            let (mut next, mut reopened) = (Some(ChannelHandle(place)), 0);
            while let Some(handle) = next {
                let (from, to) = (host(channel.from), host(channel.to));
                let via = channel.via.iter().map(|&place| host(place)).collect();
                let report = world.report(handle);
                let Figures { sent, delivered, lost, dropped, .. } = report.figures;
                let unaccounted = sent.saturating_sub(delivered + lost + dropped);
                let has_crashed = scenario.crashes().any(|fault| channel.hosts().any(|on| on == fault.host.0));
                of_channels.push(ChannelRow { from, to, via, unaccounted, has_crashed, reopened, report });
                (next, reopened) = (world.successor(handle), reopened + 1);
            }
        }
        let faults = world.faults().iter().map(|fault| FaultRow {
            kind: fault.kind.name(),
            on: host(fault.host.0),
            at_ns: fault.from.as_nanos(),
            until_ns: fault.until.as_nanos(),
        });
        let (findings, more_findings) = world.findings();
        let name_of = |handle| world.name(handle).to_owned();
        let findings = findings.into_iter().map(|finding| (finding.channel.map(name_of), finding));
        let name_of_host = |of: &PeerPremises| {
            let number = (0..scenario.hosts.len()).find(|&number| address(number) == of.peer);
            number.map_or_else(|| of.peer.to_string(), host)
        };
        let of_host = |place: usize| {
            let (peers, _) = world.endpoint(HostId(place)).watched_peers();
            let peers = peers.iter().map(|of| (name_of_host(of), *of)).collect();
            HostRow { name: host(place), counters: world.host_counters(HostId(place)), peers }
        };
        Self {
            scenario: name,
            seed,
            sent_until,
            elapsed: sent_until.since(scenario.start),
            hosts: (0..scenario.hosts.len()).map(of_host).collect(),
            channels: of_channels,
            faults: faults.collect(),
            findings: findings.collect(),
            more_findings,
        }
    }

    fn figures(&self) -> Vec<Figures> {
        let of = |channel: &ChannelRow| {
            let figures = channel.report.figures.clone();
            match channel.reopened {
                0 => figures,
                times => Figures { name: format!("{} (again, {times})", figures.name), ..figures },
            }
        };
        self.channels.iter().map(of).collect()
    }

    /// True if no miss is Laxity's, nothing was over its bound, is undecided or unaccounted for without a crash, all channels with a contract were
    /// opened, no premise was broken, and no checker found anything.
    pub(super) fn promises_kept(&self) -> bool {
        promises_kept(&self.figures())
            && self.findings.is_empty()
            && self.broken_premises().is_empty()
            && self.channels.iter().all(|channel| channel.unknown().is_none())
    }

    /// The premises that were broken, and at which host, in words.
    fn broken_premises(&self) -> Vec<String> {
        let of_peer = |host: &HostRow, (name, of): &(String, PeerPremises)| {
            let (here, there) = (escaped(&host.name).into_owned(), escaped(name).into_owned());
            broken_of_peer(of, &there).into_iter().map(move |told| format!("{here}: {told}"))
        };
        self.hosts.iter().flat_map(|host| host.peers.iter().flat_map(move |peer| of_peer(host, peer))).collect()
    }
}

/// The JSON object, in one line.
pub(super) fn json(outcome: &ScenarioReport) -> String {
    let of_channel = |channel: &ChannelRow| {
        let report = &channel.report;
        let more = json!({
            // Messages that the sending host refused, because they were beyond the contract or the queue.
            "refused": report.send.refused,
            "throughput_bytes_s": per_second(report.figures.delivered_bytes, outcome.elapsed),
            "sender_end": report.sender_end.map(<&str>::from),
            "receiver_end": report.receiver_end.map(<&str>::from),
        });
        with(with(report::channel(&report.figures), json!(channel)), more)
    };
    let of_host = |HostRow { name, counters, peers }: &HostRow| {
        json!({
            "name": name,
            "busy_ns": counters.busy,
            "steps": counters.steps,
            "switches": counters.switches,
            "sleeps": counters.sleeps,
            "transmitted": counters.transmitted,
            "received": counters.received,
            "ring_full": counters.ring_full,
            "damaged": counters.damaged,
            "lost_on_wire": counters.wire.lost,
            "peers": peers.iter().map(|(name, of)| json!(PeerReport::new(of, name))).collect::<Value>(),
        })
    };
    let of_finding = |(channel, Finding { at, what, expected, found, .. }): &(Option<String>, Finding)| {
        json!({
            "what": what.name(),
            "channel": channel,
            "at_ns": at.as_nanos(),
            "expected": expected,
            "found": found,
        })
    };
    to_json(&json!({
        "command": "sim",
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "sent_until_ns": outcome.sent_until.as_nanos(),
        "channels": outcome.channels.iter().map(of_channel).collect::<Value>(),
        "hosts": outcome.hosts.iter().map(of_host).collect::<Value>(),
        "faults": outcome.faults,
        "findings": outcome.findings.iter().map(of_finding).collect::<Value>(),
        "more_findings": outcome.more_findings,
    }))
}

/// The page for people.
pub(super) fn page(outcome: &ScenarioReport) -> String {
    let figures = outcome.figures();
    let (hosts, faults) = (counted(outcome.hosts.len() as u64, "host"), counted(outcome.faults.len() as u64, "fault"));
    let mut page = format!(
        "{}, seed {}: {hosts}, {faults}, {} of virtual time\n{}\n",
        escaped(&outcome.scenario),
        outcome.seed,
        outcome.sent_until.since(Instant::ZERO),
        report::table(&figures, outcome.elapsed),
    );
    let mut say = |count: fn(&ChannelRow) -> u64, before: &str, after: &str| {
        for (channel, figures) in outcome.channels.iter().zip(&figures).filter(|(channel, _)| count(channel) > 0) {
            let messages = counted(count(channel), "message");
            let _ = writeln!(page, "{}: {before}{messages} {after}", escaped(&figures.name));
        }
    };
    say(|channel| channel.report.send.refused, "", "beyond its contract or its queue never left the sender.");
    let unaccounted = |channel: &ChannelRow| if channel.has_crashed { channel.unaccounted } else { 0 };
    say(unaccounted, "what became of ", "is not known: a host crashed.");
    let best_effort = |channel: &ChannelRow| match channel.report.figures.best_effort {
        true if !channel.has_crashed => channel.unaccounted,
        _ => 0,
    };
    say(best_effort, "", "unaccounted for: best effort promises none.");
    if !outcome.faults.is_empty() {
        let at = |nanos| Duration::from_nanos(nanos).to_string();
        let columns: [Column<'_, &FaultRow>; 4] = [
            ("fault", &|fault| fault.kind.replace('_', " ")),
            ("on", &|fault| escaped(&fault.on).into_owned()),
            ("from", &|fault| at(fault.at_ns)),
            ("until", &|fault| at(fault.until_ns)),
        ];
        let _ = writeln!(page, "{}", table(&columns, 4.., &outcome.faults));
    }
    page.push_str(&verdict(outcome, &figures));
    page
}

/// Whether the promises were kept; and if not, whose and how.
fn verdict(outcome: &ScenarioReport, figures: &[Figures]) -> String {
    let mut verdict = String::new();
    for (channel, Finding { at, what, expected, found, .. }) in &outcome.findings {
        let whose = channel.as_ref().map_or(String::new(), |channel| format!("{}, ", escaped(channel)));
        let (at, what) = (at.since(Instant::ZERO), what.name());
        let _ = writeln!(verdict, "FINDING ({what}): {whose}at {at}: found {found}, expected {expected}.");
    }
    if outcome.more_findings > 0 {
        let _ = writeln!(verdict, "{} more.", counted(outcome.more_findings, "finding"));
    }
    let broken: Vec<String> = figures
        .iter()
        .filter(|figures| figures.is_at_fault())
        .map(|figures| escaped(&figures.name).into_owned())
        .collect();
    let undecided = undecided(figures);
    if let Some(undecided) = &undecided {
        let _ = writeln!(verdict, "{undecided}.");
    }
    let unknown =
        outcome.channels.iter().zip(figures).filter_map(|(channel, figures)| Some((figures, channel.unknown()?)));
    let unknown: Vec<String> =
        unknown.map(|(figures, why)| format!("UNKNOWN: {}: {why}.", escaped(&figures.name))).collect();
    for line in &unknown {
        let _ = writeln!(verdict, "{line}");
    }
    let premises = outcome.broken_premises();
    for premise in &premises {
        let _ = writeln!(verdict, "{PREMISE}{premise}");
    }
    verdict.push_str(&match (broken.is_empty(), outcome.findings.is_empty()) {
        (true, true) if undecided.is_some() || !unknown.is_empty() || !premises.is_empty() => {
            "No promise is known to be broken; misses have the causes that stand above.".to_owned()
        }
        (true, true) => "Every promise was kept; misses have the causes that stand above.".to_owned(),
        (true, false) => "A checker found something: that is a bug.".to_owned(),
        (false, _) => format!("A PROMISE WAS BROKEN: {}.", list(&broken)),
    });
    verdict
}

#[cfg(test)]
mod tests {
    use laxity::calibration::ExceededPremise;

    use super::*;

    #[test]
    fn what_is_undecided_is_not_said_to_be_kept() {
        let mut outcome = ScenarioReport {
            scenario: "two.scenario.toml".to_owned(),
            seed: 1,
            sent_until: Instant::ZERO,
            elapsed: Duration::ZERO,
            channels: Vec::new(),
            hosts: Vec::new(),
            faults: Vec::new(),
            findings: Vec::new(),
            more_findings: 0,
        };
        let of = |outcome: &ScenarioReport, undecided, over_bound| {
            verdict(outcome, &[Figures { name: "video".to_owned(), undecided, over_bound, ..Figures::default() }])
        };
        let said = "UNDECIDED: 12 messages: the clocks of the two hosts do not tell whether they were in time.";
        assert!(of(&outcome, 0, 0).starts_with("Every promise was kept"));
        assert_eq!(
            of(&outcome, 12, 0),
            format!("{said}\nNo promise is known to be broken; misses have the causes that stand above.")
        );
        assert_eq!(of(&outcome, 12, 1), format!("{said}\nA PROMISE WAS BROKEN: video."));

        let [round_trip, error] = [150, 1].map(Duration::from_millis);
        let network = ExceededPremise { count: 3, largest: round_trip, limit: error };
        let (by_wall_clocks, clock) = (false, ExceededPremise::default());
        let peer = PeerPremises { peer: address(1), round_trip, error, by_wall_clocks, network, clock };
        let (name, counters) = ("a".to_owned(), HostCounters::default());
        outcome.hosts.push(HostRow { name, counters, peers: vec![("b".to_owned(), peer)] });
        let said = of(&outcome, 0, 0);
        assert!(said.starts_with("premise: a: network: the least of eight round trips to b was up to 150ms"), "{said}");
        assert!(said.contains("\nNo promise is known to be broken") && !said.contains("kept"), "{said}");
        assert!(!outcome.promises_kept());
    }
}
