//! Lines over a range of loads, as SVG: two panels beside each other, one legend, notes below.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::chart::{Frame, GAP, MARGIN, Page, Scale, across, fitting, legend, marker, polyline, short, tile};
use crate::numbers::count;

/// A document.
pub(super) struct Picture {
    pub(super) title: String,
    pub(super) subtitle: String,
    /// Names of the kinds of lines, by class.
    pub(super) legend: Vec<String>,
    pub(super) panels: Vec<Panel>,
    pub(super) notes: Vec<String>,
}

/// One diagram.
pub(super) struct Panel {
    pub(super) heading: String,
    pub(super) x_title: &'static str,
    pub(super) y_title: &'static str,
    /// Labels divide by that: with 100, the value 125 is 1.25.
    pub(super) x_unit: u64,
    pub(super) y_unit: u32,
    /// The axis reaches at least that far up.
    pub(super) least_top: i64,
    pub(super) lines: Vec<Line>,
}

/// One line of a diagram.
pub(super) struct Line {
    /// Its colour and its marker; the place in the legend.
    pub(super) class: usize,
    pub(super) dotted: bool,
    pub(super) points: Vec<(u64, i64)>,
}

impl Line {
    /// A line through counts, with marks.
    pub(super) fn new(class: usize, points: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let signed = |(at, value)| (at, i64::try_from(value).unwrap_or(i64::MAX));
        Self { class, dotted: false, points: points.into_iter().map(signed).collect() }
    }
}

const WIDTH: f64 = 960.0;
const PANEL: f64 = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
const HEIGHT: f64 = 300.0;
/// The frame inside a panel.
const LEFT: f64 = 66.0;
const RIGHT: f64 = PANEL - 30.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = HEIGHT - 52.0;

/// The document.
pub(super) fn document(picture: &Picture) -> String {
    let first = 116.0;
    let rows = picture.panels.len().div_ceil(2) as f64;
    let names = picture.legend.iter().map(String::as_str);
    let content = html! {
        (legend(names, (MARGIN, WIDTH - MARGIN), 88.0, |class| (format!("s{class}"), true)))
        @for (place, panel) in picture.panels.iter().enumerate() {
            (tile(place, [MARGIN, first], [PANEL, HEIGHT], draw(panel)))
        }
    };
    let (title, subtitle, description) = (&picture.title, &picture.subtitle, &description(picture));
    let bottom = first + rows * (HEIGHT + GAP) - GAP;
    Page { title, subtitle, description, style: STYLE, width: WIDTH, content, bottom, notes: &picture.notes }.svg()
}

/// The picture in words, for those who do not see it: where each line begins, ends and is highest.
fn description(picture: &Picture) -> String {
    let mut text = String::new();
    for panel in &picture.panels {
        let _ = write!(text, "{}, in {}: ", panel.heading, panel.y_title);
        for line in &panel.lines {
            let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else { continue };
            let highest = line.points.iter().map(|point| point.1).max().unwrap_or(0);
            let name = picture.legend.get(line.class).map_or("", String::as_str);
            let [first, highest, last] = [first.1, highest, last.1].map(|value| label(value, panel.y_unit));
            let _ = write!(text, "{name} from {first} over at most {highest} to {last}. ");
        }
    }
    text
}

