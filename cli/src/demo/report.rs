//! From what ran to the HTML report, and that into its file.

use std::path::PathBuf;

use laxity_lab::wire::WireFigures;

use super::arguments::DemoArguments;
use super::html::{Report, ScenarioReport};
use super::run::Run;
use super::{Preface, machine};
use crate::failure::Failure;
use crate::file;

/// Where the report goes unless told otherwise.
const DEFAULT: &str = "laxity-demo.html";

/// Where the report goes, if there is to be one. Where the default file cannot be written there is none, and it is said.
pub(super) fn path(arguments: &DemoArguments) -> Result<Option<PathBuf>, Failure> {
    if arguments.no_html {
        return Ok(None);
    }
    let path = arguments.html.clone().unwrap_or_else(|| PathBuf::from(DEFAULT));
    match file::can_be_written(&path) {
        Err(error) if arguments.html.is_none() => {
            eprintln!("no report with plots: {error}; --html FILE writes it elsewhere");
            Ok(None)
        }
        found => found.map(|()| Some(path)),
    }
}

/// Everything as the page shall show it.
pub(super) fn report(runs: &[Run], preface: &Preface) -> Report {
    let mut notes = preface.notes.clone();
    let deadlines: Vec<String> =
        preface.admitted.iter().map(|row| format!("{} {}", row.name, row.contract.deadline())).collect();
    notes.push(format!("every stack is judged by the same deadlines, as admitted here: {}", deadlines.join(", ")));
    // What was measured comes first.
    let in_order = runs.iter().filter(|run| !run.simulated).chain(runs.iter().filter(|run| run.simulated));
    let scenarios = in_order.map(|run| scenario(run, &notes)).collect();
    Report { date: machine::date(), machine: machine::facts(&preface.standing), scenarios, notes }
}

/// One scenario; what is `said` of the whole run is not said again.
fn scenario(run: &Run, said: &[String]) -> ScenarioReport {
    ScenarioReport {
        attack: run.attack.to_string(),
        stack: run.stack.to_string(),
        flood: run.flood.to_string(),
        simulated: run.simulated,
        elapsed: run.elapsed,
        channels: run.channels.clone(),
        wire: run.wire.as_ref().map(wire).unwrap_or_default(),
        notes: run.notes.iter().filter(|note| !said.contains(note)).cloned().collect(),
    }
}

/// What the wire counted, by name.
fn wire(wire: &WireFigures) -> Vec<(String, String)> {
    let count = |number: u64| number.to_string();
    [
        ("queues", wire.discipline.to_string()),
        ("high class", count(wire.high.forwarded)),
        ("high class, dropped", count(wire.high.dropped)),
        ("all others", count(wire.low.forwarded)),
        ("all others, dropped", count(wire.low.dropped)),
        ("of a stranger", count(wire.foreign.forwarded)),
        ("lost in front of it", count(wire.overflow)),
        ("released over 1ms late", count(wire.late_releases)),
        ("latest release", wire.largest_lateness.to_string()),
        ("busy", wire.busy.to_string()),
        ("real-time", if wire.realtime { "yes" } else { "no" }.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
