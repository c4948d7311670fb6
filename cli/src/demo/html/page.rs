//! The page: sections, tables and legends around the plots.

use laxity::text::DisplayRate;
use laxity_lab::wire::WireFigures;
use laxity_lab::{Attack, ChannelOutcome, Stack};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::{self, Axes, Curve};
use super::{
    ChannelKey, PLAIN_UDP_AT_REST, Report, ScenarioRun, Section, Series, attack_text, column, column_name, columns,
    end_of, findings, imbalance, late_or_lost, sections, sent_of_offered, sum,
};
use crate::chart::{Picture, STYLE, swatch};
use crate::numbers::{NONE, brief, count, counted, part_of, rounded, span};
use crate::report::{between, escaped};

/// Nothing is loaded, nothing is run: a browser shall see to it. Styles are inline.
const POLICY: &str = "script-src 'none'; connect-src 'none'; img-src 'none'; font-src 'none'; media-src 'none'; object-src 'none'; \
                      frame-src 'none'; form-action 'none'; base-uri 'none'";

/// The report as one HTML document.
pub(crate) fn render(report: &Report) -> String {
    let (verdict, headline) = findings::headline(report);
    let sections = sections(report);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "Laxity demo, " (escaped(&report.date)) }
                style { (PreEscaped(STYLE)) (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header.page {
                    p.eyebrow { "laxity demo · " (escaped(&report.date)) }
                    @if let Some(incomplete) = &report.incomplete { p.warning { (incomplete) } }
                    h1 class=(verdict.shown().0) { (headline) }
                    @for sentence in findings::beside_the_headline(report) { p.lead { (sentence) } }
                    nav aria-label="Sections" {
                        a href="#overview" { "Overview" }
                        @for (index, section) in sections.iter().enumerate() {
                            a href={ "#attack-" (index) } { (section.attack) }
                        }
                        a href="#findings" { "Findings" }
                        a href="#reading" { "How to read it" }
                        a href="#limits" { "Limits" }
                    }
                }
                main {
                    (measured(report))
                    (overview(report, &sections))
                    @for (index, section) in sections.iter().enumerate() { (attack(index, section)) }
                    (conclusions(report))
                    (PreEscaped(include_str!("reading.html")))
                    section id="limits" {
                        h2 { "Limits" }
                        ul { @for limit in findings::limits(report) { li { (limit) } } }
                    }
                }
            }
        }
    };
    document.into_string()
}

/// What was measured, where, and what the guarantee means.
fn measured(report: &Report) -> Markup {
    html! {
        section id="measured" {
            h2 { "What was measured" }
            p {
                "Real-time channels, each with a contract (largest message, shortest interval, burst, deadline), and best effort that \
                 fills the rest, over a wire with too little room for everything: "
                (counted(report.scenarios.len() as u64, "scenario")) ", each an attack on one way to send."
            }
            dl.facts {
                @for (name, value) in &report.machine {
                    div { dt { (escaped(name)) } dd { (escaped(value)) } }
                }
            }
            (notes(&report.notes))
            (PreEscaped(include_str!("levels.html")))
        }
    }
}

fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() { ul.notes { @for note in notes { li { (escaped(note)) } } } }
    }
}

