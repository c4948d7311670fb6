//! What was granted on one executive, and the question whether one more channel fits.

use alloc::vec::Vec;

use super::link::{LinkTest, Stream};
use super::machine::Machine;
use super::processor::{Job, ProcessorTest, parts_per_million};
use super::walk::{ONE, Verdict, walk};
use super::{Code, Refusal, Stage};
use crate::contract::{Contract, SendingStages};
use crate::limits;
use crate::platform::{LinkModel, Platform, PlatformError};
use crate::units::{Duration, Instant, Rate};

/// Admission for one executive: its platform, and the channels that hold reservations on it.
///
/// An answer depends on the platform and the reservations that exist, never on their order or on those released. Stages of
/// existing channels are not changed by a newcomer. A decision takes time in proportion to the channels that exist.
///
/// ```
/// use laxity_core::{admission::Admission, contract::Contract, platform::Platform, units::Duration};
///
/// let mut admission = Admission::new(Platform::assumed_host())?;
/// let millis = Duration::from_millis;
/// let contract = Contract::new(14_000, 1, millis(20), 1, millis(20))?;
/// let (id, least) = admission.reserve_sending(&contract, millis(15))?;
/// let stages = admission.relax_sending(id, millis(15))?;
/// assert!(stages.processor >= least.processor && stages.link >= least.link);
/// assert_eq!(admission.platform().handover + stages.processor + stages.link, millis(15));
/// assert!(admission.release(id));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Admission {
    machine: Machine,
    /// The whole link, of which the machine may have a part.
    link: LinkModel,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// A reservation; after its release the same value never names another one (until 2³² reuses of its place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationId {
    index: u32,
    generation: u32,
}

/// Long-run shares in parts per million, rounded up; at a million nothing more is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilisation {
    /// All messages of all channels at their shortest intervals, interference, and C_l at the rate at which the smallest
    /// packets could ask for it; that last part is there also without any channel.
    pub processor: u64,
    /// All packets of all sending channels, and interference.
    pub link: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    generation: u32,
    reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    contract: Contract,
    job: Job,
    /// Only for a channel that sends.
    stream: Option<Stream>,
}

impl Admission {
    /// An executive without channels.
    ///
    /// # Errors
    /// The first parameter of the platform that is out of range.
    pub fn new(platform: Platform) -> Result<Self, PlatformError> {
        Ok(Self::on(Machine::new(platform)?))
    }

    fn on(machine: Machine) -> Self {
        Self { link: machine.platform.link, machine, slots: Vec::new(), free: Vec::new() }
    }

    /// The platform that it reasons with.
    pub fn platform(&self) -> &Platform {
        &self.machine.platform
    }

    /// The same channels, with their stage deadlines and ids, on a part of the link that [`Admission::new`] was given: the
    /// part with `rate` of its rate ([`LinkModel::part`]). Everything is tested anew: a lower rate is less for the link to
    /// send with, a higher one asks the processor for C_l more often. The look-ahead does not depend on the rate.
    ///
    /// # Errors
    /// [`Code::BadParameters`]: the link is not paced, `rate` is more than it has, or so little that its set-up time is out of
    /// range. Else the first test that fails, as in [`Admission::reserve_sending`]; `self` is as it was.
    pub fn with_rate(&self, rate: Rate) -> Result<Self, Refusal> {
        let bad = || Refusal::new(Code::BadParameters, Stage::Link);
        let link = self.link.part(rate).ok_or_else(bad)?;
        let machine = Machine::new(Platform { link, ..self.platform().clone() }).map_err(|_| bad())?;
        let mut slots = self.slots.clone();
        for reservation in slots.iter_mut().filter_map(|slot| slot.reservation.as_mut()) {
            if let Some(stream) = &mut reservation.stream {
                let (_, anew, _) = machine.sending(&reservation.contract)?;
                *stream = Stream { deadline: stream.deadline, ..anew };
            }
        }
        let moved = Self { machine, link: self.link, slots, free: self.free.clone() };
        moved.test()?;
        Ok(moved)
    }

