//! `laxity bench roundtrip`: requests and answers over Laxity beside plain sockets.
//!
//! What runs, and in which order, is [`laxity_lab::roundtrip`]'s; here stands how it is shown.

use std::path::PathBuf;

use laxity::text;
use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::Attack;
use laxity_lab::figures::{broken_promise, quantile};
use laxity_lab::roundtrip::{
    self, ATTACKS, FLOOD_PACKETS_S, Plan, Prioritised, ROUNDS, Report, Requests, Row, SEGMENTS, STACKS,
};
use serde_json::{Value, json};

use super::arguments::{BenchArguments, PrioritisedArgument};
use super::chart::{self, Line, Panel, Picture};
use super::paths::of_bench;
use super::shown::{kept, listed, show_with};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::progress;
use crate::report::{self, to_json};
use crate::table::{Column, table};
use crate::values::{option, span_within};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_secs(1);
/// Runs it and shows it; true if Laxity kept what it had promised.
pub(super) fn run(arguments: &BenchArguments, duration: Duration) -> Result<bool, Failure> {
    let attacks = match arguments.attack {
        None => ATTACKS.to_vec(),
        Some(attack) if ATTACKS.contains(&attack) => vec![attack],
        Some(attack) => {
            let expected = "idle, flood, hogs or all: plain sockets have no contract to break";
            return Err(Failure::Usage(format!("--attack {attack} is not for roundtrip: {expected}")));
        }
    };
    let (bytes, interval) = requests(arguments)?;
    let plan = Plan {
        stacks: &STACKS,
        sizes: vec![bytes],
        interval,
        attacks,
        span: duration,
        openings: false,
        prioritised: Prioritised {
            thread: matches!(arguments.prioritised, Some(PrioritisedArgument::Thread | PrioritisedArgument::Both)),
            others: matches!(arguments.prioritised, Some(PrioritisedArgument::Others | PrioritisedArgument::Both)),
        },
        laxity: this_command()?,
    };
    let report =
        with_turns(|progress| roundtrip::run(&plan, progress)).map_err(|error| of_bench("roundtrip", error))?;
    let (picture, page) = (|| svg(&report, &plan), || page(&report, &plan));
    show_with(arguments, picture, || json(&report, &plan), page, || rounds(&report, &plan))?;
    let broken: Vec<String> =
        report.channels.iter().filter_map(|channel| broken_promise("roundtrip", channel)).collect();
    Ok(kept(&broken))
}

