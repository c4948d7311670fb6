//! The fast path is private to `laxity-link`: its files are compiled into this crate as well.

#[path = "../../../link/src/xdp/headers.rs"]
#[allow(dead_code, reason = "the link uses all of it")]
mod headers;
mod module;
#[path = "../../../link/src/xdp/program/mod.rs"]
#[allow(dead_code, reason = "the link uses all of it")]
mod program;
mod reference;
mod target;

pub use module::kernel_module;
pub use target::demux;
