//! This executive's share of what the host's executives share, and how it changes.
//!
//! **Soundness.** The share in the registry is never below the one that the link scheduler paces by. *Growing:* claim, test all
//! channels at the new rate, then pace by it; the new channel is set up when the executive says that what waited on the slower
//! link is through. *Shrinking:* test at the new rate, pace by it once no current packet waits, and lower the claim when what
//! was handed over before has left. While a change is under way nothing is admitted: peers' requests wait.
//!
//! A real-time channel takes the least share with which it and all others keep their deadlines, and leaves the receiver twice
//! the time that it would need on an idle host like this one, where that much is free. An executive with best effort takes up
//! to half of what is free, and gives it back when somebody wishes for it.

use std::net::SocketAddr;
use std::sync::MutexGuard;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Settings, Stage};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::event::{Name, Request};
use laxity_core::limits;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Rate};

use crate::advice;
use crate::control::{Known, Shared, State};
use crate::error::{Advice, Error};
use crate::executive::Command;
use crate::link::ONLY_LINK;
use crate::registry::{
    self, Book, Claim, Direction, FLOOR, GRID, HeldChannel, LOOK, MOST_LISTED, PATIENCE, RegistryError, Seat, Shortage,
    Store, grid, shared,
};

/// How often an executive with best effort looks whether somebody wishes for its share.
const TICK: StdDuration = StdDuration::from_millis(200);

/// What one executive has of the shared resources.
pub(crate) struct Sharing {
    seat: Seat,
    /// The link's rate as this host is configured.
    whole: Rate,
    /// Our share: what `admission` reckons with, and what the executive paces by when no change is under way.
    parts: u64,
    /// The number of the change that the executive has not settled yet, and whether it lowers the share.
    change: Option<(u64, bool)>,
    /// True while an opener prepares a change.
    is_held: bool,
    changes: u64,
    /// True if channels came or went since the claim was written.
    is_stale: bool,
}

/// A sending real-time channel that is to be admitted.
pub(crate) struct Wanted {
    pub(crate) contract: Contract,
    /// What of the deadline is not this host's part.
    pub(crate) outside: Duration,
    pub(crate) name: Name,
    pub(crate) peer: SocketAddr,
    pub(crate) service: Service,
    /// The level of its handler under fixed priorities.
    pub(crate) priority: u8,
}

impl Wanted {
    /// What of the deadline is this host's; nothing is granted within no time.
    fn budget(&self) -> Duration {
        self.contract.deadline().saturating_sub(self.outside)
    }
}

/// A share with which everything fits, and the admission that says so.
struct Candidate {
    parts: u64,
    admission: Admission,
    id: ReservationId,
    least: SendingStages,
}

/// What came of asking the registry.
enum Outcome {
    Claimed { candidate: usize, settled: u64 },
    Wait,
    Short(registry::Shared),
}

impl Sharing {
    /// Joins the host's executives with the least share; returns what to admit by.
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
        let seat = Seat::join(store, claim)?.map_err(|shared| {
            let (code, stage) = (Code::LinkUtilisation, Stage::Link);
            Error::Shared { refusal: Refusal::new(code, stage), advice: None, shared: Box::new(shared) }
        })?;
        let sharing = Self { seat, whole, parts: FLOOR, change: None, is_held: false, changes: 0, is_stale: false };
        Ok(Some((admission, sharing)))
    }

    /// What every bound allows for the packets of other executives.
    pub(crate) fn allowance(&self) -> Duration {
        Duration::from_nanos(self.seat.claim().allowance_ns)
    }

    pub(crate) fn rate(&self) -> Rate {
        grid(self.whole, self.parts)
    }

    /// The share that it could have with `free` bytes per second more.
    fn rate_with(&self, free: u64) -> Rate {
        grid(self.whole, parts_of(self.whole, self.rate().as_bytes_per_second().saturating_add(free)))
    }

    fn is_changing(&self) -> bool {
        self.is_held || self.change.is_some()
    }

    /// Asks the registry for the first candidate that is free.
    fn ask(
        &mut self,
        candidates: &[Candidate],
        channels: &[HeldChannel],
        may_wait: bool,
    ) -> Result<Outcome, RegistryError> {
        let (key, whole) = (self.seat.claim().key(), self.whole);
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
            let candidate = &candidates[chosen];
            if let Err(short) = claim_processor(book, mine, &candidate.admission) {
                return Outcome::Short(short);
            }
            mine.link = link(candidate);
            mine.revocable = 0;
            list(mine, channels);
            Outcome::Claimed { candidate: chosen, settled: book.settled_ns }
        })
    }

    /// The least share with which `admission`'s channels keep their deadlines, if it is less than ours.
    fn need(&self, admission: &Admission) -> u64 {
        least(FLOOR.min(self.parts), self.parts, |parts| admission.with_rate(grid(self.whole, parts)).ok())
            .map_or(self.parts, |(parts, _)| parts)
    }
}

