//! The runs as one JSON object. A contract like that of [`crate::report`]: integers (but the factor of channel 0), unknown values
//! `null`, every key there.

use serde_json::{Value, json};

use super::Report;
use super::plan::{Case, Experiment};
use super::row::{Outcome, Row};
use crate::bench::shown::fraction;
use crate::costs::guaranteed;
use crate::report::{self, to_json, with};

/// One line, without a line end.
pub(super) fn object(report: &Report) -> String {
    let Report { experiment, seed, duration, live, rows, notes } = report;
    let (live, nothing) = (live.as_ref(), json!({ "guarantee": null, "miss_probability": null }));
    let ran = json!({
        "bench": experiment.to_string(),
        "simulated": live.is_none(),
        // `null` in virtual time, like the guarantee and what it rests on.
        "attack": live.map(|live| live.attack.to_string()),
    });
    let came = json!({
        "calibration": live.map(|live| &live.calibration),
        "seed": seed,
        "duration_ns": duration.as_nanos(),
        // With what a latency ends.
        "completion": report.completion(),
        "rows": rows.iter().map(|found| row(*experiment, found)).collect::<Value>(),
        "notes": notes,
    });
    to_json(&with(with(ran, live.map_or(nothing, |live| guaranteed(&live.guarantee))), came))
}

fn row(experiment: Experiment, row: &Row) -> Value {
    let Case { best_effort, channel_0_percent, mode } = row.case;
    json!({
        "best_effort_offered_bytes_s": best_effort,
        "channel0_factor": (experiment == Experiment::Violation).then(|| fraction(channel_0_percent, 100)),
        "mode": (experiment == Experiment::Preemption).then_some(mode.name()),
        "channels": row.channels.iter().map(channel).collect::<Value>(),
        "gaps": row.gaps.map(|(count, longest)| json!({ "count": count, "longest_ns": longest.as_nanos() })),
        "notes": row.notes.iter().chain(&row.disturbances).collect::<Vec<_>>(),
    })
}

fn channel(outcome: &Outcome) -> Value {
    let more = json!({
        "throughput_bytes_s": outcome.throughput,
        "in_hand_max_ns": outcome.in_hand,
        "min_laxity_ns": outcome.min_laxity,
        "mean_laxity_ns": outcome.mean_laxity,
        "late_packets": outcome.late_packets,
        "dropped_packets": outcome.dropped_packets,
    });
    with(report::channel(&outcome.figures), more)
}
