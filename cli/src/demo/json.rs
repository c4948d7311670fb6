//! The scenarios as one JSON object. A contract like that of [`crate::report`]: integers, unknown values `null`, every key there.

use laxity_bench::wire::{ClassFigures, WireFigures};
use serde::Serialize;

use super::Preface;
use super::run::{Channel, Run};
use crate::costs::{CalibrationReport, GuaranteeReport};
use crate::report::ChannelReport;

#[derive(Serialize)]
pub(super) struct Document {
    #[serde(flatten)]
    guarantee: GuaranteeReport,
    calibration: Option<CalibrationReport>,
    scenarios: Vec<Scenario>,
}

#[derive(Serialize)]
struct Scenario {
    attack: String,
    stack: String,
    flood: String,
    simulated: bool,
    elapsed_ns: u64,
    channels: Vec<ChannelWithTraffic>,
    /// `null` in virtual time.
    wire: Option<Wire>,
    gaps: Gaps,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ChannelWithTraffic {
    #[serde(flatten)]
    channel: ChannelReport,
    throughput_bytes_s: u64,
    offered: u64,
    violator: bool,
    in_hand_max_ns: Option<u64>,
}

#[derive(Serialize)]
struct Wire {
    discipline: String,
    high: Class,
    low: Class,
    foreign: Class,
    reverse: u64,
    too_long: u64,
    overflow: u64,
    undeliverable: u64,
    late_releases: u64,
    largest_lateness_ns: u64,
    busy_ns: u64,
    realtime: bool,
}

#[derive(Serialize)]
struct Class {
    forwarded: u64,
    bytes: u64,
    dropped: u64,
}

#[derive(Serialize)]
struct Gaps {
    count: u64,
    longest_ns: u64,
}

impl Document {
    pub(super) fn new(runs: &[Run], preface: &Preface) -> Self {
        Self {
            guarantee: preface.guarantee().into(),
            calibration: CalibrationReport::of(&preface.standing.costs),
            scenarios: runs.iter().map(Scenario::from).collect(),
        }
    }

    /// One line, without a line end.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("structs of strings and integers are always JSON")
    }
}

impl From<&Run> for Scenario {
    fn from(run: &Run) -> Self {
        Self {
            attack: run.attack.to_string(),
            stack: run.stack.to_string(),
            flood: run.flood.to_string(),
            simulated: run.simulated,
            elapsed_ns: run.elapsed.as_nanos(),
            channels: run.channels.iter().map(ChannelWithTraffic::from).collect(),
            wire: run.wire.as_ref().map(Wire::from),
            gaps: Gaps { count: run.gaps.0, longest_ns: run.gaps.1.as_nanos() },
            notes: run.notes.clone(),
        }
    }
}

impl From<&Channel> for ChannelWithTraffic {
    fn from(channel: &Channel) -> Self {
        let report = ChannelReport::from(&channel.figures);
        Self {
            channel: if channel.misses_known { report } else { report.causes_unknown() },
            throughput_bytes_s: channel.throughput_bytes_s,
            offered: channel.offered,
            violator: channel.violator,
            in_hand_max_ns: channel.in_hand.max.map(|max| max.as_nanos()),
        }
    }
}

impl From<&WireFigures> for Wire {
    fn from(wire: &WireFigures) -> Self {
        let class = |class: &ClassFigures| {
            let ClassFigures { forwarded, bytes, dropped } = *class;
            Class { forwarded, bytes, dropped }
        };
        Self {
            discipline: wire.discipline.to_string(),
            high: class(&wire.high),
            low: class(&wire.low),
            foreign: class(&wire.foreign),
            reverse: wire.reverse,
            too_long: wire.too_long,
            overflow: wire.overflow,
            undeliverable: wire.undeliverable,
            late_releases: wire.late_releases,
            largest_lateness_ns: wire.largest_lateness.as_nanos(),
            busy_ns: wire.busy.as_nanos(),
            realtime: wire.realtime,
        }
    }
}
