//! Which scenarios run, attack by attack, the stacks of one attack one after the other; and what came of one, live or simulated: what tables, JSON and
//! the HTML report are made of.

use std::fmt;

use laxity::snapshot::ChannelFigures;
use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_lab::figures::broken_promise;
use laxity_lab::wire::WireFigures;
use laxity_lab::{Attack, ChannelOutcome, FloodPath, ScenarioOutcome, Stack};
use serde_json::{Value, json};

use crate::report::with;

/// One scenario to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedScenario {
    pub(super) attack: Attack,
    pub(super) stack: Stack,
    pub(super) flood: FloodPath,
}

impl fmt::Display for PlannedScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flood = if self.flood == FloodPath::Foreign { ", a flood of an unknown peer" } else { "" };
        write!(f, "{}, {}{flood}", self.attack, self.stack)
    }
}

/// Whether this is among those that are named; all are if none is.
pub(super) fn is_wanted<T: PartialEq>(named: &[T], one: &T) -> bool {
    named.is_empty() || named.contains(one)
}

/// The scenarios of these attacks on these stacks, each once; all of them if none is named.
///
/// A flood goes through the stack. Laxity also runs once beside a foreign flood, which its grants do not cover.
pub(super) fn steps(attacks: &[Attack], stacks: &[Stack]) -> Vec<PlannedScenario> {
    let mut steps = Vec::new();
    for attack in Attack::EACH.into_iter().filter(|attack| is_wanted(attacks, attack)) {
        for stack in Stack::EACH.into_iter().filter(|stack| is_wanted(stacks, stack)) {
            let flood = if attack.floods() { FloodPath::Through } else { FloodPath::None };
            steps.push(PlannedScenario { attack, stack, flood });
        }
        if attack == Attack::Flood && is_wanted(stacks, &Stack::Laxity) {
            steps.push(PlannedScenario { attack, stack: Stack::Laxity, flood: FloodPath::Foreign });
        }
    }
    steps
}

/// One scenario that ran.
#[derive(Clone, Debug)]
pub(super) struct ScenarioRun {
    pub(super) attack: Attack,
    pub(super) stack: Stack,
    pub(super) flood: FloodPath,
    pub(super) simulated: bool,
    pub(super) elapsed: Duration,
    /// The real-time channels, then best effort.
    pub(super) channels: Vec<ChannelOutcome>,
    /// Nothing in virtual time.
    pub(super) wire: Option<WireFigures>,
    /// Gaps beyond the envelope that Laxity's executives saw, and the longest.
    pub(super) gaps: (u64, Duration),
    pub(super) notes: Vec<String>,
}

impl ScenarioRun {
    /// What it was.
    pub(super) fn step(&self) -> PlannedScenario {
        PlannedScenario { attack: self.attack, stack: self.stack, flood: self.flood }
    }

    /// Enough to tell it from the others.
    fn name(&self) -> String {
        format!("{}{}", self.step(), if self.simulated { ", simulated" } else { "" })
    }

    /// The real-time channels.
    pub(super) fn real_time(&self) -> impl Iterator<Item = &ChannelOutcome> {
        self.channels.iter().filter(|channel| !channel.figures.best_effort)
    }

    /// Whether Laxity promised anything here: its promises do not cover a foreign flood.
    pub(super) fn is_promised(&self) -> bool {
        self.stack == Stack::Laxity && self.flood != FloodPath::Foreign
    }

    /// A contract like that of [`crate::report`]: integers, unknown values `null`, every key there.
    pub(super) fn json(&self) -> Value {
        json!({
            "attack": self.attack.to_string(),
            "stack": self.stack.to_string(),
            "flood": self.flood.to_string(),
            "simulated": self.simulated,
            "elapsed_ns": self.elapsed,
            "channels": self.channels.iter().map(channel).collect::<Value>(),
            // `null` in virtual time.
            "wire": self.wire,
            "gaps": { "count": self.gaps.0, "longest_ns": self.gaps.1 },
            "notes": self.notes,
        })
    }

    /// The promises that Laxity broke, a line each. The violator's accepted messages are within its contract and count, what
    /// was not accepted does not.
    pub(super) fn broken_promises(&self) -> Vec<String> {
        let real_time = self.real_time().map(|channel| &channel.figures);
        let broken =
            real_time.filter(|_| self.is_promised()).filter_map(|figures| broken_promise(&self.name(), figures));
        let wrong = self.channels.iter().map(|channel| &channel.figures).filter_map(|figures| {
            let Figures { sent, delivered, dropped, lost, .. } = *figures;
            (sent != delivered + dropped + lost).then(|| {
                format!(
                    "{}: {} does not add up: sent {sent}, delivered {delivered}, dropped {dropped}, lost {lost}",
                    self.name(),
                    figures.name
                )
            })
        });
        broken.chain(wrong).collect()
    }
}

