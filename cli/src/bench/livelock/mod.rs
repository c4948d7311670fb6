//! `laxity bench livelock`: what is left of a host's channels while strangers flood it, over UDP and over AF_XDP.
//!
//! What runs is [`laxity_lab::livelock`]'s; here it is shown.

mod picture;

use laxity_core::units::Duration;
use laxity_lab::figures::{broken_promise, per_second};
use laxity_lab::livelock::{self, Report, Row};
use serde_json::{Value, json};

use super::arguments::BenchArguments;
use super::paths::of_bench;
use super::shown::{kept, listed, show};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::progress;
use crate::report::{self, to_json};
use crate::table::{Column, table};

/// Of each step with each link, if nobody says otherwise: all of them take about a minute.
pub(super) const DURATION: Duration = Duration::from_secs(4);

/// Runs it and shows it; true if Laxity missed nothing by its own fault.
pub(super) fn run(arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let bar = progress::bar("{bar:24} {pos} of {len} steps", 0);
    let report = livelock::run(span, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    drop(bar);
    let report = report.map_err(|error| of_bench("livelock", error))?;
    show(arguments, || picture::svg(&report, span), || json(&report, span), || page(&report, span))?;
    let broken: Vec<String> = report.rows.iter().filter_map(|row| broken_promise(row.link, &row.real_time)).collect();
    Ok(kept(&broken))
}

/// What strangers sent in a second.
fn flooded(row: &Row) -> u64 {
    per_second(row.flooded_packets, row.elapsed)
}

/// One line, without a line end.
fn json(report: &Report, span: Duration) -> String {
    let of = |row: &Row| {
        json!({
            "link": row.link,
            // `null` is as many as one thread can send.
            "offered_packets_s": row.offered_packets_s,
            "flood": {
                "packets": row.flooded_packets,
                "elapsed_ns": row.elapsed.as_nanos(),
                "packets_s": flooded(row),
            },
            "real_time": report::channel(&row.real_time),
            "real_time_goodput_bytes_s": row.real_time_bytes_s,
            "best_effort": report::channel(&row.best_effort),
            "best_effort_goodput_bytes_s": row.best_effort_bytes_s,
            "dropped_early": row.dropped_early,
            "dropping_ns": row.dropping,
            "socket_overflow": row.overflow,
            "soft_interrupts_ns": row.soft_interrupts,
            // What was left of host b's processor, and what each packet of the flood took from it.
            "left_over_ns": row.left_over,
            "packet_cost_ns": row.packet_cost,
            "notes": row.notes,
        })
    };
    to_json(&json!({
        "bench": "livelock",
        "duration_ns": span.as_nanos(),
        "flood_packet_bytes": livelock::FLOOD_BYTES,
        // Whether host b had a processor to itself.
        "own_processor": report.has_own_processor,
        "rows": report.rows.iter().map(of).collect::<Value>(),
        "notes": report.notes,
    }))
}

/// Under which it ran, in a line.
fn conditions(report: &Report, span: Duration) -> String {
    format!(
        "A guaranteed channel (1,000 bytes every {}) and best effort (every {}) to host b, {span} each; strangers send datagrams of \
         {} bytes to its port; host b has {}",
        livelock::INTERVAL,
        livelock::BEST_EFFORT_INTERVAL,
        livelock::FLOOD_BYTES,
        if report.has_own_processor {
            "one processor, everybody else another"
        } else {
            "the processor of everybody else"
        }
    )
}

/// Of a processor.
fn share(span: Duration, of: Duration) -> String {
    format!("{} %", u128::from(span.as_nanos()) * 100 / u128::from(of.as_nanos().max(1)))
}

/// For people.
fn page(report: &Report, span: Duration) -> String {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
    let columns: &[Column<'_, &Row>] = &[
        ("offered/s", &|row| row.offered_packets_s.map_or_else(|| "all it can".to_owned(), count)),
        ("sent/s", &|row| count(flooded(row))),
        ("link", &|row| row.link.to_owned()),
        ("guaranteed KB/s", &|row| count(row.real_time_bytes_s / 1000)),
        ("late", &|row| count(row.real_time.late)),
        ("lost", &|row| count(row.real_time.lost + row.real_time.dropped)),
        ("of the platform", &|row| count(row.real_time.misses.platform)),
        ("of the network", &|row| count(row.real_time.misses.network)),
        ("of Laxity", &|row| count(row.real_time.misses.laxity)),
        ("best effort KB/s", &|row| count(row.best_effort_bytes_s / 1000)),
        ("dropped early", &|row| or_none(row.dropped_early.map(count))),
        ("overflow", &|row| count(row.overflow)),
        ("left over", &|row| or_none(row.left_over.map(|left| share(left, row.elapsed)))),
        ("a packet took", &|row| or_none(row.packet_cost.map(|cost| cost.to_string()))),
    ];
    let table = table(columns, .., &report.rows);
    let page = format!("LIVE on this host. {}.\n\n{table}", conditions(report, span));
    let rows = report.rows.iter().flat_map(|row| row.notes.iter().map(move |note| format!("{}: {note}", row.link)));
    page + &listed(report.notes.iter().cloned().chain(rows))
}
