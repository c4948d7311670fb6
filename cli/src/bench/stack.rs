//! `laxity bench stack-roundtrip` and `stack-throughput`: the paper's comparison of where the stack is `[nps §5.2, §5.5; Figs. 3, 4, 6, 7]`.
//!
//! What runs, and in which order, is [`laxity_lab::roundtrip`]'s; here stands what is aimed at and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::Attack;
use laxity_lab::figures::quantile;
use laxity_lab::roundtrip::{
    self, CARRIERS, OpenCost, PLACEMENTS, Plan, PriorityPaths, REQUEST_BYTES, ROUNDS, Report, Row, SIZES,
    ThroughputRow, USUAL,
};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::roundtrip::{by_segment, message, segments, this_command};
use super::shown::{Outcome, Ratio, decimal, distribution, fine, micros, ratio_ppm, threads, told, with_turns};
use crate::chart::{Diagram, Look, Series};
use crate::failure::Failure;
use crate::numbers::count;
use crate::table::of_cells;

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_millis(100);

/// What is aimed at: the time of one stack is at most so many ppm of another one's, where both are over the same link. To be attached costs little beside a thread in the own
/// process, and not much beside doing the work oneself.
const AIMS: [(&str, &str, u64); 4] = [
    ("laxity-udp-server", "laxity-udp", 1_100_000),
    ("laxity-xdp-server", "laxity-xdp", 1_100_000),
    ("laxity-udp-server", "laxity-udp-inline", 1_500_000),
    ("laxity-xdp-server", "laxity-xdp-inline", 1_500_000),
];

/// What was found of an aim: of the medians of all sizes together, as a ratio of one size is noisier.
fn found(report: &Report, (of, to, most_ppm): (&str, &str, u64)) -> Ratio {
    let time = |stack: &str| -> Option<u64> {
        report.rows.iter().filter(|row| row.stack == stack).map(|row| quantile(&row.pooled(), 500_000)).sum()
    };
    let ppm = ratio_ppm(time(of), time(to));
    let is_met = ppm.is_some_and(|ppm| ppm <= most_ppm);
    let [found, most] = [ppm, Some(most_ppm)].map(|ppm| decimal(ppm, 1_000_000, 2, ""));
    let told = format!("{of} to {to}: {found}, at most {most} is aimed at");
    let json = json!({ "of": of, "to": to, "ppm": ppm, "most_ppm": most_ppm, "met": is_met });
    Ratio { ppm, is_met: Some(is_met), told, json }
}

fn plan(arguments: &BenchArguments, stacks: &'static [&'static str], span: Duration) -> Result<Plan, Failure> {
    let one = message(arguments, [REQUEST_BYTES[0], SIZES[SIZES.len() - 1]])?;
    let (sizes, interval) = (one.map_or_else(|| SIZES.to_vec(), |one| vec![one]), USUAL.1);
    Ok(Plan {
        stacks,
        sizes,
        interval,
        attacks: vec![Attack::Idle],
        span,
        openings: false,
        prioritised: PriorityPaths::default(),
        laxity: this_command()?,
    })
}

