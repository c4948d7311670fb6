//! Admission along a route: what the control threads of its hosts agree on, in one place.
//!
//! Each host reserves the least that it needs, one after the other; if that fits the deadline, what is left is divided among them
//! [channels §2.2], as between two hosts. The order of events, and what the frames say of it, is signalling's business and not
//! looked at here.

use core::borrow::BorrowMut;

use laxity_core::admission::answer::Role;
use laxity_core::admission::route::{Hop as RouteHop, compose};
use laxity_core::admission::{Admission, Code, Refusal, ReservationId, Stage, buffers};
use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::platform::Platform;
use laxity_core::relay::RelayGrant;
use laxity_core::units::Duration;

use crate::{ChannelPlan, GrantedBounds, Hop, HostId};

/// A channel that every host of its route has admitted.
#[derive(Clone, Debug)]
pub struct GrantedRoute {
    /// The traffic, with the deadline that is kept.
    pub contract: Contract,
    /// The hosts by number: the sender, the relays, the receiver.
    pub route: Vec<usize>,
    /// The reservations that they hold for it, in the same order.
    pub reservations: Vec<ReservationId>,
    /// Their stages: with the handover at the sender, on the link at a relay, on the processor at the receiver.
    pub stages: Vec<SendingStages>,
    /// From the logical arrival at the sender to the one at each host; zero at the sender.
    pub upstream: Vec<Duration>,
    /// From the end of each host's stage until the next one counts a message as arrived; zero at the receiver.
    ways: Vec<Duration>,
    /// The longest time of a packet from the hand-over to the link until the next host has found it.
    transit: Vec<Duration>,
    input_delay: Vec<Duration>,
    /// The time by which messages come earlier to the second host than otherwise, because the sender works ahead.
    ahead: Duration,
}

/// A host that did not admit a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteDenial {
    /// Its place in the route: the sender's if every host would do with its least, but together they need too much.
    pub place: usize,
    /// The reason.
    pub refusal: Refusal,
    /// The part of the deadline that would have been this host's.
    pub budget: Duration,
}

/// Admits a channel with this traffic on every host of `route`, which names at least two of `hosts`, each once: within
/// `deadline`, or with no more than each needs if that is `None`. The deadline of `traffic` is not looked at, but for how long
/// queues may be.
///
/// # Errors
/// The first host that refuses; [`Code::DeadlineSum`] if together they need more than the deadline;
/// [`Code::BadParameters`] if packets have not the same size everywhere. Nothing is held then.
pub fn admit<A: BorrowMut<Admission>>(
    hosts: &mut [A],
    route: &[usize],
    traffic: &Contract,
    deadline: Option<Duration>,
) -> Result<GrantedRoute, RouteDenial> {
    let mut reservations = Vec::with_capacity(route.len());
    let granted = try_admit(hosts, route, traffic, deadline, &mut reservations);
    if granted.is_err() {
        for (&host, &id) in route.iter().zip(&reservations) {
            hosts[host].borrow_mut().release(id);
        }
    }
    granted
}

/// The role of the host at this place of a route of so many hosts.
pub fn role(place: usize, hosts: usize) -> Role {
    match place {
        0 => Role::Sends,
        _ if place + 1 == hosts => Role::Receives,
        _ => Role::Relays,
    }
}

