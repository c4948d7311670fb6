//! What is left for best effort.
//!
//! In any window t best effort has the processor for at least
//! `t − J(t) − Σ ⌈(t + d_i)/I_i⌉ (H_i + 2 C_csp + polls) − C_csp`, and the link for at least
//! `t − Intf(t) − Σ ⌈(t + d_i)/I_i⌉ Σ L_i − B`, with d_i until a message has left the resource. In the long run these are what
//! [`Admission::utilisation_ppm`] leaves. As long as that is something, best effort does not starve.

use super::reserve::Admission;
use super::walk::Demand;
use crate::units::Duration;

/// Time that best effort has at least in some window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// On the processor.
    pub processor: Duration,
    /// On the link.
    pub link: Duration,
}

impl Admission {
    /// What best effort has at least in any window of this length.
    pub fn best_effort_within(&self, window: Duration) -> Left {
        let t = window.as_nanos();
        let (test, link) = (self.processor_test(None), self.link_test(None));
        let switch = u128::from(self.machine.switch);
        let mut processor = test.stolen().within(t).saturating_add(switch);
        let mut on_link = link.stolen().within(t).saturating_add(link.blocking());
        for held in self.reservations() {
            let before = held.job.map_or(0, |job| job.deadline);
            if let Some(job) = held.job {
                let begun = u128::from(t.saturating_add(job.deadline).div_ceil(job.interval));
                processor = processor.saturating_add(begun.saturating_mul(u128::from(job.cost) + switch));
            }
            if let Some(stream) = held.stream {
                let reach = t.saturating_add(stream.deadline).saturating_add(before);
                let begun = u128::from(reach.div_ceil(stream.interval));
                on_link = on_link.saturating_add(begun.saturating_mul(stream.whole()));
            }
        }
        let left = |taken: u128| window.saturating_sub(Duration::from_nanos(u64::try_from(taken).unwrap_or(u64::MAX)));
        Left { processor: left(processor), link: left(on_link) }
    }
}
