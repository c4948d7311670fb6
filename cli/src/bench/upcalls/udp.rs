//! `laxity bench upcall-udp`: a client and a server over UDP as plain processes and as upcalls [rtu §7.3].
//!
//! What runs is [`laxity_lab::upcalls::udp`]'s; here it is shown.

use laxity_core::units::Duration;
use laxity_lab::upcalls::udp::{self, Report, Row, Scheme};
use serde_json::json;
use strum::VariantArray;

use super::beside;
use crate::bench::shown::{Outcome, with_bar};
use crate::chart::{Diagram, Series, names};
use crate::failure::Failure;
use crate::numbers::{count, share};
use crate::table::{self, Column, known};

/// Runs it; no upcall may miss by Laxity's own fault.
pub(in crate::bench) fn run(span: Duration) -> Result<Outcome, Failure> {
    let report = with_bar("{pos} of {len} runs", |progress| udp::run(span, progress))?;
    Ok(Outcome {
        title: "UDP by plain processes and by upcalls",
        conditions: format!("{span} each: a batch of packets every {}, over loopback", udp::CLIENT_PERIOD),
        json: json!({ "simulated": false, "rows": report.rows, "notes": report.notes }),
        tables: table(&report),
        legend: names(Scheme::VARIANTS.iter().map(<&str>::from)),
        diagrams: diagrams(&report),
        broken: report.rows.iter().filter_map(Row::broken_promise).collect(),
        notes: report.notes,
        ..Outcome::default()
    })
}

/// For people.
fn table(report: &Report) -> String {
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
    table::table(columns, 3.., &report.rows)
}

/// Throughput and loss over the size of packets, alone and beside background load.
fn diagrams(report: &Report) -> Vec<Diagram> {
    let diagram = |what, background, up, value: fn(&Row) -> u64| {
        let lines = Scheme::VARIANTS.iter().enumerate().map(|(class, &scheme)| {
            let rows = report.rows.iter().filter(|row| row.scheme == scheme && row.background == background);
            Series::line(class, rows.map(|row| (row.packet_bytes as u64, value(row))))
        });
        Diagram::of_lines(format!("{what}, {}", beside(background)), ("bytes of a packet", 1), up, 0, lines)
    };
    let both = |background| {
        [
            diagram("Received", background, ("MB/s", 1_000_000), |row| row.received_bytes_s),
            diagram("Lost", background, ("packets", 1), |row| row.lost),
        ]
    };
    [false, true].into_iter().flat_map(both).collect()
}
