//! The scenarios in the order of the page: by attack, and in each attack by stack, with a name and a style for each.

use super::{Report, ScenarioRun};
use crate::numbers::{count, percent_of, share};
use crate::report::distinct;
use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::{Attack, ChannelOutcome, Stack};

/// One attack.
pub(super) struct Section<'a> {
    pub(super) attack: Attack,
    /// What ran under it.
    pub(super) series: Vec<Series<'a>>,
}

/// One scenario with its place.
pub(super) struct Series<'a> {
    pub(super) scenario: &'a ScenarioRun,
    /// Index of the colour and the dashes, the same for the same stack in every attack.
    pub(super) style: usize,
    /// Name of the stack, and what else tells it from its neighbours. Safe to show.
    pub(super) label: String,
}

/// A channel's name and class, to find it in every scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelKey<'a> {
    pub(super) name: &'a str,
    pub(super) best_effort: bool,
}

/// How many styles the style sheet knows.
const STYLES: usize = 6;

/// The scenarios by attack.
pub(super) fn sections(report: &Report) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut styles = vec![(Stack::Laxity, false, 0), (Stack::TunedUdp, false, 0), (Stack::PlainUdp, false, 0)];
    for scenario in &report.scenarios {
        let index = sections.iter().position(|section| section.attack == scenario.attack).unwrap_or_else(|| {
            sections.push(Section { attack: scenario.attack, series: Vec::new() });
            sections.len() - 1
        });
        let same = |other: &Series<'_>| column(other.scenario) == column(scenario);
        let (stack, simulated) = column(scenario);
        let key = (stack, simulated, sections[index].series.iter().filter(|other| same(other)).count());
        let style = styles.iter().position(|style| *style == key).unwrap_or_else(|| {
            styles.push(key);
            styles.len() - 1
        });
        sections[index].series.push(Series { scenario, style: style % STYLES, label: label(scenario, report) });
    }
    sections
}

/// What stands in one column of the overview: the stack, live or simulated.
pub(super) fn column(scenario: &ScenarioRun) -> (Stack, bool) {
    (scenario.stack, scenario.simulated)
}

/// The columns in the order in which they first occur.
pub(super) fn columns(report: &Report) -> Vec<(Stack, bool)> {
    distinct(report.scenarios.iter().map(column))
}

/// What is counted of all these channels.
pub(super) fn sum<'a>(channels: impl Iterator<Item = &'a ChannelOutcome>, of: impl Fn(&Figures) -> u64) -> u64 {
    channels.map(|channel| of(&channel.figures)).fold(0, u64::saturating_add)
}

fn label(scenario: &ScenarioRun, report: &Report) -> String {
    let name = column_name(column(scenario));
    let is_twin = |other: &&ScenarioRun| other.attack == scenario.attack && column(other) == column(scenario);
    if report.scenarios.iter().filter(is_twin).count() > 1 { format!("{name}, flood {}", scenario.flood) } else { name }
}

/// The name of a stack, and whether it was simulated.
pub(super) fn column_name((stack, simulated): (Stack, bool)) -> String {
    format!("{}{}", stack_name(stack), if simulated { " (simulated)" } else { "" })
}

/// The name of a stack.
pub(super) fn stack_name(stack: Stack) -> &'static str {
    match stack {
        Stack::Laxity => "Laxity",
        Stack::PlainUdp => "plain UDP",
        Stack::TunedUdp => "tuned UDP",
    }
}

/// What an attack does.
pub(crate) fn attack_text(attack: Attack) -> &'static str {
    match attack {
        Attack::Idle => "The channels and best effort alone.",
        Attack::Flood => "Far more traffic than the wire has room for.",
        Attack::Violator => "One real-time channel sends far more than its contract.",
        Attack::Hogs => "Processes of normal priority that keep the processors busy.",
        Attack::All => "Flood, violator and hogs at once.",
    }
}

/// Why plain UDP may be late where nothing is attacked.
pub(crate) const PLAIN_UDP_AT_REST: &str = "Plain UDP may be late here although the wire of 100 Mbit/s has room for all: it sends each burst at \
    once into one FIFO queue, and Table 3's bursts of 12 and 8 messages of 60 KiB take the wire at least 58 ms and 39 ms, longer than the deadlines of \
    messages behind them (25 to 40 ms).";

impl<'a> Section<'a> {
    /// The channels of all scenarios, real-time ones first.
    pub(super) fn channels(&self) -> Vec<ChannelKey<'a>> {
        let mut keys = distinct(self.series.iter().flat_map(|series| &series.scenario.channels).map(key_of));
        keys.sort_by_key(|key| key.best_effort);
        keys
    }

    /// The scenario of `stack`, live or simulated; the first if there are several.
    pub(super) fn of(&self, stack: Stack, simulated: bool) -> Option<&'a ScenarioRun> {
        self.series.iter().map(|series| series.scenario).find(|scenario| column(scenario) == (stack, simulated))
    }
}

