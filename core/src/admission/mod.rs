//! May this channel exist?
//!
//! One analysis stands in one file, with its numbered assumptions and its paper's letters.

mod refusal;

pub use refusal::{Code, Refusal, Stage};
