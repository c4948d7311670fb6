//! One diagram: a frame with its axes, and series in it.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::document::{Block, GAP, INSIDE};
use super::scale::Scale;
use super::text::{Unit, fitting, short};

/// Of a series or an entry of a legend: a class of the style sheet, and marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its place in a legend: a colour and marks of its own.
    Number(usize),
    /// The same, dotted and without marks.
    Dotted(usize),
    /// A part of a bar, by its colour.
    Part(usize),
    Named(&'static str),
}

impl Look {
    pub(super) fn class(self) -> String {
        match self {
            // There are so many colours.
            Self::Number(number @ ..9) => format!("s{number}"),
            Self::Number(number) => format!("s{} again", number % 9),
            Self::Dotted(number) => format!("s{} dotted", number % 9),
            Self::Part(colour) => format!("c{colour}"),
            Self::Named(name) => name.to_owned(),
        }
    }

    /// A disc, a square, a triangle or a diamond: lines that lie on each other can be told apart, and by those who see no colours.
    pub(super) fn mark(self) -> &'static str {
        let number = if let Self::Number(number) = self { number } else { 0 };
        [
            "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
            "m-3-3h6v6h-6z",
            "m0-4.5l4.5 8h-9z",
            "m0-4.5l4.5 4.5-4.5 4.5-4.5-4.5z",
        ][number % 4]
    }
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A line through them, with marks where it has a number.
    Line,
    /// From one to the next across, then up or down. What the eye would not see is left out.
    Steps,
    /// The area that they enclose.
    Area,
    /// Marks alone.
    Marks,
    /// This mark at those that can be seen: of each column of pixels the lowest, the highest and two between, chosen blindly.
    Dots(&'static str),
    /// A line across the frame at the height of each; its label stands above or below.
    Across { is_above: bool },
    /// A line down the frame at each; its label stands beside it.
    Down,
}

/// What is drawn in a diagram.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) look: Look,
    pub(crate) shape: Shape,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) label: String,
}

impl Series {
    /// Counts and times.
    pub(crate) fn new(shape: Shape, look: Look, points: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| (x as f64, y as f64)).collect();
        Self { look, shape, points, label: String::new() }
    }

    /// A line with marks.
    pub(crate) fn line(number: usize, points: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self::new(Shape::Line, Look::Number(number), points)
    }

    /// A line across or down the frame at this value.
    pub(crate) fn limit(shape: Shape, class: &'static str, value: u64, label: String) -> Self {
        Self { label, ..Self::new(shape, Look::Named(class), [(value, value)]) }
    }

    fn draw(&self, frame: &Frame) -> Markup {
        let Frame { left, right, top, bottom, .. } = *frame;
        let points = || self.points.iter().map(|&(x, y)| (frame.x(x), frame.y(y)));
        let [first_x, first_y] = points().next().map_or([left, top], |(x, y)| [x, y]);
        let is_right = first_x > f64::midpoint(left, right);
        let (class, path, mark, [x, y, anchor]) = match self.shape {
            Shape::Line => {
                let mark = if let Look::Number(_) = self.look { self.look.mark() } else { "" };
                ("line", polyline(points()), mark, [left, top, 0.0])
            }
            Shape::Steps => ("line steps", steps(points()), "", [left, top, 0.0]),
            Shape::Area => ("area", polyline(points()) + "Z", "", [left, top, 0.0]),
            Shape::Marks => ("", String::new(), self.look.mark(), [left, top, 0.0]),
            Shape::Dots(mark) => ("dots", marks(thinned(points()), mark), "", [left, top, 0.0]),
            Shape::Across { is_above: true } => {
                ("line", across(left, right, first_y), "", [right - 3.0, (first_y - 4.0).max(top + 8.0), 1.0])
            }
            Shape::Across { is_above: false } => {
                ("line", across(left, right, first_y), "", [left + 4.0, (first_y + 12.0).min(bottom - 3.0), 0.0])
            }
            Shape::Down => {
                let x = if is_right { first_x - 4.0 } else { first_x + 4.0 };
                ("line", down(first_x, top, bottom), "", [x, top + 11.0, f64::from(u8::from(is_right))])
            }
        };
        html! {
            @if !self.points.is_empty() {
                g class=(self.look.class()) {
                    @if !path.is_empty() { path class=(class) d=(path) {} }
                    @if !mark.is_empty() { path.mark d=(marks(points(), mark)) {} }
                }
                @if !self.label.is_empty() {
                    text class=(if anchor > 0.0 { "end limit" } else { "limit" }) x=(short(x)) y=(short(y)) { (self.label) }
                }
            }
        }
    }
}

