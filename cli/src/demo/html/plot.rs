//! The plots of a channel, inline in the page.
//!
//! A plot keeps its size in bytes whatever it is given: of messages it shows what can be told apart, and a distribution moves only where
//! the eye could see it.

use laxity_core::units::Duration;
use laxity_lab::ChannelOutcome;
use maud::{Markup, html};

use crate::chart::{Block, Diagram, Frame, Look, Scale, Series, Shape, Unit};

/// In its own units; the page scales it to its column.
const SIZE: [f64; 2] = [280.0, 180.0];
/// The finest share that a distribution shows, in parts of that.
const WHOLE: u64 = 1_000_000_000;

/// The axes that all plots of one channel share: time, and response.
#[derive(Clone, Copy)]
pub(super) struct Axes([Scale; 2]);

impl Axes {
    /// Axes for all of `channels`, from the scenario's start to `end`. Linear where the latencies are of the deadline's size, or
    /// close together: at most `times` a deadline; otherwise logarithmic.
    pub(super) fn around<'a>(
        channels: impl Iterator<Item = &'a ChannelOutcome> + Clone,
        end: Duration,
        times: u64,
    ) -> Self {
        let samples = channels.clone().flat_map(|channel| &channel.samples).map(|sample| sample.response.as_nanos());
        let lines = channels.filter_map(|channel| channel.figures.deadline.max(channel.figures.bound));
        let line = lines.map(Duration::as_nanos).max();
        let largest = samples.clone().max().unwrap_or(0).max(line.unwrap_or(0));
        let smallest = samples.min().unwrap_or(largest).max(1_000).min(largest.max(1));
        let near = line.unwrap_or_else(|| smallest.saturating_mul(5));
        let response = match largest <= near.saturating_mul(times) {
            true => Scale::linear(largest as f64),
            false => Scale::log(smallest as f64, largest as f64),
        };
        Self([Scale::exact(end.as_nanos() as f64), response])
    }

    /// True if the response's axis is logarithmic.
    pub(super) fn is_log(self) -> bool {
        self.0[1].is_log
    }
}

/// `id` is unique on the page; `title` is for those who do not see the picture.
fn drawn(id: &str, title: &str, scales: [Scale; 2], up: Unit, series: Vec<Series>, inside: &'static str) -> Markup {
    // A logarithmic axis needs more labels to be read.
    let room = [42.0, if scales[1].is_log { 13.0 } else { 30.0 }];
    let frame = Frame { left: 46.0, right: 262.0, top: 10.0, bottom: 158.0, room, scales };
    let (heading, corner, units) = (String::new(), String::new(), [Unit::Nanos, up]);
    let diagram = Diagram { heading, corner, below: "", scales, units, series, inside };
    html! {
        svg viewBox={ "0 0 " (SIZE[0]) " " (SIZE[1]) } role="img" aria-labelledby=(id) {
            title id=(id) { (title) }
            (diagram.draw(frame))
        }
    }
}

/// Response over time: a dot in time, a triangle over the bound, a cross when late.
pub(super) fn over_time(id: &str, title: &str, Axes(scales): Axes, style: usize, channel: &ChannelOutcome) -> Markup {
    let inside = if channel.samples.is_empty() { "no message arrived" } else { "" };
    drawn(id, title, scales, Unit::Nanos, responses(style, channel), inside)
}

/// The same as a diagram of a picture of its own.
pub(super) fn card(
    heading: String,
    corner: String,
    Axes(scales): Axes,
    style: usize,
    channel: &ChannelOutcome,
) -> Block {
    let (units, series) = ([Unit::Nanos; 2], responses(style, channel));
    Diagram { heading, corner, below: "", scales, units, series, inside: "" }.block(true, 190.0)
}

