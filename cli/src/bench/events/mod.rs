//! `laxity bench event-dispatch`, `event-bandwidth`, `event-latency` and `event-jitter`: the experiments of the paper on event upcalls `[events Figs. 1, 2, 4, 5, 6]`.
//!
//! What runs, and in which order, is [`laxity_lab::events`]'s; here stands what is aimed at and how it is shown. [`dispatch`] is the first of them; the others are of the same turns.

mod dispatch;

use laxity_core::units::Duration;
use laxity_lab::events::{self, Competing, Figure, MESSAGE_BYTES, Plan, Priority, Report, Row, Server, Turn};
use laxity_lab::figures::{broken_promise, deviation, mean, quantile};
use serde_json::{Value, json};

pub(super) use dispatch::{DURATION as DISPATCH, run as run_dispatch};

use super::arguments::BenchArguments;
use super::chart::{self, Line, Panel, Picture};
use super::paths::of_bench;
use super::rio::{fine, times};
use super::roundtrip::{distribution, told, with_turns};
use super::shown::{kept, listed, show};
use crate::failure::Failure;
use crate::numbers::{NONE, count, rounded};
use crate::report::{self, to_json, with};
use crate::table::{Column, table};

/// Of each turn at most, by default.
pub(super) const TRIALS: Duration = Duration::from_millis(100);
/// The same of event-bandwidth, which has eight times as many messages.
pub(super) const STREAM: Duration = Duration::from_millis(500);
/// Less than all.
const BELOW_ONE_PPM: u64 = 999_999;

/// Which figures of the same turns are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `[events Fig. 5]`
    Latency,
    /// `[events Fig. 4]`
    Bandwidth,
    /// `[events Fig. 6]`
    Jitter,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Latency => "event-latency",
            Self::Bandwidth => "event-bandwidth",
            Self::Jitter => "event-jitter",
        }
    }
    fn title(self) -> &'static str {
        match self {
            Self::Latency => "A message of 512 bytes and its answer (event-latency)",
            Self::Bandwidth => "4 MB in messages that are echoed (event-bandwidth)",
            Self::Jitter => "How evenly answers come (event-jitter)",
        }
    }
    fn messages(self) -> usize {
        if self == Self::Bandwidth { events::STREAM } else { events::TRIALS }
    }
    /// What is shown.
    fn values(self) -> &'static [Shown] {
        match self {
            Self::Latency => {
                &[Shown::Figure(Figure::P50), Shown::Figure(Figure::P99), Shown::Largest, Shown::Figure(Figure::Mean)]
            }
            Self::Bandwidth => &[Shown::Bandwidth],
            Self::Jitter => &[Shown::Figure(Figure::Deviation), Shown::Figure(Figure::Spread)],
        }
    }
    /// What is compared.
    fn compared(self) -> &'static [Figure] {
        match self {
            Self::Latency => &[Figure::P50, Figure::P99],
            Self::Bandwidth => &[Figure::TimePerByte],
            Self::Jitter => &[Figure::Deviation, Figure::Spread],
        }
    }
}

/// A value of a row in a table and a diagram.
#[derive(Clone, Copy, Debug)]
enum Shown {
    /// The median of the turns.
    Figure(Figure),
    /// Of all round trips.
    Largest,
    /// The median of the turns.
    Bandwidth,
}

impl Shown {
    fn name(self) -> String {
        match self {
            Self::Figure(figure) => figure.to_string(),
            Self::Largest => "largest".to_owned(),
            Self::Bandwidth => "bytes/s".to_owned(),
        }
    }
    fn of(self, row: &Row) -> Option<u64> {
        match self {
            Self::Figure(figure) => row.median(figure),
            Self::Largest => row.turns.iter().filter_map(|turn| turn.round_trips.last().copied()).max(),
            Self::Bandwidth => bytes_s(row),
        }
    }
    fn text(self, row: &Row) -> String {
        match self {
            Self::Bandwidth => self.of(row).map_or_else(|| NONE.to_owned(), |bytes_s| count(rounded(bytes_s))),
            _ => fine(self.of(row)),
        }
    }
}

