//! What all modes of `laxity sim` have on their command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::num::NonZeroUsize;

use clap::Args;

/// Options that several modes have.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
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
}

impl RunArguments {
    /// How many worlds at a time.
    pub(crate) fn threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(processors, usize::from)
    }
}
