//! An executive's claim on the link and the processors: what it has, what it needs, and what it asks the registry for. When that changes
//! is `sharing.rs`'s affair.

use std::net::SocketAddr;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Settings, Stage};
use laxity_core::contract::SendingStages;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Rate};

use crate::error::Error;
use crate::registry::{
    self, Book, Claim, FLOOR, FileState, GRID, HeldChannel, MOST_LISTED, RegistryError, Seat, Shortage, Store, grid,
    shared,
};

/// How often an executive looks whether the registry has changed: who else is there, and whether somebody wishes for its share.
const TICK: StdDuration = StdDuration::from_millis(100);
/// How often it reads the registry though it has not changed: a process may have ended without a word.
const READ: StdDuration = StdDuration::from_secs(1);

/// What one executive has of the shared resources.
pub(crate) struct Sharing {
    pub(crate) seat: Seat,
    /// The link's rate as this host is configured.
    pub(crate) whole: Rate,
    /// Our share: what `admission` reckons with, and what the executive paces by when no change is under way.
    pub(crate) parts: u64,
    /// The least share with which the channels keep their deadlines; `None` until it is computed again.
    pub(crate) need: Option<u64>,
    /// True if no larger share is possible until something goes.
    pub(crate) is_largest: bool,
    /// Beside upcalls it grows only as far as what comes before them stays within this, parts per million of the processor.
    pub(crate) most_above: Option<u64>,
    /// Until then an opener may wait for others to give way.
    pub(crate) waits_until: StdInstant,
    /// Until then it does not grow without a need.
    pub(crate) rests_until: StdInstant,
    pub(crate) looks_at: StdInstant,
    pub(crate) reads_at: StdInstant,
    /// The registry's file when it was read last.
    pub(crate) seen: Option<FileState>,
    /// What was in it.
    pub(crate) others: Others,
    /// The number of the change that the executive has not settled yet, and whether it lowers the share.
    pub(crate) change: Option<(u64, bool)>,
    /// True while an opener prepares a change.
    pub(crate) is_held: bool,
    pub(crate) changes: u64,
    /// True if channels came or went since the claim was written.
    pub(crate) is_stale: bool,
}

/// What an executive has to know of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Others {
    pub(crate) are_there: bool,
    pub(crate) wish: bool,
    pub(crate) processor_ppm: u64,
}

/// A share with which everything fits, and the admission that says so.
pub(crate) struct Candidate {
    /// The least.
    pub(crate) need: u64,
    /// What the executive has from then on: more than it needs if it has that already.
    pub(crate) parts: u64,
    pub(crate) admission: Admission,
    pub(crate) id: ReservationId,
    pub(crate) least: SendingStages,
}

impl Candidate {
    /// The same channel where the executive keeps a larger share than it needs, at which the least stages are `faster`: with stages that do
    /// at both, if they are within the budget.
    pub(crate) fn kept_at(&self, parts: u64, whole: Rate, faster: SendingStages, budget: Duration) -> Option<Self> {
        let mut both = self.admission.clone();
        let least = both.lengthen(self.id, faster).ok()?;
        if both.handover(self.id) + least.total() > budget {
            return None;
        }
        let admission = both.with_rate(grid(whole, parts)).ok()?;
        Some(Self { need: self.need, parts, admission, id: self.id, least })
    }
}

/// What came of asking the registry.
pub(crate) enum Outcome {
    Claimed {
        candidate: usize,
        settled: u64,
    },
    Wait,
    /// The processors are short, and the executive does not need all of its share.
    Modest,
    Short(registry::Shared),
}

