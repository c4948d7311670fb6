//! The free memory of an application.

/// Pieces: where, and how much; in ascending order, no two of them beside each other.
#[derive(Debug, Default)]
pub(crate) struct FreeList(Vec<(usize, usize)>);

impl FreeList {
    /// All of these bytes.
    pub(crate) fn new(at: usize, bytes: usize) -> Self {
        Self(vec![(at, bytes)])
    }

    /// Takes `bytes` from the first piece that is large enough.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let found = self.0.iter().position(|(_, room)| *room >= bytes)?;
        let (at, room) = self.0[found];
        match room - bytes {
            0 => drop(self.0.remove(found)),
            rest => self.0[found] = (at + bytes, rest),
        }
        Some(at)
    }

    /// Frees memory that was taken.
    pub(crate) fn give_back(&mut self, (at, bytes): (usize, usize)) {
        let free = &mut self.0;
        let next = free.partition_point(|(other, _)| *other < at);
        free.insert(next, (at, bytes));
        for place in [next, next.wrapping_sub(1)] {
            if let (Some(&(one, bytes)), Some(&(other, more))) = (free.get(place), free.get(place.wrapping_add(1)))
                && one + bytes == other
            {
                free[place] = (one, bytes + more);
                free.remove(place + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_given_back_is_one_piece_again() {
        let mut free = FreeList::new(4096, 1000);
        let taken: Vec<usize> = [300, 200, 500].into_iter().map(|bytes| free.take(bytes).unwrap()).collect();
        assert_eq!((taken.as_slice(), free.0.as_slice()), (&[4096, 4396, 4596][..], &[][..]));
        assert_eq!(free.take(1), None);
        free.give_back((4596, 500));
        free.give_back((4096, 300));
        assert_eq!(free.0, [(4096, 300), (4596, 500)]);
        assert_eq!(free.take(400), Some(4596));
        free.give_back((4596, 400));
        free.give_back((4396, 200));
        assert_eq!(free.0, [(4096, 1000)]);
    }
}
