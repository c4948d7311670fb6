//! Which scenarios run, in which order: attack by attack, the stacks of one attack one after the other.

use std::fmt;

use laxity_lab::{Attack, FloodPath, Stack};

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

#[cfg(test)]
mod tests {
    use super::*;

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
