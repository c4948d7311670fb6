//! The frame region as the kernel's receive and transmit memory (UMEM): an arriving packet is written once, by the kernel, straight into the
//! frame that the core then owns; a sent packet leaves from the frame that the handler wrote.

use std::io;
use std::sync::Arc;

use laxity_core::frames::{FrameId, Frames};
use laxity_core::units::Instant;

use super::headers;
use crate::sys::rings::Mapping;
use crate::sys::{StableFrames, from_kernel};

/// The words that the program writes before a frame that it gives us: a sign, and the time. demux.bpf.c has the same.
const STAMP_SIGN: u64 = 0x4C_5853_7461;
const STAMP_BYTES: usize = 16;
/// The bytes that the kernel leaves free before a frame that it receives (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM: usize = 256;
/// The offset of a packet that we write in its frame.
const BEGIN: usize = KERNEL_HEADROOM + headers::MOST;
/// The longest packet: chunks are a page at most.
pub(super) const MOST_PACKET: usize = 4096 - BEGIN;

/// A region whose frames the kernel writes to and reads from.
pub struct KernelFrames {
    pub(super) memory: Arc<Mapping>,
    /// Bytes of a frame: a power of two.
    pub(super) chunk: usize,
    /// The offset of each frame's packet in it: what arrives begins after the headers that it came with.
    begins: Box<[u16]>,
    /// Which frames the kernel has: it gives each back once.
    lent: Box<[bool]>,
    free: Vec<u32>,
    /// The time by which our clock is ahead of that of the program in the driver, ns.
    clock_ahead: i64,
}

impl KernelFrames {
    /// `frames` frames for packets of up to `packet` bytes. Stamps of the program are taken to be of the first time namespace, of whose clock ours
    /// is `clock_ahead` nanoseconds ahead.
    ///
    /// # Errors
    /// The packets are longer than a page allows; or there is no memory.
    pub(super) fn new(frames: u32, packet: usize, clock_ahead: i64) -> io::Result<Self> {
        let chunk = [2048, 4096].into_iter().find(|chunk| packet + BEGIN <= *chunk).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("packets of {packet} bytes, expected {MOST_PACKET} at most"),
            )
        })?;
        let memory = Arc::new(Mapping::anonymous(frames as usize * chunk)?);
        let begins = vec![BEGIN as u16; frames as usize].into_boxed_slice();
        let lent = vec![false; frames as usize].into_boxed_slice();
        Ok(Self { memory, chunk, begins, lent, free: (0..frames).rev().collect(), clock_ahead })
    }

    /// Bytes of the longest frame that the kernel receives into one of ours.
    pub(super) fn largest_frame(&self) -> usize {
        self.chunk - KERNEL_HEADROOM
    }

    /// The number of free frames.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Gives a frame to the kernel, to receive into; where it begins in the region.
    pub(super) fn lend(&mut self, frame: FrameId) -> u64 {
        let index = frame.index() as usize;
        debug_assert!(!self.lent[index], "the kernel has it already");
        self.lent[index] = true;
        index as u64 * self.chunk as u64
    }

    /// Gives a frame to the kernel to be sent, from `headers` bytes before its packet on; where that is in the region.
    pub(super) fn lend_packet(&mut self, frame: FrameId, headers: usize) -> u64 {
        let begin = u64::from(self.begins[frame.index() as usize]) - headers as u64;
        self.lend(frame) + begin
    }

    /// Takes the frame back in which the kernel's `address` lies, and where in it; `None` if the kernel has no such frame of ours.
    pub(super) fn take_back(&mut self, address: u64) -> Option<(FrameId, usize)> {
        let address = usize::try_from(address).ok()?;
        let index = address / self.chunk;
        let lent = self.lent.get_mut(index).filter(|lent| **lent)?;
        *lent = false;
        Some((FrameId::from_index(index as u32), address % self.chunk))
    }

    /// The bytes that arrived in a frame, headers first: `len` bytes from `begin` on; `None` if that is not within the frame.
    pub(super) fn arrived(&self, frame: &FrameId, begin: usize, len: usize) -> Option<&[u8]> {
        self.bytes(frame).get(begin..begin.checked_add(len)?)
    }

    /// The time at which the program in the driver saw the packet that begins at `begin`, by our clock, if it could stamp it before the frame. Each stamp is read once.
    pub(super) fn take_stamp(&mut self, frame: &FrameId, begin: usize) -> Option<Instant> {
        let clock_ahead = self.clock_ahead;
        let stamp = self.bytes_mut(frame).get_mut(begin.checked_sub(STAMP_BYTES)?..begin)?;
        let (sign, nanos) = stamp.split_at(8);
        let nanos = (sign == STAMP_SIGN.to_ne_bytes()).then(|| nanos.try_into().map(u64::from_ne_bytes).ok()).flatten();
        // The kernel leaves what is there of an earlier one.
        stamp.fill(0);
        nanos.map(|nanos| from_kernel(Instant::from_nanos(nanos.saturating_add_signed(clock_ahead))))
    }

    /// The packet of what arrived begins there.
    pub(super) fn set_begin(&mut self, frame: &FrameId, begin: usize) {
        debug_assert!(begin <= BEGIN);
        self.begins[frame.index() as usize] = begin.min(BEGIN) as u16;
    }

    /// The `headers` bytes before the packet, at most [`headers::MOST`], to be written, and the packet of `len` bytes.
    pub(super) fn packet_with_headers(&mut self, frame: &FrameId, headers: usize, len: usize) -> (&mut [u8], &[u8]) {
        let begin = usize::from(self.begins[frame.index() as usize]);
        let (before, packet) = self.bytes_mut(frame).split_at_mut(begin);
        (&mut before[begin - headers..], &packet[..len])
    }

    fn bytes(&self, frame: &FrameId) -> &[u8] {
        let first = frame.index() as usize * self.chunk;
        assert!(first + self.chunk <= self.memory.bytes(), "a frame of another region");
        // SAFETY: within the mapping. Who has the id owns the frame: the kernel writes only to frames whose ids the rings have.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().add(first), self.chunk) }
    }

    fn bytes_mut(&mut self, frame: &FrameId) -> &mut [u8] {
        let first = frame.index() as usize * self.chunk;
        assert!(first + self.chunk <= self.memory.bytes(), "a frame of another region");
        // SAFETY: as `bytes`; and the region is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().add(first), self.chunk) }
    }
}

