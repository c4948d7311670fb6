//! Across hosts: stages add up [channels §2.2, Kandlur, Shin, Ferrari].
//!
//! Every host regulates anew, to the logical arrival there: `l_n = l_{n−1} + d_{n−1}` and what passes on the way. So a burst
//! does not grow from host to host, each sees the interval I, and the destination has a message by `l_1 + Σ d`. Clocks of two
//! hosts differ by an error at most, which counts once for each step from host to host.

use alloc::vec::Vec;

use crate::units::Duration;

/// One host of a route, the next one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The least deadline that the host grants for its stages.
    pub least: Duration,
    /// How long a packet is on its way to the next host; zero for the last one.
    pub propagation: Duration,
    /// How much the next host's clock may differ; zero for the last one, and where both share a clock.
    pub clock_error: Duration,
}

/// How what is left of a deadline is divided among the hosts [channels §2.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Slack {
    /// The same to each.
    Equal,
    /// In proportion to what each needs at least.
    #[default]
    Proportional,
}

/// The deadlines by host, or by how much the end-to-end deadline is too short.
///
/// The deadlines, propagation and clock errors add up to `deadline`; what does not divide goes to the last host.
///
/// # Errors
/// The shortfall, if the hosts need more than `deadline`; all of it if there is no host.
pub fn compose(hops: &[Hop], deadline: Duration, slack: Slack) -> Result<Vec<Duration>, Duration> {
    let needed: Duration = hops.iter().map(|hop| hop.least).sum();
    let outside: Duration = hops.iter().map(|hop| hop.propagation + hop.clock_error).sum();
    let Some(left) = deadline.checked_sub(needed + outside) else { return Err(needed + outside - deadline) };
    let count = u64::try_from(hops.len()).unwrap_or(u64::MAX);
    let share = |hop: &Hop| match slack {
        Slack::Proportional if !needed.is_zero() => left.mul_ratio(hop.least.as_nanos(), needed.as_nanos()),
        _ => Duration::from_nanos(left.as_nanos() / count.max(1)),
    };
    let mut deadlines: Vec<Duration> = hops.iter().map(|hop| hop.least + share(hop)).collect();
    let given: Duration = deadlines.iter().copied().sum();
    match deadlines.last_mut() {
        Some(last) => *last = *last + needed + left - given,
        None => return Err(deadline),
    }
    Ok(deadlines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hop() -> impl Strategy<Value = Hop> {
        (0u64..1000, 0u64..100, 0u64..10).prop_map(|(least, propagation, error)| Hop {
            least: Duration::from_nanos(least),
            propagation: Duration::from_nanos(propagation),
            clock_error: Duration::from_nanos(error),
        })
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nobody_gets_less_than_it_needs(
            hops in prop::collection::vec(hop(), 1..6), deadline in 0u64..8000, equal: bool,
        ) {
            let outside: u64 = hops.iter().map(|hop| (hop.propagation + hop.clock_error).as_nanos()).sum();
            let needed: u64 = hops.iter().map(|hop| hop.least.as_nanos()).sum();
            let slack = if equal { Slack::Equal } else { Slack::Proportional };
            match compose(&hops, Duration::from_nanos(deadline), slack) {
                Ok(deadlines) => {
                    prop_assert_eq!(deadlines.iter().map(|d| d.as_nanos()).sum::<u64>() + outside, deadline);
                    prop_assert!(deadlines.iter().zip(&hops).all(|(given, hop)| *given >= hop.least));
                }
                Err(short) => prop_assert_eq!(short.as_nanos() + deadline, needed + outside),
            }
        }
    }

    #[test]
    fn two_hosts_by_hand() {
        let millis = Duration::from_millis;
        let hop =
            |least, propagation| Hop { least: millis(least), propagation: millis(propagation), clock_error: millis(0) };
        let hops = [hop(10, 1), hop(30, 0)];
        assert_eq!(compose(&hops, millis(61), Slack::Equal), Ok([millis(20), millis(40)].to_vec()));
        assert_eq!(compose(&hops, millis(61), Slack::Proportional), Ok([millis(15), millis(45)].to_vec()));
        assert_eq!(compose(&hops, millis(40), Slack::Equal), Err(millis(1)));
        assert_eq!(compose(&[], millis(40), Slack::Equal), Err(millis(40)));
    }
}
