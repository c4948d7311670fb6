//! `laxity doctor`.

use clap::Args;

use crate::failure::Failure;

pub(crate) const HELP: &str = "";

/// What is asked for.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// True if nothing failed.
pub(crate) fn run(_arguments: &DoctorArguments) -> Result<bool, Failure> {
    Ok(true)
}
