//! `laxity sim`: the shipping core in virtual time.
//!
//! Each mode is a file of its own. What a mode prints on standard output depends on its arguments alone: not on the clock,
//! not on the number of threads. How long it took goes to standard error.

mod arguments;
mod scenario;

pub(crate) use arguments::SimArguments;

use crate::failure::Failure;

/// Runs what the arguments say; true if every promise was kept.
pub(crate) fn run(arguments: &SimArguments) -> Result<bool, Failure> {
    let SimArguments { scenario, seed, threads: _, json } = arguments;
    match &scenario.file {
        Some(file) => scenario::run(file, scenario.trace.as_deref(), *seed, *json),
        None => Err(Failure::Usage("sim: say what to simulate".into())),
    }
}
