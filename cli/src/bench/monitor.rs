//! `laxity bench stack-monitor`: what a lock costs that several threads of a host take.
//!
//! What is measured is [`laxity_lab::monitor`]'s; here stands how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::quantile;
use laxity_lab::monitor::{self, BETWEEN, CASES, PROTOCOLS, Report, Row};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::chart::{self, Line, Panel, Picture};
use super::paths::of_bench;
use super::shown::{kept, show};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::progress;
use crate::report::to_json;
use crate::table::{Column, table};

/// Of the whole run, by default.
pub(super) const DURATION: Duration = Duration::from_secs(4);
/// So much of a contended lock's cost has to be gone, in ppm: what the paper's kernelised monitor removed of the cost of real-time support `[nps §5.3]`.
const LEAST_REMOVED: u64 = 700_000;

/// Runs it and shows it; true if the ceiling removes what it is for.
pub(super) fn run(arguments: &BenchArguments, duration: Duration) -> Result<bool, Failure> {
    let bar = progress::bar("{bar:24} {percent} %", duration.as_nanos());
    let report = monitor::run(duration, |passed| bar.set_position(passed.as_nanos()));
    drop(bar);
    let report = report.map_err(|error| of_bench("stack-monitor", error))?;
    show(arguments, || svg(&report), || json(&report, duration), || page(&report, duration))?;
    let removed = removed(&report);
    let broken = format!(
        "a contended lock costs {} less with ceiling-held than with inheritance, expected 70 % at least",
        percent(removed)
    );
    Ok(kept(if removed.is_some_and(|removed| removed >= LEAST_REMOVED) { &[] } else { std::slice::from_ref(&broken) }))
}

fn removed(report: &Report) -> Option<u64> {
    report.removed("ceiling-held", "inheritance")
}

fn percent(ppm: Option<u64>) -> String {
    ppm.map_or_else(|| NONE.to_owned(), |ppm| format!("{} %", ppm / 10_000))
}

/// One line, without a line end.
fn json(report: &Report, duration: Duration) -> String {
    let row = |row: &Row| {
        json!({
            "protocol": row.protocol,
            "case": row.case,
            "samples": row.samples.len(),
            "min_ns": quantile(&row.samples, 0),
            "p50_ns": quantile(&row.samples, 500_000),
            "p99_ns": quantile(&row.samples, 990_000),
            "max_ns": quantile(&row.samples, 1_000_000),
        })
    };
    let removed = removed(report);
    to_json(&json!({
        "bench": "stack-monitor",
        "duration_ns": duration,
        "between_ns": BETWEEN,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "removed_ppm": removed,
        "least_removed_ppm": LEAST_REMOVED,
        "met": removed.is_some_and(|removed| removed >= LEAST_REMOVED),
    }))
}

/// For people.
fn page(report: &Report, duration: Duration) -> String {
    let nanos = |row: &Row, ppm| {
        quantile(&row.samples, ppm).map_or_else(|| NONE.to_owned(), |nanos| Duration::from_nanos(nanos).to_string())
    };
    let columns: &[Column<'_, &Row>] = &[
        ("case", &|row| if row.protocol == PROTOCOLS[0] { row.case.to_owned() } else { String::new() }),
        ("protocol", &|row| row.protocol.to_owned()),
        ("samples", &|row| count(row.samples.len() as u64)),
        ("p50", &|row| nanos(row, 500_000)),
        ("p99", &|row| nanos(row, 990_000)),
        ("longest", &|row| nanos(row, 1_000_000)),
    ];
    let table = table(columns, 2.., report.rows.iter());
    let removed = percent(removed(report));
    format!(
        "LIVE on this host, on one processor under SCHED_FIFO, {duration}; in the case of inversion a third thread computes for {BETWEEN}.\n\n{table}\n\
         A contended lock costs {removed} less where its owner holds the ceiling already than with inheritance."
    )
}

/// The three cases side by side, each from its quickest to its longest sample.
fn svg(report: &Report) -> String {
    let panel = |case: &str| {
        let rows = report.rows.iter().filter(|row| row.case == case).enumerate();
        let points = |row: &Row| {
            let at = |percent: u64| Some((percent, quantile(&row.samples, percent * 10_000)?));
            (0..100).filter_map(at).collect::<Vec<_>>()
        };
        Panel {
            heading: case.to_owned(),
            x_title: "samples, %",
            y_title: "ns",
            x_unit: 1,
            y_unit: 1,
            least_top: 0,
            lines: rows.map(|(class, row)| Line::new(class, points(row))).collect(),
        }
    };
    chart::document(&Picture {
        title: "A lock that several threads take (stack-monitor)".to_owned(),
        subtitle: "LIVE on one host, on one processor, under SCHED_FIFO".to_owned(),
        legend: PROTOCOLS.iter().map(|name| (*name).to_owned()).collect(),
        panels: CASES.iter().map(|case| panel(case)).collect(),
        notes: Vec::new(),
    })
}
