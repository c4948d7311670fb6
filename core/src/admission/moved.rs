//! The same channels on other figures of the platform.

use super::ledger::DemandLedger;
use super::link::PacketStream;
use super::machine::Machine;
use super::reserve::Admission;
use super::{Code, Refusal, Stage};
use crate::platform::Platform;

impl Admission {
    /// The same channels, with their stage deadlines and ids, on other figures of the platform; everything is tested anew.
    pub(super) fn on_platform(&self, platform: Platform) -> Result<Self, Refusal> {
        let bad = |_| Refusal::new(Code::BadParameters, Stage::Link);
        let machine = Machine::new(platform, self.settings.send_early).map_err(bad)?;
        let mut moved = Self { machine, ledger: DemandLedger::new(), ..self.clone() };
        for (id, held) in self.channels.iter() {
            let mut held = *held;
            if let (Some(stream), Some(role)) = (&mut held.stream, held.role) {
                let anew = moved.machine.stream_of(&held.contract, role)?;
                *stream = PacketStream { deadline: stream.deadline, reach: stream.reach, ..anew };
            }
            moved.put(id, held);
        }
        moved.test()?;
        moved.upcalls_keep_time(None)?;
        Ok(moved)
    }
}
