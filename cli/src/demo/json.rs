//! The scenarios as one JSON object. A contract like that of [`crate::report`]: integers, unknown values `null`, every key there.

use laxity_lab::ChannelOutcome;
use serde_json::{Value, json};

use super::Preface;
use super::run::Run;
use crate::costs::{guaranteed, taken};
use crate::report::{self, to_json, with};

/// One line, without a line end.
pub(super) fn object(runs: &[Run], preface: &Preface) -> String {
    let more = json!({
        "calibration": taken(&preface.standing.costs),
        "scenarios": runs.iter().map(scenario).collect::<Value>(),
    });
    to_json(&with(guaranteed(&preface.guarantee()), more))
}

fn scenario(run: &Run) -> Value {
    json!({
        "attack": run.attack.to_string(),
        "stack": run.stack.to_string(),
        "flood": run.flood.to_string(),
        "simulated": run.simulated,
        "elapsed_ns": run.elapsed.as_nanos(),
        "channels": run.channels.iter().map(channel).collect::<Value>(),
        // `null` in virtual time.
        "wire": run.wire,
        "gaps": { "count": run.gaps.0, "longest_ns": run.gaps.1.as_nanos() },
        "notes": run.notes,
    })
}

fn channel(channel: &ChannelOutcome) -> Value {
    let known = channel.misses_known;
    let figures = if known { report::channel } else { report::channel_without_causes };
    let more = json!({
        "throughput_bytes_s": channel.throughput_bytes_s,
        "offered": channel.offered,
        "violator": channel.violator,
        "in_hand_max_ns": channel.in_hand.max,
    });
    with(figures(&channel.figures), more)
}