/// How many parts of `whole` fit into `rate`.
fn parts_of(whole: Rate, rate: u64) -> u64 {
    let fit = |parts: u64| grid(whole, parts).as_bytes_per_second() <= rate;
    let parts = u128::from(rate) * u128::from(GRID) / u128::from(whole.as_bytes_per_second());
    let parts = parts.min(GRID.into()) as u64;
    // Shares are rounded down, so one more may fit.
    if parts < GRID && fit(parts + 1) { parts + 1 } else { parts }
}

/// The least of `from..=to` that `ask` has an answer to, and the answer. The answers are there or not in no particular order
/// (a higher rate asks more of the processor): doubling finds one, and halving makes it less. What is returned was asked.
fn least<T>(from: u64, to: u64, mut ask: impl FnMut(u64) -> Option<T>) -> Option<(u64, T)> {
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

/// The long-run share of a processor that the executive takes: its channels, and handing packets over at the link's rate. Not
/// the interference, which is the platform's.
fn processor(admission: &Admission) -> u64 {
    let periodic = &admission.platform().interference.periodic;
    let stolen = periodic.iter().fold(0u64, |sum, &(period, cost)| {
        sum.saturating_add(cost.mul_ratio(1_000_000, period.as_nanos().max(1)).as_nanos())
    });
    admission.utilisation_ppm().processor.saturating_sub(stolen).min(1_000_000)
}

fn claim_processor(book: &Book, mine: &mut Claim, admission: &Admission) -> Result<(), registry::Shared> {
    let (wanted, key) = (processor(admission), mine.key());
    let left = registry::processor_left(book.processor_of_others(key));
    // What is there already stays, even if others were promised too much before (the processors may have become fewer).
    if wanted > left && wanted > mine.processor_ppm {
        return Err(shared(book, key, Shortage::Processors { free_ppm: left }));
    }
    mine.processor_ppm = wanted;
    Ok(())
}

fn list(mine: &mut Claim, channels: &[HeldChannel]) {
    mine.channels = channels.iter().take(MOST_LISTED).cloned().collect();
    mine.more = channels.len().saturating_sub(MOST_LISTED) as u64;
}

fn listed(direction: Direction, name: &Name, peer: SocketAddr, service: Service) -> HeldChannel {
    let (contract, rate) = match service {
        Service::RealTime(contract) => {
            let rate = u128::from(contract.max_message()) * 1_000_000_000 / u128::from(contract.interval().as_nanos());
            let (max, interval) = (contract.max_message(), contract.interval());
            let text = format!("{max}B every {interval}, burst {}, deadline {}", contract.burst(), contract.deadline());
            (text, u64::try_from(rate).unwrap_or(u64::MAX).max(1))
        }
        Service::BestEffort { max_message, .. } => (format!("best effort, messages of {max_message}B"), 0),
    };
    HeldChannel { direction, name: name.as_str().to_owned(), peer, contract, rate }
}

fn listed_channel(known: &Known) -> HeldChannel {
    let direction = if known.is_receiving { Direction::Receives } else { Direction::Sends };
    listed(direction, &known.name, known.peer, known.service)
}

impl State {
    /// Sees to it that the control thread looks at the share again.
    pub(crate) fn review_share(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.is_stale = true;
        }
    }

    /// True while the share is about to change: nothing is admitted until then.
    pub(crate) fn is_share_changing(&self) -> bool {
        self.sharing.as_ref().is_some_and(Sharing::is_changing)
    }

    /// Claims the processor for what `admission` says now, a receiving channel for `request` included.
    pub(crate) fn claim_receiving(&mut self, request: &Request) -> Result<(), Refusal> {
        let refusal = Refusal::new(Code::ProcessorUtilisation, Stage::ReceivingProcessor);
        let mut channels: Vec<HeldChannel> = self.channels().map(listed_channel).collect();
        channels.push(listed(Direction::Receives, &request.name, request.peer, request.service));
        let Some(sharing) = &mut self.sharing else { return Ok(()) };
        let admission = &self.admission;
        let claimed = sharing.seat.update(|book, mine| {
            list(mine, &channels);
            claim_processor(book, mine, admission)
        });
        match claimed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                sharing.is_stale = true;
                Err(refusal)
            }
        }
    }

    fn has_best_effort(&self) -> bool {
        self.channels().any(|known| !known.is_receiving && matches!(known.service, Service::BestEffort { .. }))
    }
}

