//! The runs as tables for people, with the quantities of the papers' figures: KiB/s, ms and packets; live messages instead of packets.

use strum::VariantArray;

use super::Report;
use super::plan::{Experiment, KIB, Mode};
use super::row::{Outcome, Row, Unit};
use crate::numbers::{count, millis};
use crate::table::{self, Column, known};

/// The tables of a report, each below its heading.
pub(super) fn tables(report: &Report) -> String {
    let unit = report.unit();
    match report.experiment {
        Experiment::Guarantee => {
            table(&report.rows, unit, "best effort offers", |row| count(row.case.best_effort / KIB))
        }
        Experiment::Violation => table(&report.rows, unit, "channel 0 offers", |row| row.case.factor()),
        Experiment::Preemption => {
            let of_mode = |mode: &Mode| {
                let rows: Vec<Row> = report.rows.iter().filter(|row| row.case.mode == *mode).cloned().collect();
                let table = table(&rows, unit, "best effort offers", |row| count(row.case.best_effort / KIB));
                format!("{}\n{table}", mode.heading())
            };
            Mode::VARIANTS.iter().map(of_mode).collect::<Vec<_>>().join("\n\n")
        }
    }
}

fn table(rows: &[Row], unit: Unit, varied: &str, label: impl Fn(&Row) -> String) -> String {
    // Best effort is the last channel.
    let each = |row: &Row, value: &dyn Fn(&Outcome) -> String| {
        let real_time = row.channels.split_last().map_or(&[][..], |(_, real_time)| real_time);
        real_time.iter().map(value).collect::<Vec<_>>().join(" / ")
    };
    let best_effort = |row: &Row, value: &dyn Fn(&Outcome) -> u64| count(row.channels.last().map_or(0, value));
    let (late, dropped) = (format!("late {unit}"), format!("dropped {unit}"));
    let rate = |channel: &Outcome| nearest(channel.throughput, KIB);
    let columns: &[Column<'_, &Row>] = &[
        (varied, &|row| label(row)),
        ("real-time gets", &|row| each(row, &|channel| count(rate(channel)))),
        ("best effort gets", &|row| best_effort(row, &rate)),
        ("least laxity", &|row| each(row, &|channel| known(channel.min_laxity.map(millis)))),
        ("mean laxity", &|row| each(row, &|channel| known(channel.mean_laxity.map(millis)))),
        (&late, &|row| each(row, &|channel| count(channel.late(unit)))),
        (&dropped, &|row| each(row, &|channel| count(channel.dropped(unit)))),
        ("best effort drops", &|row| best_effort(row, &|channel| channel.dropped(unit))),
    ];
    table::table(columns, .., rows).to_string()
}

fn nearest(value: u64, unit: u64) -> u64 {
    (value + unit / 2) / unit
}
