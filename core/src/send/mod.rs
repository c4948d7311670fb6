//! The sending side of the data path: enforce → message queue → handler (fragment) → packet queue → link scheduler.

pub mod link_scheduler;
mod sending;
pub mod starts;

pub use link_scheduler::{LinkConfig, LinkScheduler};
pub use sending::{
    AcceptedMessage, Arrival, HandOverDelay, Packet, RejectedMessage, SendConfig, SendCounters, SendingChannel,
    Violation, Violations,
};
