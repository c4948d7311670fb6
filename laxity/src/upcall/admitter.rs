//! The admission of upcalls: by a host, together with its channels, or by their thread alone.

use std::sync::{Arc, Mutex};

use laxity_core::admission::Admission;
use laxity_core::admission::upcalls::{PreemptingWork, UpcallKind, UpcallSet};
use laxity_core::platform::Platform;
use laxity_core::upcall::Upcall as Timing;

use super::{UpcallEntry, locked};
use crate::control::HostShared;
use crate::error::Error;
use crate::handler::Handler;
use crate::upcall_figures::UpcallRecord;
use crate::upcall_reservations::UpcallReservation;

/// The component that admits upcalls.
pub(super) enum Admitter {
    /// The executive with priority over the upcalls on its processor.
    Host(Arc<HostShared>),
    /// The executive on whose thread they run.
    Executive(Arc<HostShared>),
    /// No executive on this processor: the upcalls are admitted against the platform alone.
    Alone { platform: Box<Platform>, set: Mutex<UpcallSet> },
}

impl Admitter {
    /// # Errors
    /// [`Error::ReplyElsewhere`] if the handler is to reply on a channel of another host. Upcalls without a host have no channels
    /// of their own.
    pub(super) fn check_reply(&self, handler: &Handler) -> Result<(), Error> {
        match self {
            Self::Host(shared) | Self::Executive(shared) => handler.check_reply(&shared.doorbell),
            Self::Alone { .. } => Ok(()),
        }
    }

    /// Admits an upcall, and publishes its bound.
    pub(super) fn reserve(
        &self,
        timing: Timing,
        kind: UpcallKind,
        record: &Arc<UpcallRecord>,
    ) -> Result<UpcallReservation, Error> {
        let answer = match self {
            Self::Host(shared) => shared.reserve_upcall(record, |admission| {
                Ok(UpcallReservation::Below(admission.reserve_upcall(timing, kind)?.0))
            }),
            Self::Executive(shared) => shared.reserve_upcall(record, |admission| {
                let (id, stage) = admission.reserve_trusted(timing, 0)?;
                Ok(UpcallReservation::OnThread(id, stage))
            }),
            Self::Alone { platform, set } => locked(set)
                .reserve(timing, kind, &PreemptingWork::of_platform(platform))
                .map(|(place, _)| UpcallReservation::Below(place)),
        };
        answer.map_err(|refusal| Error::UpcallRefused { refusal })
    }

    pub(super) fn release(&self, reservation: UpcallReservation) {
        match (self, reservation) {
            (Self::Host(shared) | Self::Executive(shared), _) => shared.release_upcall(reservation),
            (Self::Alone { set, .. }, UpcallReservation::Below(place)) => locked(set).release(place),
            (Self::Alone { .. }, UpcallReservation::OnThread(..)) => {}
        }
    }

    /// Publishes the bounds, which depend on all upcalls. For a host's upcalls the control thread does this.
    pub(super) fn publish<'a>(&self, upcalls: impl Iterator<Item = &'a UpcallEntry>) {
        if let Self::Alone { platform, set } = self {
            let (set, above) = (locked(set), PreemptingWork::of_platform(platform));
            for entry in upcalls {
                if let UpcallReservation::Below(place) = entry.reservation {
                    entry.record.raise_bound(set.response(place, &above));
                }
            }
        }
    }

    /// The long-run share of the executive and the platform, parts per million.
    pub(super) fn above_ppm(&self) -> u64 {
        match self {
            Self::Host(shared) => shared.above_ppm(Admission::above_upcalls_ppm),
            // All work of the executive, including these upcalls.
            Self::Executive(shared) => shared.above_ppm(|admission| admission.utilisation_ppm().processor),
            Self::Alone { platform, .. } => PreemptingWork::of_platform(platform).share_ppm(),
        }
    }
}
