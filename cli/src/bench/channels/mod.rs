//! The experiments of `[channels §5]` in virtual time: Table 3 beside best effort on the machine of Table 2b.
//!
//! Everything goes through the shipping core: admission decides the stages, the endpoint enforces, schedules and sends. What is
//! counted is the sending host's, as in the papers: a message is complete when the transmission of its last packet is over.
//!
//! | Module | What it does |
//! |---|---|
//! | [`plan`] | which runs |
//! | [`world`] | one run, and what is counted in it |
//! | [`notes`] | what must be said about them, where they differ from the paper included |
//! | [`table`], [`json`], [`picture`] | what is shown of them |

mod json;
mod notes;
mod picture;
mod plan;
mod table;
mod world;

use std::io::{self, Write as _};

use laxity_core::units::Duration;

pub(super) use plan::Experiment;
use plan::Mode;
use world::{Admitted, Row};

use super::sweep::sweep;
use crate::args::BenchArguments;
use crate::failure::Failure;
use crate::file;

/// What ran.
struct Report {
    experiment: Experiment,
    seed: u64,
    duration: Duration,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Runs the experiment and shows it; true if every promise was kept.
pub(super) fn run(
    experiment: Experiment,
    arguments: &BenchArguments,
    duration: Duration,
    threads: usize,
) -> Result<bool, Failure> {
    if let Some(path) = &arguments.plot {
        file::has_directory(path)?;
    }
    let seed = arguments.seed;
    let each = Mode::EACH.map(|mode| world::admit(mode).map(|admitted| (mode, admitted)));
    let each: Vec<(Mode, Vec<Admitted>)> = each.into_iter().collect::<Result<_, _>>()?;
    let admitted = |mode: Mode| each.iter().find(|(other, _)| *other == mode).map_or(&[][..], |(_, admitted)| admitted);
    let run = |case: &plan::Case| world::run(case, admitted(case.mode), duration, seed);
    let rows = sweep(&experiment.cases(), threads, run);
    let notes = notes::notes(experiment, duration, &rows, admitted);
    let report = Report { experiment, seed, duration, rows, notes };
    if let Some(path) = &arguments.plot {
        file::write(path, &picture::svg(&report))?;
    }
    let said = if arguments.json { json::object(&report) } else { page(&report) };
    // A reader that has seen enough is no failure.
    let _ = writeln!(io::stdout(), "{said}");
    let broken: Vec<String> = report.rows.iter().flat_map(Row::broken).collect();
    for promise in &broken {
        eprintln!("broken: {promise}");
    }
    Ok(broken.is_empty())
}

/// For people.
fn page(report: &Report) -> String {
    let heading = match report.experiment {
        Experiment::Guarantee => "Guarantees beside more and more best effort (Fig. 7)",
        Experiment::Violation => "Channel 0 offers more than its contract, best effort 1,900 KiB/s (Fig. 8)",
        Experiment::Preemption => "What cooperative preemption is good for (Fig. 9)",
    };
    let mut page = format!("{heading}. Channels 0 / 1 / 2; rates in KiB/s, laxities in ms.\n\n");
    page.push_str(&table::tables(report));
    for note in &report.notes {
        page.push_str("\n- ");
        page.push_str(note);
    }
    page
}
