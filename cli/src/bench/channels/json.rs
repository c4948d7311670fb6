//! The runs as one JSON object. A contract like that of [`crate::report`]: integers, unknown values `null`, every key there.

use serde::Serialize;

use super::Report;
use super::plan::{Case, Experiment};
use super::world::{Outcome, Row};
use crate::report::ChannelReport;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    bench: &'static str,
    simulated: bool,
    seed: u64,
    duration_ns: u64,
    /// With what a latency ends.
    completion: &'static str,
    rows: Vec<RowReport>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct RowReport {
    best_effort_offered_bytes_s: u64,
    channel0_factor_percent: Option<u64>,
    mode: Option<&'static str>,
    channels: Vec<ChannelWithPackets>,
}

#[derive(Serialize)]
struct ChannelWithPackets {
    #[serde(flatten)]
    channel: ChannelReport,
    throughput_bytes_s: u64,
    min_laxity_ns: Option<i64>,
    mean_laxity_ns: Option<i64>,
    late_packets: u64,
    dropped_packets: u64,
}

/// One line, without a line end.
pub(super) fn object(report: &Report) -> String {
    let Report { experiment, seed, duration, rows, notes, .. } = report;
    let document = Document {
        bench: experiment.name(),
        simulated: true,
        seed: *seed,
        duration_ns: duration.as_nanos(),
        completion: "transmission",
        rows: rows.iter().map(|row| RowReport::new(*experiment, row)).collect(),
        notes,
    };
    serde_json::to_string(&document).expect("structs of strings and integers are always JSON")
}

impl RowReport {
    fn new(experiment: Experiment, row: &Row) -> Self {
        let Case { best_effort, channel_0_percent, mode } = row.case;
        Self {
            best_effort_offered_bytes_s: best_effort,
            channel0_factor_percent: (experiment == Experiment::Violation).then_some(channel_0_percent),
            mode: (experiment == Experiment::Preemption).then_some(mode.name()),
            channels: row.channels.iter().map(ChannelWithPackets::from).collect(),
        }
    }
}

impl From<&Outcome> for ChannelWithPackets {
    fn from(outcome: &Outcome) -> Self {
        Self {
            channel: ChannelReport::from(&outcome.figures),
            throughput_bytes_s: outcome.throughput,
            min_laxity_ns: outcome.min_laxity,
            mean_laxity_ns: outcome.mean_laxity,
            late_packets: outcome.late_packets,
            dropped_packets: outcome.dropped_packets,
        }
    }
}
