//! A calibration as pictures and in a few lines: how many channels each P and S admits, and what the platform took away.
//!
//! Written by hand for the reason that the plots of the demonstration are: colours by class, so that a file follows dark and light,
//! and a size that does not grow with what was measured. No meaning hangs on a colour alone.

mod grid;
mod interference;
mod style;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use grid::grid;
pub(crate) use interference::interference;
pub(crate) use text::choice;
