//! The same channels on other figures of the platform.

use super::ledger::Change;
use super::link::Stream;
use super::machine::Machine;
use super::reserve::Admission;
use super::{Code, Refusal, Stage};
use crate::platform::Platform;

impl Admission {
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
