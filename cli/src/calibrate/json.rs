//! The calibration for machines.

use std::collections::BTreeMap;
use std::path::Path;

use laxity::Costs;
use laxity::Scheduling;
use laxity::calibration::{Backing, Disagreement};
use laxity_calibrate::Measurement;
use serde_json::{Value, json};

use super::typical;
use crate::report::to_json;

/// One object.
pub(super) fn object(measured: &Measurement, file: &Path, against: Option<&[Disagreement]>) -> String {
    let Measurement { calibration, choice, notes, .. } = measured;
    let taken = &calibration.taken;
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
        "costs": calibration.costs,
        "windows": calibration.windows,
        "choice": choice.as_ref().map(chosen),
        "level": backing.level().name(),
        "why": backing.why(),
        "typical": typical::json(&typical::typical(&costs.platform)),
        "against": against,
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