impl Sharing {
    /// Joins the host's executives, with the least share if others are there; returns what to admit by.
    pub(crate) fn join(
        store: Store,
        platform: &Platform,
        settings: Settings,
        address: SocketAddr,
        command: &str,
    ) -> Result<Option<(Admission, Self)>, Error> {
        let (Some(whole), link) = (platform.link.rate, platform.link) else { return Ok(None) };
        let refused = |refusal| Error::refused_here(refusal, None);
        let admission = Admission::with_settings(platform.clone(), settings)?;
        let look_ahead_ns = admission.look_ahead().as_nanos();
        let admission = admission.with_rate(grid(whole, FLOOR)).map_err(refused)?;
        let largest = largest(&admission, whole, FLOOR + 1, None);
        let (pid, start, number) = registry::claim_of_this_process()?;
        let mut claim = Claim {
            pid,
            start,
            number,
            address,
            command: registry::presentable(command),
            link_rate: whole.as_bytes_per_second(),
            link: grid(whole, FLOOR).as_bytes_per_second(),
            revocable: 0,
            wish: 0,
            processor_ppm: processor(&admission),
            look_ahead_ns,
            setup_ns: link.setup.as_nanos(),
            packet_bytes: u64::from(platform.packet.max(link.floor_bytes)) + u64::from(link.overhead_bytes),
            allowance_ns: 0,
            channels: Vec::new(),
            more: 0,
        };
        claim.allowance_ns = claim.own_allowance();
        let alone = largest.as_ref().map_or((claim.link, claim.processor_ppm), |(parts, admission)| {
            (grid(whole, *parts).as_bytes_per_second(), processor(admission))
        });
        let seat = Seat::join(store, claim, alone)?.map_err(|shared| {
            let (code, stage) = (Code::LinkUtilisation, Stage::Link);
            Error::Shared { refusal: Refusal::new(code, stage), advice: None, shared: Box::new(shared) }
        })?;
        let (parts, admission) = match largest {
            Some(largest) if seat.claim().link == alone.0 => largest,
            _ => (FLOOR, admission),
        };
        Ok(Some((admission, Self::with_seat(seat, whole, parts))))
    }

    fn with_seat(seat: Seat, whole: Rate, parts: u64) -> Self {
        let now = StdInstant::now();
        Self {
            seat,
            whole,
            parts,
            need: Some(FLOOR),
            is_largest: false,
            most_above: None,
            waits_until: now,
            rests_until: now,
            looks_at: now,
            reads_at: now,
            seen: None,
            others: Others::default(),
            change: None,
            is_held: false,
            changes: 0,
            is_stale: false,
        }
    }

    /// What every bound allows for the packets of other executives.
    pub(crate) fn allowance(&self) -> Duration {
        Duration::from_nanos(self.seat.claim().allowance_ns)
    }

    pub(crate) fn rate(&self) -> Rate {
        grid(self.whole, self.parts)
    }

    /// The share that it could have with `free` bytes per second more.
    pub(crate) fn rate_with(&self, free: u64) -> Rate {
        grid(self.whole, parts_of(self.whole, self.rate().as_bytes_per_second().saturating_add(free)))
    }

    pub(crate) fn is_changing(&self) -> bool {
        self.is_held || self.change.is_some()
    }

    /// Asks the registry for the first candidate that is free.
    pub(crate) fn ask(
        &mut self,
        candidates: &[Candidate],
        channels: &[HeldChannel],
        may_wait: bool,
    ) -> Result<Outcome, RegistryError> {
        let (key, whole, parts) = (self.seat.claim().key(), self.whole, self.parts);
        self.seat.update(|book, mine| {
            let within = mine.link.saturating_add(book.free(mine.link_rate));
            mine.wish = 0;
            let link = |candidate: &Candidate| grid(whole, candidate.parts).as_bytes_per_second();
            let Some(chosen) = candidates.iter().position(|candidate| link(candidate) <= within) else {
                let need = candidates.iter().map(link).min().unwrap_or(u64::MAX) - within;
                if may_wait && book.revocable(key) >= need {
                    mine.wish = need;
                    return Outcome::Wait;
                }
                return Outcome::Short(shared(book, key, Shortage::Link { free: book.free(mine.link_rate) }));
            };
            let (candidate, before) = (&candidates[chosen], mine.processor_ppm);
            if let Err(short) = claim_processor(book, mine, &candidate.admission) {
                if candidate.need < candidate.parts {
                    return Outcome::Modest;
                }
                if may_wait && book.revocable(key) > 0 {
                    // Who gives back link gives back what handing packets over at its rate takes.
                    mine.wish = 1;
                    return Outcome::Wait;
                }
                return Outcome::Short(short);
            }
            // What is given back counts as used until the executive paces by less.
            if candidate.parts < parts {
                mine.processor_ppm = mine.processor_ppm.max(before);
            }
            mine.link = mine.link.max(link(candidate));
            mine.revocable = mine.link.saturating_sub(grid(whole, candidate.need).as_bytes_per_second());
            list(mine, channels);
            Outcome::Claimed { candidate: chosen, settled: book.settled_ns }
        })
    }

