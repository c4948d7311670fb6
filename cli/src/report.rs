//! Figures for people and for programs: one table, one JSON object.
//!
//! The JSON is a contract: integers in ns, bytes and bytes per second, unknown values `null`, every key always there. Names
//! and addresses come from peers or from the command line, so [`escaped`] stands between them and the terminal; JSON
//! escapes them by itself.

use std::borrow::Cow;

use crate::args::PipeArguments;
use crate::failure::Failure;
use comfy_table::{CellAlignment, Table, presets};
use laxity::calibration::Premises;
use laxity::text::DisplayRate;
use laxity_core::figures::Figures;
use laxity_core::units::{Duration, NANOS_PER_SECOND};
use laxity_link::Counters;
use serde::Serialize;

use crate::link::EarlyReport;

/// What `laxity send` and `laxity recv` report at their end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport {
    /// "send" or "recv".
    pub(crate) command: &'static str,
    /// With whom: an address, or nothing if nobody came.
    pub(crate) peer: Option<String>,
    /// The channels, in the order in which they were opened.
    pub(crate) channels: Vec<ChannelReport>,
    /// What the link did.
    pub(crate) link: LinkReport,
    /// What became of frames before they came to the host; null with a socket.
    pub(crate) early: Option<EarlyReport>,
    /// What the bounds rest on, as this host saw it.
    pub(crate) premises: PremisesReport,
}

/// What the bounds rest on, as the executive saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PremisesReport {
    /// Windows held against what may be stolen in each.
    windows: Vec<WindowReport>,
    /// Work that took longer than its cost; what it took beyond that counts as stolen.
    overruns: Vec<OverrunReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct WindowReport {
    window_ns: u64,
    budget_ns: u64,
    windows: u64,
    exceeded: u64,
    largest_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct OverrunReport {
    kind: &'static str,
    count: u64,
    largest_ns: u64,
}

impl From<&Premises> for PremisesReport {
    fn from(premises: &Premises) -> Self {
        let windows = premises.windows.iter().map(|window| WindowReport {
            window_ns: window.window.as_nanos(),
            budget_ns: window.budget.as_nanos(),
            windows: window.windows,
            exceeded: window.exceeded,
            largest_ns: window.largest.as_nanos(),
        });
        let overruns = premises.overruns().map(|(kind, overruns)| OverrunReport {
            kind: kind.name(),
            count: overruns.count,
            largest_ns: overruns.largest.as_nanos(),
        });
        Self { windows: windows.collect(), overruns: overruns.collect() }
    }
}

/// The figures of one channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ChannelReport {
    name: String,
    kind: &'static str,
    sent: u64,
    delivered: u64,
    late: u64,
    lost: u64,
    dropped: u64,
    /// `None` for a stack that knows no contracts.
    misses: Option<MissReport>,
    over_bound: u64,
    deadline_ns: Option<u64>,
    bound_ns: Option<u64>,
    min_ns: Option<u64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
}

/// Misses by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MissReport {
    sender: u64,
    receiver: u64,
    network: u64,
    platform: u64,
    laxity: u64,
}

/// What the link did: frames, and those that it dropped by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LinkReport {
    sent_frames: u64,
    received_frames: u64,
    send_dropped: u64,
    /// Of those, packets that were longer than the interface carried by then.
    send_too_large: u64,
    receive_overflow: u64,
    receive_truncated: u64,
    /// Not what was sent, by its checksum.
    receive_damaged: u64,
}

impl From<&Figures> for ChannelReport {
    fn from(figures: &Figures) -> Self {
        let nanos = |span: Option<Duration>| span.map(Duration::as_nanos);
        let (misses, latencies) = (figures.misses, figures.latencies);
        Self {
            name: figures.name.clone(),
            kind: if figures.best_effort { "best-effort" } else { "real-time" },
            sent: figures.sent,
            delivered: figures.delivered,
            late: figures.late,
            lost: figures.lost,
            dropped: figures.dropped,
            misses: Some(MissReport {
                sender: misses.sender,
                receiver: misses.receiver,
                network: misses.network,
                platform: misses.platform,
                laxity: misses.laxity,
            }),
            over_bound: figures.over_bound,
            deadline_ns: nanos(figures.deadline),
            bound_ns: nanos(figures.bound),
            min_ns: nanos(latencies.min),
            p50_ns: nanos(latencies.p50),
            p99_ns: nanos(latencies.p99),
            p999_ns: nanos(latencies.p999),
            max_ns: nanos(latencies.max),
        }
    }
}

