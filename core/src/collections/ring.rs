//! A bounded first-in-first-out queue.

use alloc::collections::VecDeque;
use core::ops::Deref;

/// A queue that holds at most its capacity; pushing beyond hands the value back.
pub struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
    peak: usize,
}

impl<T> Ring<T> {
    /// An empty queue for `capacity` values. Allocates now and never again.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { items: VecDeque::with_capacity(capacity), capacity, peak: 0 }
    }
    /// Appends `value`, or gives it back if the queue is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        self.insert(value, 0)
    }
    /// Puts `value` in front of the `behind` newest ones, or gives it back if the queue is full. Takes as long as there are
    /// values behind it, or before it.
    ///
    /// # Panics
    /// If there are fewer than `behind`.
    #[inline]
    pub fn insert(&mut self, value: T, behind: usize) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        match behind {
            0 => self.items.push_back(value),
            _ => self.items.insert(self.items.len() - behind, value),
        }
        self.peak = self.peak.max(self.items.len());
        Ok(())
    }
    /// The number of values for which `is_behind` holds, if these are the newest ones. Asks about one value if there are none, else about as many as
    /// the logarithm of the length.
    #[inline]
    pub fn newest(&self, is_behind: impl Fn(&T) -> bool) -> usize {
        match self.items.back() {
            Some(last) if is_behind(last) => self.items.len() - self.items.partition_point(|value| !is_behind(value)),
            _ => 0,
        }
    }
    /// Takes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }
    /// True if another one would not fit.
    pub fn is_full(&self) -> bool {
        self.items.len() >= self.capacity
    }
    /// The largest number of values that were in the queue.
    pub fn peak(&self) -> usize {
        self.peak
    }
    /// The number of values that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<T> Deref for Ring<T> {
    type Target = VecDeque<T>;
    /// The values from the oldest to the newest.
    fn deref(&self) -> &VecDeque<T> {
        &self.items
    }
}
