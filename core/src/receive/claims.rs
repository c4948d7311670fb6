//! What a sender alleges about its messages' logical arrivals, and how much of it is believed.

use crate::units::{Duration, Instant};
use crate::wire::DataHeader;

/// How far back a logical arrival is believed. Messages that the platform or the network held up that long are still within
/// their contract; a sender that alleges more cannot save up rate that it did not use.
const CREDIT: Duration = Duration::from_secs(1);

/// What a sender on the same clock alleged so far: its logical arrivals are at least an interval apart, in the order of
/// the messages' numbers, whether or not each message arrives, and in time or not. So what it says can be checked without
/// blaming it for what happened on the way.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Messages below this number are behind the latest one, or are it.
    next: u64,
    /// The earliest logical arrival of message `next`.
    pub(super) earliest: Instant,
    /// The logical arrival of message `next − 1`.
    latest: Instant,
}

impl Claims {
    /// Checks what `header` alleges, and notes it if an honest sender can have said it by `now`: the logical arrival is at
    /// most `ahead` from now. Returns the logical arrival that is believed: an earlier one than the contract allows would
    /// make a message late by its sender's word alone.
    pub(super) fn take(
        &mut self,
        now: Instant,
        header: &DataHeader,
        interval: Duration,
        intervals: u32,
        ahead: Duration,
    ) -> Option<Instant> {
        let claim = header.logical_arrival;
        if header.sequence < self.next {
            // Overtaken by message next − 1: as many intervals before it as messages.
            return (claim <= self.latest.before(interval * (self.next - 1 - header.sequence))).then_some(claim);
        }
        let earliest = self.earliest + interval * (header.sequence - self.next);
        let arrival = claim.max(earliest).max(now.before(CREDIT));
        if arrival > now + ahead {
            return None;
        }
        *self =
            Self { next: header.sequence + 1, earliest: arrival + interval * u64::from(intervals), latest: arrival };
        Some(claim.max(earliest))
    }
}
