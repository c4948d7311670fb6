//! The reader of scenarios is part of a program, not of a library: its files are compiled into this crate as well.

#[path = "../../../cli/src/sim/scenario/file/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the command uses all of it")]
mod file;
mod target;

pub use target::scenario;
