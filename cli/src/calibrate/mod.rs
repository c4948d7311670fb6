//! `laxity calibrate`.

use clap::Args;

use crate::failure::Failure;

#[cfg_attr(not(test), allow(dead_code, unused_imports))]
mod pictures;

pub(crate) const HELP: &str = "";

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// True if nothing failed.
pub(crate) fn run(_arguments: &CalibrateArguments) -> Result<bool, Failure> {
    Ok(true)
}
