//! The pipe of `send` and `recv`: how messages stand in it, and where the figures go.
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments are what the command says of itself")]

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::failure::Failure;
use crate::file::failed;
use crate::framing::Framing;
use crate::report::to_json;

/// How messages stand in the pipe, and where the figures go.
#[derive(Debug, Args)]
pub(crate) struct PipeArguments {
    /// How messages stand in the pipe: fixed:N for messages of N bytes, length32 for a 32-bit big-endian length before each
    #[arg(long, default_value = "length32")]
    pub(crate) framing: Framing,
    /// Print the figures as one JSON object. send prints it to standard output; recv to standard error, since its standard output carries
    /// the messages
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the figures to FILE as one JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) figures: Option<PathBuf>,
}

/// Writes the report where the options say: prints it, or has `table` print it, and then writes the file. `to_stderr` if standard output
/// carries something else.
pub(crate) fn publish(
    report: &Value,
    pipe: &PipeArguments,
    to_stderr: bool,
    table: impl FnOnce(),
) -> Result<(), Failure> {
    let json = to_json(report);
    match (pipe.json, to_stderr) {
        (true, true) => eprintln!("{json}"),
        (true, false) => println!("{json}"),
        (false, _) => table(),
    }
    let Some(file) = &pipe.figures else { return Ok(()) };
    std::fs::write(file, format!("{json}\n")).map_err(failed(file))
}
