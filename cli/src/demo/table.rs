//! One attack as a table for people.

use laxity::text::DisplayRate;
use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::{ChannelOutcome, FloodPath, Stack};

use super::run::ScenarioRun;
use crate::numbers::{brief, rounded};
use crate::report::{between, escaped, misses};
use crate::table::{self, Column, NONE, known};

/// The scenarios of one attack, best effort included.
pub(super) fn table(runs: &[ScenarioRun]) -> String {
    let span = |span: Option<Duration>| known(span.map(|span| brief(Some(span))));
    let latency = |latency, channel: &ChannelOutcome| between(span, latency, &channel.figures);
    let violator = |channel: &ChannelOutcome| if channel.violator { " (violator)" } else { "" };
    let sent = |ChannelOutcome { figures: Figures { sent, .. }, offered, .. }: &ChannelOutcome| {
        if offered > sent { format!("{sent} of {offered}") } else { sent.to_string() }
    };
    // The stack stands beside its first channel only.
    let columns: &[Column<'_, (Option<&ScenarioRun>, &ChannelOutcome)>] = &[
        ("stack", &|(run, _)| run.map(label).unwrap_or_default()),
        ("channel", &|(_, channel)| format!("{}{}", escaped(&channel.figures.name), violator(channel))),
        ("deadline", &|(_, channel)| span(channel.figures.deadline)),
        ("bound", &|(_, channel)| span(channel.figures.bound)),
        ("p50", &|(_, channel)| latency(channel.figures.latencies.p50, channel)),
        ("p99", &|(_, channel)| latency(channel.figures.latencies.p99, channel)),
        ("largest", &|(_, channel)| latency(channel.figures.latencies.max, channel)),
        ("sent", &|(_, channel)| sent(channel)),
        ("late", &|(_, channel)| known((!channel.figures.best_effort).then_some(channel.figures.late))),
        ("lost", &|(_, channel)| channel.figures.lost.to_string()),
        ("misses by cause", &|(_, channel)| causes(channel)),
        ("rate", &|(_, channel)| DisplayRate(rounded(channel.throughput_bytes_s)).to_string()),
    ];
    let rows = runs.iter().flat_map(|run| {
        run.channels.iter().enumerate().map(move |(number, channel)| ((number == 0).then_some(run), channel))
    });
    table::table(columns, 2.., rows)
}

fn label(run: &ScenarioRun) -> String {
    match (run.stack, run.flood, run.simulated) {
        (_, _, true) => format!("{}, {}", run.stack, run.attack),
        (Stack::Laxity, FloodPath::Foreign, _) => format!("{} *", run.stack),
        _ => run.stack.to_string(),
    }
}

fn causes(ChannelOutcome { figures, misses_known, .. }: &ChannelOutcome) -> String {
    match (misses_known, figures.best_effort, figures.late + figures.lost) {
        (true, ..) => misses(figures),
        (false, true, _) => NONE.to_owned(),
        (false, false, 0) => "0".to_owned(),
        (false, false, _) => "not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::{Latencies, Misses};
    use laxity_lab::Attack;

    use super::*;
    use crate::table::WIDTH;

    /// Ten minutes of it, with every cause.
    #[test]
    fn the_longest_rows_fit_a_terminal() {
        let long = Some(Duration::from_nanos(999_999_999));
        let many = 599_999;
        let figures = Figures {
            name: "channel-0".to_owned(),
            sent: many,
            late: many,
            lost: many,
            misses: Misses { sender: many, platform: many, laxity: many, unexplained: many, ..Misses::default() },
            deadline: long,
            bound: long,
            latencies: Latencies { min: long, p50: long, p99: long, p999: long, max: long },
            ..Figures::default()
        };
        let channel = ChannelOutcome {
            figures,
            misses_known: true,
            violator: true,
            offered: 10 * many,
            throughput_bytes_s: 999_999,
            ..ChannelOutcome::default()
        };
        let run = ScenarioRun {
            attack: Attack::Violator,
            stack: Stack::Laxity,
            flood: FloodPath::None,
            simulated: true,
            elapsed: Duration::ZERO,
            channels: vec![channel],
            wire: None,
            gaps: (0, Duration::ZERO),
            notes: Vec::new(),
        };
        let text = table(&[run]);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for whole in ["violator", "channel-0", "(violator)", "599999", "unexplained", "999.9KB/s"] {
            assert!(text.contains(whole), "{whole}: {text}");
        }
    }
}
