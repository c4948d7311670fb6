//! The runs as one JSON object. A contract like that of [`crate::report`]: integers (but the factor of channel 0), unknown values
//! `null`, every key there.

use serde::Serialize;
use serde_json::Number;

use super::plan::{Case, Experiment};
use super::row::{Outcome, Row};
use super::{Completion, Report};
use crate::costs::CalibrationReport;
use crate::report::ChannelReport;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    bench: &'static str,
    simulated: bool,
    /// `null` in virtual time, like the guarantee and what it rests on.
    attack: Option<String>,
    guarantee: Option<&'static str>,
    miss_probability: Option<&'a str>,
    calibration: Option<&'a CalibrationReport>,
    seed: u64,
    duration_ns: u64,
    /// With what a latency ends.
    completion: &'static str,
    rows: Vec<RowReport<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct RowReport<'a> {
    best_effort_offered_bytes_s: u64,
    channel0_factor: Option<Number>,
    mode: Option<&'static str>,
    channels: Vec<ChannelWithPackets>,
    gaps: Option<Gaps>,
    notes: Vec<&'a str>,
}

#[derive(Serialize)]
struct Gaps {
    count: u64,
    longest_ns: u64,
}

#[derive(Serialize)]
struct ChannelWithPackets {
    #[serde(flatten)]
    channel: ChannelReport,
    throughput_bytes_s: u64,
    min_laxity_ns: Option<i64>,
    mean_laxity_ns: Option<i64>,
    late_packets: Option<u64>,
    dropped_packets: u64,
}

/// One line, without a line end.
pub(super) fn object(report: &Report) -> String {
    let Report { experiment, seed, duration, live, rows, notes } = report;
    let document = Document {
        bench: experiment.name(),
        simulated: live.is_none(),
        attack: live.as_ref().map(|live| live.attack.to_string()),
        guarantee: live.as_ref().map(|live| live.guarantee.guarantee),
        miss_probability: live.as_ref().and_then(|live| live.guarantee.miss_probability.as_deref()),
        calibration: live.as_ref().and_then(|live| live.calibration.as_ref()),
        seed: *seed,
        duration_ns: duration.as_nanos(),
        completion: match report.completion() {
            Completion::Transmission => "transmission",
            Completion::Delivery => "delivery",
        },
        rows: rows.iter().map(|row| RowReport::new(*experiment, row)).collect(),
        notes,
    };
    serde_json::to_string(&document).expect("structs of strings and integers are always JSON")
}

/// Per cent as a factor: an integer if it is one, else the nearest to the decimal fraction, which is written as that.
fn factor(percent: u64) -> Number {
    let fraction = || Number::from_f64(percent as f64 / 100.0);
    if percent.is_multiple_of(100) { None } else { fraction() }.unwrap_or_else(|| Number::from(percent / 100))
}

impl<'a> RowReport<'a> {
    fn new(experiment: Experiment, row: &'a Row) -> Self {
        let Case { best_effort, channel_0_percent, mode } = row.case;
        Self {
            best_effort_offered_bytes_s: best_effort,
            channel0_factor: (experiment == Experiment::Violation).then(|| factor(channel_0_percent)),
            mode: (experiment == Experiment::Preemption).then_some(mode.name()),
            channels: row.channels.iter().map(ChannelWithPackets::from).collect(),
            gaps: row.gaps.map(|(count, longest)| Gaps { count, longest_ns: longest.as_nanos() }),
            notes: row.notes.iter().chain(&row.disturbances).map(String::as_str).collect(),
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

#[cfg(test)]
mod tests {
    use super::factor;

    #[test]
    fn a_factor_is_written_as_people_write_it() {
        let written = [100, 125, 150, 200, 110, 133, 1_000].map(|percent| factor(percent).to_string());
        assert_eq!(written, ["1", "1.25", "1.5", "2", "1.1", "1.33", "10"]);
    }
}
