//! `shared-link`: Table 3 of `[channels §5]` beside a flood of the same host, with the guard and with the kernel's queueing disciplines.
//!
//! What runs, and how the experts' queues are set up, is [`laxity_lab::shared_link`]'s; here stands what is aimed at and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::{broken_promise, median};
use laxity_lab::shared_link::{self, Report, Responses, Stack, StackRow, Turn, quartiles};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::chart::{self, Line, Panel, Picture};
use super::paths::of_bench;
use super::roundtrip::{told, with_turns};
use super::shown::{kept, listed, show_with};
use crate::failure::Failure;
use crate::numbers::{NONE, count, rounded};
use crate::report::{self, to_json};
use crate::table::{Column, table};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_secs(3);
/// What is aimed at, to the best of the experts: of the largest p99 to its deadline, and of best effort.
const MOST_PPM: u64 = 750_000;
const LEAST_PPM: u64 = 1_000_000;

/// A stack of Laxity's to the best of the experts.
struct Ratio {
    stack: Stack,
    /// Of the largest p99 to its deadline: the median of the rounds, between their quartiles.
    p99_ppm: [Option<u64>; 3],
    /// Of best effort, of the medians of the rounds, to what the expert that carried most of it had.
    best_effort_ppm: Option<u64>,
}

impl Ratio {
    /// Whether both are as is aimed at; `None` if they are not known.
    fn is_met(&self) -> Option<bool> {
        Some(self.p99_ppm[1]? <= MOST_PPM && self.best_effort_ppm? >= LEAST_PPM)
    }

    fn told(&self, best: &str) -> String {
        let Self { stack, p99_ppm, best_effort_ppm } = self;
        let [low, middle, high] = p99_ppm.map(thousandths);
        let met = if self.is_met() == Some(false) { ": missed" } else { "" };
        format!(
            "{stack} to the best expert: largest p99 to its deadline {middle} ({low} to {high}) of that of {best}, best effort {} of the most that one of \
             them carries; at most {} and at least {} are aimed at{met}",
            thousandths(*best_effort_ppm),
            thousandths(Some(MOST_PPM)),
            thousandths(Some(LEAST_PPM)),
        )
    }
}

fn thousandths(ppm: Option<u64>) -> String {
    // A turn in which too many messages were lost is beyond all numbers.
    ppm.filter(|ppm| *ppm < u64::MAX)
        .map_or_else(|| NONE.to_owned(), |ppm| format!("{}.{:03}", ppm / 1_000_000, ppm % 1_000_000 / 1000))
}

/// Best effort of a stack, the median of its turns.
fn best_effort(row: &StackRow) -> Option<u64> {
    median(row.turns.iter().map(|turn| turn.best_effort_bytes_s).collect())
}

fn ratios(report: &Report) -> Vec<Ratio> {
    let experts = report.rows.iter().filter(|row| !row.stack.is_laxity());
    let most = experts.filter_map(best_effort).max();
    let of_stack = |row: &StackRow| {
        let best_effort_ppm = best_effort(row).zip(most).and_then(|(of, to)| (of * 1_000_000).checked_div(to));
        Ratio { stack: row.stack, p99_ppm: quartiles(&report.ratios_ppm(row)), best_effort_ppm }
    };
    report.rows.iter().filter(|row| row.stack.is_laxity()).map(of_stack).collect()
}

/// Runs it and shows it; true if Laxity kept what it had promised.
pub(super) fn run(arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let report =
        with_turns(|progress| shared_link::run(span, progress)).map_err(|error| of_bench("shared-link", error))?;
    let (picture, page) = (|| svg(&report, span), || page(&report, span));
    show_with(arguments, picture, || json(&report, span), page, || rounds(&report))?;
    let broken = report.channels.iter().filter_map(|channel| broken_promise("shared-link", channel));
    Ok(kept(&broken.collect::<Vec<_>>()))
}

/// All messages of a stream, over all turns.
fn pooled(row: &StackRow, stream: usize) -> Responses {
    let of_stream = || row.turns.iter().filter_map(|turn| turn.streams.get(stream));
    let mut sorted: Vec<u64> = of_stream().flat_map(|responses| responses.sorted.iter().copied()).collect();
    sorted.sort_unstable();
    Responses { sorted, lost: of_stream().map(|responses| responses.lost).sum() }
}

/// Messages that came after their deadline.
fn late(responses: &Responses, deadline: Duration) -> usize {
    responses.sorted.len() - responses.sorted.partition_point(|&nanos| nanos <= deadline.as_nanos())
}

