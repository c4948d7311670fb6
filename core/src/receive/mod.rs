//! The receiving side of the data path: demux → packet queue → handler (reassemble) → message queue.

mod attribution;
mod demux;
mod early;
mod policing;
mod receiving;
mod slot;

pub(crate) use attribution::stretched;
pub use attribution::{Cause, Evidence};
pub use demux::{Foreign, Route, route};
pub use early::{ArrivalClass, Expected};
pub(crate) use policing::{Policed, Policing};
pub use receiving::{Delivered, Drop, ReceiveConfig, ReceiveCounters, ReceiveWork, Receiving, Step};
