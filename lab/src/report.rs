//! The result of a bench with two ends, whose rows are compared.

use laxity_core::figures::Figures;

/// What was measured, and under which conditions.
#[derive(Clone, Debug)]
pub struct Report<R, D = ()> {
    /// In the order of the bench.
    pub rows: Vec<R>,
    /// The figures of Laxity's channels, if they are told.
    pub channels: Vec<Figures>,
    /// True if the threads that were measured ran as SCHED_FIFO, where they are to.
    pub is_real_time: bool,
    /// True if processors were kept from idling deeply.
    pub is_kept_awake: bool,
    /// Remarks on all.
    pub notes: Vec<String>,
    /// What only this bench tells.
    pub details: D,
}
