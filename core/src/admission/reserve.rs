//! The channels granted on one executive, and the question whether one more fits.

use alloc::vec::Vec;

use super::answer::{Role, Rule};
use super::composite::{CompositeTest, Parts, least_deadline};
use super::ledger::{DemandLedger, LedgerChange};
use super::link::{LinkTest, PacketStream};
use super::machine::Machine;
use super::processor::{Job, ProcessorTest, parts_per_million};
use super::split::{LONGEST, StageSearch};
use super::upcalls::UpcallSet;
use super::walk::{Demand as _, Verdict, share, walk};
use super::{Code, Refusal, Stage};
use crate::collections::{Key, Slab};
use crate::contract::{Contract, SendingStages};
use crate::limits;
use crate::platform::{Platform, PlatformError};
use crate::probability::Probability;
use crate::units::{Duration, Instant};

/// From this many channels on the ledger is asked first; below, the exact test is as fast and finds shorter deadlines.
const LEDGER_FROM: usize = 64;
/// Rounds in which a deadline may grow because the link's tax grows with it.
const MOST_ROUNDS: usize = 256;

/// Admission for one executive: its platform, and the channels that hold reservations on it.
///
/// An answer depends on the platform and the reservations that exist, never on their order or on those released. Stages of
/// existing channels are not changed by a newcomer. With few channels a decision is exact; with many it is first the
/// ledger's, whose cost does not grow with their number, and the exact test's only if that says no.
///
/// ```
/// use laxity_core::admission::{Admission, answer::Role};
/// use laxity_core::{contract::Contract, platform::Platform, units::Duration};
///
/// let mut admission = Admission::new(Platform::assumed_host())?;
/// let millis = Duration::from_millis;
/// let contract = Contract::new(14_000, 1, millis(20), 1, millis(20))?;
/// let (id, least) = admission.reserve(&contract, Role::Sends, millis(15))?;
/// let stages = admission.relax(id, millis(15))?;
/// assert!(stages.processor >= least.processor && stages.link >= least.link);
/// assert_eq!(admission.platform().handover + stages.processor + stages.link, millis(15));
/// assert!(admission.release(id));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Admission {
    pub(super) machine: Machine,
    pub(super) settings: Settings,
    pub(super) first_rule: Rule,
    pub(super) channels: Slab<Reservation>,
    pub(super) ledger: DemandLedger,
    /// Those of this host, on a thread below the executive.
    pub(super) upcalls: UpcallSet,
}

/// The rules by which the executive serves the channels that it admits, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// By which rule processor deadlines are given.
    pub rule: Rule,
    /// True if messages may be sent on before their logical arrival.
    pub send_early: bool,
    /// True if messages may be reassembled before their logical arrival.
    pub receive_early: bool,
}

impl Settings {
    /// The settings of hosts that are not told to hold messages: nothing waits for its logical arrival.
    pub fn work_conserving(rule: Rule) -> Self {
        Self { rule, send_early: true, receive_early: true }
    }
}

/// A reservation; after its release the same value never names another one (until 2³² reuses of its place).
pub type ReservationId = Key;

/// The answer to a channel that asks: its reservation and its stages, or why it has none.
pub type Reserved = Result<(ReservationId, SendingStages), Refusal>;

/// Long-run shares in parts per million, rounded up; at a million nothing more is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Utilisation {
    /// All messages of all channels at their shortest intervals, interference, and C_l at the rate at which the smallest
    /// packets could ask for it; that last part is there also without any channel.
    #[cfg_attr(feature = "serde", serde(rename = "processor_ppm"))]
    pub processor: u64,
    /// All packets of all sending channels, and interference.
    #[cfg_attr(feature = "serde", serde(rename = "link_ppm"))]
    pub link: u64,
}

