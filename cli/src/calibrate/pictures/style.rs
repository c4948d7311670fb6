//! What both pictures share: the page and its colours.

use maud::{Markup, html};

use crate::svg::{Document, lines, short};

pub(super) const WIDTH: f64 = 960.0;
pub(super) const MARGIN: f64 = 24.0;
pub(super) const INSIDE: f64 = WIDTH - 2.0 * MARGIN;
pub(super) const GAP: f64 = 16.0;
/// Where the content begins.
pub(super) const TOP: f64 = 84.0;
const LINE: f64 = 17.0;

/// A page: what it is, what it says in words, and what is drawn down to `bottom`; notes below.
pub(super) struct Page {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) description: String,
    pub(super) content: Markup,
    pub(super) bottom: f64,
    pub(super) notes: Vec<String>,
}

impl Page {
    /// As an SVG document.
    pub(super) fn document(&self) -> String {
        let mut at = self.bottom + 26.0;
        let mut notes = Vec::new();
        for line in self.notes.iter().flat_map(|note| lines(note, INSIDE)) {
            notes.push((at, line));
            at += LINE;
        }
        let content = html! {
            (self.content)
            @for (y, line) in notes { text x=(MARGIN) y=(short(y)) { (line) } }
        };
        let Self { title, subtitle, description, .. } = self;
        Document { title, subtitle, description, style: STYLE, width: WIDTH, height: at + 2.0, margin: MARGIN, content }
            .text()
    }
}

/// From little to much: each step is darker (on a dark page lighter) than the one before, so that it can be told without colours.
pub(super) const SHADES: u64 = 8;

const STYLE: &str = "
svg { color-scheme: light dark; }
text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif; fill: #59636e; }
text.title { font-size: 18px; font-weight: 600; fill: #1b1f24; }
text.heading { font-size: 14px; font-weight: 600; fill: #1b1f24; }
text.name { fill: #1b1f24; }
text.end { text-anchor: end; }
text.middle { text-anchor: middle; }
text.value { font-size: 15px; font-weight: 600; }
.page { fill: #fbfbfa; }
.card { fill: #ffffff; stroke: #d9dee3; }
.grid { fill: none; stroke: #e8ebee; }
.all { fill: none; stroke: #59636e; stroke-width: 2.4; stroke-linecap: round; stroke-dasharray: 0.1 6; }
.chosen { fill: none; stroke: #d94f00; stroke-width: 3.5; }
.within { fill: none; stroke: #ffffff; stroke-width: 2; }
.h0 { fill: #f4f6f8; } .h1 { fill: #dbe8f5; } .h2 { fill: #c0d8ef; } .h3 { fill: #a0c4e8; }
.h4 { fill: #7aabdc; } .h5 { fill: #3f84c6; } .h6 { fill: #1d65ad; } .h7 { fill: #0c4785; }
text.on { fill: #1b1f24; } text.over { fill: #ffffff; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.mark { stroke: #ffffff; stroke-width: 0.8; }
.s0 .line { stroke: #0b66c2; } .s0 .mark { fill: #0b66c2; }
.s1 .line { stroke: #b4602a; stroke-dasharray: 7 3; } .s1 .mark { fill: #b4602a; }
.claimed .line { stroke: #1b1f24; stroke-width: 1.8; } .claimed .mark { fill: #1b1f24; }
.thin { fill: none; stroke: #8b97a5; stroke-width: 1.2; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #a2acb8; }
  text.title, text.heading, text.name { fill: #e8eaed; }
  .page { fill: #121519; }
  .card { fill: #1a1e24; stroke: #38404a; }
  .grid { stroke: #29303a; }
  .all { stroke: #a2acb8; }
  .chosen { stroke: #ff8a3d; }
  .within { stroke: #1a1e24; }
  .h0 { fill: #1f242b; } .h1 { fill: #1b2f44; } .h2 { fill: #1d3f60; } .h3 { fill: #22527f; }
  .h4 { fill: #2c69a3; } .h5 { fill: #4f94d4; } .h6 { fill: #86bbee; } .h7 { fill: #bddcfa; }
  text.on { fill: #e8eaed; } text.over { fill: #10151b; }
  .mark { stroke: #1a1e24; }
  .s0 .line { stroke: #5eb0ff; } .s0 .mark { fill: #5eb0ff; }
  .s1 .line { stroke: #e59155; } .s1 .mark { fill: #e59155; }
  .claimed .line { stroke: #e8eaed; } .claimed .mark { fill: #e8eaed; }
  .thin { stroke: #7d8996; }
}
";
