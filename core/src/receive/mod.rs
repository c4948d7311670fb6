//! The receiving side of the data path: demux → packet queue → handler (reassemble) → message queue.

mod attribution;
mod config;
mod delivered;
mod demux;
mod early;
mod policing;
mod receiving;
mod slot;

pub use crate::cause::{Cause, Misses};
pub use attribution::Delay;
pub(crate) use attribution::Excess;
pub(crate) use attribution::stretched;
pub use attribution::{Evidence, Found, TimeTaken};
pub use config::{Drop, ReceiveConfig, ReceiveCounters};
pub use delivered::{Delivered, Said, Segments};
pub use demux::{Foreign, Route, route};
pub use early::{ArrivalClass, Budget, EarlyDemux, Expected, Handled, HandledEarly, Judgement, SURPLUS_PACKETS};
pub(crate) use early::{DroppedEarly, Taken};
pub(crate) use policing::{NoPlace, Policed, Policing};
pub use receiving::{Decision, Known, Receiving};
