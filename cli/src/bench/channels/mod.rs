//! The experiments of `[channels §5]` in virtual time: Table 3 beside best effort on the machine of Table 2b.
//!
//! Everything goes through the shipping core: admission decides the stages, the endpoint enforces, schedules and sends. What is
//! counted is the sending host's, as in the papers: a message is complete when the transmission of its last packet is over.
//!
//! | Module | What it does |
//! |---|---|
//! | [`plan`] | which runs |
//! | [`world`] | one run, and what is counted in it |
//! | [`table`], [`json`] | what is shown of them |

mod json;
mod plan;
mod table;
mod world;

use laxity_core::units::Duration;

pub(super) use plan::Experiment;
use world::Row;

use super::sweep::sweep;
use crate::args::BenchArguments;
use crate::failure::Failure;

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
    let (admitted, seed) = (world::admit()?, arguments.seed);
    let rows = sweep(&experiment.cases(), threads, |case| world::run(case, &admitted, duration, seed));
    let report = Report { experiment, seed, duration, rows, notes: Vec::new() };
    if arguments.json {
        println!("{}", json::object(&report));
    } else {
        println!("{}", table::tables(&report));
    }
    let broken: Vec<String> = report.rows.iter().flat_map(Row::broken).collect();
    Ok(broken.is_empty())
}
