//! `laxity bench livelock`: what is left of a host's channels while unknown peers flood it, over UDP and over AF_XDP.
//!
//! What runs is [`laxity_lab::livelock`]'s; here it is shown.

use laxity_core::units::Duration;
use laxity_lab::figures::{broken_promise, per_second};
use laxity_lab::livelock::{self, LINKS, Report, Row};
use serde_json::{Value, json};

use super::shown::{Outcome, with_bar};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::{NONE, count};
use crate::report;
use crate::table::{Column, table};

/// The default for each step with each link: all of them take about a minute.
pub(super) const DURATION: Duration = Duration::from_secs(4);

/// Runs it; Laxity may miss nothing by its own fault.
pub(super) fn run(span: Duration) -> Result<Outcome, Failure> {
    let report = with_bar("{pos} of {len} steps", |progress| livelock::run(span, progress))?;
    let of_rows = report.rows.iter().flat_map(|row| row.notes.iter().map(move |note| format!("{}: {note}", row.link)));
    Ok(Outcome {
        title: "A flood of unknown peers",
        conditions: format!(
            "A guaranteed channel (1,000 bytes every {}) and best effort (every {}) to host b, {span} each; unknown peers send datagrams of \
             {} bytes to its port; host b has {}",
            livelock::INTERVAL,
            livelock::BEST_EFFORT_INTERVAL,
            livelock::FLOOD_BYTES,
            if report.has_own_processor {
                "one processor, all other programs another"
            } else {
                "the processor of all other programs"
            }
        ),
        json: json!({
            "flood_packet_bytes": livelock::FLOOD_BYTES,
            // Whether host b had a processor to itself.
            "own_processor": report.has_own_processor,
            "rows": report.rows.iter().map(row).collect::<Value>(),
            "notes": report.notes,
        }),
        tables: tables(&report),
        legend: names(LINKS),
        diagrams: diagrams(&report),
        further_notes: of_rows.collect(),
        broken: report.rows.iter().filter_map(|row| broken_promise(row.link, &row.real_time)).collect(),
        notes: report.notes,
        ..Outcome::default()
    })
}

/// Packets a second that unknown peers sent.
fn flooded(row: &Row) -> u64 {
    per_second(row.flooded_packets, row.elapsed)
}

fn row(row: &Row) -> Value {
    json!({
        "link": row.link,
        // `null` is as many as one thread can send.
        "offered_packets_s": row.offered_packets_s,
        "flood": { "packets": row.flooded_packets, "elapsed_ns": row.elapsed, "packets_s": flooded(row) },
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
}

/// Of a processor.
fn share(span: Duration, of: Duration) -> String {
    format!("{} %", u128::from(span.as_nanos()) * 100 / u128::from(of.as_nanos().max(1)))
}

/// For people.
fn tables(report: &Report) -> String {
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
    table(columns, .., &report.rows)
}

/// Goodput over the flood that was sent: where one link levels off, and the other collapses.
fn diagrams(report: &Report) -> Vec<Diagram> {
    let diagram = |heading: &str, up, value: fn(&Row) -> u64| {
        let line = |(class, link): (usize, &&str)| {
            let rows = report.rows.iter().filter(|row| row.link == *link);
            let mut points: Vec<_> = rows.map(|row| (flooded(row), value(row))).collect();
            points.sort_unstable();
            Series::line(class, points)
        };
        let across = ("unknown peers send, thousands of packets/s", 1000);
        Diagram::of_lines(heading, across, up, 0, LINKS.iter().enumerate().map(line))
    };
    vec![
        diagram("Guaranteed, delivered in time", ("KB/s", 1000), |row| row.real_time_bytes_s),
        diagram("Best effort, delivered", ("KB/s", 1000), |row| row.best_effort_bytes_s),
        diagram("Guaranteed, late, lost or dropped", ("messages", 1), |row| {
            row.real_time.late + row.real_time.lost + row.real_time.dropped
        }),
        diagram("Lost at host b's sockets", ("packets", 1), |row| row.overflow),
    ]
}