/// The reservation of a channel, or of an upcall on the executive's own thread. Under the composite rule both parts have the same deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) contract: Contract,
    /// `None` of an upcall, whose contract has its period only.
    pub(super) role: Option<Role>,
    /// The level of its handler, which counts under [`Rule::Levels`].
    pub(super) priority: u8,
    pub(super) job: Option<Job>,
    pub(super) stream: Option<PacketStream>,
    /// Of a channel that is sent: the time before this host begins, and the probability that it takes longer, as claimed when the channel was granted.
    pub(super) handover: Duration,
    pub(super) late_handover: Probability,
    /// The time that a message takes on an idle host, without the handover: no newcomer has less. Zero where one that is there is decided on again;
    /// otherwise nothing reads it of one that is there, and it is not kept up to date.
    pub(super) service: u64,
}

impl Reservation {
    pub(super) fn stages(&self, rule: Rule) -> SendingStages {
        let (processor, link) = self.deadlines();
        let link = if rule == Rule::Composite && self.job.is_some() { 0 } else { link };
        SendingStages { processor: nanos(processor), link: nanos(link) }
    }
    /// On the processor and on the link; zero where there is nothing to do.
    pub(super) fn deadlines(&self) -> (u64, u64) {
        (self.job.map_or(0, |job| job.deadline), self.stream.map_or(0, |stream| stream.deadline))
    }
    pub(super) fn parts(&self) -> Parts {
        (self.job, self.stream)
    }
    /// The long-run shares of the processor and of the link.
    pub(super) fn shares(&self) -> (u128, u128) {
        let processor = self.job.map_or(0, |job| share(job.cost.into(), job.interval));
        (processor, self.stream.map_or(0, |stream| share(stream.whole(), stream.interval)))
    }
    /// The long-run share of the resource of which it takes more.
    pub(super) fn weight(&self) -> u128 {
        let (processor, link) = self.shares();
        processor.max(link)
    }
    /// The same channel with deadlines.
    pub(super) fn with(&self, processor: u64, link: u64) -> Self {
        let job = self.job.map(|job| Job { deadline: processor, ..job });
        let stream = self.stream.map(|stream| PacketStream { deadline: link, ..stream });
        Self { job, stream, ..*self }
    }

    /// The same channel, its packets through within `reach` of its messages' release.
    pub(super) fn within_reach(&self, reach: u64) -> Self {
        Self { stream: self.stream.map(|stream| PacketStream { reach, ..stream }), ..*self }
    }

    /// An upcall on the executive's own thread, in the place of a channel with this contract.
    pub(super) fn running(job: Job, contract: Contract, priority: u8) -> Self {
        let (handover, late_handover) = (Duration::ZERO, Probability::ZERO);
        let (service, job) = (job.processing(), Some(job));
        Self { contract, role: None, priority, job, stream: None, handover, late_handover, service }
    }
}

/// The findings of one test for a newcomer: the least deadlines of its stages, or the first instant that fails.
pub(super) type LeastDeadlines = (Result<u64, Instant>, Result<u64, Instant>);

impl Admission {
    /// An executive without channels that follows the split rule and serves nothing early.
    ///
    /// # Errors
    /// The first parameter of the platform that is out of range.
    pub fn new(platform: Platform) -> Result<Self, PlatformError> {
        Self::with_settings(platform, Settings::default())
    }

    /// An executive without channels.
    ///
    /// # Errors
    /// The first parameter of the platform that is out of range.
    pub fn with_settings(platform: Platform, settings: Settings) -> Result<Self, PlatformError> {
        Ok(Self::on(Machine::new(platform, settings.send_early)?, settings))
    }

    pub(super) fn on(machine: Machine, settings: Settings) -> Self {
        Self {
            machine,
            settings,
            first_rule: settings.rule,
            channels: Slab::growing(limits::MAX_CHANNELS),
            ledger: DemandLedger::new(),
            upcalls: UpcallSet::default(),
        }
    }

