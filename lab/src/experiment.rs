//! The experiments of `[channels §5]` live: Table 3 in full bursts beside best effort, through Laxity, across the wire.
//!
//! One run of an experiment is a scenario whose sources are those of the papers: each real-time channel sends full bursts at its
//! full rate, channel 0 at the rate that is asked for, best effort in bursts of ten messages. A channel that keeps its contract
//! waits if it is a little ahead of it, but not for room: a message that finds none is dropped, as in the papers, and has a
//! cause.
//!
//! The sending host may do without cooperative preemption `[channels Fig. 9]`. Nothing is promised then (docs/adr, 16).

use laxity::{Host, HostConfig, experiments};
use laxity_core::processor::Preemption;
use laxity_core::units::Duration;

use crate::attack::{Attack, EXCESS};

/// The time that the sources run before throughput is counted: longer than a period of any channel that keeps its contract.
pub const WARM_UP: Duration = Duration::from_millis(700);
/// Messages in a burst of best effort.
pub const BEST_EFFORT_BURST: u32 = 10;
/// The channel that an attack's violator sends on: what channel 0 does is part of the experiments.
pub const VIOLATOR: usize = 2;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The load that best effort offers, payload bytes a second. A flood comes on top of it.
    pub best_effort: u64,
    /// The part of its contract's rate that channel 0 offers, per cent, at least 1.
    pub channel_0_percent: u64,
    /// The points at which the sending host's handlers may be replaced.
    pub preemption: Preemption,
}

/// True if the sending host may process messages ahead of their logical arrival; Fig. 9b has it so.
pub const fn sends_early(mode: Preemption) -> bool {
    matches!(mode, Preemption::MessageBoundary | Preemption::Drain)
}

impl Experiment {
    /// The part of its contract's rate that real-time channel `number` offers, per cent.
    pub(crate) fn percent(&self, number: usize, attack: Attack) -> u64 {
        match number {
            VIOLATOR if attack.violates() => 100 * EXCESS,
            0 => self.channel_0_percent,
            _ => 100,
        }
    }

    /// The sending host.
    pub(crate) fn start(&self, config: HostConfig) -> Result<Host, laxity::Error> {
        let config = config.advanced(|advanced| advanced.hold_sending = !sends_early(self.preemption));
        match self.preemption {
            Preemption::Cooperative => Host::start(config),
            other => experiments::start_without_promises(config, other),
        }
    }
}
