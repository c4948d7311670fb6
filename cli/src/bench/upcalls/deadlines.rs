//! `laxity bench upcall-deadlines`: does everything that is accepted meet its deadlines, and how closely [rtu §7.1]?

use laxity::upcall::UpcallMisses;
use laxity_core::units::Duration;
use laxity_lab::upcalls::deadlines::{self, PERIODS_MS, PROCESSES, Periodic, Report, Row, Scheme};
use serde_json::{Value, json};
use strum::VariantArray;

use super::set::Set;
use super::{beside, share};
use crate::bench::arguments::BenchArguments;
use crate::bench::chart::{self, Line, Panel, Picture};
use crate::bench::shown::{fraction, kept, listed, show};
use crate::bench::sweep::{sweep, threads};
use crate::failure::Failure;
use crate::numbers::{count, millis};
use crate::progress;
use crate::report::to_json;
use crate::table::{Column, known, table};

/// C_cs, in virtual time.
const SWITCH: Duration = Duration::from_micros(20);
/// Shares of the processor in virtual time, in thousandths.
const STEPS: [u64; 11] = [300, 400, 500, 600, 650, 700, 750, 800, 850, 900, 950];
/// Of which the table and the picture show the slack: the highest priority, one in between, the lowest.
const SHOWN_MS: [u64; 3] = [PERIODS_MS[0], PERIODS_MS[2], PERIODS_MS[5]];

/// Runs it and shows it; true if nothing that was accepted missed by Laxity's own fault.
pub(super) fn run(arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let (simulated, bar) = (arguments.simulated, progress::bar("{bar:24} {pos} of {len} runs", 0));
    let report = match simulated {
        true => self::simulated(span, threads(arguments)),
        false => deadlines::run(span, |done, all| {
            bar.set_length(all);
            bar.set_position(done);
        })?,
    };
    drop(bar);
    let ran = if simulated { "In virtual time" } else { "LIVE on this host" };
    let conditions =
        format!("{ran}, {span} each: twelve upcalls with periods of 40 to 90 ms, each with the same share");
    let page = || page(&report, &conditions);
    show(arguments, || svg(&report, &conditions), || json(&report, simulated, span), page)?;
    let broken: Vec<String> = report.rows.iter().filter_map(Row::broken_promise).collect();
    Ok(kept(&broken))
}

/// In virtual time.
fn simulated(span: Duration, threads: usize) -> Report {
    let rows = sweep(&STEPS, threads, |&utilisation| {
        // Together, as is worst for the lowest priority.
        let set = Set { processes: PROCESSES, utilisation, block: 1, switch: SWITCH, seed: 0 };
        let ((upcalls, alone), accepted) = (set.run(span), set.is_accepted());
        let of_upcall = |(upcall, runs): (&laxity_core::upcall::Upcall, &laxity_sim::Runs)| {
            let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
            let missed = runs.late + runs.skipped;
            Periodic {
                period: upcall.period(),
                invocations: runs.completed + runs.skipped,
                missed,
                // Nothing is promised of what is not accepted. There is no platform, and no run takes more than was declared.
                misses: accepted.then(|| UpcallMisses { laxity: missed, ..UpcallMisses::default() }),
                min_slack: (runs.completed > 0 || missed > 0).then(|| nanos(upcall.period()) - nanos(runs.longest)),
            }
        };
        let upcalls = upcalls.iter().zip(&alone.runs).map(of_upcall).collect();
        let (scheme, accepted, background) = (Scheme::Upcalls, Some(accepted), false);
        Row { utilisation, background, scheme, accepted, upcalls, reason: None }
    });
    let accepted = rows.iter().filter(|row| row.accepted == Some(true)).map(|row| row.utilisation).max();
    let first = rows.iter().find(|row| row.missed() > 0);
    let mut notes = vec![
        format!("simulated: a change of upcall takes {SWITCH}; all upcalls are released together at the beginning"),
        "no background load is simulated: it runs below the upcalls, and virtual time has nothing else that it could delay"
            .to_owned(),
        format!("the exact response-time test accepts up to {}", known(accepted.map(share))),
    ];
    notes.extend(first.map(|row| {
        let missing = row.upcalls.iter().filter(|upcall| upcall.missed > 0);
        let shortest = missing.map(|upcall| upcall.period).min().unwrap_or_default();
        format!(
            "the first misses are at {}: {} runs, of upcalls with a period of {shortest} or more",
            share(row.utilisation),
            row.missed()
        )
    }));
    Report { rows, notes }
}

