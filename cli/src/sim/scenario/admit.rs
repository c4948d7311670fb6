//! The channels of a scenario, admitted one after the other by every host on their way.
//!
//! It is what live hosts do: each reserves the least that it needs, and what is left of the deadline is divided in proportion
//! to that. A stage is never changed for a later channel.

use laxity::{Advice, Error};
use laxity_core::admission::answer::Role;
use laxity_core::admission::route::{Hop, Slack, compose};
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage, buffers};
use laxity_core::contract::{Contract, SendingStages, Service, packets};
use laxity_core::units::Duration;
use laxity_sim::Plan;

use super::file::{Channel, Host};
use crate::failure::Failure;

/// Most channels of a host among which those that stand in the way are looked for, and whose bounds are computed.
const MOST: usize = 256;

/// What a host has admitted.
struct Admitting<'a> {
    host: &'a Host,
    admission: Admission,
    /// Its channels, by name.
    held: Vec<(ReservationId, &'a str)>,
}

/// What was admitted.
pub(super) struct Admitted {
    /// Of each channel.
    pub(super) plans: Vec<Plan>,
    /// How much work each host gives its link ahead.
    pub(super) look_aheads: Vec<Duration>,
}

/// Admits all channels, in their order.
///
/// # Errors
/// The first refusal, with what would fit.
pub(super) fn admit(hosts: &[Host], channels: &[Channel]) -> Result<Admitted, Failure> {
    let mut admitting = Vec::with_capacity(hosts.len());
    for host in hosts {
        let admission = Admission::with_settings(host.platform.clone(), host.settings).map_err(Error::from)?;
        admitting.push(Admitting { host, admission, held: Vec::new() });
    }
    let mut plans = Vec::with_capacity(channels.len());
    let mut received = Vec::new();
    for (number, channel) in channels.iter().enumerate() {
        plans.push(match channel.contract() {
            Some(contract) => {
                let (plan, id) = real_time(&mut admitting, channel, contract)?;
                received.push((number, id));
                plan
            }
            None => Plan::new(&channel.name, channel.service, SendingStages::default(), Duration::ZERO),
        });
        if let Some(plan) = plans.last_mut() {
            plan.overload = channel.overload;
        }
    }
    let bounds: Vec<_> = admitting
        .iter()
        .map(|host| if host.held.len() <= MOST { host.admission.bounds() } else { Vec::new() })
        .collect();
    for (number, id) in received {
        let bound = bounds[channels[number].to].iter().find(|(other, _)| *other == id);
        let plan: &mut Plan = &mut plans[number];
        // As in the library: the bound is what the receiving host knows.
        plan.spare = bound.map_or(Duration::ZERO, |(_, bound)| plan.receive.saturating_sub(bound.worst));
    }
    let look_ahead = |host: &Admitting<'_>| match host.host.platform.machine.is_papers() {
        true => Duration::ZERO,
        false => host.admission.look_ahead(),
    };
    Ok(Admitted { plans, look_aheads: admitting.iter().map(look_ahead).collect() })
}