    /// The platform that it reasons with.
    pub fn platform(&self) -> &Platform {
        &self.machine.platform
    }
    /// The rules by which the executive serves the channels that it admits.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Tests all channels with the deadlines that they have.
    pub(super) fn test(&self) -> Result<(), Refusal> {
        if self.reservations().next().is_none() {
            return Ok(());
        }
        if self.settings.rule == Rule::Composite {
            let verdict = self.composite_test(&self.machine, None).map_or(Verdict::TooLong, |test| walk(&test, true));
            return on_both().check(verdict);
        }
        let link = self.link_test(None);
        if self.settings.rule == Rule::Levels {
            self.keeps_levels()?;
        } else {
            let processor = self.processor_test(None);
            on_processor(None).share(processor.utilisation())?;
            on_link().share(link.utilisation())?;
            on_processor(None).check(walk(&processor, true))?;
        }
        on_link().check(walk(&link, true))
    }

    /// A: how much work the link scheduler keeps handed over. From the platform alone.
    pub fn look_ahead(&self) -> Duration {
        Duration::from_nanos(self.machine.look_ahead)
    }

    /// The ratio of a stage's delay to the time that the platform took from it beyond the envelope: 1 / (1 − ρ), with ρ the rate
    /// of what goes on taking while a gap is made up for (interference and the link's hand-overs; the demand of the channels
    /// themselves does not grow). Parts per million, rounded up.
    pub fn stretch_ppm(&self) -> u64 {
        let idle = Self::on(self.machine.clone(), self.settings);
        let taken = idle.utilisation_ppm().processor.min(999_999);
        1_000_000_000_000u64.div_ceil(1_000_000 - taken)
    }

    /// The shares that are in use now.
    pub fn utilisation_ppm(&self) -> Utilisation {
        let (processor, link) = self.ledger.shares();
        let stolen = if self.machine.tax_reaches() {
            self.machine.processor_stolen(&self.streams())
        } else {
            self.machine.stolen_by_link(self.machine.least_of(self.ledger.smallest()))
        };
        Utilisation {
            processor: parts_per_million(processor.saturating_add(stolen.share())),
            link: parts_per_million(link.saturating_add(self.machine.link_stolen().share())),
        }
    }

    /// Reserves the least stages at which this channel and all existing ones keep their deadlines, if
    /// `handover + processor + link ≤ budget`; a channel that is received has a stage on the processor only, one that passes
    /// through on the link only. `budget` is this host's part of the contract's deadline, which itself is not looked at; what remains of it may be
    /// divided then ([`Admission::relax`]). Under the composite rule all of the least deadline is the processor's stage.
    ///
    /// # Errors
    /// In this order. [`Code::BadParameters`]: too many packets, or the link is not paced. [`Code::ProcessorUtilisation`],
    /// [`Code::LinkUtilisation`]: the long-run share is used up, or what is left is so little that the instants to check
    /// cannot be bounded. [`Code::DeadlineBelowServiceTime`]: `at` is the shortfall. [`Code::ProcessorDeadline`],
    /// [`Code::LinkDeadline`]: no deadline of that stage within the budget keeps all deadlines; `at` is the first instant
    /// that fails. [`Code::UpcallDeadline`]: an upcall of this host would be late. [`Code::DeadlineSum`]: the stages fit one by one; `at` is the shortfall. [`Code::Memory`]: too many
    /// channels. [`Code::Tolerance`]: see [`Contract::tolerate`]. `least_deadline` is the least budget that would do, if any. Under the composite rule
    /// [`Code::CompositeUtilisation`] and [`Code::CompositeDeadline`] stand for both stages.
    pub fn reserve(&mut self, contract: &Contract, role: Role, budget: Duration) -> Reserved {
        self.reserve_at(contract, role, 0, budget)
    }

