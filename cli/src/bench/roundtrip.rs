//! `laxity bench roundtrip`: requests and answers over Laxity beside plain sockets.
//!
//! What runs, and in which order, is [`laxity_lab::roundtrip`]'s; here stands how it is shown.

use std::path::PathBuf;

use laxity::text;
use laxity_core::units::Duration;
use laxity_lab::Attack;
use laxity_lab::figures::{beyond, quantile};
use laxity_lab::roundtrip::{
    self, ATTACKS, FLOOD_PACKETS_S, INTERVALS, Plan, REQUEST_BYTES, ROUNDS, Report, Row, SEGMENTS, STACKS, USUAL,
};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::shown::{Outcome, by_round, class, distribution, micros, threads, told, with_turns};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::count;
use crate::report::{distinct, with};
use crate::table::{self, Column, of_cells};
use crate::values::{option, span_within};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_secs(1);

/// Runs it.
pub(super) fn run(arguments: &BenchArguments, duration: Duration) -> Result<Outcome, Failure> {
    let attacks = match arguments.attack {
        None => ATTACKS.to_vec(),
        Some(attack) if ATTACKS.contains(&attack) => vec![attack],
        Some(attack) => {
            let expected = "idle, flood, hogs or all: plain sockets have no contract to break";
            return Err(Failure::Usage(format!("--attack {attack} is not for roundtrip: {expected}")));
        }
    };
    // What is asked: how many bytes, and how often.
    let (bytes, interval) = USUAL;
    let bytes = message(arguments, REQUEST_BYTES)?.unwrap_or(bytes);
    let within = |text| span_within("--interval", text, INTERVALS);
    let interval = arguments.interval.as_deref().map_or(Ok(interval), within)?;
    let plan = Plan {
        stacks: &STACKS,
        sizes: vec![bytes],
        interval,
        attacks,
        span: duration,
        openings: false,
        prioritised: arguments.prioritised.unwrap_or_default(),
        laxity: this_command()?,
    };
    let report = with_turns(|progress| roundtrip::run(&plan, progress))?;
    let Plan { sizes, interval, span, .. } = &plan;
    Ok(Outcome {
        title: "A request and its answer",
        conditions: format!(
            "{} bytes and their answer every {interval}, {ROUNDS} turns of {span} each; experts and applications over Laxity: {}",
            sizes[0],
            threads(report.is_real_time),
        ),
        json: json!({
            "message_bytes": sizes[0],
            "interval_ns": interval,
            "flood_packets_s": FLOOD_PACKETS_S,
            "rows": report.rows.iter().map(|of| row(of, *interval)).collect::<Value>(),
            "segments": report.details.segments.iter().map(segments).collect::<Value>(),
        }),
        tables: format!("{}\n{}", table(&report, *interval), by_segment(&report)),
        rounds: rounds(&report, *interval),
        legend: names(STACKS),
        diagrams: diagrams(&report),
        further_notes: report.channels.iter().map(told).collect(),
        notes: report.notes.clone(),
        ..Outcome::of_ends(&report, true)
    })
}

/// The program of this process, which can serve, too.
pub(super) fn this_command() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|source| Failure::File { file: "the program of this process".to_owned(), source })
}

/// The size that was asked for.
pub(super) fn message(arguments: &BenchArguments, [least, most]: [usize; 2]) -> Result<Option<usize>, Failure> {
    let Some(text) = &arguments.message else { return Ok(None) };
    let found = option("--message", text, text::size)?;
    let within = usize::try_from(found).ok().filter(|bytes| (least..=most).contains(bytes));
    within.ok_or_else(|| Failure::Usage(format!("--message is {found} bytes, expected {least} to {most}"))).map(Some)
}

/// A stack under an attack, in JSON.
fn row(row: &Row, interval: Duration) -> Value {
    // Beyond the interval the next request was due: a control loop has missed its next period.
    let distribution =
        |sorted: &[u64]| with(distribution(sorted), json!({ "beyond_interval": beyond(sorted, interval) }));
    json!({
        "attack": row.attack.to_string(),
        "stack": row.stack,
        "round_trip": distribution(&row.pooled()),
        "lost": row.lost(),
        "flooded_packets": row.flooded(),
        "processor_ns_per_message": row.processor_per_message(),
        "rounds": row.turns.iter().map(|turn| distribution(&turn.round_trips)).collect::<Value>(),
    })
}

/// The keys of [`SEGMENTS`] in JSON.
const SEGMENT_KEYS: [&str; SEGMENTS.len()] =
    ["until_handed_over_ns", "until_arrived_ns", "until_found_ns", "until_complete_ns", "until_in_hand_ns"];

