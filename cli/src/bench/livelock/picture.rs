//! Goodput over the flood that was sent: where one link levels off, and the other collapses.

use laxity_core::units::Duration;
use laxity_lab::livelock::{LINKS, Report, Row};

use super::{conditions, flooded};
use crate::bench::chart::{self, Line, Panel, Picture};

/// The document.
pub(super) fn svg(report: &Report, span: Duration) -> String {
    let panel = |heading: &str, y_title, y_unit, value: fn(&Row) -> u64| Panel {
        heading: heading.to_owned(),
        x_title: "strangers send, thousands of packets/s",
        y_title,
        x_unit: 1000,
        y_unit,
        least_top: 0,
        lines: LINKS.iter().enumerate().map(|(class, link)| line(report, class, link, value)).collect(),
    };
    chart::document(&Picture {
        title: "A flood of strangers (livelock)".to_owned(),
        subtitle: "LIVE on one host".to_owned(),
        legend: LINKS.iter().map(|link| (*link).to_owned()).collect(),
        panels: vec![
            panel("Guaranteed, delivered in time", "KB/s", 1000, |row| row.real_time_bytes_s),
            panel("Best effort, delivered", "KB/s", 1000, |row| row.best_effort_bytes_s),
            panel("Guaranteed, late, lost or dropped", "messages", 1, |row| {
                row.real_time.late + row.real_time.lost + row.real_time.dropped
            }),
            panel("Lost at host b's sockets", "packets", 1, |row| row.overflow),
        ],
        notes: std::iter::once(format!("{}.", conditions(report, span))).chain(report.notes.iter().cloned()).collect(),
    })
}

fn line(report: &Report, class: usize, link: &str, value: fn(&Row) -> u64) -> Line {
    let rows = report.rows.iter().filter(|row| row.link == link);
    let mut points: Vec<_> = rows.map(|row| (flooded(row), value(row))).collect();
    points.sort_unstable();
    Line::new(class, points)
}
