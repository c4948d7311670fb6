//! What varies: the rows of each experiment.

use laxity_core::processor::Preemption;

/// An experiment of `[channels §5]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Experiment {
    /// Fig. 7.
    Guarantee,
    /// Fig. 8.
    Violation,
    /// Fig. 9.
    Preemption,
}

/// When handlers may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Cooperative,
    BestEffortNotPreempted,
    MessageBoundary,
    Drain,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// What best effort offers, bytes per second.
    pub(super) best_effort: u64,
    /// What channel 0 offers of its contract's rate, per cent.
    pub(super) channel_0_percent: u64,
    pub(super) mode: Mode,
}

/// The papers' kilobyte: messages of 60 of them are 61,440 bytes.
pub(super) const KIB: u64 = 1024;

/// Best effort from nothing to far beyond what is left for it, KiB/s.
const LOADS: [u64; 14] = [0, 600, 1200, 1900, 3000, 4000, 4500, 5000, 6000, 7000, 8000, 10_000, 12_000, 14_000];
/// Best effort beside a violator, KiB/s.
const BESIDE_VIOLATOR: u64 = 1900;
/// How much of its rate the violator offers, per cent.
const FACTORS: [u64; 7] = [100, 125, 150, 200, 250, 300, 400];

impl Experiment {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Guarantee => "channels-guarantee",
            Self::Violation => "channels-violation",
            Self::Preemption => "channels-preemption",
        }
    }

    /// Its runs, in the order of the reports.
    pub(super) fn cases(self) -> Vec<Case> {
        let at = |load: u64, mode| Case { best_effort: load * KIB, channel_0_percent: 100, mode };
        match self {
            Self::Guarantee => LOADS.iter().map(|&load| at(load, Mode::Cooperative)).collect(),
            Self::Violation => {
                let case = at(BESIDE_VIOLATOR, Mode::Cooperative);
                FACTORS.iter().map(|&channel_0_percent| Case { channel_0_percent, ..case }).collect()
            }
            Self::Preemption => Mode::EACH.iter().flat_map(|&mode| LOADS.map(|load| at(load, mode))).collect(),
        }
    }
}

impl Mode {
    pub(super) const EACH: [Self; 4] =
        [Self::Cooperative, Self::BestEffortNotPreempted, Self::MessageBoundary, Self::Drain];

    /// Its name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cooperative => "cooperative",
            Self::BestEffortNotPreempted => "best-effort-not-preempted",
            Self::MessageBoundary => "message-boundary",
            Self::Drain => "drain",
        }
    }

    /// What it is, for people.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Cooperative => "Cooperative preemption",
            Self::BestEffortNotPreempted => "Best effort is not preempted (Fig. 9a)",
            Self::MessageBoundary => "Real-time only at message boundaries (Fig. 9b)",
            Self::Drain => "Real-time handlers drain their queues (Fig. 9b, worse)",
        }
    }

    pub(super) const fn preemption(self) -> Preemption {
        match self {
            Self::Cooperative => Preemption::Cooperative,
            Self::BestEffortNotPreempted => Preemption::BestEffortRunsOn,
            Self::MessageBoundary => Preemption::MessageBoundary,
            Self::Drain => Preemption::Drain,
        }
    }

    /// Whether handlers may process early messages; Fig. 9b has it so.
    pub(super) const fn sends_early(self) -> bool {
        matches!(self, Self::MessageBoundary | Self::Drain)
    }
}

impl Case {
    /// Whether what was admitted must hold.
    pub(super) const fn is_promised(&self) -> bool {
        matches!(self.mode, Mode::Cooperative)
    }

    /// Whether this channel keeps its contract.
    pub(super) const fn conforms(&self, channel: usize) -> bool {
        channel > 0 || self.channel_0_percent <= 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_in_every_mode_and_every_factor() {
        assert_eq!(Experiment::Guarantee.cases().len(), LOADS.len());
        assert_eq!(Experiment::Preemption.cases().len(), 4 * LOADS.len());
        let violation = Experiment::Violation.cases();
        assert!(violation.iter().all(|case| case.best_effort == BESIDE_VIOLATOR * KIB && case.conforms(1)));
        assert_eq!(violation.iter().filter(|case| case.conforms(0)).count(), 1);
    }
}