/// The inside of a diagram: where a value stands, and how much room labels need beside each other, across and up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    pub(crate) room: [f64; 2],
    pub(crate) scales: [Scale; 2],
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.left + self.scales[0].position(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.scales[1].position(value) * (self.bottom - self.top)
    }
}

/// One diagram.
#[derive(Clone, Debug)]
pub(crate) struct Diagram {
    pub(crate) heading: String,
    /// In its upper right corner; the unit of its axis up, for example.
    pub(crate) corner: String,
    /// Below its axis across.
    pub(crate) below: &'static str,
    /// Across and up.
    pub(crate) scales: [Scale; 2],
    pub(crate) units: [Unit; 2],
    pub(crate) series: Vec<Series>,
    /// In its upper left corner.
    pub(crate) inside: &'static str,
}

/// Of diagrams with a heading: the height, and how far from the edges the frame is.
pub(crate) const CARD: f64 = 300.0;
const EDGES: [f64; 4] = [76.0, 26.0, 46.0, 50.0];

impl Diagram {
    /// Linear axes around lines, as far up as `least_top` at least. Of both axes: the title, and what labels divide by.
    pub(crate) fn of_lines(
        heading: impl Into<String>,
        (below, x_unit): (&'static str, u32),
        (corner, y_unit): (&str, u32),
        least_top: u64,
        lines: impl IntoIterator<Item = Series>,
    ) -> Self {
        let mut series: Vec<Series> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
        let points = || series.iter().flat_map(|line| line.points.iter().copied());
        let up = Scale::around(points().map(|point| point.1), least_top as f64);
        let scales = [Scale::exact(points().map(|point| point.0).fold(0.0, f64::max)), up];
        if up.low < 0.0 {
            series.insert(0, Series::limit(Shape::Across { is_above: true }, "zero", 0, String::new()));
        }
        let units = [Unit::Number(x_unit), Unit::Number(y_unit)];
        Self { heading: heading.into(), corner: corner.to_owned(), below, scales, units, series, inside: "" }
    }

    /// In words, for those who do not see it: where each line that has a name begins, ends and is highest.
    pub(crate) fn said(&self, names: &[(Look, String)]) -> String {
        let mut text = format!("{}, in {}: ", self.heading, self.corner);
        for line in &self.series {
            let (Look::Number(number) | Look::Dotted(number)) = line.look else { continue };
            let Some((_, name)) = names.iter().find(|(look, _)| *look == Look::Number(number)) else { continue };
            let [Some(first), Some(last)] = [line.points.first(), line.points.last()] else { continue };
            let highest = line.points.iter().map(|point| point.1).fold(f64::MIN, f64::max);
            let [first, highest, last] = [first.1, highest, last.1].map(|value| self.units[1].label(value));
            let _ = write!(text, "{name} from {first} over at most {highest} to {last}. ");
        }
        text
    }

    /// True if its heading has no room in half of a page.
    pub(super) fn is_wide(&self) -> bool {
        fitting(&self.heading, (INSIDE / 2.0 - 110.0) * 0.88) != self.heading
    }

    /// On a card of its own; two stand beside each other unless they are wide.
    pub(crate) fn block(&self, is_wide: bool, height: f64) -> Block {
        let width = if is_wide { INSIDE } else { (INSIDE - GAP) / 2.0 };
        let last = self.units[0].label(self.scales[0].high).chars().count();
        let room = if let Unit::Nanos = self.units[0] { 56.0 } else { 12.0 + 6.0 * last as f64 };
        let [left, right, top, bottom] = EDGES;
        let (right, bottom, scales) = (width - right, height - bottom, self.scales);
        let said = 7.6 * self.heading.chars().count() as f64;
        let content = html! {
            text.heading x="14" y="25" { (fitting(&self.heading, (width - 28.0) * 0.88)) }
            text.end x=(short(right)) y="25" { (fitting(&self.corner, (right - 34.0 - said).max(70.0))) }
            (self.draw(Frame { left, right, top, bottom, room: [room, 22.0], scales }))
        };
        Block { is_wide, height, content }
    }

    /// The axes and what is drawn between them.
    pub(crate) fn draw(&self, frame: Frame) -> Markup {
        let Frame { left, right, top, bottom, room, scales: [across_scale, up] } = frame;
        let columns = across_scale.ticks(right - left, room[0]);
        let rows = up.ticks(bottom - top, room[1]);
        let mut grid: String = columns.iter().map(|&value| down(frame.x(value), top, bottom)).collect();
        grid.extend(rows.iter().map(|&value| across(left, right, frame.y(value))));
        html! {
            @for area in self.series.iter().filter(|series| series.shape == Shape::Area) { (area.draw(&frame)) }
            path.grid d=(grid) {}
            g aria-hidden="true" {
                @for value in columns {
                    text.middle x=(short(frame.x(value))) y=(short(bottom + 16.0)) { (self.units[0].label(value)) }
                }
                @for value in rows {
                    text.end x=(short(left - 6.0)) y=(short(frame.y(value) + 4.0)) { (self.units[1].label(value)) }
                }
                @if !self.below.is_empty() {
                    text.middle x=(short(f64::midpoint(left, right))) y=(short(bottom + 36.0)) { (self.below) }
                }
            }
            @for series in self.series.iter().filter(|series| series.shape != Shape::Area) { (series.draw(&frame)) }
            @if !self.inside.is_empty() { text x=(short(left + 12.0)) y=(short(top + 18.0)) { (self.inside) } }
        }
    }
}

/// A line through points.
pub(super) fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let _ = write!(path, "{}{} {}", if path.is_empty() { 'M' } else { 'L' }, short(x), short(y));
    }
    path
}

