//! The receiving side of the data path: policing → packet queue → handler (reassemble) → message queue.

mod attribution;
mod config;
mod delivered;
mod early;
mod policing;
mod receiving;
mod slot;

pub use crate::cause::{Cause, Misses};
pub use attribution::Delay;
pub(crate) use attribution::SegmentExcess;
pub(crate) use attribution::stretched;
pub use attribution::{Evidence, FrameTimes, TimeLoss};
pub use config::{DropReason, ReceiveCounters, ReceiveGrant};
pub use delivered::{DeliveredMessage, Segments, SenderStamps};
pub(crate) use early::UnexplainedDrops;
pub use early::{ArrivalClass, EarlyHandling, ExpectedChannel, HandledMessages, RateLimit, SURPLUS_PACKETS};
pub(crate) use policing::{ChannelPolicer, PolicedMessage, PolicingDrop};
pub use receiving::{FinalJudgement, ReceivingChannel, SenderClock};