/// Runs what tells how many of how many turns are done, and shows that.
pub(super) fn with_turns<T>(run: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
    let bar = progress::bar("{bar:24} {pos} of {len} turns", 0);
    run(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
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

/// What is asked: how many bytes, and how often.
fn requests(arguments: &BenchArguments) -> Result<(usize, Duration), Failure> {
    let (bytes, mut interval) = Requests::USUAL;
    let bytes = message(arguments, Requests::BYTES)?.unwrap_or(bytes);
    if let Some(text) = &arguments.interval {
        interval = span_within("--interval", text, Requests::INTERVALS)?;
    }
    Ok((bytes, interval))
}

pub(super) fn told(channel: &Figures) -> String {
    let Figures { name, delivered, sent, .. } = channel;
    format!("channel {name}: {delivered} of {sent} delivered; misses: {}", report::misses(channel))
}

/// How long something took, in JSON.
pub(super) fn distribution(sorted: &[u64]) -> Value {
    json!({
        "samples": sorted.len(),
        "min_ns": quantile(sorted, 0),
        "p50_ns": quantile(sorted, 500_000),
        "p99_ns": quantile(sorted, 990_000),
        "p999_ns": quantile(sorted, 999_000),
        "max_ns": quantile(sorted, 1_000_000),
    })
}

/// One line, without a line end.
fn json(report: &Report, plan: &Plan) -> String {
    let distribution = |sorted: &[u64]| {
        let mut found = distribution(sorted);
        found["beyond_interval"] = beyond(plan, sorted).into();
        found
    };
    let row = |row: &Row| {
        json!({
            "attack": row.attack.to_string(),
            "stack": row.stack,
            "round_trip": distribution(&row.pooled()),
            "lost": row.lost(),
            "flooded_packets": row.flooded(),
            "processor_ns_per_message": row.processor_per_message(),
            "rounds": row.turns.iter().map(|turn| distribution(&turn.round_trips)).collect::<Value>(),
        })
    };
    to_json(&json!({
        "bench": "roundtrip",
        "message_bytes": plan.sizes[0],
        "interval_ns": plan.interval,
        "flood_packets_s": FLOOD_PACKETS_S,
        "duration_ns": plan.span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "segments": report.segments.iter().map(segments).collect::<Value>(),
        "channels": report.channels.iter().map(report::channel).collect::<Value>(),
        "notes": report.notes,
    }))
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

/// Answers that took longer than until the next request was due: a control loop has missed its next period.
fn beyond(plan: &Plan, sorted: &[u64]) -> usize {
    sorted.len() - sorted.partition_point(|&nanos| nanos <= plan.interval.as_nanos())
}

/// Under which it ran, in a line.
fn conditions(report: &Report, Plan { sizes, interval, span, .. }: &Plan) -> String {
    format!(
        "{} bytes and their answer every {interval}, {ROUNDS} turns of {span} each; experts and applications over Laxity: {}",
        sizes[0],
        if report.is_real_time { "SCHED_FIFO" } else { "ordinary threads" },
    )
}

pub(super) fn micros(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| NONE.to_owned(), |nanos| format!("{}\u{a0}µs", nanos / 1000))
}

/// Every round, for the report.
fn rounds(report: &Report, plan: &Plan) -> String {
    type One<'a> = (&'a Row, usize, &'a [u64]);
    let at = |ppm| move |(_, _, sorted): &One<'_>| micros(quantile(sorted, ppm));
    let columns: &[Column<'_, One<'_>>] = &[
        ("attack", &|(row, ..)| row.attack.to_string()),
        ("stack", &|(row, ..)| row.stack.to_owned()),
        ("round", &|(_, round, _)| (round + 1).to_string()),
        ("answers", &|(_, _, sorted)| count(sorted.len() as u64)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("p99.9", &at(999_000)),
        ("longest", &at(1_000_000)),
        ("beyond the interval", &|(_, _, sorted)| count(beyond(plan, sorted) as u64)),
    ];
    let rows = report
        .rows
        .iter()
        .flat_map(|row| row.turns.iter().enumerate().map(move |(round, turn)| (row, round, &turn.round_trips[..])));
    table(columns, 2.., rows).to_string()
}

/// For people.
fn page(report: &Report, plan: &Plan) -> String {
    let at = |ppm| move |(row, sorted): &(&Row, Vec<u64>)| (row.stack, quantile(sorted, ppm)).1;
    let columns: &[Column<'_, (&Row, Vec<u64>)>] = &[
        ("attack", &|(row, _)| if row.stack == STACKS[0] { row.attack.to_string() } else { String::new() }),
        ("stack", &|(row, _)| row.stack.to_owned()),
        ("answers", &|(_, sorted)| count(sorted.len() as u64)),
        ("p50", &|row| micros(at(500_000)(row))),
        ("p99", &|row| micros(at(990_000)(row))),
        ("p99.9", &|row| micros(at(999_000)(row))),
        ("longest", &|row| micros(at(1_000_000)(row))),
        ("beyond the interval", &|(_, sorted)| count(beyond(plan, sorted) as u64)),
        ("lost", &|(row, _)| count(row.lost())),
        ("processor, each message", &|(row, _)| micros(row.processor_per_message().map(Duration::as_nanos))),
    ];
    let rows = report.rows.iter().map(|row| (row, row.pooled()));
    let table = table(columns, 2.., rows);
    let notes = report.channels.iter().map(told).chain(report.notes.iter().cloned());
    let segments = by_segment(report);
    format!("LIVE on this host. {}.\n\n{table}\n{segments}\n{}", conditions(report, plan), listed(notes))
}

/// Where the time of an answer goes, for people.
pub(super) fn by_segment(report: &Report) -> String {
    type One<'a> = (&'a Row, (usize, [Option<u64>; SEGMENTS.len()]));
    let of = |segment: usize| move |(_, (_, found)): &One<'_>| micros(found[segment]);
    let columns: &[Column<'_, One<'_>>] = &[
        ("an answer at rest, p50, behind the other turns", &|(row, _)| row.stack.to_owned()),
        ("answers", &|(_, (answers, _))| count(*answers as u64)),
        (SEGMENTS[0], &of(0)),
        (SEGMENTS[1], &of(1)),
        (SEGMENTS[2], &of(2)),
        (SEGMENTS[3], &of(3)),
        (SEGMENTS[4], &of(4)),
    ];
    table(columns, 1.., report.segments.iter().map(|row| (row, medians(row)))).to_string()
}

/// How far an answer is after so many µs: the medians of its segments, one after the other.
fn way(report: &Report) -> Panel {
    let line = |row: &Row| {
        let place = STACKS.iter().position(|stack| *stack == row.stack).unwrap_or(0);
        let mut at = 0;
        let points = medians(row).1.into_iter().enumerate().map_while(|(segment, nanos)| {
            at += nanos?;
            Some((at, segment as u64 + 1))
        });
        Line::new(place, [(0, 0)].into_iter().chain(points))
    };
    Panel {
        heading: "an answer at rest (medians): 1 handed to the link, 2 arrived, 3 found, 4 complete, 5 in hand"
            .to_owned(),
        x_title: "µs since the call",
        y_title: "how far",
        x_unit: 1000,
        y_unit: 1,
        least_top: 5,
        lines: report.segments.iter().map(line).collect(),
    }
}

/// Round by round: what a disturbance does to all stacks, and what lies between them, can be seen.
fn svg(report: &Report, plan: &Plan) -> String {
    let panel = |attack: Attack, what: &str, ppm| {
        let rows = report.rows.iter().filter(|row| row.attack == attack).enumerate();
        let points = |row: &Row| {
            let turns = (1..).zip(&row.turns);
            turns.filter_map(|(round, turn)| Some((round, quantile(&turn.round_trips, ppm)?))).collect::<Vec<_>>()
        };
        Panel {
            heading: format!("{attack}: {what} of each round"),
            x_title: "round",
            y_title: "µs",
            x_unit: 1,
            y_unit: 1000,
            least_top: 0,
            lines: rows.map(|(class, row)| Line::new(class, points(row))).collect(),
        }
    };
    let mut attacks: Vec<Attack> = report.rows.iter().map(|row| row.attack).collect();
    attacks.dedup();
    chart::document(&Picture {
        title: "A request and its answer (roundtrip)".to_owned(),
        subtitle: format!("LIVE on one host. {}.", conditions(report, plan)),
        legend: STACKS.iter().map(|name| (*name).to_owned()).collect(),
        panels: attacks
            .iter()
            .flat_map(|&attack| [panel(attack, "p50", 500_000), panel(attack, "p99", 990_000)])
            .chain([way(report)])
            .collect(),
        notes: report.notes.clone(),
    })
}
