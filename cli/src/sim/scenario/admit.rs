//! The channels of a scenario, admitted one after the other by every host on their way.
//!
//! It is what live hosts do: each reserves the least that it needs, and what is left of the deadline is divided in proportion
//! to that. A stage is never changed for a later channel.

use laxity::{Advice, Error};
use laxity_core::admission::answer::{Alternatives, Role};
use laxity_core::admission::plan::fits;
use laxity_core::admission::route::{Hop, compose};
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage, buffers};
use laxity_core::contract::{Contract, Overload, SendingStages, Service};
use laxity_core::endpoint::ClockConfig;
use laxity_core::units::Duration;
use laxity_sim::ChannelPlan;
use laxity_sim::route::{self, RouteDenial};

use super::file::{Channel, Host};
use crate::failure::Failure;

/// Most channels of a host among which those that stand in the way are looked for, and whose bounds are computed.
const MOST: usize = 256;

/// What a host has admitted.
#[derive(Clone)]
struct HostAdmission<'a> {
    host: &'a Host,
    admission: Admission,
    /// Its channels, by name.
    held: Vec<(ReservationId, &'a str)>,
}

/// What was admitted.
pub(super) struct AdmittedScenario {
    /// Of each channel.
    pub(super) plans: Vec<ChannelPlan>,
    /// How each host estimates the clocks of others.
    pub(super) clocks: Vec<ClockConfig>,
    /// What the hosts grant to each channel that passes through some of them, and has a contract.
    pub(super) routes: Vec<Option<route::GrantedRoute>>,
}

/// Admits all channels, in their order.
///
/// # Errors
/// The first refusal, with what would fit.
pub(super) fn admit(hosts: &[Host], channels: &[Channel]) -> Result<AdmittedScenario, Failure> {
    let mut admitting = Vec::with_capacity(hosts.len());
    for host in hosts {
        let admission = Admission::with_settings(host.platform.clone(), host.settings).map_err(Error::from)?;
        admitting.push(HostAdmission { host, admission, held: Vec::new() });
    }
    let (mut plans, mut routes) = (Vec::with_capacity(channels.len()), vec![None; channels.len()]);
    let mut received = Vec::new();
    for (number, channel) in channels.iter().enumerate() {
        let plan = match channel.contract() {
            Some(contract) => {
                let (plan, route, reservations) = granted(&mut admitting, channel, contract)?;
                received.extend(reservations.last().map(|&id| (number, id)));
                routes[number] = route;
                plan
            }
            None => ChannelPlan::new(&channel.name, channel.service, SendingStages::default(), Duration::ZERO),
        };
        plans.push(ChannelPlan { overload: channel.overload, ..plan });
    }
    let bounds: Vec<_> = admitting
        .iter()
        .map(|host| if host.held.len() <= MOST { host.admission.bounds() } else { Vec::new() })
        .collect();
    for (number, id) in received {
        let bound = bounds[channels[number].to].iter().find(|(other, _)| *other == id);
        let plan: &mut ChannelPlan = &mut plans[number];
        // As in the library: the bound is what the receiving host knows.
        plan.spare = bound.map_or(Duration::ZERO, |(_, bound)| plan.receive.saturating_sub(bound.worst));
    }
    let clocks = admitting.iter().map(|host| ClockConfig::of(&host.admission)).collect();
    Ok(AdmittedScenario { plans, clocks, routes })
}

/// Reserves at both hosts, the one that sends first; if one of them refuses, at none. What the channel is planned with.
fn reserve(
    from: &mut HostAdmission<'_>,
    to: &mut HostAdmission<'_>,
    (channel, contract): (&Channel, &Contract),
) -> Result<(ChannelPlan, [ReservationId; 2]), RouteDenial> {
    let (ours, theirs) = (&from.host.platform, &to.host.platform);
    let clock_error = if from.host.own_clock || to.host.own_clock { theirs.clock_error } else { Duration::ZERO };
    // The papers' machine looks at a frame when it arrives.
    let found = if theirs.machine.is_papers() { Duration::ZERO } else { to.admission.input_delay() };
    let (outside, deadline) = (ours.propagation + clock_error + found, contract.deadline());
    let denied = |place, refusal, budget| RouteDenial { place, refusal, budget };
    // The receiver first: what it needs the sender does not have.
    let budget = deadline.saturating_sub(outside);
    let (there, SendingStages { processor: least, .. }) =
        to.admission.reserve(contract, Role::Receives, budget).map_err(|refusal| denied(1, refusal, budget))?;
    let budget = budget.saturating_sub(least);
    let analysed = match channel.overload {
        Overload::Decay => contract.under_decay(ours.packet).map_err(Refusal::from),
        _ => Ok(*contract),
    };
    let sending = analysed.and_then(|analysed| {
        let (here, stages) = from.admission.reserve(&analysed, Role::Sends, budget)?;
        let hops = [
            Hop { least: ours.handover + stages.total(), propagation: outside },
            Hop { least, propagation: Duration::ZERO },
        ];
        let deadlines = compose(&hops, deadline);
        let deadlines = deadlines.map_err(|_| Refusal::new(Code::DeadlineSum, Stage::Route))?;
        let stages = from.admission.relax(here, deadlines[0])?.with_handover(ours.handover);
        let receive = to.admission.relax(there, deadlines[1])?.processor;
        let mut plan = ChannelPlan::new(&channel.name, Service::RealTime(*contract), stages, receive);
        plan.transit = from.admission.ahead() + ours.link.occupancy(ours.packet) + outside;
        plan.receive_messages = buffers::receive_messages(contract, plan.upstream, receive) + contract.burst();
        Ok((plan, [here, there]))
    });
    sending.map_err(|refusal| {
        to.admission.release(there);
        denied(0, refusal, budget)
    })
}

