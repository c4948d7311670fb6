//! Lines over a range of loads, as SVG: two panels beside each other, one legend, notes below.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::numbers::count;
use crate::scale::Scale;
use crate::svg::{CHARACTER, Document, fitting, lines, short};

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

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 24.0;
const GAP: f64 = 16.0;
const PANEL: f64 = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
const HEIGHT: f64 = 300.0;
/// The frame inside a panel.
const LEFT: f64 = 66.0;
const RIGHT: f64 = PANEL - 30.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = HEIGHT - 52.0;
const LINE: f64 = 17.0;

/// The document.
pub(super) fn document(picture: &Picture) -> String {
    let first = 116.0;
    let rows = picture.panels.len().div_ceil(2) as f64;
    let mut at = first + rows * (HEIGHT + GAP) + 12.0;
    let mut notes = Vec::new();
    for line in picture.notes.iter().flat_map(|note| lines(note, WIDTH - 2.0 * MARGIN)) {
        notes.push((at, line));
        at += LINE;
    }
    let content = html! {
        (legend(&picture.legend))
        @for (place, panel) in picture.panels.iter().enumerate() {
            @let x = MARGIN + (PANEL + GAP) * (place % 2) as f64;
            @let y = first + (HEIGHT + GAP) * (place / 2) as f64;
            g transform={ "translate(" (short(x)) " " (short(y)) ")" } { (draw(panel)) }
        }
        @for (y, line) in notes { text x=(MARGIN) y=(short(y)) { (line) } }
    };
    Document {
        title: &picture.title,
        subtitle: &picture.subtitle,
        description: &description(picture),
        style: STYLE,
        width: WIDTH,
        height: at + 8.0,
        margin: MARGIN,
        content,
    }
    .text()
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
    text.truncate(text.trim_end().len());
    text
}

fn legend(names: &[String]) -> Markup {
    let mut places = Vec::new();
    let mut x = MARGIN;
    for name in names {
        places.push((x, name));
        x += 52.0 + CHARACTER * name.chars().count() as f64;
    }
    html! {
        @for (class, (x, name)) in places.into_iter().enumerate() {
            g class={ "s" (class) } {
                path.line d={ "M" (short(x)) " 88h24" } {}
                path.mark d=(marker(class, x + 12.0, 88.0)) {}
            }
            text.name x=(short(x + 30.0)) y="92" { (name) }
        }
    }
}

fn draw(panel: &Panel) -> Markup {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let scale = Scale::exact(points().map(|point| point.0).max().unwrap_or(1));
    let (low, high, step) = axis(points().map(|point| point.1), panel.least_top);
    let x = |value: u64| LEFT + scale.position(value) * (RIGHT - LEFT);
    let y = |value: i64| BOTTOM - (value - low) as f64 / (high - low) as f64 * (BOTTOM - TOP);
    let columns = scale.ticks(7);
    let rows: Vec<i64> = (0..=(high - low) / step).map(|index| low + index * step).collect();
    let mut grid = String::new();
    for &value in &columns {
        let _ = write!(grid, "M{} {}V{}", short(x(value)), short(TOP), short(BOTTOM));
    }
    for &value in &rows {
        let _ = write!(grid, "M{} {}H{}", short(LEFT), short(y(value)), short(RIGHT));
    }
    html! {
        rect.card width=(short(PANEL)) height=(HEIGHT) rx="8" {}
        text.heading x="14" y="25" { (fitting(&panel.heading, (PANEL - 90.0) * 0.86)) }
        text.end x=(short(RIGHT)) y="25" { (panel.y_title) }
        path.grid d=(grid) {}
        @if low < 0 {
            path.zero d={ "M" (short(LEFT)) " " (short(y(0))) "H" (short(RIGHT)) } {}
        }
        @for line in &panel.lines {
            g class={ "s" (line.class) } {
                path class=(if line.dotted { "line dotted" } else { "line" }) d=(path(&line.points, x, y)) {}
                @if !line.dotted {
                    path.mark d=(line.points.iter().map(|&(at, value)| marker(line.class, x(at), y(value))).collect::<String>()) {}
                }
            }
        }
        g aria-hidden="true" {
            @for &value in &columns {
                text.middle x=(short(x(value))) y=(short(BOTTOM + 18.0)) {
                    (label(i64::try_from(value).unwrap_or(i64::MAX), u32::try_from(panel.x_unit).unwrap_or(1)))
                }
            }
            @for &value in &rows {
                text.end x=(short(LEFT - 8.0)) y=(short(y(value) + 4.0)) { (label(value, panel.y_unit)) }
            }
            text.middle x=(short(f64::midpoint(LEFT, RIGHT))) y=(short(BOTTOM + 38.0)) { (panel.x_title) }
        }
    }
}

