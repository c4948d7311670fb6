//! This executive's share of what the host's executives share, and how it changes.
//!
//! **Soundness.** The share in the registry is never below the one that the link scheduler paces by. *Growing:* claim, test all
//! channels at the new rate, then pace by it; the new channel is set up when the executive says that what waited on the slower
//! link is through. *Shrinking:* test at the new rate, pace by it once no current packet waits, and lower the claim when what
//! was handed over before has left. While a change is under way nothing is admitted: peers' requests wait.
//!
//! A real-time channel needs the least share with which it and all others keep their deadlines, and which leaves the receiver
//! twice the time that it would need on an idle host like this one, where that much is free. Its stages are those of that
//! share, so that what an executive has beyond its need can be given back at any time.
//!
//! *Alone* an executive has the largest share with which its channels keep their deadlines: the whole link, unless handing
//! packets over at that rate asks too much of the processor. It gives back what it does not need as soon as it sees
//! another one, and makes room on its own processor for channels that it receives and for upcalls. Among others, one with
//! best effort takes up to half of what is free, and gives it back when somebody wishes for it; the rest have their need.

use std::net::SocketAddr;
use std::sync::MutexGuard;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::event::{Name, Request};
use laxity_core::limits;
use laxity_core::units::{Duration, Rate};

use crate::advice;
use crate::control::{Known, Shared, State};
use crate::error::{Advice, Error};
use crate::executive::Command;
use crate::link::ONLY_LINK;
use crate::registry::{self, Direction, GRID, HeldChannel, LOOK, PATIENCE, RegistryError, Shortage, grid};
use crate::share::{Candidate, Outcome, Sharing, claim_processor, largest, least, list, parts_of, processor};

