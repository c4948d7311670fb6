//! The world that a scenario says.

use std::net::{Ipv4Addr, SocketAddr};

use laxity::DEFAULT_PORT;
use laxity_core::contract::{Contract, Overload};
use laxity_core::limits::{DECAY_FACTOR, MAX_CHANNELS};
use laxity_core::relay::RelayGrant;
use laxity_sim::{ChannelPlan, GrantedBounds, Hop, HostConfig, HostId, World};

use super::admit::{admit, frames};
use super::file::{Channel, Host, RECEIVE_RING, Scenario};
use crate::failure::Failure;

/// Fills `world`, which is empty, with what was admitted: hosts and channels have the numbers of their places in the file.
///
/// # Errors
/// The first refusal.
pub(super) fn build(scenario: &Scenario, world: &mut World) -> Result<(), Failure> {
    let Scenario { hosts, channels, sources, faults, .. } = scenario;
    let admitted = admit(hosts, channels)?;
    world.collect_findings();
    let config = |(number, host): (usize, &Host)| HostConfig {
        clock: if host.own_clock { number as u64 + 2 } else { 1 },
        peer_clocks: admitted.clocks[number],
        send_early: host.settings.send_early,
        receive_early: host.settings.receive_early,
        channels: host.channels.map_or_else(|| places(number, scenario), |channels| channels as usize),
        frames: host.frames.map_or_else(
            || {
                // After a crash the old channels are kept for a lease beside the new ones.
                frames(number, hosts, channels, &admitted).saturating_mul(scenario.lives()).max(1)
            },
            |frames| frames as usize,
        ),
        receive_ring: RECEIVE_RING as usize,
        wake_up: host.wake_up,
        ..HostConfig::new(host.platform.clone(), address(number))
    };
    let ids: Vec<HostId> = hosts.iter().enumerate().map(config).map(|config| world.add_host(config)).collect();
    for (number, (channel, plan)) in channels.iter().zip(&admitted.plans).enumerate() {
        let plan = ChannelPlan { lease: scenario.lease, ..plan.clone() };
        let (from, to) = (&hosts[channel.from], &hosts[channel.to]);
        let granted = &admitted.routes[number];
        let hops = match granted {
            Some(granted) => granted.hops(&ids),
            None => best_effort_hops(channel, &plan, &ids),
        };
        let handle = world.open_via(ids[channel.from], &hops, ids[channel.to], plan.clone());
        match (granted, channel.contract()) {
            (Some(granted), _) => {
                let promise = granted.promise(&from.platform);
                world.promise(handle, GrantedBounds { bound: promise.bound - plan.spare, ..promise });
            }
            (None, Some(contract)) => world.promise(handle, promise(contract, &plan, channel, from, to)),
            (None, None) => {}
        }
    }
    for feed in sources {
        world.add_source(feed.source.clone());
    }
    for fault in faults {
        world.add_fault(*fault);
    }
    Ok(())
}

/// Places for the channels of a host, and for those that take theirs after a crash while the old ones are kept.
fn places(number: usize, scenario: &Scenario) -> usize {
    // What passes through has a side towards each neighbour.
    let here = |channel: &Channel| match channel.via.contains(&number) {
        true => 2,
        false => usize::from(channel.from == number || channel.to == number),
    };
    let channels: usize = scenario.channels.iter().map(here).sum();
    channels.saturating_mul(scenario.lives()).clamp(1, MAX_CHANNELS)
}

pub(super) fn address(number: usize) -> SocketAddr {
    // There are fewer hosts than addresses.
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    SocketAddr::from((Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits().saturating_add(number)), DEFAULT_PORT))
}

/// The hosts that a channel without a contract passes through: nothing is granted to it, and as many messages may wait as at its sender.
fn best_effort_hops(channel: &Channel, plan: &ChannelPlan, ids: &[HostId]) -> Vec<Hop> {
    let hop = |&host: &usize| Hop { host: ids[host], passage: RelayGrant::default(), messages: plan.send_messages };
    channel.via.iter().map(hop).collect()
}

/// What the checkers hold a channel between two hosts to.
fn promise(contract: &Contract, plan: &ChannelPlan, channel: &Channel, from: &Host, to: &Host) -> GrantedBounds {
    let early = from.settings.send_early;
    let ahead = if early { contract.most_ahead() } else { Default::default() };
    let mut promise = GrantedBounds::of(contract, [&from.platform, &to.platform], plan.upstream + ahead, plan.receive);
    let oversize = if channel.overload == Overload::Decay { DECAY_FACTOR } else { 1 };
    promise.queues[2] += contract.burst();
    promise.queues = promise.queues.map(|places| places.saturating_mul(oversize));
    // An oversize message is due later by the intervals that its further parts take.
    let parts = contract.interval() * u64::from(oversize - 1);
    promise.bound = promise.bound - plan.spare + parts;
    // What was admitted is what may be on the wire.
    let admitted = if oversize > 1 { contract.under_decay(from.platform.packet) } else { Ok(*contract) };
    promise.contract = admitted.unwrap_or(*contract);
    promise
}
