//! `laxity sim --swarm`: many short worlds, each drawn by its seed, with everything that is checked all the time.

use std::num::NonZeroU64;
use std::time::Instant;

use clap::Args;
use laxity_sim::FaultKind;
use laxity_sim::swarm::{self, SwarmTotals, WorldOutcome};
use serde_json::{Map, Value, json};

use super::RunArguments;
use crate::failure::Failure;
use crate::progress::bar;
use crate::report::{by_cause, say, to_json, with};

/// Arguments of the swarm alone.
#[derive(Debug, Args)]
pub(crate) struct SwarmArguments {
    /// Run many short worlds, one for each seed from `--seed` on, under all kinds of faults
    #[arg(long, group = "mode", conflicts_with = "seconds")]
    pub(crate) swarm: bool,
    /// Of a swarm: how many worlds [default: 10000]
    #[arg(long, requires = "swarm", value_name = "N")]
    pub(crate) worlds: Option<NonZeroU64>,
    /// Of a swarm: worlds of two hosts with two clocks. They test what each host knows of the other's clock
    #[arg(long, requires = "swarm")]
    pub(crate) clocks: bool,
}

/// Worlds of a swarm that is not told how many.
const WORLDS: u64 = 10_000;

/// Runs them; true if nothing was found.
pub(super) fn run(swarm: &SwarmArguments, arguments: &RunArguments) -> Result<bool, Failure> {
    let worlds = swarm.worlds.map_or(WORLDS, NonZeroU64::get);
    let bar = bar("{bar:24} {pos} of {len} worlds, {eta} left", worlds);
    let started = Instant::now();
    let world = if swarm.clocks { swarm::clocks::world } else { swarm::world };
    let totals = swarm::run(world, arguments.seed, worlds, arguments.threads(), |done| bar.set_position(done));
    bar.finish_and_clear();
    let elapsed = started.elapsed();
    let each_second = u128::from(worlds) * 1_000 / elapsed.as_millis().max(1);
    eprintln!("{worlds} worlds in {:.1} s, {each_second} a second", elapsed.as_secs_f64());
    let report = if arguments.json { json } else { text };
    say(&report(swarm, arguments.seed, &totals));
    Ok(totals.failed == 0)
}

/// The command that runs one world again.
fn replay(swarm: &SwarmArguments, seed: u64) -> String {
    let clocks = if swarm.clocks { " --clocks" } else { "" };
    format!("laxity sim --swarm{clocks} --worlds 1 --seed {seed}")
}

fn json(swarm: &SwarmArguments, seed: u64, totals: &SwarmTotals) -> String {
    let counts = &totals.counts;
    let faults = FaultKind::NAMES.iter().zip(counts.faults).map(|(name, count)| ((*name).to_owned(), count.into()));
    let finding = |failure: &WorldOutcome| {
        json!({
            "seed": failure.seed,
            "found": failure.findings,
            "setting": failure.setting,
            "replay": replay(swarm, failure.seed),
        })
    };
    let run = json!({ "simulated": true, "seed": seed, "worlds": totals.worlds, "failed": totals.failed });
    let found = json!({
        "faults": faults.collect::<Map<String, Value>>(),
        "findings": totals.failures.iter().map(finding).collect::<Value>(),
        "digest": digest(totals),
    });
    to_json(&with(with(run, json!(counts)), found))
}

fn digest(totals: &SwarmTotals) -> String {
    format!("{:016x}", totals.digest.0)
}

fn text(swarm: &SwarmArguments, seed: u64, totals: &SwarmTotals) -> String {
    let counts = &totals.counts;
    let seconds = counts.span.as_nanos() / 1_000_000_000;
    let mut lines = vec![
        format!("{} worlds from seed {seed} on, {seconds} s of virtual time", totals.worlds),
        format!("{} hosts, {} channels admitted and opened, {} refused", counts.hosts, counts.channels, counts.refused),
        format!(
            "{} messages: {} delivered, {} of them late, {} lost; {} more broke a contract",
            counts.messages, counts.delivered, counts.late, counts.lost, counts.violations
        ),
    ];
    lines.push(if swarm.clocks {
        format!(
            "{} of them undecided; {} were far from their deadlines in worlds without faults, and had to be decided",
            counts.undecided, counts.decidable
        )
    } else {
        format!(
            "misses of real-time channels: {}; over bound {}; {} undecided",
            by_cause(&counts.misses).map(|(cause, number)| format!("{cause} {number}")).join(", "),
            counts.over_bound,
            counts.undecided
        )
    });
    let faults: Vec<_> =
        FaultKind::NAMES.iter().zip(counts.faults).map(|(name, count)| format!("{name} {count}")).collect();
    lines.extend([
        format!("faults: {}", faults.join(", ")),
        format!("digest {}", digest(totals)),
        format!("{} worlds in which something does not hold", totals.failed),
    ]);
    for failure in &totals.failures {
        lines.push(format!("\n{}", replay(swarm, failure.seed)));
        lines.extend(failure.findings.iter().chain(&failure.setting).map(|line| format!("  {line}")));
    }
    lines.join("\n")
}
