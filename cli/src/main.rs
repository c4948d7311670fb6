//! The laxity command.

#[allow(dead_code, reason = "for send and recv")]
mod framing;
#[allow(dead_code, reason = "for send and recv")]
mod report;

fn main() {}
