//! The plots, as inline SVG. Colours, dashes and fonts come from the page's style sheet by class.
//!
//! A plot keeps its size in bytes whatever it is given: of each column of pixels that holds many messages it shows the
//! smallest, the largest and two between, chosen blindly; a distribution moves only where the eye could see it.

use std::fmt::Write as _;

use laxity_core::units::Duration;
use laxity_lab::ChannelOutcome;
use maud::{Markup, html};

use crate::chart::{self, Frame, Scale, across, down, nanos, short};

/// The picture, in its own units; the page scales it to its column.
const WIDTH: f64 = 280.0;
const HEIGHT: f64 = 180.0;
/// The frame inside it.
const LEFT: f64 = 46.0;
const RIGHT: f64 = 262.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 158.0;
/// Columns of the frame that hold messages.
const COLUMNS: u64 = 216;
/// The finest share that a distribution shows, in parts of [`WHOLE`].
const WHOLE: u64 = 1_000_000_000;

/// The axes that all plots of one channel share.
#[derive(Clone, Copy)]
pub(super) struct Axes {
    pub(super) time: Scale,
    pub(super) response: Scale,
}

impl Axes {
    /// Axes for all of `channels`, from the scenario's start to `end`. Linear where the latencies are of the deadline's size, or
    /// close together; otherwise logarithmic.
    pub(super) fn around<'a>(channels: impl Iterator<Item = &'a ChannelOutcome> + Clone, end: Duration) -> Self {
        let samples = channels.clone().flat_map(|channel| &channel.samples).map(|sample| sample.response.as_nanos());
        let lines = channels.filter_map(|channel| channel.figures.deadline.max(channel.figures.bound));
        let line = lines.map(Duration::as_nanos).max();
        let largest = samples.clone().max().unwrap_or(0).max(line.unwrap_or(0));
        let smallest = samples.min().unwrap_or(largest).max(1_000).min(largest.max(1));
        let near = line.unwrap_or_else(|| smallest.saturating_mul(5));
        let response = match largest <= near.saturating_mul(4) {
            true => Scale::linear(largest),
            false => Scale::log(smallest, largest),
        };
        Self { time: Scale::exact(end.as_nanos()), response }
    }

    /// True if the response's axis is logarithmic.
    pub(super) fn is_log(self) -> bool {
        matches!(self.response, Scale::Log { .. })
    }
}

fn frame(across: Scale, up: Scale) -> Frame {
    Frame { left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM, across, up }
}

/// The values that both axes are labelled with. A logarithmic axis needs more of them to be read.
fn labelled(frame: &Frame) -> [Vec<u64>; 2] {
    frame.spaced([42.0, if matches!(frame.up, Scale::Log { .. }) { 13.0 } else { 30.0 }])
}

/// A power of ten of [`WHOLE`] in per cent, exactly.
fn part_label(part: u64) -> String {
    format!("{}\u{a0}%", part as f64 * 100.0 / WHOLE as f64)
}

/// Response over time. `id` is unique on the page; `title` is for those who do not see the picture.
pub(super) fn over_time(id: &str, title: &str, axes: Axes, style: usize, channel: &ChannelOutcome) -> Markup {
    let figures = &channel.figures;
    let frame = frame(axes.time, axes.response);
    let line = |limit: Option<Duration>| limit.map(|limit| (limit, frame.y(limit.as_nanos())));
    let (deadline, bound) = (line(figures.deadline), line(figures.bound));
    let marks = Marks::of(channel, &frame);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby=(id) {
            title id=(id) { (title) }
            (frame.axes(labelled(&frame), nanos, nanos, ""))
            @if let Some((_, at)) = deadline { path.deadline d=(across(LEFT, RIGHT, at)) {} }
            @if let Some((_, at)) = bound { path.bound d=(across(LEFT, RIGHT, at)) {} }
            @if !marks.in_time.is_empty() { path class={ "dots s" (style) } d=(marks.in_time) {} }
            @if !marks.over_bound.is_empty() { path.over d=(marks.over_bound) {} }
            @if !marks.late.is_empty() { path.crosses d=(marks.late) {} }
            @if let Some((limit, at)) = deadline {
                text.limit x=(short(RIGHT - 3.0)) y=(short((at - 4.0).max(TOP + 8.0))) text-anchor="end" { "deadline " (limit) }
            }
            @if let Some((limit, at)) = bound {
                text.limit x=(short(LEFT + 4.0)) y=(short((at + 12.0).min(BOTTOM - 3.0))) { "bound " (limit) }
            }
            @if channel.samples.is_empty() {
                text.none x=(short(f64::midpoint(LEFT, RIGHT))) y=(short(f64::midpoint(TOP, BOTTOM))) text-anchor="middle" {
                    "no message arrived"
                }
            }
        }
    }
}

/// The messages as paths: a dot in time, a triangle over the bound, a cross when late.
#[derive(Default)]
struct Marks {
    in_time: String,
    over_bound: String,
    late: String,
}

