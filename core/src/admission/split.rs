//! The search for a newcomer's least deadline on one resource, and what it answers when there is none.
//!
//! The split test: a channel holds a deadline on the processor and one on the link, each resource is tested on its own, and the
//! two add up to what was asked for. With the others' as they are, a newcomer fits if and only if its least deadlines, of
//! which each is found alone, fit into its own together.

use super::walk::{Newcomer, ONE, Verdict, least_deadline, walk};
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

    /// The least deadline of the newcomer with which everything fits; the first instant that fails if even the longest does
    /// not do.
    pub(super) fn least(&self, test: &mut impl Newcomer) -> Result<Result<u64, Instant>, Refusal> {
        self.share(test.share().saturating_add(test.stolen().share()))?;
        match least_deadline(test, LONGEST) {
            Ok(least) => return Ok(Ok(least)),
            Err(Verdict::TooLong) => return Err(Refusal::new(self.utilisation, self.stage)),
            Err(_) => test.set_deadline(LONGEST),
        }
        match walk(test, true) {
            Verdict::Fails(at) => Ok(Err(Instant::from_nanos(at))),
            Verdict::Fits | Verdict::TooLong => Err(Refusal::new(self.utilisation, self.stage)),
        }
    }

    /// The first instant that fails, if any.
    pub(super) fn verdict(&self, verdict: Verdict) -> Result<Result<(), Instant>, Refusal> {
        match verdict {
            Verdict::Fits => Ok(Ok(())),
            Verdict::Fails(at) => Ok(Err(Instant::from_nanos(at))),
            Verdict::TooLong => Err(Refusal::new(self.utilisation, self.stage)),
        }
    }

    /// `found` if it lies within `budget`; else a refusal with the first instant that fails at a deadline of `budget`.
    pub(super) fn within(
        &self,
        found: Result<u64, Instant>,
        budget: Duration,
        least_deadline: Option<Duration>,
        test: &mut impl Newcomer,
    ) -> Result<u64, Refusal> {
        let at = match found {
            Ok(least) if least <= budget.as_nanos() => return Ok(least),
            Ok(_) => {
                test.set_deadline(budget.as_nanos());
                if let Verdict::Fails(at) = walk(test, true) { Some(Instant::from_nanos(at)) } else { None }
            }
            Err(at) => Some(at),
        };
        Err(Refusal { at, least_deadline, ..Refusal::new(self.deadline, self.stage) })
    }
}
