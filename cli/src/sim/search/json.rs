//! What a search found as one JSON object. A contract like that of [`crate::report`]: integers in ns and bytes, ratios in parts
//! per million, unknown values `null`, every key there.

use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_sim::search::shrink::Smallest;
use laxity_sim::tiny::{Role, Who};
use serde::Serialize;

use super::text::{machine, replay};
use super::{OfTest, Report};

#[derive(Serialize)]
struct Document {
    mode: &'static str,
    simulated: bool,
    seed: u64,
    systems: u64,
    worlds: u64,
    messages: u64,
    /// Of the tests that decide.
    violations: u64,
    tests: Vec<TestReport>,
}

#[derive(Serialize)]
struct TestReport {
    test: &'static str,
    machine: &'static str,
    decides: bool,
    systems: u64,
    worlds: u64,
    channels: u64,
    messages: u64,
    violations: u64,
    /// Of each channel, its largest response by its bound.
    seen_by_bound_ppm: Ratios,
    counter_example: Option<CounterExample>,
}

#[derive(Serialize)]
struct Ratios {
    p50: Option<u64>,
    p90: Option<u64>,
    max: Option<u64>,
}

#[derive(Serialize)]
struct CounterExample {
    system: u64,
    replay: String,
    costs: Costs,
    channels: Vec<Channel>,
    releases: Vec<Release>,
    gaps: Vec<Gap>,
    late: usize,
    promised_ns: u64,
    seen_ns: u64,
}

/// What the smallest system's host costs; what is not here is zero, or like in every system of the search.
#[derive(Serialize)]
struct Costs {
    packet_bytes: u32,
    quantum: u32,
    switch_ns: u64,
    first_packet_ns: u64,
    packet_ns: u64,
    receive_first_ns: u64,
    receive_packet_ns: u64,
    demultiplex_ns: u64,
    link_ns: u64,
    full_packet_on_link_ns: u64,
    wake_up_ns: u64,
    best_effort_packets: u32,
    send_early: bool,
    receive_early: bool,
}

#[derive(Serialize)]
struct Channel {
    sends: bool,
    max_message: u32,
    min_message: u32,
    interval_ns: u64,
    burst: u32,
    promised_ns: u64,
}

#[derive(Serialize)]
struct Release {
    /// `null` is best effort.
    channel: Option<usize>,
    at_ns: u64,
    bytes: u32,
}

#[derive(Serialize)]
struct Gap {
    at_ns: u64,
    length_ns: u64,
}

/// One line, without a line end.
pub(super) fn object(report: &Report) -> String {
    let sum = |of: fn(&OfTest) -> u64| report.tests.iter().map(of).sum();
    let document = Document {
        mode: "search",
        simulated: true,
        seed: report.seed,
        systems: report.systems,
        worlds: sum(|of| of.summary.worlds),
        messages: sum(|of| of.summary.messages),
        violations: report.violations(),
        tests: report.tests.iter().map(|of| TestReport::new(of, report.seed)).collect(),
    };
    serde_json::to_string(&document).expect("structs of strings and integers are always JSON")
}

impl TestReport {
    fn new(of: &OfTest, seed: u64) -> Self {
        let OfTest { test, summary, counter_example } = of;
        let at = |permille| summary.largest_at(permille);
        Self {
            test: test.name(),
            machine: machine(*test),
            decides: test.decides(),
            systems: summary.systems,
            worlds: summary.worlds,
            channels: summary.channels(),
            messages: summary.messages,
            violations: summary.broken.len() as u64,
            seen_by_bound_ppm: Ratios { p50: at(500), p90: at(900), max: at(1000) },
            counter_example: counter_example.as_ref().map(|(number, found)| CounterExample::new(seed, *number, found)),
        }
    }
}

impl CounterExample {
    fn new(seed: u64, system: u64, found: &Smallest) -> Self {
        let Smallest { bounded, violation, .. } = found;
        let promised = |number: usize| bounded.promises[number].bound.worst.as_nanos();
        let channels = bounded.system.channels.iter().enumerate().map(|(number, channel)| Channel {
            sends: channel.role == Role::Sends,
            max_message: channel.contract.max_message(),
            min_message: channel.contract.min_message(),
            interval_ns: channel.contract.interval().as_nanos(),
            burst: channel.contract.burst(),
            promised_ns: promised(number),
        });
        let releases = violation.pattern.releases.iter().map(|release| Release {
            channel: match release.who {
                Who::Channel(number) => Some(number),
                Who::BestEffort => None,
            },
            at_ns: release.at.as_nanos(),
            bytes: release.bytes,
        });
        let gap = |&(at, length): &(Duration, Duration)| Gap { at_ns: at.as_nanos(), length_ns: length.as_nanos() };
        Self {
            system,
            replay: replay(seed, system),
            costs: costs(&bounded.system.platform, bounded.system.send_early, bounded.system.receive_early),
            channels: channels.collect(),
            releases: releases.collect(),
            gaps: violation.pattern.gaps.iter().map(gap).collect(),
            late: violation.channel,
            promised_ns: promised(violation.channel),
            seen_ns: violation.seen.end.as_nanos(),
        }
    }
}

fn costs(platform: &Platform, send_early: bool, receive_early: bool) -> Costs {
    Costs {
        packet_bytes: platform.packet,
        quantum: platform.quantum,
        switch_ns: platform.change_of_handler().as_nanos(),
        first_packet_ns: platform.first_packet.as_nanos(),
        packet_ns: platform.packet_cost.as_nanos(),
        receive_first_ns: platform.receive_first.as_nanos(),
        receive_packet_ns: platform.receive_packet.as_nanos(),
        demultiplex_ns: platform.demultiplex.as_nanos(),
        link_ns: platform.link_cost.as_nanos(),
        full_packet_on_link_ns: platform.link.occupancy(platform.packet).as_nanos(),
        wake_up_ns: platform.wake_up.as_nanos(),
        best_effort_packets: platform.best_effort.message_packets,
        send_early,
        receive_early,
    }
}
