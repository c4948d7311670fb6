//! The C API: upcalls, and the parts of hosts and channels that they need. Everything is documented in `laxity.h`, which a test generates from here.
//!
//! Unsafe code has one door: C hands over pointers, and each of them becomes a reference, or is refused, in one of the functions of `failure`.
//! No function lets a panic through.
#![deny(clippy::undocumented_unsafe_blocks)]
// The rules for pointers are the same for all functions, and stand at the head of the header.
#![allow(clippy::missing_safety_doc)]

mod channel;
mod failure;
mod host;
mod periodic;
mod run;
mod upcalls;

pub use channel::*;
pub use failure::*;
pub use host::*;
pub use periodic::*;
pub use run::*;
pub use upcalls::*;
