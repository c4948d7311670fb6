//! Values under keys that are never confused with the key of an earlier value.

use alloc::vec::Vec;

/// The place of a value, and the number of times that the place was used before: a stale key finds nothing.
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

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// At most `capacity` values. Large values come in boxes of the caller's.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Slab<T> {
    /// An empty slab for `capacity` values: inserting allocates nothing.
    pub fn with_capacity(capacity: usize) -> Self {
        let count = u32::try_from(capacity).expect("limits::MAX_CHANNELS fits 32 bits");
        let slots = (0..count).map(|_| Slot { generation: 0, value: None }).collect();
        Self { slots, free: (0..count).rev().collect(), capacity }
    }

    /// An empty slab that grows up to `capacity` values.
    pub(crate) fn growing(capacity: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), capacity }
    }

    /// A slab with the same places, of which those of values are taken and empty; [`put`](Self::put) fills them.
    pub(crate) fn emptied(&self) -> Self {
        let slots = self.slots.iter().map(|slot| Slot { generation: slot.generation, value: None }).collect();
        Self { slots, ..Self::growing(self.capacity) }
    }

    /// Puts `value` in at the place of `key`, which is there.
    pub(crate) fn put(&mut self, key: Key, value: T) {
        self.slots[key.index as usize].value = Some(value);
    }

    /// Puts `value` in, or gives it back if the slab is full.
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() >= self.capacity => return Err(value),
            None => {
                self.slots.push(Slot { generation: 0, value: None });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Ok(Key { index, generation: slot.generation })
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        slot.value.take()
    }

    /// The value of `key`.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    /// The value of `key`.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// The key of the value that is at `index` now.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    /// The value at `index`, whatever its generation.
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// The value at `index`, whatever its generation.
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    /// Values in the slab.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All values with their keys, by place.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            Some((key, slot.value.as_ref()?))
        })
    }
}
