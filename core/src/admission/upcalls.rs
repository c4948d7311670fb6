//! May these upcalls exist? One thread of them, below the executive.
//!
//! Among themselves they are served as [`crate::upcall::Upcalls`] does, and answered by their response times
//! ([`super::response_time`]). X, what preempts them anywhere, is what the executive does while one of them is ready, and what the platform
//! takes. The run time keeps these:
//!
//! - **U1** While a periodic upcall is released and not done, the executive is *held*: it runs only current messages. What it had begun of
//!   another kind ends at the next preemption point.
//! - **U2** While it is held, packets of best effort and control frames leave [`HELD_SPACING`] apart at least, early ones not at all, and
//!   a timer of signalling wakes it no more often.
//! - **U3** While it is held, it rests after a look that brought no frame of a real-time channel, for [`Platform::rest`]: as long as no
//!   bound notices.
//! - **U4** A hand-over of a message that is not real-time does not wake it while it is held.
//!
//! So every wake-up is a message's, a packet's, or one of those that U2 and U3 keep apart. Each costs a look R and two changes of
//! thread, 2 C_us:
//!
//! ```text
//! w    = R + 2 C_us
//! X(s) = Intf(s) + b,  b = C_csp + max block + R + tax(b)                what had begun, and the hand-overs meanwhile (U1)
//!      + Σ ⌈(s + J_i)/I_i⌉ (H_i + 2 C_csp + (q_i + 1) R + N_i C_l [sends] + n_i w)
//!      + Σ w (1 + ⌈s/T_u⌉)                                               upcalls on the executive's own thread
//!      + (C_l + w) (1 + ⌈s/HELD_SPACING⌉)                                U2
//!      + w (1 + ⌈s/(rest + w)⌉)                                          U3
//!      + 3 C_us ⌈s/UPCALL_WATCH⌉                                         the thread that watches them
//! ```
//!
//! J_i is how long after its logical arrival a message may become visible here: the hand-over of one that is sent, the wait for a look of one
//! that is received. n_i is how often it may wake the executive: for each of its packets once, as it arrives, or as the link takes it; and
//! if it is sent, when it is handed over, and when its contract admits it; an upcall on the executive's own thread
//! ([`Admission::reserve_trusted`]) when it is released, and, if a descriptor releases it, once between two releases, when that has something too soon. The line for U3 holds because between two such looks lies a rest:
//! `Σ_{k<n} (w_k + rest) ≤ s` with `w_k ≤ w`.
//!
//! On a thread of its own processor, or of a process without channels, X is what the platform takes, and the last line.

use alloc::vec::Vec;

use super::answer::Role;
use super::link::PacketStream;
use super::machine::{Machine, interference};
use super::processor::Job;
use super::reserve::{Admission, Reservation, on_processor_stage};
use super::response_time::beside;
use super::walk::{ONE, StaircaseLine, StolenTime, least_above};
use super::{Code, Refusal};
use crate::collections::{Key, Slab};
use crate::limits::{self, HELD_SPACING, UPCALL_WATCH};
use crate::platform::Platform;
use crate::units::Duration;
use crate::upcall::Upcall;

/// X: what preempts the upcalls of a thread; and the cost of a change of upcall there, and the jitter of releases.
#[derive(Clone, Debug)]
pub struct PreemptingWork {
    stolen: StolenTime,
    switch: Duration,
    jitter: Duration,
}

impl PreemptingWork {
    /// Only what the platform takes: no executive runs on the upcalls' processor.
    pub fn of_platform(platform: &Platform) -> Self {
        let stolen = interference(&platform.interference);
        Self::with(stolen, watch(platform), platform)
    }

    fn with(stolen: StolenTime, line: StaircaseLine, platform: &Platform) -> Self {
        Self { stolen: stolen.and_least_of([line]), switch: platform.upcall_switch, jitter: platform.wake_up }
    }

