//! `laxity bench`: the experiments of the papers, again; and the fast path beside what it is to be held against.
//!
//! | Module | What it does |
//! |---|---|
//! | [`channels`] | the experiments of `[channels §5]`: guarantee, violation, preemption |
//! | [`livelock`] | a flood of strangers on either link |
//! | [`paths`] | the links beside bare loops |
//! | [`sweep`] | many worlds on parallel threads, with the outcome in order |
//! | [`chart`] | lines over a range of loads, as SVG |

mod arguments;
mod channels;
mod chart;
mod livelock;
mod paths;
mod sweep;

pub(crate) use arguments::{BenchArguments, HELP};

use laxity_core::units::Duration;

use crate::failure::Failure;
use arguments::{BenchName, bench_duration};
use channels::Experiment;

/// How long a run is observed: what the papers did.
const SIMULATED: Duration = Duration::from_millis(9_600);
/// So that a whole experiment takes less than two minutes.
const LIVE: Duration = Duration::from_secs(3);

/// Runs one experiment; true if every promise was kept.
pub(crate) fn run(arguments: &BenchArguments) -> Result<bool, Failure> {
    let experiment = match arguments.name {
        BenchName::Guarantee => Experiment::Guarantee,
        BenchName::Violation => Experiment::Violation,
        BenchName::Preemption => Experiment::Preemption,
        BenchName::XdpPath | BenchName::Livelock => {
            refuse(arguments.of_channels(), "the experiments on channels")?;
            if arguments.name == BenchName::XdpPath {
                return paths::run(arguments);
            }
            refuse(arguments.of_paths(), "xdp-path")?;
            return livelock::run(arguments);
        }
    };
    refuse(arguments.of_paths(), "xdp-path")?;
    let default = if arguments.simulated { SIMULATED } else { LIVE };
    let duration = arguments.duration.as_deref().map_or(Ok(default), bench_duration)?;
    channels::run(experiment, arguments, duration)
}

/// An option that belongs to something else.
fn refuse(found: Option<&'static str>, owner: &str) -> Result<(), Failure> {
    found.map_or(Ok(()), |option| Err(Failure::Usage(format!("{option} is for {owner}"))))
}
