//! The doorbell by which applications tell the executive that their channel has work for it.
//!
//! One bit a channel, and one bit for each word of them: ringing is two atomic operations, hearing a few, and neither ever
//! waits for another thread. That matters: a queue in which a producer first takes a place and then fills it can be caught in
//! between, and a SCHED_FIFO executive that waits for such a producer on its own processor waits until the kernel throttles it.

use crate::executive::fault::{self, Fault};
use crate::port::Port;
use crate::sync::{AtomicU32, Ordering, RingWord, Wake, fence};

const BITS: usize = u64::BITS as usize;

/// The channels that have rung, and the need to wake the executive for them.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// One bit a channel.
    words: RingWord,
    /// One bit for each word that may have a bit set.
    summary: RingWord,
    /// Those that rang while the executive slept held, and can wait until it is not ([`Doorbell::ring_later`]).
    later: RingWord,
    /// Each 0 or 1. [`HELD`]: the executive sleeps, and what is not current has to wait because an upcall is ready. [`SLEEPING`]: it sleeps.
    flags: RingWord,
    /// The word at which the executive looks first, so that each channel gets a turn.
    next: AtomicU32,
    pub(crate) wake: Wake,
}

const SLEEPING: usize = 0;
const HELD: usize = 1;
/// The number of flags.
pub(crate) const FLAGS: usize = 2;

impl Doorbell {
    /// A bell for `channels` channels.
    pub(crate) fn new(channels: usize) -> std::io::Result<Self> {
        let words = channels.max(1).div_ceil(BITS);
        let sizes = [words, words.div_ceil(BITS), words, FLAGS];
        Ok(Self::over(sizes.map(RingWord::zeros), Wake::new()?))
    }

    /// A bell for 64 channels whose words another process has, too: one each of who rang, of all words, of who can wait, and two flags.
    pub(crate) fn over([words, summary, later, flags]: [RingWord; 4], wake: Wake) -> Self {
        Self { words, summary, later, flags, next: AtomicU32::new(0), wake }
    }

    fn has(&self, flag: usize) -> bool {
        self.flags[flag].load(Ordering::Relaxed) != 0
    }

    fn set_flag(&self, flag: usize, value: bool) {
        self.flags[flag].store(value.into(), Ordering::Relaxed);
    }

    /// Says that `port` has something; wakes the executive if it sleeps.
    pub(crate) fn ring(&self, port: &Port) {
        if fault::is_on(Fault::LoseRing) {
            return;
        }
        self.announce(port);
        self.poke();
    }

