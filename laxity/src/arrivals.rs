//! Admission of incoming traffic on a live host: everything that this host receives is admitted against its port and its looks ([`laxity_core::admission::incoming`]),
//! and best effort is told how far apart its packets have to start.
//!
//! An application that asks for a channel that needs best effort to be slower waits until it is. Each sender is told (STATUS), and again
//! every [`AGAIN`]; its answer (KEEPALIVE) comes behind everything that it sent before. A sender that has not answered after [`PATIENCE`]
//! is closed, and counts no more. A sender that may be faster again is told so, and no request waits for this.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use laxity_core::admission::incoming::{Flow, FlowId, FlowSource, IncomingGrant, IncomingTraffic};
use laxity_core::admission::{Admission, Refusal};
use laxity_core::contract::Service;
use laxity_core::event::{ChannelId, PeerRequest, SenderPace};
use laxity_core::units::Duration;

use crate::control::ControlState;
use crate::executive::ExecutiveCommand;
use crate::reception::RequestedChannel;

/// The time after which a sender that has not answered is told again.
const AGAIN: StdDuration = StdDuration::from_millis(50);
/// The time after which best effort is told that it may be faster.
const UNCHANGED: StdDuration = StdDuration::from_millis(100);
/// The time that a sender has to answer.
const PATIENCE: StdDuration = StdDuration::from_millis(500);

/// The incoming traffic, and the senders that are told to be slower.
pub(crate) struct Arrivals {
    pub(crate) incoming: IncomingTraffic,
    /// Addresses of hosts as numbers.
    hasher: RandomState,
    /// True if a request waits for best effort to be slower.
    waits: bool,
    /// When best effort is told that it may be faster again, as a flow is gone, or a request that was to come.
    faster_at: Option<StdInstant>,
    /// True on a host that is being measured: nothing is limited there.
    is_free: bool,
}

/// A channel's part in that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingShare {
    id: FlowId,
    /// The spacing that a best-effort channel was told last, and the one it confirmed; zero is none.
    pub(crate) asked: Duration,
    confirmed: Duration,
    /// The times of the first and the last STATUS.
    told: Option<(StdInstant, StdInstant)>,
}

fn spaced(spacing: Duration) -> Option<Duration> {
    Some(spacing).filter(|spacing| !spacing.is_zero())
}

impl Arrivals {
    pub(crate) fn new(admission: &Admission, is_free: bool) -> Self {
        Self {
            incoming: IncomingTraffic::new(admission),
            hasher: RandomState::new(),
            waits: false,
            faster_at: None,
            is_free,
        }
    }

    /// Where what is asked for comes from. Each executive has a link of its own.
    fn source(&self, request: &PeerRequest) -> FlowSource {
        let (ip, port) = (request.from.peer.ip().to_canonical(), request.from.peer.port());
        let SenderPace { rate, ahead, spacing } = request.pace;
        FlowSource { host: self.hasher.hash_one((ip, port)), rate, ahead, spacing }
    }
}

impl ControlState {
    /// The flow of a real-time channel that needs `least` here, and what this host has to keep of its deadline.
    pub(crate) fn fitted(&self, request: &PeerRequest, asked: &RequestedChannel, least: Duration) -> (Flow, Duration) {
        let (source, RequestedChannel { contract, elsewhere, .. }) = (self.arrivals.source(request), asked);
        let flow = |transit| Flow::real_time(source, contract, request.terms.packet, transit);
        if self.arrivals.is_free {
            return (flow(contract.deadline()), least);
        }
        self.arrivals.incoming.fitted(contract.deadline(), *elsewhere, least, flow)
    }

    /// The refusal of a channel that needs its `least_deadline` here, with the least end-to-end deadline with which it would be let in.
    pub(crate) fn advised(&self, request: &PeerRequest, asked: &RequestedChannel, refusal: Refusal) -> Refusal {
        let (source, RequestedChannel { contract, elsewhere, .. }) = (self.arrivals.source(request), asked);
        let flow = |transit| Flow::real_time(source, contract, request.terms.packet, transit);
        let all = |least| self.arrivals.incoming.least_deadline(contract.deadline(), *elsewhere, least, flow);
        Refusal { least_deadline: refusal.least_deadline.and_then(all), ..refusal }
    }

    /// The flow of a best-effort channel, if that is what is asked for.
    pub(crate) fn best_effort_flow(&self, request: &PeerRequest) -> Option<Flow> {
        let is_it = matches!(request.terms.service, Service::BestEffort { .. });
        is_it.then(|| Flow::best_effort(self.arrivals.source(request), request.terms.packet, None))
    }

    /// Asks whether a newcomer fits that can wait for `most`; `None` if it will when best effort is slower, which is told to be.
    pub(crate) fn find_room(&mut self, flow: &Flow, most: Duration) -> Result<Option<IncomingGrant>, Refusal> {
        if self.arrivals.is_free {
            return Ok(Some(IncomingGrant { wait: Duration::ZERO, allowance: Duration::ZERO, spacing: None }));
        }
        let room = self.arrivals.incoming.room(flow, most)?;
        let needed = room.spacing.unwrap_or(Duration::ZERO);
        let is_ready = self.parts().all(|part| part.confirmed >= needed);
        // One that waited may have been another.
        if std::mem::replace(&mut self.arrivals.waits, !is_ready) && is_ready {
            self.may_be_faster();
        }
        if is_ready {
            return Ok(Some(room));
        }
        self.ask(needed);
        Ok(None)
    }

