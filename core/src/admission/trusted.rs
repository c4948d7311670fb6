//! May this upcall run on the executive's own thread, among the handlers of channels?
//!
//! Below the executive an upcall pays for a change of thread and for whatever preempts it. Code that is trusted to give the thread
//! back after each iteration may do without: to the analysis it is a message of as many packets as a run has iterations, released
//! every period and due at its end, with a preemption point after each of them. So it stands in every test that decides about
//! channels, by deadline, by level, or under the composite rule, with
//!
//! ```text
//! H = (m − 1) c + F,   q = m − 1,   block = c         m iterations, of which the last takes F
//! ```
//!
//! The longest iteration of all, [`upcall_step`](crate::platform::Platform::upcall_step), is fixed when the executive starts, because
//! grants of other hosts rest on what it is a term of: how far ahead the link is served (E in the head of `machine`), and how long
//! a frame may wait to be found ([`Admission::input_delay`]). The driver looks at its inputs and at the link after each iteration.

use super::reserve::Reservation;
use super::upcalls::{UpcallDenial, UpcallRefusal, fitting_cost};
use super::{Admission, Code, Refusal, ReservationId};
use crate::contract::Contract;
use crate::units::Duration;
use crate::upcall::Upcall;

impl Admission {
    /// Takes an upcall in that runs on the executive's own thread, if everything that is there keeps its time beside it: how long
    /// after its release a run is to be done for the scheduler, at most its period. `priority` is its level under
    /// [`Rule::Levels`](super::answer::Rule::Levels). [`Admission::release`] gives it back.
    ///
    /// # Errors
    /// The reason for a refusal, and the values that would fit.
    pub fn reserve_trusted(
        &mut self,
        upcall: Upcall,
        priority: u8,
    ) -> Result<(ReservationId, Duration), UpcallRefusal> {
        self.for_upcalls(|host| {
            let decided = host.decide_trusted(&upcall, priority);
            let reserved = decided.and_then(|held| {
                let id = host.insert(held).map_err(|_| UpcallDenial::Memory)?;
                let kept = host.keeps_tolerances();
                kept.map(|()| id).map_err(|_| {
                    host.release(id);
                    UpcallDenial::BreaksOthers
                })
            });
            let grants = |cheaper: Upcall| host.decide_trusted(&cheaper, priority).is_ok();
            let id = reserved.map_err(|why| UpcallRefusal { why, fitting_cost: fitting_cost(upcall, grants) })?;
            // A stage that cannot be longer stays as it is.
            let _ = host.relax(id, upcall.period());
            let stage = host.reservation(id).map_or(0, |held| held.deadlines().0);
            Ok((id, Duration::from_nanos(stage)))
        })
    }

    fn decide_trusted(&self, upcall: &Upcall, priority: u8) -> Result<Reservation, UpcallDenial> {
        let most = self.platform().upcall_step;
        if upcall.quantum() > most {
            return Err(UpcallDenial::TooLong(most));
        }
        let contract =
            Contract::new(1, 1, upcall.period(), 1, upcall.period()).map_err(|_| UpcallDenial::Utilisation)?;
        let newcomer = Reservation::running(self.machine.running(upcall, &contract), contract, priority);
        self.decide_newcomer(newcomer, upcall.period()).map_err(why)
    }
}

fn why(refusal: Refusal) -> UpcallDenial {
    match (refusal.code, refusal.least_deadline) {
        (Code::ProcessorUtilisation | Code::CompositeUtilisation, _) => UpcallDenial::Utilisation,
        (_, Some(least)) => UpcallDenial::Late(least),
        (_, None) => UpcallDenial::BreaksOthers,
    }
}

#[cfg(test)]
mod tests;
