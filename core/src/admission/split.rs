//! The search for a newcomer's least deadline on one resource, and what it answers when there is none.
//!
//! The split test: a channel holds a deadline on the processor and one on the link, each resource is tested on its own, and the
//! two add up to what was asked for. With the others' as they are, a newcomer fits if and only if its least deadlines, of
//! which each is found alone, fit into its own together.

use super::walk::{Demand, ONE, Verdict, least_deadline, walk};
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

    /// The long-run share is used up, or so nearly that it cannot be told.
    pub(super) fn used_up(&self) -> Refusal {
        Refusal::new(self.utilisation, self.stage)
    }

    /// No deadline does, or none up to what is asked for.
    pub(super) fn late(&self, at: Option<Instant>, least_deadline: Option<Duration>) -> Refusal {
        Refusal { at, least_deadline, ..Refusal::new(self.deadline, self.stage) }
    }

    pub(super) fn share(&self, used: u128) -> Result<(), Refusal> {
        if used >= ONE { Err(self.used_up()) } else { Ok(()) }
    }

    /// The least deadline of the newcomer with which everything fits; the first instant that fails if even the longest does
    /// not do.
    pub(super) fn least(&self, test: &mut impl Demand) -> Result<Result<u64, Instant>, Refusal> {
        self.found(least_deadline(test, LONGEST))
    }

    /// What was found, or the first instant that fails; refused if that could not be told.
    pub(super) fn found<T>(&self, found: Result<T, Verdict>) -> Result<Result<T, Instant>, Refusal> {
        match found {
            Ok(found) => Ok(Ok(found)),
            Err(Verdict::Fails(at)) => Ok(Err(Instant::from_nanos(at))),
            Err(Verdict::Fits | Verdict::TooLong) => Err(self.used_up()),
        }
    }

    /// The first instant that fails, if any.
    pub(super) fn verdict(&self, verdict: Verdict) -> Result<Result<(), Instant>, Refusal> {
        if verdict == Verdict::Fits { Ok(Ok(())) } else { self.found(Err(verdict)) }
    }

    /// Everything fits, or not.
    pub(super) fn check(&self, verdict: Verdict) -> Result<(), Refusal> {
        self.verdict(verdict)?.map_err(|at| self.late(Some(at), None))
    }

    /// `found` if it lies within `budget`; else a refusal with the first instant that fails at a deadline of `budget`, if there is a test of
    /// single instants.
    pub(super) fn within(
        &self,
        found: Result<u64, Instant>,
        budget: Duration,
        least_deadline: Option<Duration>,
        test: Option<&mut impl Demand>,
    ) -> Result<u64, Refusal> {
        let at = match (found, test) {
            (Ok(least), _) if least <= budget.as_nanos() => return Ok(least),
            (Ok(_), Some(test)) => {
                test.set_deadline(budget.as_nanos());
                if let Verdict::Fails(at) = walk(test, true) { Some(Instant::from_nanos(at)) } else { None }
            }
            (Ok(_), None) => None,
            (Err(at), _) => Some(at),
        };
        Err(self.late(at, least_deadline))
    }
}
