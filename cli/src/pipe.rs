//! The pipe of `send` and `recv`: how messages stand in it, and where the figures go.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::failure::Failure;
use crate::framing::Framing;
use crate::report::to_json;

/// How messages stand in the pipe, and where the figures go.
#[derive(Debug, Args)]
pub(crate) struct PipeArguments {
    /// fixed:N for messages of N bytes, length32 for a 32-bit big-endian length before each
    #[arg(long, default_value = "length32", value_parser = framing)]
    pub(crate) framing: Framing,
    /// Print the figures as one JSON object (send: to standard output; recv: to standard error, since standard output
    /// carries the messages)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the figures to FILE as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) figures: Option<PathBuf>,
}

fn framing(text: &str) -> Result<Framing, String> {
    text.parse()
}

/// Writes the report where the options say. `to_stderr` if standard output carries something else.
pub(crate) fn publish(report: &Value, pipe: &PipeArguments, to_stderr: bool) -> Result<(), Failure> {
    let json = to_json(report);
    if pipe.json && to_stderr {
        eprintln!("{json}");
    } else if pipe.json {
        println!("{json}");
    }
    let Some(file) = &pipe.figures else { return Ok(()) };
    std::fs::write(file, format!("{json}\n"))
        .map_err(|source| Failure::File { file: file.display().to_string(), source })
}
