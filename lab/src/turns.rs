//! Turns: what a bench compares stands at the same time and takes turns, round by round. What a turn of messages and answers had, and the figures of that.

use laxity_core::units::NANOS_PER_SECOND;

use crate::error::Error;
use crate::figures::{deviation, mean, median, quantile, sorted};

/// One turn, of messages and their answers.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// ns of each round trip, in order of size.
    pub round_trips: Vec<u64>,
    /// Messages without an answer.
    pub lost: u64,
    /// Bytes a second: those that were echoed `[events §4]`, or that the bulk transfer brought meanwhile `[rio §3.2]`; `None` without one.
    pub bytes_s: Option<u64>,
}

impl Turn {
    /// All of these as one, whose rate is the median of theirs.
    pub fn all(turns: &[Self]) -> Self {
        Self {
            round_trips: sorted(turns.iter().flat_map(|turn| turn.round_trips.iter().copied())),
            lost: turns.iter().map(|turn| turn.lost).sum(),
            bytes_s: median(turns.iter().filter_map(|turn| turn.bytes_s).collect()),
        }
    }
}

/// The figure that is compared, by the name that tables and JSON have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Figure {
    /// The mean round trip `[events Fig. 5]`, ns.
    Mean,
    /// The one that half of them do not exceed, ns.
    P50,
    /// The one that 99 % do not exceed, ns.
    P99,
    /// The one that 99.9 % do not exceed, ns.
    #[strum(serialize = "p99.9")]
    P999,
    /// The standard deviation `[events Fig. 6]`, ns.
    Deviation,
    /// The same, as it is called in `[rio §3.2]`.
    Jitter,
    /// From p50 to p99.9, ns.
    Spread,
    /// ns for each byte that was echoed: the inverse of the bandwidth, so that less is better here as well, in ppm.
    #[strum(serialize = "time per byte")]
    TimePerByte,
}

impl Figure {
    /// Of a turn; `None` if that has no answer.
    pub fn of(self, turn: &Turn) -> Option<u64> {
        let sorted = &turn.round_trips;
        match self {
            Self::Mean => mean(sorted),
            Self::P50 => quantile(sorted, 500_000),
            Self::P99 => quantile(sorted, 990_000),
            Self::P999 => quantile(sorted, 999_000),
            Self::Deviation | Self::Jitter => deviation(sorted),
            Self::Spread => Some(quantile(sorted, 999_000)? - quantile(sorted, 500_000)?),
            Self::TimePerByte => (NANOS_PER_SECOND * 1_000_000).checked_div(turn.bytes_s?),
        }
    }
}

/// The turns of a bench, and who is told of each.
pub(crate) struct Turns<P> {
    all: u64,
    done: u64,
    progress: P,
}

impl<P: FnMut(u64, u64)> Turns<P> {
    /// `progress` is told how many of `all` turns are done.
    pub(crate) fn new(all: u64, progress: P) -> Self {
        Self { all, done: 0, progress }
    }

    /// One turn of each of `count`, what they found in the order of their numbers. Each round begins with another one, so that what disturbs the machine hits all alike.
    pub(crate) fn round<T>(
        &mut self,
        round: usize,
        count: usize,
        mut turn: impl FnMut(usize) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::with_capacity(count);
        for place in 0..count {
            found.push(turn((place + round) % count)?);
            self.done += 1;
            (self.progress)(self.done, self.all);
        }
        found.rotate_right(round.checked_rem(count).unwrap_or(0));
        Ok(found)
    }

    /// So many rounds; of each of `count`, what its turns found. `turn` is told the round and the number.
    pub(crate) fn rounds<T>(
        &mut self,
        rounds: u64,
        count: usize,
        mut turn: impl FnMut(u64, usize) -> Result<T, Error>,
    ) -> Result<Vec<Vec<T>>, Error> {
        let mut all: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
        for round in 0..rounds {
            let found = self.round(round as usize, count, |at| turn(round, at))?;
            all.iter_mut().zip(found).for_each(|(turns, turn)| turns.push(turn));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_one_turn() {
        let turn = Turn {
            round_trips: [vec![1_000; 989], vec![2_000; 10], vec![10_000]].concat(),
            lost: 0,
            bytes_s: Some(512_000_000),
        };
        let found = [Figure::P50, Figure::P99, Figure::Mean, Figure::Spread].map(|figure| figure.of(&turn));
        assert_eq!(found, [Some(1_000), Some(2_000), Some(1_019), Some(1_000)]);
        assert_eq!(Figure::TimePerByte.of(&turn), Some(1_953_125), "1.95 ns");
        let none = Turn::default();
        assert_eq!([Figure::P50, Figure::Deviation, Figure::TimePerByte].map(|figure| figure.of(&none)), [None; 3]);
    }

    #[test]
    fn rounds_rotate_and_what_was_found_does_not() {
        let (mut order, mut told) = (Vec::new(), Vec::new());
        let mut turns = Turns::new(6, |done, all| told.push((done, all)));
        for round in [1, 5] {
            let found = turns.round(round, 3, |at| {
                order.push(at);
                Ok(at * 10)
            });
            assert_eq!(found.unwrap(), [0, 10, 20]);
        }
        assert!(turns.round(7, 0, |_| Ok(())).unwrap().is_empty());
        assert_eq!(order, [1, 2, 0, 2, 0, 1]);
        assert_eq!(told, [1, 2, 3, 4, 5, 6].map(|done| (done, 6)));
    }

    #[test]
    fn what_all_rounds_found_is_by_number() {
        let found = Turns::new(6, |_, _| ()).rounds(3, 2, |round, at| Ok((at, round)));
        assert_eq!(found.unwrap(), [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)]]);
    }
}
