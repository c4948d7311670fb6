//! The frames between `transmit` and the network: a bounded ring in order, and the rule what becomes of each.
//!
//! Without I/O, so that would-block, partial batches and refusals can be tested as they please.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use laxity_core::frames::{FrameId, Frames};

use crate::Counters;

/// How often one frame is tried again after a report that may concern another peer. Each such report is taken off the
/// socket, so more than a few in a row mean that they are this frame's own.
pub(crate) const MAX_RETRIES: u32 = 3;

/// A packet that waits to be handed over.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) frame: FrameId,
    pub(crate) len: usize,
    pub(crate) peer: SocketAddr,
}

/// What became of the packets at the head of the ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The network took this many, at least one.
    Sent(usize),
    /// It takes none now.
    WouldBlock,
    /// It may take the head if it is asked again.
    Retry,
    /// It will never take the head.
    Refused,
}

#[derive(Debug)]
pub(crate) struct Staging {
    ring: VecDeque<Staged>,
    capacity: usize,
    blocked: bool,
}

impl Staging {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::with_capacity(capacity), capacity, blocked: false }
    }

    pub(crate) fn room(&self) -> usize {
        self.capacity - self.ring.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn rewrite<F: Frames>(&self, frames: &mut F, mut write: impl FnMut(&mut [u8])) {
        for staged in &self.ring {
            write(&mut frames.packet_mut(&staged.frame)[..staged.len]);
        }
    }

    pub(crate) fn blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn push(&mut self, staged: Staged) {
        assert!(self.ring.len() < self.capacity, "transmit without room: {} frames are staged", self.capacity);
        self.ring.push_back(staged);
    }

    /// Offers the ring to `send` until it is empty or `send` would block. `send` gets the attempt at the head, from 0.
    ///
    /// Ends after at most `capacity · (1 + MAX_RETRIES)` calls: each call sends, drops, stops or counts against the retries.
    pub(crate) fn flush<F: Frames>(
        &mut self,
        frames: &mut F,
        counters: &mut Counters,
        mut send: impl FnMut(&VecDeque<Staged>, &F, u32) -> io::Result<Outcome>,
    ) -> io::Result<usize> {
        let (mut sent, mut attempt) = (0, 0);
        self.blocked = false;
        while !self.ring.is_empty() {
            match send(&self.ring, frames, attempt)? {
                Outcome::Sent(count) => {
                    for staged in self.ring.drain(..count) {
                        counters.sent_frames += 1;
                        counters.sent_bytes += staged.len as u64;
                        frames.free(staged.frame);
                    }
                    sent += count;
                    attempt = 0;
                }
                Outcome::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Outcome::Retry if attempt < MAX_RETRIES => attempt += 1,
                Outcome::Retry | Outcome::Refused => {
                    if let Some(staged) = self.ring.pop_front() {
                        counters.send_dropped += 1;
                        frames.free(staged.frame);
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
    fn stage(staging: &mut Staging, frames: &mut HeapFrames, numbers: std::ops::Range<usize>) {
        for len in numbers {
            let frame = frames.take().unwrap();
            staging.push(Staged { frame, len, peer: peer() });
        }
    }

    #[test]
    fn would_block_keeps_the_rest_in_order_and_shrinks_the_room() {
        let (mut staging, mut frames, mut counters) = (Staging::new(8), HeapFrames::new(8, 16), Counters::default());
        stage(&mut staging, &mut frames, 0..5);
        let mut wire = Vec::new();
        let mut answers = vec![Outcome::WouldBlock, Outcome::Sent(2)];
        let sent = staging.flush(&mut frames, &mut counters, |ring, _, _| {
            let answer = answers.pop().unwrap();
            if let Outcome::Sent(count) = answer {
                wire.extend(ring.iter().take(count).map(|staged| staged.len));
            }
            Ok(answer)
        });
        assert_eq!(sent.unwrap(), 2);
        assert!(staging.blocked());
        assert_eq!((staging.room(), frames.available()), (5, 5));
        stage(&mut staging, &mut frames, 5..7);
        let sent = staging.flush(&mut frames, &mut counters, |ring, _, _| {
            wire.extend(ring.iter().map(|staged| staged.len));
            Ok(Outcome::Sent(ring.len()))
        });
        assert_eq!(sent.unwrap(), 5);
        assert_eq!(wire, [0, 1, 2, 3, 4, 5, 6]);
        assert!(!staging.blocked());
        assert_eq!((staging.room(), frames.available()), (8, 8));
        assert_eq!((counters.sent_frames, counters.sent_bytes, counters.send_dropped), (7, 21, 0));
    }

    #[test]
    fn a_refused_frame_goes_alone_and_retries_are_bounded() {
        let (mut staging, mut frames, mut counters) = (Staging::new(4), HeapFrames::new(4, 16), Counters::default());
        stage(&mut staging, &mut frames, 0..4);
        let (mut wire, mut calls) = (Vec::new(), 0);
        let sent = staging.flush(&mut frames, &mut counters, |ring, _, _| {
            calls += 1;
            Ok(match ring[0].len {
                1 => Outcome::Refused,
                2 => Outcome::Retry,
                len => {
                    wire.push(len);
                    Outcome::Sent(1)
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
        let (mut staging, mut frames, mut counters) = (Staging::new(2), HeapFrames::new(2, 16), Counters::default());
        stage(&mut staging, &mut frames, 0..2);
        let result = staging.flush(&mut frames, &mut counters, |_, _, _| Err(io::Error::other("gone")));
        assert!(result.is_err());
        assert_eq!((staging.room(), frames.available(), counters), (0, 0, Counters::default()));
    }

    proptest! {
        /// Whatever the network answers: order is kept, and no frame is lost or freed twice.
        #[test]
        fn order_and_conservation(script in proptest::collection::vec((0u8..5, 1usize..6), 1..200)) {
            const CAPACITY: usize = 6;
            let mut staging = Staging::new(CAPACITY);
            let mut frames = HeapFrames::new(CAPACITY, 1 << 16);
            let mut counters = Counters::default();
            let (mut next, mut wire) = (0, Vec::new());
            let mut script = script.into_iter();
            while !script.as_slice().is_empty() {
                let more = staging.room();
                stage(&mut staging, &mut frames, next..next + more);
                next += more;
                staging.flush(&mut frames, &mut counters, |ring, _, _| {
                    Ok(match script.next() {
                        Some((0 | 1, count)) => {
                            let count = count.min(ring.len());
                            wire.extend(ring.iter().take(count).map(|staged| staged.len));
                            Outcome::Sent(count)
                        }
                        Some((2, _)) => Outcome::Retry,
                        Some((3, _)) => Outcome::Refused,
                        _ => Outcome::WouldBlock,
                    })
                }).unwrap();
                prop_assert_eq!(frames.available(), staging.room());
            }
            prop_assert!(wire.is_sorted());
            let left = CAPACITY - staging.room();
            prop_assert_eq!(wire.len() as u64, counters.sent_frames);
            prop_assert_eq!(next as u64, counters.sent_frames + counters.send_dropped + left as u64);
        }
    }
}