/// A curve of steps, no longer than the frame is large.
pub(super) fn steps(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    const SEEN: f64 = 0.7;
    let mut points = points.into_iter();
    let Some(mut drawn) = points.next() else { return String::new() };
    let mut path = format!("M{} {}", short(drawn.0), short(drawn.1));
    let mut points = points.peekable();
    while let Some((x, y)) = points.next() {
        if points.peek().is_none() || (x - drawn.0).abs() >= SEEN || (y - drawn.1).abs() >= SEEN {
            let _ = write!(path, "H{}V{}", short(x), short(y));
            drawn = (x, y);
        }
    }
    path
}

fn marks(points: impl IntoIterator<Item = (f64, f64)>, mark: &str) -> String {
    points.into_iter().map(|(x, y)| format!("M{} {}{mark}", short(x), short(y))).collect()
}

/// Of each column the lowest, the highest and two between, half a unit apart: finer than can be seen.
fn thinned(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let half = |y: f64| (y * 2.0).round() as i64;
    let mut sorted: Vec<(i64, i64)> = points.map(|(x, y)| (x.round() as i64, half(y))).collect();
    sorted.sort_unstable();
    let of_column = |column: &[(i64, i64)]| {
        let last = column.len() - 1;
        // Ranks that differ from column to column: the same ones would draw lines where there are none.
        let inner = |salt: u64| (scatter(column[0].0 as u64 * 2 + salt) % (last as u64 + 1)) as usize;
        let mut ranks = if last > 3 { vec![0, inner(0), inner(1), last] } else { (0..=last).collect() };
        ranks.sort_unstable();
        let mut shown: Vec<(i64, i64)> = ranks.into_iter().map(|rank| column[rank]).collect();
        shown.dedup();
        shown.into_iter().map(|(x, y)| (x as f64, y as f64 / 2.0))
    };
    sorted.chunk_by(|one, other| one.0 == other.0).flat_map(of_column).collect()
}

/// A number without a pattern for each number, always the same one.
fn scatter(number: u64) -> u64 {
    let mixed = (number.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A line from `from` to `to`, across.
pub(super) fn across(from: f64, to: f64, y: f64) -> String {
    format!("M{} {}H{}", short(from), short(y), short(to))
}

/// A line from `from` to `to`, down.
pub(crate) fn down(x: f64, from: f64, to: f64) -> String {
    format!("M{} {}V{}", short(x), short(from), short(to))
}
