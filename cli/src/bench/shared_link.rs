//! `shared-link`: Table 3 of `[channels §5]` beside a flood of the same host, with the guard and with the kernel's queueing disciplines.
//!
//! What runs, and how the experts' queues are set up, is [`laxity_lab::shared_link`]'s; here stands what is aimed at and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::{beyond, broken_promise, median};
use laxity_lab::shared_link::{self, Report, Stack, StackRow, StreamFigures, Turn, quartiles};
use laxity_lab::workload::WorkloadRow;
use serde_json::{Value, json};

use super::shown::{
    Outcome, Ratio, by_percent, by_round, class, decimal, rate, ratio_ppm, threads, times, told, with_turns,
};
use crate::chart::{Diagram, names};
use crate::failure::Failure;
use crate::numbers::{count, rounded};
use crate::report::with;
use crate::table::{self, Column};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_secs(3);
/// What is aimed at, to the best of the experts: of the largest p99 to its deadline, and of best effort.
const MOST_PPM: u64 = 750_000;
const LEAST_PPM: u64 = 1_000_000;

/// Whether both are as is aimed at; `None` if they are not known.
fn is_met(p99_ppm: Option<u64>, best_effort_ppm: Option<u64>) -> Option<bool> {
    Some(p99_ppm? <= MOST_PPM && best_effort_ppm? >= LEAST_PPM)
}

fn thousandths(ppm: Option<u64>) -> String {
    // A turn in which too many messages were lost is beyond all numbers.
    times(ppm.filter(|ppm| *ppm < u64::MAX))
}

/// Best effort of a stack, the median of its turns.
fn best_effort(row: &StackRow) -> Option<u64> {
    median(row.turns.iter().map(|turn| turn.best_effort_bytes_s).collect())
}

/// Each stack of Laxity's to the best of the experts: the largest p99 to its deadline, as the median of the rounds, between their quartiles;
/// and best effort, of the medians of the rounds, to what the expert that carried most of it had.
fn ratios(report: &Report) -> Vec<Ratio> {
    let experts = report.rows.iter().filter(|row| !row.stack.is_laxity());
    let most = experts.filter_map(best_effort).max();
    let best = report.best_expert().map(|row| row.stack.to_string());
    let of_stack = |row: &StackRow| {
        let (stack, [low, ppm, high]) = (row.stack, quartiles(&report.ratios_ppm(row)));
        let best_effort_ppm = ratio_ppm(best_effort(row), most);
        let is_met = is_met(ppm, best_effort_ppm);
        let told = format!(
            "{stack} to the best expert: largest p99 to its deadline {} ({} to {}) of that of {}, best effort {} of the most that one of \
             them carries; at most {} and at least {} are aimed at{}",
            thousandths(ppm),
            thousandths(low),
            thousandths(high),
            best.as_deref().unwrap_or("none of them"),
            thousandths(best_effort_ppm),
            thousandths(Some(MOST_PPM)),
            thousandths(Some(LEAST_PPM)),
            if is_met == Some(false) { ": missed" } else { "" },
        );
        let json = json!({
            "stack": stack.to_string(),
            "to": best,
            "p99_ppm": ppm,
            "quartiles_ppm": [low, high],
            "most_ppm": MOST_PPM,
            "best_effort_ppm": best_effort_ppm,
            "least_best_effort_ppm": LEAST_PPM,
            "met": is_met,
        });
        Ratio { ppm, is_met, told, json }
    };
    report.rows.iter().filter(|row| row.stack.is_laxity()).map(of_stack).collect()
}

/// Runs it.
pub(super) fn run(span: Duration) -> Result<Outcome, Failure> {
    let report = with_turns(|progress| shared_link::run(span, progress))?;
    let ratios = ratios(&report);
    let whole: Vec<ShownTurn> = report.rows.iter().map(|row| (row.stack, "all".to_owned(), all(row))).collect();
    let rounds = report.rows.iter().flat_map(|row| {
        (1..).zip(&row.turns).map(|(round, turn): (u64, _)| (row.stack, round.to_string(), turn.clone()))
    });
    let set_up = |(stack, commands): &(Stack, Vec<String>)| json!({ "stack": stack.to_string(), "commands": commands });
    let broken = report.channels.iter().filter(|channel| broken_promise("", channel).is_some()).map(told);
    let experts = report.details.commands.iter().map(|(stack, commands)| format!("{stack}: {}", commands.join("; ")));
    Ok(Outcome {
        title: "Table 3 on a link that a program of the same host floods",
        conditions: format!(
            "Table 3 and best effort at twice what it leaves of 100 Mbit/s, beside a flood of the same host; {} turns of {span}; applications of \
             real-time streams: {}",
            shared_link::rounds(span),
            threads(report.is_real_time)
        ),
        json: json!({
            "rows": report.rows.iter().map(|of| row(&report, of)).collect::<Value>(),
            "least_ppm": report.least_ppm(),
            "ratios": Ratio::json(&ratios),
            "experts": report.details.commands.iter().map(set_up).collect::<Value>(),
        }),
        tables: table(&report, &whole),
        rounds: table(&report, &rounds.collect::<Vec<_>>()),
        legend: names(Stack::EACH),
        diagrams: diagrams(&report),
        notes: compared(&report, &ratios),
        further_notes: broken.chain(report.notes.iter().cloned()).chain(experts).collect(),
        ..Outcome::of_ends(&report, true)
    })
}