/// One line, without a line end.
fn json(report: &Report, span: Duration) -> String {
    let stream = |responses: &Responses, number: usize| {
        let row = &report.streams[number];
        let at = |ppm| responses.quantile(ppm);
        json!({
            "name": row.name,
            "deadline_ns": row.contract.deadline(),
            "samples": responses.sorted.len(),
            "lost": responses.lost,
            "late": late(responses, row.contract.deadline()),
            "p50_ns": at(500_000),
            "p99_ns": at(990_000),
            "max_ns": at(1_000_000),
        })
    };
    let streams = |of: &dyn Fn(usize) -> Responses| {
        (0..report.streams.len()).map(|number| stream(&of(number), number)).collect::<Value>()
    };
    let turn = |turn: &Turn| {
        json!({
            "streams": streams(&|number| turn.streams[number].clone()),
            "largest_ppm": report.largest_ppm(turn),
            "best_effort_bytes_s": turn.best_effort_bytes_s,
            "flood_bytes_s": turn.flood_bytes_s,
        })
    };
    let row = |row: &StackRow| {
        json!({
            "stack": row.stack.to_string(),
            "streams": streams(&|number| pooled(row, number)),
            "largest_ppm": report.typical_ppm(row),
            "best_effort_bytes_s": best_effort(row),
            "flood_bytes_s": median(row.turns.iter().map(|turn| turn.flood_bytes_s).collect()),
            "rounds": row.turns.iter().map(turn).collect::<Value>(),
        })
    };
    let ratio = |ratio: &Ratio| {
        let [low, middle, high] = ratio.p99_ppm;
        json!({
            "stack": ratio.stack.to_string(),
            "to": report.best_expert().map(|row| row.stack.to_string()),
            "p99_ppm": middle,
            "quartiles_ppm": [low, high],
            "most_ppm": MOST_PPM,
            "best_effort_ppm": ratio.best_effort_ppm,
            "least_best_effort_ppm": LEAST_PPM,
            "met": ratio.is_met(),
        })
    };
    let set_up = |(stack, commands): &(Stack, Vec<String>)| json!({ "stack": stack.to_string(), "commands": commands });
    to_json(&json!({
        "bench": "shared-link",
        "duration_ns": span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "least_ppm": report.least_ppm(),
        "ratios": ratios(report).iter().map(ratio).collect::<Value>(),
        "channels": report.channels.iter().map(report::channel).collect::<Value>(),
        "experts": report.commands.iter().map(set_up).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// Under which it ran, in a line.
fn conditions(report: &Report, span: Duration) -> String {
    let threads = if report.is_real_time { "SCHED_FIFO" } else { "ordinary threads" };
    format!(
        "Table 3 and best effort at twice what it leaves of 100 Mbit/s, beside a flood of the same host; {} turns of {span}; applications of \
         real-time streams: {threads}",
        shared_link::rounds(span)
    )
}

/// A stream of a stack, of a turn or of all.
struct Shown {
    stack: Stack,
    round: Option<usize>,
    stream: usize,
    responses: Responses,
    best_effort_bytes_s: Option<u64>,
    flood_bytes_s: Option<u64>,
}

fn millis(nanos: Option<u64>) -> String {
    nanos.map_or_else(
        || NONE.to_owned(),
        |nanos| format!("{}.{:02}\u{a0}ms", nanos / 1_000_000, nanos % 1_000_000 / 10_000),
    )
}

fn shown(report: &Report, rows: impl Iterator<Item = Shown>) -> String {
    let rate = |bytes_s: Option<u64>| bytes_s.map_or_else(|| NONE.to_owned(), |bytes_s| count(rounded(bytes_s)));
    let deadline = |row: &Shown| report.streams[row.stream].contract.deadline();
    let at = |ppm| move |row: &Shown| millis(row.responses.quantile(ppm));
    let columns: &[Column<'_, Shown>] = &[
        ("stack", &|row| row.stack.to_string()),
        ("stream", &|row| report.streams[row.stream].name.clone()),
        ("round", &|row| row.round.map_or_else(|| "all".to_owned(), |round| round.to_string())),
        ("deadline", &|row| deadline(row).to_string()),
        ("messages", &|row| count(row.responses.sorted.len() as u64)),
        ("lost", &|row| count(row.responses.lost)),
        ("late", &|row| count(late(&row.responses, deadline(row)) as u64)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("longest", &at(1_000_000)),
        ("best effort, bytes/s", &|row| rate(row.best_effort_bytes_s)),
        ("flood, bytes/s", &|row| rate(row.flood_bytes_s)),
    ];
    table(columns, 2.., rows).to_string()
}

/// Every round, for the report.
fn rounds(report: &Report) -> String {
    let of_turn = |stack, (round, turn): (usize, &Turn)| {
        let (best_effort, flood) = (turn.best_effort_bytes_s, turn.flood_bytes_s);
        let of_stream = move |(stream, responses): (usize, &Responses)| Shown {
            stack,
            round: Some(round),
            stream,
            responses: responses.clone(),
            best_effort_bytes_s: Some(best_effort),
            flood_bytes_s: Some(flood),
        };
        turn.streams.iter().enumerate().map(of_stream).collect::<Vec<_>>()
    };
    shown(
        report,
        report.rows.iter().flat_map(|row| (1..).zip(&row.turns).flat_map(move |turn| of_turn(row.stack, turn))),
    )
}

/// What is compared, and how each stack's turns were.
fn compared(report: &Report) -> Vec<String> {
    let typical = report.rows.iter().map(|row| {
        format!(
            "{}: largest p99 to its deadline {}, the median of its turns",
            row.stack,
            thousandths(report.typical_ppm(row))
        )
    });
    let best = report.best_expert().map_or_else(|| "none of them".to_owned(), |row| row.stack.to_string());
    let least = format!(
        "whatever the order, one of three messages that come at once, as at the start of each turn, has {} of its deadline",
        thousandths(Some(report.least_ppm()))
    );
    typical.chain([least]).chain(ratios(report).iter().map(|ratio| ratio.told(&best))).collect()
}

/// For people.
fn page(report: &Report, span: Duration) -> String {
    let of_row = |row: &StackRow| {
        let (stack, best_effort_bytes_s) = (row.stack, best_effort(row));
        let flood_bytes_s = median(row.turns.iter().map(|turn| turn.flood_bytes_s).collect());
        let of_stream = |stream| Shown {
            stack,
            round: None,
            stream,
            responses: pooled(row, stream),
            best_effort_bytes_s,
            flood_bytes_s,
        };
        (0..report.streams.len()).map(of_stream).collect::<Vec<_>>()
    };
    let table = shown(report, report.rows.iter().flat_map(of_row));
    let broken = report.channels.iter().filter(|channel| broken_promise("", channel).is_some()).map(told);
    let experts = report.commands.iter().map(|(stack, commands)| format!("{stack}: {}", commands.join("; ")));
    let notes = compared(report).into_iter().chain(broken).chain(report.notes.iter().cloned()).chain(experts);
    format!("LIVE on this host. {}.\n\n{table}\n{}", conditions(report, span), listed(notes))
}

/// The colour of a stack's lines.
fn class(stack: Stack) -> usize {
    Stack::EACH.iter().position(|other| *other == stack).unwrap_or(0)
}

/// Each stream's distribution, and round by round the largest p99 to its deadline and best effort.
fn svg(report: &Report, span: Duration) -> String {
    let panel = |heading: String, x_title, y_title, y_unit, lines| Panel {
        heading,
        x_title,
        y_title,
        x_unit: 1,
        y_unit,
        least_top: 0,
        lines,
    };
    let distributions = report.streams.iter().enumerate().map(|(number, stream)| {
        let line = |row: &StackRow| {
            let all = pooled(row, number);
            let at = |percent: u64| Some((percent, all.quantile(percent * 10_000)?));
            Line::new(class(row.stack), (0..95).step_by(5).chain(95..100).filter_map(at))
        };
        let heading = format!("{}, deadline {}, to p99", stream.name, stream.contract.deadline());
        panel(heading, "messages, %", "ms", 1_000_000, report.rows.iter().map(line).collect())
    });
    let by_round = |value: &dyn Fn(&Turn) -> Option<u64>| -> Vec<Line> {
        let line = |row: &StackRow| {
            let points = (1..).zip(&row.turns).filter_map(|(round, turn)| Some((round, value(turn)?)));
            Line::new(class(row.stack), points)
        };
        report.rows.iter().map(line).collect()
    };
    let largest = by_round(&|turn| report.largest_ppm(turn));
    let best_effort = by_round(&|turn| Some(rounded(turn.best_effort_bytes_s)));
    let rounds = [
        panel("the largest p99 to its deadline".to_owned(), "round", "%", 10_000, largest),
        panel("best effort".to_owned(), "round", "MB/s", 1_000_000, best_effort),
    ];
    chart::document(&Picture {
        title: "Table 3 on a link that a program of the same host floods (shared-link)".to_owned(),
        subtitle: format!("LIVE on one host. {}.", conditions(report, span)),
        legend: Stack::EACH.iter().map(Stack::to_string).collect(),
        panels: distributions.chain(rounds).collect(),
        notes: compared(report),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_of_both_figures() {
        let met = |p99, best_effort_ppm| {
            Ratio { stack: Stack::LaxityUdp, p99_ppm: [None, p99, None], best_effort_ppm }.is_met()
        };
        assert_eq!(met(Some(750_000), Some(1_000_000)), Some(true));
        assert_eq!([met(Some(750_001), Some(1_000_000)), met(Some(1), Some(999_999))], [Some(false); 2]);
        assert_eq!([met(None, Some(1)), met(Some(1), None)], [None; 2]);
    }

    #[test]
    fn late_is_after_the_deadline() {
        let responses = Responses { sorted: vec![1, 2, 3], lost: 4 };
        assert_eq!(late(&responses, Duration::from_nanos(2)), 1);
    }
}