impl Frames for KernelFrames {
    fn take(&mut self) -> Option<FrameId> {
        let index = self.free.pop()?;
        self.begins[index as usize] = BEGIN as u16;
        Some(FrameId::from_index(index))
    }
    fn free(&mut self, frame: FrameId) {
        debug_assert!(
            self.free.len() < self.begins.len() && !self.lent[frame.index() as usize],
            "a frame was freed twice"
        );
        self.free.push(frame.index());
    }
    fn packet(&self, frame: &FrameId) -> &[u8] {
        let begin = usize::from(self.begins[frame.index() as usize]);
        &self.bytes(frame)[begin..][..self.packet_capacity()]
    }
    fn packet_mut(&mut self, frame: &FrameId) -> &mut [u8] {
        let (begin, capacity) = (usize::from(self.begins[frame.index() as usize]), self.packet_capacity());
        &mut self.bytes_mut(frame)[begin..][..capacity]
    }
    fn packet_capacity(&self) -> usize {
        self.chunk - BEGIN
    }
}

// SAFETY: the memory is one mapping that is made in `new` and lives as long as there is a reference to it. `packet_mut` only computes a subslice of
// it, which moves within the frame only by `set_begin` and `take` of that very frame; `take` and `free` touch no packet.
unsafe impl StableFrames for KernelFrames {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_begins_after_its_headers() {
        let mut frames = KernelFrames::new(4, 1400, 0).unwrap();
        assert_eq!((frames.chunk, frames.available()), (2048, 4));
        let frame = frames.take().unwrap();
        frames.packet_mut(&frame)[..3].copy_from_slice(b"abc");
        assert_eq!(frames.arrived(&frame, BEGIN, 3), Some(&b"abc"[..]));
        let (headers, packet) = frames.packet_with_headers(&frame, 2, 3);
        assert_eq!(packet, b"abc");
        headers.copy_from_slice(b"xy");
        frames.set_begin(&frame, BEGIN - 2);
        assert_eq!(&frames.packet(&frame)[..5], b"xyabc");
        assert_eq!(frames.arrived(&frame, 2000, 49), None);
        frames.free(frame);
        let frame = frames.take().unwrap();
        assert_eq!(&frames.packet(&frame)[..3], b"abc", "what is sent begins where it always does");
        let index = frame.index();
        let address = frames.lend_packet(frame, 2);
        assert_eq!(address, u64::from(index) * 2048 + BEGIN as u64 - 2);
        assert_eq!(frames.take_back(address), Some((FrameId::from_index(index), BEGIN - 2)));
        assert_eq!(frames.take_back(address), None, "the kernel has it no more");
        assert_eq!(frames.take_back(4 * 2048), None);
        frames.free(FrameId::from_index(index));
        assert!(KernelFrames::new(1, 4000, 0).is_err());
        assert_eq!(KernelFrames::new(1, 3000, 0).unwrap().chunk, 4096);
    }

    #[test]
    fn a_stamp_is_by_our_clock_and_read_once() {
        for (clock_ahead, expected) in [(0, 5_000), (7_250_000_000, 7_250_005_000), (-3_000, 2_000), (-9_000, 0)] {
            let mut frames = KernelFrames::new(1, 1400, clock_ahead).unwrap();
            let frame = frames.take().unwrap();
            let begin = BEGIN - 42;
            frames.bytes_mut(&frame)[begin - 16..][..8].copy_from_slice(&STAMP_SIGN.to_ne_bytes());
            frames.bytes_mut(&frame)[begin - 8..][..8].copy_from_slice(&5_000u64.to_ne_bytes());
            assert_eq!(frames.take_stamp(&frame, begin), Some(Instant::from_nanos(expected)));
            assert_eq!(frames.take_stamp(&frame, begin), None);
        }
    }
}
