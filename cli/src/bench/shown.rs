//! How experiments show what came of them.

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::Report;
use laxity_lab::figures::{broken_promise, quantile};
use maud::{DOCTYPE, PreEscaped, html};
use serde_json::{Number, Value, json};

use super::arguments::BenchArguments;
use crate::chart::{Diagram, Look, Picture, Series};
use crate::failure::Failure;
use crate::file;
use crate::numbers::{NONE, count, rounded};
use crate::progress;
use crate::report::{self, escaped, misses, say, to_json, with};

/// What came of an experiment, and how it is shown.
#[derive(Default)]
pub(super) struct Outcome {
    /// Of the picture, without the name of the experiment.
    pub(super) title: &'static str,
    pub(super) is_simulated: bool,
    /// Under which it ran, in a line.
    pub(super) conditions: String,
    /// Its own keys in JSON.
    pub(super) json: Value,
    /// Those that it has in common with others.
    pub(super) common: Value,
    /// For people.
    pub(super) tables: String,
    /// Every round for people, where the picture is asked for as an HTML report.
    pub(super) rounds: String,
    pub(super) legend: Vec<(Look, String)>,
    pub(super) diagrams: Vec<Diagram>,
    /// How to read the diagrams, if that is not plain.
    pub(super) explained: &'static str,
    /// Below tables and diagrams.
    pub(super) notes: Vec<String>,
    /// Below the tables alone, behind the others.
    pub(super) further_notes: Vec<String>,
    /// Channels whose promises must hold.
    pub(super) channels: Vec<Figures>,
    /// What else must hold and does not, a line each.
    pub(super) broken: Vec<String>,
}

impl Outcome {
    /// Of an experiment whose ends run on this host: whether as SCHED_FIFO, and whether processors were kept awake; its channels, if they are shown; remarks.
    pub(super) fn of_ends<R, D>(report: &Report<R, D>, shows_channels: bool) -> Self {
        let Report { is_real_time, is_kept_awake, notes, channels, .. } = report;
        let mut common = json!({ "real_time": is_real_time, "kept_awake": is_kept_awake, "notes": notes });
        if shows_channels {
            common["channels"] = channels.iter().map(report::channel).collect();
        }
        Self { common, channels: channels.clone(), ..Self::default() }
    }

    /// Shows it as that of the experiment `name`: JSON or a page, and the picture, if one is asked for. Says which promises were broken; true
    /// if none was.
    pub(super) fn show(self, name: &str, arguments: &BenchArguments, span: Duration) -> Result<bool, Failure> {
        let page = self.page();
        if arguments.json {
            let common = with(json!({ "bench": name, "duration_ns": span }), self.common);
            say(&to_json(&with(common, self.json)));
        } else {
            say(&page);
        }
        let broken = self.channels.iter().filter_map(|channel| broken_promise(name, channel)).chain(self.broken);
        let is_kept = broken.inspect(|promise| eprintln!("broken: {promise}")).count() == 0;
        if let Some(path) = &arguments.plot {
            let ran = if self.is_simulated { VIRTUAL } else { "LIVE on one host" };
            let title = format!("{} ({name})", self.title);
            let subtitle = format!("{ran}. {}. {}", self.conditions, self.explained);
            let picture = Picture::of_diagrams(title, subtitle, self.legend, &self.diagrams, self.notes).svg();
            let is_html = path.extension().is_some_and(|extension| extension == "html");
            file::write(path, &if is_html { html_report(&picture, &[page, self.rounds]) } else { picture })?;
        }
        Ok(is_kept)
    }

    /// For people.
    pub(super) fn page(&self) -> String {
        let ran = if self.is_simulated { VIRTUAL } else { "LIVE on this host" };
        let notes = self.notes.iter().chain(&self.further_notes).map(|note| format!("\n- {}", escaped(note)));
        format!("{ran}. {}.\n\n{}\n{}", self.conditions, self.tables, notes.collect::<String>())
    }
}

