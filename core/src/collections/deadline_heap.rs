//! An indexed binary heap: ids ordered by a point in time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::units::Instant;

const ABSENT: u32 = u32::MAX;

/// A priority queue of ids `0..capacity`, each at most once, ordered by time and then by id, so that the order is total
/// and the same in every run (premise P4). Insert, remove and pop are O(log n); nothing allocates after construction.
#[derive(Debug)]
pub struct DeadlineHeap {
    heap: Vec<(Instant, u32)>,
    position: Box<[u32]>,
}

impl DeadlineHeap {
    /// A heap for the ids `0..capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { heap: Vec::with_capacity(capacity), position: vec![ABSENT; capacity].into_boxed_slice() }
    }

    /// Puts `id` in at `at`, or moves it there if it is in already.
    ///
    /// # Panics
    /// If `id` is not below the capacity.
    pub fn set(&mut self, id: u32, at: Instant) {
        let slot = self.position[id as usize];
        if slot == ABSENT {
            self.heap.push((at, id));
            self.position[id as usize] = (self.heap.len() - 1) as u32;
            self.up(self.heap.len() - 1);
        } else {
            self.heap[slot as usize].0 = at;
            let slot = self.up(slot as usize);
            self.down(slot);
        }
    }

    /// Takes `id` out; false if it was not in.
    pub fn remove(&mut self, id: u32) -> bool {
        let Some(&slot) = self.position.get(id as usize).filter(|&&slot| slot != ABSENT) else { return false };
        let slot = slot as usize;
        self.heap.swap_remove(slot);
        self.position[id as usize] = ABSENT;
        if slot < self.heap.len() {
            self.position[self.heap[slot].1 as usize] = slot as u32;
            let slot = self.up(slot);
            self.down(slot);
        }
        true
    }

    /// The earliest entry.
    pub fn peek(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Takes the earliest entry.
    pub fn pop(&mut self) -> Option<(Instant, u32)> {
        let first = self.peek()?;
        self.remove(first.1);
        Some(first)
    }

    /// Takes the earliest entry if it is not after `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, u32)> {
        self.peek().filter(|(at, _)| *at <= now)?;
        self.pop()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.position[self.heap[a].1 as usize] = a as u32;
        self.position[self.heap[b].1 as usize] = b as u32;
    }

    fn up(&mut self, mut slot: usize) -> usize {
        while slot > 0 {
            let parent = (slot - 1) / 2;
            if self.heap[parent] <= self.heap[slot] {
                break;
            }
            self.swap(slot, parent);
            slot = parent;
        }
        slot
    }

    fn down(&mut self, mut slot: usize) {
        loop {
            let (left, right) = (2 * slot + 1, 2 * slot + 2);
            let mut least = slot;
            for child in [left, right] {
                if child < self.heap.len() && self.heap[child] < self.heap[least] {
                    least = child;
                }
            }
            if least == slot {
                return;
            }
            self.swap(slot, least);
            slot = least;
        }
    }
}
