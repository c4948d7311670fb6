//! `laxity sim`: the shipping core in virtual time.
//!
//! Each mode is a file of its own. What a mode prints on standard output depends on its arguments alone: not on the clock,
//! not on the number of threads. How long it took goes to standard error.

mod arguments;
mod scale;
mod search;
mod swarm;

pub(crate) use arguments::SimArguments;

use crate::failure::Failure;

/// Runs what the arguments say; true if every promise was kept.
pub(crate) fn run(arguments: &SimArguments) -> Result<bool, Failure> {
    if arguments.search.search {
        return search::run(arguments);
    }
    if arguments.scale.scale {
        return scale::run(arguments);
    }
    if arguments.swarm.swarm {
        return swarm::run(arguments);
    }
    Err(Failure::Usage("sim: say what to simulate: --search, --swarm or --scale".into()))
}
