//! The frame region: the memory of packets while Laxity owns them.
//!
//! One region per executive; AF_XDP registers it as its UMEM, udp sends from it. The core holds [`FrameId`]s, which cannot
//! be copied, so a frame has one owner at a time and is freed once. Each frame has headroom that the core never sees, for
//! the headers that a link puts in front of a packet.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// The right to one frame of the region. Neither `Clone` nor `Copy`: its holder owns the frame.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped instead of freed is lost to the region"]
pub struct FrameId(u32);

impl FrameId {
    /// The frame with this number. Only a region may make ids, each once.
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
    /// The number of the frame in its region.
    pub const fn index(&self) -> u32 {
        self.0
    }
}

/// A region of frames of one size.
pub trait Frames {
    /// Takes a free frame, or `None` if there is none.
    fn take(&mut self) -> Option<FrameId>;
    /// Gives a frame back.
    fn free(&mut self, frame: FrameId);
    /// The packet area of a frame: `packet_capacity` bytes after the headroom.
    fn packet(&self, frame: &FrameId) -> &[u8];
    /// The packet area of a frame, for writing.
    fn packet_mut(&mut self, frame: &FrameId) -> &mut [u8];
    /// Bytes in the packet area of each frame.
    fn packet_capacity(&self) -> usize;
}

/// A region in ordinary memory: for udp, the emulated link and the simulator.
pub struct HeapFrames {
    memory: Box<[u8]>,
    free: Vec<u32>,
    capacity: usize,
    frames: usize,
}

impl HeapFrames {
    /// A region of `frames` frames with `capacity` bytes each. Allocates now and never again.
    ///
    /// # Panics
    /// If the region does not fit the address space or has more than 2³² frames.
    pub fn new(frames: usize, capacity: usize) -> Self {
        let count = u32::try_from(frames).expect("at most 2^32 frames");
        let bytes = frames.checked_mul(capacity).expect("the region fits the address space");
        Self { memory: vec![0; bytes].into_boxed_slice(), free: (0..count).rev().collect(), capacity, frames }
    }

    /// The number of free frames.
    pub fn available(&self) -> usize {
        self.free.len()
    }
}

impl Frames for HeapFrames {
    fn take(&mut self) -> Option<FrameId> {
        self.free.pop().map(FrameId)
    }
    fn free(&mut self, frame: FrameId) {
        debug_assert!(self.free.len() < self.frames, "a frame was freed twice");
        self.free.push(frame.0);
    }
    fn packet(&self, frame: &FrameId) -> &[u8] {
        &self.memory[frame.0 as usize * self.capacity..][..self.capacity]
    }
    fn packet_mut(&mut self, frame: &FrameId) -> &mut [u8] {
        &mut self.memory[frame.0 as usize * self.capacity..][..self.capacity]
    }
    fn packet_capacity(&self) -> usize {
        self.capacity
    }
}

/// A message in memory that has one owner at a time: the application, a queue, or a handler.
///
/// It is moved, never copied, between the application's thread and the executive, so the bytes are written once when they
/// are sent and once when they are received. The capacity is fixed when it is made.
#[derive(Debug)]
pub struct MessageBuf {
    memory: Box<[u8]>,
    len: usize,
}

impl MessageBuf {
    /// An empty message with room for `capacity` bytes. Allocates.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { memory: vec![0; capacity].into_boxed_slice(), len: 0 }
    }
    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }
    /// Sets the length; bytes that were not written are those of an earlier message in the same buffer, or zero.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.memory.len(), "{len} bytes do not fit into {}", self.memory.len());
        self.len = len;
    }
    /// Replaces the contents by `bytes`.
    ///
    /// # Panics
    /// If `bytes` exceeds the capacity.
    pub fn fill(&mut self, bytes: &[u8]) {
        self.set_len(bytes.len());
        self.memory[..bytes.len()].copy_from_slice(bytes);
    }
}

impl core::ops::Deref for MessageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl core::ops::DerefMut for MessageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}
