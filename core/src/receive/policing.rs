//! Policing: does an arriving message keep the contract, and from which time does its deadline here count [channels §2.2]?
//!
//! Every host on the path does this anew, the last one and each relay, so that no burst grows and nothing that a peer alleges
//! moves a deadline nearer than admission counted on. It knows messages; packets and memory are its caller's.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "a peer can allege any number"))]

use super::attribution::FrameTimes;
use crate::contract::ChannelTerms;
use crate::regulator::Regulator;
use crate::units::{Duration, Instant};
use crate::wire::DataHeader;

/// The largest age at which a logical arrival is believed, from when the message came to this host. Messages that the network held up that long
/// are still within their contract; a sender that alleges more cannot save up rate that it did not use.
pub(super) const CREDIT: Duration = Duration::from_secs(1);

/// The allegations of a sender on the same clock so far: its logical arrivals are at least an interval apart, in the order of
/// the messages' numbers, whether or not each message arrives, and in time or not. So what it says can be checked without
/// blaming it for what happened in transit.
#[derive(Debug, Default)]
struct SenderClaims {
    interval: Duration,
    /// The largest time by which a logical arrival may be ahead of now.
    ahead: Duration,
    /// The time that messages that were overtaken may take up at once.
    overtaken: Duration,
    /// Messages below this number are behind the latest one that was believed, or are it.
    next: u64,
    /// The earliest logical arrival of message `next`.
    earliest: Instant,
    /// The logical arrival of message `next − 1`.
    latest: Instant,
    /// Messages from `next` on that were not believed. They take no place in time: a sender that was held up too long, or broke
    /// its contract for a while, is believed again once it keeps it.
    refused: u64,
    /// Time between logical arrivals that messages which were skipped may still take up, if they come after all. Bounded, and
    /// never more than passed: who skips numbers saves up no rate.
    skipped: Duration,
}

impl SenderClaims {
    /// True if a message that uses up `intervals` is in order, or there is time for it where it was overtaken.
    fn has_place(&self, sequence: u64, intervals: u32) -> bool {
        sequence >= self.next || self.interval * u64::from(intervals) <= self.skipped
    }

    /// Checks what `header` alleges, and notes it if an honest sender can have said it by `now`: the logical arrival is at
    /// most `ahead` from now. Returns the logical arrival that is believed: an earlier one than the contract allows would
    /// make a message late by its sender's word alone.
    fn take(&mut self, now: Instant, header: &DataHeader, intervals: u32) -> Option<Instant> {
        let Self { interval, ahead, overtaken, .. } = *self;
        let (claim, taken) = (header.logical_arrival, interval * u64::from(intervals));
        let Some(beyond) = header.sequence.checked_sub(self.next) else {
            // Overtaken by message next − 1: as many intervals before it as messages.
            let is_before =
                claim <= self.latest.before(interval * self.next.saturating_sub(header.sequence).saturating_sub(1));
            if !is_before || taken > self.skipped {
                return None;
            }
            self.skipped = self.skipped - taken;
            return Some(claim);
        };
        let earliest = self.earliest + interval * beyond.saturating_sub(self.refused);
        let arrival = claim.max(earliest).max(now.before(CREDIT));
        if arrival > now + ahead {
            self.refused = self.refused.saturating_add(1);
            return None;
        }
        let skipped = if beyond > 0 { arrival.since(self.earliest) } else { Duration::ZERO };
        *self = Self {
            next: header.sequence.saturating_add(1),
            earliest: arrival + taken,
            latest: arrival,
            refused: 0,
            skipped: (self.skipped + skipped).min(overtaken),
            ..*self
        };
        Some(claim.max(earliest))
    }
}

/// The reason why a message has no place in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicingDrop {
    /// Its sender broke the contract.
    Contract,
    /// Its sender kept the contract, but those before it were found so late that its place would be too far ahead. The value is the delay that they cause.
    Backlog(Duration),
}

/// A message's place in time at this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicedMessage {
    /// Its logical arrival at the sender, as far as that is believed; at this host where the clocks differ. A message that has no
    /// place is dropped, and those behind it stand where they would without it.
    pub(crate) believed: Result<Instant, PolicingDrop>,
    /// From when on it may be served.
    pub(crate) eligible: Instant,
    /// Its logical arrival at this host: what its deadline counts from; not before `eligible`.
    pub(crate) release: Instant,
}

