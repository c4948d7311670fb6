//! Laxity in virtual time: the shipping core over emulated links.
//!
//! [`World`] drives [`laxity_core::endpoint::Endpoint`]s the way the live executive does and charges every step with the
//! costs of a [`laxity_core::platform::Platform`]. It has no queue, scheduler or regulator of its own: what it measures is
//! what ships. A seed gives a total order of events, so the same calls give the same figures, byte for byte.
//!
//! It leaves out what the live library adds around the core: shared memory, threads, real clocks. Submissions cost the
//! executive nothing here, and each host's clock is the world's.
#![forbid(unsafe_code)]

mod channel;
mod content;
mod host;
mod source;
mod world;

pub use channel::{AsPlanned, Decide, Laxity, Plan, Report};
pub use host::{Gap, HostConfig, HostCounters, WakeUp, least_look_ahead, wire_no_slower_than};
pub use source::Source;
pub use world::{ChannelHandle, HostId, World};
