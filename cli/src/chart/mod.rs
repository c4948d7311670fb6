//! Charts as SVG: the page, the frame of a diagram with its axes, curves, marks and legends. All pictures of the command are drawn with it.
//!
//! It is written by hand (docs/adr, 10): colours come from a style sheet by class, so that a picture follows dark and light, and its size
//! in bytes does not grow with the number of points. No meaning hangs on a colour alone. Positions are for a picture, so they are floating
//! point; values stay integers.

mod frame;
mod page;
mod scale;
mod text;

pub(crate) use frame::{Frame, across, down, flow, legend, marker, polyline, steps, tile};
pub(crate) use page::{GAP, MARGIN, Page};
pub(crate) use scale::Scale;
pub(crate) use text::{CHARACTER, fitting, lines, middle_cut, nanos, short};
