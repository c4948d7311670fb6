//! The processor's half of the split test under fixed priorities [channels §4.2]: response times by level.
//!
//! Handlers run by level, first come first served within one, and are replaced after every P packets and at a message's end. A message of
//! channel i is done R_i after its logical arrival, by the formulas of [`super::response_time`], with
//!
//! ```text
//! C_i  = H_i + C_csp + (q_i + 1) R                one C_csp more where it is above: back to the interrupted one
//! F_i  = what its last block takes at least
//! Bl_i = max( other_block, C_csp + block(N_j) + R of each channel j that is below, or that may be served early )
//! X    = Intf + the link's tax
//! ```
//!
//! Those of the same level count as above: in whatever order they were queued, none of them is before it more often than that. R_i is d_cpu: a newcomer
//! fits if its own response is within its part of the deadline, and that of every other channel within its part.

use alloc::vec::Vec;

use super::link::PacketStream;
use super::processor::Job;
use super::reserve::{Admission, Reservation, on_processor_stage};
use super::response_time::{HigherPriority, PeriodicCost};
use super::{Code, Refusal};
use crate::units::Instant;

impl Admission {
    /// Tells whether all channels are in time.
    pub(super) fn keeps_levels(&self) -> Result<(), Refusal> {
        let all = self.responses_by_level(None);
        let is_late = |(held, response): &&(&Reservation, Option<u64>)| {
            response.is_none_or(|response| response > held.deadlines().0)
        };
        let Some((held, _)) = all.iter().find(is_late) else { return Ok(()) };
        let at = Some(Instant::from_nanos(held.deadlines().0));
        Err(Refusal { at, ..Refusal::new(Code::ProcessorDeadline, on_processor_stage(held.role)) })
    }

    /// The newcomer's response on the processor, or the deadline of one that it would make late.
    pub(super) fn least_by_level(&self, newcomer: &Reservation) -> Result<u64, Instant> {
        let all = self.responses_by_level(Some(newcomer));
        let late = all.iter().find(|(held, response)| {
            !core::ptr::eq(*held, newcomer) && response.is_none_or(|response| response > held.deadlines().0)
        });
        if let Some((held, _)) = late {
            return Err(Instant::from_nanos(held.deadlines().0));
        }
        match all.last() {
            Some((held, response)) if core::ptr::eq(*held, newcomer) => {
                response.ok_or(Instant::from_nanos(newcomer.deadlines().0))
            }
            // It has no handler here.
            _ => Ok(0),
        }
    }

    /// Every channel with a handler, and its response on the processor by level, if that has a bound; the newcomer's last.
    pub(super) fn responses_by_level<'a>(
        &'a self,
        newcomer: Option<&'a Reservation>,
    ) -> Vec<(&'a Reservation, Option<u64>)> {
        let all = || self.reservations().chain(newcomer);
        let streams: Vec<PacketStream> = all().filter_map(|held| held.stream).collect();
        let stolen = self.machine.processor_stolen(&streams);
        let with_handler = || all().filter_map(|held| Some((held, held.job?)));
        let response = |(held, job): (&'a Reservation, Job)| {
            let mut above = HigherPriority::new(0, stolen.clone());
            let mut blocking = self.machine.other_block;
            for (other, peer) in with_handler() {
                let is_other = !core::ptr::eq(other, held);
                if is_other && other.priority <= held.priority {
                    let cost = u128::from(peer.cost) + u128::from(self.machine.switch);
                    above.push(PeriodicCost { period: peer.interval.into(), cost });
                }
                // Its own messages that are early may be in the way of the one that is current, too.
                if is_other && other.priority > held.priority || self.serves_early() {
                    blocking = blocking.max(peer.block);
                }
            }
            let own = PeriodicCost { period: job.interval.into(), cost: job.cost.into() };
            (held, above.response(own, job.last.into(), blocking.into()))
        };
        with_handler().map(response).collect()
    }
}
