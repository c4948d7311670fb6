//! The channels of a scenario, admitted one after the other by every host on their way.
//!
//! It is what live hosts do: each reserves the least that it needs, and what is left of the deadline is divided in proportion
//! to that. A stage is never changed for a later channel.

use laxity::{Advice, Error};
use laxity_core::admission::answer::{Fits, Request, Role};
use laxity_core::admission::plan::fits;
use laxity_core::admission::route::{Hop, Slack, compose};
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage, buffers};
use laxity_core::contract::{Contract, Overload, SendingStages, Service, packets};
use laxity_core::units::Duration;
use laxity_sim::Plan;

use super::file::{Channel, Host};
use crate::failure::Failure;
use crate::numbers::up;

/// Most channels of a host among which those that stand in the way are looked for, and whose bounds are computed.
const MOST: usize = 256;

/// What a host has admitted.
#[derive(Clone)]
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

/// What both hosts of a channel grant.
struct Granted {
    here: ReservationId,
    there: ReservationId,
    stages: SendingStages,
    receive: Duration,
    /// What of the deadline is neither host's: the way, the clocks, and the wait until a frame is found.
    outside: Duration,
}

/// Who refused, why, and what of the deadline would have been that host's.
struct Denied {
    role: Role,
    refusal: Refusal,
    budget: Duration,
}

/// Reserves at both hosts; if one of them refuses, at none.
fn reserve(
    from: &mut Admitting<'_>,
    to: &mut Admitting<'_>,
    contract: &Contract,
    overload: Overload,
) -> Result<Granted, Denied> {
    let (ours, theirs) = (&from.host.platform, &to.host.platform);
    let clock_error = if from.host.own_clock || to.host.own_clock { theirs.clock_error } else { Duration::ZERO };
    // The papers' machine looks at a frame when it arrives.
    let found = if theirs.machine.is_papers() { Duration::ZERO } else { to.admission.input_delay() };
    let (outside, deadline) = (ours.propagation + clock_error + found, contract.deadline());
    let denied = |role, refusal, budget| Denied { role, refusal, budget };
    // The receiver first: what it needs the sender does not have.
    let budget = deadline.saturating_sub(outside);
    let (there, SendingStages { processor: least, .. }) = to
        .admission
        .reserve_least(contract, Role::Receives, budget)
        .map_err(|refusal| denied(Role::Receives, refusal, budget))?;
    let budget = budget.saturating_sub(least);
    let analysed = match overload {
        Overload::Decay => contract.under_decay(ours.packet).map_err(Refusal::from),
        _ => Ok(*contract),
    };
    let sending = analysed.and_then(|analysed| {
        let (here, stages) = from.admission.reserve_least(&analysed, Role::Sends, budget)?;
        let hops = [
            Hop { least: ours.handover + stages.total(), propagation: outside, clock_error: Duration::ZERO },
            Hop { least, propagation: Duration::ZERO, clock_error: Duration::ZERO },
        ];
        let deadlines = compose(&hops, deadline, Slack::Proportional);
        let deadlines = deadlines.map_err(|_| Refusal::new(Code::DeadlineSum, Stage::Route))?;
        let stages = from.admission.relax_sending(here, deadlines[0])?.with_handover(ours.handover);
        let receive = to.admission.relax_receiving(there, deadlines[1])?;
        Ok(Granted { here, there, stages, receive, outside })
    });
    sending.map_err(|refusal| {
        to.admission.release(there);
        denied(Role::Sends, refusal, budget)
    })
}

/// A channel's plan, and its reservation at the receiving host.
fn real_time<'a>(
    admitting: &mut [Admitting<'a>],
    channel: &'a Channel,
    contract: &Contract,
) -> Result<(Plan, ReservationId), Failure> {
    // They are different hosts of the file.
    let [from, to] = admitting.get_disjoint_mut([channel.from, channel.to]).expect("two hosts");
    let granted = reserve(from, to, contract, channel.overload)
        .map_err(|denied| refused(from, to, channel, contract, &denied))?;
    let Granted { here, there, stages, receive, outside } = granted;
    from.held.push((here, &channel.name));
    to.held.push((there, &channel.name));
    let mut plan = Plan::new(&channel.name, Service::RealTime(*contract), stages, receive);
    let platform = &from.host.platform;
    plan.transit = from.admission.look_ahead() + platform.link.occupancy(platform.packet) + outside;
    plan.receive_messages = buffers::receive_messages(contract, plan.upstream, receive) + contract.burst();
    Ok((plan, there))
}

/// The refusal, with what both hosts would grant instead.
fn refused(
    from: &Admitting<'_>,
    to: &Admitting<'_>,
    channel: &Channel,
    contract: &Contract,
    denied: &Denied,
) -> Failure {
    let Denied { role, refusal, budget } = *denied;
    let by = if role == Role::Sends { from } else { to };
    let advice = (from.held.len().max(to.held.len()) <= MOST).then(|| {
        let grants = |request: &Request| {
            reserve(&mut from.clone(), &mut to.clone(), &request.contract, channel.overload).is_ok()
        };
        let name = |id| by.held.iter().find(|(other, _)| *other == id).map(|(_, name)| (*name).to_owned());
        let in_the_way = by.admission.in_the_way(contract, role, budget).into_iter().filter_map(name).collect();
        let fits = fits(grants, &Request { contract: *contract, role });
        // What is shown fits too.
        let fits = Fits { deadline: fits.deadline.map(up), interval: fits.interval.map(up), ..fits };
        Box::new(Advice { fits, in_the_way })
    });
    // Only the advice knows the whole way.
    let refusal = Refusal { least_deadline: None, ..refusal };
    let error = Error::Refused { by: by.host.name.clone(), refusal, advice };
    Failure::Refused { channel: channel.name.clone(), error: Box::new(error) }
}

/// Frames that the channels of host `number` may hold together.
pub(super) fn frames(number: usize, hosts: &[Host], channels: &[Channel], plans: &[Plan]) -> usize {
    let of = |(channel, plan): (&Channel, &Plan)| {
        let ends = [(channel.from, plan.send_messages), (channel.to, plan.receive_messages)];
        let messages: u32 = ends.iter().filter(|(host, _)| *host == number).map(|(_, messages)| messages).sum();
        let oversize = match channel.overload {
            Overload::Decay => laxity_core::limits::DECAY_FACTOR,
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
