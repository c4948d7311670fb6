//! From a [`Picture`] to SVG. Positions are for a picture, so they are floating point; times stay integers.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{Panel, Part, Picture, Row};
use crate::chart::{Frame, MARGIN, Page, Scale, down, fitting, flow, middle_cut, nanos, short, steps};

/// The colours of demand, limits and parts of bounds.
const STYLE: &str = include_str!("style.css");
const WIDTH: f64 = 880.0;
const INSIDE: f64 = WIDTH - 2.0 * MARGIN;

/// Of a panel: its height, and the frame inside.
const PANEL: f64 = 268.0;
const LEFT: f64 = MARGIN + 76.0;
const RIGHT: f64 = WIDTH - MARGIN - 22.0;
const ABOVE: f64 = 36.0;
const BELOW: f64 = 44.0;

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
    let first = 88.0;
    let rows = first + (PANEL + 16.0) * picture.panels.len() as f64;
    let (bounds, height) = bounds(picture, rows);
    let content = html! {
        @for (place, panel) in picture.panels.iter().enumerate() { (demand(panel, first + (PANEL + 16.0) * place as f64)) }
        (bounds)
    };
    let (title, subtitle, description) = (&picture.title, &picture.subtitle, &description(picture));
    let bottom = rows + height;
    Page { title, subtitle, description, style: STYLE, width: WIDTH, content, bottom, notes: &picture.notes }.svg()
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
    text
}

/// One resource: what must be done by an instant, below the time that there is until then.
fn demand(panel: &Panel, top: f64) -> Markup {
    let (frame_top, bottom, scale) = (top + ABOVE, top + PANEL - BELOW, scale(panel));
    let frame = Frame { left: LEFT, right: RIGHT, top: frame_top, bottom, across: scale, up: scale };
    let (left, right, high, low) = (short(LEFT), short(RIGHT), short(frame_top), short(bottom));
    let shown = panel.points.iter().copied().filter(|point| point.0 <= panel.end);
    let last = shown.clone().map(|point| point.1).next_back().unwrap_or(0);
    let demand = [(0, 0)].into_iter().chain(shown).chain([(panel.end, last)]);
    html! {
        rect.card x=(MARGIN) y=(short(top)) width=(INSIDE) height=(PANEL) rx="8" {}
        text.heading x=(MARGIN + 14.0) y=(short(top + 23.0)) { (fitting(&panel.heading, (INSIDE - 28.0) * 0.82)) }
        path.beyond d={ "M" (left) " " (low) "L" (right) " " (high) "H" (left) "Z" } {}
        (frame.axes(frame.spaced([64.0, 20.0]), nanos, nanos, AXES))
        path.capacity d={ "M" (left) " " (low) "L" (right) " " (high) } {}
        path.demand d=(steps(frame.points(demand))) {}
        @if let Some((at, done)) = panel.tightest {
            circle.tightest cx=(short(frame.x(at))) cy=(short(frame.y(done))) r="4" {}
        }
        text x=(short(LEFT + 12.0)) y=(short(frame_top + 18.0)) { "more than there is time for" }
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

/// The rows with their legend, and how high they are together.
fn bounds(picture: &Picture, top: f64) -> (Markup, f64) {
    let kinds = kinds(&picture.rows);
    let legend = flow(kinds.iter().map(|kind| kind.name.as_str()), (BAR, WIDTH - MARGIN), 34.0);
    let first = top + 64.0;
    let bottom = first + ROW * picture.rows.len() as f64;
    let height = bottom + 34.0 + legend.last().map_or(0.0, |place| place.1 + 24.0) - top;
    let at = |quarter: u8| BAR + (LIMIT - BAR) * f64::from(quarter) / 4.0;
    let markup = html! {
        rect.card x=(MARGIN) y=(short(top)) width=(INSIDE) height=(short(height)) rx="8" {}
        text.heading x=(MARGIN + 14.0) y=(short(top + 23.0)) { (picture.heading) }
        text.middle x=(LIMIT) y=(short(first - 10.0)) { (picture.limit) }
        path.grid d=((0..4).map(|quarter| down(at(quarter), first, bottom)).collect::<String>()) {}
        @for (index, row) in picture.rows.iter().enumerate() {
            (bar(row, first + ROW * index as f64))
        }
        g aria-hidden="true" {
            @for quarter in 0..=4_u8 {
                @let x = BAR + (LIMIT - BAR) * f64::from(quarter) / 4.0;
                text.middle x=(short(x)) y=(short(bottom + 16.0)) { (quarter * 25) " %" }
            }
        }
        @for (kind, (x, y)) in kinds.iter().zip(legend) {
            rect class={ "c" (kind.colour) } x=(short(x)) y=(short(bottom + 30.0 + y)) width="12" height="12" rx="2" {}
            text x=(short(x + 18.0)) y=(short(bottom + 40.5 + y)) { (kind.name) }
        }
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
