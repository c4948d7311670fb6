//! The upcalls of the paper's experiments in virtual time: so many processes with six each, which take the same share each.

use laxity_core::admission::response_time;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Upcall;
use laxity_lab::upcalls::deadlines::PERIODS_MS;
use laxity_sim::upcalls::{SoloThread, alone};

use crate::bench::sweep::{phase, phases};

/// Units of work of a run: an iteration of one unit is so short that preemption is as good as immediate.
pub(super) const BATCH: u32 = 200;

/// What all upcalls have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpcallDefaults {
    pub(super) processes: u64,
    /// That all take together, in thousandths of the processor.
    pub(super) utilisation: u64,
    /// Units of an iteration.
    pub(super) block: u32,
    /// C_cs.
    pub(super) switch: Duration,
    /// Of the first releases; 0 releases all together.
    pub(super) seed: u64,
}

impl UpcallDefaults {
    fn upcalls(&self) -> Vec<Upcall> {
        let one = |millis: &u64| {
            let period = Duration::from_millis(*millis);
            let cost = period.mul_ratio(self.utilisation, 1000 * self.processes * PERIODS_MS.len() as u64);
            Upcall::new(period, cost, BATCH, self.block).expect("a share of a period")
        };
        (0..self.processes).flat_map(|_| PERIODS_MS.iter().map(one)).collect()
    }

    /// Runs them, for `span`.
    pub(super) fn run(&self, span: Duration) -> (Vec<Upcall>, SoloThread) {
        let (upcalls, mut random) = (self.upcalls(), phases(self.seed));
        // On the ticks of the paper's clock, a millisecond each.
        let tick = Duration::from_millis(1);
        let mut first = |period| Instant::ZERO + tick * phase(&mut random, period).div_floor(tick);
        let all: Vec<_> = upcalls.iter().map(|&upcall| (upcall, first(upcall.period()))).collect();
        let platform = Platform { upcall_switch: self.switch, ..Platform::papers_table_2b() };
        let alone = alone(&all, &platform, span);
        (upcalls, alone)
    }

    /// Whether the exact response-time test accepts them, whatever their phases.
    pub(super) fn is_accepted(&self) -> bool {
        response_time::holds(&self.upcalls(), self.switch, Duration::ZERO)
    }
}

/// Runs of all that were late or skipped.
pub(super) fn missed(alone: &SoloThread) -> u64 {
    alone.runs.iter().map(|runs| runs.late + runs.skipped).sum()
}
