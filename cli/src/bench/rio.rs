//! `laxity bench rio-cost`, `rio-latency` and `rio-bandwidth`: the experiments of the paper on real-time I/O `[rio §3.2; Figs. 7, 9, 10, 11]`.
//!
//! What runs, and in which order, is [`laxity_lab::rio`]'s; here stands what is aimed at and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::{beyond, quantile};
use laxity_lab::rio::{
    self, BEYOND, BLOCK_BYTES, Bandwidth, Figure, MESSAGE_BYTES, PATHS, PERIOD, Plan, ROUNDS, Report, Row, SAMPLES,
    STREAMS, Second, Turn, WITHIN_PPM,
};
use serde_json::{Value, json};

use super::shown::{
    Outcome, Ratio, by_percent, by_round, class, distribution, fine, micros, rate, threads, told, with_bar, with_turns,
};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::{NONE, count, rounded};
use crate::report::with;
use crate::table::{Column, table};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_secs(1);
/// From one start of a stream to the next, by default.
pub(super) const STEP: Duration = Duration::from_secs(2);

/// All that is compared: figures of a path to those of the default path. The aims are what the paper had of each: mean −12 %, maximum −35 %, jitter −43 % `[rio §3.2.3]`.
fn ratios(report: &Report, plan: &Plan) -> Vec<Ratio> {
    let figures = [(Figure::Mean, 880_000), (report.tail(), 650_000), (Figure::Jitter, 570_000)];
    let paths = report.rows.iter().map(|row| row.path).filter(|path| *path != PATHS[0]);
    let of_path = |path| {
        figures.map(|(figure, most)| {
            let said = format!("{path} to {}, {figure}", PATHS[0]);
            let of = json!({ "path": path, "figure": figure.to_string() });
            Ratio::of_rounds(said, of, &report.ratios_ppm(path, figure), plan.has_bulk.then_some(most))
        })
    };
    paths.flat_map(of_path).collect()
}

/// Runs `rio-cost`, or `rio-latency`, which has a bulk transfer beside it.
pub(super) fn run_echo(span: Duration, has_bulk: bool) -> Result<Outcome, Failure> {
    let plan = Plan { has_bulk, span };
    Ok(echo(with_turns(|progress| rio::run(&plan, progress))?, &plan))
}

fn echo(report: Report, plan: &Plan) -> Outcome {
    let ratios = ratios(&report, plan);
    let instead = (report.tail() == Figure::P99).then(|| {
        "p99 stands in for p99.9: in most rounds more than 0.1 % of the round trips took longer than 1 ms on every path, or there were fewer than 1,000"
            .to_owned()
    });
    let table = shown(report.rows.iter().map(|row| (row.path, "all".to_owned(), Turn::all(&row.turns))));
    Outcome {
        title: "An echo where kernel threads receive by stream",
        conditions: format!(
            "{MESSAGE_BYTES} bytes and their answer, back to back{}; {ROUNDS} turns of {} or {} round trips; client and server: {}",
            if plan.has_bulk { ", beside a bulk transfer over TCP" } else { "" },
            plan.span,
            count(SAMPLES as u64),
            threads(report.is_real_time),
        ),
        json: json!({
            "message_bytes": MESSAGE_BYTES,
            "rows": report.rows.iter().map(row).collect::<Value>(),
            "ratios": Ratio::json(&ratios),
        }),
        tables: format!("{table}\nRatios are medians of those of each round, and what lies between the quartiles."),
        rounds: shown(report.rows.iter().flat_map(|row| {
            (1..).zip(&row.turns).map(|(round, turn): (u64, _)| (row.path, round.to_string(), turn.clone()))
        })),
        legend: names(PATHS),
        diagrams: diagrams(&report, plan),
        notes: Ratio::told(&ratios).chain(instead).collect(),
        further_notes: report.channels.iter().map(told).chain(report.notes.iter().cloned()).collect(),
        ..Outcome::of_ends(&report, true)
    }
}

/// A path, in JSON.
fn row(row: &Row) -> Value {
    let turn = |turn: &Turn| {
        let more = json!({
            "mean_ns": Figure::Mean.of(turn),
            "jitter_ns": Figure::Jitter.of(turn),
            "beyond_1ms": beyond(&turn.round_trips, BEYOND),
            "lost": turn.lost,
            "bulk_bytes_s": turn.bytes_s,
        });
        with(distribution(&turn.round_trips), more)
    };
    let more = json!({ "path": row.path, "rounds": row.turns.iter().map(turn).collect::<Value>() });
    with(turn(&Turn::all(&row.turns)), more)
}

