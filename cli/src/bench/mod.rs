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

use laxity_core::units::Duration;

use crate::args::{BenchArguments, BenchName, bench_duration};
use crate::failure::Failure;
use channels::Experiment;

/// How long a run is observed: what the papers did.
const SIMULATED: Duration = Duration::from_millis(9_600);
/// So that a whole experiment takes less than two minutes.
const LIVE: Duration = Duration::from_secs(3);

/// Runs one experiment; true if every promise was kept.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool, Failure> {
    let default = if arguments.simulated { SIMULATED } else { LIVE };
    let duration = arguments.duration.as_deref().map_or(Ok(default), bench_duration)?;
    let experiment = match arguments.name {
        BenchName::Guarantee => Experiment::Guarantee,
        BenchName::Violation => Experiment::Violation,
        BenchName::Preemption => Experiment::Preemption,
    };
    channels::run(experiment, arguments, duration)
}