fn draw(panel: &Panel) -> Markup {
    let values = || panel.lines.iter().flat_map(|line| &line.points);
    let (low, high, step) = axis(values().map(|point| point.1), panel.least_top);
    let above = |value: i64| value.saturating_sub(low).unsigned_abs();
    let across_scale = Scale::exact(values().map(|point| point.0).max().unwrap_or(1));
    let frame = Frame::new([LEFT, RIGHT], [TOP, BOTTOM], across_scale, Scale::exact(above(high)));
    let column = |value| label(i64::try_from(value).unwrap_or(i64::MAX), u32::try_from(panel.x_unit).unwrap_or(1));
    // From zero in both directions, whatever the ends are.
    let rows = (0..=(high - low) / step).map(|place| above(low + place * step)).collect();
    let row = |value| label(low.saturating_add_unsigned(value), panel.y_unit);
    html! {
        rect.card width=(short(PANEL)) height=(HEIGHT) rx="8" {}
        text.heading x="14" y="25" { (fitting(&panel.heading, (PANEL - 90.0) * 0.86)) }
        text.end x=(short(RIGHT)) y="25" { (panel.y_title) }
        (frame.axes([frame.across.ticks(7), rows], column, row, panel.x_title))
        @if low < 0 { path.zero d=(across(LEFT, RIGHT, frame.y(above(0)))) {} }
        @for line in &panel.lines {
            @let points: Vec<_> = frame.points(line.points.iter().map(|&(at, value)| (at, above(value)))).collect();
            g class={ "s" (line.class) } {
                path class=(if line.dotted { "line dotted" } else { "line" }) d=(polyline(points.iter().copied())) {}
                @if !line.dotted {
                    path.mark d=(points.iter().map(|&(x, y)| marker(line.class, x, y)).collect::<String>()) {}
                }
            }
        }
    }
}

/// Both ends of an axis that holds zero, `least_top` and all values, and the distance of its labels, of which both are multiples.
fn axis(values: impl Iterator<Item = i64> + Clone, least_top: i64) -> (i64, i64, i64) {
    let low = values.clone().min().unwrap_or(0).min(0);
    let high = values.max().unwrap_or(0).max(least_top).max(1);
    let ticks = Scale::exact(high.saturating_sub(low).unsigned_abs()).ticks(6);
    let step = ticks.get(1).and_then(|&step| i64::try_from(step).ok()).unwrap_or(1).max(1);
    (low.div_euclid(step) * step, high.saturating_add(step - 1).div_euclid(step) * step, step)
}

/// `value` in units, exactly.
fn label(value: i64, unit: u32) -> String {
    let unit = u64::from(unit.max(1));
    let (whole, rest) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
    let sign = if value < 0 { "−" } else { "" };
    let digits = unit.ilog10() as usize;
    let decimals = if rest == 0 { String::new() } else { format!(".{rest:0digits$}") };
    format!("{sign}{}{}", count(whole), if rest == 0 { "" } else { decimals.trim_end_matches('0') })
}

const STYLE: &str = include_str!("chart.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_zero_and_everything() {
        let of = |values: &[i64], top| axis(values.iter().copied(), top);
        assert_eq!(of(&[], 0), (0, 1, 1));
        assert_eq!(of(&[120, 4677], 0), (0, 5000, 1000));
        assert_eq!(of(&[-28_000, 4_000], 0), (-30_000, 10_000, 10_000));
        assert_eq!(of(&[0, 0], 100), (0, 100, 20));
    }

    #[test]
    fn labels_are_exact() {
        assert_eq!([label(125, 100), label(12_000, 1), label(-500, 1000)], ["1.25", "12,000", "−0.5"]);
        assert_eq!([label(0, 100), label(400, 100)], ["0", "4"]);
    }

    #[test]
    fn a_picture_is_well_formed_whatever_it_shows() {
        let lines = vec![Line { class: 5, dotted: true, points: vec![(0, -3), (7, i64::from(i32::MAX))] }];
        let (x_title, y_title) = ("load", "ms");
        let panel = Panel { heading: "<a & b>".into(), x_title, y_title, x_unit: 1, y_unit: 1, least_top: 0, lines };
        let empty = Panel { heading: String::new(), lines: Vec::new(), ..panel };
        let picture = |panels| Picture {
            title: "t".into(),
            subtitle: "s".into(),
            legend: vec!["<one>".into()],
            panels,
            notes: vec!["a <note>".into()],
        };
        for panels in [Vec::new(), vec![empty]] {
            let text = document(&picture(panels));
            assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
            assert!(!text.contains("<one>") && !text.contains("<note>"));
        }
    }
}