    /// Tests all channels with the deadlines that they have.
    fn test(&self) -> Result<(), Refusal> {
        if self.reservations().next().is_none() {
            return Ok(());
        }
        let streams = self.streams(None);
        let processor = self.processor_test(&streams, None);
        let link = LinkTest::new(&self.machine, streams);
        let check = |fits: Verdict, utilisation, deadline, stage| match fits {
            Verdict::Fits => Ok(()),
            Verdict::TooLong => Err(Refusal::new(utilisation, stage)),
            Verdict::Fails(at) => Err(Refusal { at: Some(Instant::from_nanos(at)), ..Refusal::new(deadline, stage) }),
        };
        if processor.utilisation() >= ONE {
            return Err(Refusal::new(Code::ProcessorUtilisation, Stage::SendingProcessor));
        }
        if link.utilisation() >= ONE {
            return Err(Refusal::new(Code::LinkUtilisation, Stage::Link));
        }
        let on_processor = walk(&processor, true);
        check(on_processor, Code::ProcessorUtilisation, Code::ProcessorDeadline, Stage::SendingProcessor)?;
        check(walk(&link, true), Code::LinkUtilisation, Code::LinkDeadline, Stage::Link)
    }

    /// A: how much work the link scheduler keeps handed over. From the platform alone.
    pub fn look_ahead(&self) -> Duration {
        Duration::from_nanos(self.machine.look_ahead)
    }

    /// How much longer a stage is delayed than the platform took from it beyond the envelope: 1 / (1 − ρ), with ρ the rate
    /// of what goes on taking while a gap is made up for (interference and the link's hand-overs; the demand of the channels
    /// themselves does not grow). Parts per million, rounded up.
    pub fn stretch_ppm(&self) -> u64 {
        let idle = Self { slots: Vec::new(), free: Vec::new(), ..self.clone() };
        let taken = idle.utilisation_ppm().processor.min(999_999);
        1_000_000_000_000u64.div_ceil(1_000_000 - taken)
    }

    /// The shares that are in use now.
    pub fn utilisation_ppm(&self) -> Utilisation {
        let streams = self.streams(None);
        Utilisation {
            processor: parts_per_million(self.processor_test(&streams, None).utilisation()),
            link: parts_per_million(LinkTest::new(&self.machine, streams).utilisation()),
        }
    }

    /// Reserves the least stages at which this channel and all existing ones keep their deadlines, if
    /// `handover + processor + link ≤ budget`. `budget` is this host's part of the contract's deadline, which itself is
    /// not looked at.
    ///
    /// # Errors
    /// In this order. [`Code::BadParameters`]: too many packets, or the link is not paced. [`Code::ProcessorUtilisation`],
    /// [`Code::LinkUtilisation`]: the long-run share is used up, or what is left is so little that the instants to check
    /// cannot be bounded. [`Code::DeadlineBelowServiceTime`]: `at` is the shortfall. [`Code::ProcessorDeadline`],
    /// [`Code::LinkDeadline`]: no deadline of that stage within the budget keeps everybody's; `at` is the first instant
    /// that fails. [`Code::DeadlineSum`]: the stages fit one by one; `at` is the shortfall. [`Code::Memory`]: too many
    /// channels. `least_deadline` is the least budget that would do, if any.
    pub fn reserve_sending(
        &mut self,
        contract: &Contract,
        budget: Duration,
    ) -> Result<(ReservationId, SendingStages), Refusal> {
        let (mut job, mut stream, service) = self.machine.sending(contract)?;
        let streams = self.streams(Some(stream));
        let mut processor = self.processor_test(&streams, Some(job));
        let mut link = LinkTest::new(&self.machine, streams);
        let on_processor =
            StageSearch::new(Code::ProcessorUtilisation, Code::ProcessorDeadline, Stage::SendingProcessor);
        let on_link = StageSearch::new(Code::LinkUtilisation, Code::LinkDeadline, Stage::Link);
        on_processor.share(processor.utilisation())?;
        on_link.share(link.utilisation())?;
        let mut ask_processor = |deadline, explain| {
            processor.set_last_deadline(deadline);
            walk(&processor, explain)
        };
        let mut ask_link = |deadline, explain| {
            link.set_last_deadline(deadline);
            walk(&link, explain)
        };
        let least_processor = on_processor.least(&mut ask_processor)?;
        let least_link = on_link.least(&mut ask_link)?;

        let handover = self.machine.platform.handover;
        let least = match (least_processor, least_link) {
            (Ok(processor), Ok(link)) => Some(handover + nanos(processor) + nanos(link)),
            _ => None,
        };
        below_service(budget, handover + nanos(service), least)?;
        let within = budget - handover;
        job.deadline = on_processor.within(least_processor, within, least, ask_processor)?;
        stream.deadline = on_link.within(least_link, within, least, ask_link)?;
        match least {
            Some(least) if least > budget => {
                return Err(shortfall(Code::DeadlineSum, Stage::Route, least, budget, Some(least)));
            }
            _ => {}
        }
        let id = self.insert(Reservation { contract: *contract, job, stream: Some(stream) })?;
        Ok((id, SendingStages { processor: nanos(job.deadline), link: nanos(stream.deadline) }))
    }

