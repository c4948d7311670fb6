//! The same channels on other figures: on a part of the link, or counting on other interference.

use super::ledger::Change;
use super::link::Stream;
use super::machine::Machine;
use super::reserve::Admission;
use super::{Code, Refusal, Stage};
use crate::platform::Platform;
use crate::units::Rate;

impl Admission {
    /// The same channels, with their stage deadlines and ids, on a part of the link that [`Admission::new`] was given: the
    /// part with `rate` of its rate ([`LinkModel::part`](crate::platform::LinkModel::part)). Everything is tested anew: a lower rate is less for the link to
    /// send with, a higher one asks the processor for C_l more often. The look-ahead does not depend on the rate.
    ///
    /// # Errors
    /// [`Code::BadParameters`]: the link is not paced, `rate` is more than it has, or so little that its set-up time is out of
    /// range. Else the first test that fails, as in [`Admission::reserve`]; `self` is as it was.
    pub fn with_rate(&self, rate: Rate) -> Result<Self, Refusal> {
        let bad = || Refusal::new(Code::BadParameters, Stage::Link);
        let link = self.link.part(rate).ok_or_else(bad)?;
        let moved = self.on_platform(Platform { link, ..self.platform().clone() })?;
        moved.keeps_tolerances()?;
        Ok(moved)
    }

    /// The same channels, with their stage deadlines and ids, on other figures of the platform; everything is tested anew.
    pub(super) fn on_platform(&self, platform: Platform) -> Result<Self, Refusal> {
        let bad = |_| Refusal::new(Code::BadParameters, Stage::Link);
        let machine = Machine::new(platform, self.settings.send_early).map_err(bad)?;
        let mut moved = Self::on(machine, self.settings);
        (moved.link, moved.first_rule) = (self.link, self.first_rule);
        (moved.free, moved.upcalls) = (self.free.clone(), self.upcalls.clone());
        moved.slots = self.slots.clone();
        for slot in &mut moved.slots {
            let Some(reservation) = &mut slot.reservation else { continue };
            if let (Some(stream), Some(role)) = (&mut reservation.stream, reservation.role) {
                let anew = moved.machine.stream_of(&reservation.contract, role)?;
                *stream = Stream { deadline: stream.deadline, reach: stream.reach, ..anew };
            }
            moved.ledger.change(Change::Enters, moved.machine.switch, reservation.parts());
        }
        moved.test()?;
        moved.upcalls_keep_time(None)?;
        Ok(moved)
    }
}
