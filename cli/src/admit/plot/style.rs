//! The colours of demand, limits and parts of bounds.

pub(super) const STYLE: &str = "
text.refused { fill: #a33a00; font-weight: 600; }
.beyond { fill: #fde6da; }
.capacity { fill: none; stroke: #1b1f24; stroke-width: 1.4; stroke-dasharray: 5 3; }
.demand { fill: none; stroke: #0b66c2; stroke-width: 2; stroke-linejoin: round; }
.tightest { fill: #a33a00; stroke: #ffffff; }
.limit { fill: none; stroke: #1b1f24; stroke-width: 1.6; }
.none { fill: none; stroke: #a33a00; stroke-dasharray: 4 3; }
.over { fill: #a33a00; }
.track { fill: #f1f3f5; }
.c0 { fill: #8b97a5; } .c1 { fill: #0b66c2; } .c2 { fill: #5e9bd8; } .c3 { fill: #9bc8ee; }
.c4 { fill: #4b45b0; } .c5 { fill: #8a3ea8; } .c6 { fill: #bd86d6; } .c7 { fill: #d0517f; }
.c8 { fill: #12805c; } .c9 { fill: #5bb592; } .c10 { fill: #a9b83c; } .c11 { fill: #d9a441; }
.c12 { fill: #b4602a; } .c13 { fill: #33549b; } .c14 { fill: #2f6b4f; } .c15 { fill: #5f6b78; }
@media (prefers-color-scheme: dark) {
  text.refused { fill: #ff9d66; }
  .beyond { fill: #40210f; }
  .capacity, .limit { stroke: #e8eaed; }
  .demand { stroke: #5eb0ff; }
  .tightest { fill: #ff9d66; stroke: #1a1e24; }
  .none { stroke: #ff9d66; }
  .over { fill: #ff9d66; }
  .track { fill: #242a32; }
  .c0 { fill: #7d8996; } .c1 { fill: #3f8fdc; } .c2 { fill: #74b3ec; } .c3 { fill: #b5dbf8; }
  .c4 { fill: #7d77e0; } .c5 { fill: #b573d2; } .c6 { fill: #d5abe8; } .c7 { fill: #ff8ab5; }
  .c8 { fill: #35a582; } .c9 { fill: #82d3b4; } .c10 { fill: #c3d14a; } .c11 { fill: #f0c35e; }
  .c12 { fill: #dd8a50; } .c13 { fill: #6a89cf; } .c14 { fill: #5f9f81; } .c15 { fill: #a2acb8; }
}
";