    /// Reserves the least processor deadline at which this channel and all existing ones keep theirs, if it is at most
    /// `budget`: this host's part of the contract's deadline.
    ///
    /// # Errors
    /// As [`Admission::reserve_sending`], without those of the link and of the sum.
    pub fn reserve_receiving(
        &mut self,
        contract: &Contract,
        budget: Duration,
    ) -> Result<(ReservationId, Duration), Refusal> {
        let (mut job, service) = self.machine.receiving(contract)?;
        let mut processor = self.processor_test(&self.streams(None), Some(job));
        let search = StageSearch::new(Code::ProcessorUtilisation, Code::ProcessorDeadline, Stage::ReceivingProcessor);
        search.share(processor.utilisation())?;
        let mut ask = |deadline, explain| {
            processor.set_last_deadline(deadline);
            walk(&processor, explain)
        };
        let found = search.least(&mut ask)?;
        let least = found.ok().map(nanos);
        below_service(budget, nanos(service), least)?;
        job.deadline = search.within(found, budget, least, ask)?;
        let id = self.insert(Reservation { contract: *contract, job, stream: None })?;
        Ok((id, nanos(job.deadline)))
    }

    /// Lengthens the stages so that `handover + processor + link = budget`. The slack is shared in proportion to the
    /// utilisation of the two stages. A longer deadline never breaks another channel's, so nothing is tested; a stage is
    /// never made shorter, as others may have been admitted since. Meant for a channel without messages in flight.
    ///
    /// # Errors
    /// [`Code::DeadlineSum`] if the budget is less than the stages are now; [`Code::BadParameters`] if it is more than
    /// [`limits::MAX_DEADLINE`] or if `id` is not that of a sending reservation. Nothing changes then.
    pub fn relax_sending(&mut self, id: ReservationId, budget: Duration) -> Result<SendingStages, Refusal> {
        let Utilisation { processor: on_processor, link: on_link } = self.utilisation_ppm();
        let handover = self.machine.platform.handover;
        let Some(Reservation { job, stream: Some(stream), .. }) = self.reservation(id) else { return Err(unknown()) };
        let used = handover + nanos(job.deadline) + nanos(stream.deadline);
        let slack = slack(budget, used, Code::DeadlineSum, Stage::Route)?;
        let both = on_processor.saturating_add(on_link);
        let part = if both == 0 { nanos(slack.as_nanos() / 2) } else { slack.mul_ratio(on_processor.min(both), both) };
        job.deadline += part.as_nanos();
        stream.deadline += (slack - part).as_nanos();
        Ok(SendingStages { processor: nanos(job.deadline), link: nanos(stream.deadline) })
    }

