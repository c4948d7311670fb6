//! `laxity bench stack-monitor`: what a lock costs that several threads of a host take.
//!
//! What is measured is [`laxity_lab::monitor`]'s; here stands how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::quantile;
use laxity_lab::monitor::{self, BETWEEN, CASES, PROTOCOLS, Row};
use serde_json::{Value, json};

use super::shown::{Outcome, by_percent, with_bar};
use crate::chart::{Diagram, names};
use crate::failure::Failure;
use crate::numbers::{NONE, count, span};
use crate::table::{self, Column};

/// Of the whole run, by default.
pub(super) const DURATION: Duration = Duration::from_secs(4);
/// So much of a contended lock's cost has to be gone, in ppm: what the paper's kernelised monitor removed of the cost of real-time support `[nps §5.3]`.
const LEAST_REMOVED: u64 = 700_000;

/// Runs it; the ceiling has to remove what it is for.
pub(super) fn run(duration: Duration) -> Result<Outcome, Failure> {
    let rows = with_bar("{percent} %", |progress| monitor::run(duration, progress))?;
    let removed = monitor::removed(&rows, "ceiling-held", "inheritance");
    let is_met = removed.is_some_and(|removed| removed >= LEAST_REMOVED);
    let said = removed.map_or_else(|| NONE.to_owned(), |ppm| format!("{} %", ppm / 10_000));
    let broken =
        format!("a contended lock costs {said} less with ceiling-held than with inheritance, expected 70 % at least");
    Ok(Outcome {
        title: "A lock that several threads take",
        conditions: format!(
            "On one processor under SCHED_FIFO, {duration}; in the case of inversion a third thread computes for {BETWEEN}"
        ),
        json: json!({
            "between_ns": BETWEEN,
            "rows": rows.iter().map(row).collect::<Value>(),
            "removed_ppm": removed,
            "least_removed_ppm": LEAST_REMOVED,
            "met": is_met,
        }),
        tables: format!(
            "{}\nA contended lock costs {said} less where its owner holds the ceiling already than with inheritance.",
            table(&rows)
        ),
        legend: names(PROTOCOLS),
        diagrams: diagrams(&rows),
        broken: (!is_met).then_some(broken).into_iter().collect(),
        ..Outcome::default()
    })
}

fn row(row: &Row) -> Value {
    json!({
        "protocol": row.protocol,
        "case": row.case,
        "samples": row.samples.len(),
        "min_ns": quantile(&row.samples, 0),
        "p50_ns": quantile(&row.samples, 500_000),
        "p99_ns": quantile(&row.samples, 990_000),
        "max_ns": quantile(&row.samples, 1_000_000),
    })
}

/// For people.
fn table(rows: &[Row]) -> String {
    let nanos = |row: &Row, ppm| span(quantile(&row.samples, ppm).map(Duration::from_nanos));
    let columns: &[Column<'_, &Row>] = &[
        ("case", &|row| if row.protocol == PROTOCOLS[0] { row.case.to_owned() } else { String::new() }),
        ("protocol", &|row| row.protocol.to_owned()),
        ("samples", &|row| count(row.samples.len() as u64)),
        ("p50", &|row| nanos(row, 500_000)),
        ("p99", &|row| nanos(row, 990_000)),
        ("longest", &|row| nanos(row, 1_000_000)),
    ];
    table::table(columns, 2.., rows)
}

/// The three cases side by side, each from its quickest to its longest sample.
fn diagrams(all: &[Row]) -> Vec<Diagram> {
    let diagram = |case: &&str| {
        let rows = all.iter().filter(|row| row.case == *case).enumerate();
        let lines = rows.map(|(class, row)| by_percent(class, |ppm| quantile(&row.samples, ppm)));
        Diagram::of_lines(*case, ("samples, %", 1), ("ns", 1), 0, lines)
    };
    CASES.iter().map(diagram).collect()
}
