//! What the command line of `laxity sim` says.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::num::NonZeroUsize;

use clap::{ArgGroup, Args};

use super::scenario::ScenarioArguments;

/// Arguments of `laxity sim`; those of one mode only say so by `requires`, and what chooses a mode is in the group `mode`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("mode").required(true).multiple(false))]
pub(crate) struct SimArguments {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArguments,
    /// Of everything that is drawn; the same seed gives the same output
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many worlds at a time, by default as many as there are processors; the output does not depend on it
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// How long, in seconds
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,
    #[command(flatten)]
    pub(crate) search: super::search::SearchArguments,
    #[command(flatten)]
    pub(crate) swarm: super::swarm::SwarmArguments,
}

impl SimArguments {
    /// How many worlds at a time.
    pub(crate) fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(processors, usize::from)
    }
}
