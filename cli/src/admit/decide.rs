//! The core's answers: the one place that knows which of its tests is called how.

use laxity::system_file::{Channel, Upcall};
use laxity_core::admission::answer::{Answers, Test};
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use crate::failure::Failure;

/// What the test of the papers finds for one channel.
pub(super) enum OfDOrder {
    /// Its own time, the longest wait, the response, and its place among the priorities, 0 at the top.
    Placed { service: Duration, wait: Duration, response: Duration, position: usize },
    /// It would not take the channel: why.
    Refused(String),
    /// It knows no such channel: one that this host does not send.
    NotSent,
}

/// What the tests for upcalls find; the first three for all of them together.
pub(super) struct OfUpcalls {
    pub(super) liu_layland: bool,
    pub(super) sha: bool,
    pub(super) rmdp: bool,
    /// The exact response times; `None` has no bound.
    pub(super) responses: Vec<Option<Duration>>,
}

impl OfUpcalls {
    /// Σ C/T in parts per million, rounded up.
    pub(super) fn share(&self, upcalls: &[Upcall]) -> u64 {
        let parts = |upcall: &Upcall| {
            (u128::from(upcall.cost.as_nanos()) * 1_000_000).div_ceil(u128::from(upcall.period.as_nanos()))
        };
        u64::try_from(upcalls.iter().map(parts).sum::<u128>()).unwrap_or(u64::MAX)
    }
}

pub(super) fn channels(_platform: &Platform, _channels: &[Channel], _test: Test) -> Result<Answers, Failure> {
    Err(Failure::Usage("not wired".to_owned()))
}

pub(super) fn d_order(_platform: &Platform, _channels: &[Channel]) -> Result<Vec<OfDOrder>, Failure> {
    Err(Failure::Usage("not wired".to_owned()))
}

pub(super) fn upcalls(_platform: &Platform, _upcalls: &[Upcall]) -> Result<OfUpcalls, Failure> {
    Err(Failure::Usage("not wired".to_owned()))
}