/// Runs `stack-roundtrip`.
pub(super) fn run_roundtrip(arguments: &BenchArguments, duration: Duration) -> Result<Outcome, Failure> {
    let plan = Plan { openings: true, ..plan(arguments, &PLACEMENTS, duration)? };
    let report = with_turns(|progress| roundtrip::run(&plan, progress))?;
    let row = |row: &Row| {
        json!({
            "stack": row.stack,
            "message_bytes": row.bytes,
            "round_trip": distribution(&row.pooled()),
            "lost": row.lost(),
            "processor_ns_per_message": row.processor_per_message(),
        })
    };
    let opening = |OpenCost { stack, opened, closed }: &OpenCost| json!({ "stack": stack, "open": distribution(opened), "close": distribution(closed) });
    let ratios = AIMS.map(|aim| found(&report, aim));
    let at = |ppm| move |row: &Row| quantile(&row.pooled(), ppm);
    let median = |of: fn(&OpenCost) -> &Vec<u64>| {
        report.details.openings.iter().map(|one| micros(quantile(of(one), 500_000))).collect::<Vec<_>>()
    };
    let more = [("open", median(|one| &one.opened)), ("close", median(|one| &one.closed))];
    Ok(Outcome {
        title: "A request and its answer, by where the stack is",
        conditions: format!(
            "A request and its answer every {}, {}",
            plan.interval,
            conditions(&plan, report.is_real_time)
        ),
        json: json!({
            "interval_ns": plan.interval,
            "rows": report.rows.iter().map(row).collect::<Value>(),
            "openings": report.details.openings.iter().map(opening).collect::<Value>(),
            "ratios": Ratio::json(&ratios),
            "segments": report.details.segments.iter().map(segments).collect::<Value>(),
        }),
        tables: format!(
            "round trips, p50; and to open and close a channel, p50\n{}\nround trips, p99\n{}\nprocessor time of each message\n{}\n{}",
            by_stack(&plan, &report.rows, |row| micros(at(500_000)(row)), &more),
            by_stack(&plan, &report.rows, |row| micros(at(990_000)(row)), &[]),
            by_stack(&plan, &report.rows, |row| fine(row.processor_per_message().map(Duration::as_nanos)), &[]),
            by_segment(&report),
        ),
        legend: legend(&plan),
        diagrams: [("round trip, p50", 500_000), ("round trip, p99", 990_000)]
            .map(|(what, ppm)| diagrams(&plan, &report.rows, what, ("µs", 1000), at(ppm)))
            .concat(),
        notes: Ratio::told(&ratios).collect(),
        further_notes: report.channels.iter().map(told).chain(report.notes.iter().cloned()).collect(),
        ..Outcome::of_ends(&report, true)
    })
}

/// Runs `stack-throughput`.
pub(super) fn run_throughput(arguments: &BenchArguments, duration: Duration) -> Result<Outcome, Failure> {
    let plan = plan(arguments, &CARRIERS, duration)?;
    let report = with_turns(|progress| roundtrip::throughput(&plan, progress))?;
    let bytes_s = |row: &ThroughputRow| row.per_second() * row.bytes as u64;
    let row = |row: &ThroughputRow| {
        json!({
            "stack": row.stack,
            "message_bytes": row.bytes,
            "messages_s": row.per_second(),
            "bytes_s": bytes_s(row),
            "taken": row.turns.iter().map(|turn| turn.taken).sum::<u64>(),
            "missing": row.missing(),
            "processor_ns_per_message": row.processor_per_message(),
        })
    };
    let processor = |row: &ThroughputRow| row.processor_per_message().map(Duration::as_nanos);
    Ok(Outcome {
        title: "Messages in one direction, by where the stack is",
        conditions: format!(
            "Messages in one direction, as many as go, best effort over Laxity; {}",
            conditions(&plan, report.is_real_time)
        ),
        json: json!({
            "rows": report.rows.iter().map(row).collect::<Value>(),
        }),
        tables: format!(
            "messages a second, in the receiving application's hand\n{}\ntaken, and not in hand by the end of their turn\n{}\n\
             processor time of each message in hand\n{}",
            by_stack(&plan, &report.rows, |row| count(row.per_second()), &[]),
            by_stack(&plan, &report.rows, |row| count(row.missing()), &[]),
            by_stack(&plan, &report.rows, |row| fine(processor(row)), &[]),
        ),
        legend: legend(&plan),
        diagrams: [
            diagrams(&plan, &report.rows, "in hand", ("Mbit/s", 1_000_000), |row| Some(bytes_s(row) * 8)),
            diagrams(&plan, &report.rows, "processor time of each message", ("µs", 1000), processor),
        ]
        .concat(),
        notes: report.notes.clone(),
        ..Outcome::of_ends(&report, false)
    })
}

/// Under which it ran, in a line.
fn conditions(plan: &Plan, is_real_time: bool) -> String {
    format!("{ROUNDS} turns of {} for each size and stack; applications: {}", plan.span, threads(is_real_time))
}

/// A line for each stack; columns of what it has with each size, and of what else is said of it. `rows` come by size, and for each in the order of the stacks.
fn by_stack<R>(plan: &Plan, rows: &[R], value: impl Fn(&R) -> String, more: &[(&str, Vec<String>)]) -> String {
    let stacks = plan.stacks;
    let sizes = plan.sizes.iter().map(|bytes| format!("{bytes}\u{a0}B"));
    let titles = more.iter().map(|(title, _)| (*title).to_owned());
    let heading = ["stack".to_owned()].into_iter().chain(sizes).chain(titles).collect();
    let lines = stacks.iter().enumerate().map(|(place, stack)| {
        let of_sizes = rows.iter().skip(place).step_by(stacks.len()).map(&value);
        let of_stack = more.iter().map(|(_, of_each)| of_each.get(place).cloned().unwrap_or_default());
        [(*stack).to_owned()].into_iter().chain(of_sizes).chain(of_stack).collect()
    });
    of_cells(1.., std::iter::once(heading).chain(lines))
}

