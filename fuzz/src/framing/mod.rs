//! The command's framing is part of a program, not of a library: its file is compiled into this crate as well.

#[path = "../../../cli/src/framing.rs"]
#[allow(dead_code, clippy::module_inception, reason = "the command uses all of it")]
mod framing;
mod target;

pub use target::framing;