    /// As [`Admission::reserve`], for a channel whose handler has this level under [`Rule::Levels`]: 0, which `reserve` assumes, is the most
    /// urgent.
    ///
    /// # Errors
    /// As [`Admission::reserve`].
    pub fn reserve_at(&mut self, contract: &Contract, role: Role, priority: u8, budget: Duration) -> Reserved {
        self.tolerating(contract, role, |host| {
            let newcomer = Reservation { priority, ..host.newcomer(contract, role)? };
            let reservation = host.decide_newcomer(newcomer, budget)?;
            let id = host.insert(reservation)?;
            Ok((id, reservation.stages(host.settings.rule)))
        })
    }

    /// The reservation that would be made.
    pub(super) fn decide(&self, contract: &Contract, role: Role, budget: Duration) -> Result<Reservation, Refusal> {
        let other = self.for_newcomer(contract, role)?;
        let host = other.as_ref().unwrap_or(self);
        host.decide_newcomer(host.newcomer(contract, role)?, budget)
    }

    pub(super) fn decide_newcomer(&self, newcomer: Reservation, budget: Duration) -> Result<Reservation, Refusal> {
        let reservation = match self.settings.rule {
            Rule::Split | Rule::Levels => self.decide_split(newcomer, budget),
            Rule::Composite => self.decide_composite(&newcomer, budget),
        }?;
        self.upcalls_keep_time(Some(&reservation))?;
        Ok(reservation)
    }

    /// The reservation that the channel would have, with the contract's deadlines.
    pub(super) fn newcomer(&self, contract: &Contract, role: Role) -> Result<Reservation, Refusal> {
        let ((job, stream), service) = self.machine.channel(contract, role)?;
        let (handover, late_handover) = self.claimed_handover(role);
        let (contract, role, priority) = (*contract, Some(role), 0);
        Ok(Reservation { contract, role, priority, job, stream, handover, late_handover, service })
    }

    fn decide_split(&self, newcomer: Reservation, budget: Duration) -> Result<Reservation, Refusal> {
        let newcomer = newcomer.within_reach(self.machine.reach(&newcomer.contract, budget.as_nanos()));
        // The ledger knows no levels.
        if self.channels.len() >= LEDGER_FROM
            && self.settings.rule == Rule::Split
            && let Some(reservation) = self.ask_ledger(&newcomer, budget)
        {
            return Ok(reservation);
        }
        let first = self.decide_exactly(&newcomer, budget);
        if first.is_ok() || !self.machine.tax_reaches() {
            return first;
        }
        // The longer messages are on their way, the more hand-overs fall into any window: less time may do where more does not.
        let mut reach = 0;
        for _ in 0..MOST_ROUNDS {
            let newcomer = newcomer.within_reach(reach);
            let (Ok(processor), Ok(link)) = self.least_split(&newcomer)? else { break };
            let needed = newcomer.handover + nanos(processor) + nanos(link);
            if needed > budget {
                break;
            }
            let needed = self.machine.reach(&newcomer.contract, needed.as_nanos());
            if needed <= reach {
                return Ok(newcomer.with(processor, link));
            }
            reach = needed;
        }
        first
    }

    /// The least deadlines of both stages; a stage that the channel does not have needs nothing.
    pub(super) fn least_split(&self, newcomer: &Reservation) -> Result<LeastDeadlines, Refusal> {
        let mut processor = newcomer.job.map(|_| self.processor_test(Some(newcomer.parts())));
        let mut link = newcomer.stream.map(|stream| self.link_test(Some(stream)));
        if let Some(test) = &processor {
            on_processor(newcomer.role).share(test.utilisation())?;
        }
        if let Some(test) = &link {
            on_link().share(test.utilisation())?;
        }
        let search = on_processor(newcomer.role);
        let of_processor = match &mut processor {
            _ if self.settings.rule == Rule::Levels => self.least_by_level(newcomer),
            Some(test) => search.least(test)?,
            // Its packets ask for C_l: the others' processor deadlines must hold with it.
            None => search.verdict(walk(&self.processor_test(Some(newcomer.parts())), true))?.map(|()| 0),
        };
        let of_link = link.as_mut().map_or(Ok(Ok(0)), |test| on_link().least(test))?;
        Ok((of_processor, of_link))
    }