/// The median of each segment of a stack's answers, and how many they are.
fn medians(row: &Row) -> (usize, [Option<u64>; SEGMENTS.len()]) {
    let all: Vec<_> = row.turns.iter().flat_map(|turn| &turn.segments).collect();
    let median = |segment: usize| {
        let mut of: Vec<u64> = all.iter().map(|segments| segments[segment]).collect();
        of.sort_unstable();
        quantile(&of, 500_000)
    };
    (all.len(), core::array::from_fn(median))
}

pub(super) fn segments(row: &Row) -> Value {
    let (answers, found) = medians(row);
    let of_each: serde_json::Map<_, _> =
        SEGMENT_KEYS.iter().zip(found).map(|(key, nanos)| ((*key).to_owned(), json!(nanos))).collect();
    json!({ "stack": row.stack, "answers": answers, "p50": of_each })
}

/// Every round, for the report.
fn rounds(report: &Report, interval: Duration) -> String {
    type RoundRow<'a> = (&'a Row, usize, &'a [u64]);
    let at = |ppm| move |(_, _, sorted): &RoundRow<'_>| micros(quantile(sorted, ppm));
    let columns: &[Column<'_, RoundRow<'_>>] = &[
        ("attack", &|(row, ..)| row.attack.to_string()),
        ("stack", &|(row, ..)| row.stack.to_owned()),
        ("round", &|(_, round, _)| (round + 1).to_string()),
        ("answers", &|(_, _, sorted)| count(sorted.len() as u64)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("p99.9", &at(999_000)),
        ("longest", &at(1_000_000)),
        ("beyond the interval", &|(_, _, sorted)| count(beyond(sorted, interval) as u64)),
    ];
    let rows = report
        .rows
        .iter()
        .flat_map(|row| row.turns.iter().enumerate().map(move |(round, turn)| (row, round, &turn.round_trips[..])));
    table::table(columns, 2.., rows)
}

/// For people.
fn table(report: &Report, interval: Duration) -> String {
    let at = |ppm| move |(_, sorted): &(&Row, Vec<u64>)| micros(quantile(sorted, ppm));
    let columns: &[Column<'_, (&Row, Vec<u64>)>] = &[
        ("attack", &|(row, _)| if row.stack == STACKS[0] { row.attack.to_string() } else { String::new() }),
        ("stack", &|(row, _)| row.stack.to_owned()),
        ("answers", &|(_, sorted)| count(sorted.len() as u64)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("p99.9", &at(999_000)),
        ("longest", &at(1_000_000)),
        ("beyond the interval", &|(_, sorted)| count(beyond(sorted, interval) as u64)),
        ("lost", &|(row, _)| count(row.lost())),
        ("processor, each message", &|(row, _)| micros(row.processor_per_message().map(Duration::as_nanos))),
    ];
    table::table(columns, 2.., report.rows.iter().map(|row| (row, row.pooled())))
}

/// Where the time of an answer goes, for people.
pub(super) fn by_segment(report: &Report) -> String {
    let heading = ["an answer at rest, p50, behind the other turns", "answers"].into_iter().chain(SEGMENTS);
    let rows = report.details.segments.iter().map(|row| {
        let (answers, found) = medians(row);
        [row.stack.to_owned(), count(answers as u64)].into_iter().chain(found.map(micros)).collect()
    });
    of_cells(1.., std::iter::once(heading.map(str::to_owned).collect()).chain(rows))
}

/// How far an answer is after so many µs: the medians of its segments, one after the other.
fn way(report: &Report) -> Diagram {
    let line = |row: &Row| {
        let mut at = 0;
        let points = medians(row).1.into_iter().enumerate().map_while(|(segment, nanos)| {
            at += nanos?;
            Some((at, segment as u64 + 1))
        });
        Series::line(class(&STACKS, row.stack), [(0, 0)].into_iter().chain(points))
    };
    let heading = "an answer at rest (medians): 1 handed to the link, 2 arrived, 3 found, 4 complete, 5 in hand";
    let lines = report.details.segments.iter().map(line);
    Diagram::of_lines(heading, ("µs since the call", 1000), ("how far", 1), 5, lines)
}

/// Round by round: what a disturbance does to all stacks, and what lies between them, can be seen.
fn diagrams(report: &Report) -> Vec<Diagram> {
    let diagram = |attack: Attack, (name, ppm): (&str, u64)| {
        let rows = report.rows.iter().filter(|row| row.attack == attack);
        let lines =
            rows.map(|row| by_round(class(&STACKS, row.stack), &row.turns, |turn| quantile(&turn.round_trips, ppm)));
        Diagram::of_lines(format!("{attack}: {name} of each round"), ("round", 1), ("µs", 1000), 0, lines)
    };
    let attacks = distinct(report.rows.iter().map(|row| row.attack));
    let both = |attack| [("p50", 500_000), ("p99", 990_000)].map(|of| diagram(attack, of));
    attacks.into_iter().flat_map(both).chain([way(report)]).collect()
}
