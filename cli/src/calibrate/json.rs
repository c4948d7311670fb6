//! The calibration for machines.

use std::collections::BTreeMap;
use std::path::Path;

use laxity::Scheduling;
use laxity::calibration::measure::Measured;
use laxity::calibration::{Backing, Cost, Disagreement, Window, decimal};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    file: String,
    taken: Taken,
    confidence_ppm: u64,
    costs: Vec<CostRow>,
    windows: Vec<WindowRow>,
    choice: Option<Choice>,
    level: &'static str,
    why: Vec<String>,
    against: Option<Vec<Differs>>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Differs {
    kind: &'static str,
    packet_bytes: Option<u32>,
    here_ns: u64,
    there_ns: Option<u64>,
}

#[derive(Serialize)]
struct Taken {
    kernel: String,
    processor: String,
    processors: u32,
    date: u64,
    duration_ns: u64,
    load: Load,
    scheduling: String,
    memory_locked: bool,
    kept_awake: bool,
    link: String,
}

#[derive(Serialize)]
struct Load {
    hogs: u32,
    flood_packets_s: u64,
}

#[derive(Serialize)]
struct CostRow {
    kind: &'static str,
    packet_bytes: Option<u32>,
    samples: u64,
    median_ns: u64,
    claimed_ns: u64,
    exceedance: String,
    largest_ns: u64,
}

#[derive(Serialize)]
struct WindowRow {
    observer: &'static str,
    window_ns: u64,
    windows: u64,
    parts: u64,
    stride: u64,
    median_ns: u64,
    budget_ns: u64,
    exceedance: String,
    largest_ns: u64,
}

#[derive(Serialize)]
struct Choice {
    packet_bytes: u32,
    quantum: u32,
    why: String,
    counts: Vec<Counted>,
}

#[derive(Serialize)]
struct Counted {
    packet_bytes: u32,
    quantum: u32,
    channels: BTreeMap<String, u32>,
}

/// One object.
pub(super) fn object(measured: &Measured, file: &Path, against: Option<&[Disagreement]>) -> String {
    let Measured { calibration, choice, notes, .. } = measured;
    let taken = &calibration.taken;
    let cost = |cost: &Cost| CostRow {
        kind: cost.kind.name(),
        packet_bytes: cost.packet,
        samples: cost.samples,
        median_ns: cost.median.as_nanos(),
        claimed_ns: cost.claimed.as_nanos(),
        exceedance: decimal(cost.exceedance),
        largest_ns: cost.largest.as_nanos(),
    };
    let window = |window: &Window| WindowRow {
        observer: window.observer.name(),
        window_ns: window.window.as_nanos(),
        windows: window.windows,
        parts: window.parts,
        stride: window.stride,
        median_ns: window.median.as_nanos(),
        budget_ns: window.budget.as_nanos(),
        exceedance: decimal(window.exceedance),
        largest_ns: window.largest.as_nanos(),
    };
    let chosen = |choice: &laxity::calibration::choose::Choice| {
        let names = || choice.references.iter().map(|reference| reference.name().to_owned());
        let counted = choice.cells.iter().map(|cell| Counted {
            packet_bytes: cell.packet,
            quantum: cell.quantum,
            channels: names().zip(cell.counts.iter().map(|count| count.channels)).collect(),
        });
        Choice {
            packet_bytes: choice.chosen().packet,
            quantum: choice.chosen().quantum,
            why: choice.why(),
            counts: counted.collect(),
        }
    };
    let differs = |one: &Disagreement| Differs {
        kind: one.kind.name(),
        packet_bytes: one.packet,
        here_ns: one.here.as_nanos(),
        there_ns: one.there.map(|there| there.as_nanos()),
    };
    let backing = Backing::expected(&calibration.clone().into());
    let report = Report {
        file: file.display().to_string(),
        taken: Taken {
            kernel: taken.kernel.clone(),
            processor: taken.processor.clone(),
            processors: taken.processors,
            date: taken.date,
            duration_ns: taken.duration.as_nanos(),
            load: Load { hogs: taken.load.hogs, flood_packets_s: taken.load.flood },
            scheduling: scheduling(taken.scheduling),
            memory_locked: taken.memory_locked,
            kept_awake: taken.kept_awake,
            link: taken.link.clone(),
        },
        confidence_ppm: 1_000_000 - taken.alpha.parts() / 1_000_000,
        costs: calibration.costs.iter().map(cost).collect(),
        windows: calibration.windows.iter().map(window).collect(),
        choice: choice.as_ref().map(chosen),
        level: backing.level().name(),
        why: backing.why().to_vec(),
        against: against.map(|against| against.iter().map(differs).collect()),
        notes: notes.clone(),
    };
    serde_json::to_string(&report).expect("numbers and texts can be written")
}

pub(super) fn scheduling(scheduling: Scheduling) -> String {
    match scheduling {
        Scheduling::Fifo(priority) => format!("SCHED_FIFO {priority}"),
        Scheduling::ShortSlice => "ordinary, short slice".to_owned(),
        Scheduling::Ordinary => "ordinary".to_owned(),
    }
}
