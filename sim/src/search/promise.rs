//! The promises of admission for the channels and upcalls of a small system.

use laxity_core::admission::answer::{Bound, Role, Rule};
use laxity_core::admission::bounds::terms;
use laxity_core::admission::upcalls::UpcallKind;
use laxity_core::admission::{Admission, Refusal, ReservationId, Settings};
use laxity_core::contract::{SendingStages, packets};
use laxity_core::limits;
use laxity_core::units::Duration;
use laxity_core::upcall::Upcall;

use super::us;

use crate::tiny::{ObservedResponses, SmallChannel, SmallSystem};

/// The bound of a channel's response.
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

    /// True if the response is within all of it.
    pub fn covers(&self, seen: ObservedResponses) -> bool {
        let in_stages = seen.handler <= self.stages.processor && seen.end <= self.stages.total();
        in_stages && seen.end <= self.bound.worst && self.processor.is_none_or(|processor| seen.handler <= processor)
    }
}

/// The settings with which the system's host serves its channels under this rule.
pub fn settings(system: &SmallSystem, rule: Rule) -> Settings {
    Settings { rule, send_early: system.send_early, receive_early: system.receive_early }
}

/// Admits the channel with the least budget that does.
pub fn admit(admission: &mut Admission, channel: &SmallChannel) -> Option<(ReservationId, SendingStages)> {
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

/// Admits the channels from the least urgent level to the most urgent one, so that each is promised what it takes beside all.
pub fn by_level(system: &mut SmallSystem) -> Option<Vec<Promise>> {
    let settings = settings(system, Rule::Levels);
    let mut admission = Admission::with_settings(system.platform.clone(), settings).expect("a platform that can be");
    let mut ids = Vec::new();
    for SmallChannel { contract, role, priority, .. } in &system.channels {
        let (id, _) = admission.reserve_at(contract, *role, *priority, limits::MAX_DEADLINE).ok()?;
        // With stages that long no channel is refused for another's sake.
        admission.relax(id, us(1_000_000)).ok()?;
        ids.push(id);
    }
    let bounds = admission.bounds();
    let promise = |(channel, id): (&mut SmallChannel, &ReservationId)| {
        let ((_, bound), stages) = (bounds.iter().find(|(other, _)| other == id)?, admission.stages(*id)?);
        channel.stages = stages;
        Some(Promise::new(stages, bound.clone()))
    };
    system.channels.iter_mut().zip(&ids).map(promise).collect()
}

/// Admits the upcalls on the executive's own thread, then the channels one after the other, each with the least stages and its slack
/// beside that; then takes back, one by one from the last to the first, what a channel has more than it needs beside all others, if it is to
/// ([`SmallChannel::tighten`]); then the upcalls below the executive. Channels and upcalls get these stages. The promises for the channels, for the
/// upcalls below, and for those on the executive's thread; `None` if one is refused.
///
/// Without any slack at first, no channel could be admitted that is in the way of those before.
pub fn promises(system: &mut SmallSystem, rule: Rule) -> Option<Vec<Promise>> {
    let settings = settings(system, rule);
    let SmallSystem { platform, channels, upcalls, trusted, ahead, .. } = system;
    let mut admission = Admission::with_settings(platform.clone(), settings).expect("a platform that can be");
    let reserve = |(upcall, _): &(Upcall, Duration)| Some(admission.reserve_trusted(*upcall, 0).ok()?.0);
    let on_thread: Vec<ReservationId> = trusted.iter().map(reserve).collect::<Option<_>>()?;
    let mut ids = Vec::new();
    for channel in channels.iter_mut() {
        let (id, least) = admit(&mut admission, channel)?;
        channel.stages = admission.relax(id, least.total() + channel.slack).expect("no less than it has");
        ids.push(id);
    }
    for (channel, id) in channels.iter_mut().zip(&mut ids).rev() {
        if channel.tighten {
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
    let mut promises = ids.iter().map(promise).collect::<Option<Vec<Promise>>>()?;
    let on_thread = on_thread.iter().map(promise).collect::<Option<Vec<Promise>>>()?;
    for ((_, stage), promise) in trusted.iter_mut().zip(&on_thread) {
        *stage = promise.stages.processor;
    }
    // The analysis counts from when a frame is found.
    let received = channels.iter().filter(|channel| channel.role == Role::Receives);
    let frames = |channel: &SmallChannel| {
        let contract = &channel.contract;
        packets(contract.max_message(), platform.packet) * (contract.burst() + 1)
    };
    let looks = received.map(frames).sum::<u32>().div_ceil(platform.receive_batch);
    if !platform.upcall_step.is_zero() && admission.between_looks() * u64::from(looks + 1) > *ahead {
        return None;
    }
    let reserve = |upcall: &Upcall| Some(admission.reserve_upcall(*upcall, UpcallKind::Periodic).ok()?.0);
    let places: Vec<_> = upcalls.iter().map(reserve).collect::<Option<_>>()?;
    for place in places {
        promises.push(Promise::by(admission.upcall_response(place)?));
    }
    promises.extend(on_thread);
    // What it counts on with what its channels tolerate.
    platform.interference = admission.platform().interference.clone();
    Some(promises)
}
