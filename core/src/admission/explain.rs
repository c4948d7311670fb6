//! A refusal as advice: the values that would fit, and the channels that stand in the way.
//!
//! Both ask the same question as [`Admission::reserve`] again and again, with another contract or with fewer channels, so an
//! answer is as true as a grant would be, and as long as no other channel comes. They change nothing. A deadline, an interval or a
//! message size takes some tens of decisions each, the channels a logarithm of their number and at most [`MOST_REASONS`]: that
//! is work for the program that asks for the channel, never for a peer.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::answer::{Alternatives, Role};
use super::plan;
use super::reserve::{Admission, ReservationId};
use crate::contract::Contract;
use crate::units::Duration;

/// Most channels whose part in a refusal is looked at one by one.
const MOST_REASONS: usize = 64;

impl Admission {
    /// The contracts that would be granted instead: each value alone, the others as requested. `outside` is the part of the deadline that
    /// is not this host's, even if it is more than the deadline: it stays as it is when the deadline changes.
    pub fn what_fits(&self, contract: &Contract, role: Role, outside: Duration) -> Alternatives {
        let grants = |contract: &Contract| {
            let budget = contract.deadline().checked_sub(outside);
            budget.is_some_and(|budget| self.decide(contract, role, budget).is_ok())
        };
        plan::fits(grants, contract)
    }

    /// Channels without which the request would be granted: the greatest, no more than needed. None if it would not be granted
    /// on an idle host either.
    pub fn in_the_way(&self, contract: &Contract, role: Role, budget: Duration) -> Vec<ReservationId> {
        let granted_without = |gone: &[ReservationId]| {
            let mut rest = self.clone();
            gone.iter().for_each(|id| {
                rest.release(*id);
            });
            rest.decide(contract, role, budget).is_ok()
        };
        fewest(self.channels.iter().map(|(id, held)| (held.weight(), id)).collect(), granted_without)
    }
}

/// Of what is held, each with its weight, those without which something is granted: the heaviest, no more than needed. None if it is not
/// granted without all of them either.
pub(super) fn fewest<W: Ord, I: Copy + Ord>(held: Vec<(W, I)>, granted_without: impl Fn(&[I]) -> bool) -> Vec<I> {
    let mut order: Vec<(Reverse<W>, I)> = held.into_iter().map(|(weight, id)| (Reverse(weight), id)).collect();
    order.sort_unstable();
    let order: Vec<I> = order.into_iter().map(|(_, id)| id).collect();
    if order.is_empty() || !granted_without(&order) {
        return Vec::new();
    }
    let (mut low, mut high) = (0, order.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if granted_without(&order[..middle]) { high = middle } else { low = middle + 1 }
    }
    let mut gone = order[..low].to_vec();
    if gone.len() <= MOST_REASONS {
        for id in order[..low].iter().rev() {
            let fewer: Vec<I> = gone.iter().copied().filter(|other| other != id).collect();
            if granted_without(&fewer) {
                gone = fewer;
            }
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::answer::Rule;
    use super::super::reserve::Settings;
    use super::*;
    use crate::platform::Platform;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }
    fn contract(max: u64, interval: Duration, deadline: Duration) -> Contract {
        Contract::new(max, 1, interval, 1, deadline).unwrap()
    }
    fn host(rule: Rule) -> Admission {
        Admission::with_settings(Platform::assumed_host(), Settings { rule, ..Settings::default() }).unwrap()
    }

    #[test]
    fn the_greatest_channel_is_in_the_way_and_no_other() {
        for rule in [Rule::Split, Rule::Composite] {
            let mut host = host(rule);
            let mut open = |max| host.reserve(&contract(max, ms(10), ms(100)), Role::Sends, ms(100)).unwrap().0;
            let (_small, great, _other) = (open(2_000), open(60_000), open(2_000));
            let wanted = contract(60_000, ms(10), ms(100));
            assert!(host.reserve(&wanted, Role::Sends, ms(99)).is_err());
            assert_eq!(host.in_the_way(&wanted, Role::Sends, ms(99)), [great], "{rule:?}");
            let impossible = contract(10_000_000, ms(10), ms(100));
            assert!(host.in_the_way(&impossible, Role::Sends, ms(99)).is_empty());
            let fits = host.what_fits(&impossible, Role::Sends, ms(1));
            assert_eq!(fits.deadline, None, "the link is used up whatever the deadline");
            assert!(fits.max_message.is_some_and(|bytes| bytes < 60_000));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// A value that is said to fit is granted; one less deadline or interval is not.
        #[test]
        fn what_fits_is_granted(
            composite: bool,
            held in 0u64..4,
            max in 1u64..200_000,
            interval in 1u64..50,
            deadline in 1u64..50,
            outside in 0u64..10,
            receives: bool,
        ) {
            let mut host = host(if composite { Rule::Composite } else { Rule::Split });
            for _ in 0..held {
                let _ = host.reserve(&contract(20_000, ms(10), ms(30)), Role::Sends, ms(30));
            }
            let role = if receives { Role::Receives } else { Role::Sends };
            let (wanted, outside) = (contract(max, ms(interval), ms(deadline + outside)), ms(outside));
            let budget = wanted.deadline() - outside;
            prop_assume!(host.clone().reserve(&wanted, role, budget).is_err());
            let grants = |wanted: Contract| {
                wanted.deadline().checked_sub(outside).is_some_and(|budget| host.clone().reserve(&wanted, role, budget).is_ok())
            };
            let fits = host.what_fits(&wanted, role, outside);
            if let Some(deadline) = fits.deadline {
                prop_assert!(grants(wanted.with_deadline(deadline).unwrap()));
                prop_assert!(!grants(wanted.with_deadline(deadline - Duration::from_nanos(1)).unwrap()));
            }
            if let Some(interval) = fits.interval {
                prop_assert!(grants(contract(max, interval, wanted.deadline())));
                prop_assert!(!grants(contract(max, interval - Duration::from_nanos(1), wanted.deadline())));
            }
            if let Some(bytes) = fits.max_message {
                prop_assert!(grants(contract(bytes.into(), wanted.interval(), wanted.deadline())));
            }
        }
    }
}
