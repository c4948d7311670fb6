//! `laxity bench rio-cost`, `rio-latency` and `rio-bandwidth`: the experiments of the paper on real-time I/O `[rio §3.2; Figs. 7, 9, 10, 11]`.
//!
//! What runs, and in which order, is [`laxity_lab::rio`]'s; here stands what is aimed at and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::{broken_promise, quantile};
use laxity_lab::rio::{
    self, BLOCK_BYTES, Bandwidth, Figure, MESSAGE_BYTES, PATHS, PERIOD, Plan, ROUNDS, Report, Row, SAMPLES, STREAMS,
    Second, Turn, WITHIN_PPM, beyond,
};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::chart::{self, Line, Panel, Picture};
use super::paths::of_bench;
use super::roundtrip::{distribution, micros, told, with_turns};
use super::shown::{kept, listed, show, show_with};
use crate::failure::Failure;
use crate::numbers::{NONE, count, rounded};
use crate::progress;
use crate::report::{self, to_json, with};
use crate::table::{Column, table};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_secs(1);
/// From one start of a stream to the next, by default.
pub(super) const STEP: Duration = Duration::from_secs(2);

/// A figure of a path to the default path's.
struct Ratio {
    path: &'static str,
    figure: Figure,
    /// The median of the rounds.
    ppm: Option<u64>,
    /// Between these it is in the middle half of the rounds.
    quartiles_ppm: [Option<u64>; 2],
    /// At most so much is aimed at; `None` without an aim.
    most_ppm: Option<u64>,
}

impl Ratio {
    /// Whether it is as is aimed at; `None` without an aim.
    fn is_met(&self) -> Option<bool> {
        Some(self.ppm? <= self.most_ppm?)
    }

    fn told(&self) -> String {
        let Self { path, figure, ppm, quartiles_ppm: [low, high], most_ppm } = self;
        let aim = most_ppm.map_or_else(String::new, |most| format!(", at most {} is aimed at", times(Some(most))));
        let missed = if self.is_met() == Some(false) { ": missed" } else { "" };
        let (figure, ppm, [low, high]) = (figure.name(), times(*ppm), [low, high].map(|ppm| times(*ppm)));
        format!("{path} to {}, {figure}: {ppm} ({low} to {high}){aim}{missed}", PATHS[0])
    }
}

pub(super) fn times(ppm: Option<u64>) -> String {
    ppm.map_or_else(|| NONE.to_owned(), |ppm| format!("{}.{:03}", ppm / 1_000_000, ppm % 1_000_000 / 1000))
}

/// All that is compared. The aims are what the paper had of each: mean −12 %, maximum −35 %, jitter −43 % `[rio §3.2.3]`.
fn ratios(report: &Report, plan: &Plan) -> Vec<Ratio> {
    let figures = [(Figure::Mean, 880_000), (report.tail(), 650_000), (Figure::Jitter, 570_000)];
    let paths = report.rows.iter().map(|row| row.path).filter(|path| *path != PATHS[0]);
    let of_path = |path| {
        figures.map(|(figure, most)| {
            let rounds = report.ratios_ppm(path, figure);
            let [low, ppm, high] = [250_000, 500_000, 750_000].map(|ppm| quantile(&rounds, ppm));
            Ratio { path, figure, ppm, quartiles_ppm: [low, high], most_ppm: plan.has_bulk.then_some(most) }
        })
    };
    paths.flat_map(of_path).collect()
}

fn name(plan: &Plan) -> &'static str {
    if plan.has_bulk { "rio-latency" } else { "rio-cost" }
}

/// Runs `rio-cost`, or `rio-latency`, which has a bulk transfer beside it, and shows it; true if Laxity kept what it had promised.
pub(super) fn run_echo(arguments: &BenchArguments, span: Duration, has_bulk: bool) -> Result<bool, Failure> {
    let plan = Plan { has_bulk, span };
    let report = with_turns(|progress| rio::run(&plan, progress)).map_err(|error| of_bench(name(&plan), error))?;
    let (picture, page) = (|| echo_svg(&report, &plan), || echo_page(&report, &plan));
    show_with(arguments, picture, || echo_json(&report, &plan), page, || rounds(&report))?;
    let broken = report.channels.iter().filter_map(|channel| broken_promise(name(&plan), channel));
    Ok(kept(&broken.collect::<Vec<_>>()))
}

