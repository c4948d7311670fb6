//! `laxity bench event-dispatch`: where the time of a message goes until its handler has it `[events Figs. 1, 2]`.

use laxity_core::units::Duration;
use laxity_lab::events::{self, Dispatch, DispatchRow, MESSAGE_BYTES, PARTS, Plan, Server};
use laxity_lab::figures::{deviation, mean, quantile};
use serde_json::{Value, json};

use super::class;
use crate::bench::arguments::BenchArguments;
use crate::bench::chart::{self, Line, Panel, Picture};
use crate::bench::paths::of_bench;
use crate::bench::rio::{fine, threads};
use crate::bench::roundtrip::with_turns;
use crate::bench::shown::{listed, show};
use crate::failure::Failure;
use crate::numbers::count;
use crate::report::to_json;
use crate::table::{Column, table};

/// Of each turn, by default.
pub(in crate::bench) const DURATION: Duration = Duration::from_millis(200);

/// Runs `event-dispatch` and shows it.
pub(in crate::bench) fn run(arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let plan = Plan { messages: events::TRIALS, span };
    let report = with_turns(|progress| events::dispatch(&plan, progress));
    let report = report.map_err(|error| of_bench("event-dispatch", error))?;
    show(arguments, || svg(&report, &plan), || json(&report, &plan), || page(&report, &plan))?;
    Ok(true)
}

/// The times of a row: each part, from the arrival on, and all.
fn spans(row: &DispatchRow) -> [(&'static str, Vec<u64>); PARTS.len() + 2] {
    let last = PARTS.len() - 1;
    [
        ("until_arrived", row.together(0..=0)),
        ("until_noticed", row.together(1..=1)),
        ("until_in_hand", row.together(2..=2)),
        ("from_arrival", row.together(1..=last)),
        ("from_call", row.together(0..=last)),
    ]
}

/// One line, without a line end.
fn json(report: &Dispatch, plan: &Plan) -> String {
    let row = |row: &DispatchRow| {
        let mut found = json!({ "server": row.server.to_string(), "samples": row.messages.len(), "lost": row.lost });
        for (key, sorted) in spans(row) {
            found[key] = json!({
                "mean_ns": mean(&sorted),
                "p50_ns": quantile(&sorted, 500_000),
                "p99_ns": quantile(&sorted, 990_000),
                "deviation_ns": deviation(&sorted),
            });
        }
        found
    };
    to_json(&json!({
        "bench": "event-dispatch",
        "message_bytes": MESSAGE_BYTES,
        "duration_ns": plan.span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "notes": report.notes,
    }))
}

fn conditions(report: &Dispatch, plan: &Plan) -> String {
    format!(
        "{MESSAGE_BYTES} bytes every millisecond, {} turns of {}; client and server on one processor: {}",
        plan.rounds(),
        plan.span,
        threads(report.is_real_time)
    )
}

/// For people.
fn page(report: &Dispatch, plan: &Plan) -> String {
    struct One {
        server: String,
        span: &'static str,
        sorted: Vec<u64>,
    }
    let at = |ppm| move |row: &One| fine(quantile(&row.sorted, ppm));
    let columns: &[Column<'_, One>] = &[
        ("server", &|row| row.server.clone()),
        ("span", &|row| row.span.to_owned()),
        ("messages", &|row| count(row.sorted.len() as u64)),
        ("mean", &|row| fine(mean(&row.sorted))),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("deviation", &|row| fine(deviation(&row.sorted))),
    ];
    let names = [PARTS[0], PARTS[1], PARTS[2], "from its arrival on", "from the call on"];
    let rows = report.rows.iter().flat_map(|row| {
        names.into_iter().zip(spans(row)).map(|(span, (_, sorted))| One {
            server: row.server.to_string(),
            span,
            sorted,
        })
    });
    let table = table(columns, 2.., rows);
    format!("LIVE on this host. {}.\n\n{table}\n{}", conditions(report, plan), listed(report.notes.iter().cloned()))
}

/// How far a message is after so many µs: the medians of its parts, one after the other.
fn svg(report: &Dispatch, plan: &Plan) -> String {
    let line = |row: &DispatchRow| {
        let ends =
            (0..PARTS.len()).map_while(|last| Some((quantile(&row.together(0..=last), 500_000)?, last as u64 + 1)));
        Line::new(class(row.server), [(0, 0)].into_iter().chain(ends))
    };
    chart::document(&Picture {
        title: "From a message's arrival to its handler (event-dispatch)".to_owned(),
        subtitle: format!("LIVE on one host. {}.", conditions(report, plan)),
        legend: Server::EACH.map(|server| server.to_string()).into(),
        panels: vec![Panel {
            heading: "a message (medians): 1 arrived, 2 noticed, 3 in hand".to_owned(),
            x_title: "µs since the call",
            y_title: "how far",
            x_unit: 1000,
            y_unit: 1,
            least_top: 3,
            lines: report.rows.iter().map(line).collect(),
        }],
        notes: report.notes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_dispatch_are_told_one_by_one() {
        let row = DispatchRow { server: Server::Sigio, messages: vec![[1, 2, 3]; 4], lost: 1 };
        let report = Dispatch { rows: vec![row], is_real_time: false, is_kept_awake: true, notes: Vec::new() };
        let plan = Plan { messages: events::TRIALS, span: DURATION };
        let found: Value = serde_json::from_str(&json(&report, &plan)).unwrap();
        let of = |key: &str| found["rows"][0][key]["p50_ns"].as_u64();
        assert_eq!(["until_arrived", "from_arrival", "from_call"].map(of), [Some(1), Some(5), Some(6)]);
        assert!(page(&report, &plan).contains("ordinary threads"));
    }
}
