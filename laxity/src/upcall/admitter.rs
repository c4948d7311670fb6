//! Who admits upcalls: a host, together with its channels, or their own thread alone.

use std::sync::{Arc, Mutex};

use laxity_core::admission::Admission;
use laxity_core::admission::upcalls::{Above, Kind, UpcallSet};
use laxity_core::platform::Platform;
use laxity_core::upcall::Upcall as Timing;

use super::{Entry, locked};
use crate::control::Shared;
use crate::error::Error;
use crate::handler::Handler;
use crate::upcall_figures::Record;
use crate::upcall_reservations::Reservation;

/// Who admits.
pub(super) enum Admitter {
    /// The executive that has the processor before the upcalls.
    Host(Arc<Shared>),
    /// The executive on whose thread they run.
    Executive(Arc<Shared>),
    /// No executive on this processor: the upcalls are admitted against the platform alone.
    Alone { platform: Box<Platform>, set: Mutex<UpcallSet> },
}

impl Admitter {
    /// # Errors
    /// [`Error::ReplyElsewhere`]: its handler is to reply on a channel of another host. Upcalls of no host have none of their own.
    pub(super) fn check_reply(&self, handler: &Handler) -> Result<(), Error> {
        match self {
            Self::Host(shared) | Self::Executive(shared) => handler.check_reply(&shared.doorbell),
            Self::Alone { .. } => Ok(()),
        }
    }

    /// Admits an upcall, and publishes its bound.
    pub(super) fn reserve(&self, timing: Timing, kind: Kind, record: &Arc<Record>) -> Result<Reservation, Error> {
        let answer = match self {
            Self::Host(shared) => shared.reserve_upcall(timing, kind, record),
            Self::Executive(shared) => shared.reserve_trusted(timing, record),
            Self::Alone { platform, set } => locked(set)
                .reserve(timing, kind, platform, &Above::of_platform(platform))
                .map(|(place, _)| Reservation::Below(place)),
        };
        answer.map_err(|refusal| Error::UpcallRefused { refusal })
    }

    pub(super) fn release(&self, reservation: Reservation) {
        match (self, reservation) {
            (Self::Host(shared) | Self::Executive(shared), _) => shared.release_upcall(reservation),
            (Self::Alone { set, .. }, Reservation::Below(place)) => locked(set).release(place),
            (Self::Alone { .. }, Reservation::OnThread(..)) => {}
        }
    }

    /// Publishes the bounds, which depend on who else is there; the control thread of a host does so for its upcalls.
    pub(super) fn publish<'a>(&self, upcalls: impl Iterator<Item = &'a Entry>) {
        if let Self::Alone { platform, set } = self {
            let (set, above) = (locked(set), Above::of_platform(platform));
            for entry in upcalls {
                if let Reservation::Below(place) = entry.reservation {
                    entry.record.raise_bound(set.response(place, platform, &above));
                }
            }
        }
    }

    /// The long-run share of the executive and the platform, parts per million.
    pub(super) fn above_ppm(&self) -> u64 {
        match self {
            Self::Host(shared) => shared.above_ppm(Admission::above_upcalls_ppm),
            // All that the executive does, these upcalls included.
            Self::Executive(shared) => shared.above_ppm(|admission| admission.utilisation_ppm().processor),
            Self::Alone { platform, .. } => Above::of_platform(platform).share_ppm(),
        }
    }
}
