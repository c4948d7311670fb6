//! A calibration as pictures and in a few lines: how many channels each P and S admits, and what the platform took away.
//!
//! Its size does not grow with what was measured.

mod grid;
mod interference;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use grid::grid;
pub(crate) use interference::interference;
pub(crate) use text::choice;

use crate::chart::MARGIN;

const WIDTH: f64 = 960.0;
const INSIDE: f64 = WIDTH - 2.0 * MARGIN;
/// Where the content begins.
const TOP: f64 = 84.0;
