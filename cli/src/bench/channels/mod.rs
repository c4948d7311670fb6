//! The experiments of `[channels §5]`: Table 3 beside best effort, in virtual time on the machine of Table 2b, or live on this host.
//!
//! Everything goes through the shipping core: admission decides the stages, the endpoint enforces, schedules and sends. What is
//! counted in virtual time is the sending host's, as in the papers: a message is complete when the transmission of its last packet
//! is over. Live it is what the receiving application gets.
//!
//! | Module | What it does |
//! |---|---|
//! | [`plan`] | which runs |
//! | [`world`] | one run in virtual time, and what is counted in it |
//! | [`live`] | the runs on this host |
//! | [`mod@row`] | what came of a run |
//! | [`notes`], [`live_notes`] | what must be said about them, where they differ from the paper included |
//! | [`table`], [`json`], [`picture`] | what is shown of them |

mod json;
mod live;
mod live_notes;
mod notes;
mod picture;
mod plan;
mod row;
mod table;
mod world;

use laxity::Guarantee;
use laxity_core::units::Duration;
use laxity_lab::Attack;
use serde_json::Value;
use strum::VariantArray;

pub(super) use plan::Experiment;
use plan::Mode;
use row::{Row, Unit};
use world::Admitted;

use super::arguments::BenchArguments;
use super::shown::{kept, listed, show};
use super::sweep::{sweep, threads};
use crate::failure::Failure;

/// What ran.
struct Report {
    experiment: Experiment,
    seed: u64,
    duration: Duration,
    /// `None` in virtual time.
    live: Option<Conditions>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Under which a live experiment ran.
struct Conditions {
    attack: Attack,
    /// The lowest of the grants'.
    guarantee: Guarantee,
    calibration: Value,
}

impl Report {
    fn unit(&self) -> Unit {
        if self.live.is_some() { Unit::Messages } else { Unit::Packets }
    }

    /// With what a latency ends: the transmission of a message's last packet, or when it is in the receiving application's queue.
    fn completion(&self) -> &'static str {
        if self.live.is_some() { "delivery" } else { "transmission" }
    }
}

/// Runs the experiment and shows it; true if every promise was kept.
pub(super) fn run(experiment: Experiment, arguments: &BenchArguments, duration: Duration) -> Result<bool, Failure> {
    let report = match arguments.simulated {
        true => simulated(experiment, arguments, duration)?,
        false => live::run(experiment, arguments, duration)?,
    };
    show(arguments, || picture::svg(&report), || json::object(&report), || page(&report))?;
    let broken: Vec<String> = report.rows.iter().flat_map(|row| row.broken(experiment)).collect();
    Ok(kept(&broken))
}

/// In virtual time.
fn simulated(experiment: Experiment, arguments: &BenchArguments, duration: Duration) -> Result<Report, Failure> {
    let seed = arguments.seed;
    let each = Mode::VARIANTS.iter().map(|&mode| Ok((mode, world::admit(mode)?)));
    let each: Vec<(Mode, Vec<Admitted>)> = each.collect::<Result<_, Failure>>()?;
    let admitted = |mode: Mode| each.iter().find(|(other, _)| *other == mode).map_or(&[][..], |(_, admitted)| admitted);
    let run = |case: &plan::Case| world::run(case, admitted(case.mode), duration, seed);
    let rows = sweep(&experiment.cases(), threads(arguments), run);
    let notes = notes::notes(experiment, duration, &rows, admitted);
    Ok(Report { experiment, seed, duration, live: None, rows, notes })
}

/// For people.
fn page(report: &Report) -> String {
    let heading = match report.experiment {
        Experiment::Guarantee => "Guarantees beside more and more best effort (Fig. 7)",
        Experiment::Violation => match report.live {
            None => "Channel 0 offers more than its contract, best effort 1,900 KiB/s (Fig. 8)",
            Some(_) => "Channel 0 offers more than its contract, best effort 40 % of what is left (Fig. 8)",
        },
        Experiment::Preemption => "What cooperative preemption is good for (Fig. 9)",
    };
    let ran = if report.live.is_some() { "LIVE on this host, not simulated. " } else { "" };
    let notes = listed(report.notes.iter().cloned().chain(of_runs(report)));
    let tables = table::tables(report);
    format!("{ran}{heading}. Channels 0 / 1 / 2; rates in KiB/s, laxities in ms.\n\n{tables}{notes}")
}

/// What is worth telling of some runs, once each, and of which.
fn of_runs(report: &Report) -> Vec<String> {
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for row in &report.rows {
        let label = row.case.label(report.experiment);
        for note in &row.notes {
            match told.iter_mut().find(|(other, _)| other == note) {
                Some((_, labels)) => labels.push(label.clone()),
                None => told.push((note, vec![label.clone()])),
            }
        }
    }
    let line = |(note, labels): (&str, Vec<String>)| match &labels[..] {
        [only] => format!("{only}: {note}"),
        [first, ..] => format!("{} runs, the first with {first}: {note}", labels.len()),
        [] => note.to_owned(),
    };
    told.into_iter().map(line).collect()
}
