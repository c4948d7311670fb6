//! From a [`Picture`] to SVG. Positions are for a picture, so they are floating point; times stay integers.

use std::fmt::Write as _;

use laxity_core::units::Duration;
use maud::{Markup, html};

use super::style::STYLE;
use super::{Panel, Part, Picture, Row};
use crate::scale::Scale;
use crate::svg::{CHARACTER, Document, fitting, short};

const WIDTH: f64 = 880.0;
const MARGIN: f64 = 24.0;
const INSIDE: f64 = WIDTH - 2.0 * MARGIN;

/// Of a panel: its height, and the frame inside.
const PANEL: f64 = 268.0;
const LEFT: f64 = MARGIN + 76.0;
const RIGHT: f64 = WIDTH - MARGIN - 22.0;
const ABOVE: f64 = 36.0;
const BELOW: f64 = 44.0;
/// Most points of a curve: two for each unit of width.
const COLUMNS: u64 = (RIGHT - LEFT) as u64;

/// Of the rows: where the bars begin, where the limit stands, where bars that exceed it end, where the labels begin.
const BAR: f64 = MARGIN + 160.0;
const LIMIT: f64 = 600.0;
const LONGEST: f64 = 640.0;
const LABEL: f64 = 652.0;
const ROW: f64 = 32.0;
const THICK: f64 = 16.0;

const AXES: &str =
    "instant after all send at once; solid: when all that is due by then is done; dashed: the time there is";

/// The document.
pub(super) fn document(picture: &Picture) -> String {
    let mut at = 88.0;
    let mut parts = Vec::new();
    for panel in &picture.panels {
        parts.push(demand(panel, at));
        at += PANEL + 16.0;
    }
    let (rows, height) = bounds(picture, at);
    at += height + 14.0;
    let mut notes = Vec::new();
    for note in &picture.notes {
        notes.push((at + 8.0, note));
        at += 18.0;
    }
    let content = html! {
        @for part in parts { (part) }
        (rows)
        @for (at, note) in notes { text x=(MARGIN) y=(short(at)) { (fitting(note, INSIDE)) } }
    };
    Document {
        title: &picture.title,
        subtitle: &picture.subtitle,
        description: &description(picture),
        style: STYLE,
        width: WIDTH,
        height: at + 12.0,
        margin: MARGIN,
        content,
    }
    .text()
}

