//! Which scenarios run, in which order: attack by attack, the stacks of one attack one after the other.

use std::fmt;

use laxity_lab::{Attack, FloodPath, Stack};

/// One scenario to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) attack: Attack,
    pub(super) stack: Stack,
    pub(super) flood: FloodPath,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stranger = if self.flood == FloodPath::Foreign { ", a stranger's flood" } else { "" };
        write!(f, "{}, {}{stranger}", self.attack, self.stack)
    }
}

/// Whether this is among those that are named; all are if none is.
pub(super) fn is_wanted<T: PartialEq>(named: &[T], one: &T) -> bool {
    named.is_empty() || named.contains(one)
}

/// The scenarios of these attacks on these stacks, each once; all of them if none is named.
///
/// A flood goes through the stack. Laxity has a stranger's flood beside it once, which is outside its grants.
pub(super) fn steps(attacks: &[Attack], stacks: &[Stack]) -> Vec<Step> {
    let mut steps = Vec::new();
    for attack in Attack::EACH.into_iter().filter(|attack| is_wanted(attacks, attack)) {
        for stack in Stack::EACH.into_iter().filter(|stack| is_wanted(stacks, stack)) {
            let flood = if attack.floods() { FloodPath::Through } else { FloodPath::None };
            steps.push(Step { attack, stack, flood });
        }
        if attack == Attack::Flood && is_wanted(stacks, &Stack::Laxity) {
            steps.push(Step { attack, stack: Stack::Laxity, flood: FloodPath::Foreign });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_on_every_stack_and_a_strangers_flood() {
        let all = steps(&[], &[]);
        assert_eq!(all.len(), 5 * 3 + 1);
        assert_eq!(all.iter().filter(|step| step.flood == FloodPath::Foreign).count(), 1);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn what_is_named_twice_runs_once_and_in_the_order_of_the_reports() {
        let some = steps(&[Attack::Flood, Attack::Idle, Attack::Flood], &[Stack::TunedUdp, Stack::TunedUdp]);
        let expected = [(Attack::Idle, FloodPath::None), (Attack::Flood, FloodPath::Through)];
        let expected = expected.map(|(attack, flood)| Step { attack, stack: Stack::TunedUdp, flood });
        assert_eq!(some, expected);
    }
}
