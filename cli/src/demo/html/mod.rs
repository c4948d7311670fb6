//! The report of `laxity demo` as one HTML file: no script, nothing loaded from elsewhere, readable on a phone, dark and light.
//!
//! [`Report`] goes in, text comes out; the same report gives the same text. Every sentence that judges is computed from the
//! figures, for us as against us. Names and notes may come from anywhere: maud escapes what could be markup,
//! [`crate::report::escaped`] what could steer the reading.
//!
//! The plots are drawn here and not by plotters, which writes a fixed colour into each element (so no dark mode) and an element
//! for each point (so megabytes), and names nothing for those who cannot see it.

mod findings;
mod page;
mod plot;
mod sections;
#[cfg(test)]
mod tests;

pub(crate) use findings::summary;
pub(crate) use page::{picture, render};
pub(crate) use sections::{PLAIN_UDP_AT_REST, attack_text};

use super::run::ScenarioRun;

/// All that the report shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// When it was measured, as the reader shall see it.
    pub(crate) date: String,
    /// What it was measured on, by name: kernel, processors, scheduling, memory locked, guarantee.
    pub(crate) machine: Vec<(String, String)>,
    /// What is missing of it, if it was interrupted.
    pub(crate) incomplete: Option<String>,
    /// The scenarios, in the order in which they shall appear. Those of one attack come together under its first.
    pub(crate) scenarios: Vec<ScenarioRun>,
    /// What is worth saying about the whole run, such as what this user could not have, or a refusal.
    pub(crate) notes: Vec<String>,
}