impl Marks {
    fn of(channel: &ChannelOutcome, frame: &Frame) -> Self {
        let (deadline, bound) = (channel.figures.deadline, channel.figures.bound);
        let mut samples: Vec<(u64, Duration)> = channel
            .samples
            .iter()
            .map(|sample| (column(frame.across, sample.at.as_nanos()), sample.response))
            .collect();
        samples.sort_unstable();
        let mut marks = Self::default();
        for column in samples.chunk_by(|one, other| one.0 == other.0) {
            let last = column.len() - 1;
            let mut shown = column.to_vec();
            if last > 3 {
                // Ranks that differ from column to column: the same ones would draw lines where there are none.
                let inner = |salt: u64| 1 + usize::try_from(scatter(column[0].0 * 2 + salt) % last as u64).unwrap_or(0);
                let (one, other) = (inner(0).min(inner(1)), inner(0).max(inner(1)));
                shown = [0, one, other, last].map(|rank| column[rank]).to_vec();
            }
            let mut before = None;
            for (column, response) in shown {
                // Half a unit up or down: finer than anybody sees.
                let position = (frame.y(response.as_nanos()) * 2.0).round() / 2.0;
                let is_late = deadline.is_some_and(|deadline| response > deadline);
                let is_over = bound.is_some_and(|bound| response > bound);
                if before.replace((position.to_bits(), is_late, is_over))
                    == Some((position.to_bits(), is_late, is_over))
                {
                    continue;
                }
                let (path, mark) = match (is_late, is_over) {
                    (true, _) => (&mut marks.late, "m-2-2l4 4m0-4l-4 4"),
                    (false, true) => (&mut marks.over_bound, "m0-3l3 5h-6z"),
                    (false, false) => (&mut marks.in_time, "h0"),
                };
                let _ = write!(path, "M{} {}{mark}", short(LEFT + column as f64), short(position));
            }
        }
        marks
    }
}

/// A number without a pattern for each number, always the same one.
fn scatter(number: u64) -> u64 {
    let mixed = (number.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The column of the frame, 0 at the left.
fn column(scale: Scale, value: u64) -> u64 {
    (scale.position(value) * COLUMNS as f64).round() as u64
}

/// One line of a distribution.
pub(super) struct Curve<'a> {
    pub(super) style: usize,
    pub(super) channel: &'a ChannelOutcome,
}

/// What part of the messages took longer than so long, both logarithmic. What was lost took longer than anything.
pub(super) fn distribution(id: &str, title: &str, curves: &[Curve<'_>]) -> Markup {
    let samples = || curves.iter().flat_map(|curve| &curve.channel.samples).map(|sample| sample.response.as_nanos());
    let deadline = curves.iter().filter_map(|curve| curve.channel.figures.deadline).max();
    let bounds = curves.iter().filter_map(|curve| curve.channel.figures.bound);
    let bound = bounds.max();
    let line = deadline.max(bound).map_or(0, Duration::as_nanos);
    let largest = samples().max().unwrap_or(0).max(line).max(1);
    let smallest = samples().min().unwrap_or(largest).clamp(1_000.min(largest), largest);
    let most = curves.iter().map(|curve| curve.channel.samples.len() as u64).max().unwrap_or(0).max(10);
    let frame = frame(Scale::log(smallest, largest), Scale::Log { low: (WHOLE / most / 2).max(1), high: WHOLE });
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-labelledby=(id) {
            title id=(id) { (title) }
            (frame.axes(labelled(&frame), nanos, part_label, ""))
            @if let Some(bound) = bound { path.bound d=(down(frame.x(bound.as_nanos()), TOP, BOTTOM)) {} }
            @if let Some(deadline) = deadline { path.deadline d=(down(frame.x(deadline.as_nanos()), TOP, BOTTOM)) {} }
            @for curve in curves {
                @if !curve.channel.samples.is_empty() {
                    path class={ "line s" (curve.style) } d=(steps(curve.channel, &frame)) {}
                }
            }
            @if let Some(deadline) = deadline {
                @let at = frame.x(deadline.as_nanos());
                @let to_the_left = at > f64::midpoint(LEFT, RIGHT);
                text.limit x=(short(if to_the_left { at - 4.0 } else { at + 4.0 })) y=(short(TOP + 11.0))
                    text-anchor=(if to_the_left { "end" } else { "start" }) { "deadline " (deadline) }
            }
        }
    }
}

/// The steps of one complementary distribution.
fn steps(channel: &ChannelOutcome, frame: &Frame) -> String {
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
    let curve = frame.points(sorted.iter().enumerate().map(|(rank, &value)| (value, beyond(rank))));
    let mut path = chart::steps([(frame.x(sorted[0]), frame.y(WHOLE))].into_iter().chain(curve));
    if lost > 0 {
        let _ = write!(path, "H{RIGHT}");
    }
    path
}

/// A piece of the line that stands for a style in a legend.
pub(super) fn swatch(style: usize) -> Markup {
    html! {
        svg.swatch viewBox="0 0 34 10" aria-hidden="true" { path class={ "line s" (style) } d="M1 5H33" {} }
    }
}