fn responses(style: usize, channel: &ChannelOutcome) -> Vec<Series> {
    let (deadline, bound) = (channel.figures.deadline, channel.figures.bound);
    let kind = |response: Duration| match (deadline.is_some_and(|limit| response > limit), bound) {
        (true, _) => "late",
        (false, Some(bound)) if response > bound => "over-bound",
        _ => "",
    };
    let limit = |is_above, name: &'static str, limit: Option<Duration>| {
        limit.map(|at| Series::limit(Shape::Across { is_above }, name, at.as_nanos(), format!("{name} {at}")))
    };
    let dots = [
        (Look::Number(style), "", "h0"),
        (Look::Named("over-bound"), "over-bound", "m0-3l3 5h-6z"),
        (Look::Named("late"), "late", "m-2-2l4 4m0-4l-4 4"),
    ]
    .map(|(look, wanted, mark)| {
        let samples = channel.samples.iter().filter(|sample| kind(sample.response) == wanted);
        Series::new(Shape::Dots(mark), look, samples.map(|sample| (sample.at.as_nanos(), sample.response.as_nanos())))
    });
    let limits = [limit(true, "deadline", deadline), limit(false, "bound", bound)];
    dots.into_iter().chain(limits.into_iter().flatten()).collect()
}

/// One line of a distribution: its style, and whose it is.
pub(super) type Curve<'a> = (usize, &'a ChannelOutcome);

/// What part of the messages took longer than so long, both logarithmic. What was lost took longer than anything.
pub(super) fn distribution(id: &str, title: &str, curves: &[Curve<'_>]) -> Markup {
    let samples = || curves.iter().flat_map(|(_, channel)| &channel.samples).map(|sample| sample.response.as_nanos());
    let deadline = curves.iter().filter_map(|(_, channel)| channel.figures.deadline).max();
    let bound = curves.iter().filter_map(|(_, channel)| channel.figures.bound).max();
    let line = deadline.max(bound).map_or(0, Duration::as_nanos);
    let largest = samples().max().unwrap_or(0).max(line).max(1);
    let smallest = samples().min().unwrap_or(largest).clamp(1_000.min(largest), largest);
    let most = curves.iter().map(|(_, channel)| channel.samples.len() as u64).max().unwrap_or(0).max(10);
    let across = Scale::log(smallest as f64, largest as f64);
    let up = Scale::log_exact((WHOLE / most / 2) as f64, WHOLE as f64);
    let limit =
        |name, limit: Option<Duration>, label| limit.map(|at| Series::limit(Shape::Down, name, at.as_nanos(), label));
    let said = deadline.map_or_else(String::new, |deadline| format!("deadline {deadline}"));
    let limits = [limit("bound", bound, String::new()), limit("deadline", deadline, said)];
    let lines = curves.iter().filter(|(_, channel)| !channel.samples.is_empty());
    let lines = lines
        .map(|&(style, channel)| Series::new(Shape::Steps, Look::Number(style), steps(channel, across.high as u64)));
    drawn(id, title, [across, up], Unit::Part(WHOLE as f64), lines.chain(limits.into_iter().flatten()).collect(), "")
}

/// The steps of one complementary distribution, up to `end` if something was lost.
fn steps(channel: &ChannelOutcome, end: u64) -> Vec<(u64, u64)> {
    let mut sorted: Vec<u64> = channel.samples.iter().map(|sample| sample.response.as_nanos()).collect();
    sorted.sort_unstable();
    let delivered = u128::from(channel.figures.delivered.max(sorted.len() as u64));
    let lost = u128::from(channel.figures.lost);
    let (all, samples) = (delivered + lost, sorted.len() as u128);
    // Each sample stands for delivered / samples messages.
    let beyond = |rank: usize| {
        let later = (samples - 1 - rank as u128) * delivered / samples;
        u64::try_from((later + lost) * u128::from(WHOLE) / all).unwrap_or(WHOLE)
    };
    let lost = (lost > 0).then(|| (end, beyond(sorted.len() - 1)));
    let curve = sorted.iter().enumerate().map(|(rank, &value)| (value, beyond(rank)));
    [(sorted[0], WHOLE)].into_iter().chain(curve).chain(lost).collect()
}