/// Runs `rio-bandwidth` and shows it; true if each guaranteed stream had what it asked for.
pub(super) fn run_bandwidth(arguments: &BenchArguments, step: Duration) -> Result<bool, Failure> {
    let bar = progress::bar("{bar:24} {percent} %", 0);
    let report = rio::bandwidth(step, |passed, of| {
        bar.set_length(of.as_nanos());
        bar.set_position(passed.as_nanos());
    });
    drop(bar);
    let report = report.map_err(|error| of_bench("rio-bandwidth", error))?;
    let (picture, page) = (|| bandwidth_svg(&report, step), || bandwidth_page(&report, step));
    show(arguments, picture, || bandwidth_json(&report, step), page)?;
    let broken = broken(&report).map(|row| {
        let Second { second, stream, requested_bytes_s, received_bytes_s } = row;
        format!(
            "rio-bandwidth: {stream} had {received_bytes_s} bytes in second {second}, it asked for {}",
            requested_bytes_s.unwrap_or(0)
        )
    });
    Ok(kept(&broken.collect::<Vec<_>>()))
}

fn broken(report: &Bandwidth) -> impl Iterator<Item = &Second> {
    report.rows.iter().filter(|row| !row.is_kept())
}

fn figures(sorted: &[u64]) -> Value {
    let more = json!({
        "mean_ns": Figure::Mean.of(sorted),
        "jitter_ns": Figure::Jitter.of(sorted),
        "beyond_1ms": beyond(sorted),
    });
    with(distribution(sorted), more)
}