/// What stands beside a path, for people: of a turn, or of all.
fn shown(rows: impl Iterator<Item = (&'static str, String, Turn)>) -> String {
    type One = (&'static str, String, Turn);
    let at = |ppm| move |(.., turn): &One| fine(quantile(&turn.round_trips, ppm));
    let of = |figure: Figure| move |(.., turn): &One| fine(figure.of(turn));
    let columns: &[Column<'_, One>] = &[
        ("path", &|(path, ..)| (*path).to_owned()),
        ("round", &|(_, round, _)| round.clone()),
        ("round trips", &|(.., turn)| count(turn.round_trips.len() as u64)),
        ("least", &at(0)),
        ("mean", &of(Figure::Mean)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("p99.9", &at(999_000)),
        ("longest", &|(.., turn)| micros(turn.round_trips.last().copied())),
        ("jitter", &of(Figure::Jitter)),
        ("beyond 1 ms", &|(.., turn)| count(beyond(&turn.round_trips, BEYOND) as u64)),
        ("lost", &|(.., turn)| count(turn.lost)),
        ("bulk, bytes/s", &|(.., turn)| rate(turn.bytes_s)),
    ];
    table(columns, 1.., rows)
}

/// The distribution, and round by round what a disturbance does to all paths and what lies between them.
fn diagrams(report: &Report, plan: &Plan) -> Vec<Diagram> {
    let rounds = |heading: &str, up, value: &dyn Fn(&Turn) -> Option<u64>| {
        let lines = report.rows.iter().map(|row| by_round(class(&PATHS, row.path), &row.turns, value));
        Diagram::of_lines(heading, ("round", 1), up, 0, lines)
    };
    let quantiles = [("p50", 500_000), ("p99", 990_000), ("p99.9", 999_000)].map(|(name, ppm)| {
        rounds(&format!("{name} of each round"), ("µs", 1000), &|turn| quantile(&turn.round_trips, ppm))
    });
    let bulk = plan
        .has_bulk
        .then(|| rounds("the bulk transfer in each round", ("MB/s", 1_000_000), &|turn| turn.bytes_s.map(rounded)));
    let lines = report.rows.iter().map(|row| {
        let all = Turn::all(&row.turns).round_trips;
        by_percent(class(&PATHS, row.path), |ppm| quantile(&all, ppm))
    });
    let heading = "all round trips, from the quickest to p99";
    let all = Diagram::of_lines(heading, ("round trips, %", 1), ("µs", 1000), 0, lines);
    [all].into_iter().chain(quantiles).chain(bulk).collect()
}

/// Runs `rio-bandwidth`; each guaranteed stream has to have what it asked for.
pub(super) fn run_bandwidth(step: Duration) -> Result<Outcome, Failure> {
    Ok(bandwidth(with_bar("{percent} %", |progress| rio::bandwidth(step, progress))?, step))
}

fn bandwidth(report: Bandwidth, step: Duration) -> Outcome {
    let broken = report.rows.iter().filter(|row| !row.is_kept()).map(|row| {
        let Second { second, stream, requested_bytes_s, received_bytes_s } = row;
        format!(
            "rio-bandwidth: {stream} had {received_bytes_s} bytes in second {second}, it asked for {}",
            requested_bytes_s.unwrap_or(0)
        )
    });
    let broken: Vec<String> = broken.collect();
    let threads = threads(report.is_real_time);
    Outcome {
        title: "Bandwidth that is guaranteed, and what is left",
        conditions: format!(
            "TCP in blocks of {BLOCK_BYTES} bytes; another stream starts every {step}; threads of guaranteed ones: {threads}"
        ),
        json: json!({
            "block_bytes": BLOCK_BYTES,
            "period_ns": PERIOD,
            "rows": report.rows,
            "within_ppm": WITHIN_PPM,
            "met": broken.is_empty(),
        }),
        tables: seconds(&report),
        legend: names(STREAMS.iter().map(|stream| stream.name)),
        // As the paper's Fig. 11, but best effort, which takes far more on this wire, has a diagram of its own.
        diagrams: [("guaranteed", true), ("best effort", false)]
            .map(|(heading, is_guaranteed)| by_second(&report, heading, is_guaranteed))
            .to_vec(),
        notes: report.notes.clone(),
        broken,
        ..Outcome::of_ends(&report, false)
    }
}

/// For people.
fn seconds(report: &Bandwidth) -> String {
    let columns: &[Column<'_, &Second>] = &[
        ("second", &|row| row.second.to_string()),
        ("stream", &|row| row.stream.to_owned()),
        ("requested, bytes/s", &|row| row.requested_bytes_s.map_or_else(|| "what is left".to_owned(), count)),
        ("received, bytes/s", &|row| count(row.received_bytes_s)),
        ("within 5 %", &|row| match row.requested_bytes_s {
            None => NONE.to_owned(),
            Some(_) => if row.is_kept() { "yes" } else { "no" }.to_owned(),
        }),
    ];
    let mut rows: Vec<&Second> = report.rows.iter().collect();
    // By second, and in each in the order in which the streams started.
    rows.sort_by_key(|row| row.second);
    table(columns, 2.., rows)
}

/// What streams of one kind received.
fn by_second(report: &Bandwidth, heading: &str, is_guaranteed: bool) -> Diagram {
    let lines = STREAMS.iter().enumerate().map(|(class, stream)| {
        let of_stream = |row: &&Second| row.stream == stream.name && row.requested_bytes_s.is_some() == is_guaranteed;
        let rows = report.rows.iter().filter(of_stream);
        Series::line(class, rows.map(|row| (row.second, rounded(row.received_bytes_s))))
    });
    Diagram::of_lines(heading, ("second", 1), ("MB/s", 1_000_000), 0, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(millis: [u64; 2]) -> Report {
        let row = |path, millis: u64| {
            let turn = Turn { round_trips: vec![millis * 500_000; 2_000], lost: 0, bytes_s: Some(1) };
            Row { path, turns: vec![turn; 3] }
        };
        let rows = vec![row(PATHS[0], millis[0]), row(PATHS[2], millis[1])];
        Report { rows, channels: Vec::new(), is_real_time: true, is_kept_awake: true, notes: Vec::new(), details: () }
    }

    #[test]
    fn aims_are_of_the_bench_with_bulk_alone() {
        let report = report([100, 70]);
        let plan = |has_bulk| Plan { has_bulk, span: DURATION };
        let told = Ratio::told(&ratios(&report, &plan(true))).collect::<Vec<_>>();
        assert_eq!(told[0], "threads-realtime to default, mean: 0.700 (0.700 to 0.700), at most 0.880 is aimed at");
        assert_eq!(
            told[1],
            "threads-realtime to default, p99: 0.700 (0.700 to 0.700), at most 0.650 is aimed at: missed"
        );
        assert_eq!(
            told[2], "threads-realtime to default, jitter: – (– to –), at most 0.570 is aimed at",
            "there is none"
        );
        let without = ratios(&report, &plan(false));
        assert_eq!(without.iter().filter_map(|of| of.is_met).count(), 0);
        assert!(without[1].told.contains("p99: 0.700 ("), "every round trip is beyond a millisecond");
    }

    #[test]
    fn json_has_a_flat_row_for_each_path() {
        let object = echo(report([1, 1]), &Plan { has_bulk: true, span: DURATION }).json;
        let row = &object["rows"][1];
        let found = ["path", "samples", "mean_ns", "p999_ns", "jitter_ns", "beyond_1ms", "bulk_bytes_s"]
            .map(|key| row[key].clone());
        let expected =
            [json!("threads-realtime"), json!(6_000), json!(500_000), json!(500_000), json!(0), json!(0), json!(1)];
        assert_eq!(found, expected);
        assert_eq!(object["ratios"][1]["figure"], "p99.9");
    }

    #[test]
    fn a_broken_request_is_told() {
        let row = |received_bytes_s| Second {
            second: 3,
            stream: STREAMS[1].name,
            requested_bytes_s: Some(1_000),
            received_bytes_s,
        };
        let report = |rows| Bandwidth {
            rows,
            channels: Vec::new(),
            is_real_time: true,
            is_kept_awake: true,
            notes: Vec::new(),
            details: (),
        };
        let met = |rows| bandwidth(report(rows), STEP).json["met"].clone();
        assert_eq!((met(vec![row(990)]), met(vec![row(990), row(900)])), (json!(true), json!(false)));
    }
}
