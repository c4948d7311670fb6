//! The frames between `transmit` and the network: a bounded ring in order.

use std::collections::VecDeque;
use std::net::SocketAddr;

use laxity_core::frames::{FrameId, Frames};

/// A packet that waits to be handed over.
pub(crate) struct QueuedPacket {
    pub(crate) frame: FrameId,
    pub(crate) len: usize,
    pub(crate) peer: SocketAddr,
}

pub(crate) struct TransmitQueue {
    pub(crate) ring: VecDeque<QueuedPacket>,
    pub(crate) capacity: usize,
    /// The last flush ended because the network takes none now.
    pub(crate) blocked: bool,
}

impl TransmitQueue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::with_capacity(capacity), capacity, blocked: false }
    }

    pub(crate) fn room(&self) -> usize {
        self.capacity - self.ring.len()
    }

    pub(crate) fn rewrite<F: Frames>(&self, frames: &mut F, mut write: impl FnMut(&mut [u8])) {
        for buffered in &self.ring {
            write(&mut frames.packet_mut(&buffered.frame)[..buffered.len]);
        }
    }

    pub(crate) fn push(&mut self, buffered: QueuedPacket) {
        assert!(self.ring.len() < self.capacity, "transmit without room: {} frames are staged", self.capacity);
        self.ring.push_back(buffered);
    }
}