    pub(super) fn decide_exactly(&self, newcomer: &Reservation, budget: Duration) -> Result<Reservation, Refusal> {
        let (handover, service) = (newcomer.handover, newcomer.service);
        let (of_processor, of_link) = self.least_split(newcomer)?;
        let least = match (of_processor, of_link) {
            (Ok(processor), Ok(link)) => Some(handover + nanos(processor) + nanos(link)),
            _ => None,
        };
        below_service(budget, handover + nanos(service), least)?;
        let within = budget - handover;
        let has_test = newcomer.job.is_some() && self.settings.rule != Rule::Levels;
        let mut test = has_test.then(|| self.processor_test(Some(newcomer.parts())));
        let processor = on_processor(newcomer.role).within(of_processor, within, least, test.as_mut())?;
        let mut test = newcomer.stream.map(|stream| self.link_test(Some(stream)));
        let link = on_link().within(of_link, within, least, test.as_mut())?;
        match least {
            Some(least) if least > budget => Err(shortfall(Code::DeadlineSum, Stage::Route, least, budget)),
            _ => Ok(newcomer.with(processor, link)),
        }
    }

    /// Yes, if the ledger says so.
    pub(super) fn ask_ledger(&self, newcomer: &Reservation, budget: Duration) -> Option<Reservation> {
        let budget = budget.checked_sub(newcomer.handover)?.as_nanos();
        let smallest = newcomer.stream.map(|stream| stream.smallest);
        let least = self.machine.least_of(self.ledger.smallest().into_iter().chain(smallest).min());
        let stolen = self.machine.stolen_by_link(least);
        let as_before = least == self.machine.least_of(self.ledger.smallest()) && !self.machine.tax_reaches();
        // Without one there are more packets, perhaps smaller ones: the processor's channels must still hold.
        let no_channel = Job { interval: LONGEST, deadline: LONGEST, packets: 1, ..Job::default() };
        let job = newcomer.job.map_or(no_channel, |job| Job { deadline: budget, ..job });
        let found = self.ledger.least_processor(&self.machine, &stolen, as_before, &job)?;
        let processor = newcomer.job.map_or(0, |_| found);
        let link = match newcomer.stream {
            Some(stream) => {
                let stream = PacketStream { deadline: budget, ..stream };
                self.ledger.least_link(&self.machine, &self.machine.link_stolen(), &stream)?
            }
            None => 0,
        };
        (processor.checked_add(link)? <= budget).then(|| newcomer.with(processor, link))
    }

    fn decide_composite(&self, newcomer: &Reservation, budget: Duration) -> Result<Reservation, Refusal> {
        let (handover, service) = (newcomer.handover, newcomer.service);
        let within = budget - handover;
        let (found, mut test) = self.least_composite(newcomer)?;
        let least = found.ok().map(|least| handover + nanos(least));
        below_service(budget, handover + nanos(service), least)?;
        test.let_newcomer_block(false);
        let deadline = on_both().within(found, within, least, Some(&mut test))?;
        Ok(newcomer.with(deadline, deadline))
    }

    /// The least deadline with which everything fits, or the first instant that fails; and the test that found it.
    pub(super) fn least_composite(
        &self,
        newcomer: &Reservation,
    ) -> Result<(Result<u64, Instant>, CompositeTest), Refusal> {
        let mut test = self.composite_test(&self.machine, Some(newcomer.parts())).ok_or(on_both().used_up())?;
        Ok((on_both().found(least_deadline(&mut test, LONGEST))?, test))
    }

    /// The stages that a channel has now; `None` if `id` names none that exists.
    pub fn stages(&self, id: ReservationId) -> Option<SendingStages> {
        Some(self.reservation(id)?.stages(self.settings.rule))
    }

    /// Gives a reservation back; false if `id` names none that exists.
    pub fn release(&mut self, id: ReservationId) -> bool {
        let Some(held) = self.channels.remove(id) else { return false };
        self.ledger.change(LedgerChange::Leaves, self.machine.switch, held.parts());
        self.return_to_rule();
        true
    }

