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
//! | [`picture`] | what is shown of them |

mod live;
mod live_notes;
mod notes;
mod picture;
mod plan;
mod row;
mod world;

use laxity_core::processor::Preemption;
use laxity_core::units::Duration;
use serde_json::{Value, json};

pub(super) use plan::Experiment;
use plan::MODES;
use row::Row;
use world::AdmittedChannel;

use super::arguments::BenchArguments;
use super::shown::Outcome;
use super::sweep::{sweep, threads};
use crate::chart::names;
use crate::failure::Failure;
use crate::report::with;

/// What ran.
struct Report {
    /// Of a live experiment in JSON: its attack, and what its figures are worth.
    conditions: Value,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Runs the experiment; every promise must be kept.
pub(super) fn run(experiment: Experiment, arguments: &BenchArguments, duration: Duration) -> Result<Outcome, Failure> {
    let is_simulated = arguments.simulated;
    let Report { conditions, rows, notes } = match is_simulated {
        true => simulated(experiment, arguments, duration)?,
        false => live::run(experiment, arguments, duration)?,
    };
    let beside = if is_simulated { "1,900 KiB/s" } else { "40 % of what is left" };
    let (title, figure, explained) = match experiment {
        Experiment::Guarantee => ("Guarantees beside more and more best effort", "Fig. 7".to_owned(), picture::SOLID),
        Experiment::Violation => {
            ("A channel that offers more than its contract", format!("best effort {beside}, Fig. 8"), picture::SOLID)
        }
        Experiment::Preemption => {
            ("What cooperative preemption is good for", "Fig. 9".to_owned(), "Real-time channels.")
        }
    };
    let is_drawn =
        |figures: &&laxity_core::figures::Figures| experiment != Experiment::Preemption || !figures.best_effort;
    let channels = rows.first().map_or(&[][..], |row| &row.channels).iter().map(|channel| &channel.outcome.figures);
    let json = json!({
        "simulated": is_simulated,
        "seed": arguments.seed,
        // With what a latency ends: the transmission of a message's last packet, or when it is in the receiving application's queue.
        "completion": if is_simulated { "transmission" } else { "delivery" },
        "rows": rows.iter().map(|row| row.json(experiment)).collect::<Value>(),
        "notes": notes,
    });
    let tables = picture::tables(experiment, &rows, is_simulated);
    Ok(Outcome {
        title,
        is_simulated,
        conditions: format!("{title} ({figure}), seed {}", arguments.seed),
        json: with(conditions, json),
        tables: format!("Channels 0 / 1 / 2; rates in KiB/s, laxities in ms.\n\n{tables}"),
        legend: names(channels.filter(is_drawn).map(|figures| &figures.name)),
        diagrams: picture::diagrams(experiment, &rows, is_simulated),
        explained,
        further_notes: of_runs(experiment, &rows),
        broken: rows.iter().flat_map(|row| row.broken(experiment)).collect(),
        notes,
        ..Outcome::default()
    })
}

/// In virtual time.
fn simulated(experiment: Experiment, arguments: &BenchArguments, duration: Duration) -> Result<Report, Failure> {
    let each = MODES.iter().map(|(mode, _)| Ok((*mode, world::admit(*mode)?)));
    let each: Vec<(Preemption, Vec<AdmittedChannel>)> = each.collect::<Result<_, Failure>>()?;
    let admitted =
        |mode: Preemption| each.iter().find(|(other, _)| *other == mode).map_or(&[][..], |(_, admitted)| admitted);
    let run = |case: &plan::Case| world::run(case, admitted(case.preemption), duration, arguments.seed);
    let rows = sweep(&experiment.cases(), threads(arguments), run);
    let notes = notes::notes(experiment, duration, &rows, admitted);
    let conditions = json!({ "attack": null, "guarantee": null, "miss_probability": null, "calibration": null });
    Ok(Report { conditions, rows, notes })
}

/// What is worth telling of some runs, once each, and of which.
fn of_runs(experiment: Experiment, rows: &[Row]) -> Vec<String> {
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for row in rows {
        let label = plan::label(&row.case, experiment);
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
