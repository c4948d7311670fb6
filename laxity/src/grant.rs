//! The request for a channel, and the positive answer.

use std::net::SocketAddr;

use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::units::Duration;
use serde::{Deserialize, Serialize};

use crate::calibration::Guarantee;
use crate::error::Error;
use crate::guard::Coverage;

/// The positive answer to a request for a channel: the promise, and its conditions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The channel's name.
    pub name: String,
    /// The other host.
    pub peer: SocketAddr,
    /// The service that was granted.
    pub service: Service,
    /// The parts of the deadline for the sending host: processor (with the hand-over from the application) and link. Only the sender
    /// knows them; a receiver has zeros.
    pub stages: SendingStages,
    /// The part of the deadline for the receiving host.
    pub receive: Duration,
    /// The promised delay from logical arrival to delivery: the deadline of the contract. `None` for best effort.
    ///
    /// The bound, the computed worst case, changes as channels come and go: [`Figures::bound`](crate::Figures::bound) of the receiver.
    pub deadline: Option<Duration>,
    /// The guarantee of this host for its part of the promise. The other host knows the guarantee of its own part.
    pub guarantee: Guarantee,
    /// The traffic on the sending host's link that the promise covers, as of the opening. A receiver does not know it, and always
    /// has [`Coverage::Laxity`].
    pub covers: Coverage,
    /// True if both hosts share a clock, so that the delay between them can be measured.
    pub same_clock: bool,
    /// The id of the process whose executive keeps the promise at this host. If it ends, the channel ends.
    pub executive: u32,
}

/// The request for a channel: its service, and its options. A [`Contract`] converts into one with the default options.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// The service: real time with its contract, or best effort.
    pub service: Service,
    /// The policy for messages beyond the contract; [`Overload::Block`] by default.
    pub overload: Overload,
    /// The level, 0 (first) to 31, if the host serves its channels by fixed priorities
    /// ([`AdvancedConfig::policy`](crate::AdvancedConfig::policy)). Other policies ignore it.
    pub priority: u8,
    /// The time by which a sender that was held up may run ahead of its contract until it has caught up, if the policy is
    /// [`Overload::Block`] ([`Contract::with_catch_up`]). Zero to one second ([`MAX_CATCH_UP`](crate::limits::MAX_CATCH_UP)).
    ///
    /// `None` (the default) is 10 ms ([`STALL`](crate::limits::STALL)), or zero with
    /// [`AdvancedConfig::hold_sending`](crate::AdvancedConfig::hold_sending), which holds early messages.
    pub catch_up: Option<Duration>,
}

impl From<Contract> for ChannelSpec {
    /// As [`ChannelSpec::real_time`].
    fn from(contract: Contract) -> Self {
        Self::real_time(contract)
    }
}

impl ChannelSpec {
    /// Requests a real-time channel. A sender that is ahead of its contract waits.
    pub fn real_time(contract: Contract) -> Self {
        Self { service: Service::RealTime(contract), overload: Overload::Block, priority: 0, catch_up: None }
    }

    /// Requests a best-effort channel for messages of at most `max_message` bytes (1 to 16 MiB), of which `queue` may wait (1 to 4,096).
    /// A sender waits when the queue is full.
    ///
    /// # Errors
    /// [`Error::Contract`] if either value is out of range.
    pub fn best_effort(max_message: u64, queue: u64) -> Result<Self, Error> {
        let service = Service::best_effort(max_message, queue)?;
        Ok(Self { service, overload: Overload::Block, priority: 31, catch_up: None })
    }
}
