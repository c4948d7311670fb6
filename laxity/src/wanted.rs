//! A real-time channel that an application of this host wants to send, as this host's admission sees it.

use laxity_core::admission::Refusal;
use laxity_core::contract::Contract;
use laxity_core::units::Duration;

/// A sending real-time channel that is to be admitted.
pub(crate) struct Wanted {
    pub(crate) contract: Contract,
    /// What of the deadline is not this host's part.
    pub(crate) outside: Duration,
    /// The level of its handler under fixed priorities.
    pub(crate) priority: u8,
}

impl Wanted {
    /// The refusal with the least deadline for all of the way as far as this host knows it.
    pub(crate) fn end_to_end(&self, refusal: Refusal) -> Refusal {
        Refusal { least_deadline: refusal.least_deadline.map(|least| least + self.outside), ..refusal }
    }

    /// What of the deadline is this host's; nothing is granted within no time.
    pub(crate) fn budget(&self) -> Duration {
        self.contract.deadline().saturating_sub(self.outside)
    }
}
