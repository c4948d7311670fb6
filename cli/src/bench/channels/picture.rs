//! The runs as the papers' figures.

use strum::VariantArray;

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
    let channels = report.rows.first().map_or(&[][..], |row| &row.channels);
    let mut legend: Vec<String> = channels.iter().map(|outcome| outcome.figures.name.clone()).collect();
    let rows: Vec<&Row> = report.rows.iter().collect();
    let (title, panels) = match report.experiment {
        Experiment::Guarantee => {
            ("Guarantees beside more and more best effort", vec![throughput(&rows, report), laxity(&rows, report)])
        }
        Experiment::Violation => {
            let drops = counts("Dropped", &rows, report, Outcome::dropped);
            let late = of_real_time(counts("Late", &rows, report, Outcome::late));
            let panels = vec![throughput(&rows, report), drops, laxity(&rows, report), late];
            ("A channel that offers more than its contract", panels)
        }
        Experiment::Preemption => {
            legend.truncate(REAL_TIME);
            ("What cooperative preemption is good for", preemption(report))
        }
    };
    let explained = match report.experiment {
        Experiment::Guarantee | Experiment::Violation => "In the laxity diagram: solid the least, dotted the mean.",
        Experiment::Preemption => "Real-time channels.",
    };
    let ran = if report.live.is_some() { "LIVE on one host" } else { "Simulated" };
    chart::document(&Picture {
        title: format!("{title} ({})", report.experiment),
        subtitle: format!("{ran}, seed {}. {explained}", report.seed),
        legend,
        panels,
        notes: report.notes.clone(),
    })
}

/// Without best effort.
fn of_real_time(mut panel: Panel) -> Panel {
    panel.lines.retain(|line| line.class < REAL_TIME);
    panel
}

/// Fig. 9a, 9b and worse: late and dropped packets, all to the same scale.
fn preemption(report: &Report) -> Vec<Panel> {
    let of_mode = |mode: Mode| {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.case.mode == mode).collect();
        let name = match mode {
            Mode::Cooperative => "Cooperative",
            Mode::BestEffortNotPreempted => "Best effort not preempted",
            Mode::MessageBoundary => "Message boundaries",
            Mode::Drain => "Queues drained",
        };
        let counted: [(&str, Count); 2] = [("late", Outcome::late), ("dropped", Outcome::dropped)];
        counted.map(|(what, value)| {
            let all = report.rows.iter().flat_map(Row::real_time).map(|outcome| value(outcome, report.unit()));
            let panel = of_real_time(counts(&format!("{name}: {what}"), &rows, report, value));
            Panel { least_top: panel.least_top.max(all.max().unwrap_or(0) as i64), ..panel }
        })
    };
    Mode::VARIANTS.iter().copied().flat_map(of_mode).collect()
}

/// What is counted of a channel.
type Count = fn(&Outcome, Unit) -> u64;

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
fn counts(name: &str, rows: &[&Row], report: &Report, value: Count) -> Panel {
    let unit = report.unit();
    let panel = panel(name, unit.into(), 1, rows, report, |outcome| Some(value(outcome, unit) as i64));
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
