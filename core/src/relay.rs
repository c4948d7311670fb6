//! One channel through a relay: policing, and the packets that wait for the next link [channels §3, Fig. 1].
//!
//! "At intermediate nodes, the link scheduler relays arriving packets to the next node along the route" [channels §3.1]: no
//! handler, no reassembly, no copy. A packet that was demultiplexed is checked and policed, and its frame goes into the packet
//! queue with this hop's deadline. The assumptions of admission about a relayed channel are enforced here, whatever comes from the network:
//!
//! - *A message has at most its N packets, each once.* Duplicates end here, and packets of a message of which a later one has
//!   been seen: messages leave in the order of their numbers.
//! - *All packets of a message are here by its logical arrival*, which counts from the logical arrival at the sender
//!   ([`crate::receive`] does the same). A packet that comes later is due later: it counts as released when it was found,
//!   with the rest of its message, and the messages behind it keep their interval from then. So a late packet delays no other
//!   channel's, and as many packets are due in any time as were admitted.
//! - *The queue holds what the contract may have here.* A message for which there is no room is dropped as a whole, when its
//!   first packet comes.
//!
//! It relies on the demultiplexer to have found the channel, and leaves out signalling.

use alloc::boxed::Box;
use core::net::SocketAddr;

use crate::collections::Ring;
use crate::contract::{ChannelTerms, Service, packets};
use crate::frames::{FrameId, Frames};
use crate::limits;
use crate::receive::{
    ChannelPolicer, DropReason, ExpectedChannel, FrameTimes, PolicedMessage, PolicingDrop, UnexplainedDrops,
};
use crate::send::link_scheduler::PacketHead;
use crate::units::{Duration, Instant};
use crate::wire::{DataHeader, DataView, of_stolen_units};

/// The grant of this host to a channel that it relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RelayGrant {
    /// d_link: from the logical arrival here until the last packet has left.
    pub stage: Duration,
    /// The longest wait of a frame here until it is found ([`crate::admission::Admission::input_delay`]); part of `upstream`.
    pub input_delay: Duration,
    /// From the logical arrival at the sender to the one here: all stages before this one, the network path, and the wait until a
    /// frame is found.
    pub upstream: Duration,
    /// The longest time of a packet from the hand-over to the link before until it is found here.
    pub transit: Duration,
    /// The time after this host's stage: the path to the next one, its clock error, and what that one's ACCEPT said.
    pub onward: Duration,
}

/// The counters of a relay for one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Messages whose packets were handed to the next link, all that came, the last one included.
    pub passed: u64,
    /// Payload bytes handed to the next link.
    pub passed_bytes: u64,
    /// Of the messages passed, those whose transmission ended after this host's stage.
    pub late: u64,
    /// Messages dropped because their sender broke its contract.
    pub dropped_sender: u64,
    /// Messages dropped because there was no room.
    pub dropped_full: u64,
    /// Frames that contradict the contract or the packet size that was agreed.
    pub frames_invalid: u64,
    /// Frames of messages over the contract.
    pub frames_over_contract: u64,
    /// Frames of messages for which there was no room.
    pub frames_full: u64,
    /// Duplicates, frames that were overtaken, and those that came after the end.
    pub frames_stale: u64,
}

impl RelayCounters {
    /// Messages that ended here: none of their packets was passed on, or some of them were dropped before this host saw them.
    pub fn dropped(&self) -> u64 {
        self.dropped_sender + self.dropped_full
    }
}

/// A packet that waits for the next link.
pub(crate) struct RelayPacket {
    pub(crate) frame: FrameId,
    pub(crate) payload: u32,
    pub(crate) sequence: u64,
    /// True for the last packet of its message.
    pub(crate) last: bool,
    /// The logical arrival here of its message (of its part, if that is oversize).
    pub(crate) release: Instant,
    /// From when on it may leave; not after `release` unless it came late.
    eligible: Instant,
    /// Until when it has to leave: release + d_link.
    pub(crate) deadline: Instant,
    /// The time at which it was found.
    found: Instant,
    /// The logical arrival at the sender.
    origin: Instant,
    /// The time that it waited at the hosts before, as they say.
    waited: Duration,
    /// The evidence of what held up it, or what deferred it.
    pub(crate) held_up: RelayHoldUp,
}

