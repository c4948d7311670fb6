//! The frame of a diagram, and what is drawn in it.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::page::GAP;
use super::scale::Scale;
use super::text::{CHARACTER, short};

/// The inside of a diagram: where a value stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    pub(crate) across: Scale,
    pub(crate) up: Scale,
}

impl Frame {
    /// Between these ends, across and up, with these scales.
    pub(crate) fn new([left, right]: [f64; 2], [top, bottom]: [f64; 2], across: Scale, up: Scale) -> Self {
        Self { left, right, top, bottom, across, up }
    }

    pub(crate) fn x(&self, value: u64) -> f64 {
        self.left + self.across.position(value) * (self.right - self.left)
    }

    pub(crate) fn y(&self, value: u64) -> f64 {
        self.bottom - self.up.position(value) * (self.bottom - self.top)
    }

    /// The values that have `room` for their labels beside each other, across and up.
    pub(crate) fn spaced(&self, room: [f64; 2]) -> [Vec<u64>; 2] {
        [self.across.spaced(self.right - self.left, room[0]), self.up.spaced(self.bottom - self.top, room[1])]
    }

    /// Lines and labels at values, across and up, and what the lower axis is.
    pub(crate) fn axes(
        &self,
        [columns, rows]: [Vec<u64>; 2],
        column_label: impl Fn(u64) -> String,
        row_label: impl Fn(u64) -> String,
        title: &str,
    ) -> Markup {
        let mut grid = String::new();
        for &value in &columns {
            let _ = write!(grid, "M{} {}V{}", short(self.x(value)), short(self.top), short(self.bottom));
        }
        for &value in &rows {
            let _ = write!(grid, "M{} {}H{}", short(self.left), short(self.y(value)), short(self.right));
        }
        html! {
            path.grid d=(grid) {}
            g aria-hidden="true" {
                @for value in columns {
                    text.middle x=(short(self.x(value))) y=(short(self.bottom + 16.0)) { (column_label(value)) }
                }
                @for value in rows {
                    text.end x=(short(self.left - 6.0)) y=(short(self.y(value) + 4.0)) { (row_label(value)) }
                }
                @if !title.is_empty() {
                    text.middle x=(short(f64::midpoint(self.left, self.right))) y=(short(self.bottom + 36.0)) { (title) }
                }
            }
        }
    }

    /// The points of values.
    pub(crate) fn points(&self, values: impl IntoIterator<Item = (u64, u64)>) -> impl Iterator<Item = (f64, f64)> {
        values.into_iter().map(|(across, up)| (self.x(across), self.y(up)))
    }
}

/// A line through points.
pub(crate) fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let _ = write!(path, "{}{} {}", if path.is_empty() { 'M' } else { 'L' }, short(x), short(y));
    }
    path
}

/// A curve of steps: across, then up or down, to one point after the other. What the eye would not see is left out, so that it is no
/// longer than the frame is large.
pub(crate) fn steps(points: impl IntoIterator<Item = (f64, f64)>) -> String {
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

/// A line from `from` to `to`, across.
pub(crate) fn across(from: f64, to: f64, y: f64) -> String {
    format!("M{} {}H{}", short(from), short(y), short(to))
}

/// A line from `from` to `to`, down.
pub(crate) fn down(x: f64, from: f64, to: f64) -> String {
    format!("M{} {}V{}", short(x), short(from), short(to))
}

/// A disc, a square, a triangle or a diamond: lines that lie on each other can be told apart, and by those who see no colours.
pub(crate) fn marker(class: usize, x: f64, y: f64) -> String {
    let at = |right: f64, down: f64| format!("M{} {}", short(x + right), short(y + down));
    match class % 4 {
        0 => at(-3.5, 0.0) + "a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        1 => at(-3.0, -3.0) + "h6v6h-6z",
        2 => at(0.0, -4.5) + "l4.5 8h-9z",
        _ => at(0.0, -4.5) + "l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    }
}

/// Where the entries of a legend stand, from the left one beside the other, each with `more` beside its name; what has no room begins
/// another row.
pub(crate) fn flow<'a>(
    names: impl IntoIterator<Item = &'a str>,
    (left, right): (f64, f64),
    more: f64,
) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (left, 0.0);
    let mut places = Vec::new();
    for name in names {
        let width = more + CHARACTER * name.chars().count() as f64;
        if x > left && x + width > right {
            (x, y) = (left, y + 20.0);
        }
        places.push((x, y));
        x += width;
    }
    places
}

/// A legend from the left at this height: for each name a piece of its line, of the class that `look` gives to its place, and the marker
/// of the place if `look` says so.
pub(crate) fn legend<'a>(
    names: impl IntoIterator<Item = &'a str> + Clone,
    ends: (f64, f64),
    top: f64,
    look: impl Fn(usize) -> (String, bool),
) -> Markup {
    let places = flow(names.clone(), ends, 58.0);
    html! {
        @for (place, (name, (x, y))) in names.into_iter().zip(places).enumerate() {
            @let (class, is_marked) = look(place);
            g class=(class) {
                path.line d=(across(x, x + 26.0, top + y)) {}
                @if is_marked { path.mark d=(marker(place, x + 13.0, top + y)) {} }
            }
            text.name x=(short(x + 34.0)) y=(short(top + y + 4.0)) { (name) }
        }
    }
}

/// The diagram of this number, of the given size: two stand beside each other, from `left` and `top` on.
pub(crate) fn tile(number: usize, [left, top]: [f64; 2], [width, height]: [f64; 2], diagram: Markup) -> Markup {
    let x = left + (width + GAP) * (number % 2) as f64;
    let y = top + (height + GAP) * (number / 2) as f64;
    html! { g transform={ "translate(" (short(x)) " " (short(y)) ")" } { (diagram) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_their_ends_and_leave_out_what_nobody_sees() {
        let points = [(0.0, 9.0), (0.3, 8.9), (5.0, 8.0), (5.1, 8.0), (5.2, 7.9)];
        assert_eq!(steps(points), "M0 9H5V8H5.2V7.9");
        assert_eq!((steps([]), polyline([(1.0, 2.0), (3.0, 4.0)])), (String::new(), "M1 2L3 4".to_owned()));
    }

    #[test]
    fn a_legend_breaks_where_there_is_no_room() {
        assert_eq!(flow(["ab", "cd", "ef"], (10.0, 70.0), 10.0), [(10.0, 0.0), (33.8, 0.0), (10.0, 20.0)]);
    }
}
