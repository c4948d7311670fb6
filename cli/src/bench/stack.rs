//! `laxity bench stack-roundtrip` and `stack-throughput`: the paper's comparison of where the stack is `[nps §5.2, §5.5; Figs. 3, 4, 6, 7]`.
//!
//! What runs, and in which order, is [`laxity_lab::roundtrip`]'s; here stands what is aimed at and how it is shown.

use laxity_core::units::Duration;
use laxity_lab::Attack;
use laxity_lab::figures::{broken_promise, quantile};
use laxity_lab::roundtrip::{
    self, CARRIERS, Carried, Opening, PLACEMENTS, Plan, Prioritised, ROUNDS, Report, Requests, Row, SIZES, Throughput,
};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::chart::{self, Line, Panel, Picture};
use super::paths::of_bench;
use super::roundtrip::{by_segment, distribution, message, micros, segments, this_command, told, with_turns};
use super::shown::{kept, listed, show};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::report::{self, to_json};
use crate::table::{Column, table};

/// Of each turn, by default.
pub(super) const DURATION: Duration = Duration::from_millis(100);

/// The time of one stack is at most so many ppm of another one's, where both are over the same link.
struct Aim {
    of: &'static str,
    to: &'static str,
    most_ppm: u64,
}

/// What is aimed at: to be attached costs little beside a thread in the own process, and not much beside doing the work oneself.
const AIMS: [Aim; 4] = [
    Aim { of: "laxity-udp-server", to: "laxity-udp", most_ppm: 1_100_000 },
    Aim { of: "laxity-xdp-server", to: "laxity-xdp", most_ppm: 1_100_000 },
    Aim { of: "laxity-udp-server", to: "laxity-udp-inline", most_ppm: 1_500_000 },
    Aim { of: "laxity-xdp-server", to: "laxity-xdp-inline", most_ppm: 1_500_000 },
];

/// What was found of an aim; `None` if one of the stacks has no figure.
fn ratio(report: &Report, aim: &Aim) -> Option<u64> {
    // Medians of all sizes together: a ratio of one size is noisier.
    let time = |stack: &str| -> Option<u64> {
        report.rows.iter().filter(|row| row.stack == stack).map(|row| quantile(&row.pooled(), 500_000)).sum()
    };
    let (of, to) = (time(aim.of)?, time(aim.to).filter(|to| *to > 0)?);
    u64::try_from(u128::from(of) * 1_000_000 / u128::from(to)).ok()
}

fn plan(
    arguments: &BenchArguments,
    stacks: &'static [&'static str],
    span: Duration,
    openings: bool,
) -> Result<Plan, Failure> {
    let one = message(arguments, [Requests::BYTES[0], SIZES[SIZES.len() - 1]])?;
    let (sizes, interval) = (one.map_or_else(|| SIZES.to_vec(), |one| vec![one]), Requests::USUAL.1);
    Ok(Plan {
        stacks,
        sizes,
        interval,
        attacks: vec![Attack::Idle],
        span,
        openings,
        prioritised: Prioritised::default(),
        laxity: this_command()?,
    })
}

/// Runs `stack-roundtrip` and shows it; true if Laxity kept what it had promised.
pub(super) fn run_roundtrip(arguments: &BenchArguments, duration: Duration) -> Result<bool, Failure> {
    let plan = plan(arguments, &PLACEMENTS, duration, true)?;
    let report =
        with_turns(|progress| roundtrip::run(&plan, progress)).map_err(|error| of_bench("stack-roundtrip", error))?;
    let (picture, page) = (|| roundtrip_svg(&report, &plan), || roundtrip_page(&report, &plan));
    show(arguments, picture, || roundtrip_json(&report, &plan), page)?;
    let broken = report.channels.iter().filter_map(|channel| broken_promise("stack-roundtrip", channel));
    Ok(kept(&broken.collect::<Vec<_>>()))
}

/// Runs `stack-throughput` and shows it.
pub(super) fn run_throughput(arguments: &BenchArguments, duration: Duration) -> Result<bool, Failure> {
    let plan = plan(arguments, &CARRIERS, duration, false)?;
    let report = with_turns(|progress| roundtrip::throughput(&plan, progress))
        .map_err(|error| of_bench("stack-throughput", error))?;
    let (picture, page) = (|| throughput_svg(&report, &plan), || throughput_page(&report, &plan));
    show(arguments, picture, || throughput_json(&report, &plan), page)?;
    Ok(true)
}

