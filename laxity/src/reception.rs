//! The receiving half of admission: what of a deadline this host keeps for itself, and what it leaves to the sender.

use laxity_core::admission::answer::Role;
use laxity_core::admission::{Code, Refusal, ReservationId, Stage, buffers, pair};
use laxity_core::contract::{Contract, SendingStages, Service, packets};
use laxity_core::event::PeerRequest;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

use crate::arrivals::IncomingShare;
use crate::control::{ControlState, HostShared};
use crate::holdings::{Holdings, best_effort_packets};

/// Bytes of a channel beside those of its messages: figures, and records of what comes; `laxity/tests/memory.rs` measures them.
const OF_A_CHANNEL: u64 = 32 << 10;
/// Of each of its messages: its places in the core's rings and in the application's.
const OF_A_MESSAGE: u64 = 768;
/// Of each packet that may wait.
const OF_A_PACKET: u64 = 128;

impl HostShared {
    /// A channel that this host receives; `None` if it has to wait until best effort is slower or this host's channels are served in another way.
    pub(crate) fn admit_receiving(
        &self,
        state: &mut ControlState,
        request: &PeerRequest,
        may_rearrange: &mut bool,
    ) -> Result<Option<ReceptionGrant>, Refusal> {
        if let Some(flow) = state.best_effort_flow(request) {
            let Some(room) = state.find_room(&flow, Duration::MAX)? else { return Ok(None) };
            let part = state.arrive(flow, &room, true);
            let none = Duration::ZERO;
            return Ok(Some(ReceptionGrant { reservation: None, upstream: none, stage: none, part, arrival: none }));
        }
        let asked = self.asked(request)?;
        let RequestedChannel { contract, budget, .. } = asked;
        let reserved = state.admission.reserve(&asked.analysed, Role::Receives, budget);
        if reserved.is_err()
            && std::mem::take(may_rearrange)
            && let Some(arranged) = state.admission.rearranged(&asked.analysed, Role::Receives, asked.budget)
        {
            self.rearrange(state, arranged);
            return Ok(None);
        }
        let (id, SendingStages { processor: least, .. }) =
            reserved.map_err(|refusal| state.advised(request, &asked, refusal))?;
        let (flow, kept) = state.fitted(request, &asked, least);
        let found = state.find_room(&flow, budget.saturating_sub(kept));
        if !matches!(found, Ok(Some(_))) {
            state.admission.release(id);
        }
        let at_port = |refusal| state.advised(request, &asked, Refusal { least_deadline: Some(least), ..refusal });
        let Some(room) = found.map_err(at_port)? else { return Ok(None) };
        let budget = budget - room.allowance;
        let stage = pair::take_share(&mut state.admission, id, budget, kept, request.upstream)?;
        let (part, arrival) = (state.arrive(flow, &room, false), room.allowance);
        let upstream = contract.deadline().saturating_sub(stage);
        Ok(Some(ReceptionGrant { reservation: Some(id), upstream, stage, part, arrival }))
    }
}

impl HostShared {
    /// This host's part of a requested real-time channel.
    fn asked(&self, request: &PeerRequest) -> Result<RequestedChannel, Refusal> {
        let Service::RealTime(contract) = request.terms.service else {
            unreachable!("best effort is not admitted by deadlines")
        };
        let platform = &self.platform;
        // Outside both hosts' stages: the network path, the clocks, and the time that a frame may wait until the socket is looked at.
        let elsewhere = request.upstream + platform.propagation + platform.clock_error + self.input_delay;
        // Nothing is granted within no time, and a peer that is refused then hears what would fit.
        let budget = contract.deadline().saturating_sub(elsewhere);
        let analysed = in_packets(&contract, request.terms.packet, platform)?;
        Ok(RequestedChannel { contract, analysed, budget, elsewhere })
    }

    /// The answer to a mere question ([`Code::WouldFit`] if it would be granted); nothing changes.
    pub(crate) fn answer(&self, state: &ControlState, request: &PeerRequest) -> Refusal {
        match state.listener(request) {
            None => Refusal::new(Code::NoSuchName, Stage::ReceivingProcessor),
            Some(_) => self.would_receive(state, request).err().unwrap_or(Refusal::new(Code::WouldFit, Stage::Route)),
        }
    }

    fn would_receive(&self, state: &ControlState, request: &PeerRequest) -> Result<(), Refusal> {
        let (asked, mut admission) = (self.asked(request)?, state.admission.clone());
        let reserved = admission.reserve_rearranged(&asked.analysed, Role::Receives, 0, asked.budget);
        let (id, stages) = reserved.map_err(|refusal| state.advised(request, &asked, refusal))?;
        let least = stages.processor;
        let (flow, kept) = state.fitted(request, &asked, least);
        let at_port = |refusal| state.advised(request, &asked, Refusal { least_deadline: Some(least), ..refusal });
        let allowance = state.would_wait(&flow, asked.budget.saturating_sub(kept)).map_err(at_port)?;
        let stage = pair::take_share(&mut admission, id, asked.budget - allowance, kept, request.upstream)?;
        let upstream = asked.contract.deadline().saturating_sub(stage);
        state.has_room(self.whole, request, self.needs(request, upstream, stage).holds)
    }

    /// What a channel that is received takes, if it takes `upstream` until its logical arrival here and `stage` from there.
    pub(crate) fn needs(&self, request: &PeerRequest, upstream: Duration, stage: Duration) -> ReceiveMemory {
        let (messages, packets) = match request.terms.service {
            Service::RealTime(contract) => {
                // It was admitted, so it can be.
                let analysed = in_packets(&contract, request.terms.packet, &self.platform).unwrap_or(contract);
                let ahead = upstream + contract.most_ahead();
                let messages = buffers::receive_messages(&contract, ahead, stage) + 1;
                (messages, buffers::receive_packets(&analysed, &self.platform, ahead, stage))
            }
            Service::BestEffort { queue, max_message } => {
                // It holds as many frames as are left of those that are shared, so never more than half of them.
                let most = (self.shared_frames / 2).max(1);
                (queue, best_effort_packets(max_message, request.terms.packet).min(most as u32))
            }
        };
        let largest = u64::from(request.terms.service.max_message()) * u64::from(request.terms.oversize);
        let holds = Holdings {
            channels: 1,
            frames: if request.terms.service.contract().is_some() { packets.into() } else { 0 },
            bytes: OF_A_CHANNEL
                + u64::from(messages.max(2)) * (largest + OF_A_MESSAGE)
                + u64::from(packets) * OF_A_PACKET,
        };
        ReceiveMemory { messages, packets, holds }
    }
}

/// The memory of a channel that is received.
pub(crate) struct ReceiveMemory {
    pub(crate) messages: u32,
    pub(crate) packets: u32,
    pub(crate) holds: Holdings,
}

/// A real-time channel that a peer asks for, as this host sees it.
pub(crate) struct RequestedChannel {
    pub(crate) contract: Contract,
    /// The same in packets of this host's size.
    analysed: Contract,
    /// The part of its deadline that is left for this host.
    budget: Duration,
    /// The rest of the deadline: the sender's stages, the network path, the wait for a look.
    pub(crate) elsewhere: Duration,
}

/// The grant of a channel that this host receives.
pub(crate) struct ReceptionGrant {
    pub(crate) reservation: Option<ReservationId>,
    /// From the logical arrival at the sender to the one here.
    pub(crate) upstream: Duration,
    pub(crate) stage: Duration,
    pub(crate) part: IncomingShare,
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
    Ok(Contract::new(max_message, min_message, contract.interval(), burst, contract.deadline())?.as_in(contract)?)
}