/// The evidence of what held a message up before it arrived here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayHoldUp {
    /// By how much it came later than its logical arrival here because the way took longer than granted.
    excess: Duration,
    /// The time that was taken from the hosts before, as they say.
    pub(crate) stolen: Duration,
    /// Since when it was on its way to here or waited here: a gap at this host since then may have delayed it.
    pub(crate) under_way: Instant,
}

impl RelayHoldUp {
    const NOTHING: Self = Self { excess: Duration::ZERO, stolen: Duration::ZERO, under_way: Instant::MAX };

    fn and(self, other: Self) -> Self {
        Self {
            excess: self.excess.max(other.excess),
            stolen: self.stolen.max(other.stolen),
            under_way: self.under_way.min(other.under_way),
        }
    }
}

/// The message whose packets are coming: the latest one.
struct CurrentMessage {
    sequence: u64,
    bytes: u32,
    /// The latest part that was seen.
    part: u32,
    /// Packets that have not come.
    missing: u32,
    eligible: Instant,
    release: Instant,
    /// The evidence of what held it up, as far as its packets have come. If messages before it came late and moved its deadline here, what held
    /// those up explains its lateness as well.
    held_up: RelayHoldUp,
    /// The reason why it is not passed on, if so.
    spoilt: Option<DropReason>,
}

/// One channel that passes through.
pub(crate) struct RelayedChannel {
    pub(crate) terms: ChannelTerms,
    passage: RelayGrant,
    policing: Option<ChannelPolicer>,
    current: Option<CurrentMessage>,
    /// One bit a packet of the current message: no more than the queue has room for.
    seen: Box<[u64]>,
    /// The packets that wait for the link; its frame quota is what they can be at most.
    pub(crate) packets: Ring<RelayPacket>,
    dropped_early: UnexplainedDrops,
    pub(crate) counters: RelayCounters,
}

impl RelayedChannel {
    /// A channel with room for `queue` packets, and for one message at least. Allocates all of it.
    pub(crate) fn new(terms: ChannelTerms, queue: u32) -> Self {
        let whole = packets(terms.service.max_message(), terms.packet.max(1));
        let whole = whole.saturating_mul(terms.oversize.clamp(1, limits::DECAY_FACTOR));
        let packets = Ring::with_capacity(whole.max(queue) as usize);
        Self {
            policing: None,
            current: None,
            seen: alloc::vec![0; packets.capacity().div_ceil(64)].into_boxed_slice(),
            packets,
            dropped_early: UnexplainedDrops::default(),
            counters: RelayCounters::default(),
            terms,
            passage: RelayGrant::default(),
        }
    }

