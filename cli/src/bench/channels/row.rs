//! What came of one run, simulated or live: what tables, JSON and pictures are made of.

use laxity_core::figures::Figures;
use laxity_core::units::Duration;

use super::plan::{Case, Experiment};

/// One run, done.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: Case,
    /// The real-time channels, then best effort.
    pub(super) channels: Vec<Outcome>,
    /// Gaps beyond the platform's envelope, and the longest; `None` in virtual time.
    pub(super) gaps: Option<(u64, Duration)>,
    /// What is worth telling of this run alone.
    pub(super) notes: Vec<String>,
    /// What disturbed it, in words; the report tells it of all runs together.
    pub(super) disturbances: Vec<String>,
}

/// What came of one channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// `sent` are the messages that ended, delivered or dropped.
    pub(super) figures: Figures,
    /// Bytes per second in the steady state.
    pub(super) throughput: u64,
    /// `None` where only late messages are known.
    pub(super) late_packets: Option<u64>,
    pub(super) dropped_packets: u64,
    /// Deadline minus completion, ns.
    pub(super) min_laxity: Option<i64>,
    pub(super) mean_laxity: Option<i64>,
}

/// What is counted as late and dropped: the papers' quantity where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Unit {
    Packets,
    Messages,
}

impl Outcome {
    pub(super) fn late(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Packets => self.late_packets.unwrap_or(0),
            Unit::Messages => self.figures.late,
        }
    }

    pub(super) fn dropped(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Packets => self.dropped_packets,
            Unit::Messages => self.figures.dropped,
        }
    }
}

impl Row {
    /// The real-time channels.
    pub(super) fn real_time(&self) -> impl Iterator<Item = &Outcome> {
        self.channels.iter().filter(|outcome| !outcome.figures.best_effort)
    }

    /// The promises that were broken, a line each; nothing was promised where handlers do not yield.
    pub(super) fn broken(&self, experiment: Experiment) -> Vec<String> {
        let real_time = self.real_time().map(|channel| &channel.figures);
        let broken = real_time.filter(|figures| figures.misses.laxity > 0 || figures.over_bound > 0);
        let said = broken.map(|figures| {
            let Figures { name, misses, over_bound, .. } = figures;
            let case = self.case.label(experiment);
            format!("{case}: {name} missed {} by Laxity's fault, {over_bound} over the bound", misses.laxity)
        });
        if self.case.is_promised() { said.collect() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::Misses;

    use super::super::plan::Mode;
    use super::*;

    #[test]
    fn only_misses_of_our_own_break_what_was_promised() {
        let row = |mode, misses, best_effort| {
            let figures = Figures { name: "a".to_owned(), misses, late: 3, best_effort, ..Figures::default() };
            let channels = vec![Outcome { figures, ..Outcome::default() }];
            let case = Case { best_effort: 0, channel_0_percent: 125, mode };
            Row { case, channels, gaps: None, notes: Vec::new(), disturbances: Vec::new() }
                .broken(Experiment::Violation)
        };
        let laxity = Misses { laxity: 2, ..Misses::default() };
        let others = Misses { sender: 1, receiver: 1, network: 1, platform: 3, laxity: 0 };
        let said = row(Mode::Cooperative, laxity, false);
        assert_eq!(said, ["channel 0 ×1.25: a missed 2 by Laxity's fault, 0 over the bound"]);
        for nothing in
            [(Mode::Cooperative, others, false), (Mode::Drain, laxity, false), (Mode::Cooperative, laxity, true)]
        {
            assert!(row(nothing.0, nothing.1, nothing.2).is_empty(), "{nothing:?}");
        }
    }
}
