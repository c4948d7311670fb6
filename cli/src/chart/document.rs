//! A picture as a document of its own, and the colours that all pictures share.

use maud::{Markup, PreEscaped, html};

use super::diagram::{CARD, Diagram, Look, across};
use super::text::{CHARACTER, fitting, lines, short};

/// Of a page, on both sides of it, and of what stands between.
pub(crate) const WIDTH: f64 = 960.0;
pub(crate) const MARGIN: f64 = 24.0;
pub(crate) const INSIDE: f64 = WIDTH - 2.0 * MARGIN;
/// Between diagrams.
pub(crate) const GAP: f64 = 16.0;
/// Between the lines of notes, and of legends.
const LINE: f64 = 18.0;
/// Plain classes, which every renderer knows; one that knows about dark follows it.
pub(crate) const STYLE: &str = include_str!("style.css");

/// A document of its own.
#[derive(Default)]
pub(crate) struct Picture {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// In words, for those who do not see it.
    pub(crate) description: String,
    pub(crate) legend: Vec<(Look, String)>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) notes: Vec<String>,
}

/// A card in a picture.
pub(crate) struct Block {
    /// Otherwise two stand beside each other.
    pub(crate) is_wide: bool,
    pub(crate) height: f64,
    pub(crate) content: Markup,
}

/// The entries of a legend, by their numbers.
pub(crate) fn names<T: ToString>(names: impl IntoIterator<Item = T>) -> Vec<(Look, String)> {
    names.into_iter().enumerate().map(|(number, name)| (Look::Number(number), name.to_string())).collect()
}

impl Picture {
    /// Of diagrams with one legend, which is the description, too.
    pub(crate) fn of_diagrams(
        title: String,
        subtitle: String,
        legend: Vec<(Look, String)>,
        diagrams: &[Diagram],
        notes: Vec<String>,
    ) -> Self {
        let description = diagrams.iter().map(|diagram| diagram.said(&legend)).collect();
        let blocks = diagrams.iter().map(|diagram| diagram.block(diagram.is_wide(), CARD)).collect();
        Self { title, subtitle, description, legend, blocks, notes }
    }

    /// As SVG.
    pub(crate) fn svg(&self) -> String {
        let notes: Vec<String> = self.notes.iter().flat_map(|note| lines(note, INSIDE)).collect();
        let subtitle = lines(&self.subtitle, INSIDE);
        let below = 42.0 + LINE * subtitle.len().max(1) as f64;
        let (entries, used) = legend(&self.legend, [MARGIN, WIDTH - MARGIN]);
        let mut bottom = below + if used > 0.0 { 26.0 + used } else { 20.0 } - GAP;
        let mut right = None;
        let mut cards = Vec::new();
        for Block { is_wide, height, content } in &self.blocks {
            let (x, y) = right.take().filter(|_| !is_wide).unwrap_or((MARGIN, bottom + GAP));
            let width = if *is_wide { INSIDE } else { (INSIDE - GAP) / 2.0 };
            if x == MARGIN && !is_wide {
                right = Some((MARGIN + width + GAP, y));
            }
            bottom = bottom.max(y + height);
            cards.push(html! {
                g transform={ "translate(" (short(x)) " " (short(y)) ")" } {
                    rect.card width=(short(width)) height=(short(*height)) rx="8" {}
                    (content)
                }
            });
        }
        let first = bottom + 26.0;
        let height = short(first + LINE * notes.len() as f64);
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) height=(height)
                role="img" aria-labelledby="title" aria-describedby="description" {
                title id="title" { (self.title) }
                desc id="description" { (self.description.trim_end()) }
                style { (PreEscaped(STYLE)) }
                rect.page width=(WIDTH) height=(height) {}
                text.title x=(MARGIN) y="36" { (fitting(&self.title, INSIDE * 0.66)) }
                @for (place, line) in subtitle.iter().enumerate() { text x=(MARGIN) y=(60.0 + LINE * place as f64) { (line) } }
                g transform={ "translate(0 " (below + 26.0) ")" } { (entries) }
                @for card in cards { (card) }
                @for (place, line) in notes.iter().enumerate() {
                    text x=(MARGIN) y=(short(first + LINE * place as f64)) { (line) }
                }
            }
        };
        format!("{}\n", markup.into_string())
    }
}

/// The entries of a legend beside each other between both ends; what has no room begins another row. And how high they are together.
pub(crate) fn legend(entries: &[(Look, String)], [left, right]: [f64; 2]) -> (Markup, f64) {
    let (mut x, mut y) = (left, 0.0);
    let mut places = Vec::new();
    for (look, name) in entries {
        let piece = if let Look::Part(_) = look { 18.0 } else { 34.0 };
        let width = piece + 24.0 + CHARACTER * name.chars().count() as f64;
        if x > left && x + width - 24.0 > right {
            (x, y) = (left, y + LINE);
        }
        places.push((look, name, x, y, piece));
        x += width;
    }
    let markup = html! {
        @for (look, name, x, y, piece) in places {
            g class=(look.class()) {
                @match look {
                    Look::Part(_) => rect.part x=(short(x)) y=(short(y - 6.0)) width="12" height="12" rx="2" {},
                    _ => path.line d=(across(x, x + 26.0, y)) {},
                }
                @if let Look::Number(_) = look { path.mark d={ "M" (short(x + 13.0)) " " (short(y)) (look.mark()) } {} }
            }
            text.name x=(short(x + piece)) y=(short(y + 4.0)) { (name) }
        }
    };
    (markup, if entries.is_empty() { 0.0 } else { y + LINE })
}

/// A piece of the line of this number, for a legend beside the picture.
pub(crate) fn swatch(number: usize) -> Markup {
    html! {
        svg.swatch viewBox="0 0 34 10" aria-hidden="true" {
            g class={ "s" (number) } { path.line.steps d="M1 5H33" {} }
        }
    }
}
