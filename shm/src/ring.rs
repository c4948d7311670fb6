//! Messages from one thread to another, in memory that the other side may change at any time.
//!
//! ```text
//! put | freed | slot 0: length, head, bytes | slot 1 | …
//! ```
//!
//! The writer owns `put`, the reader `freed`: each counts messages from 0, keeps its own count to itself and reads the other's when it has caught up with it. A slot
//! belongs to the writer until it is put, and to the reader until it is freed, in that order. An impossible count is the other side's lie, after which the ring is
//! not used any more. Lengths are checked, and the contents of a slot are copied out once; the caller checks their meaning.

use std::ops::Deref;
use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// Words of a message beside its bytes, for the caller.
pub const HEAD: usize = 24;
/// So many words in front of the slots: each count has a line of the cache to itself.
const COUNTS: usize = 16;
const PUT: usize = 0;
const FREED: usize = 8;

/// The number of messages that a ring holds, and their largest length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Messages.
    pub slots: usize,
    /// Bytes of each.
    pub bytes: usize,
}

impl RingShape {
    /// Words of memory that the ring takes; `None` if they cannot be counted.
    pub fn words(&self) -> Option<usize> {
        self.slot().and_then(|slot| slot.checked_mul(self.slots)).and_then(|words| words.checked_add(COUNTS))
    }

    /// Words of a slot: length, head, bytes, in whole lines of the cache.
    fn slot(&self) -> Option<usize> {
        self.bytes.div_ceil(8).checked_add(HEAD + 1)?.checked_next_multiple_of(8)
    }

    fn place(&self, number: u64) -> usize {
        COUNTS + (number % self.slots as u64) as usize * self.slot().unwrap_or(0)
    }
}

/// The other side wrote something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// More messages are put than there are slots, or more slots freed than were put; or fewer than before.
    #[error("{found} messages are {what}, expected {from} to {to}")]
    Count {
        /// `put` or `freed`.
        what: &'static str,
        /// The value that it says.
        found: u64,
        /// At least.
        from: u64,
        /// At most.
        to: u64,
    },
    /// A message is longer than a slot.
    #[error("a message has {found} bytes, expected {most} at most")]
    Length {
        /// The value that it says.
        found: u64,
        /// At most.
        most: u64,
    },
}

/// The end that puts messages.
#[derive(Debug)]
pub struct RingWriter<W> {
    words: W,
    shape: RingShape,
    put: u64,
    freed: u64,
}

impl<W: Deref<Target = [AtomicU64]>> RingWriter<W> {
    /// The writing end of a new ring; `None` if it has no slot, or `words` are too few.
    pub fn new(words: W, shape: RingShape) -> Option<Self> {
        is_room(&words, shape).then_some(Self { words, shape, put: 0, freed: 0 })
    }

    /// The number of messages that were freed since the last call.
    ///
    /// # Errors
    /// The reader's count is impossible.
    pub fn freed(&mut self) -> Result<u64, RingError> {
        let before = self.freed;
        self.freed = count(&self.words[FREED], "freed", before, self.put)?;
        Ok(self.freed - before)
    }

    /// The number of messages that find room, as of the last [`Self::freed`].
    pub fn room(&self) -> usize {
        self.shape.slots - (self.put - self.freed) as usize
    }

