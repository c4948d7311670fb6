//! Round by round: what a disturbance does to all paths, and what lies between them, can be seen.

use laxity_lab::paths::{PATHS, Path, Report, Setup};

use super::conditions;
use crate::bench::chart::{self, Line, Panel, Picture};

/// The document.
pub(super) fn svg(report: &Report, setup: &Setup) -> String {
    let by_round = |values: &[u64]| (1..).zip(values.iter().copied()).collect::<Vec<_>>();
    let panel = |heading: &str, y_title, y_unit, values: fn(&Path) -> &[u64]| Panel {
        heading: heading.to_owned(),
        x_title: "round",
        y_title,
        x_unit: 1,
        y_unit,
        least_top: 0,
        lines: report.paths.iter().enumerate().map(|(class, path)| Line::new(class, by_round(values(path)))).collect(),
    };
    chart::document(&Picture {
        title: "The fast path beside what an expert writes by hand (xdp-path)".to_owned(),
        subtitle: format!("LIVE on one host. {}.", conditions(report, setup)),
        legend: PATHS.iter().map(|name| (*name).to_owned()).collect(),
        panels: vec![
            panel("Round trip, median of each round", "µs", 1000, |path| &path.medians),
            panel("One way, received", "thousands of packets/s", 1000, |path| &path.packets_s),
        ],
        notes: report.notes.clone(),
    })
}
