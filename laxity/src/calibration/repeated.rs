//! The comparison of two calibrations of a host.

use std::fmt;

use laxity_core::units::Duration;
use serde::Serialize;

use super::{Calibration, Cost, Piece};

/// A cost whose medians are too far apart in two calibrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// The piece of work.
    pub kind: Piece,
    /// S, the packet size in bytes.
    #[serde(rename = "packet_bytes")]
    pub packet: Option<u32>,
    /// The median in this calibration.
    #[serde(rename = "here_ns")]
    pub here: Duration,
    /// The median in the other one; `None` if it has no such cost.
    #[serde(rename = "there_ns")]
    pub there: Option<Duration>,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, packet, here, there } = self;
        f.write_str(kind.name())?;
        if let Some(packet) = packet {
            write!(f, " with packets of {packet} bytes")?;
        }
        match there {
            Some(there) => write!(f, ": a median of {here} here, {there} there"),
            None => write!(f, ": not measured there"),
        }
    }
}

/// The factor by which medians may differ.
const FACTOR: u64 = 2;
/// The time of reading the clock: medians that differ by less are alike.
const CLOCK: Duration = Duration::from_nanos(100);

impl Calibration {
    /// Lists the costs whose medians in `self` and `other` differ by more than a factor of two, and by more than the time of reading the
    /// clock.
    pub fn disagreements(&self, other: &Self) -> Vec<Disagreement> {
        let alike = |one: Duration, two: Duration| {
            let (less, more) = (one.min(two), one.max(two));
            more <= less * FACTOR || more.saturating_sub(less) <= CLOCK
        };
        let compare = |cost: &Cost| {
            let Cost { kind, packet, median: here, .. } = *cost;
            let there = other.costs.iter().find(|other| (other.kind, other.packet) == (kind, packet));
            let there = there.map(|there| there.median);
            let disagrees = there.is_none_or(|there| !alike(here, there));
            disagrees.then_some(Disagreement { kind, packet, here, there })
        };
        self.costs.iter().filter_map(compare).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn medians_agree_within_a_factor_of_two() {
        let one = example();
        assert_eq!(one.disagreements(&one), []);
        let mut other = one.clone();
        let median = one.costs[0].median + CLOCK;
        let mut one = one;
        one.costs[0].median = median;
        for (there, agrees) in [
            (median * 2, true),
            (median * 2 + Duration::from_nanos(1), false),
            (median.mul_ratio(1, 2) + Duration::from_nanos(1), true),
            (Duration::ZERO, false),
        ] {
            other.costs[0].median = there;
            assert_eq!(one.disagreements(&other).is_empty(), agrees, "{median} and {there}");
        }
        other.costs.remove(0);
        assert_eq!(one.disagreements(&other)[0].there, None);
    }
}
