//! Charts as SVG: all pictures of the command are data that is given to this module.
//!
//! | Module | What it does |
//! |---|---|
//! | [`document`] | a picture: title, description, legend, diagrams beside each other, notes |
//! | [`diagram`] | one diagram: its frame, axes and series |
//! | [`scale`] | where a value lies on an axis, and which values are labelled |
//! | [`text`] | texts that must fit, units of axes, numbers in paths |
//!
//! It is written by hand (docs/adr, 10): colours come from a style sheet by class, so that a picture follows dark and light, and its size
//! in bytes does not grow with the number of points. No meaning hangs on a colour alone.

mod diagram;
mod document;
mod scale;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use diagram::{CARD, Diagram, Frame, Look, Series, Shape, down};
pub(crate) use document::{Block, MARGIN, Picture, STYLE, WIDTH, legend, names, swatch};
pub(crate) use scale::Scale;
pub(crate) use text::{CHARACTER, Unit, fitting, lines, middle_cut, short};
