//! The receiving side of the data path: demux → packet queue → handler (reassemble) → message queue.

mod demux;
mod receiving;

pub use demux::{Foreign, Route, route};
pub use receiving::{Cause, Delivered, Drop, ReceiveConfig, ReceiveCounters, ReceiveWork, Receiving, Step};
