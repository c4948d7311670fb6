//! The page: what a picture is, what is drawn, notes below it, and the colours that all pictures share.

use maud::{Markup, PreEscaped, html};

use super::text::{fitting, lines, short};

/// On both sides of a page.
pub(crate) const MARGIN: f64 = 24.0;
/// Between diagrams.
pub(crate) const GAP: f64 = 16.0;
/// Between the lines of notes.
const LINE: f64 = 17.0;

/// A document of its own.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    pub(crate) subtitle: &'a str,
    /// The picture in words, for those who do not see it.
    pub(crate) description: &'a str,
    /// Rules beside those that all pages share.
    pub(crate) style: &'static str,
    pub(crate) width: f64,
    /// What is drawn, down to `bottom`.
    pub(crate) content: Markup,
    pub(crate) bottom: f64,
    pub(crate) notes: &'a [String],
}

impl Page<'_> {
    /// As SVG.
    pub(crate) fn svg(&self) -> String {
        let inside = self.width - 2.0 * MARGIN;
        let notes: Vec<String> = self.notes.iter().flat_map(|note| lines(note, inside)).collect();
        let first = self.bottom + 26.0;
        let (width, height) = (self.width, short(first + LINE * notes.len() as f64));
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height)
                role="img" aria-labelledby="title" aria-describedby="description" {
                title id="title" { (self.title) }
                desc id="description" { (self.description.trim_end()) }
                style { (PreEscaped(STYLE)) (PreEscaped(self.style)) }
                rect.page width=(width) height=(height) {}
                text.title x=(MARGIN) y="36" { (fitting(self.title, inside * 0.66)) }
                text x=(MARGIN) y="60" { (fitting(self.subtitle, inside)) }
                (self.content)
                @for (place, line) in notes.iter().enumerate() {
                    text x=(MARGIN) y=(short(first + LINE * place as f64)) { (line) }
                }
            }
        };
        format!("{}\n", markup.into_string())
    }
}

/// Plain classes, which every renderer knows; one that knows about dark follows it.
const STYLE: &str = include_str!("style.css");