/// The picture in words, for those who do not see it.
fn description(picture: &Picture) -> String {
    let mut text = String::new();
    for panel in &picture.panels {
        let _ = write!(text, "{}. ", panel.heading);
    }
    let _ = write!(text, "{}: ", picture.heading);
    for row in &picture.rows {
        let _ = match &row.refused {
            Some(why) => write!(text, "{}: {} refused, {why}. ", row.name, row.label),
            None => write!(text, "{}: {}. ", row.name, row.label),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// One resource: what must be done by an instant, below the time that there is until then.
fn demand(panel: &Panel, top: f64) -> Markup {
    let (frame_top, bottom) = (top + ABOVE, top + PANEL - BELOW);
    let scale = scale(panel);
    let x = |value: u64| LEFT + scale.position(value) * (RIGHT - LEFT);
    let y = |value: u64| bottom - scale.position(value) * (bottom - frame_top);
    let (columns, rows) = (scale.spaced(RIGHT - LEFT, 64.0), scale.spaced(bottom - frame_top, 20.0));
    let mut grid = String::new();
    for &value in &columns {
        let _ = write!(grid, "M{} {}V{}", short(x(value)), short(frame_top), short(bottom));
    }
    for &value in &rows {
        let _ = write!(grid, "M{} {}H{}", short(LEFT), short(y(value)), short(RIGHT));
    }
    let (left, right, high, low) = (short(LEFT), short(RIGHT), short(frame_top), short(bottom));
    html! {
        rect.card x=(MARGIN) y=(short(top)) width=(INSIDE) height=(PANEL) rx="8" {}
        text.heading x=(MARGIN + 14.0) y=(short(top + 23.0)) { (fitting(&panel.heading, (INSIDE - 28.0) * 0.82)) }
        path.beyond d={ "M" (left) " " (low) "L" (right) " " (high) "H" (left) "Z" } {}
        path.grid d=(grid) {}
        path.capacity d={ "M" (left) " " (low) "L" (right) " " (high) } {}
        path.demand d=(steps(panel, scale, x, y)) {}
        @if let Some((at, done)) = panel.tightest {
            circle.tightest cx=(short(x(at))) cy=(short(y(done))) r="4" {}
        }
        text x=(short(LEFT + 12.0)) y=(short(frame_top + 18.0)) { "more than there is time for" }
        g aria-hidden="true" {
            @for &value in &columns {
                text.middle x=(short(x(value))) y=(short(bottom + 17.0)) { (label(value)) }
            }
            @for &value in &rows {
                text.end x=(short(LEFT - 8.0)) y=(short(y(value) + 4.0)) { (label(value)) }
            }
            text.middle x=(short(f64::midpoint(LEFT, RIGHT))) y=(short(bottom + 35.0)) { (AXES) }
        }
    }
}

/// The scale of both axes: logarithmic if the first instants would be squeezed into a corner.
fn scale(panel: &Panel) -> Scale {
    let first = panel.points.iter().map(|&(at, done)| at.min(done)).min().unwrap_or(0).max(1);
    match panel.end / 20 > first {
        true => Scale::Log { low: first / 2 + 1, high: panel.end },
        false => Scale::exact(panel.end),
    }
}

/// The demand as steps, of each column of pixels the first and the highest.
fn steps(panel: &Panel, scale: Scale, x: impl Fn(u64) -> f64, y: impl Fn(u64) -> f64) -> String {
    let mut path = format!("M{} {}", short(x(0)), short(y(0)));
    let column = |at: u64| (scale.position(at) * COLUMNS as f64) as u64;
    let shown: Vec<(u64, u64)> = panel.points.iter().copied().filter(|point| point.0 <= panel.end).collect();
    let mut last = 0;
    for points in shown.chunk_by(|one, other| column(one.0) == column(other.0)) {
        let highest = points.iter().copied().max_by_key(|point| point.1).unwrap_or(points[0]);
        for (at, done) in if highest == points[0] { vec![highest] } else { vec![points[0], highest] } {
            let _ = write!(path, "H{}V{}", short(x(at)), short(y(done)));
            last = at;
        }
    }
    if last < panel.end {
        let _ = write!(path, "H{}", short(x(panel.end)));
    }
    path
}

/// The rows with their legend, and how high they are together.
fn bounds(picture: &Picture, top: f64) -> (Markup, f64) {
    let kinds = kinds(&picture.rows);
    let legend = Legend::of(&kinds);
    let first = top + 64.0;
    let bottom = first + ROW * picture.rows.len() as f64;
    let height = bottom + 34.0 + legend.height - top;
    let mut grid = String::new();
    for quarter in 0..4 {
        let x = BAR + (LIMIT - BAR) * f64::from(quarter) / 4.0;
        let _ = write!(grid, "M{} {}V{}", short(x), short(first), short(bottom));
    }
    let markup = html! {
        rect.card x=(MARGIN) y=(short(top)) width=(INSIDE) height=(short(height)) rx="8" {}
        text.heading x=(MARGIN + 14.0) y=(short(top + 23.0)) { (picture.heading) }
        text.middle x=(LIMIT) y=(short(first - 10.0)) { (picture.limit) }
        path.grid d=(grid) {}
        @for (index, row) in picture.rows.iter().enumerate() {
            (bar(row, first + ROW * index as f64))
        }
        g aria-hidden="true" {
            @for quarter in 0..=4_u8 {
                @let x = BAR + (LIMIT - BAR) * f64::from(quarter) / 4.0;
                text.middle x=(short(x)) y=(short(bottom + 16.0)) { (quarter * 25) " %" }
            }
        }
        (legend.draw(&kinds, bottom + 30.0))
    };
    (markup, height)
}

/// One part of each name, in the order of their colours.
fn kinds(rows: &[Row]) -> Vec<&Part> {
    let mut kinds: Vec<&Part> = Vec::new();
    for part in rows.iter().flat_map(|row| &row.parts) {
        if part.amount > 0 && !kinds.iter().any(|other| other.name == part.name) {
            kinds.push(part);
        }
    }
    kinds.sort_by_key(|part| part.colour);
    kinds
}

fn bar(row: &Row, top: f64) -> Markup {
    let middle = top + ROW / 2.0;
    let (edge, baseline) = (middle - THICK / 2.0, short(middle + 4.0));
    let x = |nanos: u64| BAR + nanos as f64 / row.limit.max(1) as f64 * (LIMIT - BAR);
    let mut begin = 0_u64;
    let mut pieces = Vec::new();
    for part in &row.parts {
        let end = begin.saturating_add(part.amount);
        let (from, to) = (x(begin).min(LONGEST), x(end).min(LONGEST));
        if to > from {
            pieces.push((part.colour, from, to - from));
        }
        begin = end;
    }
    let is_cut = x(begin) > LONGEST;
    let room = LIMIT - BAR - 12.0;
    html! {
        text.name x=(MARGIN + 14.0) y=(baseline) { (middle_cut(&row.name, BAR - MARGIN - 22.0)) }
        rect.track x=(BAR) y=(short(edge)) width=(LIMIT - BAR) height=(THICK) {}
        @for (colour, from, width) in pieces {
            rect class={ "c" (colour) } x=(short(from)) y=(short(edge)) width=(short(width)) height=(THICK) {}
        }
        @if is_cut {
            path.over d={ "M" (LONGEST) " " (short(edge)) "l7 8l-7 8z" } {}
        }
        @if let Some(why) = &row.refused {
            @if row.parts.is_empty() {
                rect.none x=(BAR) y=(short(edge)) width=(LIMIT - BAR) height=(THICK) {}
                text.refused x=(BAR + 8.0) y=(baseline) { (fitting(&format!("refused: {why}"), room)) }
            }
        }
        path.limit d={ "M" (LIMIT) " " (short(edge - 4.0)) "v" (THICK + 8.0) } {}
        @let refused = row.refused.is_some();
        @let said = if refused && !row.parts.is_empty() { format!("refused: {}", row.label) } else { row.label.clone() };
        text class=(if refused { "refused" } else { "name" }) x=(LABEL) y=(baseline) {
            (fitting(&said, WIDTH - MARGIN - 8.0 - LABEL))
        }
    }
}

/// Where the entries of the legend stand, so that none overlap.
struct Legend {
    places: Vec<(f64, f64)>,
    height: f64,
}

impl Legend {
    fn of(kinds: &[&Part]) -> Self {
        let (mut x, mut y) = (BAR, 0.0);
        let mut places = Vec::new();
        for kind in kinds {
            let width = 34.0 + CHARACTER * kind.name.chars().count() as f64;
            if x > BAR && x + width > WIDTH - MARGIN {
                (x, y) = (BAR, y + 20.0);
            }
            places.push((x, y));
            x += width;
        }
        Self { places, height: if kinds.is_empty() { 0.0 } else { y + 24.0 } }
    }

    fn draw(&self, kinds: &[&Part], top: f64) -> Markup {
        html! {
            @for (kind, &(x, y)) in kinds.iter().zip(&self.places) {
                rect class={ "c" (kind.colour) } x=(short(x)) y=(short(top + y)) width="12" height="12" rx="2" {}
                text x=(short(x + 18.0)) y=(short(top + y + 10.5)) { (kind.name) }
            }
        }
    }
}

fn label(nanos: u64) -> String {
    if nanos == 0 { "0".to_owned() } else { Duration::from_nanos(nanos).to_string() }
}

/// `name`, cut in its middle: names often differ at their ends.
fn middle_cut(name: &str, room: f64) -> String {
    let (most, count) = ((room / CHARACTER) as usize, name.chars().count());
    if count <= most {
        return name.to_owned();
    }
    let head = most / 2;
    let tail = count - (most - head - 1);
    name.chars().take(head).chain(['…']).chain(name.chars().skip(tail)).collect()
}
