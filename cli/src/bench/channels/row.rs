//! What came of one run, simulated or live: what tables, JSON and pictures are made of.

use laxity_core::units::Duration;
use laxity_lab::ChannelOutcome;
use laxity_lab::figures::broken_promise;
use serde_json::{Value, json};

use super::plan::{Case, Experiment, is_promised, label, name_of};
use crate::bench::shown::fraction;
use crate::report::{self, with};

/// One run, done.
pub(super) struct Row {
    pub(super) case: Case,
    /// The real-time channels, then best effort.
    pub(super) channels: Vec<ChannelResult>,
    /// Gaps beyond the platform's envelope, and the longest; `None` in virtual time.
    pub(super) gaps: Option<(u64, Duration)>,
    /// What is worth telling of this run alone.
    pub(super) notes: Vec<String>,
    /// What disturbed it, in words; the report tells it of all runs together.
    pub(super) disturbances: Vec<String>,
}

/// What came of one channel.
#[derive(Debug, Default)]
pub(super) struct ChannelResult {
    /// `sent` are the messages that ended, delivered or dropped. Throughput is that of the steady state.
    pub(super) outcome: ChannelOutcome,
    /// `None` where only late messages are known.
    pub(super) late_packets: Option<u64>,
    pub(super) dropped_packets: u64,
}

impl ChannelResult {
    /// What is late, and what is dropped: packets, the papers' quantity, where that is known, otherwise messages.
    pub(super) fn late(&self) -> u64 {
        self.late_packets.unwrap_or(self.outcome.figures.late)
    }

    pub(super) fn dropped(&self) -> u64 {
        if self.late_packets.is_some() { self.dropped_packets } else { self.outcome.figures.dropped }
    }

    /// Deadline minus completion, ns: the least, and the mean.
    pub(super) fn min_laxity(&self) -> Option<i64> {
        self.laxity(self.outcome.figures.response)
    }

    pub(super) fn mean_laxity(&self) -> Option<i64> {
        self.laxity(self.outcome.mean)
    }

    fn laxity(&self, response: Option<Duration>) -> Option<i64> {
        let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        Some(nanos(self.outcome.figures.deadline?) - nanos(response?))
    }

    fn json(&self) -> Value {
        let more = json!({
            "throughput_bytes_s": self.outcome.throughput_bytes_s,
            // From the sending application's stamp until the receiving application had the message, at most; unknown in virtual time.
            "in_hand_max_ns": self.outcome.in_hand.max,
            "min_laxity_ns": self.min_laxity(),
            "mean_laxity_ns": self.mean_laxity(),
            "late_packets": self.late_packets,
            "dropped_packets": self.dropped_packets,
        });
        with(report::channel(&self.outcome.figures), more)
    }
}

impl Row {
    /// The real-time channels.
    pub(super) fn real_time(&self) -> impl Iterator<Item = &ChannelResult> {
        self.channels.iter().filter(|channel| !channel.outcome.figures.best_effort)
    }

    /// The promises that were broken, a line each; nothing was promised where handlers do not yield.
    pub(super) fn broken(&self, experiment: Experiment) -> Vec<String> {
        let real_time = self.real_time().map(|channel| &channel.outcome.figures);
        let said = real_time.filter_map(|figures| broken_promise(&label(&self.case, experiment), figures));
        if is_promised(&self.case) { said.collect() } else { Vec::new() }
    }

    pub(super) fn json(&self, experiment: Experiment) -> Value {
        let Case { best_effort, channel_0_percent, preemption, .. } = self.case;
        json!({
            "best_effort_offered_bytes_s": best_effort,
            "channel0_factor": (experiment == Experiment::Violation).then(|| fraction(channel_0_percent, 100)),
            "mode": (experiment == Experiment::Preemption).then_some(name_of(preemption)),
            "channels": self.channels.iter().map(ChannelResult::json).collect::<Value>(),
            "gaps": self.gaps.map(|(count, longest)| json!({ "count": count, "longest_ns": longest })),
            "notes": self.notes.iter().chain(&self.disturbances).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::{Figures, Misses};
    use laxity_core::processor::Preemption;

    use super::*;

    #[test]
    fn only_misses_of_our_own_break_what_was_promised() {
        let row = |mode, misses, best_effort, delivered| {
            let figures =
                Figures { name: "a".to_owned(), misses, late: 3, best_effort, delivered, ..Figures::default() };
            let outcome = ChannelOutcome { figures, ..ChannelOutcome::default() };
            let channels = vec![ChannelResult { outcome, ..ChannelResult::default() }];
            let case = Case { best_effort: 0, channel_0_percent: 125, preemption: mode };
            Row { case, channels, gaps: None, notes: Vec::new(), disturbances: Vec::new() }
                .broken(Experiment::Violation)
        };
        let laxity = Misses { laxity: 2, ..Misses::default() };
        let others = Misses { sender: 1, receiver: 1, network: 1, platform: 3, ..Misses::default() };
        let said = row(Preemption::Cooperative, laxity, false, 4);
        assert_eq!(said, ["channel 0 ×1.25: a missed 2 by Laxity's fault, 0 over the bound"]);
        for nothing in [
            (Preemption::Cooperative, others, false),
            (Preemption::Drain, laxity, false),
            (Preemption::Cooperative, laxity, true),
        ] {
            assert!(row(nothing.0, nothing.1, nothing.2, 4).is_empty(), "{nothing:?}");
        }
        assert_eq!(row(Preemption::Cooperative, Misses::default(), false, 0), ["channel 0 ×1.25: a brought nothing"]);
    }
}
