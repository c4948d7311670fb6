//! Turns: what a bench compares stands at the same time and takes turns, round by round.

use crate::error::Error;

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