    /// Puts `after` in the place of a channel, and gives what was there.
    pub(super) fn exchange(&mut self, id: ReservationId, after: Reservation) -> Option<Reservation> {
        let before = core::mem::replace(self.channels.get_mut(id)?, after);
        self.ledger.change(LedgerChange::Leaves, self.machine.switch, before.parts());
        self.ledger.change(LedgerChange::Enters, self.machine.switch, after.parts());
        Some(before)
    }

    pub(super) fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.channels.get(id)
    }

    pub(super) fn insert(&mut self, reservation: Reservation) -> Result<ReservationId, Refusal> {
        let id = self.channels.insert(reservation).map_err(|_| Refusal::new(Code::Memory, Stage::Contract))?;
        self.ledger.change(LedgerChange::Enters, self.machine.switch, reservation.parts());
        Ok(id)
    }

    pub(super) fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.channels.iter().map(|(_, held)| held)
    }

    pub(super) fn streams(&self) -> Vec<PacketStream> {
        self.reservations().filter_map(|held| held.stream).collect()
    }

    pub(super) fn link_test(&self, newcomer: Option<PacketStream>) -> LinkTest {
        LinkTest::new(&self.machine, self.streams(), newcomer)
    }

    /// The messages of all channels, the newcomer's last. A newcomer with smaller packets changes L_min for all.
    pub(super) fn processor_test(&self, newcomer: Option<Parts>) -> ProcessorTest {
        let streams: Vec<PacketStream> =
            self.streams().into_iter().chain(newcomer.and_then(|(_, stream)| stream)).collect();
        let stolen = self.machine.processor_stolen(&streams);
        let jobs = self.reservations().filter_map(|held| held.job).collect();
        ProcessorTest::new(&self.machine, jobs, newcomer.and_then(|(job, _)| job), stolen)
    }

    /// Both resources together; `None` if link interrupts could take all of the processor.
    pub(super) fn composite_test(&self, machine: &Machine, newcomer: Option<Parts>) -> Option<CompositeTest> {
        let existing: Vec<Parts> = self.reservations().map(Reservation::parts).collect();
        CompositeTest::new(machine, self.serves_early(), &existing, newcomer)
    }

    /// True if messages may be in the way before their logical arrival.
    pub(super) fn serves_early(&self) -> bool {
        self.settings.send_early || self.settings.receive_early
    }
}

fn on_processor(role: Option<Role>) -> StageSearch {
    StageSearch::new(Code::ProcessorUtilisation, Code::ProcessorDeadline, on_processor_stage(role))
}

pub(super) fn on_processor_stage(role: Option<Role>) -> Stage {
    if role == Some(Role::Receives) { Stage::ReceivingProcessor } else { Stage::SendingProcessor }
}

pub(super) fn on_both() -> StageSearch {
    StageSearch::new(Code::CompositeUtilisation, Code::CompositeDeadline, Stage::Route)
}

fn on_link() -> StageSearch {
    StageSearch::new(Code::LinkUtilisation, Code::LinkDeadline, Stage::Link)
}

pub(super) fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub(super) fn unknown() -> Refusal {
    Refusal::new(Code::BadParameters, Stage::Contract)
}

/// `need` is the least deadline, and more than `budget`.
pub(super) fn shortfall(code: Code, stage: Stage, need: Duration, budget: Duration) -> Refusal {
    Refusal { at: Some(Instant::ZERO + (need - budget)), least_deadline: Some(need), ..Refusal::new(code, stage) }
}

fn below_service(budget: Duration, service: Duration, least: Option<Duration>) -> Result<(), Refusal> {
    if budget < service {
        let short = shortfall(Code::DeadlineBelowServiceTime, Stage::Route, service, budget);
        return Err(Refusal { least_deadline: least, ..short });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
