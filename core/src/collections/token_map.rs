//! From a token to the place of its channel.

use alloc::boxed::Box;
use alloc::vec;

/// A hash table of fixed size from 64-bit tokens to places. To all peers its tokens must look random, so that none of them can aim at one
/// bucket: the endpoint derives them with a keyed function. Linear probing at a load of at most one half.
#[derive(Debug)]
pub struct TokenMap {
    slots: Box<[Option<(u64, u32)>]>,
    len: usize,
}

impl TokenMap {
    /// A table for `capacity` tokens.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { slots: vec![None; (2 * capacity.max(1)).next_power_of_two()].into_boxed_slice(), len: 0 }
    }

    /// The place of `token`.
    pub fn get(&self, token: u64) -> Option<u32> {
        let slot = self.find(token).ok()?;
        self.slots[slot].map(|(_, place)| place)
    }

    /// Notes `place` for `token`; false if it has a place already, or the table is at its capacity.
    pub fn insert(&mut self, token: u64, place: u32) -> bool {
        let Err(slot) = self.find(token) else { return false };
        if self.len >= self.slots.len() / 2 {
            return false;
        }
        self.slots[slot] = Some((token, place));
        self.len += 1;
        true
    }

    /// Forgets `token`; false if it was not known.
    pub fn remove(&mut self, token: u64) -> bool {
        let Ok(mut hole) = self.find(token) else { return false };
        self.slots[hole] = None;
        self.len -= 1;
        // Close the gap: move back the entries that would no longer be found beyond it.
        let mut slot = self.after(hole);
        while let Some((found, _)) = self.slots[slot] {
            let mask = self.slots.len() - 1;
            let distance_home = slot.wrapping_sub(self.home(found)) & mask;
            let distance_hole = slot.wrapping_sub(hole) & mask;
            if distance_home >= distance_hole {
                self.slots[hole] = self.slots[slot].take();
                hole = slot;
            }
            slot = self.after(slot);
        }
        true
    }

    /// Tokens in the table.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot of `token`, or else the free one where it would stand.
    fn find(&self, token: u64) -> Result<usize, usize> {
        let mut slot = self.home(token);
        while let Some((found, _)) = self.slots[slot] {
            if found == token {
                return Ok(slot);
            }
            slot = self.after(slot);
        }
        Err(slot)
    }
    fn home(&self, token: u64) -> usize {
        token as usize & (self.slots.len() - 1)
    }
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }
}