    /// An executive with these reservations.
    pub(super) fn of_executive<'a>(
        machine: &Machine,
        input_delay: Duration,
        held: impl Iterator<Item = &'a Reservation>,
    ) -> Self {
        let platform = &machine.platform;
        let nanos = Duration::as_nanos;
        let (look, link_cost) = (nanos(platform.look()), nanos(platform.link_cost));
        let wake_up = look.saturating_add(nanos(platform.upcall_switch).saturating_mul(2));
        let mut begun = machine.other_block;
        let mut line = watch(platform);
        let mut streams: Vec<PacketStream> = Vec::new();
        for reservation in held {
            streams.extend(reservation.stream);
            let of_stream = reservation.stream.map(|stream| stream.packets);
            let packets = reservation.job.map(|job| job.packets).or(of_stream).unwrap_or(0);
            let job = reservation.job.map_or(0, |job: Job| job.cost.saturating_add(machine.switch));
            begun = begun.max(reservation.job.map_or(0, |job| job.block));
            let hand_overs = if reservation.stream.is_some() { packets } else { 0 };
            let (wake_ups, visible) = match reservation.role {
                Some(Role::Sends) => (packets.saturating_add(2), reservation.handover),
                Some(Role::Receives) => (packets, input_delay),
                Some(Role::Relays) => (packets.saturating_mul(2), input_delay),
                None => (1, platform.wake_up),
            };
            let cost = job
                .saturating_add(link_cost.saturating_mul(hand_overs))
                .saturating_add(wake_up.saturating_mul(wake_ups));
            let interval = nanos(reservation.contract.interval());
            line.add_term(interval, cost, nanos(visible));
            if reservation.role.is_none() {
                line.add_term(interval, wake_up, interval);
            }
        }
        line.add_constant(machine.with_hand_overs(begun.saturating_add(look), &streams));
        let kept_apart = link_cost.saturating_add(wake_up);
        line.add_constant(kept_apart.saturating_add(wake_up));
        line.add_term(nanos(HELD_SPACING), kept_apart, 0);
        // Without a rest looks may follow each other at once.
        let rest = nanos(platform.rest());
        line.add_term(rest.saturating_add(if rest == 0 { 1 } else { wake_up }), wake_up, 0);
        Self::with(machine.interference(), line, platform)
    }

    /// Its long-run share, in parts per million, rounded up.
    pub fn share_ppm(&self) -> u64 {
        super::processor::parts_per_million(self.stolen.share())
    }
}

/// The time that the thread that watches the upcalls takes: a wake-up every [`UPCALL_WATCH`], a look, and two changes of thread.
fn watch(platform: &Platform) -> StaircaseLine {
    StaircaseLine::term(UPCALL_WATCH.as_nanos(), platform.upcall_switch.as_nanos().saturating_mul(3), 0)
}

impl Admission {
    /// The load that preempts the upcalls, with a newcomer.
    fn above(&self, newcomer: Option<&Reservation>) -> PreemptingWork {
        PreemptingWork::of_executive(&self.machine, self.input_delay(), self.reservations().chain(newcomer))
    }

    /// Checks that the upcalls of this host are in time beside a newcomer.
    pub(super) fn upcalls_keep_time(&self, newcomer: Option<&Reservation>) -> Result<(), Refusal> {
        if self.upcalls.is_empty() || self.upcalls.late(&self.above(newcomer)).is_none() {
            return Ok(());
        }
        let role = newcomer.and_then(|newcomer| newcomer.role);
        Err(Refusal::new(Code::UpcallDeadline, on_processor_stage(role)))
    }

    /// Takes an upcall in, on a thread below the executive ([`super::upcalls`]): if all upcalls are in time with it, beside the channels
    /// that are there. For its longest response time see [`UpcallSet::reserve`].
    ///
    /// # Errors
    /// The reason for a refusal, and the values that would fit.
    pub fn reserve_upcall(&mut self, upcall: Upcall, kind: UpcallKind) -> UpcallReserved {
        self.for_upcalls(|host| {
            let above = host.above(None);
            host.upcalls.reserve(upcall, kind, &above)
        })
    }

