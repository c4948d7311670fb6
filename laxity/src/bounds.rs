//! The bound of each receiving channel, while channels come and go.
//!
//! **What the bound is.** A message with logical arrival l is due at l + D. Its sender's stages and the way are over by
//! `r = l + D − d_rx − w` at the latest, w being how long a frame may wait until this host finds it
//! ([`Admission::input_delay`]), and d_rx the receiving stage that was granted. So its logical arrival at this host is
//! `r + w = l + D − d_rx`, and by the analysis it is complete R_rx after that: R_rx is the channel's worst case with all that
//! are admitted here now ([`Admission::bounds`]), and at most d_rx. From l that is
//!
//! ```text
//! bound = D − (d_rx − R_rx)
//! ```
//!
//! The sender's slack must not be taken off as well. A message that leaves its sender early either waits here for its logical
//! arrival, or is served before it in the least class, which is promised nothing: by the analysis of *this* host nothing is known
//! but that it is complete by `l + D − d_rx + R_rx`. What this host does not know is how much earlier than its stages' deadline the
//! sender is in any case. A sender's own figure is the contract's deadline, for it does not know R_rx.
//!
//! Where the clocks differ the sender's part cannot be seen: a delay counts from the logical arrival here, and the same spare
//! time, d_rx − R_rx, is taken off its deadline here, `d_rx` later.
//!
//! **Which bound is in force.** A message counts against the largest that was in force during its life. So what is published only
//! grows, and it has grown before a newcomer's first message can be in the way: the control thread collects what a batch of notices
//! leads to, computes once, publishes, and only then lets the newcomers in (`settle` in `control.rs`). Nothing has to be done when a channel
//! goes: that lowers no bound that was in force.
//!
//! **What is counted.** A completion after the bound though within the deadline, unless what delayed it explains that: the same
//! evidence as for a late message (gaps at either host beyond the envelope, the way), with the bound in the deadline's place.
//! Neither counts what messages before it defer it by (`DeliveredMessage::deferred`), if those came late.
//!
//! **What it costs.** The work grows with the square of the number of different channels (5 ms for 256 of them when it was
//! measured), so above [`MOST`] channels every bound is the deadline.

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Settings, Utilisation};
use laxity_core::contract::Contract;
use laxity_core::limits;

use crate::control::{ChannelEntry, ControlState, HostShared};

/// Most channels with reservations of which bounds are computed.
const MOST: usize = 256;

impl HostShared {
    /// What a channel takes of that by itself. One that does not fit alone takes nothing: it is refused.
    pub(crate) fn takes(&self, settings: Settings, contract: Option<&Contract>, role: Role) -> Utilisation {
        let none = Utilisation { processor: 0, link: 0 };
        let Some(contract) = contract else { return none };
        let Ok(mut alone) = Admission::with_settings(self.platform.clone(), settings) else { return none };
        let before = alone.utilisation_ppm();
        if alone.reserve(contract, role, limits::MAX_DEADLINE).is_err() {
            return none;
        }
        let with = alone.utilisation_ppm();
        Utilisation {
            processor: with.processor.saturating_sub(before.processor),
            link: with.link.saturating_sub(before.link),
        }
    }
}

impl ControlState {
    /// Computes and publishes, if there is a reason.
    pub(crate) fn publish_bounds(&mut self) {
        if !std::mem::take(&mut self.bounds_are_stale) {
            return;
        }
        self.publish_upcall_bounds();
        if !self.proves_bounds {
            return;
        }
        let receives = |known: &ChannelEntry| known.is_receiving && known.reservation.is_some();
        if !self.channels().any(receives) {
            return;
        }
        let reserved = self.channels().filter(|known| known.reservation.is_some()).count();
        let bounds = if reserved <= MOST { self.admission.bounds() } else { Vec::new() };
        for known in self.channels().filter(|known| receives(known)) {
            let Some(deadline) = known.service.contract().map(Contract::deadline) else { continue };
            let bound = bounds.iter().find(|(id, _)| known.reservation == Some(*id)).map(|(_, bound)| bound.worst);
            let spare = bound.map_or_else(Default::default, |worst| known.stage.saturating_sub(worst));
            known.port.statistics.set_bound(deadline, deadline.saturating_sub(spare));
        }
    }
}
