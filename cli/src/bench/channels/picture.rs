//! The runs as the papers' figures, and as tables for people with the quantities of those: KiB/s, ms and packets; live messages instead of packets.

use laxity_core::processor::Preemption;

use super::plan::{Experiment, KIB, MODES, factor};
use super::row::{ChannelResult, Row};
use crate::chart::{Diagram, Look, Series};
use crate::numbers::{count, millis};
use crate::table::{Column, known, table};

/// The real-time channels come first.
const REAL_TIME: usize = 3;

pub(super) const SOLID: &str = "In the laxity diagram: solid the least, dotted the mean.";

/// What is drawn of an experiment.
pub(super) fn diagrams(experiment: Experiment, all: &[Row], is_simulated: bool) -> Vec<Diagram> {
    let rows: Vec<&Row> = all.iter().collect();
    let runs = Runs { experiment, rows: &rows, is_simulated };
    match experiment {
        Experiment::Guarantee => vec![runs.throughput(), runs.laxity()],
        Experiment::Violation => vec![
            runs.throughput(),
            runs.counts("Dropped", ChannelResult::dropped, 0, usize::MAX),
            runs.laxity(),
            runs.counts("Late", ChannelResult::late, 0, REAL_TIME),
        ],
        Experiment::Preemption => MODES.iter().flat_map(|(mode, [.., name])| runs.of_mode(*mode, name)).collect(),
    }
}

/// What is counted of a channel.
type Count = fn(&ChannelResult) -> u64;

/// Runs in a diagram.
struct Runs<'a> {
    experiment: Experiment,
    rows: &'a [&'a Row],
    is_simulated: bool,
}

impl Runs<'_> {
    /// Fig. 9a, 9b and worse: late and dropped packets, all to the same scale.
    fn of_mode(&self, mode: Preemption, name: &str) -> [Diagram; 2] {
        let rows: Vec<&Row> = self.rows.iter().copied().filter(|row| row.case.preemption == mode).collect();
        let counted: [(&str, Count); 2] = [("late", ChannelResult::late), ("dropped", ChannelResult::dropped)];
        counted.map(|(kind, value)| {
            let most = self.rows.iter().flat_map(|row| row.real_time()).map(value).max().unwrap_or(0);
            Runs { rows: &rows, ..*self }.counts(&format!("{name}: {kind}"), value, most, REAL_TIME)
        })
    }

    fn throughput(&self) -> Diagram {
        let lines = self.lines(Look::Number, |channel| Some((channel.outcome.throughput_bytes_s / KIB) as f64));
        self.diagram("Throughput", ("KiB/s", 1), 0, lines)
    }

    /// The least, and dotted the mean.
    fn laxity(&self) -> Diagram {
        let micros = |nanos: Option<i64>| nanos.map(|nanos| nanos.div_euclid(1_000) as f64);
        let least = self.lines(Look::Number, |channel| micros(channel.min_laxity()));
        let mean = self.lines(Look::Dotted, |channel| micros(channel.mean_laxity()));
        self.diagram("Laxity", ("ms", 1_000), 0, [least, mean].concat())
    }

    /// Packets, or messages, of the first `channels`.
    fn counts(&self, name: &str, value: Count, most: u64, channels: usize) -> Diagram {
        let (unit, least_top) = if self.is_simulated { ("packets", 100) } else { ("messages", 10) };
        let mut lines = self.lines(Look::Number, |channel| Some(value(channel) as f64));
        lines.truncate(channels);
        self.diagram(name, (unit, 1), most.max(least_top), lines)
    }

    /// A line for each channel.
    fn lines(&self, look: fn(usize) -> Look, value: impl Fn(&ChannelResult) -> Option<f64>) -> Vec<Series> {
        let is_violation = self.experiment == Experiment::Violation;
        let at = |row: &Row| if is_violation { row.case.channel_0_percent } else { row.case.best_effort / KIB };
        let line = |class: usize| {
            let points = self.rows.iter().filter_map(|row| Some((at(row) as f64, value(&row.channels[class])?)));
            Series { look: look(class), points: points.collect(), ..Series::line(class, []) }
        };
        (0..self.rows.first().map_or(0, |row| row.channels.len())).map(line).collect()
    }

    fn diagram(&self, heading: &str, up: (&str, u32), least_top: u64, lines: Vec<Series>) -> Diagram {
        let across = match self.experiment {
            Experiment::Violation => ("channel 0 offers, times its rate", 100),
            _ => ("best effort offers, KiB/s", 1),
        };
        Diagram::of_lines(heading, across, up, least_top, lines)
    }
}

/// The tables of a report, each below its heading.
pub(super) fn tables(experiment: Experiment, rows: &[Row], is_simulated: bool) -> String {
    let unit = if is_simulated { "packets" } else { "messages" };
    let by_load = |rows: &[&Row]| of_runs(rows, unit, "best effort offers", |row| count(row.case.best_effort / KIB));
    let all: Vec<&Row> = rows.iter().collect();
    match experiment {
        Experiment::Guarantee => by_load(&all),
        Experiment::Violation => of_runs(&all, unit, "channel 0 offers", |row| factor(&row.case)),
        Experiment::Preemption => {
            let tables = MODES.iter().map(|(mode, [_, heading, _])| {
                let rows: Vec<&Row> = rows.iter().filter(|row| row.case.preemption == *mode).collect();
                format!("{heading}\n{}", by_load(&rows))
            });
            tables.collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// Runs in a table, each labelled with what varies.
fn of_runs(rows: &[&Row], unit: &str, varied: &str, label: impl Fn(&Row) -> String) -> String {
    // Best effort is the last channel.
    let each = |row: &Row, value: &dyn Fn(&ChannelResult) -> String| {
        let real_time = row.channels.split_last().map_or(&[][..], |(_, real_time)| real_time);
        real_time.iter().map(value).collect::<Vec<_>>().join(" / ")
    };
    let best_effort = |row: &Row, value: &dyn Fn(&ChannelResult) -> u64| count(row.channels.last().map_or(0, value));
    let (late, dropped) = (format!("late {unit}"), format!("dropped {unit}"));
    // To the nearest.
    let rate = |channel: &ChannelResult| (channel.outcome.throughput_bytes_s + KIB / 2) / KIB;
    let columns: &[Column<'_, &&Row>] = &[
        (varied, &|row| label(row)),
        ("real-time gets", &|row| each(row, &|channel| count(rate(channel)))),
        ("best effort gets", &|row| best_effort(row, &rate)),
        ("least laxity", &|row| each(row, &|channel| known(channel.min_laxity().map(millis)))),
        ("mean laxity", &|row| each(row, &|channel| known(channel.mean_laxity().map(millis)))),
        (&late, &|row| each(row, &|channel| count(channel.late()))),
        (&dropped, &|row| each(row, &|channel| count(channel.dropped()))),
        ("best effort drops", &|row| best_effort(row, &ChannelResult::dropped)),
    ];
    table(columns, .., rows)
}
