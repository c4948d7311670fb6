//! What `laxity demo` takes.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::path::PathBuf;

use clap::Args;
use laxity_lab::{Attack, Stack};

use crate::costs::CostsArguments;

pub(crate) const HELP: &str = "\
JSON: {guarantee, miss_probability, calibration, scenarios}. guarantee is none, statistical or calibrated: the lowest level of the \
grants. miss_probability is a decimal fraction as text: a message misses because of one host with that probability at most; null \
if nothing is claimed. calibration is null if nothing is measured, otherwise {date, kernel, processor, processors, duration_ns, \
hogs, flood_packets_s, link}. Each of scenarios: {attack, stack, flood, simulated, elapsed_ns, channels, wire, gaps: {count, \
longest_ns}, notes}; wire is null in virtual time.";

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// Only this attack: idle, flood, violator, hogs or all of them at once; may be repeated
    #[arg(long = "attack", value_name = "ATTACK")]
    pub(crate) attacks: Vec<Attack>,
    /// Only this stack: laxity, plain-udp or tuned-udp; may be repeated
    #[arg(long = "stack", value_name = "STACK")]
    pub(crate) stacks: Vec<Stack>,
    /// How long each scenario runs; there is one for each attack on each stack
    #[arg(long, value_name = "SPAN", default_value = "3s")]
    pub(crate) duration: String,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report with its plots to FILE, by default to laxity-demo.html in the current directory
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write no report
    #[arg(long, conflicts_with = "html")]
    pub(crate) no_html: bool,
    /// Of the sources' bursts: the same seed gives the same bursts to every stack
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) costs: CostsArguments,
    /// Stay an ordinary process, even where real-time priority and locked memory are permitted
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Only the part in virtual time
    #[arg(long)]
    pub(crate) simulated_only: bool,
}
