//! Handlers of applications in the kernel [events §3.2]: the code that reads their objects, and installs them behind the early demultiplexer.
//!
//! They are written against [`HEADER`]. A [`Module`] is an object file of theirs; [`Handlers::install`] has it handle the messages of a
//! channel, of one packet each, as their packets arrive: in the driver, or as soon as the kernel has a buffer.

pub use super::probe::Prober;
pub use super::program::{
    HandlerCounts, HandlerError, Handlers, InstallRequest, InstalledHandler, LONGEST_MESSAGE, MOST_HANDLERS, Module,
    ModuleMap, Notice, Notices, ReplyTo,
};

/// The C header that handlers are written against, in the kernel and in WebAssembly.
pub const HEADER: &str = include_str!("laxity-handler.h");
