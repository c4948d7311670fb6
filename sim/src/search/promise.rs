//! What admission promises for the channels of a small system.

use laxity_core::admission::answer::{self, Bound};
use laxity_core::admission::bounds::terms;
use laxity_core::admission::{Admission, Refusal, ReservationId, Settings};
use laxity_core::contract::SendingStages;
use laxity_core::limits;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall;

use super::us;

use crate::tiny::{Channel, Seen, System};

/// What a channel's response is at most.
#[derive(Clone, Debug)]
pub struct Promise {
    /// The deadlines that the run time goes by.
    pub stages: SendingStages,
    /// The response bound.
    pub bound: Bound,
    /// The part of it that is the processor's, if that is told apart.
    pub processor: Option<Duration>,
}

impl Promise {
    /// That it is through by then, whatever is promised of its parts.
    pub fn by(deadline: Duration) -> Self {
        let stages = SendingStages { processor: deadline, link: Duration::ZERO };
        Self { stages, bound: Bound { worst: deadline, terms: Vec::new() }, processor: None }
    }

    fn new(stages: SendingStages, bound: Bound) -> Self {
        let link = [terms::TRANSMISSION, terms::LINK_STAGE];
        let on_processor = bound.terms.iter().take_while(|term| !link.contains(&term.name));
        let split = !bound.terms.iter().any(|term| term.name == terms::OWN_MESSAGE);
        let processor = split.then(|| on_processor.map(|term| term.amount).sum());
        Self { stages, bound, processor }
    }

    /// Whether the response is within all of it.
    pub fn covers(&self, seen: Seen) -> bool {
        let in_stages = seen.handler <= self.stages.processor && seen.end <= self.stages.total();
        in_stages && seen.end <= self.bound.worst && self.processor.is_none_or(|processor| seen.handler <= processor)
    }
}

/// How the system's host serves what it admits, with this rule.
pub fn settings(system: &System, rule: answer::Rule) -> Settings {
    Settings { rule, send_early: system.send_early, receive_early: system.receive_early }
}

/// Admits the channel with the least budget that does.
pub fn admit(admission: &mut Admission, channel: &Channel) -> Option<(ReservationId, SendingStages)> {
    let ask = |budget| admission.reserve(&channel.contract, channel.role, budget);
    least_budget(100, limits::MAX_DEADLINE, ask)
}

/// Asks at most so many times, each time for what the refusal before said that it takes, which is less than `most`.
pub(crate) fn least_budget<T>(
    times: u32,
    most: Duration,
    mut ask: impl FnMut(Duration) -> Result<T, Refusal>,
) -> Option<T> {
    let mut budget = Duration::from_nanos(1);
    for _ in 0..times {
        match ask(budget) {
            Ok(granted) => return Some(granted),
            // What it takes may grow with how long it takes.
            Err(refusal) => budget = refusal.least_deadline.filter(|&least| least > budget && least < most)?,
        }
    }
    None
}

/// Admits the channels from the least urgent level to the most urgent one, so that each is promised what it takes beside all: first with
/// all the time that there is, and then what its response is in the end.
pub fn by_level(
    platform: &Platform,
    channels: &mut [Channel],
    priorities: &[u8],
    settings: Settings,
) -> Option<Vec<Promise>> {
    let admit = |asked: &dyn Fn(usize) -> Duration| {
        let mut admission = Admission::with_settings(platform.clone(), settings).expect("a platform that can be");
        let mut ids = Vec::new();
        for (number, channel) in channels.iter().enumerate() {
            let (contract, role, priority) = (&channel.contract, channel.role, priorities[number]);
            let (id, _) = admission.reserve_at(contract, role, priority, limits::MAX_DEADLINE).ok()?;
            admission.relax(id, asked(number)).ok()?;
            ids.push(id);
        }
        let bounds = admission.bounds();
        let of = |id: &ReservationId| Some(bounds.iter().find(|(other, _)| other == id)?.1.clone());
        ids.iter().map(|id| Some((admission.stages(*id)?, of(id)?))).collect::<Option<Vec<_>>>()
    };
    // With stages that long no channel is refused for another's sake.
    let generous = admit(&|_| us(1_000_000))?;
    let promise = |(stages, bound): &(SendingStages, Bound)| Promise::new(*stages, bound.clone());
    let promises: Vec<Promise> = generous.iter().map(promise).collect();
    for (channel, (stages, _)) in channels.iter_mut().zip(&generous) {
        channel.stages = *stages;
    }
    Some(promises)
}

/// Admits the channels one after the other, each with the least stages and what `slack` adds to them; then takes back, one by
/// one from the last to the first, what a channel has more than it needs beside all others, if `tighten` says so. The channels
/// get these stages; `None` if one is refused.
///
/// Without any slack at first, nobody could be admitted who is in the way of those before.
pub fn promises(
    platform: &Platform,
    channels: &mut [Channel],
    settings: Settings,
    slack: impl FnMut() -> Duration,
    tighten: impl FnMut() -> bool,
) -> Option<Vec<Promise>> {
    Some(admitted(platform, (channels, &mut []), settings, slack, tighten)?.1)
}

/// As [`promises`], and who admitted them; before them the upcalls on the executive's own thread, whose promises come last.
pub(super) fn admitted(
    platform: &Platform,
    (channels, trusted): (&mut [Channel], &mut [(Upcall, Duration)]),
    settings: Settings,
    mut slack: impl FnMut() -> Duration,
    mut tighten: impl FnMut() -> bool,
) -> Option<(Admission, Vec<Promise>)> {
    let mut admission = Admission::with_settings(platform.clone(), settings).expect("a platform that can be");
    let reserve = |(upcall, _): &(Upcall, Duration)| Some(admission.reserve_trusted(*upcall, 0).ok()?.0);
    let upcalls: Vec<ReservationId> = trusted.iter().map(reserve).collect::<Option<_>>()?;
    let mut ids = Vec::new();
    for channel in channels.iter_mut() {
        let (id, least) = admit(&mut admission, channel)?;
        channel.stages = admission.relax(id, least.total() + slack()).expect("no less than it has");
        ids.push(id);
    }
    for (channel, id) in channels.iter_mut().zip(&mut ids).rev() {
        if tighten() {
            admission.release(*id);
            let again = admit(&mut admission, channel);
            // With long iterations, and where the processor is nearly used up, the instants to look at may be too many with the shorter deadline that is asked for first.
            assert!(again.is_some() || !platform.upcall_step.is_zero(), "it was admitted before");
            (*id, channel.stages) = again?;
        }
    }
    let bounds = admission.bounds();
    let promise = |id: &ReservationId| {
        let ((_, bound), stages) = (bounds.iter().find(|(other, _)| other == id)?, admission.stages(*id)?);
        assert!(bound.worst <= stages.total(), "{bound:?}, {stages:?}, {platform:?}");
        Some(Promise::new(stages, bound.clone()))
    };
    let promises = ids.iter().chain(&upcalls).map(promise).collect::<Option<Vec<Promise>>>()?;
    for ((_, stage), promise) in trusted.iter_mut().zip(&promises[ids.len()..]) {
        *stage = promise.stages.processor;
    }
    Some((admission, promises))
}