impl ScenarioRun {
    pub(super) fn channel(&self, key: ChannelKey<'_>) -> Option<&ChannelOutcome> {
        self.channels.iter().find(|channel| key_of(channel) == key)
    }

    /// The real-time channels, without those that broke their contract.
    pub(super) fn on_contract(&self) -> impl Iterator<Item = &ChannelOutcome> {
        self.real_time().filter(|channel| !channel.violator)
    }

    /// What became of their messages.
    pub(super) fn tally(&self) -> Tally {
        self.on_contract().collect()
    }

    /// The real-time channels that broke their contract.
    pub(super) fn violators(&self) -> impl Iterator<Item = &ChannelOutcome> {
        self.real_time().filter(|channel| channel.violator)
    }

    /// Bytes per second of all best effort.
    pub(super) fn best_effort_bytes_s(&self) -> Option<u64> {
        let rates = self.channels.iter().filter(|channel| channel.figures.best_effort);
        rates.map(|channel| channel.throughput_bytes_s).reduce(u64::saturating_add)
    }

    /// The channel whose largest response is the largest part of its deadline, with the per cent.
    pub(super) fn tightest(&self) -> Option<(&ChannelOutcome, u64)> {
        let percent = |Figures { response, deadline, .. }: &Figures| Some(percent_of((*response)?, (*deadline)?));
        let parts = self.on_contract().filter_map(|channel| Some((channel, percent(&channel.figures)?)));
        parts.reduce(|worst, other| if other.1 > worst.1 { other } else { worst })
    }
}

/// What finds it in every scenario.
pub(super) fn key_of(channel: &ChannelOutcome) -> ChannelKey<'_> {
    ChannelKey { name: &channel.figures.name, best_effort: channel.figures.best_effort }
}

/// Late and lost.
pub(super) fn late_or_lost(channel: &ChannelOutcome) -> u64 {
    channel.figures.late.saturating_add(channel.figures.lost)
}

/// How many were sent, and of how many if the stack refused some.
pub(super) fn sent_of_offered(channel: &ChannelOutcome) -> String {
    match channel.offered > channel.figures.sent {
        true => format!("{} of {}", count(channel.figures.sent), count(channel.offered)),
        false => count(channel.figures.sent),
    }
}

/// Where each message ended, if the counts do not add up.
pub(super) fn imbalance(channel: &ChannelOutcome) -> Option<String> {
    let figures = &channel.figures;
    let ended = figures.delivered.saturating_add(figures.lost).saturating_add(figures.dropped);
    (ended != figures.sent).then(|| format!("sent {}, but delivered + lost + dropped = {ended}", figures.sent))
}

/// Sums over channels.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) late: u64,
    pub(super) lost: u64,
}

impl<'a> FromIterator<&'a ChannelOutcome> for Tally {
    fn from_iter<I: IntoIterator<Item = &'a ChannelOutcome>>(channels: I) -> Self {
        channels.into_iter().fold(Self::default(), |sum, ChannelOutcome { figures, .. }| Self {
            messages: sum.messages.saturating_add(figures.sent),
            late: sum.late.saturating_add(figures.late),
            lost: sum.lost.saturating_add(figures.lost),
        })
    }
}

impl Tally {
    pub(super) fn missed(self) -> u64 {
        self.late.saturating_add(self.lost)
    }

    /// How many were late or lost, of how many.
    pub(super) fn of_all(self) -> String {
        format!("{} of {}", count(self.missed()), count(self.messages))
    }

    pub(super) fn share(self) -> String {
        share(self.missed(), self.messages)
    }
}

/// Where the time axis of a section ends: after the last message of all scenarios that are drawn.
pub(super) fn end_of(section: &Section<'_>) -> Duration {
    let end = |scenario: &ScenarioRun| {
        let samples = scenario.channels.iter().flat_map(|channel| &channel.samples);
        Some(samples.map(|sample| sample.at).max()?.max(scenario.elapsed))
    };
    let drawn = section.series.iter().filter_map(|series| end(series.scenario)).max();
    drawn.or_else(|| section.series.iter().map(|series| series.scenario.elapsed).max()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use laxity_core::units::Rate;
    use laxity_lab::workload::{MESSAGE_BYTES, table_3};

    use super::*;

    #[test]
    fn plain_udp_is_late_for_the_reason_that_is_told() {
        let wire = Rate::bytes_per_second(100_000_000 / 8).unwrap();
        let table = table_3();
        let burst = |row: usize| {
            let messages = u64::from(table[row].contract.burst());
            (messages, wire.time_for(messages * u64::from(MESSAGE_BYTES)).as_nanos() / 1_000_000)
        };
        assert_eq!([burst(0), burst(1)], [(12, 58), (8, 39)]);
        let deadlines: Vec<u64> = table.iter().map(|row| row.contract.deadline().as_nanos() / 1_000_000).collect();
        assert_eq!(deadlines, [40, 25, 30]);
        assert!(PLAIN_UDP_AT_REST.contains("12 and 8 messages of 60 KiB take the wire at least 58 ms and 39 ms"));
    }
}
