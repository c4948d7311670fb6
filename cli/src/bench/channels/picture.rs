//! The runs as the papers' figures.

use super::Report;
use super::plan::{Experiment, KIB, Mode};
use super::row::{Outcome, Row, Unit};
use crate::bench::chart::{self, Line, Panel, Picture};

const LOAD: &str = "best effort offers, KiB/s";
/// The real-time channels come first.
const REAL_TIME: usize = 3;
const FACTOR: &str = "channel 0 offers, times its rate";

/// The document.
pub(super) fn svg(report: &Report) -> String {
    let channels = report
        .rows
        .first()
        .map_or_else(Vec::new, |row| row.channels.iter().map(|outcome| outcome.figures.name.clone()).collect());
    let rows: Vec<&Row> = report.rows.iter().collect();
    let unit = report.unit();
    let (title, panels, legend) = match report.experiment {
        Experiment::Guarantee => {
            let title = "Guarantees beside more and more best effort";
            (title, vec![throughput(&rows, report), laxity(&rows, report)], channels)
        }
        Experiment::Violation => {
            let title = "A channel that offers more than its contract";
            let drops = counts("Dropped", &rows, report, |outcome| outcome.dropped(unit));
            let mut late = counts("Late", &rows, report, |outcome| outcome.late(unit));
            late.lines.retain(|line| line.class < REAL_TIME);
            (title, vec![throughput(&rows, report), drops, laxity(&rows, report), late], channels)
        }
        Experiment::Preemption => (
            "What cooperative preemption is good for",
            preemption(report),
            channels[..channels.len().min(REAL_TIME)].to_vec(),
        ),
    };
    let explained = match report.experiment {
        Experiment::Guarantee | Experiment::Violation => "In the laxity diagram: solid the least, dotted the mean.",
        Experiment::Preemption => "Real-time channels.",
    };
    let ran = if report.live.is_some() { "LIVE on one host" } else { "Simulated" };
    chart::document(&Picture {
        title: format!("{title} ({})", report.experiment.name()),
        subtitle: format!("{ran}, seed {}. {explained}", report.seed),
        legend,
        panels,
        notes: report.notes.clone(),
    })
}

/// Fig. 9a, 9b and worse: late and dropped packets, all to the same scale.
fn preemption(report: &Report) -> Vec<Panel> {
    let unit = report.unit();
    let most = |value: &dyn Fn(&Outcome) -> u64| {
        report.rows.iter().flat_map(Row::real_time).map(value).max().unwrap_or(0) as i64
    };
    let late = |outcome: &Outcome| outcome.late(unit);
    let dropped = |outcome: &Outcome| outcome.dropped(unit);
    let of_mode = |mode: Mode| {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.case.mode == mode).collect();
        let (late_name, dropped_name) = match mode {
            Mode::Cooperative => ("Cooperative: late", "Cooperative: dropped"),
            Mode::BestEffortNotPreempted => ("Best effort not preempted: late", "Best effort not preempted: dropped"),
            Mode::MessageBoundary => ("Message boundaries: late", "Message boundaries: dropped"),
            Mode::Drain => ("Queues drained: late", "Queues drained: dropped"),
        };
        let mut panels = [counts(late_name, &rows, report, late), counts(dropped_name, &rows, report, dropped)];
        for (panel, most) in panels.iter_mut().zip([most(&late), most(&dropped)]) {
            panel.least_top = panel.least_top.max(most);
            panel.lines.retain(|line| line.class < REAL_TIME);
        }
        panels
    };
    Mode::EACH.into_iter().flat_map(of_mode).collect()
}

fn throughput(rows: &[&Row], report: &Report) -> Panel {
    panel("Throughput", "KiB/s", 1, rows, report, |outcome| Some((outcome.throughput / KIB) as i64))
}

fn laxity(rows: &[&Row], report: &Report) -> Panel {
    let micros = |nanos: Option<i64>| nanos.map(|nanos| nanos.div_euclid(1_000));
    let mut least = panel("Laxity", "ms", 1_000, rows, report, |outcome| micros(outcome.min_laxity));
    let mean = panel("", "ms", 1_000, rows, report, |outcome| micros(outcome.mean_laxity));
    least.lines.extend(mean.lines.into_iter().map(|line| Line { dotted: true, ..line }));
    least
}

/// Packets, or messages.
fn counts(name: &str, rows: &[&Row], report: &Report, value: impl Fn(&Outcome) -> u64) -> Panel {
    let unit = report.unit();
    let panel = panel(name, unit.name(), 1, rows, report, |outcome| Some(value(outcome) as i64));
    let least_top = match unit {
        Unit::Packets => 100,
        Unit::Messages => 10,
    };
    Panel { least_top, ..panel }
}

/// A line for each channel that has values.
fn panel(
    heading: &str,
    y_title: &'static str,
    y_unit: u32,
    rows: &[&Row],
    report: &Report,
    value: impl Fn(&Outcome) -> Option<i64>,
) -> Panel {
    let is_violation = report.experiment == Experiment::Violation;
    let at = |row: &Row| if is_violation { row.case.channel_0_percent } else { row.case.best_effort / KIB };
    let count = rows.first().map_or(0, |row| row.channels.len());
    let lines = (0..count).map(|class| {
        let points = rows.iter().filter_map(|row| Some((at(row), value(&row.channels[class])?)));
        Line { class, dotted: false, points: points.collect() }
    });
    Panel {
        heading: heading.to_owned(),
        x_title: if is_violation { FACTOR } else { LOAD },
        y_title,
        x_unit: if is_violation { 100 } else { 1 },
        y_unit,
        least_top: 0,
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    }
}
