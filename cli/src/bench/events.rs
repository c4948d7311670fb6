//! `laxity bench event-dispatch`, `event-bandwidth`, `event-latency` and `event-jitter`: the experiments of the paper on event upcalls `[events Figs. 1, 2, 4, 5, 6]`.
//!
//! What runs, and in which order, is [`laxity_lab::events`]'s; here stands what is aimed at and how it is shown. `event-dispatch` is the first of them; the others are of the same turns.

use laxity_core::units::Duration;
use laxity_lab::events::{
    self, CompetingProcesses, Dispatch, DispatchRow, Figure, MESSAGE_BYTES, PARTS, Plan, Priority, Report, Row, Server,
    Turn,
};
use laxity_lab::figures::{deviation, mean, median, quantile};
use serde_json::{Value, json};

use super::shown::{BELOW_ONE_PPM, Outcome, Ratio, class, distribution, fine, rate, threads, times, told, with_turns};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::count;
use crate::report::{distinct, with};
use crate::table::{Column, of_cells, table};

/// Of each turn of event-dispatch, by default.
pub(super) const DISPATCH: Duration = Duration::from_millis(200);
/// Of each turn of the others at most, by default.
pub(super) const TRIALS: Duration = Duration::from_millis(100);
/// The same of event-bandwidth, which has eight times as many messages.
pub(super) const STREAM: Duration = Duration::from_millis(500);

