//! Several first-in-first-out lists over the same ids.

use alloc::boxed::Box;
use alloc::vec;

const LISTS: u32 = 32;
const OUTSIDE: u8 = u8::MAX;

/// Up to 32 lists over the ids `0..capacity`; each id is in at most one list, once. All operations are O(1): the lists are
/// threaded through arrays, and a word of bits finds the first list that is not empty.
#[derive(Debug)]
pub struct FifoSet {
    occupied: u32,
    /// Of the ids, and behind them of the lists: each list is a circle of its ids and itself.
    next: Box<[u32]>,
    previous: Box<[u32]>,
    list: Box<[u8]>,
}

impl FifoSet {
    /// Empty lists for the ids `0..capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        let alone = || (0..capacity as u32 + LISTS).collect();
        Self { occupied: 0, next: alone(), previous: alone(), list: vec![OUTSIDE; capacity].into_boxed_slice() }
    }

    /// Appends `id` to `list`; does nothing if it is in a list already.
    ///
    /// # Panics
    /// If `id` is not below the capacity or `list` not below 32.
    #[inline]
    pub fn push_back(&mut self, list: u8, id: u32) {
        self.insert(list, id, self.previous[self.place(list)]);
    }

    /// Puts `id` at the head of `list`: for a handler that was preempted and keeps its turn. Panics like
    /// [`FifoSet::push_back`].
    #[inline]
    pub fn push_front(&mut self, list: u8, id: u32) {
        self.insert(list, id, self.place(list) as u32);
    }

    /// Puts `id` behind another one of `list`, or behind the list itself.
    fn insert(&mut self, list: u8, id: u32, before: u32) {
        if self.list[id as usize] != OUTSIDE {
            return;
        }
        let after = self.next[before as usize];
        self.list[id as usize] = list;
        self.occupied |= 1 << list;
        (self.previous[id as usize], self.next[id as usize]) = (before, after);
        (self.next[before as usize], self.previous[after as usize]) = (id, id);
    }

    /// The number of the first list that is not empty.
    pub fn first_list(&self) -> Option<u8> {
        (self.occupied != 0).then(|| self.occupied.trailing_zeros() as u8)
    }

    /// The number of the first list after `list`, in a circle that leaves list 0 out, that is not empty.
    pub fn next_list(&self, list: u8) -> Option<u8> {
        let after = u32::from(list) + 1;
        let ahead = (self.occupied & !1).rotate_right(after);
        (ahead != 0).then(|| ((ahead.trailing_zeros() + after) % u32::BITS) as u8)
    }

    /// The oldest id of `list`.
    pub fn front(&self, list: u8) -> Option<u32> {
        let id = self.next[self.place(list)];
        ((id as usize) < self.list.len()).then_some(id)
    }

    /// Takes the oldest id of `list`.
    #[inline]
    pub fn pop_front(&mut self, list: u8) -> Option<u32> {
        let id = self.front(list)?;
        self.remove(id);
        Some(id)
    }

    /// True if `id` is in a list.
    pub fn contains(&self, id: u32) -> bool {
        self.list.get(id as usize).is_some_and(|&list| list != OUTSIDE)
    }

    /// Takes `id` out of its list; false if it was in none.
    pub fn remove(&mut self, id: u32) -> bool {
        let Some(&list) = self.list.get(id as usize).filter(|&&list| list != OUTSIDE) else { return false };
        let (before, after) = (self.previous[id as usize], self.next[id as usize]);
        (self.next[before as usize], self.previous[after as usize]) = (after, before);
        if before == after {
            // Only the list itself is left.
            self.occupied &= !(1 << list);
        }
        self.list[id as usize] = OUTSIDE;
        true
    }

    /// True if every list is empty.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// The place of a list behind those of the ids.
    fn place(&self, list: u8) -> usize {
        self.list.len() + usize::from(list)
    }
}