/// Both ends of an axis that holds zero, `least_top` and all values, and the distance of its labels.
fn axis(values: impl Iterator<Item = i64> + Clone, least_top: i64) -> (i64, i64, i64) {
    let low = values.clone().min().unwrap_or(0).min(0);
    let high = values.max().unwrap_or(0).max(least_top).max(1);
    let ticks = Scale::exact(high.saturating_sub(low).unsigned_abs()).ticks(6);
    let step = ticks.get(1).and_then(|&step| i64::try_from(step).ok()).unwrap_or(1).max(1);
    (low.div_euclid(step) * step, high.saturating_add(step - 1).div_euclid(step) * step, step)
}

fn path(points: &[(u64, i64)], x: impl Fn(u64) -> f64, y: impl Fn(i64) -> f64) -> String {
    let mut path = String::new();
    for (index, &(at, value)) in points.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if index == 0 { 'M' } else { 'L' }, short(x(at)), short(y(value)));
    }
    path
}

/// A disc, a square, a triangle or a diamond: lines that lie on each other can be told apart, and by those who see no colours.
fn marker(class: usize, x: f64, y: f64) -> String {
    let at = |right: f64, down: f64| format!("M{} {}", short(x + right), short(y + down));
    match class % 4 {
        0 => at(-3.5, 0.0) + "a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        1 => at(-3.0, -3.0) + "h6v6h-6z",
        2 => at(0.0, -4.5) + "l4.5 8h-9z",
        _ => at(0.0, -4.5) + "l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    }
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

const STYLE: &str = "
svg { color-scheme: light dark; }
text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif; fill: #59636e; }
text.title { font-size: 18px; font-weight: 600; fill: #1b1f24; }
text.heading { font-size: 14px; font-weight: 600; fill: #1b1f24; }
text.name { fill: #1b1f24; }
text.end { text-anchor: end; }
text.middle { text-anchor: middle; }
.page { fill: #fbfbfa; }
.card { fill: #ffffff; stroke: #d9dee3; }
.grid { fill: none; stroke: #e8ebee; }
.zero { fill: none; stroke: #1b1f24; stroke-width: 1.2; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.dotted { stroke-dasharray: 2 4; }
.mark { stroke: #ffffff; stroke-width: 0.8; }
.s0 .line { stroke: #0b66c2; } .s0 .mark { fill: #0b66c2; }
.s1 .line { stroke: #8a3ea8; } .s1 .mark { fill: #8a3ea8; }
.s2 .line { stroke: #12805c; } .s2 .mark { fill: #12805c; }
.s3 .line { stroke: #b4602a; } .s3 .mark { fill: #b4602a; }
@media (prefers-color-scheme: dark) {
  text { fill: #a2acb8; }
  text.title, text.heading, text.name { fill: #e8eaed; }
  .page { fill: #121519; }
  .card { fill: #1a1e24; stroke: #38404a; }
  .grid { stroke: #29303a; }
  .zero { stroke: #e8eaed; }
  .mark { stroke: #1a1e24; }
  .s0 .line { stroke: #5eb0ff; } .s0 .mark { fill: #5eb0ff; }
  .s1 .line { stroke: #c98ae0; } .s1 .mark { fill: #c98ae0; }
  .s2 .line { stroke: #4fc39a; } .s2 .mark { fill: #4fc39a; }
  .s3 .line { stroke: #e59155; } .s3 .mark { fill: #e59155; }
}
";

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
