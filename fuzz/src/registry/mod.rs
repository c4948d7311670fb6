//! The registry's format is private to `laxity`: its files are compiled into this crate as well.

#[path = "../../../laxity/src/registry/book.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
mod book;
#[path = "../../../laxity/src/registry/process.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
mod process;
mod target;

pub use target::registry;