fn bytes_s(row: &Row) -> Option<u64> {
    laxity_lab::figures::median(row.turns.iter().map(Turn::bytes_s).collect())
}

/// What a figure of Laxity's is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// The best server with a socket beside the same competing processes.
    Best(Competing),
    /// The same server beside one process of this priority.
    Single(Priority),
}

/// What p50 and p99 of a server are to have of what they are held against at most.
fn aim_ppm(server: Server, to: To) -> Option<u64> {
    match (to, server) {
        (To::Best(_), Server::LaxityKernel) => Some(400_000),
        (To::Best(_), Server::LaxityUdp | Server::LaxityXdp) => Some(BELOW_ONE_PPM),
        // About the same, however many compete.
        (To::Single(_), server) if server.is_laxity() => Some(1_100_000),
        _ => None,
    }
}

struct Ratio {
    server: Server,
    figure: Figure,
    to: To,
    /// The median of the rounds.
    ppm: Option<u64>,
    /// Between these it is in the middle half of the rounds.
    quartiles_ppm: [Option<u64>; 2],
    /// At most so much is aimed at; `None` without an aim.
    most_ppm: Option<u64>,
}

impl Ratio {
    fn of(report: &Report, server: Server, figure: Figure, to: To) -> Self {
        let rounds = match to {
            To::Best(competing) => report.to_best_ppm(server, competing, figure),
            To::Single(priority) => report.to_single_ppm(server, priority, figure),
        };
        let [low, ppm, high] = [250_000, 500_000, 750_000].map(|ppm| quantile(&rounds, ppm));
        let most_ppm = aim_ppm(server, to).filter(|_| matches!(figure, Figure::P50 | Figure::P99));
        Self { server, figure, to, ppm, quartiles_ppm: [low, high], most_ppm }
    }

    /// Whether it is as is aimed at; `None` without an aim.
    fn is_met(&self) -> Option<bool> {
        Some(self.ppm? <= self.most_ppm?)
    }

    fn told(&self) -> String {
        let Self { server, figure, to, ppm, quartiles_ppm, most_ppm } = self;
        let to = match to {
            To::Best(competing) => format!("to the best socket beside {}", beside(*competing)),
            To::Single(priority) => format!("beside 2 to 4 competing processes ({priority}) to beside one"),
        };
        let aim = match most_ppm {
            None => String::new(),
            Some(BELOW_ONE_PPM) => ", below 1 is aimed at".to_owned(),
            Some(most) => format!(", at most {} is aimed at", times(Some(*most))),
        };
        let missed = if self.is_met() == Some(false) { ": missed" } else { "" };
        let (ppm, [low, high]) = (times(*ppm), quartiles_ppm.map(times));
        format!("{server}, {figure}, {to}: {ppm} ({low} to {high}){aim}{missed}")
    }

    fn json(&self) -> Value {
        let Self { server, figure, to, ppm, quartiles_ppm, most_ppm } = self;
        let (to, competing, processes) = match to {
            To::Best(Competing { priority, processes }) => ("best-socket", priority, Some(processes)),
            To::Single(priority) => ("single", priority, None),
        };
        json!({
            "server": server.to_string(),
            "figure": figure.to_string(),
            "to": to,
            "competing": competing.to_string(),
            "processes": processes,
            "ppm": ppm,
            "quartiles_ppm": quartiles_ppm,
            "most_ppm": most_ppm,
            "met": self.is_met(),
        })
    }
}

