//! From what ran to the HTML report, and that into its file.

use std::path::PathBuf;

use super::arguments::DemoArguments;
use super::html::Report;
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
    // What is said of the whole run is not said again.
    let own_notes = |run: &Run| run.notes.iter().filter(|note| !notes.contains(note)).cloned().collect();
    let scenarios = in_order.map(|run| Run { notes: own_notes(run), ..run.clone() }).collect();
    Report { date: machine::date(), machine: machine::facts(&preface.standing), scenarios, notes }
}