fn try_admit<A: BorrowMut<Admission>>(
    hosts: &mut [A],
    route: &[usize],
    traffic: &Contract,
    deadline: Option<Duration>,
    reservations: &mut Vec<ReservationId>,
) -> Result<GrantedRoute, RouteDenial> {
    let last = route.len() - 1;
    let budget = deadline.unwrap_or(traffic.deadline());
    let denied = |place, refusal, budget| RouteDenial { place, refusal, budget };
    let packet = |place: usize| hosts[route[place]].borrow().platform().packet;
    if let Some(place) = (1..=last).find(|&place| packet(place) != packet(0)) {
        return Err(denied(place, Refusal::new(Code::BadParameters, Stage::Route), budget));
    }
    let mut stages = Vec::with_capacity(route.len());
    for (place, &host) in route.iter().enumerate() {
        let reserved = hosts[host].borrow_mut().reserve(traffic, role(place, route.len()), budget);
        let (id, least) = reserved.map_err(|refusal| denied(place, refusal, budget))?;
        reservations.push(id);
        stages.push(least);
    }
    let admission = |place: usize| -> &Admission { hosts[route[place]].borrow() };
    let handover = admission(0).platform().handover;
    let input_delay: Vec<_> = (0..=last).map(|place| admission(place).input_delay()).collect();
    let next = |place: usize| (place < last).then(|| (admission(place).platform(), input_delay[place + 1]));
    let way = |place| {
        next(place).map_or(Duration::ZERO, |(platform, found)| platform.propagation + platform.clock_error + found)
    };
    let ways: Vec<_> = (0..=last).map(way).collect();
    let transit = |place: usize| {
        next(place).map_or(Duration::ZERO, |(platform, _)| {
            admission(place).ahead() + platform.link.occupancy(platform.packet) + ways[place]
        })
    };
    let transit: Vec<_> = (0..=last).map(transit).collect();
    let ahead = if admission(0).settings().send_early { traffic.most_ahead() } else { Duration::ZERO };
    stages[0] = stages[0].with_handover(handover);
    if let Some(deadline) = deadline {
        let shares: Vec<_> = stages
            .iter()
            .zip(&ways)
            .map(|(stage, &propagation)| RouteHop { least: stage.total(), propagation })
            .collect();
        let too_short = |shortfall| {
            let refusal = Refusal::new(Code::DeadlineSum, Stage::Route);
            denied(0, refusal, stages[0].total().saturating_sub(shortfall))
        };
        let budgets = compose(&shares, deadline).map_err(too_short)?;
        for (place, &host) in route.iter().enumerate() {
            let relaxed = hosts[host].borrow_mut().relax(reservations[place], budgets[place]);
            stages[place] = relaxed.map_err(|refusal| denied(place, refusal, budgets[place]))?;
        }
        stages[0] = stages[0].with_handover(handover);
    }
    let mut upstream = vec![Duration::ZERO];
    for place in 0..last {
        upstream.push(upstream[place] + stages[place].total() + ways[place]);
    }
    let contract = traffic.with_deadline(upstream[last] + stages[last].total());
    let contract = contract.map_err(|error| denied(0, error.into(), budget))?;
    let (route, reservations) = (route.to_vec(), reservations.clone());
    Ok(GrantedRoute { contract, route, reservations, stages, upstream, ways, transit, input_delay, ahead })
}

impl GrantedRoute {
    /// The longest time before its logical arrival at a host, which is not the first, at which a message's first packet can come: the host before
    /// holds it until it has arrived logically there, unless that is a sender that works ahead. A relay never does.
    fn early(&self, place: usize) -> Duration {
        let ahead = if place == 1 { self.ahead } else { Duration::ZERO };
        self.stages[place - 1].total() + self.ways[place - 1] + ahead
    }

    /// Messages that the relay at this place of the route has room for.
    pub fn relay_messages(&self, place: usize) -> u32 {
        buffers::receive_messages(&self.contract, self.early(place), self.stages[place].link)
    }

    /// The hosts between sender and receiver, as [`crate::World::open_via`] wants them; `ids` are all hosts' in the world.
    pub fn hops(&self, ids: &[HostId]) -> Vec<Hop> {
        let last = self.route.len() - 1;
        let after = |place: usize| self.contract.deadline() - self.upstream[place] - self.stages[place].total();
        let hop = |place: usize| {
            let stage = self.stages[place].link;
            Hop {
                host: ids[self.route[place]],
                passage: RelayGrant {
                    stage,
                    input_delay: self.input_delay[place],
                    upstream: self.upstream[place],
                    transit: self.transit[place - 1],
                    onward: after(place),
                },
                messages: self.relay_messages(place),
            }
        };
        (1..last).map(hop).collect()
    }

    /// The promise that the channel is to be held to; `platform` is that of its hosts, as far as packets go.
    pub fn promise(&self, platform: &Platform) -> GrantedBounds {
        let last = self.route.len() - 1;
        GrantedBounds::of(&self.contract, [platform; 2], self.early(last), self.stages[last].processor)
    }

    /// The plan of the channel, called `name`.
    ///
    /// # Panics
    /// If that is no channel's name.
    pub fn plan(&self, name: &str) -> ChannelPlan {
        let last = self.route.len() - 1;
        let receive = self.stages[last].processor;
        let messages = buffers::receive_messages(&self.contract, self.early(last), receive);
        ChannelPlan {
            upstream: self.upstream[last],
            transit: self.transit[last - 1],
            receive_messages: messages + self.contract.burst(),
            ..ChannelPlan::new(name, Service::RealTime(self.contract), self.stages[0], receive)
        }
    }
}
