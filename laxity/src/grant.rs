//! What is asked for, and the answer yes.

use std::net::SocketAddr;

use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::units::Duration;

use crate::calibration::Guarantee;
use crate::error::Error;
use crate::guard::Covers;

/// The answer yes.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The channel's name.
    pub name: String,
    /// The other host.
    pub peer: SocketAddr,
    /// What was granted.
    pub service: Service,
    /// The sending host's stages, the handover included (sender).
    pub stages: SendingStages,
    /// The receiving host's stage.
    pub receive: Duration,
    /// The delay that is promised, from logical arrival to delivery: the deadline; `None` for best effort. The worst case
    /// that is computed as channels come and go is in the receiver's figures.
    pub bound: Option<Duration>,
    /// How far this host stands behind its part of that; of the other host's part only that host can tell.
    pub guarantee: Guarantee,
    /// Whose traffic on the sending host's link the promise covers, as of the opening. A receiver does not know, and has [`Covers::Laxity`].
    pub covers: Covers,
    /// Whether both hosts share a clock, so that the delay between them can be measured.
    pub same_clock: bool,
    /// The process whose executive keeps the promise at this host: if it ends, the channel does.
    pub executive: u32,
}

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct ChannelSpec {
    /// Real-time with its contract, or best effort.
    pub service: Service,
    /// What happens to messages beyond the contract.
    pub overload: Overload,
    /// The level under the fixed-priority policy, 0 first.
    pub priority: u8,
    /// How much its sender makes up for after it was held up, if the policy is [`Overload::Block`]: it runs as much early until it is back in
    /// time. At most [`MAX_CATCH_UP`](laxity_core::limits::MAX_CATCH_UP). `None` is [`STALL`](laxity_core::limits::STALL), or nothing where
    /// [`HostConfig::hold_sending`](crate::HostConfig::hold_sending) keeps messages that are early.
    pub catch_up: Option<Duration>,
}

impl ChannelSpec {
    /// A real-time channel; a sender beyond its contract waits.
    pub fn real_time(contract: Contract) -> Self {
        Self { service: Service::RealTime(contract), overload: Overload::Block, priority: 0, catch_up: None }
    }

    /// A best-effort channel for messages of at most `max_message` bytes, `queue` of which may wait; a sender waits when
    /// the queue is full.
    ///
    /// # Errors
    /// If either is out of range.
    pub fn best_effort(max_message: u64, queue: u64) -> Result<Self, Error> {
        let service = Service::best_effort(max_message, queue)?;
        Ok(Self { service, overload: Overload::Block, priority: 31, catch_up: None })
    }
}
