//! Channels that pass through hosts: who relays what, and what became of it there.
//!
//! A relay is a host like any other: its endpoint polices and sends on, each frame costs it a look and each packet a hand-over.
//! Here is only what its control thread would do: open the way onward for a request, and accept it when the next host has.

use laxity_core::endpoint::{Destination, Endpoint, ReceiveSetup, SendSetup};
use laxity_core::event::{ChannelId, End, PeerRequest};
use laxity_core::relay::{RelayCounters, RelayGrant};
use laxity_core::units::{Duration, Instant};

use crate::{
    ChannelEnd, ChannelHandle, ChannelPlan, ChannelRecord, FindingKind, HostDriver, HostId, Ledger, Observation,
    Problem, Side, SimulatedEnvironment, World,
};

/// A host that a channel passes through, and what it grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which host.
    pub host: HostId,
    /// The decision of its admission.
    pub passage: RelayGrant,
    /// Messages that it has room for.
    pub messages: u32,
}

/// The report on a channel at a host that it passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopReport {
    /// Which host.
    pub host: HostId,
    /// Its counters.
    pub counters: RelayCounters,
    /// The longest from a message's logical arrival there until its last packet's transmission was over.
    pub response: Duration,
    /// The end of the side towards the sender, if it has ended.
    pub inward: Option<End>,
    /// The end of the side towards the receiver.
    pub onward: Option<End>,
}

/// A channel at a host that it passes through.
pub(crate) struct RelayedChannel {
    pub(crate) hop: Hop,
    pub(crate) inward: ChannelEnd,
    pub(crate) onward: ChannelEnd,
    pub(crate) counters: RelayCounters,
    response: Duration,
    /// The request for which the way onward is being opened.
    asked: Option<PeerRequest>,
}

impl RelayedChannel {
    fn new(hop: Hop) -> Self {
        let [inward, onward] = <[ChannelEnd; 2]>::default();
        Self { hop, inward, onward, counters: RelayCounters::default(), response: Duration::ZERO, asked: None }
    }

    /// The host loses all its state.
    pub(crate) fn crash(&mut self, endpoint: &Endpoint) {
        let counters = self.onward.key.and_then(|key| endpoint.relay_counters(key));
        self.counters = counters.unwrap_or(self.counters);
        // A side that was not asked for yet is still to come.
        for side in [&mut self.inward, &mut self.onward] {
            if side.key.is_some() {
                side.crash();
            }
        }
        self.asked = None;
    }

    /// A message left the host; the transmission of its last packet on the wire ends at `end`.
    pub(crate) fn departed(&mut self, logical_arrival: Instant, end: Instant) {
        self.response = self.response.max(end.since(logical_arrival));
    }
}

impl World {
    /// Opens a channel as planned, now, through these hosts one after the other. The plan's `upstream` is that of the receiver:
    /// from the logical arrival at the sender, all hops included; its `transit` is that of the last way. Between two neighbours on
    /// the way a name means one live channel.
    pub fn open_via(&mut self, from: HostId, hops: &[Hop], to: HostId, plan: ChannelPlan) -> ChannelHandle {
        let (number, mut before) = (self.channels.len(), from.0);
        let name = plan.name;
        let sides = hops.iter().enumerate().map(|(place, hop)| (hop.host, Side::Inward(place)));
        for (host, side) in sides.chain([(to, Side::Receiver)]) {
            self.hosts[host.0].endpoint_mut().listen(name);
            self.waiting.entry((before, host.0, name)).or_default().push((number, side));
            before = host.0;
        }
        self.tell(Observation::Opened { name, from, to });
        let hops = hops.iter().copied().map(RelayedChannel::new).collect();
        self.channels.push(ChannelRecord { number, plan, from, hops, to, ledger: Ledger::default() });
        self.instruct(from.0, self.now(), true, move |around, driver, now| around.open(driver, now, number));
        ChannelHandle(number)
    }

    /// The reports on a channel at each host that it passes through.
    pub fn hops(&self, channel: ChannelHandle) -> Vec<HopReport> {
        let report = |relayed: &RelayedChannel| HopReport {
            host: relayed.hop.host,
            counters: self.relay_counters(relayed),
            response: relayed.response,
            inward: relayed.inward.end,
            onward: relayed.onward.end,
        };
        self.channels[channel.0].hops.iter().map(report).collect()
    }