/// A value of a row in a table and a diagram: its name, and how it is found.
type ShownValue = (&'static str, fn(&Row) -> Option<u64>);

/// Which figures of the same turns are told.
pub(super) struct Kind {
    title: &'static str,
    messages: usize,
    /// What is shown.
    values: &'static [ShownValue],
    /// How a value is written in a table, and the unit of a diagram.
    written: fn(Option<u64>) -> String,
    up: (&'static str, u32),
    /// What is compared.
    compared: &'static [Figure],
}

/// `[events Fig. 5]`
pub(super) const LATENCY: &Kind = &Kind {
    title: "A message of 512 bytes and its answer",
    messages: events::TRIALS,
    values: &[
        ("p50", |row| row.median(Figure::P50)),
        ("p99", |row| row.median(Figure::P99)),
        ("largest", |row| row.turns.iter().filter_map(|turn| turn.round_trips.last().copied()).max()),
        ("mean", |row| row.median(Figure::Mean)),
    ],
    written: fine,
    up: ("µs", 1000),
    compared: &[Figure::P50, Figure::P99],
};
/// `[events Fig. 4]`
pub(super) const BANDWIDTH: &Kind = &Kind {
    title: "4 MB in messages that are echoed",
    messages: events::STREAM,
    values: &[("bytes/s", |row| median(row.turns.iter().filter_map(|turn| turn.bytes_s).collect()))],
    written: rate,
    up: ("MB/s", 1_000_000),
    compared: &[Figure::TimePerByte],
};
/// `[events Fig. 6]`
pub(super) const JITTER: &Kind = &Kind {
    title: "How evenly answers come",
    messages: events::TRIALS,
    values: &[("deviation", |row| row.median(Figure::Deviation)), ("spread", |row| row.median(Figure::Spread))],
    written: fine,
    up: ("µs", 1000),
    compared: &[Figure::Deviation, Figure::Spread],
};

/// A figure of a server of Laxity's at real-time priority, with its ratios in the order of their table: to that of the best server with a
/// socket beside the same competing processes, and that beside 2 to 4 processes to that beside one.
struct ComparedFigure {
    server: Server,
    figure: Figure,
    ratios: Vec<Ratio>,
}

/// All that is compared: of servers that this host has, where real-time priority is permitted. Of p50 and p99 it is said what is aimed at.
fn compared(report: &Report, kind: &Kind) -> Vec<ComparedFigure> {
    let is_there =
        |server: &Server| report.rows.iter().any(|row| (row.server, row.priority) == (*server, Priority::RealTime));
    let servers = Server::EACH.iter().copied().filter(|server| server.is_laxity()).filter(is_there);
    let one = |(server, figure): (Server, Figure)| {
        let ratio = |said: String, more: Value, rounds: Vec<u64>, most_ppm| {
            let of = json!({ "server": server.to_string(), "figure": figure.to_string() });
            let most_ppm = Some(most_ppm).filter(|_| matches!(figure, Figure::P50 | Figure::P99));
            Ratio::of_rounds(format!("{server}, {figure}, {said}"), with(of, more), &rounds, most_ppm)
        };
        let to_best = |competing: CompetingProcesses| {
            let CompetingProcesses { priority, processes } = competing;
            let more = json!({ "to": "best-socket", "competing": priority.to_string(), "processes": processes });
            let said = format!("to the best socket beside {}", beside(competing));
            let most_ppm = if server == Server::LaxityKernel { 400_000 } else { BELOW_ONE_PPM };
            ratio(said, more, report.to_best_ppm(server, competing, figure), most_ppm)
        };
        let to_single = |priority: Priority| {
            let more = json!({ "to": "single", "competing": priority.to_string(), "processes": null });
            let said = format!("beside 2 to 4 competing processes ({priority}) to beside one");
            // About the same, however many compete.
            ratio(said, more, report.to_single_ppm(server, priority, figure), 1_100_000)
        };
        let single = [Priority::Normal, Priority::RealTime].map(to_single);
        ComparedFigure { server, figure, ratios: CompetingProcesses::each().map(to_best).chain(single).collect() }
    };
    servers.flat_map(|server| kind.compared.iter().map(move |figure| (server, *figure))).map(one).collect()
}

fn beside(CompetingProcesses { priority, processes }: CompetingProcesses) -> String {
    match (processes, priority) {
        (0, _) => "none".to_owned(),
        (_, Priority::Normal) => processes.to_string(),
        (_, Priority::RealTime) => format!("{processes} real-time"),
    }
}

/// Runs one of the three that are of the same turns.
pub(super) fn run(kind: &Kind, span: Duration) -> Result<Outcome, Failure> {
    let plan = Plan { messages: kind.messages, span };
    Ok(outcome(with_turns(|progress| events::run(&plan, progress))?, kind, &plan))
}

fn outcome(report: Report, kind: &Kind, plan: &Plan) -> Outcome {
    let compared = compared(&report, kind);
    let ratios = || compared.iter().flat_map(|of| &of.ratios);
    let lost: u64 = report.rows.iter().flat_map(|row| &row.turns).map(|turn| turn.lost).sum();
    let lost = (lost > 0).then(|| format!("{} messages had no answer within half a second", count(lost)));
    let missed = Ratio::told(ratios().filter(|ratio| ratio.is_met == Some(false)));
    let values = kind.values.iter().map(|value| value_table(&report, kind, value));
    Outcome {
        title: kind.title,
        conditions: format!(
            "{MESSAGE_BYTES} bytes and their answer, one behind the other; {} turns of {} messages or {}; client, server and competing processes on one processor{}",
            plan.rounds(),
            count(plan.messages as u64),
            plan.span,
            if report.is_real_time { "" } else { "; without SCHED_FIFO" },
        ),
        json: json!({
            "message_bytes": MESSAGE_BYTES,
            "messages": plan.messages,
            "rows": report.rows.iter().map(row).collect::<Value>(),
            "ratios": Ratio::json(ratios()),
        }),
        tables: format!(
            "By the number of competing processes: medians of the turns, and the largest of all. Below, Laxity's at real-time priority to the best socket in the same round,\nand \
             beside 2 to 4 processes to beside one: medians of the rounds.\n\n{}",
            values.chain([ratio_table(&compared)]).collect::<Vec<_>>().join("\n\n"),
        ),
        legend: names(Server::EACH),
        diagrams: diagrams(&report, kind),
        further_notes: missed
            .chain(lost)
            .chain(report.channels.iter().map(told))
            .chain(report.notes.iter().cloned())
            .collect(),
        ..Outcome::of_ends(&report, true)
    }
}

/// A server beside so many processes, in JSON.
fn row(row: &Row) -> Value {
    let turn = |turn: &Turn| {
        let more = json!({
            "mean_ns": Figure::Mean.of(turn),
            "deviation_ns": Figure::Deviation.of(turn),
            "spread_ns": Figure::Spread.of(turn),
            "bytes_s": turn.bytes_s,
            "lost": turn.lost,
        });
        with(distribution(&turn.round_trips), more)
    };
    let of = json!({
        "server": row.server.to_string(),
        "priority": row.priority.to_string(),
        "competing": row.competing.priority.to_string(),
        "processes": row.competing.processes,
        "rounds": row.turns.iter().map(turn).collect::<Value>(),
    });
    with(of, turn(&Turn::all(&row.turns)))
}

/// A table with a column for each number of competing processes: `first` are the headings of the two before them, `last` of the others.
fn by_competing(first: [&str; 2], last: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let [first, last] = [&first[..], last].map(|titles| titles.iter().map(|title| (*title).to_owned()));
    let heading = first.chain(CompetingProcesses::each().map(beside)).chain(last).collect();
    of_cells(2.., std::iter::once(heading).chain(rows))
}

/// A value of all servers.
fn value_table(report: &Report, kind: &Kind, (name, value): &ShownValue) -> String {
    let row = |(server, priority): (Server, Priority)| {
        let cell = |competing| (kind.written)(report.row(server, priority, competing).and_then(*value));
        [server.to_string(), priority.to_string()].into_iter().chain(CompetingProcesses::each().map(cell)).collect()
    };
    let servers = distinct(report.rows.iter().map(|row| (row.server, row.priority)));
    by_competing([name, "priority"], &[], servers.into_iter().map(row))
}

/// All ratios.
fn ratio_table(all: &[ComparedFigure]) -> String {
    let rows = all.iter().map(|ComparedFigure { server, figure, ratios }| {
        let cells = ratios.iter().map(|ratio| times(ratio.ppm));
        [server.to_string(), figure.to_string()].into_iter().chain(cells).collect()
    });
    by_competing(["to the best", "figure"], &["2–4 to 1", "2–4 to 1 real-time"], rows)
}

/// As the paper's Figs. 4 to 6: a value by the number of competing processes.
fn diagrams(report: &Report, kind: &Kind) -> Vec<Diagram> {
    let all = distinct(report.rows.iter().map(|row| (row.server, row.priority)));
    let diagram = |(name, value): &ShownValue, (servers, competing): (Priority, Priority)| {
        let line = |&(server, priority): &(Server, Priority)| {
            let beside = CompetingProcesses::each().filter(|of| of.processes == 0 || of.priority == competing);
            let value = |of: CompetingProcesses| Some((of.processes as u64, value(report.row(server, priority, of)?)?));
            Series::line(class(Server::EACH, server), beside.filter_map(value))
        };
        let across =
            if competing == Priority::Normal { "competing processes" } else { "competing real-time processes" };
        let heading = format!("{name}: {servers} beside {competing}");
        let lines = all.iter().filter(|(_, priority)| *priority == servers).map(line);
        Diagram::of_lines(heading, (across, 1), kind.up, 0, lines)
    };
    let cases = [
        (Priority::Normal, Priority::Normal),
        (Priority::RealTime, Priority::Normal),
        (Priority::RealTime, Priority::RealTime),
    ];
    let diagrams = kind.values.iter().flat_map(|value| cases.map(|case| diagram(value, case)));
    diagrams.filter(|diagram| !diagram.series.is_empty()).collect()
}

/// Runs `event-dispatch`: where the time of a message goes until its handler has it `[events Figs. 1, 2]`.
pub(super) fn run_dispatch(span: Duration) -> Result<Outcome, Failure> {
    let plan = Plan { messages: events::TRIALS, span };
    Ok(dispatch_outcome(with_turns(|progress| events::dispatch(&plan, progress))?, &plan))
}

fn dispatch_outcome(report: Dispatch, plan: &Plan) -> Outcome {
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
            "rows": report.rows.iter().map(dispatch_row).collect::<Value>(),
        }),
        tables: dispatch_table(&report),
        legend: names(Server::EACH),
        diagrams: vec![dispatch_diagram(&report)],
        notes: report.notes.clone(),
        ..Outcome::of_ends(&report, false)
    }
}

