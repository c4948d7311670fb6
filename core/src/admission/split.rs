//! The search for a newcomer's least deadline on one resource, and what it answers when there is none.
//!
//! The split test: a channel holds a deadline on the processor and one on the link, each resource is tested on its own, and the
//! two add up to what was asked for. With the others' as they are, a newcomer fits if and only if its least deadlines, of
//! which each is found alone, fit into its own together.

use super::walk::{ONE, Verdict};
use super::{Code, Refusal, Stage};
use crate::limits;
use crate::units::{Duration, Instant};

/// The longest deadline that is tried.
pub(super) const LONGEST: u64 = limits::MAX_DEADLINE.as_nanos();

pub(super) struct StageSearch {
    utilisation: Code,
    deadline: Code,
    stage: Stage,
}

impl StageSearch {
    pub(super) fn new(utilisation: Code, deadline: Code, stage: Stage) -> Self {
        Self { utilisation, deadline, stage }
    }

    pub(super) fn share(&self, used: u128) -> Result<(), Refusal> {
        if used >= ONE { Err(Refusal::new(self.utilisation, self.stage)) } else { Ok(()) }
    }

    /// The least deadline for which `ask` says that everything fits; the first instant that fails if even the longest
    /// does not do. The test is monotone in the deadline, so doubling and halving find it; the result was always tested.
    pub(super) fn least(&self, ask: &mut impl FnMut(u64, bool) -> Verdict) -> Result<Result<u64, Instant>, Refusal> {
        let (mut no, mut yes) = (0, 1 << 20);
        loop {
            match ask(yes, yes == LONGEST) {
                Verdict::Fits => break,
                Verdict::Fails(at) if yes == LONGEST => return Ok(Err(Instant::from_nanos(at))),
                Verdict::TooLong if yes == LONGEST => return Err(Refusal::new(self.utilisation, self.stage)),
                Verdict::Fails(_) | Verdict::TooLong => (no, yes) = (yes, (yes * 2).min(LONGEST)),
            }
        }
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            match ask(middle, false) {
                Verdict::Fits => yes = middle,
                Verdict::Fails(_) | Verdict::TooLong => no = middle,
            }
        }
        Ok(Ok(yes))
    }

    /// `found` if it lies within `budget`; else a refusal with the first instant that fails at a deadline of `budget`.
    pub(super) fn within(
        &self,
        found: Result<u64, Instant>,
        budget: Duration,
        least_deadline: Option<Duration>,
        mut ask: impl FnMut(u64, bool) -> Verdict,
    ) -> Result<u64, Refusal> {
        let at = match found {
            Ok(least) if least <= budget.as_nanos() => return Ok(least),
            Ok(_) => match ask(budget.as_nanos(), true) {
                Verdict::Fails(at) => Some(Instant::from_nanos(at)),
                Verdict::Fits | Verdict::TooLong => None,
            },
            Err(at) => Some(at),
        };
        Err(Refusal { at, least_deadline, ..Refusal::new(self.deadline, self.stage) })
    }
}