    /// The least share with which `admission`'s channels keep their deadlines, if it is less than ours.
    pub(crate) fn need(&mut self, admission: &Admission) -> u64 {
        let (whole, parts) = (self.whole, self.parts);
        let least = || least(FLOOR.min(parts), parts, |parts| admission.with_rate(grid(whole, parts)).ok());
        (*self.need.get_or_insert_with(|| least().map_or(parts, |(need, _)| need))).min(parts)
    }

    /// Looks who else is there, if it is time. What cannot be read is as it was.
    pub(crate) fn look(&mut self) {
        let now = StdInstant::now();
        if now < self.looks_at {
            return;
        }
        self.looks_at = now + TICK;
        let state = self.seat.state_of_file();
        if state == self.seen && now < self.reads_at {
            return;
        }
        (self.seen, self.reads_at) = (state, now + READ);
        let key = self.seat.claim().key();
        if let Ok(book) = self.seat.look() {
            let (are_there, wish) = (!book.is_alone(key), book.is_wished(key));
            self.others = Others { are_there, wish, processor_ppm: book.processor_of_others(key) };
        }
    }

    /// True if the share is not what it is to be.
    pub(crate) fn is_to_change(&self, has_best_effort: bool) -> bool {
        if !self.others.are_there {
            return self.parts < GRID && !self.is_largest && self.rests_until <= StdInstant::now();
        }
        has_best_effort || self.need.is_none_or(|need| need < self.parts)
    }
}

/// The long-run share of a processor that the executive takes: its channels, and handing packets over at the link's rate. Not
/// the interference, which is the platform's.
pub(crate) fn processor(admission: &Admission) -> u64 {
    let periodic = &admission.platform().interference.periodic;
    let stolen = periodic.iter().fold(0u64, |sum, &(period, cost)| {
        sum.saturating_add(cost.mul_ratio(1_000_000, period.as_nanos().max(1)).as_nanos())
    });
    admission.utilisation_ppm().processor.saturating_sub(stolen).min(1_000_000)
}

pub(crate) fn claim_processor(book: &Book, mine: &mut Claim, admission: &Admission) -> Result<(), registry::Shared> {
    let (wanted, key) = (processor(admission), mine.key());
    let left = registry::processor_left(book.processor_of_others(key));
    // What is there already stays, even if others were promised too much before (the processors may have become fewer).
    if wanted > left && wanted > mine.processor_ppm {
        return Err(shared(book, key, Shortage::Processors { free_ppm: left }));
    }
    mine.processor_ppm = wanted;
    Ok(())
}

pub(crate) fn list(mine: &mut Claim, channels: &[HeldChannel]) {
    mine.channels = channels.iter().take(MOST_LISTED).cloned().collect();
    mine.more = channels.len().saturating_sub(MOST_LISTED) as u64;
}

/// The largest share of at least `from` parts with which everything fits, for an executive that is alone, and the admission that
/// says so; with no more before the upcalls than `most_above`.
pub(crate) fn largest(
    admission: &Admission,
    whole: Rate,
    from: u64,
    most_above: Option<u64>,
) -> Option<(u64, Admission)> {
    let left = registry::processor_left(0);
    let leaves_enough = |larger: &Admission| {
        processor(larger) <= left && most_above.is_none_or(|most| larger.above_upcalls_ppm() <= most)
    };
    let fits = |parts| admission.with_rate(grid(whole, parts)).ok().filter(leaves_enough);
    most(from, GRID, fits)
}

