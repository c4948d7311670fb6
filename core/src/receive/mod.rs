//! The receiving side of the data path: demux → packet queue → handler (reassemble) → message queue.

mod attribution;
mod claims;
mod demux;
mod receiving;
mod slot;

pub use attribution::{Cause, Evidence};
pub use demux::{Foreign, Route, route};
pub use receiving::{Delivered, Drop, ReceiveConfig, ReceiveCounters, ReceiveWork, Receiving, Step};