    /// Puts a message. False if there is no room as of the last [`Self::freed`], or it is longer than a slot: then nothing happens.
    pub fn put(&mut self, head: &[u64; HEAD], bytes: &[u8]) -> bool {
        if self.room() == 0 || bytes.len() > self.shape.bytes {
            return false;
        }
        let slot = &self.words[self.shape.place(self.put)..];
        slot[0].store(bytes.len() as u64, Ordering::Relaxed);
        for (word, value) in slot[1..].iter().zip(head) {
            word.store(*value, Ordering::Relaxed);
        }
        let (whole, rest) = bytes.as_chunks::<8>();
        let to = &slot[1 + HEAD..];
        for (word, value) in to.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            to[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
        self.put += 1;
        self.words[PUT].store(self.put, Ordering::Release);
        true
    }
}

/// The end that takes messages.
#[derive(Debug)]
pub struct RingReader<W> {
    words: W,
    shape: RingShape,
    /// As of the last look.
    put: u64,
    taken: u64,
    freed: Arc<AtomicU64>,
}

/// Gives slots back, from any thread.
#[derive(Debug)]
pub struct SlotReturner<W> {
    words: W,
    freed: Arc<AtomicU64>,
}

impl<W: Deref<Target = [AtomicU64]>> SlotReturner<W> {
    /// Gives the slot of the oldest message back that was taken: call it once for each.
    pub fn free(&self) {
        let freed = self.freed.fetch_add(1, Ordering::AcqRel) + 1;
        self.words[FREED].fetch_max(freed, Ordering::Release);
    }
}

impl<W: Deref<Target = [AtomicU64]> + Clone> RingReader<W> {
    /// The handle that gives slots back where other threads do so.
    pub fn frees(&self) -> SlotReturner<W> {
        SlotReturner { words: self.words.clone(), freed: Arc::clone(&self.freed) }
    }
}

impl<W: Deref<Target = [AtomicU64]>> RingReader<W> {
    /// The reading end of a new ring; `None` if it has no slot, or `words` are too few.
    pub fn new(words: W, shape: RingShape) -> Option<Self> {
        is_room(&words, shape).then_some(Self { words, shape, put: 0, taken: 0, freed: Arc::new(AtomicU64::new(0)) })
    }

    /// Bytes of the next message; `None` if there is none.
    ///
    /// # Errors
    /// The writer's count, or the message's length, is impossible.
    pub fn next_len(&mut self) -> Result<Option<usize>, RingError> {
        if self.put == self.taken {
            self.put = count(&self.words[PUT], "put", self.put, self.freed() + self.shape.slots as u64)?;
            if self.put == self.taken {
                return Ok(None);
            }
        }
        let (found, most) = (self.words[self.shape.place(self.taken)].load(Ordering::Relaxed), self.shape.bytes as u64);
        if found > most { Err(RingError::Length { found, most }) } else { Ok(Some(found as usize)) }
    }

