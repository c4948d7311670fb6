//! From an answer to a picture: bars for bounds, a diagram for each resource.

use maud::{Markup, html};

use super::{Part, Picture, Row};
use crate::chart::{
    self, Block, Diagram, Look, MARGIN, Scale, Series, Shape, Unit, WIDTH, down, fitting, legend, middle_cut, short,
};

/// Where the bars begin, where the limit stands, where bars that exceed it end, where the labels begin; from the edge of their card.
const BAR: f64 = 170.0;
const LIMIT: f64 = 640.0;
const LONGEST: f64 = 680.0;
const LABEL: f64 = 696.0;
const END: f64 = WIDTH - 2.0 * MARGIN - 12.0;
const FIRST: f64 = 64.0;
const ROW: f64 = 32.0;
const THICK: f64 = 16.0;

/// The picture as an SVG document.
pub(super) fn document(picture: Picture) -> String {
    let Picture { title, subtitle, demand, heading, limit, rows, notes } = picture;
    let resources = demand.iter().map(|of| format!("{}. ", of.heading));
    let said = rows.iter().map(|row| match &row.refused {
        Some(why) => format!("{}: {} refused, {why}. ", row.name, row.label),
        None => format!("{}: {}. ", row.name, row.label),
    });
    let description = resources.chain([format!("{heading}: ")]).chain(said).collect();
    let blocks = demand.iter().map(|of| of.block(true, 270.0)).chain([bounds(&heading, limit, &rows)]).collect();
    chart::Picture { title, subtitle, description, blocks, notes, ..chart::Picture::default() }.svg()
}

/// One resource: what must be done by an instant, below the time that there is until then.
/// `tightest` is the point with the least room, `end` that of both axes; `points` are instants, and when all that is due by then is done.
pub(super) fn demand(heading: String, points: &[(u64, u64)], tightest: Option<(u64, u64)>, end: u64) -> Diagram {
    // Logarithmic if the first instants would be squeezed into a corner.
    let first = points.iter().map(|&(at, done)| at.min(done)).min().unwrap_or(0).max(1);
    let scale = match end / 20 > first {
        true => Scale::log_exact((first / 2 + 1) as f64, end as f64),
        false => Scale::exact(end as f64),
    };
    let shown = points.iter().copied().filter(|point| point.0 <= end);
    let last = shown.clone().map(|point| point.1).next_back().unwrap_or(0);
    let series = vec![
        Series::new(Shape::Area, Look::Named("beyond"), [(0, 0), (end, end), (0, end)]),
        Series::new(Shape::Line, Look::Named("time"), [(0, 0), (end, end)]),
        Series::new(Shape::Steps, Look::Number(0), [(0, 0)].into_iter().chain(shown).chain([(end, last)])),
        Series::new(Shape::Marks, Look::Named("tightest"), tightest),
    ];
    Diagram {
        heading,
        corner: String::new(),
        below: "instant after all send at once; solid: when all that is due by then is done; dashed: the time there is",
        scales: [scale; 2],
        units: [Unit::Nanos; 2],
        series,
        inside: "more than there is time for",
    }
}

/// The rows with their legend.
fn bounds(heading: &str, limit: &str, rows: &[Row]) -> Block {
    let bottom = FIRST + ROW * rows.len() as f64;
    let (entries, height) = legend(&kinds(rows), [BAR, END]);
    let at = |quarter: u8| BAR + (LIMIT - BAR) * f64::from(quarter) / 4.0;
    let content = html! {
        text.heading x="14" y="23" { (heading) }
        text.middle x=(LIMIT) y=(FIRST - 10.0) { (limit) }
        path.grid d=((0..4).map(|quarter| down(at(quarter), FIRST, bottom)).collect::<String>()) {}
        @for (index, row) in rows.iter().enumerate() { (bar(row, FIRST + ROW * index as f64)) }
        g aria-hidden="true" {
            @for quarter in 0..=4_u8 {
                text.middle x=(short(at(quarter))) y=(short(bottom + 16.0)) { (quarter * 25) " %" }
            }
        }
        g transform={ "translate(0 " (short(bottom + 38.0)) ")" } { (entries) }
    };
    Block { is_wide: true, height: bottom + 36.0 + height, content }
}

/// One part of each name, in the order of their colours.
fn kinds(rows: &[Row]) -> Vec<(Look, String)> {
    let mut parts: Vec<&Part> = rows.iter().flat_map(|row| &row.parts).filter(|part| part.amount > 0).collect();
    parts.sort_by_key(|part| part.colour);
    let mut kinds: Vec<(Look, String)> = Vec::new();
    for part in parts {
        if kinds.iter().all(|(_, name)| *name != part.name) {
            kinds.push((Look::Part(part.colour), part.name.clone()));
        }
    }
    kinds
}

fn bar(row: &Row, top: f64) -> Markup {
    let middle = top + ROW / 2.0;
    let (edge, baseline) = (short(middle - THICK / 2.0), short(middle + 4.0));
    let x = |nanos: u64| (BAR + nanos as f64 / row.limit.max(1) as f64 * (LIMIT - BAR)).min(LONGEST);
    let mut end = 0_u64;
    let pieces = row.parts.iter().map(|part| {
        let from = x(end);
        end = end.saturating_add(part.amount);
        (part.colour, from, x(end) - from)
    });
    let pieces: Vec<_> = pieces.filter(|(.., width)| *width > 0.0).collect();
    let is_refused = row.refused.is_some();
    let said = if is_refused && !pieces.is_empty() { format!("refused: {}", row.label) } else { row.label.clone() };
    html! {
        text.name x="14" y=(baseline) { (middle_cut(&row.name, BAR - 22.0)) }
        rect.track x=(BAR) y=(edge) width=(LIMIT - BAR) height=(THICK) {}
        @for (colour, from, width) in &pieces {
            g class={ "c" (colour) } { rect.part x=(short(*from)) y=(edge) width=(short(*width)) height=(THICK) {} }
        }
        @if x(end) >= LONGEST { g.refused { path.area d={ "M" (LONGEST) " " (edge) "l7 8l-7 8z" } {} } }
        @if let Some(why) = row.refused.as_ref().filter(|_| pieces.is_empty()) {
            g.refused.none { rect.line x=(BAR) y=(edge) width=(LIMIT - BAR) height=(THICK) {} }
            text.refused x=(BAR + 8.0) y=(baseline) { (fitting(&format!("refused: {why}"), LIMIT - BAR - 12.0)) }
        }
        g.claimed { path.line d=(down(LIMIT, middle - 12.0, middle + 12.0)) {} }
        text class=(if is_refused { "refused" } else { "name" }) x=(LABEL) y=(baseline) { (fitting(&said, END - LABEL)) }
    }
}