/// The times of a row, by their keys in JSON and their names: each part, from the arrival on, and all.
fn spans(row: &DispatchRow) -> [([&'static str; 2], Vec<u64>); PARTS.len() + 2] {
    let last = PARTS.len() - 1;
    [
        (["until_arrived", PARTS[0]], row.together(0..=0)),
        (["until_noticed", PARTS[1]], row.together(1..=1)),
        (["until_in_hand", PARTS[2]], row.together(2..=2)),
        (["from_arrival", "from its arrival on"], row.together(1..=last)),
        (["from_call", "from the call on"], row.together(0..=last)),
    ]
}

/// A server, in JSON.
fn dispatch_row(row: &DispatchRow) -> Value {
    let mut found = json!({ "server": row.server.to_string(), "samples": row.messages.len(), "lost": row.lost });
    for ([key, _], sorted) in spans(row) {
        found[key] = json!({
            "mean_ns": mean(&sorted),
            "p50_ns": quantile(&sorted, 500_000),
            "p99_ns": quantile(&sorted, 990_000),
            "deviation_ns": deviation(&sorted),
        });
    }
    found
}

/// The parts of each server, for people.
fn dispatch_table(report: &Dispatch) -> String {
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
    let rows = report
        .rows
        .iter()
        .flat_map(|row| spans(row).into_iter().map(|([_, span], sorted)| (row.server.to_string(), span, sorted)));
    table(columns, 2.., rows)
}

/// How far a message is after so many µs: the medians of its parts, one after the other.
fn dispatch_diagram(report: &Dispatch) -> Diagram {
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
    use crate::numbers::NONE;

    fn report(laxity: u64) -> Report {
        let row = |server, nanos: u64, processes| {
            let turn = Turn { round_trips: vec![nanos; 200], lost: 0, bytes_s: Some(512_000_000_000 / nanos) };
            let competing = CompetingProcesses { priority: Priority::Normal, processes };
            Row { server, priority: Priority::RealTime, competing, turns: vec![turn; 3] }
        };
        let rows = (0..5).flat_map(|count| [row(Server::Epoll, 10_000, count), row(Server::LaxityUdp, laxity, count)]);
        Report {
            rows: rows.collect(),
            channels: Vec::new(),
            is_real_time: true,
            is_kept_awake: true,
            notes: Vec::new(),
            details: (),
        }
    }

    #[test]
    fn aims_are_of_latency_alone() {
        let ratios = |laxity, kind| compared(&report(laxity), kind).into_iter().flat_map(|of| of.ratios);
        let told = |laxity, kind| ratios(laxity, kind).map(|ratio| ratio.told).collect::<Vec<_>>();
        let found = told(9_000, LATENCY);
        assert_eq!(found.len(), 2 * (9 + 2));
        assert_eq!(
            found[4],
            "laxity-udp, p50, to the best socket beside 4: 0.900 (0.900 to 0.900), below 1 is aimed at"
        );
        assert_eq!(found[5], "laxity-udp, p50, to the best socket beside 1 real-time: – (– to –), below 1 is aimed at");
        let single =
            "laxity-udp, p50, beside 2 to 4 competing processes (normal) to beside one: 1.000 (1.000 to 1.000)";
        assert_eq!(found[9], format!("{single}, at most 1.100 is aimed at"));
        assert!(told(10_000, LATENCY)[0].ends_with("below 1 is aimed at: missed"));
        assert!(told(10_000, BANDWIDTH).iter().all(|ratio| !ratio.contains("aimed")));
        assert!(ratios(1, JITTER).all(|ratio| ratio.is_met.is_none()));
    }

    #[test]
    fn a_page_has_a_column_for_each_number_of_processes() {
        let plan = Plan { messages: events::TRIALS, span: TRIALS };
        let outcome = outcome(report(5_000), BANDWIDTH, &plan);
        let page = outcome.page();
        // The table is too wide for one, so its last columns follow below.
        let of = page.lines().skip_while(|line| !line.starts_with("| bytes/s")).take_while(|line| !line.is_empty());
        let lines: Vec<&str> = of.filter(|line| line.contains("laxity-udp ")).collect();
        let count = |what: &str| lines.iter().map(|line| line.matches(what).count()).sum::<usize>();
        assert_eq!((count("102,400,000"), count(&format!(" {NONE} "))), (5, 4), "{page}");
        let drawn = outcome.diagrams.iter().filter(|diagram| diagram.heading.starts_with("bytes/s: real-time beside "));
        assert_eq!(drawn.count(), 2, "beside processes of either priority");
    }

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
        let plan = Plan { messages: events::TRIALS, span: DISPATCH };
        let outcome = dispatch_outcome(report, &plan);
        let of = |key: &str| outcome.json["rows"][0][key]["p50_ns"].as_u64();
        assert_eq!(["until_arrived", "from_arrival", "from_call"].map(of), [Some(1), Some(5), Some(6)]);
        assert!(outcome.page().contains("ordinary threads"));
    }
}
