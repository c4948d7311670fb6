//! What varies: the rows of each experiment.

use laxity_core::processor::Preemption;
pub(super) use laxity_lab::experiment::Experiment as Case;

use crate::bench::shown::fraction;
use crate::numbers::count;

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

/// When handlers may be replaced: its name in JSON, its heading on a page, and its name in a picture.
pub(super) const MODES: [(Preemption, [&str; 3]); 4] = [
    (Preemption::Cooperative, ["cooperative", "Cooperative preemption", "Cooperative"]),
    (
        Preemption::BestEffortRunsOn,
        ["best-effort-not-preempted", "Best effort is not preempted (Fig. 9a)", "Best effort not preempted"],
    ),
    (
        Preemption::MessageBoundary,
        ["message-boundary", "Real-time only at message boundaries (Fig. 9b)", "Message boundaries"],
    ),
    (Preemption::Drain, ["drain", "Real-time handlers drain their queues (Fig. 9b, worse)", "Queues drained"]),
];

/// The name of a mode in JSON.
pub(super) fn name_of(mode: Preemption) -> &'static str {
    MODES.iter().find(|(other, _)| *other == mode).map_or("", |(_, [name, ..])| name)
}

/// The papers' kilobyte: messages of 60 of them are 61,440 bytes.
pub(super) const KIB: u64 = 1024;

/// Best effort from nothing to far beyond what is left for it, KiB/s.
const LOADS: [u64; 14] = [0, 600, 1200, 1900, 3000, 4000, 4500, 5000, 6000, 7000, 8000, 10_000, 12_000, 14_000];
/// Best effort beside a violator, KiB/s.
const BESIDE_VIOLATOR: u64 = 1900;
/// How much of its rate the violator offers, per cent.
const FACTORS: [u64; 7] = [100, 125, 150, 200, 250, 300, 400];

/// Live: best effort, per cent of what is left of the link for it. The papers' loads go up to 300.
const LIVE_LOADS: [u64; 8] = [0, 30, 60, 90, 110, 150, 200, 300];
/// Four of them for each way to do without cooperative preemption.
const LIVE_LOADS_PREEMPTION: [u64; 4] = [40, 85, 130, 300];
/// As 1,900 KiB/s of 4,677.
const LIVE_BESIDE_VIOLATOR: u64 = 40;

impl Experiment {
    /// Its runs live, where `left` bytes a second are left of the link for best effort: fewer of them, at loads that stand to
    /// this link as the papers' loads stand to theirs.
    pub(super) fn live_cases(self, left: u64) -> Vec<Case> {
        // To whole KiB/s.
        let offer = |percent: u64| (u128::from(left) * u128::from(percent) / 100) as u64 / KIB * KIB;
        self.cases_at(&LIVE_LOADS, &LIVE_LOADS_PREEMPTION, LIVE_BESIDE_VIOLATOR, offer)
    }

    /// Its runs, in the order of the reports.
    pub(super) fn cases(self) -> Vec<Case> {
        self.cases_at(&LOADS, &LOADS, BESIDE_VIOLATOR, |load| load * KIB)
    }

    /// Its runs at these loads, at those of each mode, or at one beside the violator; `offer` makes bytes per second of a load.
    fn cases_at(self, loads: &[u64], of_modes: &[u64], beside: u64, offer: impl Fn(u64) -> u64) -> Vec<Case> {
        let at = |load, preemption| Case { best_effort: offer(load), channel_0_percent: 100, preemption };
        match self {
            Self::Guarantee => loads.iter().map(|&load| at(load, Preemption::Cooperative)).collect(),
            Self::Violation => {
                let case = at(beside, Preemption::Cooperative);
                FACTORS.iter().map(|&channel_0_percent| Case { channel_0_percent, ..case }).collect()
            }
            Self::Preemption => {
                MODES.iter().flat_map(|(mode, _)| of_modes.iter().map(move |&load| at(load, *mode))).collect()
            }
        }
    }
}

/// What tells a run from the others of its experiment, for people.
pub(super) fn label(case: &Case, experiment: Experiment) -> String {
    let offered = || count(case.best_effort / KIB);
    match experiment {
        Experiment::Guarantee => format!("best effort {} KiB/s", offered()),
        Experiment::Violation => format!("channel 0 {}", factor(case)),
        Experiment::Preemption => format!("{}, best effort {} KiB/s", name_of(case.preemption), offered()),
    }
}

/// What channel 0 offers, for people: `×1.25`.
pub(super) fn factor(case: &Case) -> String {
    format!("×{}", fraction(case.channel_0_percent, 100))
}

/// Whether what was admitted must hold.
pub(super) const fn is_promised(case: &Case) -> bool {
    matches!(case.preemption, Preemption::Cooperative)
}

/// Whether this channel keeps its contract.
pub(super) const fn conforms(case: &Case, channel: usize) -> bool {
    channel > 0 || case.channel_0_percent <= 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_in_every_mode_and_every_factor() {
        assert_eq!(Experiment::Guarantee.cases().len(), LOADS.len());
        assert_eq!(Experiment::Preemption.cases().len(), 4 * LOADS.len());
        let violation = Experiment::Violation.cases();
        assert!(violation.iter().all(|case| case.best_effort == BESIDE_VIOLATOR * KIB && conforms(case, 1)));
        assert_eq!(violation.iter().filter(|case| conforms(case, 0)).count(), 1);
        let factors: Vec<String> = violation.iter().map(factor).collect();
        assert_eq!(factors, ["×1", "×1.25", "×1.5", "×2", "×2.5", "×3", "×4"]);
    }

    #[test]
    fn live_loads_are_parts_of_what_is_left_however_much_that_is() {
        for left in [1, 6_000_000, u64::MAX / 8] {
            let loads: Vec<u64> = Experiment::Guarantee.live_cases(left).iter().map(|case| case.best_effort).collect();
            assert!(loads.is_sorted() && loads[0] == 0 && loads.iter().all(|load| load % KIB == 0), "{loads:?}");
            assert!(loads[7].abs_diff(3 * left) <= KIB);
        }
        assert_eq!(Experiment::Violation.live_cases(6_000_000).len(), FACTORS.len());
        assert_eq!(Experiment::Preemption.live_cases(6_000_000).len(), 16);
    }
}
