//! The upcalls of a host in its admission, and where their bounds are published.

use std::sync::Arc;

use laxity_core::admission::upcalls::{Kind, Place, UpcallRefusal};
use laxity_core::admission::{Admission, ReservationId};
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall as Timing;

use crate::control::{Shared, State};
use crate::upcall_figures::Record;

/// What an upcall holds at admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reservation {
    /// Below the executive, or without one.
    Below(Place),
    /// On its thread, and how long after its release a run is to be done for the scheduler.
    OnThread(ReservationId, Duration),
}

impl Shared {
    /// Admits an upcall below the executive, beside the channels that are there.
    pub(crate) fn reserve_upcall(
        &self,
        timing: Timing,
        kind: Kind,
        record: &Arc<Record>,
    ) -> Result<Reservation, UpcallRefusal> {
        let reserve = |admission: &mut Admission| Ok(Reservation::Below(admission.reserve_upcall(timing, kind)?.0));
        self.reserve(record, reserve)
    }

    /// Admits an upcall on the executive's own thread.
    pub(crate) fn reserve_trusted(&self, timing: Timing, record: &Arc<Record>) -> Result<Reservation, UpcallRefusal> {
        let reserve = |admission: &mut Admission| {
            let (id, stage) = admission.reserve_trusted(timing, 0)?;
            Ok(Reservation::OnThread(id, stage))
        };
        self.reserve(record, reserve)
    }

    /// Where it has a thread with channels, their bounds have grown before it can be in their way.
    fn reserve(
        &self,
        record: &Arc<Record>,
        reserve: impl FnOnce(&mut Admission) -> Result<Reservation, UpcallRefusal>,
    ) -> Result<Reservation, UpcallRefusal> {
        let mut state = self.settled(self.state());
        let reservation = reserve(&mut state.admission)?;
        state.upcalls.push((reservation, Arc::clone(record)));
        match reservation {
            Reservation::Below(_) => state.publish_upcall_bounds(),
            Reservation::OnThread(..) => {
                state.review_bounds();
                state.publish_bounds();
            }
        }
        // The executive is told if the host counts on something else now.
        self.notified.notify();
        Ok(reservation)
    }

    /// Gives it back.
    pub(crate) fn release_upcall(&self, reservation: Reservation) {
        let mut state = self.state();
        match reservation {
            Reservation::Below(place) => state.admission.release_upcall(place),
            Reservation::OnThread(id, _) => drop(state.admission.release(id)),
        }
        state.upcalls.retain(|(other, _)| *other != reservation);
    }

    /// What has the processor before the upcalls, in parts per million, as `measure` has it.
    pub(crate) fn above_ppm(&self, measure: impl Fn(&Admission) -> u64) -> u64 {
        measure(&self.settled(self.state()).admission)
    }
}

impl State {
    /// The bounds of the upcalls, which depend on the channels beside them. They only grow.
    pub(crate) fn publish_upcall_bounds(&self) {
        let is_on_thread = |(held, _): &(Reservation, _)| matches!(held, Reservation::OnThread(..));
        let bounds = if self.upcalls.iter().any(is_on_thread) { self.admission.bounds() } else { Vec::new() };
        for (held, record) in &self.upcalls {
            record.raise_bound(match held {
                Reservation::Below(place) => self.admission.upcall_response(*place),
                Reservation::OnThread(id, _) => {
                    bounds.iter().find(|(other, _)| other == id).map(|(_, bound)| bound.worst)
                }
            });
        }
    }
}