/// One line, without a line end.
fn json(report: &Report, simulated: bool, span: Duration) -> String {
    let upcall = |upcall: &Periodic| {
        json!({
            "period_ns": upcall.period.as_nanos(),
            "invocations": upcall.invocations,
            "missed": upcall.missed,
            "misses": upcall.misses.map(misses),
            "min_slack_ns": upcall.min_slack,
        })
    };
    let row = |row: &Row| {
        let scheme: &str = row.scheme.into();
        json!({
            "utilisation": fraction(row.utilisation, 1000),
            "background": row.background,
            "scheme": scheme,
            "accepted": row.accepted,
            "reason": row.reason,
            "upcalls": row.upcalls.iter().map(upcall).collect::<Value>(),
        })
    };
    to_json(&json!({
        "bench": "upcall-deadlines",
        "simulated": simulated,
        "duration_ns": span.as_nanos(),
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// Missed runs by cause.
pub(super) fn misses(misses: UpcallMisses) -> Value {
    json!({ "upcall": misses.upcall, "platform": misses.platform, "laxity": misses.laxity })
}

/// For people.
fn page(report: &Report, conditions: &str) -> String {
    let of_cause = |row: &Row, cause: fn(&UpcallMisses) -> u64| {
        let causes: Option<Vec<u64>> = row.upcalls.iter().map(|upcall| upcall.misses.as_ref().map(cause)).collect();
        known(causes.filter(|_| !row.upcalls.is_empty()).map(|each| count(each.iter().sum())))
    };
    let slack = |row: &Row, period| known(row.min_slack(period).map(millis));
    let headings = SHOWN_MS.map(|period| format!("least slack of {period} ms"));
    let columns: &[Column<'_, &Row>] = &[
        ("utilisation", &|row| share(row.utilisation)),
        ("beside", &|row| beside(row.background)),
        ("scheme", &|row| <&str>::from(row.scheme).to_owned()),
        ("accepted", &|row| known(row.accepted.map(|accepted| if accepted { "yes" } else { "no" }))),
        ("runs", &|row| count(row.upcalls.iter().map(|upcall| upcall.invocations).sum())),
        ("missed", &|row| if row.reason.is_some() { "refused".to_owned() } else { count(row.missed()) }),
        ("of an upcall", &|row| of_cause(row, |misses| misses.upcall)),
        ("of the platform", &|row| of_cause(row, |misses| misses.platform)),
        ("of Laxity", &|row| of_cause(row, |misses| misses.laxity)),
        (&headings[0], &|row| slack(row, SHOWN_MS[0])),
        (&headings[1], &|row| slack(row, SHOWN_MS[1])),
        (&headings[2], &|row| slack(row, SHOWN_MS[2])),
    ];
    let table = table(columns, 3.., &report.rows);
    format!("{conditions}. Slack in ms.\n\n{table}\n{}", listed(notes(report)))
}

/// What is to be said: of all, and why the kernel refused what, once each.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = report.notes.clone();
    for row in &report.rows {
        let said =
            row.reason.as_ref().map(|reason| format!("{}: the kernel refuses: {reason}", <&str>::from(row.scheme)));
        notes.extend(said.filter(|said| !notes.contains(said)));
    }
    notes
}

/// The least slack over utilisation, and what was missed.
fn svg(report: &Report, conditions: &str) -> String {
    let panel = |heading: String, y_title, y_unit, value: &dyn Fn(&Row) -> Option<i64>| Panel {
        heading,
        x_title: "utilisation",
        y_title,
        x_unit: 1000,
        y_unit,
        least_top: 0,
        lines: lines(report, value),
    };
    let slacks = SHOWN_MS
        .map(|period| panel(format!("Least slack of {period} ms"), "ms", 1_000_000, &|row| row.min_slack(period)));
    let missed = panel("Missed runs".to_owned(), "runs", 1, &|row| {
        row.reason.is_none().then(|| i64::try_from(row.missed()).unwrap_or(i64::MAX))
    });
    let is_there = |scheme: &&Scheme| report.rows.iter().any(|row| row.scheme == **scheme);
    let has_background = report.rows.iter().any(|row| row.background);
    let dotted = has_background.then(|| "solid: with background load; dotted: without".to_owned());
    chart::document(&Picture {
        title: "Deadlines of upcalls (upcall-deadlines)".to_owned(),
        subtitle: format!("{conditions}."),
        legend: Scheme::VARIANTS.iter().filter(is_there).map(|&scheme| <&str>::from(scheme).to_owned()).collect(),
        panels: slacks.into_iter().chain([missed]).collect(),
        notes: dotted.into_iter().chain(notes(report)).collect(),
    })
}

fn lines(report: &Report, value: &dyn Fn(&Row) -> Option<i64>) -> Vec<Line> {
    let has_background = report.rows.iter().any(|row| row.background);
    let line = |class: usize, scheme: Scheme, background: bool| {
        let rows = report.rows.iter().filter(move |row| row.scheme == scheme && row.background == background);
        let points: Vec<_> = rows.filter_map(|row| Some((row.utilisation, value(row)?))).collect();
        Line { class, dotted: has_background && !background, points }
    };
    let of_scheme =
        |(class, &scheme): (usize, &Scheme)| [false, true].map(|background| line(class, scheme, background));
    Scheme::VARIANTS.iter().enumerate().flat_map(of_scheme).filter(|line| !line.points.is_empty()).collect()
}