    /// Copies the next message out: its head, and as many bytes as `into` has room for, of those that a slot has. Call it after [`Self::next_len`] said
    /// how many there are. The slot stays the reader's until it is freed.
    pub fn take(&mut self, into: &mut [u8]) -> [u64; HEAD] {
        let slot = &self.words[self.shape.place(self.taken)..];
        let head = std::array::from_fn(|at| slot[1 + at].load(Ordering::Relaxed));
        let len = into.len().min(self.shape.bytes);
        let from = &slot[1 + HEAD..];
        let (whole, rest) = into[..len].as_chunks_mut::<8>();
        for (value, word) in whole.iter_mut().zip(from) {
            *value = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = from[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
        self.taken += 1;
        head
    }

    /// Gives the slot of the oldest message back that was taken; nothing if there is none.
    pub fn free(&mut self) {
        let freed = self.freed() + 1;
        if freed <= self.taken {
            self.freed.store(freed, Ordering::Release);
            self.words[FREED].store(freed, Ordering::Release);
        }
    }

    fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }
}

/// The other side's count, if it is possible.
#[inline]
fn count(word: &AtomicU64, what: &'static str, from: u64, to: u64) -> Result<u64, RingError> {
    let found = word.load(Ordering::Acquire);
    if (from..=to).contains(&found) { Ok(found) } else { Err(RingError::Count { what, found, from, to }) }
}

/// Makes a new ring of these words, whatever they held. One side calls it, before the other one has it.
pub fn clear(words: &[AtomicU64]) {
    words[PUT].store(0, Ordering::Release);
    words[FREED].store(0, Ordering::Release);
}

fn is_room<W: Deref<Target = [AtomicU64]>>(words: &W, shape: RingShape) -> bool {
    shape.slots > 0 && shape.words().is_some_and(|needed| needed <= words.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Memory = Arc<[AtomicU64]>;

    fn memory(shape: RingShape) -> Memory {
        (0..shape.words().unwrap()).map(|_| AtomicU64::new(0)).collect()
    }

    fn head(number: u64) -> [u64; HEAD] {
        std::array::from_fn(|at| number << 8 | at as u64)
    }

    proptest! {
        #[test]
        fn it_is_a_bounded_queue(slots in 1usize..5, bytes in 0usize..40, steps in prop::collection::vec((0u8..3, prop::collection::vec(any::<u8>(), 0..50)), 0..200)) {
            let shape = RingShape { slots, bytes };
            let memory = memory(shape);
            let mut writer = RingWriter::new(Arc::clone(&memory), shape).unwrap();
            let mut reader = RingReader::new(memory, shape).unwrap();
            let (mut queued, mut held, mut number) = (std::collections::VecDeque::new(), 0usize, 0);
            for (step, message) in steps {
                match step {
                    0 => {
                        writer.freed().unwrap();
                        let fits = queued.len() + held < slots && message.len() <= bytes;
                        prop_assert_eq!(writer.put(&head(number), &message), fits);
                        if fits {
                            queued.push_back((number, message));
                            number += 1;
                        }
                    }
                    1 => match (reader.next_len().unwrap(), queued.pop_front()) {
                        (Some(len), Some((number, message))) => {
                            let mut copy = vec![0; len];
                            prop_assert_eq!(reader.take(&mut copy), head(number));
                            prop_assert_eq!(copy, message);
                            held += 1;
                        }
                        (found, expected) => prop_assert!(found.is_none() && expected.is_none()),
                    },
                    _ => {
                        reader.free();
                        held = held.saturating_sub(1);
                    }
                }
            }
        }

        /// Whatever the other side writes: an answer, within bounds.
        #[test]
        fn any_memory_is_read_safely(slots in 1usize..5, bytes in 0usize..40, words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..8], 0..64), steps in prop::collection::vec((0usize..400, any::<u64>(), 0u8..4), 0..100)) {
            let shape = RingShape { slots, bytes };
            let memory = memory(shape);
            for (to, from) in memory.iter().zip(&words) {
                to.store(*from, Ordering::Relaxed);
            }
            let mut writer = RingWriter::new(Arc::clone(&memory), shape).unwrap();
            let mut reader = RingReader::new(Arc::clone(&memory), shape).unwrap();
            for (at, value, step) in steps {
                memory[at % memory.len()].store(value, Ordering::Relaxed);
                match step {
                    0 => drop(writer.freed()),
                    1 => drop(writer.put(&head(value), &[1; 20][..bytes.min(20)])),
                    2 => if let Ok(Some(len)) = reader.next_len() {
                        prop_assert!(len <= bytes);
                        reader.take(&mut vec![0; len]);
                    },
                    _ => reader.free(),
                }
                prop_assert!(writer.room() <= slots);
            }
        }
    }

    #[test]
    fn lies_are_told() {
        let shape = RingShape { slots: 2, bytes: 8 };
        let memory = memory(shape);
        let mut writer = RingWriter::new(Arc::clone(&memory), shape).unwrap();
        let mut reader = RingReader::new(Arc::clone(&memory), shape).unwrap();
        memory[PUT].store(3, Ordering::Relaxed);
        assert_eq!(reader.next_len(), Err(RingError::Count { what: "put", found: 3, from: 0, to: 2 }));
        memory[FREED].store(1, Ordering::Relaxed);
        assert_eq!(writer.freed(), Err(RingError::Count { what: "freed", found: 1, from: 0, to: 0 }));
        memory[FREED].store(0, Ordering::Relaxed);
        assert!(writer.put(&[0; HEAD], &[1; 8]) && !writer.put(&[0; HEAD], &[1; 9]));
        memory[COUNTS].store(9, Ordering::Relaxed);
        assert_eq!(reader.next_len(), Err(RingError::Length { found: 9, most: 8 }));
        // Shorter than it was said to be a moment before: what is copied is what there is room for.
        reader.take(&mut [0; 100]);
        reader.free();
        assert_eq!(writer.freed(), Ok(1));
        memory[FREED].store(0, Ordering::Relaxed);
        assert_eq!(writer.freed(), Err(RingError::Count { what: "freed", found: 0, from: 1, to: 1 }));
        assert!(RingWriter::new(Arc::clone(&memory), RingShape { slots: 3, bytes: 8 }).is_none());
        assert!(RingReader::new(memory, RingShape { slots: 0, bytes: 8 }).is_none());
        assert_eq!(RingShape { slots: 16, bytes: usize::MAX }.words(), None);
    }
}