/// All that is compared: of servers that this host has, where real-time priority is permitted.
fn ratios(report: &Report, kind: Kind) -> Vec<Ratio> {
    let best = Competing::each().map(To::Best);
    let each: Vec<To> = best.chain([Priority::Normal, Priority::RealTime].map(To::Single)).collect();
    let is_there =
        |server: &Server| report.rows.iter().any(|row| (row.server, row.priority) == (*server, Priority::RealTime));
    let servers = Server::EACH.into_iter().filter(|server| server.is_laxity()).filter(is_there);
    let mut found = Vec::new();
    for (server, &figure) in servers.flat_map(|server| kind.compared().iter().map(move |figure| (server, figure))) {
        found.extend(each.iter().map(|to| Ratio::of(report, server, figure, *to)));
    }
    found
}

fn beside(Competing { priority, processes }: Competing) -> String {
    match (processes, priority) {
        (0, _) => "none".to_owned(),
        (_, Priority::Normal) => processes.to_string(),
        (_, Priority::RealTime) => format!("{processes} real-time"),
    }
}

/// Runs one of the three that are of the same turns, and shows it; true if Laxity kept what it had promised.
pub(super) fn run(kind: Kind, arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let plan = Plan { messages: kind.messages(), span };
    let report = with_turns(|progress| events::run(&plan, progress)).map_err(|error| of_bench(kind.name(), error))?;
    show(arguments, || svg(&report, kind, &plan), || json(&report, kind, &plan), || page(&report, kind, &plan))?;
    let broken = report.channels.iter().filter_map(|channel| broken_promise(kind.name(), channel));
    Ok(kept(&broken.collect::<Vec<_>>()))
}

