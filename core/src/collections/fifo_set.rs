//! Several first-in-first-out lists over the same ids.

use alloc::boxed::Box;
use alloc::vec;

const NONE: u32 = u32::MAX;
const OUTSIDE: u8 = u8::MAX;

/// Up to 32 lists over the ids `0..capacity`; each id is in at most one list, once. All operations are O(1): the lists are
/// threaded through arrays, and a word of bits finds the first list that is not empty.
#[derive(Debug)]
pub struct FifoSet {
    head: [u32; 32],
    tail: [u32; 32],
    occupied: u32,
    next: Box<[u32]>,
    previous: Box<[u32]>,
    list: Box<[u8]>,
}

impl FifoSet {
    /// Empty lists for the ids `0..capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            head: [NONE; 32],
            tail: [NONE; 32],
            occupied: 0,
            next: vec![NONE; capacity].into_boxed_slice(),
            previous: vec![NONE; capacity].into_boxed_slice(),
            list: vec![OUTSIDE; capacity].into_boxed_slice(),
        }
    }

    /// Appends `id` to `list`; does nothing if it is in a list already.
    ///
    /// # Panics
    /// If `id` is not below the capacity or `list` not below 32.
    pub fn push_back(&mut self, list: u8, id: u32) {
        if self.list[id as usize] != OUTSIDE {
            return;
        }
        let end = self.tail[list as usize];
        self.list[id as usize] = list;
        self.previous[id as usize] = end;
        self.next[id as usize] = NONE;
        if end == NONE {
            self.head[list as usize] = id;
            self.occupied |= 1 << list;
        } else {
            self.next[end as usize] = id;
        }
        self.tail[list as usize] = id;
    }

    /// Puts `id` at the head of `list`: for a handler that was preempted and keeps its turn. Panics like
    /// [`FifoSet::push_back`].
    pub fn push_front(&mut self, list: u8, id: u32) {
        if self.list[id as usize] != OUTSIDE {
            return;
        }
        let first = self.head[list as usize];
        if first == NONE {
            return self.push_back(list, id);
        }
        self.list[id as usize] = list;
        self.previous[id as usize] = NONE;
        self.next[id as usize] = first;
        self.previous[first as usize] = id;
        self.head[list as usize] = id;
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
        let id = self.head[list as usize];
        (id != NONE).then_some(id)
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
        let Some(&list) = self.list.get(id as usize) else { return false };
        if list == OUTSIDE {
            return false;
        }
        let (before, after) = (self.previous[id as usize], self.next[id as usize]);
        if before == NONE {
            self.head[list as usize] = after
        } else {
            self.next[before as usize] = after
        }
        if after == NONE {
            self.tail[list as usize] = before
        } else {
            self.previous[after as usize] = before
        }
        if self.head[list as usize] == NONE {
            self.occupied &= !(1 << list);
        }
        self.list[id as usize] = OUTSIDE;
        true
    }

    /// True if every list is empty.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }
}
