//! `laxity bench livelock`: what is left of a host's channels while strangers flood it, over UDP and over AF_XDP.
//!
//! What runs is [`laxity_lab::livelock`]'s; here it is shown.

mod picture;

use std::io::{self, Write as _};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use laxity_core::units::Duration;
use laxity_lab::figures::per_second;
use laxity_lab::livelock::{self, Report, Row};
use serde_json::{Value, json};

use super::arguments::{BenchArguments, bench_duration};
use super::paths::of_bench;
use crate::failure::Failure;
use crate::file;
use crate::numbers::{NONE, count};
use crate::report::{self, escaped, nanos, to_json};

/// Of each step with each link, if nobody says otherwise: all of them take about a minute.
const DURATION: Duration = Duration::from_secs(4);

/// Runs it and shows it; true if Laxity missed nothing by its own fault.
pub(super) fn run(arguments: &BenchArguments) -> Result<bool, Failure> {
    let span = arguments.duration.as_deref().map_or(Ok(DURATION), bench_duration)?;
    if let Some(path) = &arguments.plot {
        file::has_directory(path)?;
    }
    let style = ProgressStyle::with_template("{bar:24} {pos} of {len} steps").expect("the template is valid");
    let bar = ProgressBar::new(0).with_style(style);
    let report = livelock::run(span, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.map_err(|error| of_bench("livelock", error))?;
    if let Some(path) = &arguments.plot {
        file::write(path, &picture::svg(&report, span))?;
    }
    let said = if arguments.json { json(&report, span) } else { page(&report, span) };
    // A reader that has seen enough is no failure.
    let _ = writeln!(io::stdout(), "{said}");
    let faults: u64 = report.rows.iter().map(|row| row.real_time.misses.laxity).sum();
    if faults > 0 {
        eprintln!("missed: {faults} messages of the guaranteed channel, by Laxity's own fault");
    }
    Ok(faults == 0)
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
            "dropping_ns": nanos(row.dropping),
            "socket_overflow": row.overflow,
            "soft_interrupts_ns": nanos(row.soft_interrupts),
            // What was left of host b's processor, and what each packet of the flood took from it.
            "left_over_ns": nanos(row.left_over),
            "packet_cost_ns": nanos(row.packet_cost),
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
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header([
        "offered/s",
        "sent/s",
        "link",
        "guaranteed KB/s",
        "late",
        "lost",
        "of the platform",
        "of the network",
        "of Laxity",
        "best effort KB/s",
        "dropped early",
        "overflow",
        "left over",
        "a packet took",
    ]);
    for row in &report.rows {
        let (figures, misses) = (&row.real_time, row.real_time.misses);
        let offered = row.offered_packets_s.map_or_else(|| "all it can".to_owned(), count);
        table.add_row([
            offered,
            count(flooded(row)),
            row.link.to_owned(),
            count(row.real_time_bytes_s / 1000),
            count(figures.late),
            count(figures.lost + figures.dropped),
            count(misses.platform),
            count(misses.network),
            count(misses.laxity),
            count(row.best_effort_bytes_s / 1000),
            row.dropped_early.map_or_else(|| NONE.to_owned(), count),
            count(row.overflow),
            row.left_over.map_or_else(|| NONE.to_owned(), |span| share(span, row.elapsed)),
            row.packet_cost.map_or_else(|| NONE.to_owned(), |span| span.to_string()),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut page = format!("LIVE on this host. {}.\n\n{table}", conditions(report, span));
    let rows = report.rows.iter().flat_map(|row| row.notes.iter().map(move |note| format!("{}: {note}", row.link)));
    for note in report.notes.iter().cloned().chain(rows) {
        page.push_str("\n- ");
        page.push_str(&escaped(&note));
    }
    page
}
