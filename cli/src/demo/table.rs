//! One attack as a table for people.

use comfy_table::{CellAlignment, Table, presets};
use laxity::text::DisplayRate;
use laxity_core::units::Duration;
use laxity_lab::{FloodPath, Stack};

use super::run::{Channel, Run};
use crate::numbers::{brief, rounded};
use crate::report::{escaped, misses};

const NONE: &str = "-";

/// The scenarios of one attack, best effort included.
pub(super) fn table(runs: &[&Run]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_BORDERS_ONLY_CONDENSED).set_header([
        "stack",
        "channel",
        "deadline",
        "bound",
        "p50",
        "p99",
        "largest",
        "sent",
        "late",
        "lost",
        "misses by cause",
        "throughput",
    ]);
    for run in runs {
        for (number, channel) in run.channels.iter().enumerate() {
            table.add_row(row(if number == 0 { label(run) } else { String::new() }, channel));
        }
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(number == 0), 1));
        if number >= 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn label(run: &Run) -> String {
    match (run.stack, run.flood, run.simulated) {
        (_, _, true) => format!("{}, {}", run.stack, run.attack),
        (Stack::Laxity, FloodPath::Foreign, _) => format!("{} *", run.stack),
        _ => run.stack.to_string(),
    }
}

fn row(stack: String, channel: &Channel) -> [String; 12] {
    let figures = &channel.figures;
    let latencies = figures.latencies;
    let span = |span: Option<Duration>| span.map_or_else(|| NONE.to_owned(), |span| brief(Some(span)));
    let sent = match channel.offered > figures.sent {
        true => format!("{} of {}", figures.sent, channel.offered),
        false => figures.sent.to_string(),
    };
    let causes = match (channel.misses_known, figures.best_effort, figures.late + figures.lost) {
        (true, ..) => misses(figures),
        (false, true, _) => NONE.to_owned(),
        (false, false, 0) => "0".to_owned(),
        (false, false, _) => "not known".to_owned(),
    };
    [
        stack,
        format!("{}{}", escaped(&figures.name), if channel.violator { " (violator)" } else { "" }),
        span(figures.deadline),
        span(figures.bound),
        span(latencies.p50),
        span(latencies.p99),
        span(latencies.max),
        sent,
        if figures.best_effort { NONE.to_owned() } else { figures.late.to_string() },
        figures.lost.to_string(),
        causes,
        DisplayRate(rounded(channel.throughput_bytes_s)).to_string(),
    ]
}
