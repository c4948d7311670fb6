//! `laxity bench`: the experiments of the papers, again.
//!
//! | Module | What it does |
//! |---|---|
//! | [`channels`] | the experiments of `[channels §5]`: guarantee, violation, preemption |
//! | [`sweep`] | many worlds on parallel threads, with the outcome in order |
//! | [`chart`] | lines over a range of loads, as SVG |

mod channels;
mod chart;
mod sweep;

use std::thread;

use crate::args::{BenchArguments, BenchName, bench_duration};
use crate::failure::Failure;
use channels::Experiment;

/// Runs one experiment; true if every promise was kept.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool, Failure> {
    if !arguments.simulated {
        let problem = "there is only a simulated variant yet: add --simulated";
        return Err(Failure::Usage(format!("bench {}: {problem}", arguments.name)));
    }
    let duration = bench_duration(&arguments.duration)?;
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or_else(processors, usize::from);
    let experiment = match arguments.name {
        BenchName::Guarantee => Experiment::Guarantee,
        BenchName::Violation => Experiment::Violation,
        BenchName::Preemption => Experiment::Preemption,
    };
    channels::run(experiment, arguments, duration, threads)
}
