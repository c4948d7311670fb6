//! `laxity sim`: the shipping core in virtual time.
//!
//! Each mode is a file of its own. What a mode prints on standard output depends on its arguments alone: not on the clock,
//! not on the number of threads. How long it took goes to standard error.

mod arguments;
mod scale;
mod scenario;
mod search;
mod show;
mod swarm;

pub(crate) use arguments::SimArguments;
pub(crate) use scenario::HELP;

use crate::failure::Failure;

/// Runs what the arguments say; true if every promise was kept.
pub(crate) fn run(arguments: &SimArguments) -> Result<bool, Failure> {
    // The parser lets options of another mode pass, since what they require is in conflict with this one.
    let SimArguments { scenario, search, scale, swarm, .. } = arguments;
    let misplaced = [
        ("--trace is of a scenario", scenario.file.is_some(), scenario.trace.is_some()),
        ("--systems and --system are of a search", search.search, search.systems.is_some() || search.system.is_some()),
        ("--worlds is of a swarm", swarm.swarm, swarm.worlds.is_some()),
        ("--hosts and --channels are of a scale run", scale.scale, scale.hosts.is_some() || scale.channels.is_some()),
    ];
    if let Some((problem, ..)) = misplaced.iter().find(|(_, is_its_mode, is_given)| *is_given && !is_its_mode) {
        return Err(Failure::Usage(format!("sim: {problem}")));
    }
    match &scenario.file {
        Some(file) => scenario::run(file, arguments),
        None if search.search => search::run(arguments),
        None if scale.scale => scale::run(arguments),
        None if swarm.swarm => swarm::run(arguments),
        None => Err(Failure::Usage("sim: say what to simulate: a file, --search, --swarm or --scale".into())),
    }
}