/// A channel's stages at both hosts, and its reservation at the receiving one.
fn real_time<'a>(
    admitting: &mut [Admitting<'a>],
    channel: &'a Channel,
    contract: &Contract,
) -> Result<(Plan, ReservationId), Failure> {
    let (from, to) = (channel.from, channel.to);
    let (ours, theirs) = (admitting[from].host, admitting[to].host);
    let clock_error = if ours.own_clock || theirs.own_clock { theirs.platform.clock_error } else { Duration::ZERO };
    let found = admitting[to].admission.input_delay();
    // The papers' machine looks at a frame when it arrives.
    let found = if theirs.platform.machine.is_papers() { Duration::ZERO } else { found };
    let outside = ours.platform.propagation + clock_error + found;
    let deadline = contract.deadline();
    let Some(budget) = deadline.checked_sub(outside) else {
        let short = Refusal { least_deadline: Some(outside), ..Refusal::new(Code::DeadlineSum, Stage::Route) };
        return Err(refused(channel, &theirs.name, short, None));
    };
    // The receiver first: what it needs the sender does not have.
    let (there, least) = admitting[to].reserve(channel, contract, Role::Receives, budget, outside)?;
    let (least, outside_here) = (least.processor, outside + least.processor);
    let (here, stages) =
        admitting[from].reserve(channel, contract, Role::Sends, deadline.saturating_sub(outside_here), outside_here)?;
    let handover = ours.platform.handover;
    let hops = [
        Hop { least: handover + stages.total(), propagation: outside, clock_error: Duration::ZERO },
        Hop { least, propagation: Duration::ZERO, clock_error: Duration::ZERO },
    ];
    let too_short = |short: Duration| {
        let least_deadline = Some(deadline + short);
        refused(
            channel,
            &theirs.name,
            Refusal { least_deadline, ..Refusal::new(Code::DeadlineSum, Stage::Route) },
            None,
        )
    };
    let deadlines = compose(&hops, deadline, Slack::Proportional).map_err(too_short)?;
    let again = |refusal| refused(channel, &ours.name, refusal, None);
    let stages = admitting[from].admission.relax_sending(here, deadlines[0]).map_err(again)?.with_handover(handover);
    let receive = admitting[to].admission.relax_receiving(there, deadlines[1]).map_err(again)?;
    let mut plan = Plan::new(&channel.name, Service::RealTime(*contract), stages, receive);
    plan.transit =
        admitting[from].admission.look_ahead() + ours.platform.link.occupancy(ours.platform.packet) + outside;
    plan.receive_messages = buffers::receive_messages(contract, plan.upstream, receive) + contract.burst();
    Ok((plan, there))
}

impl<'a> Admitting<'a> {
    /// Reserves the least; `outside` is what of the deadline is not this host's.
    fn reserve(
        &mut self,
        channel: &'a Channel,
        contract: &Contract,
        role: Role,
        budget: Duration,
        outside: Duration,
    ) -> Result<(ReservationId, SendingStages), Failure> {
        match self.admission.reserve_least(contract, role, budget) {
            Ok((id, stages)) => {
                self.held.push((id, &channel.name));
                Ok((id, stages))
            }
            Err(mut refusal) => {
                refusal.least_deadline = refusal.least_deadline.map(|least| least + outside);
                let advice = (self.held.len() <= MOST).then(|| {
                    let name =
                        |id| self.held.iter().find(|(other, _)| *other == id).map(|(_, name)| (*name).to_owned());
                    let blocking = self.admission.in_the_way(contract, role, budget);
                    let in_the_way = blocking.into_iter().filter_map(name).collect();
                    Box::new(Advice { fits: self.admission.what_fits(contract, role, budget), in_the_way })
                });
                Err(refused(channel, &self.host.name, refusal, advice))
            }
        }
    }
}

fn refused(channel: &Channel, host: &str, refusal: Refusal, advice: Option<Box<Advice>>) -> Failure {
    let error = Error::Refused { by: host.to_owned(), refusal, advice };
    Failure::Refused { channel: channel.name.clone(), error: Box::new(error) }
}

/// Frames that the channels of host `number` may hold together.
pub(super) fn frames(number: usize, hosts: &[Host], channels: &[Channel], plans: &[Plan]) -> usize {
    let of = |(channel, plan): (&Channel, &Plan)| {
        let ends = [(channel.from, plan.send_messages), (channel.to, plan.receive_messages)];
        let messages: u32 = ends.iter().filter(|(host, _)| *host == number).map(|(_, messages)| messages).sum();
        let oversize = match channel.overload {
            laxity_core::contract::Overload::Decay => laxity_core::limits::DECAY_FACTOR,
            _ => 1,
        };
        let packet = [channel.from, channel.to].map(|host| match channel.contract() {
            Some(_) => hosts[host].platform.packet,
            None => hosts[host].platform.best_effort.packet_max,
        });
        let packet = packet[0].min(packet[1]).max(1);
        // As many as the core's queues have room for; a packet at least for each queue.
        (messages * oversize * packets(channel.service.max_message(), packet)).max(1) as usize
    };
    channels.iter().zip(plans).filter(|(channel, _)| channel.from == number || channel.to == number).map(of).sum()
}
