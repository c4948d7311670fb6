//! Values under keys that are never confused with an earlier value's.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The place of a value and how often that place was used before: a stale key finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The place, below the slab's capacity.
    pub const fn index(self) -> u32 {
        self.index
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<Box<T>>,
}

/// At most `capacity` values. Values are boxed by whoever brings them, so that inserting allocates nothing.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Box<[Slot<T>]>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// An empty slab for `capacity` values.
    pub fn with_capacity(capacity: usize) -> Self {
        let count = u32::try_from(capacity).expect("limits::MAX_CHANNELS fits 32 bits");
        Self {
            slots: (0..count).map(|_| Slot { generation: 0, value: None }).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// Puts `value` in, or gives it back if the slab is full.
    pub fn insert(&mut self, value: Box<T>) -> Result<Key, Box<T>> {
        let Some(index) = self.free.pop() else { return Err(value) };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Ok(Key { index, generation: slot.generation })
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: Key) -> Option<Box<T>> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        slot.value.take()
    }

    /// The value of `key`.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_deref() } else { None }
    }

    /// The value of `key`.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_deref_mut() } else { None }
    }

    /// The key of whatever is at `index` now.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    /// The value at `index`, whatever its generation.
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_deref_mut()
    }

    /// The value at `index`, whatever its generation.
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_deref()
    }

    /// Values in the slab.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Keys of all values, by place.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        (0..self.slots.len() as u32).filter_map(|index| self.key_at(index))
    }
}
