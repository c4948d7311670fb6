//! `laxity sim`: the shipping core in virtual time.
//!
//! Each mode is a file of its own. What a mode prints on standard output depends on its arguments alone: not on the clock,
//! not on the number of threads. How long it took goes to standard error.

mod arguments;
mod scenario;
mod search;
mod swarm;

pub(crate) use arguments::SimArguments;
pub(crate) use scenario::HELP;

use crate::failure::Failure;

/// Runs what the arguments say; true if every promise was kept.
pub(crate) fn run(arguments: &SimArguments) -> Result<bool, Failure> {
    // The parser lets options of another mode pass, since what they require is in conflict with this one.
    let misplaced = [
        ("--trace is of a scenario", arguments.scenario.is_misplaced()),
        ("--systems and --system are of a search", arguments.search.is_misplaced()),
        ("--worlds is of a swarm", arguments.swarm.is_misplaced()),
    ];
    if let Some((problem, _)) = misplaced.iter().find(|(_, is_misplaced)| *is_misplaced) {
        return Err(Failure::Usage(format!("sim: {problem}")));
    }
    if arguments.search.search {
        return search::run(arguments);
    }
    if arguments.swarm.swarm {
        return swarm::run(arguments);
    }
    match &arguments.scenario.file {
        Some(file) => scenario::run(file, arguments),
        None => Err(Failure::Usage("sim: say what to simulate: a file, --search or --swarm".into())),
    }
}