impl Shared {
    /// Our share of the link; `None` if it is not shared.
    pub(crate) fn link_share(&self) -> Option<Rate> {
        self.state().sharing.as_ref().map(Sharing::rate)
    }

    /// Gives everything back.
    pub(crate) fn leave(&self) {
        let sharing = self.state().sharing.take();
        drop(sharing);
    }

    /// Admits a sending channel with the least share of the link that does, if that is free; waits for best effort to give way.
    pub(crate) fn admit_sharing<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wanted: &Wanted,
    ) -> Result<(MutexGuard<'a, State>, ReservationId, SendingStages), Error> {
        let until = StdInstant::now() + PATIENCE;
        loop {
            while state.sharing.as_ref().is_some_and(Sharing::is_changing) && !self.is_stopped() {
                state = self.wait_for_share(state);
            }
            let mut channels: Vec<HeldChannel> = state.channels().map(listed_channel).collect();
            channels.push(listed(Direction::Sends, &wanted.name, wanted.peer, wanted.service));
            let State { admission, sharing, .. } = &mut *state;
            let Some(sharing) = sharing.as_mut().filter(|_| !self.is_stopped()) else { return Err(Error::Stopped) };
            let mut candidates = match self.candidates(admission, sharing, wanted) {
                Ok(candidates) => candidates,
                Err(error) => {
                    // No reason any more for others to give way.
                    let free = sharing.seat.update(|book, mine| {
                        mine.wish = 0;
                        book.free(mine.link_rate)
                    })?;
                    let Error::Refused { refusal, .. } = error else { return Err(error) };
                    let rest = sharing.rate_with(free);
                    return Err(Error::refused_here(refusal, advise(state, rest, wanted, &refusal)));
                }
            };
            match sharing.ask(&candidates, &channels, StdInstant::now() < until)? {
                Outcome::Claimed { candidate, settled } => {
                    let chosen = candidates.swap_remove(candidate);
                    let changed = chosen.parts != sharing.parts;
                    sharing.parts = chosen.parts;
                    *admission = chosen.admission;
                    if changed {
                        state = self.grow(state, settled);
                    }
                    return if self.is_stopped() { Err(Error::Stopped) } else { Ok((state, chosen.id, chosen.least)) };
                }
                Outcome::Wait => {
                    drop(state);
                    std::thread::sleep(LOOK);
                    state = self.state();
                }
                Outcome::Short(shared) => {
                    let mut rest = sharing.rate();
                    let refusal = match shared.shortage {
                        Shortage::Processors { .. } => {
                            Refusal::new(Code::ProcessorUtilisation, Stage::SendingProcessor)
                        }
                        Shortage::Link { free } => {
                            rest = sharing.rate_with(free);
                            refusal_at(admission, rest, wanted)
                        }
                        Shortage::Seats => Refusal::new(Code::LinkUtilisation, Stage::Link),
                    };
                    // Where it is not the link that is short, nobody here knows what others leave.
                    let is_link = matches!(shared.shortage, Shortage::Link { .. });
                    let advice = if is_link { advise(state, rest, wanted, &refusal) } else { None };
                    return Err(Error::Shared { refusal, advice, shared: Box::new(shared) });
                }
            }
        }
    }

    /// Shares of the whole link that would do, the one that leaves the receiver most first.
    fn candidates(&self, admission: &Admission, sharing: &Sharing, wanted: &Wanted) -> Result<Vec<Candidate>, Error> {
        let platform = &self.platform;
        let receiving = Admission::with_settings(platform.clone(), admission.settings())?
            .reserve_least(&wanted.contract, Role::Receives, limits::MAX_DEADLINE)
            .map_or(Duration::ZERO, |(_, stages)| stages.processor + self.input_delay);
        let mut found: Vec<Candidate> = Vec::new();
        for left in [receiving * 2, receiving, Duration::ZERO] {
            let budget = wanted.budget().saturating_sub(left);
            let fits = |parts| {
                let mut admission = admission.with_rate(grid(sharing.whole, parts)).ok()?;
                let (id, least) =
                    admission.reserve_least_at(&wanted.contract, Role::Sends, wanted.priority, budget).ok()?;
                Some((admission, id, least))
            };
            if let Some((parts, (admission, id, least))) = least(sharing.parts, GRID, fits)
                && found.last().is_none_or(|last| last.parts != parts)
            {
                found.push(Candidate { parts, admission, id, least });
            }
        }
        if found.is_empty() {
            let refusal = refusal_at(admission, sharing.whole, wanted);
            return Err(Error::refused_here(refusal, None));
        }
        Ok(found)
    }

    /// Has the executive pace by the greater share that was claimed, and waits until nothing depends on the smaller one.
    fn grow<'a>(&'a self, mut state: MutexGuard<'a, State>, settled: u64) -> MutexGuard<'a, State> {
        if let Some(sharing) = &mut state.sharing {
            sharing.is_held = true;
        }
        drop(state);
        // What executives that are gone have left behind must be through before we take their place.
        registry::wait_until(settled);
        let mut state = self.state();
        self.set_link(&mut state, false);
        while state.sharing.as_ref().is_some_and(|sharing| sharing.change.is_some()) && !self.is_stopped() {
            state = self.wait_for_share(state);
        }
        if let Some(sharing) = &mut state.sharing {
            sharing.is_held = false;
        }
        self.share_changed.notify_all();
        // Deferred requests, and a review that had to wait.
        self.notified.notify();
        state
    }

    fn wait_for_share<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.share_changed.wait_timeout(state, StdDuration::from_millis(50));
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    /// Tells the executive what `admission` reckons with.
    fn set_link(&self, state: &mut State, lowers: bool) {
        if !lowers {
            // A faster link asks more of the processor.
            state.review_bounds();
            state.publish_bounds();
        }
        let State { admission, sharing, .. } = state;
        if let Some(sharing) = sharing {
            sharing.changes += 1;
            sharing.change = Some((sharing.changes, lowers));
            self.command(Command::SetLink {
                ticket: sharing.changes,
                link: ONLY_LINK,
                model: admission.platform().link,
            });
        }
    }

    /// The executive says that only the new share counts.
    pub(crate) fn link_set(&self, ticket: u64) {
        let mut state = self.state();
        let Some(sharing) = &mut state.sharing else { return };
        let Some((_, lowers)) = sharing.change.take_if(|(change, _)| *change == ticket) else { return };
        if lowers {
            let link = sharing.rate().as_bytes_per_second();
            // If that fails, the review tries again: until then we claim more than we use.
            let _ = sharing.seat.update(|_, mine| (mine.link, mine.revocable) = (link, 0));
            sharing.is_stale = true;
        }
        self.share_changed.notify_all();
    }

    /// What the control thread does about the share between notices; returns when it wants to look again.
    pub(crate) fn attend_to_share(&self) -> Option<StdDuration> {
        let mut state = self.state();
        let has_best_effort = state.sharing.is_some() && state.has_best_effort();
        let sharing = state.sharing.as_mut()?;
        if sharing.is_changing() {
            return None;
        }
        if sharing.is_stale || has_best_effort {
            self.review(&mut state, has_best_effort);
        }
        state.sharing.as_ref().is_some_and(|sharing| sharing.is_stale || has_best_effort).then_some(TICK)
    }

    /// Writes our claim as it is now, and changes the share if there is a reason.
    fn review(&self, state: &mut State, has_best_effort: bool) {
        let channels: Vec<HeldChannel> = state.channels().map(listed_channel).collect();
        let State { admission, sharing, .. } = state;
        let Some(sharing) = sharing else { return };
        let need = sharing.need(admission);
        let (whole, parts, key) = (sharing.whole, sharing.parts, sharing.seat.claim().key());
        let now = laxity_link::sys::now().as_nanos();
        let reviewed = sharing.seat.update(|book, mine| {
            // No change is under way: what we pace by is what we need to claim.
            mine.link = mine.link.min(grid(whole, parts).as_bytes_per_second());
            mine.revocable = mine.revocable.min(mine.link);
            list(mine, &channels);
            let is_wished = book.others(key).any(|other| other.wish > 0);
            let free = book.free(mine.link_rate);
            let grown = parts_of(whole, grid(whole, parts).as_bytes_per_second().saturating_add(free) / 2);
            // Not for every little that becomes free.
            if has_best_effort && !is_wished && grown >= parts + GRID / 32 && book.settled_ns <= now {
                let bigger = admission.with_rate(grid(whole, grown)).ok();
                let extra = grid(whole, grown).as_bytes_per_second() - grid(whole, parts).as_bytes_per_second();
                if let Some(bigger) = bigger.filter(|_| extra <= free)
                    && claim_processor(book, mine, &bigger).is_ok()
                {
                    mine.link = grid(whole, grown).as_bytes_per_second();
                    mine.revocable = mine.link - grid(whole, need).as_bytes_per_second();
                    return Some((grown, bigger));
                }
            }
            // Never refused: it is no more than before, or was claimed when the channel was admitted.
            let _ = claim_processor(book, mine, admission);
            let surplus = grid(whole, parts).as_bytes_per_second() - grid(whole, need).as_bytes_per_second();
            mine.revocable = if has_best_effort { surplus } else { 0 };
            if need < parts && (is_wished || !has_best_effort) {
                return admission.with_rate(grid(whole, need)).ok().map(|smaller| (need, smaller));
            }
            None
        });
        sharing.is_stale = reviewed.is_err();
        if let Ok(Some((changed, new))) = reviewed {
            sharing.parts = changed;
            *admission = new;
            self.set_link(state, changed < parts);
        }
    }
}

