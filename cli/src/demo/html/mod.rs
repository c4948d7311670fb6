//! The report of `laxity demo` as one HTML file: no script, nothing loaded from elsewhere, readable on a phone, dark and light.
//!
//! [`Report`] goes in, text comes out; the same report gives the same text. Every sentence that judges is computed from the
//! figures, for us as against us. Names and notes may come from anywhere: maud escapes what could be markup,
//! [`crate::report::escaped`] what could steer the reading.
//!
//! The plots are drawn here and not by plotters, which writes a fixed colour into each element (so no dark mode) and an element
//! for each point (so megabytes), and names nothing for those who cannot see it.

mod findings;
mod page;
mod plot;
#[cfg(test)]
mod tests;

pub(crate) use findings::summary;
pub(crate) use page::{picture, render};

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::{Attack, ChannelOutcome, Stack};

use super::run::ScenarioRun;
use crate::numbers::{count, percent_of, share};
use crate::report::distinct;

/// All that the report shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// When it was measured, as the reader shall see it.
    pub(crate) date: String,
    /// What it was measured on, by name: kernel, processors, scheduling, memory locked, guarantee.
    pub(crate) machine: Vec<(String, String)>,
    /// What is missing of it, if it was interrupted.
    pub(crate) incomplete: Option<String>,
    /// The scenarios, in the order in which they shall appear. Those of one attack come together under its first.
    pub(crate) scenarios: Vec<ScenarioRun>,
    /// What is worth saying about the whole run, such as what this user could not have, or a refusal.
    pub(crate) notes: Vec<String>,
}

/// One attack.
struct Section<'a> {
    attack: Attack,
    /// What ran under it.
    series: Vec<Series<'a>>,
}

/// One scenario with its place.
struct Series<'a> {
    scenario: &'a ScenarioRun,
    /// Index of the colour and the dashes, the same for the same stack in every attack.
    style: usize,
    /// Name of the stack, and what else tells it from its neighbours. Safe to show.
    label: String,
}

/// A channel's name and class, to find it in every scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChannelKey<'a> {
    name: &'a str,
    best_effort: bool,
}

/// How many styles the style sheet knows.
const STYLES: usize = 6;

/// The scenarios by attack.
fn sections(report: &Report) -> Vec<Section<'_>> {
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
fn column(scenario: &ScenarioRun) -> (Stack, bool) {
    (scenario.stack, scenario.simulated)
}

/// The columns in the order in which they first occur.
fn columns(report: &Report) -> Vec<(Stack, bool)> {
    distinct(report.scenarios.iter().map(column))
}

/// What is counted of all these channels.
fn sum<'a>(channels: impl Iterator<Item = &'a ChannelOutcome>, of: impl Fn(&Figures) -> u64) -> u64 {
    channels.map(|channel| of(&channel.figures)).fold(0, u64::saturating_add)
}

fn label(scenario: &ScenarioRun, report: &Report) -> String {
    let name = column_name(column(scenario));
    let is_twin = |other: &&ScenarioRun| other.attack == scenario.attack && column(other) == column(scenario);
    if report.scenarios.iter().filter(is_twin).count() > 1 { format!("{name}, flood {}", scenario.flood) } else { name }
}

/// The name of a stack, and whether it was simulated.
fn column_name((stack, simulated): (Stack, bool)) -> String {
    format!("{}{}", stack_name(stack), if simulated { " (simulated)" } else { "" })
}

/// The name of a stack.
fn stack_name(stack: Stack) -> &'static str {
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
    fn channels(&self) -> Vec<ChannelKey<'a>> {
        let mut keys = distinct(self.series.iter().flat_map(|series| &series.scenario.channels).map(key_of));
        keys.sort_by_key(|key| key.best_effort);
        keys
    }

    /// The scenario of `stack`, live or simulated; the first if there are several.
    fn of(&self, stack: Stack, simulated: bool) -> Option<&'a ScenarioRun> {
        self.series.iter().map(|series| series.scenario).find(|scenario| column(scenario) == (stack, simulated))
    }
}

impl ScenarioRun {
    fn channel(&self, key: ChannelKey<'_>) -> Option<&ChannelOutcome> {
        self.channels.iter().find(|channel| key_of(channel) == key)
    }

    /// The real-time channels, without those that broke their contract.
    fn on_contract(&self) -> impl Iterator<Item = &ChannelOutcome> {
        self.real_time().filter(|channel| !channel.violator)
    }

    /// What became of their messages.
    fn tally(&self) -> Tally {
        self.on_contract().collect()
    }

    /// The real-time channels that broke their contract.
    fn violators(&self) -> impl Iterator<Item = &ChannelOutcome> {
        self.real_time().filter(|channel| channel.violator)
    }

    /// Bytes per second of all best effort.
    fn best_effort_bytes_s(&self) -> Option<u64> {
        let rates = self.channels.iter().filter(|channel| channel.figures.best_effort);
        rates.map(|channel| channel.throughput_bytes_s).reduce(u64::saturating_add)
    }

    /// The channel whose largest response is the largest part of its deadline, with the per cent.
    fn tightest(&self) -> Option<(&ChannelOutcome, u64)> {
        let percent = |Figures { response, deadline, .. }: &Figures| Some(percent_of((*response)?, (*deadline)?));
        let parts = self.on_contract().filter_map(|channel| Some((channel, percent(&channel.figures)?)));
        parts.reduce(|worst, other| if other.1 > worst.1 { other } else { worst })
    }
}

/// What finds it in every scenario.
fn key_of(channel: &ChannelOutcome) -> ChannelKey<'_> {
    ChannelKey { name: &channel.figures.name, best_effort: channel.figures.best_effort }
}

/// Late and lost.
fn late_or_lost(channel: &ChannelOutcome) -> u64 {
    channel.figures.late.saturating_add(channel.figures.lost)
}

/// How many were sent, and of how many if the stack refused some.
fn sent_of_offered(channel: &ChannelOutcome) -> String {
    match channel.offered > channel.figures.sent {
        true => format!("{} of {}", count(channel.figures.sent), count(channel.offered)),
        false => count(channel.figures.sent),
    }
}

/// Where each message ended, if the counts do not add up.
fn imbalance(channel: &ChannelOutcome) -> Option<String> {
    let figures = &channel.figures;
    let ended = figures.delivered.saturating_add(figures.lost).saturating_add(figures.dropped);
    (ended != figures.sent).then(|| format!("sent {}, but delivered + lost + dropped = {ended}", figures.sent))
}

/// Sums over channels.
#[derive(Clone, Copy, Default)]
struct Tally {
    messages: u64,
    late: u64,
    lost: u64,
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
    fn missed(self) -> u64 {
        self.late.saturating_add(self.lost)
    }

    /// How many were late or lost, of how many.
    fn of_all(self) -> String {
        format!("{} of {}", count(self.missed()), count(self.messages))
    }

    fn share(self) -> String {
        share(self.missed(), self.messages)
    }
}

/// Where the time axis of a section ends: after the last message of all scenarios that are drawn.
fn end_of(section: &Section<'_>) -> Duration {
    let end = |scenario: &ScenarioRun| {
        let samples = scenario.channels.iter().flat_map(|channel| &channel.samples);
        Some(samples.map(|sample| sample.at).max()?.max(scenario.elapsed))
    };
    let drawn = section.series.iter().filter_map(|series| end(series.scenario)).max();
    drawn.or_else(|| section.series.iter().map(|series| series.scenario.elapsed).max()).unwrap_or_default()
}
