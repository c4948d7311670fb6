//! Upcalls: an application's own code that the host runs every period, under the guarantee that it is done by the period's end [rtu §4].
//!
//! A *run* (the paper's invocation) handles a batch of units of work, B_p of them at most. It may be replaced only after every block of
//! b_p units, an *iteration*: so upcalls of one process need no locks among each other. [`Upcalls`] decides which one is next; its caller
//! does the work, and reports the progress. [`crate::admission`] decides whether upcalls may exist.

mod run_queue;

pub use run_queue::{CompletedRun, PickedRun, RunOutcome, UpcallId, Upcalls};

use crate::limits::{self, OutOfRange};
use crate::units::Duration;

/// A periodic upcall; valid by construction. Its deadline is its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcall {
    period: Duration,
    cost: Duration,
    batch: u32,
    block: u32,
}

/// The parameter of an upcall that is impossible: nanoseconds or PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upcall: {0}")]
pub struct UpcallError(pub OutOfRange);

impl Upcall {
    /// An upcall every `period` (T) that takes `cost` (C) at most, handles up to `batch` (B_p) PDUs, and may be preempted after
    /// every `block` (b_p) of them.
    ///
    /// # Errors
    /// The first value outside its range: a period of 1 ns to [`limits::MAX_INTERVAL`], a cost of 1 ns to the period, a batch
    /// of 1 to [`limits::MAX_PACKETS_PER_MESSAGE`], a block of 1 to the batch.
    pub fn new(period: Duration, cost: Duration, batch: u32, block: u32) -> Result<Self, UpcallError> {
        let range = |field, found, least, most| OutOfRange::check(field, found, least, most).map_err(UpcallError);
        range("period", period.as_nanos(), 1, limits::MAX_INTERVAL.as_nanos())?;
        range("cost", cost.as_nanos(), 1, period.as_nanos())?;
        range("batch", batch.into(), 1, limits::MAX_PACKETS_PER_MESSAGE.into())?;
        range("block", block.into(), 1, batch.into())?;
        Ok(Self { period, cost, batch, block })
    }

    /// T: one run in each, to be complete at its end.
    pub fn period(&self) -> Duration {
        self.period
    }
    /// C: processor time of one run.
    pub fn cost(&self) -> Duration {
        self.cost
    }
    /// B_p: PDUs of one run.
    pub fn batch(&self) -> u32 {
        self.batch
    }
    /// b_p: PDUs of one iteration, which is not interrupted.
    pub fn block(&self) -> u32 {
        self.block
    }
    /// c = C b_p/B_p: the longest iteration, rounded up.
    pub fn quantum(&self) -> Duration {
        let product = u128::from(self.cost.as_nanos()) * u128::from(self.block);
        // At most the cost, so it fits.
        Duration::from_nanos(product.div_ceil(self.batch.into()) as u64)
    }
    /// ⌈B_p/b_p⌉: iterations of a run.
    pub fn iterations(&self) -> u32 {
        self.batch.div_ceil(self.block)
    }
    /// F = C ((B_p mod b_p) or b_p)/B_p: the last iteration, rounded down.
    pub fn last_iteration(&self) -> Duration {
        let pdus = (self.batch - 1) % self.block + 1;
        self.cost.mul_ratio(pdus.into(), self.batch.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_upcall() {
        let seventh = Upcall::new(Duration::from_nanos(100), Duration::from_nanos(50), 7, 3).unwrap();
        // 50·3/7 = 21.4, and one PDU is left for the last iteration: 50/7 = 7.1.
        assert_eq!((seventh.quantum().as_nanos(), seventh.last_iteration().as_nanos()), (22, 7));
        let error = |period, cost, batch, block| {
            let upcall = Upcall::new(Duration::from_nanos(period), Duration::from_nanos(cost), batch, block);
            upcall.map_err(|UpcallError(error)| (error.field, error.found, error.least, error.most))
        };
        assert_eq!(error(0, 1, 1, 1), Err(("period", 0, 1, limits::MAX_INTERVAL.as_nanos())));
        assert_eq!(error(10, 0, 1, 1), Err(("cost", 0, 1, 10)));
        assert_eq!(error(10, 11, 1, 1), Err(("cost", 11, 1, 10)));
        assert_eq!(error(10, 1, 0, 1), Err(("batch", 0, 1, limits::MAX_PACKETS_PER_MESSAGE.into())));
        assert_eq!(error(10, 1, 4, 5), Err(("block", 5, 1, 4)));
    }
}
