//! `laxity sim --scale`: ten hosts, a hundred, a thousand, each with as many admitted channels across relays; what it costs, and
//! that every promise is kept.

use std::num::NonZeroUsize;
use std::time::{Duration as StdDuration, Instant};

use clap::Args;
use laxity_core::units::Duration;
use laxity_sim::scale::{Phase, ScaleOutcome, ScaleRun};
use serde_json::{Value, json};

use super::RunArguments;
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::progress::bar;
use crate::report::{say, to_json, with};
use crate::table::{Column, table};

/// Arguments of the scale run alone.
#[derive(Debug, Args)]
pub(crate) struct ScaleArguments {
    /// Simulate many hosts that each send admitted channels through two relays: ten, a hundred, up to --hosts
    #[arg(long, group = "mode")]
    pub(crate) scale: bool,
    /// Of a scale run: the largest number of hosts
    #[arg(long, requires = "scale", value_name = "N")]
    pub(crate) hosts: Option<NonZeroUsize>,
    /// Of a scale run: channels that each host sends. It receives as many, and passes on twice as many
    #[arg(long, requires = "scale", value_name = "N")]
    pub(crate) channels: Option<NonZeroUsize>,
}

const HOSTS: usize = 1000;
const CHANNELS: usize = 100;
/// Virtual seconds.
const SECONDS: u64 = 1;

/// One size, and what it took.
struct Row {
    scale: ScaleRun,
    outcome: ScaleOutcome,
    /// Until everything was admitted; and in all.
    admission: StdDuration,
    whole: StdDuration,
    /// The most memory that the process has had so far.
    peak_bytes: Option<u64>,
}

/// Runs every size; true if every promise was kept.
pub(super) fn run(scale: &ScaleArguments, arguments: &RunArguments) -> Result<bool, Failure> {
    let most = scale.hosts.map_or(HOSTS, usize::from);
    let channels = scale.channels.map_or(CHANNELS, usize::from);
    let within = |what: &str, found: usize, least: usize, most: usize| match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(Failure::Usage(format!("sim: {what} is {found}, expected {least} to {most}"))),
    };
    within("--hosts", most, ScaleRun::LEAST_HOSTS, ScaleRun::MOST_HOSTS)?;
    within("--channels", channels, 1, ScaleRun::MOST_CHANNELS)?;
    let span = Duration::from_secs(arguments.seconds.unwrap_or(SECONDS));
    let sizes = (1..).map(|power| 10usize.pow(power)).take_while(|&size| size < most).chain([most]);
    let rows: Vec<Row> = sizes.map(|hosts| measure(ScaleRun { hosts, channels, span, seed: arguments.seed })).collect();
    say(&if arguments.json { object(&rows) } else { page(&rows) });
    // What depends on this machine is no part of the page.
    for row in rows.iter().filter(|_| !arguments.json) {
        let memory = row.peak_bytes.map_or(NONE.to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        eprintln!(
            "{} hosts: {:.1} s, of which admission {:.1} s; {} events per second; {memory} of memory at most so far",
            row.scale.hosts,
            row.whole.as_secs_f64(),
            row.admission.as_secs_f64(),
            count(row.events_per_second()),
        );
    }
    Ok(rows.iter().all(|row| row.outcome.violations() == 0))
}

fn measure(scale: ScaleRun) -> Row {
    let bar = bar("{prefix} {bar:24} {pos} of {len} {msg}, {elapsed}", 1).with_prefix(format!("{} hosts", scale.hosts));
    let started = Instant::now();
    let mut admission = StdDuration::ZERO;
    let outcome = scale.run(&mut |phase, done, of| {
        if phase == Phase::Admitting {
            admission = started.elapsed();
        }
        bar.set_length(of);
        bar.set_position(done);
        bar.set_message(match phase {
            Phase::Admitting => "channels of each host admitted",
            Phase::Opening => "channels of each host opened",
            Phase::Sending => "ms sent",
            Phase::Closing => "closed",
        });
    });
    bar.finish_and_clear();
    Row { scale, outcome, admission, whole: started.elapsed(), peak_bytes: peak_bytes() }
}

/// The most memory that this process has had at a time; `None` where the system does not say.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

impl Row {
    fn events_per_second(&self) -> u64 {
        (self.outcome.events as f64 / self.whole.as_secs_f64().max(1e-9)) as u64
    }
}

fn object(rows: &[Row]) -> String {
    let nanos = |time: StdDuration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let report = |row: &Row| {
        let Row { scale, outcome, .. } = row;
        let asked = json!({
            "hosts": scale.hosts,
            "channels_per_host": scale.channels,
            "span_ns": scale.span.as_nanos(),
        });
        // What depends on this machine, and on what else it does.
        let measured = json!({
            "admission_ns": nanos(row.admission),
            "whole_ns": nanos(row.whole),
            "events_per_s": row.events_per_second(),
            "peak_bytes": row.peak_bytes,
        });
        with(with(asked, json!(outcome)), json!({ "measured": measured }))
    };
    to_json(&json!({
        "mode": "scale",
        "simulated": true,
        "seed": rows.first().map_or(0, |row| row.scale.seed),
        "violations": rows.iter().map(|row| row.outcome.violations()).sum::<u64>(),
        "rows": rows.iter().map(report).collect::<Value>(),
    }))
}

fn percent(ppm: u64) -> String {
    format!("{}.{} %", ppm / 10_000, ppm / 1_000 % 10)
}

fn page(rows: &[Row]) -> String {
    let columns: [Column<'_, &Row>; 10] = [
        ("hosts", &|row| count(row.scale.hosts as u64)),
        ("channels", &|row| count(row.outcome.admitted)),
        ("refused", &|row| count(row.outcome.refused)),
        ("messages", &|row| count(row.outcome.sent)),
        ("late", &|row| count(row.outcome.late)),
        ("lost", &|row| count(row.outcome.lost)),
        ("dropped", &|row| count(row.outcome.dropped)),
        ("latency/deadline", &|row| percent(row.outcome.latency_by_deadline)),
        ("at a relay/stage", &|row| percent(row.outcome.response_by_stage)),
        ("events", &|row| count(row.outcome.events)),
    ];
    let violations: u64 = rows.iter().map(|row| row.outcome.violations()).sum();
    let table = table(&columns, .., rows);
    format!("{table}\nEvery channel passes two relays; {violations} promises were broken.")
}
