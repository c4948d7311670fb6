//! How it looks: colours of the demonstration's report, as plain classes that every renderer knows; a renderer that knows
//! about dark follows it.

/// Colours for the parts of a bound.
pub(super) const COLOURS: usize = 8;

pub(super) const STYLE: &str = "
svg { color-scheme: light dark; }
text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif; fill: #59636e; }
text.title { font-size: 18px; font-weight: 600; fill: #1b1f24; }
text.heading { font-size: 14px; font-weight: 600; fill: #1b1f24; }
text.name { fill: #1b1f24; }
text.refused { fill: #a33a00; font-weight: 600; }
text.end { text-anchor: end; }
text.middle { text-anchor: middle; }
.page { fill: #fbfbfa; }
.card { fill: #ffffff; stroke: #d9dee3; }
.grid { fill: none; stroke: #e8ebee; }
.beyond { fill: #fde6da; }
.capacity { fill: none; stroke: #1b1f24; stroke-width: 1.4; stroke-dasharray: 5 3; }
.demand { fill: none; stroke: #0b66c2; stroke-width: 2; stroke-linejoin: round; }
.tightest { fill: #a33a00; stroke: #ffffff; }
.limit { fill: none; stroke: #1b1f24; stroke-width: 1.6; }
.none { fill: none; stroke: #a33a00; stroke-dasharray: 4 3; }
.over { fill: #a33a00; }
.track { fill: #f1f3f5; }
.c0 { fill: #0b66c2; } .c1 { fill: #12805c; } .c2 { fill: #8a3ea8; } .c3 { fill: #d9a441; }
.c4 { fill: #7d8a2e; } .c5 { fill: #d0517f; } .c6 { fill: #5f6b78; } .c7 { fill: #6bb6e0; }
@media (prefers-color-scheme: dark) {
  text { fill: #a2acb8; }
  text.title, text.heading, text.name { fill: #e8eaed; }
  text.refused { fill: #ff9d66; }
  .page { fill: #121519; }
  .card { fill: #1a1e24; stroke: #38404a; }
  .grid { stroke: #29303a; }
  .beyond { fill: #40210f; }
  .capacity, .limit { stroke: #e8eaed; }
  .demand { stroke: #5eb0ff; }
  .tightest { fill: #ff9d66; stroke: #1a1e24; }
  .none { stroke: #ff9d66; }
  .over { fill: #ff9d66; }
  .track { fill: #242a32; }
  .c0 { fill: #3f8fdc; } .c1 { fill: #35a582; } .c2 { fill: #b573d2; } .c3 { fill: #f0c35e; }
  .c4 { fill: #a9b83c; } .c5 { fill: #ff8ab5; } .c6 { fill: #8b97a5; } .c7 { fill: #9bd4f5; }
}
";
