//! `laxity bench event-dispatch`: where the time of a message goes until its handler has it `[events Figs. 1, 2]`.

use laxity_core::units::Duration;
use laxity_lab::events::{self, Dispatch, DispatchRow, MESSAGE_BYTES, PARTS, Plan, Server};
use laxity_lab::figures::{deviation, mean, quantile};
use serde_json::{Value, json};

use crate::bench::shown::{Outcome, class, fine, threads, with_turns};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::count;
use crate::table::{self, Column};

/// Of each turn, by default.
pub(in crate::bench) const DURATION: Duration = Duration::from_millis(200);

/// Runs `event-dispatch`.
pub(in crate::bench) fn run(span: Duration) -> Result<Outcome, Failure> {
    let plan = Plan { messages: events::TRIALS, span };
    Ok(outcome(with_turns(|progress| events::dispatch(&plan, progress))?, &plan))
}

fn outcome(report: Dispatch, plan: &Plan) -> Outcome {
    Outcome {
        title: "From a message's arrival to its handler",
        conditions: format!(
            "{MESSAGE_BYTES} bytes every millisecond, {} turns of {}; client and server on one processor: {}",
            plan.rounds(),
            plan.span,
            threads(report.is_real_time)
        ),
        json: json!({
            "message_bytes": MESSAGE_BYTES,
            "rows": report.rows.iter().map(row).collect::<Value>(),
        }),
        tables: table(&report),
        legend: names(Server::EACH),
        diagrams: vec![diagram(&report)],
        notes: report.notes.clone(),
        ..Outcome::of_ends(&report, false)
    }
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

/// A server, in JSON.
fn row(row: &DispatchRow) -> Value {
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
}

/// For people.
fn table(report: &Dispatch) -> String {
    type ServerSpan = (String, &'static str, Vec<u64>);
    let at = |ppm| move |(.., sorted): &ServerSpan| fine(quantile(sorted, ppm));
    let columns: &[Column<'_, ServerSpan>] = &[
        ("server", &|(server, ..)| server.clone()),
        ("span", &|(_, span, _)| (*span).to_owned()),
        ("messages", &|(.., sorted)| count(sorted.len() as u64)),
        ("mean", &|(.., sorted)| fine(mean(sorted))),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("deviation", &|(.., sorted)| fine(deviation(sorted))),
    ];
    let names = [PARTS[0], PARTS[1], PARTS[2], "from its arrival on", "from the call on"];
    let rows = report.rows.iter().flat_map(|row| {
        names.into_iter().zip(spans(row)).map(|(span, (_, sorted))| (row.server.to_string(), span, sorted))
    });
    table::table(columns, 2.., rows)
}

/// How far a message is after so many µs: the medians of its parts, one after the other.
fn diagram(report: &Dispatch) -> Diagram {
    let line = |row: &DispatchRow| {
        let ends =
            (0..PARTS.len()).map_while(|last| Some((quantile(&row.together(0..=last), 500_000)?, last as u64 + 1)));
        Series::line(class(Server::EACH, row.server), [(0, 0)].into_iter().chain(ends))
    };
    let heading = "a message (medians): 1 arrived, 2 noticed, 3 in hand";
    let lines = report.rows.iter().map(line);
    Diagram::of_lines(heading, ("µs since the call", 1000), ("how far", 1), 3, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_dispatch_are_told_one_by_one() {
        let row = DispatchRow { server: Server::Sigio, messages: vec![[1, 2, 3]; 4], lost: 1 };
        let report = Dispatch {
            rows: vec![row],
            channels: Vec::new(),
            is_real_time: false,
            is_kept_awake: true,
            notes: Vec::new(),
            details: (),
        };
        let plan = Plan { messages: events::TRIALS, span: DURATION };
        let outcome = outcome(report, &plan);
        let of = |key: &str| outcome.json["rows"][0][key]["p50_ns"].as_u64();
        assert_eq!(["until_arrived", "from_arrival", "from_call"].map(of), [Some(1), Some(5), Some(6)]);
        assert!(outcome.page().contains("ordinary threads"));
    }
}
