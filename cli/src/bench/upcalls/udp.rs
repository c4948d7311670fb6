//! `laxity bench upcall-udp`: a client and a server over UDP as plain processes and as upcalls [rtu §7.3].
//!
//! What runs is [`laxity_lab::upcalls::udp`]'s; here it is shown.

use laxity_core::units::Duration;
use laxity_lab::upcalls::udp::{self, Report, Row, Scheme};
use serde_json::{Value, json};
use strum::VariantArray;

use super::beside;
use super::deadlines::misses;
use crate::bench::arguments::BenchArguments;
use crate::bench::chart::{self, Line, Panel, Picture};
use crate::bench::shown::{kept, listed, show};
use crate::failure::Failure;
use crate::numbers::{count, share};
use crate::progress;
use crate::report::to_json;
use crate::table::{Column, known, table};

/// Runs it and shows it; true if no upcall missed by Laxity's own fault.
pub(super) fn run(arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
    let bar = progress::bar("{bar:24} {pos} of {len} runs", 0);
    let report = udp::run(span, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    drop(bar);
    show(arguments, || svg(&report, span), || json(&report, span), || page(&report, span))?;
    let broken: Vec<String> = report.rows.iter().filter_map(Row::broken_promise).collect();
    Ok(kept(&broken))
}

/// One line, without a line end.
fn json(report: &Report, span: Duration) -> String {
    let row = |row: &Row| {
        json!({
            "packet_bytes": row.packet_bytes,
            "scheme": <&str>::from(row.scheme),
            "background": row.background,
            "offered_bytes_s": row.offered_bytes_s,
            "received_bytes_s": row.received_bytes_s,
            "sent": row.sent,
            "lost": row.lost,
            "misses": row.misses.map(misses),
        })
    };
    to_json(&json!({
        "bench": "upcall-udp",
        "simulated": false,
        "duration_ns": span.as_nanos(),
        "rows": report.rows.iter().map(row).collect::<Value>(),
        "notes": report.notes,
    }))
}

fn conditions(span: Duration) -> String {
    format!("LIVE on this host, {span} each: a batch of packets every {}, over loopback", udp::CLIENT_PERIOD)
}

/// For people.
fn page(report: &Report, span: Duration) -> String {
    let kilobytes = |bytes: u64| count(bytes / 1000);
    let columns: &[Column<'_, &Row>] = &[
        ("packet", &|row| count(row.packet_bytes as u64)),
        ("beside", &|row| beside(row.background)),
        ("scheme", &|row| <&str>::from(row.scheme).to_owned()),
        ("wanted KB/s", &|row| kilobytes(row.offered_bytes_s)),
        ("received KB/s", &|row| kilobytes(row.received_bytes_s)),
        ("of that", &|row| share(row.received_bytes_s, row.offered_bytes_s)),
        ("sent", &|row| count(row.sent)),
        ("lost", &|row| count(row.lost)),
        ("missed runs", &|row| known(row.misses.map(|of| count(of.upcall + of.platform + of.laxity)))),
        ("of Laxity", &|row| known(row.misses.map(|of| count(of.laxity)))),
    ];
    let table = table(columns, 3.., &report.rows);
    format!("{}.\n\n{table}\n{}", conditions(span), listed(report.notes.iter().cloned()))
}

/// Throughput and loss over the size of packets, alone and beside background load.
fn svg(report: &Report, span: Duration) -> String {
    let panel = |what: &str, background: bool, y_title, y_unit, value: fn(&Row) -> u64| Panel {
        heading: format!("{what}, {}", beside(background)),
        x_title: "bytes of a packet",
        y_title,
        x_unit: 1,
        y_unit,
        least_top: 0,
        lines: Scheme::VARIANTS
            .iter()
            .enumerate()
            .map(|(class, &scheme)| {
                let rows = report.rows.iter().filter(|row| row.scheme == scheme && row.background == background);
                Line::new(class, rows.map(|row| (row.packet_bytes as u64, value(row))))
            })
            .collect(),
    };
    let both = |background| {
        [
            panel("Received", background, "MB/s", 1_000_000, |row| row.received_bytes_s),
            panel("Lost", background, "packets", 1, |row| row.lost),
        ]
    };
    chart::document(&Picture {
        title: "UDP by plain processes and by upcalls (upcall-udp)".to_owned(),
        subtitle: format!("{}.", conditions(span)),
        legend: Scheme::VARIANTS.iter().map(|&scheme| <&str>::from(scheme).to_owned()).collect(),
        panels: [false, true].into_iter().flat_map(both).collect(),
        notes: report.notes.clone(),
    })
}