    /// Gives it back.
    pub fn release_upcall(&mut self, place: UpcallPlace) {
        self.upcalls.release(place);
    }

    /// The longest response time of an upcall with all that is admitted now; `None` if it is not there.
    pub fn upcall_response(&self, place: UpcallPlace) -> Option<Duration> {
        self.upcalls.response(place, &self.above(None))
    }

    /// The load that preempts the upcalls, in parts per million of the processor.
    pub fn above_upcalls_ppm(&self) -> u64 {
        self.above(None).share_ppm()
    }
}

/// The occasion on which an upcall runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallKind {
    /// Every period; it has to be done by the period's end.
    Periodic,
    /// It runs when it is asked for and no periodic one is ready. Its period is not looked at.
    Aperiodic,
}

/// The place of an upcall in a set; after its release the same value never names another one (until 2³² reuses of it).
pub type UpcallPlace = Key;

/// The reason why an upcall is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub enum UpcallDenial {
    /// With it, the processor is used up in the long run, or so nearly that no response can be found.
    #[error("the processor is used up in the long run")]
    Utilisation,
    /// It would take so long, which is more than its period.
    #[error("a run may take {} until it is done, which is more than its period", .0.rounded_up())]
    Late(Duration),
    /// With it, one that was granted would be late.
    #[error("another upcall would be late")]
    BreaksExisting(UpcallPlace),
    /// With it, a channel of this host would be late, or an upcall.
    #[error("a channel of this host would be late, or another upcall")]
    BreaksOthers,
    /// An iteration takes longer than this, which the executive was started for.
    #[strum(serialize = "iteration")]
    #[error("an iteration takes longer than the executive's thread may be kept, which is {0}")]
    TooLong(Duration),
    /// There are too many.
    #[error("there are too many upcalls")]
    Memory,
}

/// The refusal of an upcall, with the values that would fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpcallRefusal {
    /// The reason.
    pub why: UpcallDenial,
    /// The largest cost of a run that would be granted, all else as asked for; `None` if none would.
    pub fitting_cost: Option<Duration>,
}

/// The answer to an upcall that asks: its place and its longest response time, if there is one, or why it is not taken in.
pub type UpcallReserved = Result<(UpcallPlace, Option<Duration>), UpcallRefusal>;

impl core::error::Error for UpcallRefusal {}

impl core::fmt::Display for UpcallRefusal {
    /// The cost that would fit comes first, then the reason.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(cost) = self.fitting_cost {
            write!(f, "a cost of {cost} would fit; ")?;
        }
        write!(f, "{}", self.why)
    }
}

/// The upcalls that were granted on one thread.
#[derive(Clone, Debug)]
pub struct UpcallSet {
    upcalls: Slab<(Upcall, UpcallKind)>,
}

impl Default for UpcallSet {
    fn default() -> Self {
        Self { upcalls: Slab::growing(limits::MAX_UPCALLS) }
    }
}

impl UpcallSet {
    /// Takes one in, in a place as the run queue gives it, since equal periods are served by place, if all are in time with it: the longest from its nominal release until it is done. For an aperiodic one that is how
    /// long a run may take if nothing else aperiodic waits, counted from when it is asked for.
    ///
    /// # Errors
    /// The reason for a refusal, and the values that would fit.
    pub fn reserve(&mut self, upcall: Upcall, kind: UpcallKind, above: &PreemptingWork) -> UpcallReserved {
        let refuse = |why, fitting_cost| Err(UpcallRefusal { why, fitting_cost });
        let Ok(place) = self.upcalls.insert((upcall, kind)) else { return refuse(UpcallDenial::Memory, None) };
        let Some(why) = self.fails(place, above) else { return Ok((place, self.response(place, above))) };
        let fitting = self.fitting_cost(place, (upcall, kind), above);
        self.upcalls.remove(place);
        refuse(why, fitting)
    }

    /// Gives a place back.
    pub fn release(&mut self, place: UpcallPlace) {
        self.upcalls.remove(place);
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.upcalls.is_empty()
    }

