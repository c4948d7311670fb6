//! Channels that pass through hosts: who relays what, and what became of it there.
//!
//! A relay is a host like any other: its endpoint polices and sends on, each frame costs it a look and each packet a hand-over.
//! Here is only what its control thread would do: open the way onward for a request, and accept it when the next host has.

use std::collections::BTreeMap;

use laxity_core::endpoint::{Departed, Destination, Incoming, Outgoing};
use laxity_core::event::{ChannelId, End, Name, Request};
use laxity_core::relay::{Passage, RelayCounters};
use laxity_core::units::{Duration, Instant};

use crate::{Around, ChannelHandle, Command, HostDriver, HostId, Ledger, Plan, Seen, Side, World};

/// A host that a channel passes through, and what it grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which host.
    pub host: HostId,
    /// What its admission decided.
    pub passage: Passage,
    /// Messages that it has room for.
    pub messages: u32,
}

/// What a channel did at a host that it passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopReport {
    /// Which host.
    pub host: HostId,
    /// What it counted.
    pub counters: RelayCounters,
    /// The longest from a message's logical arrival there until its last packet's transmission was over.
    pub response: Duration,
    /// How the side towards the sender ended, if it has.
    pub inward: Option<End>,
    /// How the side towards the receiver ended.
    pub onward: Option<End>,
}

#[derive(Debug)]
struct Relayed {
    hop: Hop,
    inward: Side,
    onward: Side,
    counters: RelayCounters,
    response: Duration,
}

/// Every channel that passes through a host.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    /// The hops of a channel that has some.
    routes: BTreeMap<usize, Vec<Relayed>>,
    /// Hops that nobody has asked for yet, by the host before, the host and the name.
    waiting: BTreeMap<(usize, usize, Name), Vec<(usize, usize)>>,
    /// Channel and hop of a side at a host.
    keys: BTreeMap<(usize, ChannelId), (usize, usize)>,
    /// Requests for which the way onward is being opened.
    asked: BTreeMap<(usize, ChannelId), Request>,
}

impl Relays {
    fn hop(&mut self, (channel, hop): (usize, usize)) -> Option<&mut Relayed> {
        self.routes.get_mut(&channel)?.get_mut(hop)
    }

    /// Where a channel passes through, in order.
    fn of(&self, channel: usize) -> impl Iterator<Item = &Relayed> {
        self.routes.get(&channel).into_iter().flatten()
    }

    /// The channel of a side at a host.
    pub(crate) fn channel_of(&self, host: usize, key: ChannelId) -> Option<usize> {
        self.keys.get(&(host, key)).map(|&(channel, _)| channel)
    }
}

impl World {
    /// Opens a channel as planned, now, through these hosts one after the other. The plan's `upstream` is that of the receiver:
    /// from the logical arrival at the sender, all hops included; its `transit` is that of the last way. Between two neighbours on
    /// the way a name means one live channel.
    pub fn open_via(&mut self, from: HostId, hops: &[Hop], to: HostId, plan: Plan) -> ChannelHandle {
        let (number, mut before) = (self.channels.len(), from.0);
        let name = plan.name;
        for (place, hop) in hops.iter().enumerate() {
            self.hosts[hop.host.0].endpoint_mut().listen(name);
            self.relays.waiting.entry((before, hop.host.0, name)).or_default().push((number, place));
            before = hop.host.0;
        }
        if !hops.is_empty() {
            let relayed = |&hop: &Hop| Relayed {
                hop,
                inward: Side::default(),
                onward: Side::default(),
                counters: RelayCounters::default(),
                response: Duration::ZERO,
            };
            self.relays.routes.insert(number, hops.iter().map(relayed).collect());
        }
        self.hosts[to.0].endpoint_mut().listen(name);
        self.expect(before, to.0, name, number);
        self.tell(Seen::Opened { channel: ChannelHandle(number), name, from, to });
        self.channels.push(Ledger::new(number, plan, from, to));
        self.schedule(from.0, self.now(), Command::Open(number));
        ChannelHandle(number)
    }

    /// What became of a channel at each host that it passes through.
    pub fn hops(&self, channel: ChannelHandle) -> Vec<HopReport> {
        let report = |relayed: &Relayed| HopReport {
            host: relayed.hop.host,
            counters: self.relay_counters(relayed),
            response: relayed.response,
            inward: relayed.inward.end,
            onward: relayed.onward.end,
        };
        self.relays.of(channel.0).map(report).collect()
    }

