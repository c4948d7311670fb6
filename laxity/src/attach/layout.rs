//! The layout of the memory that an application and an executive share.
//!
//! ```text
//! the bell: one page │ blocks, one for each channel: signal, notes of when it rang (sending), ring
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use laxity_link::sys::Wake;
use laxity_shm::ring::{self, RingShape};
use laxity_shm::{Region, Words, Words32};

use crate::doorbell::{Doorbell, FLAGS};
use crate::signal::Notifier;
use crate::sync;

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Channels of one application: the bell has one word for them.
pub(crate) const CHANNELS: u32 = u64::BITS;
/// The bell's page.
pub(crate) const BELL_BYTES: usize = 4096;

/// Memory of one channel: where, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelMemory {
    /// Its first byte.
    pub(crate) at: usize,
    pub(crate) shape: RingShape,
    /// True if the application sends on the channel.
    pub(crate) is_sent: bool,
}

impl ChannelMemory {
    /// Words for the notes of when the application rang.
    fn notes(&self) -> usize {
        if self.is_sent { (self.shape.slots + 1).next_multiple_of(LINE / 8) } else { 0 }
    }

    /// Bytes that it takes, in whole lines; `None` if they cannot be counted.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let words = self.shape.words()?.checked_add(self.notes())?.checked_next_multiple_of(LINE / 8)?;
        words.checked_mul(8)?.checked_add(LINE)
    }

    /// Makes the memory that of a new channel, whatever an earlier one left there. For the side that serves, before the other one is told.
    pub(crate) fn clear(&self, region: &Arc<Region>) -> Option<()> {
        let words = Words::of(region, self.at, LINE / 8 + self.notes())?;
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        ring::clear(&self.ring(region)?);
        Some(())
    }

    /// The word that is notified when the other side has done something.
    pub(crate) fn signal(&self, region: &Arc<Region>) -> Option<Notifier> {
        Some(Notifier::over(sync::WaitWord::Shared(Words32::of(region, self.at, 2)?)))
    }

    /// The time at which the application rang.
    pub(crate) fn rung(&self, region: &Arc<Region>) -> Option<sync::RingWord> {
        Words::of(region, self.at + LINE, self.shape.slots + 1).map(sync::RingWord::Shared)
    }

    pub(crate) fn ring(&self, region: &Arc<Region>) -> Option<Words> {
        Words::of(region, self.at + LINE + 8 * self.notes(), self.shape.words()?)
    }
}

/// The bell of an application: its words are what both sides have, its descriptor is this side's.
pub(crate) fn bell(region: &Arc<Region>, wake: Wake) -> io::Result<Doorbell> {
    let words = |at, count| {
        let words = Words::of(region, at, count).ok_or(io::ErrorKind::InvalidData)?;
        io::Result::Ok(sync::RingWord::Shared(words))
    };
    // What the executive writes is not in the line that applications write.
    Ok(Doorbell::over([words(0, 1)?, words(8, 1)?, words(16, 1)?, words(LINE, FLAGS)?], wake))
}