/// For so long an executive takes no more than it has, when it has made room on its processor: for what asked for the room.
const REST: StdDuration = StdDuration::from_secs(1);

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
    /// The refusal with the least deadline for all of the way as far as this host knows it.
    pub(crate) fn end_to_end(&self, refusal: Refusal) -> Refusal {
        Refusal { least_deadline: refusal.least_deadline.map(|least| least + self.outside), ..refusal }
    }

    /// What of the deadline is this host's; nothing is granted within no time.
    pub(crate) fn budget(&self) -> Duration {
        self.contract.deadline().saturating_sub(self.outside)
    }
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
            (sharing.is_stale, sharing.is_largest, sharing.need) = (true, false, None);
        }
    }

    /// True while the share, or how channels are served, is about to change: nothing is admitted until then.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_rearranging() || self.sharing.as_ref().is_some_and(Sharing::is_changing)
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

    /// Whether the processors have room for what `admission` has, beside the executives of other processes.
    pub(crate) fn leaves_processors(&self, admission: &Admission) -> bool {
        let left = |sharing: &Sharing| registry::processor_left(sharing.others.processor_ppm);
        self.sharing.as_ref().is_none_or(|sharing| processor(admission) <= left(sharing))
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

    /// Waits until the share and the stages are what admission reckons with.
    pub(crate) fn settled<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.is_unsettled() && !self.is_stopped() {
            state = self.wait_for_change(state);
        }
        state
    }

    /// The least stages with which a channel that is only asked about would be sent, with what is free of the link now; nothing changes.
    pub(crate) fn would_send<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        wanted: &Wanted,
    ) -> Result<(MutexGuard<'a, State>, SendingStages, Duration), Error> {
        let mut state = self.settled_soon(state)?;
        let State { admission, sharing, .. } = &mut *state;
        let Some(sharing) = sharing else {
            let mut copy = admission.clone();
            let found = copy.reserve_rearranged(&wanted.contract, Role::Sends, wanted.priority, wanted.budget());
            let (id, least) = found.map_err(|refusal| Error::refused_here(wanted.end_to_end(refusal), None))?;
            return Ok((state, least, copy.handover(id)));
        };
        let candidates = self.candidates(admission, sharing, wanted, false)?;
        let (book, mut mine) = (sharing.seat.look()?, sharing.seat.claim().clone());
        let within = mine.link.saturating_add(book.free(mine.link_rate));
        let whole = sharing.whole;
        let fits = |candidate: &&Candidate| {
            grid(whole, candidate.parts).as_bytes_per_second() <= within
                && claim_processor(&book, &mut mine, &candidate.admission).is_ok()
        };
        let none = || Error::refused_here(Refusal::new(Code::LinkUtilisation, Stage::Link), None);
        let Candidate { admission, id, least, .. } = candidates.iter().find(fits).ok_or_else(none)?;
        Ok((state, *least, admission.handover(*id)))
    }

    /// Admits a sending channel with the least share of the link that does, if that is free; waits for others to give way.
    pub(crate) fn admit_sharing<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wanted: &Wanted,
    ) -> Result<(MutexGuard<'a, State>, ReservationId, SendingStages), Error> {
        let (until, mut is_modest, mut may_rearrange) = (StdInstant::now() + PATIENCE, false, true);
        loop {
            state = self.settled_soon(state)?;
            if std::mem::take(&mut may_rearrange)
                && let Some(arranged) = self.other_way(&mut state, wanted)
            {
                self.rearrange(&mut state, arranged);
                state = self.settled_soon(state)?;
            }
            let mut channels: Vec<HeldChannel> = state.channels().map(listed_channel).collect();
            channels.push(listed(Direction::Sends, &wanted.name, wanted.peer, wanted.service));
            let State { admission, sharing, .. } = &mut *state;
            let Some(sharing) = sharing.as_mut().filter(|_| !self.is_stopped()) else { return Err(Error::Stopped) };
            let mut candidates = match self.candidates(admission, sharing, wanted, is_modest) {
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
                    let before = sharing.parts;
                    (sharing.parts, sharing.need) = (chosen.parts, Some(chosen.need));
                    *admission = chosen.admission;
                    if chosen.parts != before {
                        sharing.is_largest = false;
                        state = self.change_share(state, settled, chosen.parts < before);
                    }
                    return if self.is_stopped() { Err(Error::Stopped) } else { Ok((state, chosen.id, chosen.least)) };
                }
                Outcome::Modest => is_modest = true,
                Outcome::Wait => {
                    sharing.waits_until = until + LOOK;
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

    /// Another way to serve the channels, if the newcomer needs it: at the share of now, for the newcomer at the whole link or at this share.
    fn other_way(&self, state: &mut State, wanted: &Wanted) -> Option<Admission> {
        let State { admission, sharing, .. } = state;
        let sharing = sharing.as_mut().filter(|_| admission.may_rearrange())?;
        let (budget, receiving) = (wanted.budget(), admission.receiving_alone(&wanted.contract));
        let at = |rate| admission.with_rate(rate).ok();
        let faster = [at(sharing.whole), Some(admission.clone())];
        let fits = |host: &Admission, budget| {
            let mut host = host.clone();
            host.reserve_least_at(&wanted.contract, Role::Sends, wanted.priority, budget).is_ok()
        };
        for left in [receiving, Duration::ZERO].into_iter().filter(|left| *left < budget) {
            let budget = budget - left;
            if faster.iter().flatten().any(|host| fits(host, budget)) {
                return None;
            }
            let other = |host: &Admission| {
                host.rearranged(&wanted.contract, Role::Sends, budget)?.with_rate(sharing.rate()).ok()
            };
            if let Some(arranged) = faster.iter().flatten().find_map(other) {
                return Some(arranged);
            }
        }
        None
    }

    /// Shares of the whole link that would do, the one that leaves the receiver most first.
    /// A modest executive takes no more than it needs.
    fn candidates(
        &self,
        admission: &Admission,
        sharing: &mut Sharing,
        wanted: &Wanted,
        is_modest: bool,
    ) -> Result<Vec<Candidate>, Error> {
        let platform = &self.platform;
        let from = sharing.need(admission);
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
            if let Some((need, (admission, id, least))) = least(from, GRID, fits)
                && found.last().is_none_or(|last| last.need != need)
            {
                let candidate = Candidate { need, parts: need, admission, id, least };
                let had = if is_modest || need >= sharing.parts { None } else { fits(sharing.parts) };
                let kept = had.and_then(|(.., faster)| candidate.kept_at(sharing.parts, sharing.whole, faster, budget));
                found.push(kept.unwrap_or(candidate));
            }
        }
        if found.is_empty() {
            let refusal = refusal_at(admission, sharing.whole, wanted);
            return Err(Error::refused_here(refusal, None));
        }
        Ok(found)
    }

    /// Has the executive pace by the share that admission reckons with, and waits until nothing depends on the other one. A greater
    /// one was claimed before.
    fn change_share<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        settled: u64,
        lowers: bool,
    ) -> MutexGuard<'a, State> {
        if let Some(sharing) = &mut state.sharing {
            sharing.is_held = true;
        }
        drop(state);
        // What executives that are gone have left behind must be through before we take their place.
        registry::wait_until(settled);
        let mut state = self.state();
        self.set_link(&mut state, lowers);
        while state.sharing.as_ref().is_some_and(|sharing| sharing.change.is_some()) && !self.is_stopped() {
            state = self.wait_for_change(state);
        }
        if let Some(sharing) = &mut state.sharing {
            sharing.is_held = false;
        }
        self.share_changed.notify_all();
        // Deferred requests, and a review that had to wait.
        self.notified.notify();
        state
    }

    pub(crate) fn wait_for_change<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
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

    /// Makes room on this host's processor, if something fits without what the executive does not need of its share; true if so. It is
    /// to be asked for again when the share has changed.
    pub(crate) fn make_room(&self, state: &mut State, fits: impl Fn(&mut Admission) -> bool) -> bool {
        if state.is_unsettled() {
            return false;
        }
        let State { admission, sharing, .. } = &mut *state;
        let Some(sharing) = sharing else { return false };
        let (need, whole) = (sharing.need(admission), sharing.whole);
        let left = registry::processor_left(sharing.others.processor_ppm);
        let fits = |admission: &Admission| {
            let mut with = admission.clone();
            fits(&mut with) && processor(&with) <= left
        };
        // If it fits as it is, something else is short.
        if need == sharing.parts || fits(admission) {
            return false;
        }
        let Some(slower) = admission.with_rate(grid(whole, need)).ok().filter(fits) else { return false };
        (sharing.parts, sharing.is_largest) = (need, false);
        sharing.rests_until = StdInstant::now() + REST;
        *admission = slower;
        self.set_link(state, true);
        true
    }

    /// The executive says that only the new share counts.
    pub(crate) fn link_set(&self, ticket: u64) {
        let mut state = self.state();
        let State { admission, sharing, .. } = &mut *state;
        let Some(sharing) = sharing else { return };
        let Some((_, lowers)) = sharing.change.take_if(|(change, _)| *change == ticket) else { return };
        if lowers {
            let (link, needed) = (sharing.rate().as_bytes_per_second(), processor(admission));
            let need = sharing.need.map_or(link, |need| grid(sharing.whole, need).as_bytes_per_second());
            // If that fails, the review tries again: until then we claim more than we use.
            let _ = sharing.seat.update(|_, mine| {
                (mine.link, mine.revocable) = (link, link.saturating_sub(need));
                mine.processor_ppm = mine.processor_ppm.min(needed);
            });
            sharing.is_stale = true;
        }
        self.share_changed.notify_all();
    }

    /// What the control thread does about the share between notices; returns when it wants to look again.
    pub(crate) fn attend_to_share(&self) -> Option<StdDuration> {
        let mut state = self.state();
        let has_best_effort = state.sharing.is_some() && state.has_best_effort();
        if state.is_unsettled() {
            return None;
        }
        let sharing = state.sharing.as_mut()?;
        sharing.look();
        if sharing.is_stale || sharing.is_to_change(has_best_effort) {
            self.review(&mut state, has_best_effort);
        }
        let look = state.sharing.as_ref().map(|sharing| sharing.looks_at);
        look.map(|at| at.saturating_duration_since(StdInstant::now()))
    }

    /// Writes our claim as it is now, and changes the share if there is a reason.
    fn review(&self, state: &mut State, has_best_effort: bool) {
        let channels: Vec<HeldChannel> = state.channels().map(listed_channel).collect();
        let State { admission, sharing, upcalls, .. } = state;
        let Some(sharing) = sharing else { return };
        let need = sharing.need(admission);
        let most_above = sharing.most_above.filter(|_| !upcalls.is_empty());
        let rests = sharing.is_largest || sharing.rests_until > StdInstant::now();
        let mut all = if rests || sharing.others.are_there {
            None
        } else {
            largest(admission, sharing.whole, sharing.parts + 1, most_above)
        };
        let (whole, parts, key) = (sharing.whole, sharing.parts, sharing.seat.claim().key());
        // Nothing larger fits until something goes.
        let is_largest = all.is_none() && !rests && !sharing.others.are_there;
        let mut is_need_wrong = false;
        let now = laxity_link::sys::now().as_nanos();
        // An opener that failed while it waited may have left its wish.
        let waits_no_more = sharing.waits_until <= StdInstant::now();
        let reviewed = sharing.seat.update(|book, mine| {
            // No change is under way: what we pace by is what we need to claim.
            mine.link = mine.link.min(grid(whole, parts).as_bytes_per_second());
            mine.revocable = mine.revocable.min(mine.link);
            if waits_no_more {
                mine.wish = 0;
            }
            list(mine, &channels);
            let (is_alone, is_wished) = (book.is_alone(key), book.is_wished(key));
            let rate = |parts| grid(whole, parts).as_bytes_per_second();
            let free = book.free(mine.link_rate);
            let larger = match (is_alone, has_best_effort && !is_wished) {
                (true, _) => all.take(),
                (false, true) => {
                    // Not for every little that becomes free.
                    let half = parts_of(whole, rate(parts).saturating_add(free) / 2);
                    let is_worth_it = half >= parts + GRID / 32;
                    is_worth_it.then(|| Some((half, admission.with_rate(grid(whole, half)).ok()?))).flatten()
                }
                (false, false) => None,
            };
            if let Some((grown, larger)) = larger
                && book.settled_ns <= now
                && rate(grown) - rate(parts) <= free
                && claim_processor(book, mine, &larger).is_ok()
            {
                mine.link = rate(grown);
                mine.revocable = mine.link - rate(need);
                return Some((grown, larger));
            }
            // Never refused: it is no more than before, or was claimed when the channel was admitted.
            let _ = claim_processor(book, mine, admission);
            mine.revocable = mine.link.saturating_sub(rate(need));
            if need < parts && !is_alone && (is_wished || !has_best_effort) {
                let smaller = admission.with_rate(grid(whole, need)).ok();
                is_need_wrong = smaller.is_none();
                return smaller.map(|smaller| (need, smaller));
            }
            None
        });
        if is_need_wrong {
            sharing.need = None;
        }
        sharing.is_largest |= is_largest;
        sharing.is_stale = reviewed.is_err();
        if matches!(reviewed, Err(RegistryError::Lost { .. }))
            && let Some(smaller) = (need < parts).then(|| admission.with_rate(grid(whole, need)).ok()).flatten()
        {
            // Others may have what the registry no longer says is ours.
            sharing.seat.reduce(grid(whole, need).as_bytes_per_second());
            (sharing.parts, sharing.is_largest) = (need, false);
            *admission = smaller;
            return self.set_link(state, true);
        }
        if let Ok(Some((changed, new))) = reviewed {
            (sharing.parts, sharing.is_largest) = (changed, false);
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