    /// As [`Doorbell::ring`], for what is not real-time: it does not wake the executive while an upcall is ready (U4 of
    /// `laxity_core::admission::upcalls`).
    pub(crate) fn ring_later(&self, port: &Port) {
        if self.has(HELD)
            && let Some(index) = port.index()
        {
            let (word, bit) = (index as usize / BITS, 1 << (index as usize % BITS));
            self.later[word].fetch_or(bit, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            // Ending that state is followed by a look for the bit.
            if self.has(HELD) {
                return;
            }
        }
        self.ring(port);
    }

    /// The executive, which is about to sleep, is held: to be called after [`Doorbell::going_to_sleep`]; afterwards it looks once more
    /// whether it is.
    pub(crate) fn hold(&self) {
        self.set_flag(HELD, true);
        fence(Ordering::SeqCst);
    }

    /// No upcall is ready any more: wakes the executive if it waits for that. Nothing else, if it looks again before it sleeps.
    pub(crate) fn make_way(&self) {
        fence(Ordering::SeqCst);
        if self.has(HELD) {
            self.wake.wake();
        }
    }

    /// Says that `port` has something that can wait until the executive is awake anyway.
    pub(crate) fn announce(&self, port: &Port) {
        if let Some(index) = port.index() {
            self.set(index as usize);
        }
    }

    fn set(&self, index: usize) {
        let word = index / BITS;
        // First the word, then the summary: who finds the summary's bit finds the word's.
        self.words[word].fetch_or(1 << (index % BITS), Ordering::AcqRel);
        self.summary[word / BITS].fetch_or(1 << (word % BITS), Ordering::AcqRel);
    }

    /// Wakes the executive if it sleeps: one system call then, none otherwise.
    pub(crate) fn poke(&self) {
        fence(Ordering::SeqCst);
        if self.has(SLEEPING) {
            self.wake.wake();
        }
    }

    /// The next channel that rang, whose bit is cleared: if it rings again from now on, it is heard again. For the executive only.
    pub(crate) fn next(&self) -> Option<u32> {
        let start = self.next.load(Ordering::Relaxed) as usize % self.words.len();
        // The words from `start` on, then those before it; whole summary words that are empty are skipped.
        let mut at = start;
        for _ in 0..=self.summary.len() {
            let (group, first) = (at / BITS, at % BITS);
            let mut candidates = self.summary[group].load(Ordering::Acquire) & (u64::MAX << first);
            while candidates != 0 {
                let bit = candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let word = group * BITS + bit;
                if let Some(index) = self.take(word) {
                    self.next.store(word as u32 + 1, Ordering::Relaxed);
                    return Some(index);
                }
            }
            at = (group + 1) % self.summary.len() * BITS;
        }
        None
    }

    /// Takes one bit of a word; clears the word's summary bit if it has none.
    fn take(&self, word: usize) -> Option<u32> {
        let bits = self.words[word].load(Ordering::Acquire);
        if bits == 0 {
            // First the summary, then look again: a bit that was set in between sets the summary's again.
            self.summary[word / BITS].fetch_and(!(1 << (word % BITS)), Ordering::AcqRel);
            if self.words[word].load(Ordering::Acquire) != 0 {
                self.summary[word / BITS].fetch_or(1 << (word % BITS), Ordering::AcqRel);
            }
            return None;
        }
        let bit = bits.trailing_zeros() as usize;
        self.words[word].fetch_and(!(1 << bit), Ordering::AcqRel);
        Some((word * BITS + bit) as u32)
    }

    /// Of a bell that another process has, too: who has rung of those that it has, as bits, which are cleared. Its summary says nothing: the other process may write
    /// anything there.
    pub(crate) fn take_known(&self, known: u64) -> u64 {
        self.words[0].swap(0, Ordering::AcqRel) & known
    }

    /// Likewise: whether one of them has rung.
    pub(crate) fn rings(&self, known: u64) -> bool {
        self.words[0].load(Ordering::Acquire) & known != 0
    }

    /// True if no channel has rung, or only channels whose bits were heard already.
    pub(crate) fn is_silent(&self) -> bool {
        self.summary.iter().all(|word| word.load(Ordering::Acquire) == 0)
            || self.words.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }

    /// The executive is about to sleep; afterwards it looks once more for work before it does.
    pub(crate) fn going_to_sleep(&self) {
        self.set_flag(SLEEPING, true);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn awake(&self) {
        self.set_flag(SLEEPING, false);
        if !self.has(HELD) {
            return;
        }
        self.set_flag(HELD, false);
        fence(Ordering::SeqCst);
        for (word, later) in self.later.iter().enumerate() {
            let bits = later.swap(0, Ordering::AcqRel);
            if bits != 0 {
                self.words[word].fetch_or(bits, Ordering::AcqRel);
                self.summary[word / BITS].fetch_or(1 << (word % BITS), Ordering::AcqRel);
            }
        }
    }
}

#[cfg(test)]
impl Doorbell {
    /// As another process rings that has its words.
    pub(crate) fn set_bits(&self, bits: u64) {
        self.words[0].fetch_or(bits, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(channels in 1usize..10_000, operations in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let bell = Doorbell::new(channels).unwrap();
            let mut model = BTreeSet::new();
            for (ring, index) in operations {
                if ring {
                    let index = index.index(channels);
                    bell.set(index);
                    model.insert(index as u32);
                } else {
                    match bell.next() {
                        Some(index) => prop_assert!(model.remove(&index)),
                        // A word that was emptied may cost one look.
                        None => prop_assert!(model.is_empty()),
                    }
                }
                prop_assert_eq!(bell.is_silent(), model.is_empty());
            }
            while let Some(index) = bell.next() {
                prop_assert!(model.remove(&index));
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn each_channel_gets_a_turn_while_the_first_ones_ring_without_end() {
        let bell = Doorbell::new(1000).unwrap();
        bell.set(900);
        let heard = (0..200).any(|_| {
            bell.set(1);
            bell.set(70);
            bell.next() == Some(900)
        });
        assert!(heard);
    }

    #[test]
    fn no_ring_is_lost_between_threads() {
        const RINGS: usize = 50_000;
        let bell = Arc::new(Doorbell::new(130).unwrap());
        let mailboxes: Arc<Vec<AtomicUsize>> = Arc::new((0..130).map(|_| AtomicUsize::new(0)).collect());
        let ringers: Vec<_> = [0usize, 64, 129]
            .into_iter()
            .map(|index| {
                let (bell, mailboxes) = (Arc::clone(&bell), Arc::clone(&mailboxes));
                std::thread::spawn(move || {
                    for _ in 0..RINGS {
                        mailboxes[index].fetch_add(1, Ordering::Relaxed);
                        bell.set(index);
                    }
                })
            })
            .collect();
        let mut taken = 0;
        while taken < 3 * RINGS {
            match bell.next() {
                Some(index) => taken += mailboxes[index as usize].swap(0, Ordering::AcqRel),
                None => std::thread::yield_now(),
            }
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
        assert_eq!(taken, 3 * RINGS);
    }
}