/// Lengthens the stages of a sending channel, such that the share which is needed is still enough.
pub(crate) fn relax_sending(
    admission: &mut Admission,
    sharing: Option<&mut Sharing>,
    id: ReservationId,
    budget: Duration,
) -> Result<SendingStages, Refusal> {
    let Some(sharing) = sharing else { return admission.relax(id, budget) };
    let (need, rate) = (sharing.need(admission), sharing.rate());
    if need == sharing.parts {
        return admission.relax(id, budget);
    }
    if let Ok(mut slower) = admission.with_rate(grid(sharing.whole, need)) {
        let stages = slower.relax(id, budget)?;
        if let Ok(moved) = slower.with_rate(rate) {
            *admission = moved;
            return Ok(stages);
        }
    }
    (sharing.need, sharing.is_stale) = (None, true);
    admission.relax(id, budget)
}

/// How many parts of `whole` fit into `rate`.
pub(crate) fn parts_of(whole: Rate, rate: u64) -> u64 {
    let fit = |parts: u64| grid(whole, parts).as_bytes_per_second() <= rate;
    let parts = u128::from(rate) * u128::from(GRID) / u128::from(whole.as_bytes_per_second());
    let parts = parts.min(GRID.into()) as u64;
    // Shares are rounded down, so one more may fit.
    if parts < GRID && fit(parts + 1) { parts + 1 } else { parts }
}

/// The least of `from..=to` that `ask` has an answer to, and the answer. The answers are there or not in no particular order
/// (a higher rate asks more of the processor): doubling finds one, and halving makes it less. What is returned was asked.
pub(crate) fn least<T>(from: u64, to: u64, mut ask: impl FnMut(u64) -> Option<T>) -> Option<(u64, T)> {
    let (mut no, mut yes) = (from.saturating_sub(1), from);
    let mut answer = loop {
        match ask(yes) {
            Some(answer) => break answer,
            None if yes >= to => return None,
            None => (no, yes) = (yes, (yes.max(1) * 2).min(to)),
        }
    };
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        match ask(middle) {
            Some(better) => (yes, answer) = (middle, better),
            None => no = middle,
        }
    }
    Some((yes, answer))
}

/// The largest of `from..=to` that `ask` has an answer to, and the answer: `to` if that has one, else by halving, which finds the
/// largest where only numbers above some limit have none. What is returned was asked.
pub(crate) fn most<T>(from: u64, to: u64, mut ask: impl FnMut(u64) -> Option<T>) -> Option<(u64, T)> {
    if from > to {
        return None;
    }
    if let Some(answer) = ask(to) {
        return Some((to, answer));
    }
    let (mut yes, mut no, mut found) = (from, to, None);
    while yes < no {
        let middle = yes + (no - yes) / 2;
        match ask(middle) {
            Some(answer) => (yes, found) = (middle + 1, Some((middle, answer))),
            None => no = middle,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_least_answer_is_found_among_monotone_ones(from in 1u64..100, to in 100u64..=256, first in 1u64..300) {
            let found = least(from, to, |parts| (parts >= first).then_some(parts));
            prop_assert_eq!(found, (first <= to).then(|| (first.max(from), first.max(from))));
        }
        #[test]
        fn the_largest_answer_is_found_among_monotone_ones(from in 1u64..200, to in 100u64..=256, last in 0u64..300) {
            let found = most(from, to, |parts| (parts <= last).then_some(parts));
            let largest = last.min(to);
            prop_assert_eq!(found, (from <= largest).then_some((largest, largest)));
        }
        #[test]
        fn what_is_found_was_asked(answers in prop::collection::vec(any::<bool>(), 257), from in 1u64..256) {
            let ask = |parts: u64| answers[parts as usize].then_some(());
            for (found, ()) in least(from, 256, ask).into_iter().chain(most(from, 256, ask)) {
                prop_assert!(answers[found as usize] && found >= from);
            }
        }
    }
}
