//! The calibration for machines.

use std::collections::BTreeMap;
use std::path::Path;

use laxity::Costs;
use laxity::Scheduling;
use laxity::calibration::{Backing, Cost, Disagreement, Window, decimal};
use laxity_calibrate::Measurement;
use serde_json::{Value, json};

use super::typical;
use crate::report::to_json;

/// One object.
pub(super) fn object(measured: &Measurement, file: &Path, against: Option<&[Disagreement]>) -> String {
    let Measurement { calibration, choice, notes, .. } = measured;
    let taken = &calibration.taken;
    let cost = |cost: &Cost| {
        json!({
            "kind": cost.kind.name(),
            "packet_bytes": cost.packet,
            "samples": cost.samples,
            "median_ns": cost.median,
            "claimed_ns": cost.claimed,
            "exceedance": decimal(cost.exceedance),
            "largest_ns": cost.largest,
        })
    };
    let window = |window: &Window| {
        json!({
            "observer": window.observer.name(),
            "window_ns": window.window,
            "windows": window.windows,
            "parts": window.parts,
            "stride": window.stride,
            "batches": window.batches,
            "batch": window.batch,
            "bad": window.bad,
            "median_ns": window.median,
            "budget_ns": window.budget,
            "exceedance": decimal(window.exceedance),
            "largest_ns": window.largest,
        })
    };
    let chosen = |choice: &laxity_calibrate::choose::Choice| {
        let counts = choice.cells.iter().map(|cell| {
            let counted = choice.references.iter().zip(&cell.counts);
            let channels: BTreeMap<_, _> = counted.map(|(reference, count)| (reference.name, *count)).collect();
            json!({ "packet_bytes": cell.packet, "quantum": cell.quantum, "channels": channels })
        });
        json!({
            "packet_bytes": choice.chosen().packet,
            "quantum": choice.chosen().quantum,
            "why": choice.why(),
            "counts": counts.collect::<Value>(),
        })
    };
    let differs = |one: &Disagreement| {
        json!({
            "kind": one.kind.name(),
            "packet_bytes": one.packet,
            "here_ns": one.here,
            "there_ns": one.there,
        })
    };
    let mut costs = Costs::from(calibration.clone());
    let backing = Backing::expected(&costs);
    backing.keep_claims(&mut costs.platform);
    to_json(&json!({
        "file": file.display().to_string(),
        "taken": {
            "kernel": taken.kernel,
            "processor": taken.processor,
            "processors": taken.processors,
            "date": taken.date,
            "duration_ns": taken.duration,
            "load": { "hogs": taken.load.hogs, "flood_packets_s": taken.load.flood },
            "scheduling": scheduling(taken.scheduling),
            "memory_locked": taken.memory_locked,
            "kept_awake": taken.kept_awake,
            "link": taken.link.name(),
            "interface": taken.interface,
        },
        "confidence_ppm": 1_000_000 - taken.alpha.parts() / 1_000_000,
        "costs": calibration.costs.iter().map(cost).collect::<Value>(),
        "windows": calibration.windows.iter().map(window).collect::<Value>(),
        "choice": choice.as_ref().map(chosen),
        "level": backing.level().name(),
        "why": backing.why(),
        "typical": typical::json(&typical::typical(&costs.platform)),
        "against": against.map(|against| against.iter().map(differs).collect::<Value>()),
        "notes": notes,
    }))
}

pub(super) fn scheduling(scheduling: Scheduling) -> String {
    match scheduling {
        Scheduling::Fifo(priority) => format!("SCHED_FIFO {priority}"),
        Scheduling::ShortSlice => "ordinary, short slice".to_owned(),
        Scheduling::Ordinary => "ordinary".to_owned(),
    }
}
