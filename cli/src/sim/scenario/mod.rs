//! `laxity sim SCENARIO.toml`: one world from a file, with every channel admitted on its way.
//!
//! [`mod@file`] reads it, [`admit`] asks the hosts' admission, [`build`] makes the world, [`report`] says what became of it.

mod admit;
mod build;
mod file;
#[cfg(test)]
mod fuzz;
mod report;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_sim::World;
use laxity_sim::trace::Trace;

use super::RunArguments;
use crate::failure::{Failure, with_file};
use crate::file::{StreamedFile, can_be_written, failed, read};
use crate::report::say;
use crate::stop::Stop;
use file::Scenario;
use report::ScenarioReport;

/// Arguments of one world from a file.
#[derive(Debug, Args)]
pub(crate) struct ScenarioArguments {
    /// A TOML file with hosts, channels, sources and faults
    #[arg(value_name = "SCENARIO", group = "mode")]
    pub(crate) file: Option<PathBuf>,
    /// Write a trace to FILE, to be opened at ui.perfetto.dev
    #[arg(long, value_name = "FILE", requires = "file")]
    pub(crate) trace: Option<PathBuf>,
}

/// After so much virtual time it looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(1);

/// Simulates what the file says; true if every promise was kept.
pub(crate) fn run(path: &Path, scenario: &ScenarioArguments, arguments: &RunArguments) -> Result<bool, Failure> {
    let (RunArguments { seed, json, seconds, .. }, ScenarioArguments { trace, .. }) = (arguments, scenario);
    let (trace, seed) = (trace.as_deref(), *seed);
    let name = path.display().to_string();
    let text = read(path).map_err(failed(path))?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let reader = |file: &str| read(&beside.join(file)).map_err(|error| error.to_string());
    let duration = seconds.map(|seconds| Duration::from_nanos(seconds.saturating_mul(NANOS_PER_SECOND)));
    let scenario = file::parse(&text, &name, duration, &reader)?;
    if let Some(trace) = trace {
        can_be_written(trace)?;
    }
    let stop = Stop::on_signals()?;
    let mut world = World::new(seed);
    let mut traced = None;
    if let Some(path) = trace {
        let about = [("scenario", name.clone()), ("seed", seed.to_string())];
        let mut trace = Trace::new(StreamedFile::create(path)?, &about);
        scenario.hosts.iter().for_each(|host| trace.add_host(&host.name));
        let trace = Rc::new(RefCell::new(trace));
        let told = Rc::clone(&trace);
        world.set_observer(Box::new(move |seen| told.borrow_mut().observe(seen)));
        traced = Some((path, trace));
    }
    let outcome = simulate(&scenario, name, seed, world, &stop)?;
    // The world is gone, so this is the only reference to the trace.
    let trace = traced.and_then(|(path, trace)| Some((path, Rc::into_inner(trace)?)));
    say(&if *json { report::json(&outcome) } else { report::page(&outcome) });
    let written =
        trace.map(|(path, trace)| trace.into_inner().finish().and_then(StreamedFile::finish).map_err(failed(path)));
    with_file(Ok(outcome.promises_kept()), written.unwrap_or(Ok(())))
}

/// Runs the world to its end, or until the command is told to stop.
fn simulate(
    scenario: &Scenario,
    name: String,
    seed: u64,
    mut world: World,
    stop: &Stop,
) -> Result<ScenarioReport, Failure> {
    build::build(scenario, &mut world)?;
    while world.now() < scenario.end && !stop.is_set() {
        let until = (world.now() + LOOK).min(scenario.end);
        world.run_until(until);
    }
    let sent_until = world.now();
    world.finish();
    Ok(ScenarioReport::new(scenario, &world, name, seed, sent_until))
}