    /// Messages that relays dropped: over the contract, and without room.
    pub(crate) fn dropped_on_the_way(&self, channel: usize) -> (u64, u64) {
        let counters = self.relays.of(channel).map(|relayed| self.relay_counters(relayed));
        counters.fold((0, 0), |sum, counters| (sum.0 + counters.dropped_sender, sum.1 + counters.dropped_full))
    }

    fn relay_counters(&self, relayed: &Relayed) -> RelayCounters {
        let endpoint = self.hosts[relayed.hop.host.0].endpoint();
        let live = relayed.onward.key.and_then(|key| endpoint.relay_counters(key));
        live.unwrap_or(relayed.counters)
    }

    /// The host that comes after the sender (`None`) or after a hop.
    pub(crate) fn next_host(&self, channel: usize, after: Option<usize>) -> usize {
        let next = self.relays.of(channel).nth(after.map_or(0, |hop| hop + 1));
        next.map_or(self.channels[channel].to.0, |relayed| relayed.hop.host.0)
    }

    /// A side is over. False if `key` is not that of a hop.
    pub(crate) fn relay_ended(&mut self, number: usize, key: ChannelId, end: End) -> bool {
        let Some(&at) = self.relays.keys.get(&(number, key)) else { return false };
        if let Some(relayed) = self.relays.hop(at) {
            let side = if relayed.onward.key == Some(key) { &mut relayed.onward } else { &mut relayed.inward };
            side.end = Some(end);
        }
        // Kept for a while, so that a repeated CLOSE is answered.
        let (now, lease) = (self.hosts[number].now, self.channels[at.0].plan.lease);
        self.schedule(number, now + lease, Command::ReleaseRelayed(key));
        true
    }

    /// A packet left a host that is no end of its channel; its transmission on the wire ends at `end`.
    pub(crate) fn relay_departed(&mut self, number: usize, departed: &Departed, end: Instant) {
        let Some(&at) = self.relays.keys.get(&(number, departed.channel)) else { return };
        if let Some(relayed) = self.relays.hop(at).filter(|_| departed.last) {
            relayed.response = relayed.response.max(end.since(departed.logical_arrival));
        }
    }

    /// Sender, relays and receiver of a channel, by number.
    pub(crate) fn whole_route(&self, channel: usize) -> impl Iterator<Item = usize> {
        let ledger = &self.channels[channel];
        let between = self.relays.of(channel).map(|relayed| relayed.hop.host.0);
        core::iter::once(ledger.from.0).chain(between).chain([ledger.to.0])
    }

    /// The hosts that a channel passes through, as they were planned.
    pub(crate) fn planned_hops(&self, channel: usize) -> Vec<Hop> {
        self.relays.of(channel).map(|relayed| relayed.hop).collect()
    }

    /// The host loses all its state. If they may, channels that pass through it are opened again when that has been noticed.
    pub(crate) fn crash_relays(&mut self, number: usize, reopen: bool) {
        let endpoint = self.hosts[number].endpoint();
        let all =
            self.relays.routes.iter_mut().flat_map(|(channel, hops)| hops.iter_mut().map(move |hop| (channel, hop)));
        for (&channel, relayed) in all.filter(|(_, relayed)| relayed.hop.host.0 == number) {
            let ledger = &mut self.channels[channel];
            ledger.reopens |= reopen && ledger.sender.end.is_none();
            let counters = relayed.onward.key.and_then(|key| endpoint.relay_counters(key));
            relayed.counters = counters.unwrap_or(relayed.counters);
            // A side that nobody has asked for is still to come.
            for side in [&mut relayed.inward, &mut relayed.onward] {
                if side.key.is_some() {
                    side.crash();
                }
            }
        }
        self.relays.keys.retain(|&(host, _), _| host != number);
        self.relays.asked.retain(|&(host, _), _| host != number);
    }

    /// The host is there again.
    pub(crate) fn restart_relays(&mut self, number: usize) {
        for (&channel, hops) in &self.relays.routes {
            if hops.iter().any(|relayed| relayed.hop.host.0 == number) {
                self.hosts[number].endpoint_mut().listen(self.channels[channel].plan.name);
            }
        }
    }