impl ChannelReport {
    /// The figures without misses by cause, where only their number is known.
    pub(crate) fn causes_unknown(mut self) -> Self {
        self.misses = None;
        self
    }
}

impl From<&Counters> for LinkReport {
    fn from(counters: &Counters) -> Self {
        Self {
            sent_frames: counters.sent_frames,
            received_frames: counters.received_frames,
            send_dropped: counters.send_dropped,
            send_too_large: counters.send_too_large,
            receive_overflow: counters.receive_overflow,
            receive_truncated: counters.receive_truncated,
            receive_damaged: counters.receive_damaged,
        }
    }
}

impl LinkReport {
    /// What is not as it should be, in words.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.send_too_large > 0 {
            lines.push(format!(
                "not sent: {} packets, longer than the interface carries now; they were agreed on when it carried more",
                self.send_too_large
            ));
        }
        if self.receive_damaged > 0 {
            lines.push(format!("dropped: {} packets that were damaged on their way", self.receive_damaged));
        }
        lines
    }
}

/// Writes the report where the options say. `to_stderr` if standard output carries something else.
pub(crate) fn publish(report: &RunReport, pipe: &PipeArguments, to_stderr: bool) -> Result<(), Failure> {
    let json = report.to_json();
    if pipe.json && to_stderr {
        eprintln!("{json}");
    } else if pipe.json {
        println!("{json}");
    }
    let Some(file) = &pipe.figures else { return Ok(()) };
    std::fs::write(file, format!("{json}\n"))
        .map_err(|source| Failure::File { file: file.display().to_string(), source })
}

impl RunReport {
    /// The object as one line, without a line end.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("structs of strings and integers are always JSON")
    }
}

/// True if Laxity kept its promises: no miss of its own, nothing over a bound. Misses by others do not count.
pub(crate) fn promises_kept(figures: &[Figures]) -> bool {
    figures.iter().all(|channel| channel.misses.laxity == 0 && channel.over_bound == 0)
}

