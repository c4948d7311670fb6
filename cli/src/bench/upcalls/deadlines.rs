//! `laxity bench upcall-deadlines`: does everything that is accepted meet its deadlines, and how closely [rtu §7.1]?

use laxity::upcall::UpcallMisses;
use laxity_core::units::Duration;
use laxity_lab::upcalls::deadlines::{self, PERIODS_MS, PROCESSES, Periodic, Report, Row, Scheme};
use serde_json::{Value, json};
use strum::VariantArray;

use super::{UpcallDefaults, beside, share};
use crate::bench::arguments::BenchArguments;
use crate::bench::shown::{Outcome, fraction, with_bar};
use crate::bench::sweep::{sweep, threads};
use crate::chart::{Diagram, Look, Series, names};
use crate::failure::Failure;
use crate::numbers::{count, millis};
use crate::report::{distinct, with};
use crate::table::{self, Column, known};

/// C_cs, in virtual time.
const SWITCH: Duration = Duration::from_micros(20);
/// Shares of the processor in virtual time, in thousandths.
const STEPS: [u64; 11] = [300, 400, 500, 600, 650, 700, 750, 800, 850, 900, 950];
/// Of which the table and the picture show the slack: the highest priority, one in between, the lowest.
const SHOWN_MS: [u64; 3] = [PERIODS_MS[0], PERIODS_MS[2], PERIODS_MS[5]];

/// Runs it; nothing that was accepted may miss by Laxity's own fault.
pub(in crate::bench) fn run(arguments: &BenchArguments, span: Duration) -> Result<Outcome, Failure> {
    let is_simulated = arguments.simulated;
    let report = match is_simulated {
        true => self::simulated(span, threads(arguments)),
        false => with_bar("{pos} of {len} runs", |progress| deadlines::run(span, progress))?,
    };
    let has_background = report.rows.iter().any(|row| row.background);
    let schemes = Scheme::VARIANTS.iter().copied();
    let schemes: Vec<Scheme> = schemes.filter(|scheme| report.rows.iter().any(|row| row.scheme == *scheme)).collect();
    let row = |row: &Row| with(json!(row), json!({ "utilisation": fraction(row.utilisation, 1000) }));
    Ok(Outcome {
        title: "Deadlines of upcalls",
        is_simulated,
        conditions: format!("{span} each: twelve upcalls with periods of 40 to 90 ms, each with the same share"),
        json: json!({
            "simulated": is_simulated,
            "rows": report.rows.iter().map(row).collect::<Value>(),
            "notes": report.notes,
        }),
        tables: format!("Slack in ms.\n{}", table(&report)),
        legend: names(schemes.iter().map(<&str>::from)),
        diagrams: diagrams(&report, &schemes, has_background),
        explained: if has_background { "Solid: with background load; dotted: without." } else { "" },
        notes: notes(&report),
        broken: report.rows.iter().filter_map(Row::broken_promise).collect(),
        ..Outcome::default()
    })
}

/// In virtual time.
fn simulated(span: Duration, threads: usize) -> Report {
    let rows = sweep(&STEPS, threads, |&utilisation| {
        // Together, as is worst for the lowest priority.
        let set = UpcallDefaults { processes: PROCESSES, utilisation, block: 1, switch: SWITCH, seed: 0 };
        let ((upcalls, alone), accepted) = (set.run(span), set.is_accepted());
        let of_upcall = |(upcall, runs): (&laxity_core::upcall::Upcall, &laxity_sim::RunCounts)| {
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

/// For people.
fn table(report: &Report) -> String {
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
    table::table(columns, 3.., &report.rows)
}

/// What is to be said: of all, and why the kernel refused what, once each.
fn notes(report: &Report) -> Vec<String> {
    let refused = report
        .rows
        .iter()
        .filter_map(|row| Some(format!("{}: the kernel refuses: {}", <&str>::from(row.scheme), row.reason.as_ref()?)));
    distinct(report.notes.iter().cloned().chain(refused))
}

/// The least slack over utilisation, and what was missed.
fn diagrams(report: &Report, schemes: &[Scheme], has_background: bool) -> Vec<Diagram> {
    let diagram = |heading: String, up, value: &dyn Fn(&Row) -> Option<i64>| {
        let line = |(class, scheme, background): (usize, Scheme, bool)| {
            let rows = report.rows.iter().filter(|row| row.scheme == scheme && row.background == background);
            let points = rows.filter_map(|row| Some((row.utilisation as f64, value(row)? as f64))).collect();
            let is_dotted = has_background && !background;
            let look = if is_dotted { Look::Dotted(class) } else { Look::Number(class) };
            Series { look, points, ..Series::line(class, []) }
        };
        let each = schemes
            .iter()
            .enumerate()
            .flat_map(|(class, &scheme)| [false, true].map(|background| (class, scheme, background)));
        Diagram::of_lines(heading, ("utilisation", 1000), up, 0, each.map(line))
    };
    let slacks = SHOWN_MS
        .map(|period| diagram(format!("Least slack of {period} ms"), ("ms", 1_000_000), &|row| row.min_slack(period)));
    let missed = diagram("Missed runs".to_owned(), ("runs", 1), &|row| {
        row.reason.is_none().then(|| i64::try_from(row.missed()).unwrap_or(i64::MAX))
    });
    slacks.into_iter().chain([missed]).collect()
}
