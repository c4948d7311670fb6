//! One attack as a table for people.

use laxity::text::DisplayRate;
use laxity_core::units::Duration;
use laxity_lab::{ChannelOutcome, FloodPath, Stack};

use super::run::Run;
use crate::numbers::{brief, rounded};
use crate::report::{between, escaped, misses};
use crate::table::{self, Column, NONE, known};

/// The scenarios of one attack, best effort included.
pub(super) fn table(runs: &[Run]) -> String {
    let span = |span: Option<Duration>| known(span.map(|span| brief(Some(span))));
    let latency = |latency, channel: &ChannelOutcome| between(span(latency), latency, &channel.figures);
    // The stack stands beside its first channel only.
    let columns: &[Column<'_, (Option<&Run>, &ChannelOutcome)>] = &[
        ("stack", &|(run, _)| run.map(label).unwrap_or_default()),
        ("channel", &|(_, channel)| name(channel)),
        ("deadline", &|(_, channel)| span(channel.figures.deadline)),
        ("bound", &|(_, channel)| span(channel.figures.bound)),
        ("p50", &|(_, channel)| latency(channel.figures.latencies.p50, channel)),
        ("p99", &|(_, channel)| latency(channel.figures.latencies.p99, channel)),
        ("largest", &|(_, channel)| latency(channel.figures.latencies.max, channel)),
        ("sent", &|(_, channel)| sent(channel)),
        ("late", &|(_, channel)| known((!channel.figures.best_effort).then_some(channel.figures.late))),
        ("lost", &|(_, channel)| channel.figures.lost.to_string()),
        ("misses by cause", &|(_, channel)| causes(channel)),
        ("throughput", &|(_, channel)| DisplayRate(rounded(channel.throughput_bytes_s)).to_string()),
    ];
    let rows = runs.iter().flat_map(|run| {
        run.channels.iter().enumerate().map(move |(number, channel)| ((number == 0).then_some(run), channel))
    });
    let mut table = table::table(columns, 2.., rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(number == 0), 1));
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

fn name(channel: &ChannelOutcome) -> String {
    format!("{}{}", escaped(&channel.figures.name), if channel.violator { " (violator)" } else { "" })
}

fn sent(ChannelOutcome { figures, offered, .. }: &ChannelOutcome) -> String {
    if *offered > figures.sent { format!("{} of {offered}", figures.sent) } else { figures.sent.to_string() }
}

fn causes(ChannelOutcome { figures, misses_known, .. }: &ChannelOutcome) -> String {
    match (misses_known, figures.best_effort, figures.late + figures.lost) {
        (true, ..) => misses(figures),
        (false, true, _) => NONE.to_owned(),
        (false, false, 0) => "0".to_owned(),
        (false, false, _) => "not known".to_owned(),
    }
}
