//! The receiving half of admission: what of a deadline this host keeps for itself, and what it leaves to the sender.

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Admission, Refusal, ReservationId};
use laxity_core::contract::{Contract, SendingStages, Service, packets};
use laxity_core::event::Request;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use crate::arrivals::{Found, Part};
use crate::control::{Shared, State};

impl Shared {
    /// A channel that this host receives; `None` if it has to wait until best effort or this host's own link is slower.
    pub(crate) fn admit_receiving(&self, state: &mut State, request: &Request) -> Result<Option<Admitted>, Refusal> {
        if let Some(flow) = state.best_effort_flow(request) {
            let Found::Fits(room) = state.find_room(&flow, Duration::MAX)? else { return Ok(None) };
            state.review_share();
            let part = state.arrive(flow, &room, true);
            let none = Duration::ZERO;
            return Ok(Some(Admitted { reservation: None, upstream: none, stage: none, part, arrival: none }));
        }
        let Service::RealTime(contract) = request.service else { unreachable!("best effort, or not") };
        let platform = &self.platform;
        // Outside both hosts' stages: the way, the clocks, and how long a frame may wait until the socket is looked at.
        let outside = platform.propagation + platform.clock_error + self.input_delay;
        // Nothing is granted within no time, and whoever is refused then hears what would fit.
        let budget = contract.deadline().saturating_sub(request.upstream + outside);
        let analysed = in_packets(&contract, request.packet, platform)?;
        let reserve = |admission: &mut Admission| admission.reserve_least(&analysed, Role::Receives, budget);
        let reserved = reserve(&mut state.admission);
        if reserved.is_err() && self.make_room(state, |admission| reserve(admission).is_ok()) {
            return Ok(None);
        }
        let elsewhere = request.upstream + outside;
        let (id, SendingStages { processor: least, .. }) = reserved.map_err(|refusal| {
            let least_deadline =
                refusal.least_deadline.and_then(|least| state.least_deadline(request, &contract, elsewhere + least));
            Refusal { least_deadline, ..refusal }
        })?;
        let flow = state.real_time_flow(request, &contract);
        let room = match state.find_room(&flow, budget.saturating_sub(least)) {
            Ok(Found::Fits(room)) => room,
            Ok(Found::Waits) => {
                state.admission.release(id);
                return Ok(None);
            }
            Err(refusal) => {
                state.admission.release(id);
                let least_deadline = state.least_deadline(request, &contract, elsewhere + least);
                return Err(Refusal { least_deadline, ..refusal });
            }
        };
        let budget = budget - room.allowance;
        if let Err(refusal) = state.claim_receiving(request) {
            state.admission.release(id);
            let waits = self.make_room(state, |admission| reserve(admission).is_ok());
            return if waits { Ok(None) } else { Err(refusal) };
        }
        // Slack is shared between the two hosts in proportion to what each needs at least.
        let slack = budget.saturating_sub(least);
        let whole = (least + request.upstream).as_nanos().max(1);
        let share = slack.mul_ratio(least.as_nanos(), whole);
        let stage = match state.admission.relax(id, least + share) {
            Ok(stages) => stages.processor,
            Err(refusal) => {
                state.admission.release(id);
                return Err(refusal);
            }
        };
        let (part, arrival) = (state.arrive(flow, &room, false), room.allowance);
        let upstream = contract.deadline().saturating_sub(stage);
        Ok(Some(Admitted { reservation: Some(id), upstream, stage, part, arrival }))
    }
}

/// The grant of a channel that this host receives.
pub(crate) struct Admitted {
    pub(crate) reservation: Option<ReservationId>,
    /// From the logical arrival at the sender to the one here.
    pub(crate) upstream: Duration,
    pub(crate) stage: Duration,
    pub(crate) part: Part,
    /// The wait that its frames were granted at the last port, beside the wait for a look.
    pub(crate) arrival: Duration,
}

/// The contract as the analysis must see it when the peer's packets are smaller than ours and a message needs more of them:
/// packets are what takes time here, so its messages are as large as that many of our size.
///
/// # Errors
/// No message could be that large.
pub(crate) fn in_packets(contract: &Contract, packet: u32, platform: &Platform) -> Result<Contract, Refusal> {
    let found = packets(contract.max_message(), packet.max(1));
    if found <= packets(contract.max_message(), platform.packet) {
        return Ok(*contract);
    }
    let max_message = u64::from(found) * u64::from(platform.packet);
    let (min_message, burst) = (contract.min_message().into(), contract.burst().into());
    let catch_up = contract.catch_up();
    let contract = Contract::new(max_message, min_message, contract.interval(), burst, contract.deadline());
    Ok(contract?.with_catch_up(catch_up)?)
}
