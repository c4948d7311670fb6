//! The laxity command.
fn main() {}