/// A channel's plan, the grants on its way if it passes through hosts, and its reservations in the order of its hosts.
type Reserved = (ChannelPlan, Option<route::GrantedRoute>, Vec<ReservationId>);

/// Reserves at all hosts of a channel, which have these places among `hosts`; if one of them refuses, at none.
fn reserve_all(
    hosts: &mut [HostAdmission<'_>],
    places: &[usize],
    (channel, contract): (&Channel, &Contract),
) -> Result<Reserved, RouteDenial> {
    if let [from, to] = *places {
        // They are different hosts of the file.
        let [from, to] = hosts.get_disjoint_mut([from, to]).expect("two hosts");
        let (plan, reservations) = reserve(from, to, (channel, contract))?;
        return Ok((plan, None, reservations.to_vec()));
    }
    let mut admissions: Vec<_> = hosts.iter_mut().map(|host| &mut host.admission).collect();
    let granted = route::admit(&mut admissions, places, contract, Some(contract.deadline()))?;
    let reservations = granted.reservations.clone();
    Ok((granted.plan(&channel.name), Some(granted), reservations))
}

/// What all hosts of a channel grant.
fn granted<'a>(
    admitting: &mut [HostAdmission<'a>],
    channel: &'a Channel,
    contract: &Contract,
) -> Result<Reserved, Failure> {
    let places: Vec<usize> = channel.hosts().collect();
    let reserved = reserve_all(admitting, &places, (channel, contract)).map_err(|denied| {
        let hosts: Vec<_> = places.iter().map(|&host| &admitting[host]).collect();
        let all: Vec<usize> = (0..hosts.len()).collect();
        let grants = |contract: &Contract| {
            let mut hosts: Vec<_> = hosts.iter().map(|&host| host.clone()).collect();
            reserve_all(&mut hosts, &all, (channel, contract)).is_ok()
        };
        refused(&hosts, grants, (channel, contract), &denied)
    })?;
    for (&host, &id) in places.iter().zip(&reserved.2) {
        admitting[host].held.push((id, &channel.name));
    }
    Ok(reserved)
}

/// The refusal of one of the channel's hosts, which are in the order of its way, with what all of them would grant instead.
fn refused(
    hosts: &[&HostAdmission<'_>],
    grants: impl Fn(&Contract) -> bool,
    (channel, contract): (&Channel, &Contract),
    denied: &RouteDenial,
) -> Failure {
    let RouteDenial { place, refusal, budget } = *denied;
    let (by, role) = (hosts[place], route::role(place, hosts.len()));
    let advice = hosts.iter().all(|host| host.held.len() <= MOST).then(|| {
        let name = |id| by.held.iter().find(|(other, _)| *other == id).map(|(_, name)| (*name).to_owned());
        let in_the_way = by.admission.in_the_way(contract, role, budget).into_iter().filter_map(name).collect();
        let fits = fits(grants, contract);
        // What is shown fits too.
        let fits = Alternatives {
            deadline: fits.deadline.map(Duration::rounded_up),
            interval: fits.interval.map(Duration::rounded_up),
            ..fits
        };
        Box::new(Advice { fits, in_the_way })
    });
    // Only the advice knows the whole way.
    let refusal = Refusal { least_deadline: None, ..refusal };
    let error = Error::Refused { by: by.host.name.clone(), refusal, advice };
    Failure::Refused { channel: channel.name.clone(), error: Box::new(error) }
}

/// Frames that the channels of host `number` may hold together.
pub(super) fn frames(number: usize, hosts: &[Host], channels: &[Channel], admitted: &AdmittedScenario) -> usize {
    let of = |(index, channel): (usize, &Channel)| {
        let plan = &admitted.plans[index];
        let last = channel.via.len() + 1;
        let messages = match channel.hosts().position(|host| host == number)? {
            0 => plan.send_messages,
            place if place == last => plan.receive_messages,
            // Best effort is granted nothing; as many may wait as at its sender.
            place => {
                admitted.routes[index].as_ref().map_or(plan.send_messages, |granted| granted.relay_messages(place))
            }
        };
        let packet = channel.hosts().map(|host| match channel.contract() {
            Some(_) => hosts[host].platform.packet,
            None => hosts[host].platform.best_effort.packet_max,
        });
        let packet = packet.min().unwrap_or(1).max(1);
        // As many as the core's queues have room for; a packet at least for each queue.
        Some(plan.packet_queue(messages, packet).max(1) as usize)
    };
    channels.iter().enumerate().filter_map(of).sum()
}