    /// The waiting time of the packet that the next host is told, if it leaves at `now`: all of its time since the logical arrival
    /// at the sender but what is the network's fault. Where the clocks differ only the time here is known: the way before
    /// is taken for what it was granted.
    pub(crate) fn waited(&self, now: Instant, packet: &RelayPacket) -> Duration {
        match self.terms.same_clock {
            true => now.since(packet.origin).saturating_sub(packet.held_up.excess),
            false => packet.waited + self.passage.transit + now.since(packet.found),
        }
    }
    /// Packets that a message may have if the next host takes smaller ones than it was offered.
    pub(crate) fn most_packets(&self) -> u32 {
        let queue = u32::try_from(self.packets.capacity()).unwrap_or(u32::MAX);
        queue / self.terms.oversize.clamp(1, limits::DECAY_FACTOR)
    }
    /// Packets may come from `now` on.
    pub(crate) fn begin(&mut self, now: Instant, passage: RelayGrant) {
        self.passage = passage;
        self.policing = ChannelPolicer::new(&self.terms, passage.upstream, 0);
        if let Some(policing) = &mut self.policing {
            policing.begin_at(now);
        }
    }
    /// The frames that may arrive for it from `peer` with `key`, once it has begun.
    pub(crate) fn expected(&self, peer: SocketAddr, key: u64) -> ExpectedChannel {
        ExpectedChannel::of(&self.terms, self.passage.upstream + self.passage.input_delay, 1, (peer, key))
    }
    /// Notes that `packets` packets were dropped as over the contract before this host saw them.
    pub(crate) fn note_policed(&mut self, now: Instant, packets: u64) {
        self.counters.frames_over_contract = self.counters.frames_over_contract.saturating_add(packets);
        let most = u64::from(limits::MAX_QUEUED_MESSAGES) * self.packets.capacity() as u64;
        self.dropped_early.note(now, packets, most);
    }
    /// Message `next` begins: what is missing before it is the sender's fault, as far as packets were dropped as over its contract.
    fn count_missing(&mut self, now: Instant, next: u64) {
        self.dropped_early.forget_old(now);
        let missing =
            self.current.as_ref().filter(|current| current.spoilt.is_none()).map_or(0, |current| current.missing);
        let least = self.terms.service.min_message();
        let skipped = next.saturating_sub(self.next());
        let explained = self.dropped_early.explain(u64::from(missing > 0), missing.into())
            + self.dropped_early.explain(skipped, packets(least, self.terms.packet).into());
        self.counters.dropped_sender += explained;
    }
    /// The number of the message after the latest one: as many as its sender has sent, as far as is known here.
    pub(crate) fn next(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.sequence.saturating_add(1))
    }
    /// True if nothing more can come once the sender has sent `sent` messages.
    pub(crate) fn has_seen_all(&self, sent: u64) -> bool {
        let complete = |current: &CurrentMessage| current.missing == 0 || current.spoilt.is_some();
        self.next() >= sent && self.current.as_ref().is_none_or(complete)
    }

    /// The head packet, as the link scheduler sees it.
    pub(crate) fn head(&self) -> Option<PacketHead> {
        let packet = self.packets.front()?;
        Some(match self.terms.service {
            Service::RealTime(_) => PacketHead::RealTime { release: packet.eligible, deadline: packet.deadline },
            Service::BestEffort { .. } => PacketHead::BestEffort,
        })
    }

    /// Checks and polices a packet and queues it; the frame comes back with the reason if it is not taken. `held_up` tells
    /// how much a frame can have been delayed since a point in time because the platform took the processor of this host.
    pub(crate) fn accept(
        &mut self,
        found: FrameTimes,
        view: &DataView<'_>,
        frame: FrameId,
        held_up: impl FnOnce(Instant) -> Duration,
    ) -> Result<(), (FrameId, DropReason)> {
        match self.place(found, view) {
            Ok((eligible, release)) => {
                let packet = self.packet(found, view.header(), frame, (eligible, release), held_up);
                self.packets.push(packet).map_err(|packet| (packet.frame, DropReason::ReceiverFull))
            }
            Err(reason) => {
                self.refused(reason);
                Err((frame, reason))
            }
        }
    }

    /// Notes that a frame was not taken.
    pub(crate) fn refused(&mut self, reason: DropReason) {
        match reason {
            DropReason::Invalid => self.counters.frames_invalid += 1,
            DropReason::OverContract => self.counters.frames_over_contract += 1,
            DropReason::ReceiverFull => self.counters.frames_full += 1,
            DropReason::Stale => self.counters.frames_stale += 1,
        }
    }

    /// From when on the packet may leave, and what its deadline counts from.
    fn place(&mut self, found: FrameTimes, view: &DataView<'_>) -> Result<(Instant, Instant), DropReason> {
        let now = found.at;
        let (header, terms) = (view.header(), self.terms);
        if !terms.allow(header) {
            return Err(DropReason::Invalid);
        }
        match &self.current {
            Some(current) if header.sequence < current.sequence => return Err(DropReason::Stale),
            Some(current) if header.sequence == current.sequence => {
                if current.bytes != header.message_bytes {
                    return Err(DropReason::Invalid);
                }
            }
            _ => self.begin_message(found, header),
        }
        let (word, bit) = (usize::from(header.index) / 64, 1 << (header.index % 64));
        let part = terms.part(header.index);
        let (Some(current), Some(seen)) = (&mut self.current, self.seen.get_mut(word)) else {
            return Err(DropReason::Invalid);
        };
        if let Some(reason) = current.spoilt {
            return Err(reason);
        }
        if *seen & bit != 0 || part < current.part {
            return Err(DropReason::Stale);
        }
        *seen |= bit;
        (current.part, current.missing) = (part, current.missing - 1);
        let Some(policing) = &mut self.policing else { return Ok((now, now)) };
        // An oversize message counts as those of the contract that it takes the place of, an interval apart.
        let interval = terms.service.interval();
        let delay = interval * u64::from(part);
        if now > current.release + delay {
            current.release = now.before(delay);
            let intervals = terms.intervals(header.message_bytes);
            let behind = interval * u64::from(intervals);
            policing.not_before(current.release + behind, found.arrival().before(delay) + behind);
        }
        Ok((current.eligible + delay, current.release + delay))
    }

    /// A message's first packet to come: is there room, and does it keep the contract?
    fn begin_message(&mut self, found: FrameTimes, header: &DataHeader) {
        let now = found.at;
        let count = packets(header.message_bytes, self.terms.packet);
        self.count_missing(now, header.sequence);
        self.seen.fill(0);
        let mut current = CurrentMessage {
            sequence: header.sequence,
            bytes: header.message_bytes,
            part: 0,
            missing: count,
            eligible: now,
            release: now,
            held_up: RelayHoldUp::NOTHING,
            spoilt: None,
        };
        // First the room: a message that finds none must leave the regulator alone.
        if self.packets.capacity() - self.packets.len() < count as usize {
            current.spoilt = Some(DropReason::ReceiverFull);
        } else if let Some(policing) = &mut self.policing {
            let intervals = self.terms.intervals(header.message_bytes);
            let PolicedMessage { believed, eligible, release } = policing.take(found, header, intervals);
            (current.eligible, current.release) = (eligible, release);
            let deferred = release.since(eligible);
            if let Some(before) = self.current.as_ref().filter(|_| !deferred.is_zero()) {
                current.held_up = RelayHoldUp { excess: before.held_up.excess.min(deferred), ..before.held_up };
            }
            current.spoilt = believed.err().map(|drop| match drop {
                PolicingDrop::Contract => DropReason::OverContract,
                PolicingDrop::Backlog(_) => DropReason::ReceiverFull,
            });
        }
        self.counters.dropped_sender += u64::from(current.spoilt == Some(DropReason::OverContract));
        self.counters.dropped_full += u64::from(current.spoilt == Some(DropReason::ReceiverFull));
        self.current = Some(current);
    }

    fn packet(
        &mut self,
        found: FrameTimes,
        header: &DataHeader,
        frame: FrameId,
        (eligible, release): (Instant, Instant),
        stolen_here: impl FnOnce(Instant) -> Duration,
    ) -> RelayPacket {
        let Self { terms, passage, .. } = *self;
        let now = found.at;
        let waited = Duration::from_micros(header.waited_micros.into());
        let under_way = match terms.same_clock {
            true => (header.logical_arrival + waited).min(now),
            false => now.before(passage.transit),
        };
        // What the way took beyond its grant delays only what came after it was due here.
        let delay = terms.service.interval() * u64::from(terms.part(header.index));
        let late = now.since(header.logical_arrival + passage.upstream + delay);
        let excess = match (terms.same_clock, found.arrived) {
            (true, Some(_)) => {
                let granted = passage.transit.saturating_sub(passage.input_delay);
                found.arrival().since(under_way).saturating_sub(granted).min(late)
            }
            // It may have lain in this host's input.
            (true, None) => {
                let excess = now.since(under_way).saturating_sub(passage.transit).min(late);
                if excess.is_zero() { excess } else { excess.saturating_sub(stolen_here(under_way)) }
            }
            (false, _) => Duration::ZERO,
        };
        let stolen = of_stolen_units(header.stolen_units);
        let mut held_up = RelayHoldUp { excess, stolen, under_way };
        if let Some(current) = &mut self.current {
            held_up = held_up.and(current.held_up);
            current.held_up = held_up;
        }
        RelayPacket {
            frame,
            payload: header.payload.into(),
            sequence: header.sequence,
            last: u32::from(header.index) + 1 == packets(header.message_bytes, terms.packet),
            release,
            eligible,
            deadline: release + passage.stage,
            found: now,
            origin: header.logical_arrival,
            waited,
            held_up,
        }
    }

    /// Empties its queue; frames go back to the region.
    pub(crate) fn clear(&mut self, frames: &mut impl Frames) {
        while let Some(packet) = self.packets.pop() {
            frames.free(packet.frame);
        }
    }
}
