//! The program's counters, for a thread that only watches.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::layout::REASONS;
use super::{EarlyFigures, kernel};

/// Reads what became of the frames.
#[derive(Debug)]
pub(crate) struct CounterReader {
    reasons: OwnedFd,
    /// One value for each processor.
    counts: Box<[u64]>,
    /// The counters to subtract: runs for measurements.
    before: EarlyFigures,
}

impl CounterReader {
    pub(super) fn new(reasons: OwnedFd, processors: usize) -> Self {
        Self { reasons, counts: vec![0; processors].into_boxed_slice(), before: EarlyFigures::default() }
    }

    /// One that counts from here on.
    pub(super) fn afresh(&mut self) -> io::Result<Self> {
        let before = self.sums()?;
        Ok(Self { reasons: self.reasons.try_clone()?, counts: self.counts.clone(), before })
    }

    /// The counters of the frames so far. One system call for each field.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn reasons(&mut self) -> io::Result<EarlyFigures> {
        Ok(self.sums()?.since(&self.before))
    }

    fn sums(&mut self) -> io::Result<EarlyFigures> {
        let mut sums = [0u64; REASONS];
        for (reason, sum) in (0..).zip(&mut sums) {
            kernel::look_up_per_processor(self.reasons.as_fd(), reason, &mut self.counts)?;
            *sum = self.counts.iter().sum();
        }
        let [passed, taken, malformed, unknown, too_large, over_rate, over_control] = sums;
        Ok(EarlyFigures {
            passed,
            taken,
            malformed,
            unknown,
            too_large,
            over_rate,
            over_control,
            ..EarlyFigures::default()
        })
    }
}
