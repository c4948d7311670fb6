//! The upcalls of a host in its admission, and where their bounds are published.

use std::sync::Arc;

use laxity_core::admission::upcalls::{UpcallPlace, UpcallRefusal};
use laxity_core::admission::{Admission, ReservationId};
use laxity_core::units::Duration;

use crate::control::{ControlState, HostShared};
use crate::upcall_figures::UpcallRecord;

/// What an upcall holds at admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpcallReservation {
    /// Below the executive, or without one.
    Below(UpcallPlace),
    /// On its thread, and how long after its release a run is to be done for the scheduler.
    OnThread(ReservationId, Duration),
}

impl HostShared {
    /// Admits an upcall as `reserve` has it, beside the channels that are there. Where it has a thread with channels, their bounds
    /// have grown before it can be in their way.
    pub(crate) fn reserve_upcall(
        &self,
        record: &Arc<UpcallRecord>,
        reserve: impl FnOnce(&mut Admission) -> Result<UpcallReservation, UpcallRefusal>,
    ) -> Result<UpcallReservation, UpcallRefusal> {
        let mut state = self.settled(self.state());
        let reservation = reserve(&mut state.admission)?;
        state.upcalls.push((reservation, Arc::clone(record)));
        match reservation {
            UpcallReservation::Below(_) => state.publish_upcall_bounds(),
            UpcallReservation::OnThread(..) => {
                state.bounds_are_stale = true;
                state.publish_bounds();
            }
        }
        // The executive is told if the host counts on something else now.
        self.published.notified.notify();
        Ok(reservation)
    }

    /// Gives it back.
    pub(crate) fn release_upcall(&self, reservation: UpcallReservation) {
        let mut state = self.state();
        match reservation {
            UpcallReservation::Below(place) => state.admission.release_upcall(place),
            UpcallReservation::OnThread(id, _) => drop(state.admission.release(id)),
        }
        state.upcalls.retain(|(other, _)| *other != reservation);
    }

    /// What has the processor before the upcalls, in parts per million, as `measure` has it.
    pub(crate) fn above_ppm(&self, measure: impl Fn(&Admission) -> u64) -> u64 {
        measure(&self.settled(self.state()).admission)
    }
}

impl ControlState {
    /// The bounds of the upcalls, which depend on the channels beside them. They only grow.
    pub(crate) fn publish_upcall_bounds(&self) {
        let is_on_thread = |(held, _): &(UpcallReservation, _)| matches!(held, UpcallReservation::OnThread(..));
        let bounds = if self.upcalls.iter().any(is_on_thread) { self.admission.bounds() } else { Vec::new() };
        for (held, record) in &self.upcalls {
            record.raise_bound(match held {
                UpcallReservation::Below(place) => self.admission.upcall_response(*place),
                UpcallReservation::OnThread(id, _) => {
                    bounds.iter().find(|(other, _)| other == id).map(|(_, bound)| bound.worst)
                }
            });
        }
    }
}
