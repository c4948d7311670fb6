//! What came of one run, simulated or live: what tables, JSON and pictures are made of.

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::figures::broken_promise;

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
    /// From the sending application's stamp until the receiving application had the message, at most; unknown in virtual time.
    pub(super) in_hand: Option<Duration>,
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
        let said = real_time.filter_map(|figures| broken_promise(&self.case.label(experiment), figures));
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
        let row = |mode, misses, best_effort, delivered| {
            let figures =
                Figures { name: "a".to_owned(), misses, late: 3, best_effort, delivered, ..Figures::default() };
            let channels = vec![Outcome { figures, ..Outcome::default() }];
            let case = Case { best_effort: 0, channel_0_percent: 125, mode };
            Row { case, channels, gaps: None, notes: Vec::new(), disturbances: Vec::new() }
                .broken(Experiment::Violation)
        };
        let laxity = Misses { laxity: 2, ..Misses::default() };
        let others = Misses { sender: 1, receiver: 1, network: 1, platform: 3, ..Misses::default() };
        let said = row(Mode::Cooperative, laxity, false, 4);
        assert_eq!(said, ["channel 0 ×1.25: a missed 2 by Laxity's fault, 0 over the bound"]);
        for nothing in
            [(Mode::Cooperative, others, false), (Mode::Drain, laxity, false), (Mode::Cooperative, laxity, true)]
        {
            assert!(row(nothing.0, nothing.1, nothing.2, 4).is_empty(), "{nothing:?}");
        }
        assert_eq!(row(Mode::Cooperative, Misses::default(), false, 0), ["channel 0 ×1.25: a brought nothing"]);
    }
}