/// Attacks by stacks.
fn overview(report: &Report, sections: &[Section<'_>]) -> Markup {
    let columns = columns(report);
    html! {
        section id="overview" {
            h2 { "Overview" }
            p.hint {
                "Real-time messages late or lost, of those sent by channels that keep their contract. The bar is the largest time from a \
                 logical arrival in per cent of its deadline; the mark on it is the deadline."
            }
            div.scroll role="region" aria-label="Overview of attacks and stacks" tabindex="0" {
                table.matrix {
                    thead { tr { th scope="col" { "attack" } @for &column in &columns { th scope="col" { (column_name(column)) } } } }
                    tbody {
                        @for (index, section) in sections.iter().enumerate() {
                            tr {
                                th scope="row" { a href={ "#attack-" (index) } { (section.attack) } }
                                @for &wanted in &columns {
                                    td {
                                        @let here = || section.series.iter().filter(|series| column(series.scenario) == wanted);
                                        @for series in here() { (cell(series, here().count() > 1)) }
                                        @if here().next().is_none() { span.absent { "not run" } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(series: &Series<'_>, has_twins: bool) -> Markup {
    let scenario = series.scenario;
    let tally = scenario.tally();
    let (class, sign) = findings::verdict(scenario).shown();
    html! {
        div class={ "cell " (class) } {
            @if has_twins { div.small { "flood " (scenario.flood) (outside(scenario)) } }
            div.who { (column_name(column(scenario))) }
            div.share { span.sign aria-hidden="true" { (sign) } " " (tally.share()) " late or lost" }
            div.small { (tally.of_all()) (own_fault(scenario)) }
            @if let Some((channel, worst)) = scenario.tightest() {
                (bar(worst))
                div.small {
                    (part_of(worst, "the deadline")) " (" (escaped(&channel.figures.name)) ")"
                    @if tally.lost > 0 { ", of what arrived" }
                }
            }
            @for channel in scenario.violators() {
                div.small {
                    "violator " (escaped(&channel.figures.name)) ": " (count(late_or_lost(channel))) " late or lost, "
                    (count(channel.figures.dropped)) " dropped, sent " (sent_of_offered(channel))
                }
            }
        }
    }
}

/// Says so where Laxity promised nothing.
fn outside(scenario: &ScenarioRun) -> &'static str {
    if scenario.stack == Stack::Laxity && !scenario.is_promised() { ", outside the grants" } else { "" }
}

/// What Laxity has to answer for.
fn own_fault(scenario: &ScenarioRun) -> String {
    let known = || scenario.real_time().filter(|channel| channel.misses_known);
    let by_us = count(sum(known(), |figures| figures.misses.laxity + figures.misses.unexplained));
    match (known().next(), sum(known(), |figures| figures.over_bound)) {
        (None, _) => String::new(),
        (_, 0) => format!("; by Laxity’s fault: {by_us}"),
        (_, over) => format!("; by Laxity’s fault: {by_us}; over the bound: {}", count(over)),
    }
}

/// A bar whose mark at two thirds is the deadline.
fn bar(worst: u64) -> Markup {
    let width = (worst.saturating_mul(2) / 3).min(100);
    html! {
        div.bar aria-hidden="true" {
            span class=(if worst > 100 { "fill beyond" } else { "fill" }) style={ "width:" (width) "%" } {}
            span.mark {}
        }
    }
}

/// One attack: what came of it, plots, throughput, all figures, the wire, notes.
fn attack(index: usize, section: &Section<'_>) -> Markup {
    let channels = section.channels();
    let (real_time, best_effort): (Vec<_>, Vec<_>) = channels.iter().copied().partition(|key| !key.best_effort);
    let has_samples = |key: &ChannelKey<'_>| {
        section
            .series
            .iter()
            .filter_map(|series| series.scenario.channel(*key))
            .any(|channel| !channel.samples.is_empty())
    };
    html! {
        section.attack id={ "attack-" (index) } {
            h2 { (if section.attack == Attack::Idle { "No attack: " } else { "Attack: " }) (section.attack) }
            p { (attack_text(section.attack)) }
            @if section.of(Stack::PlainUdp, false).is_some() && section.attack == Attack::Idle { p { (PLAIN_UDP_AT_REST) } }
            ul.legend {
                @for series in &section.series {
                    @let tally = series.scenario.tally();
                    @let (class, sign) = findings::verdict(series.scenario).shown();
                    li {
                        (swatch(series.style)) " " strong { (series.label) } ": "
                        span class={ "sign " (class) } aria-hidden="true" { (sign) } " "
                        (tally.of_all()) " late or lost (" (tally.share()) ")"
                    }
                }
            }
            @if !real_time.is_empty() {
                details {
                    summary { "Plots of the real-time channels" }
                    p.hint {
                        "Response over time has the same axes for every stack of a channel. The distribution tells what share of the \
                         messages took longer; lost ones took longer than anything."
                    }
                    @for (number, key) in real_time.iter().enumerate() {
                        (channel_plots(&format!("p{index}-{number}"), section, *key))
                    }
                }
            }
            @if best_effort.iter().any(has_samples) {
                details {
                    summary { "Best effort over time" }
                    @for (number, key) in best_effort.iter().enumerate() {
                        (channel_plots(&format!("b{index}-{number}"), section, *key))
                    }
                }
            }
            details { summary { "Throughput" } (throughput(section, &channels)) }
            details { summary { "All figures" } (figures(section, &channels)) }
            @if section.series.iter().any(|series| series.scenario.wire.is_some()) {
                details { summary { "The wire itself" } (wire(section)) }
            }
            @let imbalances = imbalances(section);
            @if !imbalances.is_empty() {
                p.warning { "The counts of these channels do not add up: " (imbalances.join("; ")) "." }
            }
            @for series in section.series.iter().filter(|series| !series.scenario.notes.is_empty()) {
                h4 { "Notes on " (series.label) }
                (notes(&series.scenario.notes))
            }
        }
    }
}

/// Response over time, one plot for each stack with the same axes, and the distributions in one.
fn channel_plots(id: &str, section: &Section<'_>, key: ChannelKey<'_>) -> Markup {
    let is_drawn = |channel: &ChannelOutcome| !channel.samples.is_empty() || channel.figures.delivered == 0;
    let all = || section.series.iter().filter_map(|series| Some((series, series.scenario.channel(key)?)));
    let found = || all().filter(|(_, channel)| is_drawn(channel));
    let axes = Axes::around(found().map(|(_, channel)| channel), end_of(section), 4);
    let name = escaped(key.name);
    let curves: Vec<Curve<'_>> = found().map(|(series, channel)| (series.style, channel)).collect();
    let attack = section.attack;
    html! {
        h3 { (name) (class_of(section, key)) }
        @if axes.is_log() { p.hint { "Logarithmic: the latencies are of very different sizes." } }
        div.plots {
            @for (number, (series, channel)) in found().enumerate() {
                figure {
                    figcaption {
                        strong { (series.label) }
                        span.small { (plot_caption(channel)) }
                    }
                    (plot::over_time(
                        &format!("{id}-{number}"),
                        &format!("Response over time of {name}, {}, {attack}: {}", series.label, plot_caption(channel)),
                        axes,
                        series.style,
                        channel,
                    ))
                }
            }
            @if curves.iter().any(|(_, channel)| !channel.samples.is_empty()) {
                figure {
                    figcaption {
                        strong { "Distribution" }
                        @for (series, _) in found() { span.small { (swatch(series.style)) " " (series.label) } }
                    }
                    (plot::distribution(
                        &format!("{id}-d"),
                        &format!("Distribution of the response of {name}, {attack}, all stacks"),
                        &curves,
                    ))
                }
            }
        }
    }
}

/// The channel with the shortest deadline that keeps its contract, under the last attack that ran, over every stack: a picture of its own, as
/// SVG, if something ran.
pub(crate) fn picture(report: &Report) -> Option<String> {
    let sections = sections(report);
    let section = sections.last()?;
    let keeps = section.series.first()?.scenario.on_contract().filter(|channel| channel.figures.deadline.is_some());
    let name = &keeps.min_by_key(|channel| channel.figures.deadline)?.figures.name;
    let key = ChannelKey { name, best_effort: false };
    let found: Vec<_> =
        section.series.iter().filter_map(|series| Some((series, series.scenario.channel(key)?))).collect();
    let axes = Axes::around(found.iter().map(|(_, channel)| *channel), end_of(section), 20);
    let machine = report.machine.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
    let scale = if axes.is_log() { "Logarithmic scale. " } else { "" };
    let captions = found.iter().map(|(series, channel)| format!("{}: {}.", series.label, plot_caption(channel)));
    let picture = Picture {
        title: format!("{}, attack: {}", escaped(name), section.attack),
        subtitle: format!("Response of each message over time. {scale}{}", attack_text(section.attack)),
        description: captions.collect::<Vec<_>>().join(" "),
        blocks: found
            .iter()
            .map(|(series, channel)| {
                plot::card(series.label.clone(), plot_caption(channel), axes, series.style, channel)
            })
            .collect(),
        notes: vec![escaped(&format!("laxity demo, {}: {machine}", report.date)).into_owned()],
        ..Picture::default()
    };
    Some(picture.svg())
}

fn plot_caption(channel: &ChannelOutcome) -> String {
    let figures = &channel.figures;
    let largest = format!("largest {}", brief(figures.response));
    match figures.best_effort {
        true => format!("{largest}; {} lost", count(figures.lost)),
        false => format!("{largest}; {} late, {} lost", count(figures.late), count(figures.lost)),
    }
}

fn throughput(section: &Section<'_>, channels: &[ChannelKey<'_>]) -> Markup {
    let rates = section.series.iter().flat_map(|series| &series.scenario.channels);
    let largest = rates.map(|channel| channel.throughput_bytes_s).max().unwrap_or(0).max(1);
    html! {
        div.rates {
            @for &key in channels {
                div.rate-group {
                    h4 { (escaped(key.name)) (class_of(section, key)) }
                    @for series in &section.series {
                        @if let Some(channel) = series.scenario.channel(key) {
                            @let width = u128::from(channel.throughput_bytes_s) * 1_000 / u128::from(largest);
                            div.rate {
                                span.who { (series.label) }
                                span.track aria-hidden="true" {
                                    span class={ "fill s" (series.style) } style={ "width:" (width / 10) "." (width % 10) "%" } {}
                                }
                                span.value { (DisplayRate(rounded(channel.throughput_bytes_s))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn figures(section: &Section<'_>, channels: &[ChannelKey<'_>]) -> Markup {
    html! {
        p.hint {
            "p50, p99 and largest count from the application's call. The largest response, deadline and bound count from the logical arrival, which is later for \
             the messages of a burst."
        }
        div.scroll role="region" aria-label={ "All figures of " (section.attack) } tabindex="0" {
            table.figures {
                thead {
                    tr {
                        @for head in ["stack", "deadline", "bound", "response", "p50", "p99", "largest", "sent", "late", "lost", "dropped",
                            "misses by cause", "over bound", "throughput"] {
                            th scope="col" class=[(head == "misses by cause").then_some("text")] { (head) }
                        }
                    }
                }
                @for &key in channels {
                    tbody {
                        tr.group { th scope="rowgroup" colspan="14" { span { (escaped(key.name)) (class_of(section, key)) } } }
                        @for series in &section.series {
                            @if let Some(channel) = series.scenario.channel(key) { (row(series, channel)) }
                        }
                    }
                }
            }
        }
    }
}

/// What kind of channel it is, where that is not the usual one.
fn class_of(section: &Section<'_>, key: ChannelKey<'_>) -> &'static str {
    let violates = |series: &Series<'_>| series.scenario.channel(key).is_some_and(|channel| channel.violator);
    match (key.best_effort && !matches!(key.name, "best-effort" | "best effort"), section.series.iter().any(violates)) {
        (true, _) => ", best effort",
        (false, true) => ", the violator",
        (false, false) => "",
    }
}

fn row(series: &Series<'_>, channel: &ChannelOutcome) -> Markup {
    let figures = &channel.figures;
    let latencies = figures.latencies;
    let latency = |latency| between(span, latency, figures);
    let is_late = matches!((figures.response, figures.deadline), (Some(max), Some(deadline)) if max > deadline);
    html! {
        tr {
            th scope="row" { (series.label) }
            td { (span(figures.deadline)) }
            td { (span(figures.bound)) }
            td class=[is_late.then_some("bad")] { (span(figures.response)) }
            td { (latency(latencies.p50)) }
            td { (latency(latencies.p99)) }
            td { (latency(latencies.max)) }
            td { (sent_of_offered(channel)) }
            td class=[(figures.late > 0).then_some("bad")] { (count(figures.late)) }
            td class=[(figures.lost > 0 && !figures.best_effort).then_some("bad")] { (count(figures.lost)) }
            td { (count(figures.dropped)) }
            td.text {
                @if channel.misses_known { (findings::causes(std::iter::once(channel))) }
                @else if figures.best_effort { (NONE) }
                @else if late_or_lost(channel) == 0 { "none" }
                @else { "not known" }
                @if figures.undecided > 0 { ", " (count(figures.undecided)) " undecided" }
            }
            td class=[(figures.over_bound > 0).then_some("bad")] {
                @if figures.bound.is_some() { (count(figures.over_bound)) } @else { (NONE) }
            }
            td { (DisplayRate(channel.throughput_bytes_s)) }
        }
    }
}

type Counted = (&'static str, fn(&WireFigures) -> String);

/// What a wire counts, by name.
const COUNTED: [Counted; 11] = [
    ("queues", |wire| wire.discipline.to_string()),
    ("high class", |wire| wire.high.forwarded.to_string()),
    ("high class, dropped", |wire| wire.high.dropped.to_string()),
    ("all others", |wire| wire.low.forwarded.to_string()),
    ("all others, dropped", |wire| wire.low.dropped.to_string()),
    ("of an unknown peer", |wire| wire.foreign.forwarded.to_string()),
    ("lost in front of it", |wire| wire.overflow.to_string()),
    ("released over 1ms late", |wire| wire.late_releases.to_string()),
    ("latest release", |wire| wire.largest_lateness.to_string()),
    ("busy", |wire| wire.busy.to_string()),
    ("real-time", |wire| if wire.realtime { "yes" } else { "no" }.to_owned()),
];

/// What the wire says about itself, side by side.
fn wire(section: &Section<'_>) -> Markup {
    let wires = || section.series.iter().map(|series| series.scenario.wire.as_ref());
    html! {
        div.scroll role="region" aria-label={ "What the wire counted, " (section.attack) } tabindex="0" {
            table.figures {
                thead { tr { th scope="col" { "counted" } @for series in &section.series { th scope="col" { (series.label) } } } }
                tbody {
                    @for (name, value) in COUNTED {
                        tr {
                            th scope="row" { (name) }
                            @for wire in wires() { td { (wire.map_or_else(|| NONE.to_owned(), value)) } }
                        }
                    }
                }
            }
        }
    }
}

fn imbalances(section: &Section<'_>) -> Vec<String> {
    let all = section.series.iter().flat_map(|series| series.scenario.channels.iter().map(move |one| (series, one)));
    let told = all.filter_map(|(series, channel)| {
        Some(format!("{}, {}: {}", escaped(&channel.figures.name), series.label, imbalance(channel)?))
    });
    told.collect()
}

/// The expert, and what two classes cannot do.
fn conclusions(report: &Report) -> Markup {
    html! {
        section id="findings" {
            h2 { "Findings" }
            h3 { "Where the expert does well" }
            p.hint {
                "Tuned UDP is what an expert sets up today: a wire with two classes, real-time threads where permitted, large buffers."
            }
            ul { @for sentence in findings::expert(report) { li { (sentence) } } }
            h3 { "What two classes cannot do" }
            dl {
                @for (title, text) in findings::beyond_two_classes(report) { dt { (title) } dd { (text) } }
            }
        }
    }
}