const VIRTUAL: &str = "In virtual time";

/// An HTML document that loads nothing and runs nothing: the picture, and texts below it.
fn html_report(picture: &str, texts: &[String]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "laxity bench" }
                style { "body { max-width: 60rem; margin: 1rem auto; font-family: sans-serif } svg { width: 100% } pre { overflow-x: auto }" }
            }
            body {
                (PreEscaped(picture))
                @for text in texts.iter().filter(|text| !text.is_empty()) { pre { (text) } }
            }
        }
    };
    page.into_string()
}

/// Which line one of these has.
pub(super) fn class<T: PartialEq>(of: &[T], one: T) -> usize {
    of.iter().position(|other| *other == one).unwrap_or(0)
}

/// A channel in a line, for people.
pub(super) fn told(channel: &Figures) -> String {
    let Figures { name, delivered, sent, .. } = channel;
    format!("channel {name}: {delivered} of {sent} delivered; misses: {}", misses(channel))
}

/// How long something took, in JSON.
pub(super) fn distribution(sorted: &[u64]) -> Value {
    json!({
        "samples": sorted.len(),
        "min_ns": quantile(sorted, 0),
        "p50_ns": quantile(sorted, 500_000),
        "p99_ns": quantile(sorted, 990_000),
        "p999_ns": quantile(sorted, 999_000),
        "max_ns": quantile(sorted, 1_000_000),
    })
}

/// A line through what each round had.
pub(super) fn by_round<T>(class: usize, rounds: &[T], value: impl Fn(&T) -> Option<u64>) -> Series {
    Series::line(class, (1..).zip(rounds).filter_map(|(round, of)| Some((round, value(of)?))))
}

/// A line through quantiles (of parts in a million), as far as they are known, over per cent: closer where it is steeper.
pub(super) fn by_percent(class: usize, value: impl Fn(u64) -> Option<u64>) -> Series {
    let at = |percent: u64| Some((percent, value(percent * 10_000)?));
    Series::line(class, (0..95).step_by(5).chain(95..100).filter_map(at))
}

/// Runs what tells how much of how much is done, and shows that in a bar with this text beside it.
pub(super) fn with_bar<T>(text: &str, run: impl FnOnce(&mut (dyn FnMut(u64, u64) + Send)) -> T) -> T {
    let bar = progress::bar(&format!("{{bar:24}} {text}"), 0);
    run(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })
}

/// Runs what tells how many of how many turns are done, and shows that.
pub(super) fn with_turns<T>(run: impl FnOnce(&mut (dyn FnMut(u64, u64) + Send)) -> T) -> T {
    with_bar("{pos} of {len} turns", run)
}

/// A value in units with so many decimals, rounded down, or `–`.
pub(super) fn decimal(value: Option<u64>, unit: u64, decimals: usize, name: &str) -> String {
    let Some(value) = value else { return NONE.to_owned() };
    let (whole, part) = (value / unit, value % unit * 10_u64.pow(decimals as u32) / unit);
    if decimals == 0 { format!("{whole}{name}") } else { format!("{whole}.{part:0decimals$}{name}") }
}

pub(super) fn micros(nanos: Option<u64>) -> String {
    decimal(nanos, 1000, 0, "\u{a0}µs")
}

/// Tenths of a µs.
pub(super) fn fine(nanos: Option<u64>) -> String {
    decimal(nanos, 1000, 1, "\u{a0}µs")
}

pub(super) fn times(ppm: Option<u64>) -> String {
    decimal(ppm, 1_000_000, 3, "")
}

/// Bytes a second, or `–`.
pub(super) fn rate(bytes_s: Option<u64>) -> String {
    bytes_s.map_or_else(|| NONE.to_owned(), |bytes_s| count(rounded(bytes_s)))
}