    /// Messages that relays dropped: over the contract, and without room.
    pub(crate) fn dropped_in_transit(&self, channel: usize) -> (u64, u64) {
        let counters = self.channels[channel].hops.iter().map(|relayed| self.relay_counters(relayed));
        counters.fold((0, 0), |sum, counters| (sum.0 + counters.dropped_sender, sum.1 + counters.dropped_full))
    }

    fn relay_counters(&self, relayed: &RelayedChannel) -> RelayCounters {
        let endpoint = self.hosts[relayed.hop.host.0].endpoint();
        let live = relayed.onward.key.and_then(|key| endpoint.relay_counters(key));
        live.unwrap_or(relayed.counters)
    }

    /// Sender, relays and receiver of a channel, by number.
    pub(crate) fn whole_route(&self, channel: usize) -> impl Iterator<Item = usize> {
        let ChannelRecord { from, hops, to, .. } = &self.channels[channel];
        let between = hops.iter().map(|relayed| relayed.hop.host.0);
        core::iter::once(from.0).chain(between).chain([to.0])
    }

    /// What the sender of a channel that passed through hosts was told adds up. Returns the rule that does not hold, if any.
    pub(crate) fn check_relays(&self, record: &ChannelRecord) -> Option<Problem> {
        let ledger = &record.ledger;
        let (Some(End::Closed { report: Some(report) }), Some(End::Closed { .. })) =
            (ledger.sender.end, ledger.receiver.end)
        else {
            return None;
        };
        let (over_contract, full) = self.dropped_in_transit(record.number);
        let (receive, moved) = (&ledger.receive, over_contract + full);
        let told = (report.delivered + report.late + report.undecided, report.lost + moved, report.dropped);
        let is_wrong = !record.hops.is_empty() && told != (receive.delivered, receive.lost, receive.dropped + moved);
        let found = || format!("{report:?}, with {moved} messages dropped in transit");
        is_wrong.then(|| (FindingKind::Conservation, format!("a report of {receive:?}"), found()))
    }
}

impl SimulatedEnvironment<'_> {
    /// A request is for a hop at this host: the channel onward is opened.
    pub(crate) fn relay(&mut self, driver: &mut HostDriver, now: Instant, request: &PeerRequest, at: (usize, usize)) {
        let (number, world, (channel, place)) = (self.number, &mut *self.world, at);
        let ChannelRecord { plan, hops, to, .. } = &world.channels[channel];
        let hop = hops[place].hop;
        let next = hops.get(place + 1).map_or(*to, |relayed| relayed.hop.host);
        let destination = Destination { link: 0, peer: world.hosts[next.0].config.address, name: request.from.name };
        let packets = plan.packet_queue(hop.messages, request.terms.packet);
        let packet = world.hosts[number].config.platform.packet;
        let upstream = hop.passage.upstream + hop.passage.stage;
        let outgoing = SendSetup::relay(destination, request, packet, upstream, packets);
        match driver.open(now, outgoing, self) {
            Ok(onward) => {
                self.host().memory.keys.insert(onward, (channel, Side::Onward(place)));
                let relayed = &mut self.world.channels[channel].hops[place];
                (relayed.onward.key, relayed.asked) = (Some(onward), Some(*request));
            }
            Err((_, refusal)) => driver.endpoint.refuse(request.id, &refusal),
        }
    }

    /// The next host accepted: so does this one.
    pub(crate) fn relay_accepted(
        &mut self,
        driver: &mut HostDriver,
        now: Instant,
        onward: ChannelId,
        at: (usize, usize),
    ) {
        let (channel, place) = at;
        let relayed = &mut self.world.channels[channel].hops[place];
        let Some(request) = relayed.asked.take() else { return };
        let incoming = ReceiveSetup::relay(&request, onward, relayed.hop.passage);
        // If the request has lapsed the channel onward is closed, and the sender has heard nothing.
        if let Ok(inward) = driver.accept(now, &request, incoming, self) {
            self.world.channels[channel].hops[place].inward.key = Some(inward);
            self.host().memory.keys.insert(inward, (channel, Side::Inward(place)));
        }
    }
}