fn channel(channel: &ChannelOutcome) -> Value {
    let figures = ChannelFigures::from(&channel.figures);
    let more = json!({
        "throughput_bytes_s": channel.throughput_bytes_s,
        "offered": channel.offered,
        "violator": channel.violator,
        "in_hand_max_ns": channel.in_hand.max,
    });
    with(json!(if channel.misses_known { figures } else { figures.without_causes() }), more)
}

impl From<ScenarioOutcome> for ScenarioRun {
    fn from(outcome: ScenarioOutcome) -> Self {
        let ScenarioOutcome { attack, stack, flood, elapsed, channels, wire, gaps, mut notes, disturbances } = outcome;
        notes.extend(disturbances);
        Self { attack, stack, flood, simulated: false, elapsed, channels, wire: Some(wire), gaps, notes }
    }
}

#[cfg(test)]
mod tests {
    use laxity_core::figures::Misses;

    use super::*;

    fn run(stack: Stack, flood: FloodPath, figures: Figures) -> ScenarioRun {
        let channel = ChannelOutcome { figures, misses_known: true, ..ChannelOutcome::default() };
        ScenarioRun {
            attack: Attack::Flood,
            stack,
            flood,
            simulated: false,
            elapsed: Duration::ZERO,
            channels: vec![channel],
            wire: None,
            gaps: (0, Duration::ZERO),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_promise_is_laxitys_and_does_not_cover_a_foreign_flood() {
        let missed = || Figures {
            sent: 1,
            delivered: 1,
            misses: Misses { laxity: 2, ..Misses::default() },
            ..Figures::default()
        };
        let broken = |stack, flood, figures| run(stack, flood, figures).broken_promises().len();
        assert_eq!(broken(Stack::Laxity, FloodPath::Through, missed()), 1);
        assert_eq!(broken(Stack::Laxity, FloodPath::Foreign, missed()), 0);
        assert_eq!(broken(Stack::PlainUdp, FloodPath::Through, missed()), 0);
        let over = Figures { sent: 1, delivered: 1, over_bound: 1, ..Figures::default() };
        assert_eq!(broken(Stack::Laxity, FloodPath::None, over), 1);
        let by_others = Misses { sender: 1, receiver: 1, network: 1, platform: 1, ..Misses::default() };
        let others = Figures { sent: 1, delivered: 1, misses: by_others, ..Figures::default() };
        assert_eq!(broken(Stack::Laxity, FloodPath::Through, others), 0);
        assert_eq!(broken(Stack::Laxity, FloodPath::Through, Figures { best_effort: true, ..missed() }), 0);
        // Nothing to judge is no promise kept.
        assert_eq!(broken(Stack::Laxity, FloodPath::None, Figures::default()), 1);
        assert_eq!(broken(Stack::PlainUdp, FloodPath::None, Figures::default()), 0);
    }

    #[test]
    fn what_does_not_add_up_is_told_of_every_stack() {
        let figures = Figures { name: "camera".to_owned(), sent: 3, delivered: 1, lost: 1, ..Figures::default() };
        let told = run(Stack::PlainUdp, FloodPath::Through, figures).broken_promises();
        assert_eq!(told, ["flood, plain-udp: camera does not add up: sent 3, delivered 1, dropped 0, lost 1"]);
    }

    #[test]
    fn every_attack_on_every_stack_and_one_foreign_flood() {
        let all = steps(&[], &[]);
        assert_eq!(all.len(), 5 * 3 + 1);
        assert_eq!(all.iter().filter(|step| step.flood == FloodPath::Foreign).count(), 1);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn what_is_named_twice_runs_once_and_in_the_order_of_the_reports() {
        let some = steps(&[Attack::Flood, Attack::Idle, Attack::Flood], &[Stack::TunedUdp, Stack::TunedUdp]);
        let expected = [(Attack::Idle, FloodPath::None), (Attack::Flood, FloodPath::Through)];
        let expected = expected.map(|(attack, flood)| PlannedScenario { attack, stack: Stack::TunedUdp, flood });
        assert_eq!(some, expected);
    }
}