/// All turns as one: all messages of each stream, and the medians of the rates.
fn all(row: &StackRow) -> Turn {
    let stream = |number: usize| {
        let turns = || row.turns.iter().filter_map(|turn| turn.streams.get(number));
        let mut sorted: Vec<u64> = turns().flat_map(|responses| responses.sorted.iter().copied()).collect();
        sorted.sort_unstable();
        StreamFigures { sorted, lost: turns().map(|responses| responses.lost).sum() }
    };
    let typical = |rate: fn(&Turn) -> u64| median(row.turns.iter().map(rate).collect()).unwrap_or_default();
    Turn {
        streams: (0..row.turns.first().map_or(0, |turn| turn.streams.len())).map(stream).collect(),
        best_effort_bytes_s: typical(|turn| turn.best_effort_bytes_s),
        flood_bytes_s: typical(|turn| turn.flood_bytes_s),
    }
}

/// A stack, in JSON.
fn row(report: &Report, row: &StackRow) -> Value {
    let stream = |(row, responses): (&WorkloadRow, &StreamFigures)| {
        json!({
            "name": row.name,
            "deadline_ns": row.contract.deadline(),
            "samples": responses.sorted.len(),
            "lost": responses.lost,
            "late": beyond(&responses.sorted, row.contract.deadline()),
            "p50_ns": responses.quantile(500_000),
            "p99_ns": responses.quantile(990_000),
            "max_ns": responses.quantile(1_000_000),
        })
    };
    let turn = |turn: &Turn, largest_ppm: Option<u64>| {
        json!({
            "streams": report.details.streams.iter().zip(&turn.streams).map(stream).collect::<Value>(),
            "largest_ppm": largest_ppm,
            "best_effort_bytes_s": turn.best_effort_bytes_s,
            "flood_bytes_s": turn.flood_bytes_s,
        })
    };
    let rounds: Value = row.turns.iter().map(|of| turn(of, report.largest_ppm(of))).collect();
    with(turn(&all(row), report.typical_ppm(row)), json!({ "stack": row.stack.to_string(), "rounds": rounds }))
}

/// A turn of a stack, with its number or as all of them.
type ShownTurn = (Stack, String, Turn);

/// Each stream of each of these turns, for people.
fn table(report: &Report, turns: &[ShownTurn]) -> String {
    type Stream<'a> = (&'a ShownTurn, &'a WorkloadRow, &'a StreamFigures);
    let at = |ppm| move |(.., responses): &Stream<'_>| decimal(responses.quantile(ppm), 1_000_000, 2, "\u{a0}ms");
    let columns: &[Column<'_, Stream<'_>>] = &[
        ("stack", &|((stack, ..), ..)| stack.to_string()),
        ("stream", &|(_, stream, _)| stream.name.clone()),
        ("round", &|((_, round, _), ..)| round.clone()),
        ("deadline", &|(_, stream, _)| stream.contract.deadline().to_string()),
        ("messages", &|(.., responses)| count(responses.sorted.len() as u64)),
        ("lost", &|(.., responses)| count(responses.lost)),
        ("late", &|(_, stream, responses)| count(beyond(&responses.sorted, stream.contract.deadline()) as u64)),
        ("p50", &at(500_000)),
        ("p99", &at(990_000)),
        ("longest", &at(1_000_000)),
        ("best effort, bytes/s", &|((.., turn), ..)| rate(Some(turn.best_effort_bytes_s))),
        ("flood, bytes/s", &|((.., turn), ..)| rate(Some(turn.flood_bytes_s))),
    ];
    let streams = turns.iter().flat_map(|turn| {
        report.details.streams.iter().zip(&turn.2.streams).map(move |(stream, responses)| (turn, stream, responses))
    });
    table::table(columns, 2.., streams)
}

/// What is compared, and how each stack's turns were.
fn compared(report: &Report, ratios: &[Ratio]) -> Vec<String> {
    let typical = report.rows.iter().map(|row| {
        format!(
            "{}: largest p99 to its deadline {}, the median of its turns",
            row.stack,
            thousandths(report.typical_ppm(row))
        )
    });
    let least = format!(
        "whatever the order, one of three messages that come at once, as at the start of each turn, has {} of its deadline",
        thousandths(Some(report.least_ppm()))
    );
    typical.chain([least]).chain(Ratio::told(ratios)).collect()
}

/// Each stream's distribution, and round by round the largest p99 to its deadline and best effort.
fn diagrams(report: &Report) -> Vec<Diagram> {
    let distributions = report.details.streams.iter().enumerate().map(|(number, stream)| {
        let lines = report.rows.iter().map(|row| {
            let all = all(row);
            by_percent(class(&Stack::EACH, row.stack), |ppm| all.streams[number].quantile(ppm))
        });
        let heading = format!("{}, deadline {}, to p99", stream.name, stream.contract.deadline());
        Diagram::of_lines(heading, ("messages, %", 1), ("ms", 1_000_000), 0, lines)
    });
    let rounds = |heading, up, value: &dyn Fn(&Turn) -> Option<u64>| {
        let lines = report.rows.iter().map(|row| by_round(class(&Stack::EACH, row.stack), &row.turns, value));
        Diagram::of_lines(heading, ("round", 1), up, 0, lines)
    };
    let rounds = [
        rounds("the largest p99 to its deadline", ("%", 10_000), &|turn| report.largest_ppm(turn)),
        rounds("best effort", ("MB/s", 1_000_000), &|turn| Some(rounded(turn.best_effort_bytes_s))),
    ];
    distributions.chain(rounds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_of_both_figures() {
        assert_eq!(is_met(Some(750_000), Some(1_000_000)), Some(true));
        assert_eq!([is_met(Some(750_001), Some(1_000_000)), is_met(Some(1), Some(999_999))], [Some(false); 2]);
        assert_eq!([is_met(None, Some(1)), is_met(Some(1), None)], [None; 2]);
    }
}
