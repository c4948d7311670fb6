//! The frames between `transmit` and the network: a bounded ring in order, and the rule for the treatment of each.
//!
//! Without I/O, so that would-block, partial batches and refusals can be tested as they please.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use laxity_core::frames::{FrameId, Frames};

use crate::Counters;

/// The number of times that one frame is tried again after a report that may concern another peer. Each such report is taken off the
/// socket, so more than a few in a row mean that they are this frame's own.
pub(crate) const MAX_RETRIES: u32 = 3;

/// A packet that waits to be handed over.
pub(crate) struct QueuedPacket {
    pub(crate) frame: FrameId,
    pub(crate) len: usize,
    pub(crate) peer: SocketAddr,
}

/// The treatment of the packets at the head of the ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// The network took this many, at least one.
    Sent(usize),
    /// It takes none now.
    WouldBlock,
    /// It may take the head if it is asked again.
    Retry,
    /// It will never take the head.
    Refused,
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

    /// Offers the ring to `send` until it is empty or `send` would block. `send` gets the attempt at the head, from 0.
    ///
    /// Ends after at most `capacity · (1 + MAX_RETRIES)` calls: each call sends, drops, stops or counts against the retries.
    pub(crate) fn flush<F: Frames>(
        &mut self,
        frames: &mut F,
        counters: &mut Counters,
        mut send: impl FnMut(&VecDeque<QueuedPacket>, &F, u32) -> io::Result<SendOutcome>,
    ) -> io::Result<usize> {
        let (mut sent, mut attempt) = (0, 0);
        self.blocked = false;
        while !self.ring.is_empty() {
            match send(&self.ring, frames, attempt)? {
                SendOutcome::Sent(count) => {
                    for buffered in self.ring.drain(..count) {
                        counters.sent_frames += 1;
                        counters.sent_bytes += buffered.len as u64;
                        frames.free(buffered.frame);
                    }
                    sent += count;
                    attempt = 0;
                }
                SendOutcome::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                SendOutcome::Retry if attempt < MAX_RETRIES => attempt += 1,
                SendOutcome::Retry | SendOutcome::Refused => {
                    if let Some(buffered) = self.ring.pop_front() {
                        counters.send_dropped += 1;
                        frames.free(buffered.frame);
                    }
                    attempt = 0;
                }
            }
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laxity_core::frames::HeapFrames;
    use proptest::prelude::*;

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    /// Stages packets whose length is their number.
    fn fill(transmit_queue: &mut TransmitQueue, frames: &mut HeapFrames, numbers: std::ops::Range<usize>) {
        for len in numbers {
            let frame = frames.take().unwrap();
            transmit_queue.push(QueuedPacket { frame, len, peer: peer() });
        }
    }

    #[test]
    fn would_block_keeps_the_rest_in_order_and_shrinks_the_room() {
        let (mut transmit_queue, mut frames, mut counters) =
            (TransmitQueue::new(8), HeapFrames::new(8, 16), Counters::default());
        fill(&mut transmit_queue, &mut frames, 0..5);
        let mut wire = Vec::new();
        let mut answers = vec![SendOutcome::WouldBlock, SendOutcome::Sent(2)];
        let sent = transmit_queue.flush(&mut frames, &mut counters, |ring, _, _| {
            let answer = answers.pop().unwrap();
            if let SendOutcome::Sent(count) = answer {
                wire.extend(ring.iter().take(count).map(|buffered| buffered.len));
            }
            Ok(answer)
        });
        assert_eq!(sent.unwrap(), 2);
        assert!(transmit_queue.blocked);
        assert_eq!((transmit_queue.room(), frames.available()), (5, 5));
        fill(&mut transmit_queue, &mut frames, 5..7);
        let sent = transmit_queue.flush(&mut frames, &mut counters, |ring, _, _| {
            wire.extend(ring.iter().map(|buffered| buffered.len));
            Ok(SendOutcome::Sent(ring.len()))
        });
        assert_eq!(sent.unwrap(), 5);
        assert_eq!(wire, [0, 1, 2, 3, 4, 5, 6]);
        assert!(!transmit_queue.blocked);
        assert_eq!((transmit_queue.room(), frames.available()), (8, 8));
        assert_eq!((counters.sent_frames, counters.sent_bytes, counters.send_dropped), (7, 21, 0));
    }

    #[test]
    fn a_refused_frame_goes_alone_and_retries_are_bounded() {
        let (mut transmit_queue, mut frames, mut counters) =
            (TransmitQueue::new(4), HeapFrames::new(4, 16), Counters::default());
        fill(&mut transmit_queue, &mut frames, 0..4);
        let (mut wire, mut calls) = (Vec::new(), 0);
        let sent = transmit_queue.flush(&mut frames, &mut counters, |ring, _, _| {
            calls += 1;
            Ok(match ring[0].len {
                1 => SendOutcome::Refused,
                2 => SendOutcome::Retry,
                len => {
                    wire.push(len);
                    SendOutcome::Sent(1)
                }
            })
        });
        assert_eq!(sent.unwrap(), 2);
        assert_eq!(wire, [0, 3]);
        assert_eq!(counters.send_dropped, 2);
        assert_eq!(frames.available(), 4);
        assert_eq!(calls, 3 + 1 + MAX_RETRIES);
    }

    #[test]
    fn an_error_of_the_link_keeps_everything() {
        let (mut transmit_queue, mut frames, mut counters) =
            (TransmitQueue::new(2), HeapFrames::new(2, 16), Counters::default());
        fill(&mut transmit_queue, &mut frames, 0..2);
        let result = transmit_queue.flush(&mut frames, &mut counters, |_, _, _| Err(io::Error::other("gone")));
        assert!(result.is_err());
        assert_eq!((transmit_queue.room(), frames.available(), counters), (0, 0, Counters::default()));
    }

    proptest! {
        /// Whatever the network answers: order is kept, and no frame is lost or freed twice.
        #[test]
        fn order_and_conservation(script in proptest::collection::vec((0u8..5, 1usize..6), 1..200)) {
            const CAPACITY: usize = 6;
            let mut transmit_queue = TransmitQueue::new(CAPACITY);
            let mut frames = HeapFrames::new(CAPACITY, 1 << 16);
            let mut counters = Counters::default();
            let (mut next, mut wire) = (0, Vec::new());
            let mut script = script.into_iter();
            while !script.as_slice().is_empty() {
                let more = transmit_queue.room();
                fill(&mut transmit_queue, &mut frames, next..next + more);
                next += more;
                transmit_queue.flush(&mut frames, &mut counters, |ring, _, _| {
                    Ok(match script.next() {
                        Some((0 | 1, count)) => {
                            let count = count.min(ring.len());
                            wire.extend(ring.iter().take(count).map(|buffered| buffered.len));
                            SendOutcome::Sent(count)
                        }
                        Some((2, _)) => SendOutcome::Retry,
                        Some((3, _)) => SendOutcome::Refused,
                        _ => SendOutcome::WouldBlock,
                    })
                }).unwrap();
                prop_assert_eq!(frames.available(), transmit_queue.room());
            }
            prop_assert!(wire.is_sorted());
            let left = CAPACITY - transmit_queue.room();
            prop_assert_eq!(wire.len() as u64, counters.sent_frames);
            prop_assert_eq!(next as u64, counters.sent_frames + counters.send_dropped + left as u64);
        }
    }
}