/// Where a stack is, as the legend has it, and the end of its name behind the link's. What is not in every picture comes last.
const KINDS: [(&str, &str); 6] = [
    ("kernel", "kernel"),
    ("thread", ""),
    ("server", "-server"),
    ("inline", "-inline"),
    ("kernel, one host", "kernel-one-host"),
    ("server, one host", "-one-host"),
];

/// The end of a stack's name behind its link's.
fn kind(stack: &str) -> &str {
    ["laxity-udp", "laxity-xdp"].iter().find_map(|link| stack.strip_prefix(link)).unwrap_or(stack)
}

/// What both links have, over the sizes: a diagram for each, with plain sockets in either.
fn diagrams<R>(
    plan: &Plan,
    rows: &[R],
    what: &str,
    up: (&'static str, u32),
    value: impl Fn(&R) -> Option<u64>,
) -> [Diagram; 2] {
    ["udp", "xdp"].map(|link| {
        let is_shown = |stack: &str| !stack.starts_with("laxity") || stack.contains(link);
        let lines = plan.stacks.iter().enumerate().filter(|(_, stack)| is_shown(stack)).map(|(place, stack)| {
            let of_stack = plan.sizes.iter().zip(rows.iter().skip(place).step_by(plan.stacks.len()));
            let class = KINDS.iter().position(|(_, end)| kind(stack) == *end).unwrap_or(0);
            Series::line(class, of_stack.filter_map(|(bytes, row)| Some((*bytes as u64, value(row)?))))
        });
        Diagram::of_lines(format!("{link}: {what}"), ("bytes of a message", 1), up, 0, lines)
    })
}

/// The stacks of the plan.
fn legend(plan: &Plan) -> Vec<(Look, String)> {
    let has = |end: &str| plan.stacks.iter().any(|stack| kind(stack) == end);
    let kinds = KINDS.iter().enumerate().filter(|(_, (_, end))| has(end));
    kinds.map(|(class, (name, _))| (Look::Number(class), (*name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come by size, and within it by stack: each has to stand where its stack and its size are.
    #[test]
    fn what_is_shown_stands_by_stack_and_size() {
        let (stacks, sizes) = (&["kernel", "laxity-udp", "laxity-xdp-server"][..], vec![64, 512]);
        let (interval, span) = (USUAL.1, DURATION);
        let plan = Plan {
            stacks,
            sizes,
            interval,
            attacks: Vec::new(),
            span,
            openings: false,
            prioritised: PriorityPaths::default(),
            laxity: "laxity".into(),
        };
        let rows = [1u64, 2, 3, 10, 20, 30];
        let shown =
            by_stack(&plan, &rows, |row| row.to_string(), &[("more", vec!["a".into(), "b".into(), "c".into()])]);
        let cells = |line: &str| -> Vec<String> {
            line.split('|').flat_map(str::split_whitespace).map(str::to_owned).collect()
        };
        let lines: Vec<_> = shown.lines().map(cells).filter(|cells| cells.len() == 4).collect();
        let expected =
            [["kernel", "1", "10", "a"], ["laxity-udp", "2", "20", "b"], ["laxity-xdp-server", "3", "30", "c"]];
        assert_eq!(lines, expected, "{shown}");
        let drawn = diagrams(&plan, &rows, "what", ("unit", 1), |row| Some(*row)).map(|diagram| {
            let lines = diagram.series.into_iter().map(|line| (line.look, line.points));
            lines.collect::<Vec<_>>()
        });
        let kernel = || (Look::Number(0), vec![(64.0, 1.0), (512.0, 10.0)]);
        assert_eq!(drawn[0], [kernel(), (Look::Number(1), vec![(64.0, 2.0), (512.0, 20.0)])]);
        assert_eq!(drawn[1], [kernel(), (Look::Number(2), vec![(64.0, 3.0), (512.0, 30.0)])]);
    }
}
