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
