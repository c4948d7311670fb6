//! A frame region that notices wrong uses of a frame.

use laxity_core::frames::{FrameId, Frames};

/// Frames of one size; each is free or taken, and what is in a free one is gone.
pub struct Region {
    memory: Vec<u8>,
    capacity: usize,
    taken: Vec<bool>,
    free: Vec<u32>,
    /// Frames taken and given back since this was set to zero.
    pub moved: u32,
}

impl Region {
    pub fn new(frames: usize, capacity: usize) -> Self {
        let free = (0..frames as u32).rev().collect();
        Self { memory: vec![0; frames * capacity], capacity, taken: vec![false; frames], free, moved: 0 }
    }

    /// Frames that are in use.
    pub fn held(&self) -> usize {
        self.taken.len() - self.free.len()
    }

    fn area(&self, frame: &FrameId) -> std::ops::Range<usize> {
        assert!(self.taken[frame.index() as usize], "frame {} is used after it was freed", frame.index());
        let start = frame.index() as usize * self.capacity;
        start..start + self.capacity
    }
}

impl Frames for Region {
    fn take(&mut self) -> Option<FrameId> {
        let index = self.free.pop()?;
        self.taken[index as usize] = true;
        self.moved += 1;
        Some(FrameId::from_index(index))
    }
    fn free(&mut self, frame: FrameId) {
        let area = self.area(&frame);
        self.memory[area].fill(0xDD);
        self.taken[frame.index() as usize] = false;
        self.free.push(frame.index());
        self.moved += 1;
    }
    fn packet(&self, frame: &FrameId) -> &[u8] {
        &self.memory[self.area(frame)]
    }
    fn packet_mut(&mut self, frame: &FrameId) -> &mut [u8] {
        let area = self.area(frame);
        &mut self.memory[area]
    }
    fn packet_capacity(&self) -> usize {
        self.capacity
    }
}