/// Why `wanted` does not fit at `rate`.
fn refusal_at(admission: &Admission, rate: Rate, wanted: &Wanted) -> Refusal {
    let at = admission.with_rate(rate);
    let mut admission = at.unwrap_or_else(|_| admission.clone());
    match admission.reserve_least_at(&wanted.contract, Role::Sends, wanted.priority, wanted.budget()) {
        Err(refusal) => {
            Refusal { least_deadline: refusal.least_deadline.map(|least| least + wanted.outside), ..refusal }
        }
        Ok(_) => Refusal::new(Code::LinkUtilisation, Stage::Link),
    }
}

/// What would fit into a share with `rate`. Nothing is locked meanwhile.
fn advise(state: MutexGuard<'_, State>, rate: Rate, wanted: &Wanted, refusal: &Refusal) -> Option<Box<Advice>> {
    let admission = state.admission.with_rate(rate).ok()?;
    let question = state.question(admission).filter(|_| advice::helps(refusal))?;
    drop(state);
    Some(question.ask(&wanted.contract, wanted.outside))
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
        fn what_is_found_was_asked(answers in prop::collection::vec(any::<bool>(), 257), from in 1u64..256) {
            if let Some((found, ())) = least(from, 256, |parts| answers[parts as usize].then_some(())) {
                prop_assert!(answers[found as usize] && found >= from);
            }
        }
    }
}
