//! `laxity sim`: the shipping core in virtual time.
//!
//! Each mode is a file of its own. What a mode prints on standard output depends on its arguments alone: not on the clock,
//! not on the number of threads. How long it took goes to standard error.

mod scale;
mod scenario;
mod search;
mod swarm;

use std::num::NonZeroUsize;

use clap::{ArgGroup, Args};

use crate::failure::Failure;
use scale::ScaleArguments;
use scenario::ScenarioArguments;
use search::SearchArguments;
use swarm::SwarmArguments;

/// Options that several modes have.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The seed of all random choices. The same seed gives the same output
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many worlds run at a time [default: the number of processors]. The output does not depend on it
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to run, in seconds
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

/// Of a scenario: docs/scenarios.md lists what a file says, docs/trace.md how to read a trace.
///
/// Exit status: 0 every promise was kept; 1 a miss by Laxity, a delay over its bound, a message of which it is
/// undecided whether it was in time, a channel that was never opened or messages that are unaccounted for without a crash (other than best
/// effort), a broken premise of the network or of a host's clock, or a finding; 2 bad input; 3 refused by
/// admission.
///
/// JSON of a scenario: {command, scenario, seed, sent_until_ns, channels, hosts, faults, findings, more_findings}. Each of channels:
/// the figures that all commands report, then from, to, via (the hosts in between), reopened (how many had its place before it, until a crash), unaccounted
/// (messages of which it is not known what became of them), refused (messages that the sending host did not take),
/// throughput_bytes_s, sender_end and receiver_end (closed, closed_by_peer, peer_lost, no_answer, route_lost, refused or version; null if it
/// crashed). Each of hosts: {name, busy_ns, steps, switches, sleeps, transmitted, received, ring_full, damaged, lost_on_wire,
/// peers: [{peer, round_trip_ns, error_ns, by_wall_clocks, network, clock}], of hosts with another clock}. Each of
/// faults: {kind, on, at_ns, until_ns}. Each of findings: {what, channel, at_ns, expected, found}. All numbers are integers.
#[allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("mode").required(true).multiple(false))]
pub(crate) struct SimArguments {
    // Options of one mode only say so by `requires`, and what chooses a mode is in the group `mode`.
    #[command(flatten)]
    scenario: ScenarioArguments,
    #[command(flatten)]
    run: RunArguments,
    #[command(flatten)]
    search: SearchArguments,
    #[command(flatten)]
    scale: ScaleArguments,
    #[command(flatten)]
    swarm: SwarmArguments,
}

/// Runs what the arguments say; true if every promise was kept.
pub(crate) fn run(arguments: &SimArguments) -> Result<bool, Failure> {
    // The parser lets options of another mode pass, since what they require is in conflict with this one.
    let SimArguments { scenario, run, search, scale, swarm } = arguments;
    let misplaced = [
        ("--trace is of a scenario", scenario.file.is_some(), scenario.trace.is_some()),
        ("--systems, --system, --test and --run-time are of a search", search.search, search.is_given()),
        ("--worlds and --clocks are of a swarm", swarm.swarm, swarm.worlds.is_some() || swarm.clocks),
        ("--hosts and --channels are of a scale run", scale.scale, scale.hosts.is_some() || scale.channels.is_some()),
    ];
    if let Some((problem, ..)) = misplaced.iter().find(|(_, is_its_mode, is_given)| *is_given && !is_its_mode) {
        return Err(Failure::Usage(format!("sim: {problem}")));
    }
    match &scenario.file {
        Some(file) => scenario::run(file, scenario, run),
        None if search.search => search::run(search, run),
        None if scale.scale => scale::run(scale, run),
        None if swarm.swarm => swarm::run(swarm, run),
        None => Err(Failure::Usage("sim: say what to simulate: a file, --search, --swarm or --scale".into())),
    }
}