    /// The longest response time of the upcall with all that are granted now, from its nominal release (of an aperiodic one: from when it
    /// is asked for) until it is done; `None` if that has no bound.
    pub fn response(&self, place: UpcallPlace, above: &PreemptingWork) -> Option<Duration> {
        let &(upcall, kind) = self.upcalls.get(place)?;
        match kind {
            UpcallKind::Periodic => self.periodic(above).into_iter().find(|(other, _)| *other == place)?.1,
            UpcallKind::Aperiodic => self.aperiodic(upcall, above),
        }
    }

    /// The first one that is late, if any is.
    pub fn late(&self, above: &PreemptingWork) -> Option<UpcallPlace> {
        let is_late = |(place, response): (UpcallPlace, Option<Duration>)| {
            let (upcall, _) = self.upcalls.get(place)?;
            response.is_none_or(|response| response > upcall.period()).then_some(place)
        };
        self.periodic(above).into_iter().find_map(is_late)
    }

    fn of_kind(&self, wanted: UpcallKind) -> impl Iterator<Item = (UpcallPlace, Upcall)> {
        let of_kind = self.upcalls.iter().filter(move |(_, (_, kind))| *kind == wanted);
        of_kind.map(|(place, (upcall, _))| (place, *upcall))
    }

    fn periodic(&self, above: &PreemptingWork) -> Vec<(UpcallPlace, Option<Duration>)> {
        let upcalls: Vec<Upcall> = self.of_kind(UpcallKind::Periodic).map(|(_, upcall)| upcall).collect();
        let below: Vec<Duration> = self.of_kind(UpcallKind::Aperiodic).map(|(_, upcall)| upcall.quantum()).collect();
        let responses = beside(&upcalls, &below, above.switch, above.jitter, above.stolen.clone());
        self.of_kind(UpcallKind::Periodic).map(|(place, _)| place).zip(responses).collect()
    }

    /// As the lowest priority, with a period that nothing else falls into. Other aperiodic runs are before it or behind it as a whole.
    fn aperiodic(&self, upcall: Upcall, above: &PreemptingWork) -> Option<Duration> {
        let lowest = Upcall::new(limits::MAX_INTERVAL, upcall.cost(), upcall.batch(), upcall.block()).ok()?;
        let all: Vec<Upcall> = self.of_kind(UpcallKind::Periodic).map(|(_, upcall)| upcall).chain([lowest]).collect();
        beside(&all, &[], above.switch, above.jitter, above.stolen.clone()).pop()?
    }

    fn fails(&self, newcomer: UpcallPlace, above: &PreemptingWork) -> Option<UpcallDenial> {
        let late = self.late(above)?;
        if late != newcomer {
            return Some(UpcallDenial::BreaksExisting(late));
        }
        Some(self.response(late, above).map_or(UpcallDenial::Utilisation, UpcallDenial::Late))
    }

    /// The largest cost with which no upcall and no channel is late.
    fn fitting_cost(
        &mut self,
        place: UpcallPlace,
        (upcall, kind): (Upcall, UpcallKind),
        above: &PreemptingWork,
    ) -> Option<Duration> {
        if above.stolen.share() >= ONE {
            return None;
        }
        fitting_cost(upcall, |cheaper| {
            self.upcalls.put(place, (cheaper, kind));
            self.fails(place, above).is_none()
        })
    }
}

/// The largest cost below its own with which an upcall is granted.
pub(super) fn fitting_cost(upcall: Upcall, mut grants: impl FnMut(Upcall) -> bool) -> Option<Duration> {
    let refused = least_above(0, upcall.cost().as_nanos(), |cost| {
        let cost = Duration::from_nanos(cost);
        !Upcall::new(upcall.period(), cost, upcall.batch(), upcall.block()).is_ok_and(&mut grants)
    });
    (refused > 1).then(|| Duration::from_nanos(refused - 1))
}

#[cfg(test)]
mod tests;
