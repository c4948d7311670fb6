//! A real-time channel that an application of this host wants to send, as this host's admission sees it.

use laxity_core::admission::Refusal;
use laxity_core::contract::Contract;
use laxity_core::units::Duration;

/// A sending real-time channel that is to be admitted.
pub(crate) struct SenderRequest {
    pub(crate) contract: Contract,
    /// The part of the deadline outside this host.
    pub(crate) outside: Duration,
    /// The level of its handler under fixed priorities.
    pub(crate) priority: u8,
}

impl SenderRequest {
    /// The refusal with the least end-to-end deadline, as far as this host knows it.
    pub(crate) fn end_to_end(&self, refusal: Refusal) -> Refusal {
        Refusal { least_deadline: refusal.least_deadline.map(|least| least + self.outside), ..refusal }
    }

    /// This host's part of the deadline; nothing is granted within no time.
    pub(crate) fn budget(&self) -> Duration {
        self.contract.deadline().saturating_sub(self.outside)
    }
}