/// How applications ran.
pub(super) fn threads(is_real_time: bool) -> &'static str {
    if is_real_time { "SCHED_FIFO" } else { "ordinary threads" }
}

/// One figure to another one; `None` if one of them is not known, or that is zero.
pub(super) fn ratio_ppm(of: Option<u64>, to: Option<u64>) -> Option<u64> {
    let ppm = (u128::from(of?) * 1_000_000).checked_div(u128::from(to?))?;
    Some(u64::try_from(ppm).unwrap_or(u64::MAX))
}

/// Less than all.
pub(super) const BELOW_ONE_PPM: u64 = 999_999;

/// A figure to another one.
pub(super) struct Ratio {
    /// `None` if one of them is not known.
    pub(super) ppm: Option<u64>,
    /// Whether it is as is aimed at; `None` without an aim.
    pub(super) is_met: Option<bool>,
    pub(super) told: String,
    pub(super) json: Value,
}

impl Ratio {
    /// The median of the rounds, which are in order of size; `said` and `of` are what is compared, in words and in JSON. At most `most_ppm` is
    /// aimed at, if anything.
    pub(super) fn of_rounds(said: String, of: Value, rounds: &[u64], most_ppm: Option<u64>) -> Self {
        let [low, ppm, high] = [250_000, 500_000, 750_000].map(|ppm| quantile(rounds, ppm));
        let is_met = ppm.zip(most_ppm).map(|(ppm, most)| ppm <= most);
        let aim = match most_ppm {
            None => String::new(),
            Some(BELOW_ONE_PPM) => ", below 1 is aimed at".to_owned(),
            most => format!(", at most {} is aimed at", times(most)),
        };
        let missed = if is_met == Some(false) { ": missed" } else { "" };
        let told = format!("{said}: {} ({} to {}){aim}{missed}", times(ppm), times(low), times(high));
        let more = json!({ "ppm": ppm, "quartiles_ppm": [low, high], "most_ppm": most_ppm, "met": is_met });
        Self { ppm, is_met, told, json: with(of, more) }
    }

    pub(super) fn json<'a>(all: impl IntoIterator<Item = &'a Self>) -> Value {
        all.into_iter().map(|ratio| ratio.json.clone()).collect()
    }

    pub(super) fn told<'a>(all: impl IntoIterator<Item = &'a Self>) -> impl Iterator<Item = String> {
        all.into_iter().map(|ratio| ratio.told.clone())
    }
}

/// A fraction as people write it: an integer if it is one, else the nearest number to the decimal fraction, which is written as that.
pub(super) fn fraction(part: u64, whole: u64) -> Number {
    let fraction = || Number::from_f64(part as f64 / whole as f64);
    if part.is_multiple_of(whole) { None } else { fraction() }.unwrap_or_else(|| Number::from(part / whole))
}

#[cfg(test)]
mod tests {
    use super::{decimal, fraction, html_report};

    #[test]
    fn decimals_are_rounded_down() {
        let written =
            [decimal(Some(1_999), 1000, 0, " µs"), decimal(Some(1_049), 1000, 2, ""), decimal(None, 10, 1, "s")];
        assert_eq!(written, ["1 µs", "1.04", "–"]);
    }

    #[test]
    fn a_report_holds_the_picture_and_escapes_the_texts() {
        let page = html_report("<svg></svg>", &["a < b".to_owned(), String::new()]);
        assert!(
            page.starts_with("<!DOCTYPE html>") && page.contains("<svg></svg><pre>a &lt; b</pre></body>"),
            "{page}"
        );
    }

    #[test]
    fn a_factor_is_written_as_people_write_it() {
        let written = [100, 125, 150, 200, 110, 133, 1_000].map(|percent| fraction(percent, 100).to_string());
        assert_eq!(written, ["1", "1.25", "1.5", "2", "1.1", "1.33", "10"]);
        assert_eq!([300, 737].map(|share| fraction(share, 1000).to_string()), ["0.3", "0.737"]);
    }
}