    /// Lengthens the stage of a receiving channel to `budget`; as [`Admission::relax_sending`].
    ///
    /// # Errors
    /// [`Code::ProcessorDeadline`] if the budget is less than the stage is now; else as [`Admission::relax_sending`].
    pub fn relax_receiving(&mut self, id: ReservationId, budget: Duration) -> Result<Duration, Refusal> {
        let Some(Reservation { job, stream: None, .. }) = self.reservation(id) else { return Err(unknown()) };
        let slack = slack(budget, nanos(job.deadline), Code::ProcessorDeadline, Stage::ReceivingProcessor)?;
        job.deadline += slack.as_nanos();
        Ok(nanos(job.deadline))
    }

    /// Gives a reservation back; false if `id` names none that exists.
    pub fn release(&mut self, id: ReservationId) -> bool {
        if self.reservation(id).is_none() {
            return false;
        }
        let slot = &mut self.slots[id.index as usize];
        slot.reservation = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        true
    }

    fn reservation(&mut self, id: ReservationId) -> Option<&mut Reservation> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.reservation.as_mut() } else { None }
    }

    fn insert(&mut self, reservation: Reservation) -> Result<ReservationId, Refusal> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None if self.slots.len() >= limits::MAX_CHANNELS => {
                return Err(Refusal::new(Code::Memory, Stage::Contract));
            }
            None => {
                self.slots.push(Slot { generation: 0, reservation: None });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        slot.reservation = Some(reservation);
        // The limit above keeps the index within 32 bits.
        Ok(ReservationId { index: index as u32, generation: slot.generation })
    }

    fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.slots.iter().filter_map(|slot| slot.reservation.as_ref())
    }

    /// Everybody's packets; the newcomer's last.
    fn streams(&self, newcomer: Option<Stream>) -> Vec<Stream> {
        self.reservations().filter_map(|reservation| reservation.stream).chain(newcomer).collect()
    }

    /// Everybody's messages, the newcomer's last. A newcomer with smaller packets changes L_min for everybody.
    fn processor_test(&self, streams: &[Stream], newcomer: Option<Job>) -> ProcessorTest {
        let jobs = self.reservations().map(|reservation| reservation.job).chain(newcomer).collect();
        ProcessorTest::new(&self.machine, jobs, self.machine.least_occupancy(streams.iter()))
    }
}

/// The search for a newcomer's least deadline on one resource, and what it answers when there is none.
struct StageSearch {
    utilisation: Code,
    deadline: Code,
    stage: Stage,
}

impl StageSearch {
    fn new(utilisation: Code, deadline: Code, stage: Stage) -> Self {
        Self { utilisation, deadline, stage }
    }

    fn share(&self, used: u128) -> Result<(), Refusal> {
        if used >= ONE { Err(Refusal::new(self.utilisation, self.stage)) } else { Ok(()) }
    }

    /// The least deadline for which `ask` says that everything fits; the first instant that fails if even the longest
    /// does not do. The test is monotone in the deadline, so doubling and halving find it; the result was always tested.
    fn least(&self, ask: &mut impl FnMut(u64, bool) -> Verdict) -> Result<Result<u64, Instant>, Refusal> {
        const LONGEST: u64 = limits::MAX_DEADLINE.as_nanos();
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
    fn within(
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

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn unknown() -> Refusal {
    Refusal::new(Code::BadParameters, Stage::Contract)
}

fn shortfall(code: Code, stage: Stage, need: Duration, budget: Duration, least: Option<Duration>) -> Refusal {
    Refusal { at: Some(Instant::ZERO + (need - budget)), least_deadline: least, ..Refusal::new(code, stage) }
}

fn below_service(budget: Duration, service: Duration, least: Option<Duration>) -> Result<(), Refusal> {
    if budget < service {
        return Err(shortfall(Code::DeadlineBelowServiceTime, Stage::Route, service, budget, least));
    }
    Ok(())
}

/// What `budget` leaves beyond `used`.
fn slack(budget: Duration, used: Duration, code: Code, stage: Stage) -> Result<Duration, Refusal> {
    if budget > limits::MAX_DEADLINE {
        return Err(unknown());
    }
    budget.checked_sub(used).ok_or_else(|| shortfall(code, stage, used, budget, Some(used)))
}

#[cfg(test)]
mod tests;