/// One line, without a line end.
fn echo_json(report: &Report, plan: &Plan) -> String {
    let turn =
        |turn: &Turn| with(figures(&turn.round_trips), json!({ "lost": turn.lost, "bulk_bytes_s": turn.bulk_bytes_s }));
    let row = |row: &Row| {
        let more = json!({
            "lost": row.lost(),
            "bulk_bytes_s": row.bulk_bytes_s(),
            "rounds": row.turns.iter().map(turn).collect::<Value>(),
        });
        with(with(json!({ "path": row.path }), figures(&row.pooled())), more)
    };
    let ratio = |ratio: &Ratio| {
        let Ratio { path, figure, ppm, quartiles_ppm, most_ppm } = ratio;
        json!({ "path": path, "figure": figure.name(), "ppm": ppm, "quartiles_ppm": quartiles_ppm, "most_ppm": most_ppm, "met": ratio.is_met() })
    };
    to_json(&json!({
        "bench": name(plan),
        "message_bytes": MESSAGE_BYTES,
        "duration_ns": plan.span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "ratios": ratios(report, plan).iter().map(ratio).collect::<Value>(),
        "channels": report.channels.iter().map(report::channel).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// One line, without a line end.
fn bandwidth_json(report: &Bandwidth, step: Duration) -> String {
    let row = |row: &Second| {
        let Second { second, stream, requested_bytes_s, received_bytes_s } = row;
        json!({
            "second": second,
            "stream": stream,
            "requested_bytes_s": requested_bytes_s,
            "received_bytes_s": received_bytes_s,
        })
    };
    to_json(&json!({
        "bench": "rio-bandwidth",
        "duration_ns": step,
        "block_bytes": BLOCK_BYTES,
        "period_ns": PERIOD,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "within_ppm": WITHIN_PPM,
        "met": broken(report).next().is_none(),
        "notes": report.notes,
    }))
}

pub(super) fn threads(is_real_time: bool) -> &'static str {
    if is_real_time { "SCHED_FIFO" } else { "ordinary threads" }
}

/// Under which it ran, in a line.
fn conditions(report: &Report, plan: &Plan) -> String {
    format!(
        "{MESSAGE_BYTES} bytes and their answer, back to back{}; {ROUNDS} turns of {} or {} round trips; client and server: {}",
        if plan.has_bulk { ", beside a bulk transfer over TCP" } else { "" },
        plan.span,
        count(SAMPLES as u64),
        threads(report.is_real_time),
    )
}

/// Tenths of a µs.
pub(super) fn fine(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| NONE.to_owned(), |nanos| format!("{}.{}\u{a0}µs", nanos / 1000, nanos % 1000 / 100))
}

fn rate(bytes_s: Option<u64>) -> String {
    bytes_s.map_or_else(|| NONE.to_owned(), |bytes_s| count(rounded(bytes_s)))
}

/// What stands beside a path, for people: of a turn, or of all.
struct Shown {
    path: &'static str,
    round: Option<usize>,
    sorted: Vec<u64>,
    lost: u64,
    bulk_bytes_s: Option<u64>,
}

fn shown(rows: impl Iterator<Item = Shown>) -> String {
    let at = |ppm| move |row: &Shown| fine(quantile(&row.sorted, ppm));
    let of = |figure: Figure| move |row: &Shown| fine(figure.of(&row.sorted));
    let columns: &[Column<'_, Shown>] = &[
        ("path", &|row| row.path.to_owned()),
        ("round", &|row| row.round.map_or_else(|| "all".to_owned(), |round| round.to_string())),
        ("round trips", &|row| count(row.sorted.len() as u64)),
        ("least", &at(0)),
        ("mean", &of(Figure::Mean)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("p99.9", &at(999_000)),
        ("longest", &|row| micros(quantile(&row.sorted, 1_000_000))),
        ("jitter", &of(Figure::Jitter)),
        ("beyond 1 ms", &|row| count(beyond(&row.sorted) as u64)),
        ("lost", &|row| count(row.lost)),
        ("bulk, bytes/s", &|row| rate(row.bulk_bytes_s)),
    ];
    table(columns, 1.., rows).to_string()
}

/// Every round, for the report.
fn rounds(report: &Report) -> String {
    shown(report.rows.iter().flat_map(|row| {
        (1..).zip(&row.turns).map(|(round, turn)| Shown {
            path: row.path,
            round: Some(round),
            sorted: turn.round_trips.clone(),
            lost: turn.lost,
            bulk_bytes_s: turn.bulk_bytes_s,
        })
    }))
}

/// The ratios, and why p99 stands in for p99.9 if it does.
fn compared(report: &Report, plan: &Plan) -> Vec<String> {
    let instead = (report.tail() == Figure::P99).then(|| {
        "p99 stands in for p99.9: in most rounds more than 0.1 % of the round trips took longer than 1 ms on every path, or there were fewer than 1,000"
            .to_owned()
    });
    ratios(report, plan).iter().map(Ratio::told).chain(instead).collect()
}

/// For people.
fn echo_page(report: &Report, plan: &Plan) -> String {
    let table = shown(report.rows.iter().map(|row| Shown {
        path: row.path,
        round: None,
        sorted: row.pooled(),
        lost: row.lost(),
        bulk_bytes_s: row.bulk_bytes_s(),
    }));
    let channels = report.channels.iter().map(told);
    let notes = compared(report, plan).into_iter().chain(channels).chain(report.notes.iter().cloned());
    format!(
        "LIVE on this host. {}.\n\n{table}\nRatios are medians of those of each round, and what lies between the quartiles.\n{}",
        conditions(report, plan),
        listed(notes)
    )
}

/// For people.
fn bandwidth_page(report: &Bandwidth, step: Duration) -> String {
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
    let table = table(columns, 2.., rows);
    format!("LIVE on this host. {}.\n\n{table}\n{}", schedule(report, step), listed(report.notes.iter().cloned()))
}

/// Under which it ran, in a line.
fn schedule(report: &Bandwidth, step: Duration) -> String {
    let threads = threads(report.is_real_time);
    format!(
        "TCP in blocks of {BLOCK_BYTES} bytes; another stream starts every {step}; threads of guaranteed ones: {threads}"
    )
}

/// The class of a path's lines.
fn class(path: &str) -> usize {
    PATHS.iter().position(|other| *other == path).unwrap_or(0)
}

/// The distribution, and round by round what a disturbance does to all paths and what lies between them.
fn echo_svg(report: &Report, plan: &Plan) -> String {
    let panel = |heading: &str, x_title, lines| Panel {
        heading: heading.to_owned(),
        x_title,
        y_title: "µs",
        x_unit: 1,
        y_unit: 1000,
        least_top: 0,
        lines,
    };
    let distribution = |row: &Row| {
        let sorted = row.pooled();
        let at = |percent: u64| Some((percent, quantile(&sorted, percent * 10_000)?));
        // Closer where it is steeper.
        Line::new(class(row.path), (0..95).step_by(5).chain(95..100).filter_map(at))
    };
    let by_round = |value: &dyn Fn(&Turn) -> Option<u64>| -> Vec<Line> {
        let line = |row: &Row| {
            let points = (1..).zip(&row.turns).filter_map(|(round, turn)| Some((round, value(turn)?)));
            Line::new(class(row.path), points)
        };
        report.rows.iter().map(line).collect()
    };
    let quantiles = [("p50", 500_000), ("p99", 990_000), ("p99.9", 999_000)].map(|(what, ppm)| {
        let lines = by_round(&|turn| quantile(&turn.round_trips, ppm));
        panel(&format!("{what} of each round"), "round", lines)
    });
    let bulk = plan.has_bulk.then(|| Panel {
        y_title: "MB/s",
        y_unit: 1_000_000,
        ..panel("the bulk transfer in each round", "round", by_round(&|turn| turn.bulk_bytes_s.map(rounded)))
    });
    let all = panel(
        "all round trips, from the quickest to p99",
        "round trips, %",
        report.rows.iter().map(distribution).collect(),
    );
    chart::document(&Picture {
        title: format!("An echo where kernel threads receive by stream ({})", name(plan)),
        subtitle: format!("LIVE on one host. {}.", conditions(report, plan)),
        legend: PATHS.iter().map(|path| (*path).to_owned()).collect(),
        panels: [all].into_iter().chain(quantiles).chain(bulk).collect(),
        notes: compared(report, plan),
    })
}

/// As the paper's Fig. 11, but best effort, which takes far more on this wire, has a panel of its own.
fn bandwidth_svg(report: &Bandwidth, step: Duration) -> String {
    let panel = |heading: &str, is_shown: fn(Option<u64>) -> bool| {
        let lines = STREAMS.iter().enumerate().map(|(class, stream)| {
            let rows = report.rows.iter().filter(|row| row.stream == stream.name && is_shown(row.requested_bytes_s));
            Line::new(class, rows.map(|row| (row.second, rounded(row.received_bytes_s))))
        });
        Panel {
            heading: heading.to_owned(),
            x_title: "second",
            y_title: "MB/s",
            x_unit: 1,
            y_unit: 1_000_000,
            least_top: 0,
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
        }
    };
    chart::document(&Picture {
        title: "Bandwidth that is guaranteed, and what is left (rio-bandwidth)".to_owned(),
        subtitle: format!("LIVE on one host. {}.", schedule(report, step)),
        legend: STREAMS.iter().map(|stream| stream.name.to_owned()).collect(),
        panels: vec![
            panel("guaranteed", |request| request.is_some()),
            panel("best effort", |request| request.is_none()),
        ],
        notes: report.notes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(millis: [u64; 2]) -> Report {
        let row = |path, millis: u64| {
            let turn = Turn { round_trips: vec![millis * 500_000; 2_000], lost: 0, bulk_bytes_s: Some(1) };
            Row { path, turns: vec![turn; 3] }
        };
        let rows = vec![row(PATHS[0], millis[0]), row(PATHS[2], millis[1])];
        Report { rows, channels: Vec::new(), is_real_time: true, is_kept_awake: true, notes: Vec::new() }
    }

    #[test]
    fn aims_are_of_the_bench_with_bulk_alone() {
        let report = report([100, 70]);
        let plan = |has_bulk| Plan { has_bulk, span: DURATION };
        let told = ratios(&report, &plan(true)).iter().map(Ratio::told).collect::<Vec<_>>();
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
        assert_eq!(without.iter().filter_map(Ratio::is_met).count(), 0);
        assert!(without[1].told().contains("p99: 0.700 ("), "every round trip is beyond a millisecond");
    }

    #[test]
    fn json_has_a_flat_row_for_each_path() {
        let text = echo_json(&report([1, 1]), &Plan { has_bulk: true, span: DURATION });
        let object: Value = serde_json::from_str(&text).unwrap();
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
        let report = |rows| Bandwidth { rows, is_real_time: true, is_kept_awake: true, notes: Vec::new() };
        let met = |rows| serde_json::from_str::<Value>(&bandwidth_json(&report(rows), STEP)).unwrap()["met"].clone();
        assert_eq!((met(vec![row(990)]), met(vec![row(990), row(900)])), (json!(true), json!(false)));
    }
}
