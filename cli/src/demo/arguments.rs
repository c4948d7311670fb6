//! What `laxity demo` takes.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::path::PathBuf;

use clap::Args;
use laxity_lab::{Attack, Stack};

use crate::costs::CostsArguments;

/// Ctrl-C ends the scenario that runs, leaves it out, and prints what there is of the others. Exit status: 0 no promise broken in what ran; 1 a
/// promise was broken, or nothing ran.
///
/// JSON: {guarantee, miss_probability, calibration, scenarios, interrupted}. guarantee is none, statistical or calibrated: the lowest level of the
/// grants. miss_probability is a decimal fraction as text: a message misses because of one host with that probability at most; null
/// if nothing is claimed. calibration is null if nothing is measured, otherwise {date, kernel, processor, processors, duration_ns,
/// hogs, flood_packets_s, link}. Each of scenarios: {attack, stack, flood, simulated, elapsed_ns, channels, wire, gaps: {count,
/// longest_ns}, notes}; wire is null in virtual time.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Run only this attack: idle, flood, violator, hogs, or all for all of them at once. May be repeated
    #[arg(long = "attack", value_name = "ATTACK")]
    pub(crate) attacks: Vec<Attack>,
    /// Run only this stack: laxity, plain-udp or tuned-udp. May be repeated
    #[arg(long = "stack", value_name = "STACK")]
    pub(crate) stacks: Vec<Stack>,
    /// How long each scenario runs; there is one for each attack on each stack
    #[arg(long, value_name = "SPAN", default_value = "3s")]
    pub(crate) duration: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report with its plots to FILE [default: laxity-demo.html in the current directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write no report
    #[arg(long, conflicts_with = "html")]
    pub(crate) no_html: bool,
    /// Write one plot as SVG to FILE: the channel with the shortest deadline under the last attack, over each stack
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// The seed of the sources' bursts. The same seed gives the same bursts to every stack
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) costs: CostsArguments,
    /// Stay an ordinary process, even where real-time priority and locked memory are permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Run only the part in virtual time
    #[arg(long)]
    pub(crate) simulated_only: bool,
}
