//! The declaration of upcalls and of their thread, and the answer to it.

use laxity_core::units::Duration;
use laxity_core::upcall::Upcall as Timing;

use crate::calibration::{Costs, Level};
use crate::error::Error;

/// The reaction to a run that took more than was declared. Such a run is counted and reported in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overrun {
    /// No further reaction: other upcalls may miss because of it, and report it.
    #[default]
    Count,
    /// From its next release on, the upcall comes after all other periodic upcalls.
    Demote,
    /// The upcall is stopped.
    Stop,
}

/// The declaration of an upcall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallSpec {
    pub(super) period: Duration,
    pub(super) cost: Duration,
    pub(super) batch: u32,
    pub(super) block: Option<u32>,
    pub(super) overrun: Overrun,
}

impl UpcallSpec {
    /// Declares a run in every `period` (1 ns to one hour), to be done by the end of the period.
    ///
    /// Always declare the processor time of a run with [`taking`](UpcallSpec::taking): by default it is the whole period.
    pub fn every(period: Duration) -> Self {
        Self { period, cost: period, batch: 1, block: None, overrun: Overrun::Count }
    }
    /// Sets the processor time of a run: 1 ns to the period.
    #[must_use]
    pub fn taking(self, cost: Duration) -> Self {
        Self { cost, ..self }
    }
    /// Sets B_p, the number of units of work in a run; 1 by default.
    #[must_use]
    pub fn batch(self, batch: u32) -> Self {
        Self { batch, ..self }
    }
    /// Sets b_p, the number of units between two points at which the handler may yield (an iteration): 1 to the batch; by default all
    /// units. Smaller blocks delay other upcalls less.
    #[must_use]
    pub fn block(self, block: u32) -> Self {
        Self { block: Some(block), ..self }
    }
    /// Sets the reaction to a run that took more than was declared; [`Overrun::Count`] by default.
    #[must_use]
    pub fn on_overrun(self, overrun: Overrun) -> Self {
        Self { overrun, ..self }
    }

    pub(super) fn timing(&self) -> Result<Timing, Error> {
        Ok(Timing::new(self.period, self.cost, self.batch, self.block.unwrap_or(self.batch))?)
    }
}

/// Options of a thread of upcalls.
#[derive(Clone, Debug)]
pub struct UpcallsConfig {
    /// The costs with which admission computes bounds, for upcalls without a host. `None` (the default) takes those of this host, as
    /// [`HostConfig::costs`](crate::HostConfig::costs). Upcalls of a host use the host's costs.
    pub costs: Option<Costs>,
    /// The SCHED_FIFO priority to ask for, 1 to 98, below that of the executive; 60 by default. With `None`, or if it is not permitted,
    /// the thread is an ordinary one ([`Upcalls::scheduling`](super::Upcalls::scheduling)).
    pub fifo_priority: Option<u8>,
    /// The processor of the thread; `None` (the default) for any. Two processes cannot have upcalls on one processor; this is checked
    /// among processes that name it.
    pub processor: Option<usize>,
    /// The largest number of upcalls at once, 1 to 131,072 ([`MAX_UPCALLS`](crate::limits::MAX_UPCALLS)); 256 by default.
    pub capacity: usize,
    /// Locks the process's memory, if the process may lock without limit. True by default.
    pub lock_memory: bool,
}

impl Default for UpcallsConfig {
    /// Room for 256 upcalls, a priority below that of a default executive, memory locked where permitted.
    fn default() -> Self {
        Self { costs: None, fifo_priority: Some(60), processor: None, capacity: 256, lock_memory: true }
    }
}

/// The positive answer to a request for an upcall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallGrant {
    /// The longest time from a run's release until it is done, with all that is admitted now. Later admissions may raise it up to the
    /// period. `None` without a bound.
    ///
    /// For an aperiodic upcall it counts from the request, if no other aperiodic run waits.
    pub bound: Option<Duration>,
    /// The level of trust in the bound.
    pub level: Level,
}