/// One line, without a line end.
fn json(report: &Report, kind: Kind, plan: &Plan) -> String {
    let figures = |sorted: &[u64]| {
        let spread = quantile(sorted, 999_000).zip(quantile(sorted, 500_000)).map(|(most, half)| most - half);
        let more = json!({ "mean_ns": mean(sorted), "deviation_ns": deviation(sorted), "spread_ns": spread });
        with(distribution(sorted), more)
    };
    let turn = |turn: &Turn| with(figures(&turn.round_trips), json!({ "bytes_s": turn.bytes_s(), "lost": turn.lost }));
    let row = |row: &Row| {
        let of = json!({
            "server": row.server.to_string(),
            "priority": row.priority.to_string(),
            "competing": row.competing.priority.to_string(),
            "processes": row.competing.processes,
        });
        let more = json!({
            "bytes_s": bytes_s(row),
            "lost": row.lost(),
            "rounds": row.turns.iter().map(turn).collect::<Value>(),
        });
        with(with(of, figures(&row.pooled())), more)
    };
    to_json(&json!({
        "bench": kind.name(),
        "message_bytes": MESSAGE_BYTES,
        "messages": plan.messages,
        "duration_ns": plan.span,
        "real_time": report.is_real_time,
        "kept_awake": report.is_kept_awake,
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "ratios": ratios(report, kind).iter().map(Ratio::json).collect::<Value>(),
        "channels": report.channels.iter().map(report::channel).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// Under which it ran, in a line.
fn conditions(report: &Report, plan: &Plan) -> String {
    format!(
        "{MESSAGE_BYTES} bytes and their answer, one behind the other; {} turns of {} messages or {}; client, server and competing processes on one processor{}",
        plan.rounds(),
        count(plan.messages as u64),
        plan.span,
        if report.is_real_time { "" } else { "; without SCHED_FIFO" },
    )
}

/// One server at one priority, beside each number of competing processes.
struct Across<'a> {
    server: Server,
    priority: Priority,
    rows: Vec<(Competing, &'a Row)>,
}

impl Across<'_> {
    fn beside(&self, competing: Competing) -> Option<&Row> {
        self.rows.iter().find(|(of, _)| *of == competing).map(|(_, row)| *row)
    }
}

fn across(report: &Report) -> Vec<Across<'_>> {
    let mut found: Vec<Across<'_>> = Vec::new();
    for row in &report.rows {
        let (server, priority, one) = (row.server, row.priority, (row.competing, row));
        match found.iter_mut().find(|of| (of.server, of.priority) == (server, priority)) {
            Some(of) => of.rows.push(one),
            None => found.push(Across { server, priority, rows: vec![one] }),
        }
    }
    found
}

/// A table with a column for each number of competing processes: `first` are the two before them, `cells` what stands in the others.
fn by_competing<R>(
    first: [Column<'_, R>; 2],
    cells: impl Fn(&R, Competing) -> String,
    last: &[Column<'_, R>],
    rows: impl IntoIterator<Item = R>,
) -> String {
    let each: Vec<(Competing, String)> = Competing::each().map(|competing| (competing, beside(competing))).collect();
    let cells: Vec<_> = each.iter().map(|(competing, _)| |row: &R| cells(row, *competing)).collect();
    let middle = each.iter().zip(&cells).map(|((_, heading), cell)| (heading.as_str(), cell as &dyn Fn(&R) -> String));
    let columns: Vec<Column<'_, R>> = first.into_iter().chain(middle).chain(last.iter().copied()).collect();
    table(&columns, 2.., rows).to_string()
}

/// For people.
fn page(report: &Report, kind: Kind, plan: &Plan) -> String {
    let value = |&shown: &Shown| {
        let name = shown.name();
        let first: [Column<'_, Across<'_>>; 2] =
            [(&name, &|of| of.server.to_string()), ("priority", &|of| of.priority.to_string())];
        let cell =
            |of: &Across<'_>, competing| of.beside(competing).map_or_else(|| NONE.to_owned(), |row| shown.text(row));
        by_competing(first, cell, &[], across(report))
    };
    let tables: Vec<String> = kind.values().iter().map(value).chain([ratio_table(report, kind)]).collect();
    let lost: u64 = report.rows.iter().map(Row::lost).sum();
    let lost = (lost > 0).then(|| format!("{} messages had no answer within half a second", count(lost)));
    let missed = ratios(report, kind).into_iter().filter(|ratio| ratio.is_met() == Some(false));
    let notes = missed.map(|ratio| ratio.told()).chain(lost).chain(report.channels.iter().map(told));
    format!(
        "LIVE on this host. {}.\n\nBy the number of competing processes: medians of the turns, and the largest of all. Below, Laxity's at real-time priority to the best socket in the same round,\nand \
         beside 2 to 4 processes to beside one: medians of the rounds.\n\n{}\n{}",
        conditions(report, plan),
        tables.join("\n\n"),
        listed(notes.chain(report.notes.iter().cloned()))
    )
}

/// All ratios.
fn ratio_table(report: &Report, kind: Kind) -> String {
    let all = ratios(report, kind);
    let of = |server, figure, to| {
        let found = all.iter().find(|ratio| (ratio.server, ratio.figure, ratio.to) == (server, figure, to));
        times(found.and_then(|ratio| ratio.ppm))
    };
    let mut rows: Vec<(Server, Figure)> = all.iter().map(|ratio| (ratio.server, ratio.figure)).collect();
    rows.dedup();
    let first: [Column<'_, (Server, Figure)>; 2] =
        [("to the best", &|(server, _)| server.to_string()), ("figure", &|(_, figure)| figure.to_string())];
    let single = |priority| move |&(server, figure): &(Server, Figure)| (server, figure, To::Single(priority));
    let (normal, real_time) = (single(Priority::Normal), single(Priority::RealTime));
    let told = |(server, figure, to)| of(server, figure, to);
    let last: [Column<'_, (Server, Figure)>; 2] =
        [("2–4 to 1", &|row| told(normal(row))), ("2–4 to 1 real-time", &|row| told(real_time(row)))];
    by_competing(first, |&(server, figure), competing| of(server, figure, To::Best(competing)), &last, rows)
}

/// The class of a server's lines.
fn class(server: Server) -> usize {
    Server::EACH.iter().position(|other| *other == server).unwrap_or(0)
}

/// As the paper's Figs. 4 to 6: a value by the number of competing processes.
fn svg(report: &Report, kind: Kind, plan: &Plan) -> String {
    let rows = across(report);
    let panel = |shown: Shown, servers: Priority, competing: Priority| {
        let line = |of: &Across<'_>| {
            let points = of.rows.iter().filter(|(beside, _)| beside.processes == 0 || beside.priority == competing);
            Line::new(
                class(of.server),
                points.filter_map(|(beside, row)| Some((beside.processes as u64, shown.of(row)?))),
            )
        };
        let (y_title, y_unit) = if let Shown::Bandwidth = shown { ("MB/s", 1_000_000) } else { ("µs", 1000) };
        Panel {
            heading: format!("{}: {servers} beside {competing}", shown.name()),
            x_title: if competing == Priority::Normal {
                "competing processes"
            } else {
                "competing real-time processes"
            },
            y_title,
            x_unit: 1,
            y_unit,
            least_top: 0,
            lines: rows.iter().filter(|of| of.priority == servers).map(line).collect(),
        }
    };
    let cases = [
        (Priority::Normal, Priority::Normal),
        (Priority::RealTime, Priority::Normal),
        (Priority::RealTime, Priority::RealTime),
    ];
    let panels =
        kind.values().iter().flat_map(|&shown| cases.map(|(servers, competing)| panel(shown, servers, competing)));
    chart::document(&Picture {
        title: kind.title().to_owned(),
        subtitle: format!("LIVE on one host. {}.", conditions(report, plan)),
        legend: Server::EACH.map(|server| server.to_string()).into(),
        panels: panels.filter(|panel| !panel.lines.is_empty()).collect(),
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(laxity: u64) -> Report {
        let row = |server, nanos: u64, processes| {
            let turn = Turn { round_trips: vec![nanos; 200], lost: 0, elapsed: Duration::from_nanos(nanos * 200) };
            let competing = Competing { priority: Priority::Normal, processes };
            Row { server, priority: Priority::RealTime, competing, turns: vec![turn; 3] }
        };
        let rows = (0..5).flat_map(|count| [row(Server::Epoll, 10_000, count), row(Server::LaxityUdp, laxity, count)]);
        Report {
            rows: rows.collect(),
            channels: Vec::new(),
            is_real_time: true,
            is_kept_awake: true,
            notes: Vec::new(),
        }
    }

    #[test]
    fn aims_are_of_latency_alone() {
        let told = |laxity, kind| ratios(&report(laxity), kind).iter().map(Ratio::told).collect::<Vec<_>>();
        let found = told(9_000, Kind::Latency);
        assert_eq!(found.len(), 2 * (9 + 2));
        assert_eq!(
            found[4],
            "laxity-udp, p50, to the best socket beside 4: 0.900 (0.900 to 0.900), below 1 is aimed at"
        );
        assert_eq!(found[5], "laxity-udp, p50, to the best socket beside 1 real-time: – (– to –), below 1 is aimed at");
        let single =
            "laxity-udp, p50, beside 2 to 4 competing processes (normal) to beside one: 1.000 (1.000 to 1.000)";
        assert_eq!(found[9], format!("{single}, at most 1.100 is aimed at"));
        assert!(told(10_000, Kind::Latency)[0].ends_with("below 1 is aimed at: missed"));
        assert!(told(10_000, Kind::Bandwidth).iter().all(|ratio| !ratio.contains("aimed")));
        assert!(ratios(&report(1), Kind::Jitter).iter().all(|ratio| ratio.is_met().is_none()));
    }

    #[test]
    fn a_page_has_a_column_for_each_number_of_processes() {
        let plan = Plan { messages: events::TRIALS, span: TRIALS };
        let page = page(&report(5_000), Kind::Bandwidth, &plan);
        let line = page.lines().find(|line| line.contains("laxity-udp ")).unwrap();
        assert_eq!((line.matches("102,400,000").count(), line.matches(NONE).count()), (5, 4), "{line}");
        let picture = svg(&report(5_000), Kind::Bandwidth, &plan);
        assert_eq!(
            picture.matches("y=\"25\">bytes/s: real-time beside ").count(),
            2,
            "beside processes of either priority"
        );
    }
}
