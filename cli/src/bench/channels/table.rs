//! The runs as tables for people, with the quantities of the papers' figures: KiB/s, ms and packets; live messages instead of packets.

use super::plan::{Experiment, KIB, MODES, factor};
use super::row::{ChannelResult, Row};
use crate::numbers::{count, millis};
use crate::table::{self, Column, known};

/// The tables of a report, each below its heading.
pub(super) fn tables(experiment: Experiment, rows: &[Row], is_simulated: bool) -> String {
    let unit = if is_simulated { "packets" } else { "messages" };
    let by_load = |rows: &[&Row]| table(rows, unit, "best effort offers", |row| count(row.case.best_effort / KIB));
    let all: Vec<&Row> = rows.iter().collect();
    match experiment {
        Experiment::Guarantee => by_load(&all),
        Experiment::Violation => table(&all, unit, "channel 0 offers", |row| factor(&row.case)),
        Experiment::Preemption => {
            let tables = MODES.iter().map(|(mode, [_, heading, _])| {
                let rows: Vec<&Row> = rows.iter().filter(|row| row.case.preemption == *mode).collect();
                format!("{heading}\n{}", by_load(&rows))
            });
            tables.collect::<Vec<_>>().join("\n\n")
        }
    }
}

fn table(rows: &[&Row], unit: &str, varied: &str, label: impl Fn(&Row) -> String) -> String {
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
    table::table(columns, .., rows)
}
