//! The experiments of `[rtu §7]`: upcalls that run every period, in virtual time or live on this host.
//!
//! | Module | What it does |
//! |---|---|
//! | [`deadlines`] | Experiment 1: deadlines and slack at more and more utilisation |
//! | [`switches`] | Experiment 2: what delayed preemption saves |
//! | [`udp`] | Experiment 3: a client and a server over UDP |
//!
//! The upcalls of the first two in virtual time stand here: so many processes with six each, which take the same share each.

pub(super) mod deadlines;
pub(super) mod switches;
pub(super) mod udp;

use laxity_core::admission::response_time;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::Upcall;
use laxity_lab::upcalls::deadlines::PERIODS_MS;
use laxity_sim::upcalls::{SoloThread, alone};

use super::sweep::{phase, phases};

/// After so much virtual time the pattern of releases repeats: the least common multiple of the periods.
pub(super) const SIMULATED: Duration = Duration::from_millis(25_200);
/// Of each scheme of upcall-deadlines at each step, live: all of them take less than a minute.
pub(super) const DEADLINES: Duration = Duration::from_millis(1_200);
/// Of each scheme of upcall-udp with each size of packets.
pub(super) const UDP: Duration = Duration::from_secs(1);

/// Why upcall-switches does not run live.
pub(super) const ONLY_SIMULATED: &str =
    "upcall-switches is only there with --simulated: on a live processor upcalls are of one process";

/// A share of the processor in thousandths, as a decimal fraction.
fn share(utilisation: u64) -> String {
    format!("{}.{:03}", utilisation / 1000, utilisation % 1000)
}

/// Whether there is background load, in a table.
fn beside(background: bool) -> String {
    if background { "background" } else { "alone" }.to_owned()
}

/// Units of work of a run: an iteration of one unit is so short that preemption is as good as immediate.
const BATCH: u32 = 200;

/// What all upcalls have in common.
struct UpcallDefaults {
    processes: u64,
    /// That all take together, in thousandths of the processor.
    utilisation: u64,
    /// Units of an iteration.
    block: u32,
    /// C_cs.
    switch: Duration,
    /// Of the first releases; 0 releases all together.
    seed: u64,
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
    fn run(&self, span: Duration) -> (Vec<Upcall>, SoloThread) {
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
    fn is_accepted(&self) -> bool {
        response_time::holds(&self.upcalls(), self.switch, Duration::ZERO)
    }
}

/// Runs of all that were late or skipped.
fn missed(alone: &SoloThread) -> u64 {
    alone.runs.iter().map(|runs| runs.late + runs.skipped).sum()
}
