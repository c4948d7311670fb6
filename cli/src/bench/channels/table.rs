//! The runs as tables for people, with the quantities of the papers' figures: KiB/s, ms and packets; live messages instead of packets.

use comfy_table::{CellAlignment, Table, presets};

use super::Report;
use super::plan::{Experiment, KIB, Mode};
use super::row::{Outcome, Row, Unit};
use crate::numbers::count;

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
            Mode::EACH.iter().map(of_mode).collect::<Vec<_>>().join("\n\n")
        }
    }
}

fn table(rows: &[Row], unit: Unit, varied: &str, label: impl Fn(&Row) -> String) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header([
        varied,
        "real-time gets",
        "best effort gets",
        "least laxity",
        "mean laxity",
        &format!("late {}", unit.name()),
        &format!("dropped {}", unit.name()),
        "best effort drops",
    ]);
    for row in rows {
        let (best_effort, real_time) = row.channels.split_last().expect("best effort is the last channel");
        let each = |value: &dyn Fn(&Outcome) -> String| real_time.iter().map(value).collect::<Vec<_>>().join(" / ");
        table.add_row([
            label(row),
            each(&|channel| count(nearest(channel.throughput, KIB))),
            count(nearest(best_effort.throughput, KIB)),
            each(&|channel| millis(channel.min_laxity)),
            each(&|channel| millis(channel.mean_laxity)),
            each(&|channel| count(channel.late(unit))),
            each(&|channel| count(channel.dropped(unit))),
            count(best_effort.dropped(unit)),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn nearest(value: u64, unit: u64) -> u64 {
    (value + unit / 2) / unit
}

/// Milliseconds with one decimal, rounded down.
fn millis(nanos: Option<i64>) -> String {
    nanos.map_or_else(
        || "-".to_owned(),
        |nanos| {
            let tenths = nanos.div_euclid(100_000);
            let sign = if tenths < 0 { "-" } else { "" };
            format!("{sign}{}.{}", tenths.abs() / 10, tenths.abs() % 10)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laxities_round_towards_the_worse() {
        let text = |nanos| millis(Some(nanos));
        assert_eq!([text(15_061_234), text(99_999), text(-1), text(-12_340_000)], ["15.0", "0.0", "-0.1", "-12.4"]);
        assert_eq!(millis(None), "-");
    }
}