/// The figures as a table. `elapsed` is how long data flowed; the throughput is that of delivered messages.
pub(crate) fn table(figures: &[Figures], elapsed: Duration) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header([
        "channel",
        "deadline",
        "bound",
        "p50",
        "p99",
        "largest",
        "least laxity",
        "delivered/sent",
        "lost",
        "misses",
        "throughput",
    ]);
    for channel in figures {
        let latencies = channel.latencies;
        table.add_row([
            escaped(&channel.name).into_owned(),
            span(channel.deadline),
            span(channel.bound),
            span(latencies.p50),
            span(latencies.p99),
            span(latencies.max),
            least_laxity(channel),
            format!("{}/{}", channel.delivered, channel.sent),
            channel.lost.to_string(),
            misses(channel),
            DisplayRate(per_second(channel.delivered_bytes, elapsed)).to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// What is not known, or does not apply.
const NONE: &str = "-";

fn span(span: Option<Duration>) -> String {
    span.map_or_else(|| NONE.to_owned(), |span| span.to_string())
}

/// Deadline − largest delay: what the worst message had left, below zero if it was late.
fn least_laxity(channel: &Figures) -> String {
    match (channel.deadline, channel.latencies.max) {
        (Some(deadline), Some(max)) if max > deadline => format!("-{}", max - deadline),
        (Some(deadline), Some(max)) => (deadline - max).to_string(),
        _ => NONE.to_owned(),
    }
}

/// The causes that occurred, each with its count; 0 if there was none.
pub(crate) fn misses(channel: &Figures) -> String {
    let misses = channel.misses;
    let mut causes: Vec<String> = [
        ("sender", misses.sender),
        ("receiver", misses.receiver),
        ("network", misses.network),
        ("platform", misses.platform),
        ("laxity", misses.laxity),
        ("over bound", channel.over_bound),
    ]
    .into_iter()
    .filter(|&(_, count)| count > 0)
    .map(|(cause, count)| format!("{count} {cause}"))
    .collect();
    if causes.is_empty() {
        causes.push("0".to_owned());
    }
    causes.join(", ")
}

/// Bytes per second, rounded down; 0 if no time passed.
pub(crate) fn per_second(bytes: u64, elapsed: Duration) -> u64 {
    let nanos = u128::from(elapsed.as_nanos());
    let rate = (u128::from(bytes) * u128::from(NANOS_PER_SECOND)).checked_div(nanos).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Text of somebody else, safe for a terminal: control characters and those that change the direction of writing appear as
/// `\u{…}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match is_harmful(c) {
            true => safe.extend(c.escape_unicode()),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::{Latencies, Misses};

    use super::*;

    fn camera() -> Figures {
        let ms = |millis| Some(Duration::from_millis(millis));
        Figures {
            name: "camera".to_owned(),
            best_effort: false,
            sent: 200,
            delivered: 198,
            delivered_bytes: 12_000_000,
            late: 1,
            lost: 2,
            dropped: 0,
            misses: Misses { network: 2, platform: 1, ..Misses::default() },
            over_bound: 0,
            deadline: ms(40),
            bound: ms(30),
            latencies: Latencies {
                min: ms(2),
                p50: ms(5),
                p99: None,
                p999: None,
                max: Some(Duration::from_micros(41_500)),
            },
        }
    }

    #[test]
    fn the_json_is_the_contract() {
        let counters = Counters { sent_frames: 1, received_frames: 2, send_dropped: 3, ..Counters::default() };
        let report = RunReport {
            command: "recv",
            peer: Some("127.0.0.1:9".to_owned()),
            channels: vec![ChannelReport::from(&camera())],
            link: LinkReport::from(&counters),
            early: None,
            premises: PremisesReport::default(),
        };
        assert_eq!(
            report.to_json(),
            concat!(
                r#"{"command":"recv","peer":"127.0.0.1:9","channels":[{"name":"camera","kind":"real-time","sent":200,"#,
                r#""delivered":198,"late":1,"lost":2,"dropped":0,"misses":{"sender":0,"receiver":0,"network":2,"platform":1,"#,
                r#""laxity":0},"over_bound":0,"deadline_ns":40000000,"bound_ns":30000000,"min_ns":2000000,"p50_ns":5000000,"#,
                r#""p99_ns":null,"p999_ns":null,"max_ns":41500000}],"link":{"sent_frames":1,"received_frames":2,"#,
                r#""send_dropped":3,"send_too_large":0,"receive_overflow":0,"receive_truncated":0,"receive_damaged":0},"early":null,"premises":{"windows":[],"overruns":[]}}"#
            )
        );
    }

    #[test]
    fn the_table_tells_the_same() {
        let bulk = Figures { name: "bulk\u{1b}[31m".to_owned(), best_effort: true, ..Figures::default() };
        let text = table(&[camera(), bulk], Duration::from_secs(10));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.trim_matches('|').split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("camera"), "camera 40ms 30ms 5ms - 41.5ms -1.5ms 198/200 2 2 network, 1 platform 1.2MB/s");
        assert_eq!(row("bulk"), "bulk\\u{1b}[31m - - - - - - 0/0 0 0 0B/s");
    }

    #[test]
    fn only_misses_of_our_own_break_a_promise() {
        assert!(promises_kept(&[camera(), Figures::default()]));
        let late = Figures { misses: Misses { laxity: 1, ..Misses::default() }, ..camera() };
        assert!(!promises_kept(&[camera(), late]));
        assert!(!promises_kept(&[Figures { over_bound: 1, ..camera() }]));
    }

    #[test]
    fn text_of_a_peer_cannot_steer_the_terminal() {
        assert!(matches!(escaped("café/камера"), Cow::Borrowed(_)));
        assert_eq!(escaped("a\u{1b}]0;x\u{7}\n\u{9b}\u{202e}z"), "a\\u{1b}]0;x\\u{7}\\u{a}\\u{9b}\\u{202e}z");
    }

    #[test]
    fn rates_are_exact_and_never_divide_by_zero() {
        assert_eq!(per_second(u64::MAX, Duration::from_nanos(1)), u64::MAX);
        assert_eq!(per_second(1, Duration::ZERO), 0);
        assert_eq!(per_second(1_500, Duration::from_millis(1_500)), 1_000);
    }
}