/// One line, without a line end.
fn roundtrip_json(report: &Report, plan: &Plan) -> String {
    let row = |row: &Row| {
        json!({
            "stack": row.stack,
            "message_bytes": row.bytes,
            "round_trip": distribution(&row.pooled()),
            "lost": row.lost(),
            "processor_ns_per_message": row.processor_per_message(),
        })
    };
    let opening = |Opening { stack, opened, closed }: &Opening| json!({ "stack": stack, "open": distribution(opened), "close": distribution(closed) });
    let aim = |aim: &Aim| {
        let (Aim { of, to, most_ppm }, ppm) = (aim, ratio(report, aim));
        json!({ "of": of, "to": to, "ppm": ppm, "most_ppm": most_ppm, "met": ppm.is_some_and(|ppm| ppm <= *most_ppm) })
    };
    to_json(&json!({
        "bench": "stack-roundtrip",
        "interval_ns": plan.interval,
        "duration_ns": plan.span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "openings": report.openings.iter().map(opening).collect::<Value>(),
        "ratios": AIMS.iter().map(aim).collect::<Value>(),
        "segments": report.segments.iter().map(segments).collect::<Value>(),
        "channels": report.channels.iter().map(report::channel).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// One line, without a line end.
fn throughput_json(report: &Throughput, plan: &Plan) -> String {
    let row = |row: &Carried| {
        json!({
            "stack": row.stack,
            "message_bytes": row.bytes,
            "messages_s": row.per_second(),
            "bytes_s": row.per_second() * row.bytes as u64,
            "taken": row.turns.iter().map(|turn| turn.taken).sum::<u64>(),
            "missing": row.missing(),
            "processor_ns_per_message": row.processor_per_message(),
        })
    };
    to_json(&json!({
        "bench": "stack-throughput",
        "duration_ns": plan.span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// Under which it ran, in a line.
fn conditions(plan: &Plan, is_real_time: bool) -> String {
    let threads = if is_real_time { "SCHED_FIFO" } else { "ordinary threads" };
    format!("{ROUNDS} turns of {} for each size and stack; applications: {threads}", plan.span)
}

/// A line for each stack; columns of what it has with each size, and of what else is said of it. `rows` come by size, and for each in the order of the stacks.
fn by_stack<R>(plan: &Plan, rows: &[R], value: impl Fn(&R) -> String, more: &[(&str, Vec<String>)]) -> String {
    let stacks = plan.stacks;
    let lines = stacks.iter().enumerate().map(|(place, stack)| {
        let of_sizes = rows.iter().skip(place).step_by(stacks.len()).map(&value);
        let of_stack = more.iter().map(|(_, of_each)| of_each.get(place).cloned().unwrap_or_default());
        [(*stack).to_owned()].into_iter().chain(of_sizes).chain(of_stack).collect::<Vec<_>>()
    });
    let sizes = plan.sizes.iter().map(|bytes| format!("{bytes}\u{a0}B"));
    let titles: Vec<String> = ["stack".to_owned()]
        .into_iter()
        .chain(sizes)
        .chain(more.iter().map(|(title, _)| (*title).to_owned()))
        .collect();
    let cells: Vec<_> = (0..titles.len()).map(|at| move |line: &Vec<String>| line[at].clone()).collect();
    let columns: Vec<Column<'_, Vec<String>>> = titles
        .iter()
        .zip(&cells)
        .map(|(title, cell)| (title.as_str(), cell as &dyn Fn(&Vec<String>) -> String))
        .collect();
    table(&columns, 1.., lines).to_string()
}

fn nanos(time: Option<Duration>) -> String {
    time.map_or_else(
        || NONE.to_owned(),
        |time| format!("{}.{}\u{a0}µs", time.as_nanos() / 1000, time.as_nanos() % 1000 / 100),
    )
}

fn times(ppm: Option<u64>) -> String {
    ppm.map_or_else(|| NONE.to_owned(), |ppm| format!("{}.{:02}", ppm / 1_000_000, ppm % 1_000_000 / 10_000))
}

/// What is aimed at, and what was found.
fn aims(report: &Report) -> impl Iterator<Item = String> {
    AIMS.iter().map(|aim| {
        let Aim { of, to, most_ppm } = aim;
        format!("{of} to {to}: {}, at most {} is aimed at", times(ratio(report, aim)), times(Some(*most_ppm)))
    })
}

/// For people.
fn roundtrip_page(report: &Report, plan: &Plan) -> String {
    let at = |ppm| move |row: &Row| micros(quantile(&row.pooled(), ppm));
    let median = |of: fn(&Opening) -> &Vec<u64>| {
        report.openings.iter().map(|one| micros(quantile(of(one), 500_000))).collect::<Vec<_>>()
    };
    let more = [("open", median(|one| &one.opened)), ("close", median(|one| &one.closed))];
    let (half, most) =
        (by_stack(plan, &report.rows, at(500_000), &more), by_stack(plan, &report.rows, at(990_000), &[]));
    let processor = by_stack(plan, &report.rows, |row| nanos(row.processor_per_message()), &[]);
    let notes = aims(report).chain(report.channels.iter().map(told)).chain(report.notes.iter().cloned());
    format!(
        "LIVE on this host. A request and its answer every {}, {}.\n\nround trips, p50; and to open and close a channel, p50\n{half}\n\
         round trips, p99\n{most}\nprocessor time of each message\n{processor}\n{}\n{}",
        plan.interval,
        conditions(plan, report.is_real_time),
        by_segment(report),
        listed(notes)
    )
}

/// For people.
fn throughput_page(report: &Throughput, plan: &Plan) -> String {
    let rates = by_stack(plan, &report.rows, |row| count(row.per_second()), &[]);
    let missing = by_stack(plan, &report.rows, |row| count(row.missing()), &[]);
    let processor = by_stack(plan, &report.rows, |row| nanos(row.processor_per_message()), &[]);
    format!(
        "LIVE on this host. Messages in one direction, as many as go, best effort over Laxity; {}.\n\nmessages a second, in the receiving application's \
         hand\n{rates}\ntaken, and not in hand by the end of their turn\n{missing}\nprocessor time of each message in hand\n{processor}\n{}",
        conditions(plan, report.is_real_time),
        listed(report.notes.iter().cloned())
    )
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

/// What both links have, over the sizes: a panel for each, with plain sockets in either.
fn panels<R>(
    plan: &Plan,
    rows: &[R],
    (what, y_title, y_unit): (&str, &'static str, u32),
    value: impl Fn(&R) -> Option<u64>,
) -> Vec<Panel> {
    let panel = |link: &str| {
        let is_shown = |stack: &str| !stack.starts_with("laxity") || stack.contains(link);
        let lines = plan.stacks.iter().enumerate().filter(|(_, stack)| is_shown(stack)).map(|(place, stack)| {
            let of_stack = plan.sizes.iter().zip(rows.iter().skip(place).step_by(plan.stacks.len()));
            let class = KINDS.iter().position(|(_, end)| kind(stack) == *end).unwrap_or(0);
            Line::new(class, of_stack.filter_map(|(bytes, row)| Some((*bytes as u64, value(row)?))))
        });
        Panel {
            heading: format!("{link}: {what}"),
            x_title: "bytes of a message",
            y_title,
            x_unit: 1,
            y_unit,
            least_top: 0,
            lines: lines.collect(),
        }
    };
    ["udp", "xdp"].map(panel).into()
}

fn picture(plan: &Plan, title: &str, subtitle: String, panels: Vec<Panel>, notes: Vec<String>) -> String {
    let has = |end: &str| plan.stacks.iter().any(|stack| kind(stack) == end);
    let legend = KINDS.iter().filter(|(_, end)| has(end)).map(|(name, _)| (*name).to_owned()).collect();
    chart::document(&Picture { title: title.to_owned(), subtitle, legend, panels, notes })
}

fn roundtrip_svg(report: &Report, plan: &Plan) -> String {
    let at = |ppm| move |row: &Row| quantile(&row.pooled(), ppm);
    let of = |what, ppm| panels(plan, &report.rows, (what, "µs", 1000), at(ppm));
    let subtitle = format!("LIVE on one host. {}.", conditions(plan, report.is_real_time));
    let panels = of("round trip, p50", 500_000).into_iter().chain(of("round trip, p99", 990_000)).collect();
    picture(
        plan,
        "A request and its answer, by where the stack is (stack-roundtrip)",
        subtitle,
        panels,
        aims(report).collect(),
    )
}

fn throughput_svg(report: &Throughput, plan: &Plan) -> String {
    let subtitle = format!("LIVE on one host. {}.", conditions(plan, report.is_real_time));
    let rate = |row: &Carried| Some(row.per_second() * row.bytes as u64 * 8);
    let processor = |row: &Carried| row.processor_per_message().map(Duration::as_nanos);
    let panels = panels(plan, &report.rows, ("in hand", "Mbit/s", 1_000_000), rate)
        .into_iter()
        .chain(panels(plan, &report.rows, ("processor time of each message", "µs", 1000), processor))
        .collect();
    picture(plan, "Messages in one direction, by where the stack is (stack-throughput)", subtitle, panels, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come by size, and within it by stack: each has to stand where its stack and its size are.
    #[test]
    fn what_is_shown_stands_by_stack_and_size() {
        let (stacks, sizes) = (&["kernel", "laxity-udp", "laxity-xdp-server"][..], vec![64, 512]);
        let (interval, span) = (Requests::USUAL.1, DURATION);
        let plan = Plan {
            stacks,
            sizes,
            interval,
            attacks: Vec::new(),
            span,
            openings: false,
            prioritised: Prioritised::default(),
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
        let panels = panels(&plan, &rows, ("what", "unit", 1), |row| Some(*row));
        let drawn: Vec<Vec<_>> = panels
            .iter()
            .map(|panel| panel.lines.iter().map(|line| (KINDS[line.class].0, line.points.clone())).collect())
            .collect();
        let kernel = || ("kernel", vec![(64, 1), (512, 10)]);
        assert_eq!(drawn[0], [kernel(), ("thread", vec![(64, 2), (512, 20)])]);
        assert_eq!(drawn[1], [kernel(), ("server", vec![(64, 3), (512, 30)])]);
    }
}