    /// Every side at a relay is over, and what the sender was told adds up.
    ///
    /// # Panics
    /// If that is not so.
    pub(crate) fn check_relays(&self) {
        for (&channel, hops) in &self.relays.routes {
            let ledger = &self.channels[channel];
            let name = ledger.plan.name.as_str();
            for relayed in hops {
                let over = |side: &Side| side.key.is_none() || side.released;
                let frozen = self.hosts[relayed.hop.host.0].frozen;
                assert!(frozen || (over(&relayed.inward) && over(&relayed.onward)), "channel {name}: {relayed:?}");
            }
            let (Some(End::Closed { report: Some(report) }), Some(End::Closed { .. })) =
                (ledger.sender.end, ledger.receiver.end)
            else {
                continue;
            };
            let (over_contract, full) = self.dropped_on_the_way(channel);
            let (receive, moved) = (&ledger.receive, over_contract + full);
            assert_eq!(
                (report.delivered + report.late + report.undecided, report.lost + moved, report.dropped),
                (receive.delivered, receive.lost, receive.dropped + moved),
                "channel {name}: what the sender was told, with {moved} messages dropped on the way"
            );
        }
    }
}

impl Around<'_> {
    /// A request that is for a hop at this host: the channel onward is opened. False if it is none.
    pub(crate) fn relay_requested(&mut self, driver: &mut HostDriver, now: Instant, request: &Request) -> bool {
        let (number, world) = (self.number, &mut *self.world);
        let Some(&before) = world.addresses.get(&request.peer) else { return false };
        let Some(waiting) = world.relays.waiting.get_mut(&(before, number, request.name)) else { return false };
        let (routes, channels) = (&world.relays.routes, &world.channels);
        waiting.retain(|&(channel, hop)| {
            let begun = |relayed: &Relayed| relayed.onward.key.is_some() || relayed.onward.released;
            !routes.get(&channel).and_then(|hops| hops.get(hop)).is_none_or(begun)
                && channels[channel].sender.end.is_none()
        });
        let Some(&(channel, place)) = waiting.first() else { return false };
        let Some(&Relayed { hop, .. }) = world.relays.hop((channel, place)).as_deref() else { return false };
        let peer = world.hosts[world.next_host(channel, Some(place))].config.address;
        let plan = &world.channels[channel].plan;
        let destination = Destination { link: 0, peer, name: request.name };
        let packets = plan.packet_queue(hop.messages, request.packet);
        let packet = world.hosts[number].config.platform.packet;
        let upstream = hop.passage.upstream + hop.passage.stage;
        let outgoing = Outgoing::relay(destination, request, packet, upstream, packets);
        match driver.open(now, outgoing, self) {
            Ok(onward) => {
                let relays = &mut self.world.relays;
                relays.keys.insert((number, onward), (channel, place));
                relays.asked.insert((number, onward), *request);
                if let Some(relayed) = relays.hop((channel, place)) {
                    relayed.onward.key = Some(onward);
                }
            }
            Err((_, refusal)) => driver.endpoint.refuse(request, &refusal),
        }
        true
    }

    /// The next host accepted: so does this one. False if `key` is not that of a hop.
    pub(crate) fn relay_accepted(&mut self, driver: &mut HostDriver, now: Instant, key: ChannelId) -> bool {
        let (number, relays) = (self.number, &mut self.world.relays);
        let Some(&at) = relays.keys.get(&(number, key)) else { return false };
        let (Some(request), Some(relayed)) = (relays.asked.remove(&(number, key)), relays.hop(at)) else {
            return true;
        };
        let incoming = Incoming::relay(&request, key, relayed.hop.passage);
        // If the request has lapsed the channel onward is closed, and the sender has heard nothing.
        if let Ok(inward) = driver.accept(now, &request, incoming, self) {
            let relays = &mut self.world.relays;
            if let Some(relayed) = relays.hop(at) {
                relayed.inward.key = Some(inward);
            }
            relays.keys.insert((number, inward), at);
        }
        true
    }

    /// A side that is over is taken out.
    pub(crate) fn release_relayed(&mut self, driver: &mut HostDriver, key: ChannelId) {
        let Some(at) = self.world.relays.keys.remove(&(self.number, key)) else { return };
        let counters = driver.endpoint.relay_counters(key);
        driver.release(key, drop, self);
        if let Some(relayed) = self.world.relays.hop(at) {
            relayed.counters = counters.unwrap_or(relayed.counters);
            let side = if relayed.onward.key == Some(key) { &mut relayed.onward } else { &mut relayed.inward };
            side.released = true;
        }
    }
}