    /// What it would be granted to wait, best effort being slower if need be.
    pub(crate) fn would_wait(&self, flow: &Flow, most: Duration) -> Result<Duration, Refusal> {
        if self.arrivals.is_free { Ok(Duration::ZERO) } else { Ok(self.arrivals.incoming.room(flow, most)?.allowance) }
    }

    /// Lets a flow in.
    pub(crate) fn arrive(&mut self, flow: Flow, room: &IncomingGrant, is_best_effort: bool) -> IncomingShare {
        let spacing = room.spacing.filter(|_| is_best_effort).unwrap_or(Duration::ZERO);
        let id = self.arrivals.incoming.insert(flow, room.allowance);
        self.arrivals.incoming.set_spacing(id, spaced(spacing));
        IncomingShare { id, asked: spacing, confirmed: spacing, told: None }
    }

    /// A flow is gone: the others may be faster.
    pub(crate) fn depart(&mut self, part: Option<IncomingShare>) {
        let Some(part) = part else { return };
        self.arrivals.incoming.remove(part.id);
        self.may_be_faster();
    }

    /// Has best effort told what is enough, after a while: a channel that is opened anew finds it as slow as it was.
    pub(crate) fn may_be_faster(&mut self) {
        self.arrivals.faster_at.get_or_insert_with(|| StdInstant::now() + UNCHANGED);
    }

    /// No request waits: if best effort was asked to be slower for one, that was refused or forgotten.
    pub(crate) fn does_not_come(&mut self) {
        if std::mem::take(&mut self.arrivals.waits) {
            self.may_be_faster();
        }
    }

    /// The sender of a best-effort channel does what it was told.
    pub(crate) fn slowed(&mut self, channel: ChannelId, spacing: Duration) {
        let Some(part) = self.channels.get_mut(&channel).and_then(|known| known.part.as_mut()) else { return };
        if spacing == part.asked {
            (part.confirmed, part.told) = (spacing, None);
            self.arrivals.incoming.set_spacing(part.id, spaced(spacing));
        }
    }

    /// The parts of best effort.
    fn parts(&self) -> impl Iterator<Item = &IncomingShare> {
        let best_effort = self.channels().filter(|known| known.service.contract().is_none());
        best_effort.filter_map(|known| known.part.as_ref())
    }

    /// Tells all best effort this spacing.
    fn ask(&mut self, spacing: Duration) {
        let now = StdInstant::now();
        for (channel, known) in &mut self.channels {
            let is_best_effort = known.service.contract().is_none();
            let Some(part) = known.part.as_mut().filter(|part| is_best_effort && part.asked != spacing) else {
                continue;
            };
            // Until it says so it may be as fast as it was, or as it may be.
            part.confirmed = part.confirmed.min(spacing);
            (part.asked, part.told) = (spacing, Some((now, now)));
            self.arrivals.incoming.set_spacing(part.id, spaced(part.confirmed));
            self.due.push(ExecutiveCommand::Space { channel: *channel, spacing });
        }
    }

    /// Tells best effort that it may be faster, those again who have not answered, and closes those who do not.
    pub(crate) fn attend_to_arrivals(&mut self) {
        let now = StdInstant::now();
        // Once for all that have gone, and not while a request waits.
        if !self.arrivals.waits && self.arrivals.faster_at.take_if(|at| *at <= now).is_some() && !self.arrivals.is_free
        {
            let enough = self.arrivals.incoming.spacing().unwrap_or(Duration::ZERO);
            self.ask(enough);
        }
        for (&channel, known) in &mut self.channels {
            let Some(part) = known.part.as_mut() else { continue };
            let Some((first, last)) = part.told else { continue };
            if now.duration_since(first) >= PATIENCE {
                self.arrivals.incoming.remove(part.id);
                self.arrivals.faster_at.get_or_insert(now + UNCHANGED);
                known.part = None;
                self.due.push(ExecutiveCommand::Close(channel));
            } else if now.duration_since(last) >= AGAIN {
                part.told = Some((first, now));
                let spacing = part.asked;
                self.due.push(ExecutiveCommand::Space { channel, spacing });
            }
        }
    }

    /// The time until the next reminder; `None` if all have answered.
    pub(crate) fn tells_again(&self) -> Option<StdDuration> {
        (self.arrivals.faster_at.is_some() && !self.arrivals.waits || self.is_slowing()).then_some(AGAIN)
    }

    /// True if a sender has not answered yet.
    fn is_slowing(&self) -> bool {
        self.channels.values().any(|known| known.part.is_some_and(|part| part.told.is_some()))
    }

    /// True if decisions wait: for other stages, or for best effort to be slower.
    pub(crate) fn is_changing(&self) -> bool {
        self.arrivals.waits && self.is_slowing() || self.rearranging.is_some()
    }
}