/// The policing of one channel at one host.
pub(crate) struct ChannelPolicer {
    /// From the logical arrival at the sender to the one here.
    upstream: Duration,
    same_clock: bool,
    regulator: Regulator,
    /// Where the clocks differ: the judge of whether messages keep the contract, by their arrivals. When they were found depends on this host.
    arrivals: Regulator,
    claims: SenderClaims,
}

impl ChannelPolicer {
    /// For a channel with these terms, if it has a contract. Its messages arrive here logically `upstream` after they did at the sender.
    /// Messages that were overtaken may use up `overtaken` intervals at once.
    pub(crate) fn new(terms: &ChannelTerms, upstream: Duration, overtaken: u64) -> Option<Self> {
        let contract = terms.service.contract()?;
        let (interval, ahead) = (contract.interval(), contract.most_ahead() + upstream);
        let [regulator, arrivals] = [(); 2].map(|()| Regulator::new(interval));
        let claims = SenderClaims { interval, ahead, overtaken: interval * overtaken, ..SenderClaims::default() };
        Some(Self { upstream, same_clock: terms.same_clock, regulator, arrivals, claims })
    }

    /// No message of the channel can have arrived at its sender before `now`.
    pub(crate) fn begin_at(&mut self, now: Instant) {
        if self.same_clock {
            self.claims.earliest = now;
        }
    }

    /// False if the message was overtaken by more than is believed: it comes too late to be of use.
    pub(crate) fn has_place(&self, header: &DataHeader, intervals: u32) -> bool {
        !self.same_clock || self.claims.has_place(header.sequence, intervals)
    }

    /// Judges the message of which the first packet was found then. It uses up `intervals` intervals. Whether it keeps the contract is
    /// judged by when it arrived, what it is served by counts from when it was found.
    pub(crate) fn take(&mut self, found: FrameTimes, header: &DataHeader, intervals: u32) -> PolicedMessage {
        let (now, arrived) = (found.at, found.arrival());
        // An honest sender's message arrives between its logical arrival and `upstream` later; earlier by its burst if
        // it works ahead. Nothing that it alleges can move the deadline before that of a message which arrives now, or the
        // next one closer than the interval: the demand that admission counted on.
        let alleged = match self.same_clock {
            true => (header.logical_arrival + self.upstream).max(now).min(now + self.upstream),
            false => now,
        };
        let stamp = self.regulator.stamp(alleged);
        let believed = match self.same_clock {
            true => self.claims.take(arrived, header, intervals).ok_or(PolicingDrop::Contract),
            false => {
                let ahead = self.claims.ahead;
                let conforming = self.arrivals.stamp(arrived);
                let keeps = conforming.logical_arrival.since(arrived) <= ahead;
                if keeps {
                    self.arrivals.accept(conforming, intervals);
                }
                let [lag, kept] = [stamp.logical_arrival.since(now), conforming.logical_arrival.since(arrived)];
                match (keeps, lag <= ahead) {
                    (false, _) => Err(PolicingDrop::Contract),
                    (true, false) => Err(PolicingDrop::Backlog(lag.saturating_sub(kept))),
                    (true, true) => Ok(stamp.logical_arrival),
                }
            }
        };
        if believed.is_ok() {
            self.regulator.accept(stamp, intervals);
        }
        // A message that came late, by the platform's fault or the network's, moves the deadlines of those behind it:
        // the demand stays what was admitted. They need not wait for it, though: work that may be done before its
        // time, with the deadline that it would have had anyway, adds nothing to the demand. Else one late message
        // would make every later one late if the channel uses its whole rate.
        let release = stamp.logical_arrival;
        PolicedMessage { believed, eligible: if self.same_clock { alleged } else { release }, release }
    }

    /// The rest of a message came so late that it counts as released only now: no later message arrives logically before
    /// `earliest`; by when they arrived, before `arrived`.
    pub(crate) fn not_before(&mut self, earliest: Instant, arrived: Instant) {
        self.regulator.not_before(earliest);
        self.arrivals.not_before(arrived);
    }
}
