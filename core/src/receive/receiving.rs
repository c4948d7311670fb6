//! One receiving channel: policing, its packet queue, reassembly and its message queue [channels §3.1, Fig. 2b].
//!
//! Data from a peer is an allegation. Sizes and indices were checked against the wire format; here they are checked
//! against the contract, and the alleged logical arrival is confined to what an honest sender could allege. Memory is
//! bounded by the contract and allocated by [`ReceivingChannel::new`].
//!
//! Messages are delivered exact and in order. One that is overtaken by a complete later one is lost: an unreliable,
//! sequenced service [channels §2] delivers a fresh message rather than wait for a stale one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::attribution::{Delay, Evidence, FrameTimes, PacketSegments, TimeLoss};
use super::config::{DropReason, ReceiveCounters, ReceiveGrant};
use super::delivered::{DeliveredMessage, SenderStamps};
use super::early::{ExpectedChannel, HandledMessages, UnexplainedDrops};
use super::policing::{CREDIT, ChannelPolicer, PolicedMessage, PolicingDrop};
use super::slot::{AbandonedMessage, ArrivedPacket, Buffers, HoldUp, LostMessages, Slot, place};
use crate::cause::Cause;
use crate::clock::{PendingMessages, UNSURE_EPOCH};
use crate::collections::Ring;
use crate::contract::{ChannelTerms, Contract, Service, packets};
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::limits;
use crate::piece::{Piece, StepResult};
use crate::processor::{JobOrder, NextWork};
use crate::units::{Duration, Instant};
use crate::wire::{DATA_HEADER_BYTES, DataHeader, DataView};

mod judging;

pub use judging::{FinalJudgement, SenderClock};

/// The largest number of messages of a channel that wait for their judgement: those of four exchanges of stamps, at ten a second, and a burst.
fn unjudged(service: &Service) -> usize {
    const LEAST: u64 = 64;
    const MOST: u64 = 4096;
    const SPAN: Duration = Duration::from_millis(400);
    let of_contract =
        |contract: &Contract| SPAN.as_nanos() / contract.interval().as_nanos().max(1) + u64::from(contract.burst());
    service.contract().map_or(LEAST, |contract| of_contract(contract).clamp(LEAST, MOST)) as usize
}

/// One receiving channel.
pub struct ReceivingChannel {
    pub(crate) terms: ChannelTerms,
    pub(crate) grant: ReceiveGrant,
    policing: Option<ChannelPolicer>,
    held_up: HoldUp,
    /// Messages below this number have begun to arrive, or were overtaken.
    begun: u64,
    /// Messages from this number on have never had a slot.
    slotted: u64,
    /// The slot behind the last that was given: free, if messages are done in their order.
    after: u16,
    /// The packets that wait for the handler; its frame quota is what they can be at most.
    pub(crate) packets: Ring<ArrivedPacket>,
    /// Messages that were given up and of which packets wait.
    left: Vec<AbandonedMessage>,
    slots: Box<[Option<Slot>]>,
    /// One bit a fragment, `words` words a slot.
    seen: Box<[u64]>,
    words: usize,
    buffers: Buffers,
    complete: Ring<DeliveredMessage>,
    /// Messages that wait for their judgement, where the clocks differ.
    pending: Option<Box<PendingMessages>>,
    dropped_early: UnexplainedDrops,
    /// Messages that were delivered before this host saw them, as far as none has been missed for them.
    handled: u64,
    lost: LostMessages,
    /// The network took longer than it may for the last packet.
    is_delayed: bool,
    /// As [`Evidence::judge`] needs it.
    stretch_ppm: u64,
    /// The counters.
    pub counters: ReceiveCounters,
}

impl ReceivingChannel {
    /// A channel with room for `grant.messages` messages (under reassembly, complete, or with the application) and `grant.packets`
    /// packets waiting for its handler. Allocates all of it.
    pub fn new(terms: ChannelTerms, grant: ReceiveGrant) -> Self {
        let packet_queue = grant.packets.max(1) as usize;
        let messages = grant.messages.clamp(2, limits::MAX_QUEUED_MESSAGES) as usize;
        let slots = messages.min(limits::MAX_REASSEMBLIES as usize);
        let fragments = packets(terms.largest_message(), terms.packet) as usize;
        let reordered = slots as u64 * u64::from(terms.intervals(terms.largest_message()));
        let words = fragments.div_ceil(64);
        Self {
            policing: ChannelPolicer::new(&terms, grant.upstream, reordered),
            held_up: HoldUp::default(),
            begun: 0,
            slotted: 0,
            after: 0,
            packets: Ring::with_capacity(packet_queue),
            left: Vec::with_capacity(packet_queue),
            slots: (0..slots).map(|_| None).collect(),
            seen: alloc::vec![0; slots * words].into_boxed_slice(),
            words,
            buffers: Buffers {
                free: (0..messages).map(|_| MessageBuf::with_capacity(terms.largest_message() as usize)).collect(),
                least_free: messages,
                lent: 0,
            },
            complete: Ring::with_capacity(messages),
            pending: (!terms.same_clock).then(|| Box::new(PendingMessages::new(unjudged(&terms.service)))),
            dropped_early: UnexplainedDrops::default(),
            handled: 0,
            lost: LostMessages::default(),
            is_delayed: false,
            stretch_ppm: 1_000_000,
            counters: ReceiveCounters {
                clock_error: if terms.same_clock { Duration::ZERO } else { Duration::MAX },
                ..ReceiveCounters::default()
            },
            terms,
            grant,
        }
    }

    /// Tells that the channel is accepted at `now`: no message of it can have arrived at its sender before. `stretch_ppm` is the ratio of a
    /// message's delay to the time that the platform took at this host ([`crate::admission::Admission::stretch_ppm`]).
    pub fn begin_at(&mut self, now: Instant, stretch_ppm: u64) {
        self.stretch_ppm = stretch_ppm;
        if let Some(policing) = &mut self.policing {
            policing.begin_at(now);
        }
    }

    /// True if the network delayed the last packet for longer than it may; never for best effort.
    #[inline]
    pub(crate) fn is_delayed(&self) -> bool {
        self.is_delayed && !self.shares_frames()
    }
    /// True if nothing is kept for it, because what it carries is best effort: it shares frames with others of its kind.
    #[inline]
    pub(crate) fn shares_frames(&self) -> bool {
        !self.terms.service.is_real_time()
    }
    /// Messages with a buffer and packets that were here at most. As many buffers as places for complete messages.
    pub(crate) fn peaks(&self) -> (u32, u32) {
        ((self.complete.capacity() - self.buffers.least_free) as u32, self.packets.peak() as u32)
    }
    /// The frames that may arrive for the channel from `peer` with `key`: nothing that [`accept`](Self::accept) would take is beyond it.
    pub fn expected(&self, peer: SocketAddr, key: u64) -> ExpectedChannel {
        ExpectedChannel::of(&self.terms, self.grant.upstream + self.grant.input_delay, self.slots.len(), (peer, key))
    }
    /// Notes that `dropped` packets were dropped as over the contract before this host saw them. Messages that miss some of them are the
    /// sender's fault.
    pub fn note_policed(&mut self, now: Instant, dropped: u64) {
        self.counters.frames_over_contract = self.counters.frames_over_contract.saturating_add(dropped);
        let largest = packets(self.terms.largest_message(), self.terms.packet);
        let most = u64::from(limits::MAX_QUEUED_MESSAGES) * u64::from(largest);
        self.dropped_early.note(now, dropped, most);
    }
    /// Notes messages that an application's handler was done with before this host saw them.
    pub fn note_handled(&mut self, handled: &HandledMessages) {
        let HandledMessages { messages, bytes, late, largest } = *handled;
        self.handled += messages;
        let c = &mut self.counters;
        c.delivered += messages;
        c.delivered_bytes += bytes;
        c.late += late;
        // Why they were late is not known.
        c.misses.unexplained += late;
        c.largest = c.largest.max(largest);
        if !self.terms.same_clock && self.terms.service.is_real_time() {
            self.counters.undecided += messages;
        }
    }
    /// True if no packet waits for the handler and no message for the application.
    pub fn is_drained(&self) -> bool {
        self.packets.is_empty() && self.complete.is_empty()
    }

    /// Checks a packet against the contract and queues it, if fewer than `most` wait; the frame comes back with the reason if it is
    /// not taken. `taken` gives the time taken at this host since a point in time.
    pub fn accept(
        &mut self,
        found: FrameTimes,
        view: &DataView<'_>,
        frame: FrameId,
        most: usize,
        taken: impl Fn(Instant) -> TimeLoss,
    ) -> Result<(), (FrameId, DropReason)> {
        self.dropped_early.forget_old(found.at);
        match self.find_slot(found, view, &taken) {
            Ok(slot) => {
                let header = view.header();
                let (sequence, index, payload) = (header.sequence, header.index, header.payload);
                let arrived = ArrivedPacket { frame, slot, sequence, index, payload };
                // In front of later messages, which may have to wait for their logical arrival: the queue is in the order of messages.
                let behind = self.packets.newest(|other| other.sequence > sequence);
                let queued =
                    if self.packets.len() < most { self.packets.insert(arrived, behind) } else { Err(arrived) };
                match queued {
                    // Noted at once: copies must not take the places of packets that are still to come.
                    Ok(()) => {
                        self.note_seen(usize::from(slot), index);
                        if let Some(slot) = &mut self.slots[usize::from(slot)] {
                            slot.waiting += 1;
                        }
                        Ok(())
                    }
                    Err(arrived) => {
                        let delay = self.slots[usize::from(slot)].as_ref().map(|slot| (slot.delay, slot.since));
                        let cause = self.owner_of_backlog(delay.unwrap_or_default(), &taken);
                        self.spoil(slot, cause);
                        self.counters.frames_receiver_full += 1;
                        Err((arrived.frame, DropReason::ReceiverFull))
                    }
                }
            }
            Err(reason) => {
                match reason {
                    DropReason::Invalid => self.counters.frames_invalid += 1,
                    DropReason::OverContract => self.counters.frames_over_contract += 1,
                    DropReason::ReceiverFull => self.counters.frames_receiver_full += 1,
                    DropReason::Stale => self.counters.frames_stale += 1,
                }
                Err((frame, reason))
            }
        }
    }

    fn find_slot(
        &mut self,
        found: FrameTimes,
        view: &DataView<'_>,
        taken: &impl Fn(Instant) -> TimeLoss,
    ) -> Result<u16, DropReason> {
        let header = view.header();
        if !self.terms.allow(header) {
            return Err(DropReason::Invalid);
        }
        if header.sequence < self.counters.next {
            return Err(DropReason::Stale);
        }
        // Most messages are newer than all that have a slot.
        let is_for = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.sequence == header.sequence);
        if header.sequence < self.slotted
            && let Some(number) = self.slots.iter().position(is_for)
        {
            let slot = self.slots[number].as_mut().expect("it was just found");
            let way = PacketSegments::of(found, header, self.terms.same_clock);
            self.is_delayed = way.is_delayed(&self.grant);
            slot.delay.way.follow(way);
            if slot.sequence == self.held_up.sequence {
                self.held_up = HoldUp::by(slot);
            }
            if slot.message_bytes != header.message_bytes {
                return Err(DropReason::Invalid);
            }
            // A message of which the packets are of two epochs is of none.
            if let Some(stamps) = slot.stamps.as_mut().filter(|stamps| stamps.epoch != header.epoch) {
                stamps.epoch |= UNSURE_EPOCH;
            }
            let spoilt = slot.spoilt;
            return match spoilt {
                None if self.is_seen(number, header.index) => Err(DropReason::Stale),
                None => {
                    self.arrives_anew(number, found, header.index);
                    Ok(number as u16)
                }
                Some(Cause::Sender) => Err(DropReason::OverContract),
                Some(_) => Err(DropReason::ReceiverFull),
            };
        }
        self.begin(found, header, taken)
    }

    /// The cause for which this host has no room for a message within its contract that was delayed so, since then.
    fn owner_of_backlog(&self, (delay, since): (Delay, Instant), taken: impl Fn(Instant) -> TimeLoss) -> Cause {
        // What the application has not given back lacks; beyond half of it no other cause is looked for.
        let reads_late = self.buffers.lent * 2 >= self.complete.capacity();
        if reads_late || self.shares_frames() {
            return Cause::Receiver;
        }
        let taken = taken(since);
        let excess = delay.excess(&self.grant, Duration::ZERO, self.stretch_ppm);
        if let Some(cause) = Evidence::of_backlog(excess, taken, self.stretch_ppm) {
            return cause;
        }
        // No component was held up. Packets that do not come keep most messages from being complete; or, where the clocks differ, messages that
        // come faster than they were sent cannot be told from such that were sent so.
        let lacks = |slot: &&Slot| slot.spoilt.is_none() && slot.waiting < slot.remaining;
        let occupied = self.slots.iter().flatten();
        match (occupied.clone().filter(lacks).count() * 2 > occupied.count(), self.terms.same_clock) {
            (true, _) => Cause::Network,
            (false, true) => Cause::Laxity,
            (false, false) => Cause::Sender,
        }
    }

    /// A message's first packet to arrive: its logical arrival here, and a slot for it.
    fn begin(
        &mut self,
        found: FrameTimes,
        header: &DataHeader,
        taken: &impl Fn(Instant) -> TimeLoss,
    ) -> Result<u16, DropReason> {
        let now = found.at;
        let intervals = self.terms.intervals(header.message_bytes);
        if self.policing.as_ref().is_some_and(|policing| !policing.has_place(header, intervals)) {
            return Err(DropReason::Stale);
        }
        // First the place: a packet that finds none must leave the regulator alone.
        let number = place(&self.slots, self.after.into()).ok_or(DropReason::Invalid)?;
        if self.slots[number].as_ref().is_some_and(|slot| slot.sequence > header.sequence) {
            return Err(DropReason::Stale);
        }
        let mut spoilt = None;
        let (mut eligible, mut release, mut deferred) = (now, now, Duration::ZERO);
        let mut logical_arrival = if self.terms.same_clock { header.logical_arrival } else { now };
        let mut delay = Delay { way: PacketSegments::of(found, header, self.terms.same_clock), ..Delay::default() };
        self.is_delayed = delay.way.is_delayed(&self.grant);
        let mut since = if self.terms.same_clock { logical_arrival } else { found.arrival() };
        if let Some(policing) = &mut self.policing {
            let policed = policing.take(found, header, intervals);
            PolicedMessage { eligible, release, .. } = policed;
            deferred = release.since(eligible);
            let waits = release.since(if self.terms.same_clock { eligible } else { now });
            if !waits.is_zero() {
                // It waits for those before it: what held them up is why.
                let before = self.held_up.delay.excess(&self.grant, Duration::ZERO, self.stretch_ppm);
                delay.inherit(before, waits, &self.grant, self.stretch_ppm);
                if !self.terms.same_clock {
                    let ahead = self.terms.ahead(header, header.logical_arrival);
                    delay.held = waits.saturating_sub(delay.way.early(ahead));
                }
                since = since.min(self.held_up.since);
            }
            match policed.believed {
                Ok(arrival) => {
                    self.begun = self.begun.max(header.sequence.saturating_add(1));
                    logical_arrival = arrival;
                }
                Err(PolicingDrop::Backlog(by)) if by > self.grant.input_delay => {
                    spoilt = Some(self.owner_of_backlog((delay, since), taken));
                }
                // What is older than is believed, or comes in a bunch, has no place: by its sender's fault, unless it was on its way for so long.
                Err(_) => {
                    let explains = if self.terms.same_clock { CREDIT } else { Duration::ZERO };
                    let is_delayed = delay.excess(&self.grant, Duration::ZERO, self.stretch_ppm).network > explains;
                    spoilt = Some(if is_delayed { Cause::Network } else { Cause::Sender });
                }
            }
        }
        if let Some(slot) = &self.slots[number] {
            let (sequence, delay, is_all_here) =
                (slot.sequence, (slot.delay, slot.since), slot.waiting >= slot.remaining);
            // All of it has come: it makes room for what breaks the contract, or this host has not got round to it.
            if is_all_here {
                let cause = spoilt.unwrap_or_else(|| self.owner_of_backlog(delay, taken));
                self.spoil(number as u16, cause);
            }
            self.give_up_to(sequence.saturating_add(1));
        }
        let buffer = if spoilt.is_none() { self.buffers.take() } else { None };
        if spoilt.is_none() && buffer.is_none() {
            spoilt = Some(self.owner_of_backlog((delay, since), taken));
        }
        self.seen[number * self.words..][..self.words].fill(0);
        let mut slot = Slot {
            sequence: header.sequence,
            logical_arrival,
            ahead: if self.terms.same_clock { self.terms.ahead(header, logical_arrival) } else { Duration::ZERO },
            stamps: (!self.terms.same_clock).then(|| SenderStamps {
                logical_arrival: header.logical_arrival,
                ahead: self.terms.ahead(header, header.logical_arrival),
                epoch: header.epoch,
            }),
            eligible,
            release,
            message_bytes: header.message_bytes,
            remaining: packets(header.message_bytes, self.terms.packet),
            waiting: 0,
            delay,
            deferred,
            since,
            buffer,
            spoilt,
        };
        if header.sequence.saturating_add(1) < self.begun {
            // It was overtaken, and takes the place behind those that it should have come before. They wait for it, too: who
            // overtakes gets no second place. All that is the way's doing.
            slot.delay.overtaken(deferred);
            for later in self.slots.iter_mut().flatten().filter(|later| later.sequence > header.sequence) {
                later.delay.overtaken(release.since(later.release));
            }
            // Those to come wait for it as well.
            self.held_up
                .delay
                .overtaken(release.since(eligible) + self.terms.service.interval() * u64::from(intervals));
        } else {
            self.held_up = HoldUp::by(&slot);
        }
        self.slotted = self.slotted.max(header.sequence.saturating_add(1));
        self.slots[number] = Some(slot);
        self.after = ((number + 1) % self.slots.len()) as u16;
        match spoilt {
            None => Ok(number as u16),
            Some(Cause::Sender) => Err(DropReason::OverContract),
            Some(_) => Err(DropReason::ReceiverFull),
        }
    }

    /// Another packet of a message was found, later than all of them had to be found, as far as was known. What is left to do
    /// cannot have been due before it was there: the message arrives with it, and those behind it an interval later each, so
    /// that what is due here stays what was admitted. When the message itself is late does not change, if the clock is the same.
    ///
    /// If the clocks differ this host does not know when packets had to be found at the latest, until the last one has been. For
    /// an honest sender that is never after what was admitted, because there its messages are an interval apart.
    fn arrives_anew(&mut self, number: usize, found: FrameTimes, index: u16) {
        let (Some(late), Some(contract)) = (&self.slots[number], self.terms.service.contract()) else { return };
        // The parts of an oversize message follow each other an interval apart.
        let before = contract.interval() * u64::from(self.terms.part(index));
        let (now, arrived) = (found.at.before(before), found.arrival().before(before));
        if now <= late.release {
            return;
        }
        let (sequence, same_clock) = (late.sequence, self.terms.same_clock);
        let intervals = self.terms.intervals(late.message_bytes);
        if let Some(late) = &mut self.slots[number] {
            late.release = now;
            // It is no longer those before it that decide on its place.
            late.delay.is_behind = false;
            if !same_clock {
                (late.eligible, late.logical_arrival) = (now, now);
            }
        }
        self.keep_apart((now, arrived), sequence, intervals);
    }

    /// Message `before` arrives logically at `release`, later than those that have begun behind it counted on: they arrive
    /// logically an interval later each. All of it had come at `arrived`.
    fn keep_apart(&mut self, (release, arrived): (Instant, Instant), before: u64, intervals: u32) {
        let (Some(contract), Some(policing)) = (self.terms.service.contract(), &mut self.policing) else { return };
        let behind = |sequence: u64| {
            let messages = sequence.saturating_sub(before).saturating_sub(1);
            contract.interval() * u64::from(intervals).saturating_add(messages)
        };
        let earliest = |sequence: u64| release + behind(sequence);
        if self.begun > before {
            policing.not_before(earliest(self.begun), arrived + behind(self.begun));
        }
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.sequence > before) {
            let earliest = earliest(slot.sequence);
            if earliest <= slot.release {
                continue;
            }
            if self.terms.same_clock {
                let by = earliest.since(slot.release);
                slot.deferred += by;
                // It has overtaken a packet of that one.
                slot.delay.overtaken(by);
            } else {
                (slot.eligible, slot.logical_arrival) = (earliest, earliest);
            }
            slot.release = earliest;
        }
    }

    fn spoil(&mut self, slot: u16, cause: Cause) {
        if let Some(slot) = &mut self.slots[slot as usize] {
            slot.spoilt.get_or_insert(cause);
            if let Some(buffer) = slot.buffer.take() {
                self.buffers.free.push(buffer);
            }
        }
    }

    /// Gives up every message below `next` that was not delivered, and counts each once by its cause.
    fn give_up_to(&mut self, next: u64) {
        // None below has a slot.
        if next <= self.counters.next {
            return;
        }
        let mut missing = next.saturating_sub(self.counters.next);
        for number in 0..self.slots.len() {
            if self.slots[number].as_ref().is_none_or(|slot| slot.sequence >= next) {
                continue;
            }
            let Some(slot) = self.slots[number].take() else { continue };
            missing = missing.saturating_sub(1);
            if slot.waiting > 0 {
                // No more messages than packets, so that there is room.
                let Slot { sequence, eligible, release, .. } = slot;
                self.left.push(AbandonedMessage { sequence, eligible, release });
            }
            match slot.spoilt {
                Some(cause) => {
                    self.counters.dropped += 1;
                    *self.counters.misses.of(cause) += 1;
                }
                None => self.count_missing(1, slot.remaining.saturating_sub(slot.waiting)),
            }
            self.buffers.free.extend(slot.buffer);
        }
        // Of a message that was never seen it is only known that it has at least as many packets as the smallest.
        let least = self.terms.service.min_message();
        self.count_missing(missing, packets(least, self.terms.packet));
        self.counters.next = self.counters.next.max(next);
    }

    /// Counts messages of which `packets` each are missing: by the sender's fault, as far as packets were dropped as over its
    /// contract, and else as lost: by the network, unless another host's counters explain it ([`explain_lost`](Self::explain_lost)).
    fn count_missing(&mut self, messages: u64, packets: u32) {
        let (messages, known) = (messages.saturating_sub(self.handled), messages.min(self.handled));
        self.handled -= known;
        let explained = self.dropped_early.explain(messages, u64::from(packets));
        let lost = messages - explained;
        self.counters.dropped += explained;
        self.counters.misses.sender += explained;
        self.counters.lost += lost;
        let unsent = lost.min(self.lost.unsent);
        self.lost.unsent -= unsent;
        self.counters.misses.laxity += unsent;
        self.counters.misses.network += lost - unsent;
        self.lost.fresh += lost - unsent;
        self.lost.by_network += lost - unsent;
    }

    /// Messages that were found to be lost since this was last called, as it seems by the network, may be among what this host lost itself.
    #[inline]
    pub(crate) fn explain_lost_by_host(&mut self, now: Instant, (lost, cause): &mut (UnexplainedDrops, Cause)) {
        let messages = core::mem::take(&mut self.lost.fresh);
        if messages > 0 {
            lost.forget_old(now);
            self.explain_lost(lost.explain(messages, 1), *cause);
        }
    }

    /// A counter of the sender's or of this host explains that so many messages are lost that seemed to be lost in transit.
    #[cold]
    fn explain_lost(&mut self, messages: u64, cause: Cause) {
        let messages = messages.min(self.lost.by_network);
        self.lost.by_network -= messages;
        self.counters.misses.network -= messages;
        *self.counters.misses.of(cause) += messages;
    }

    /// The sender says that so many packets in all were made at its host and never sent, of whatever channel: each explains a message.
    pub(crate) fn note_unsent(&mut self, unsent: u64) {
        let more = unsent.saturating_sub(self.lost.told);
        self.lost.told = self.lost.told.max(unsent);
        let explained = more.min(self.lost.by_network);
        self.explain_lost(explained, Cause::Laxity);
        self.lost.unsent = self.lost.unsent.saturating_add(more - explained);
    }

    fn is_seen(&self, slot: usize, index: u16) -> bool {
        self.seen[slot * self.words + usize::from(index) / 64] & (1 << (index % 64)) != 0
    }

    fn note_seen(&mut self, slot: usize, index: u16) {
        self.seen[slot * self.words + usize::from(index) / 64] |= 1 << (index % 64);
    }

    /// The next work of the handler, `block` packets at a time.
    pub fn work(&self, block: u32) -> Option<NextWork> {
        let head = self.packets.front()?;
        let slot = self.slots[head.slot as usize].as_ref().filter(|slot| slot.sequence == head.sequence);
        // An oversize message counts as those of the contract that it takes the place of, an interval apart.
        let part = self.terms.part(head.index);
        let delay = self.terms.service.interval() * u64::from(part);
        // The rest of a message that was given up keeps its claim, which its cost was counted for: with a later one it would be
        // in the way of the message behind it. Nor may it hold that one up, so it has the earlier claim of the two.
        let left =
            || self.left.iter().find(|left| left.sequence == head.sequence).map(|left| (left.eligible, left.release));
        let first =
            || self.slots.iter().flatten().map(|slot| (slot.eligible, slot.release)).min_by_key(|claim| claim.1);
        let claim = match slot {
            Some(slot) => Some((slot.eligible + delay, slot.release + delay)),
            None => left().into_iter().chain(first()).min_by_key(|claim| claim.1),
        };
        let order = match (self.terms.service, claim) {
            (Service::RealTime(_), Some((eligible, release))) => JobOrder::RealTime {
                release: eligible,
                deadline: release + self.grant.stage,
                priority: self.grant.priority,
                work_conserving: self.grant.work_conserving,
            },
            _ => JobOrder::BestEffort,
        };
        Some(NextWork { order, block })
    }

    /// Copies one packet to its place and frees its frame. `None` if there is none.
    pub fn step(&mut self, frames: &mut impl Frames) -> Option<StepResult> {
        let ArrivedPacket { frame, slot: number, sequence, index, payload } = self.packets.pop()?;
        let (mut bytes, mut completed) = (0, false);
        let next = self.packets.front().filter(|next| next.sequence == sequence);
        let number = usize::from(number);
        if let Some(slot) = self.slots[number].as_mut().filter(|slot| slot.sequence == sequence) {
            slot.waiting -= 1;
            if let Some(buffer) = &mut slot.buffer {
                buffer.set_len(slot.message_bytes as usize);
                let start = usize::from(index) * self.terms.packet as usize;
                let payload = &frames.packet(&frame)[DATA_HEADER_BYTES..][..usize::from(payload)];
                buffer[start..start + payload.len()].copy_from_slice(payload);
                bytes = payload.len() as u32;
                slot.remaining -= 1;
                completed = slot.remaining == 0;
            }
        } else {
            self.counters.frames_stale += 1;
            self.left.retain(|left| left.sequence != sequence || next.is_some());
        }
        frames.free(frame);
        let part = |index| self.terms.part(index);
        let part_end = completed || next.is_none_or(|next| part(next.index) != part(index));
        if completed {
            self.complete_message(number);
        }
        let piece = if completed { Piece::Deliver } else { Piece::Reassemble };
        Some(StepResult { piece, bytes, part_end, spent: None })
    }

    fn complete_message(&mut self, number: usize) {
        let Some(slot) = self.slots[number].take() else { return };
        let Some(message) = slot.buffer else { return };
        self.give_up_to(slot.sequence);
        self.counters.next = slot.sequence.saturating_add(1);
        let contract = self.terms.service.contract();
        let extra = self.terms.service.interval() * u64::from(self.terms.intervals(slot.message_bytes) - 1);
        let deadline = contract.map(|contract| match self.terms.same_clock {
            true => slot.logical_arrival + contract.deadline() + extra,
            false => slot.release + self.grant.stage,
        });
        let delivered = DeliveredMessage {
            message,
            sequence: slot.sequence,
            logical_arrival: slot.logical_arrival,
            ahead: slot.ahead,
            stamps: slot.stamps,
            allowed: contract.map(|contract| contract.deadline() + extra),
            least: Duration::ZERO,
            completion: Instant::MAX,
            deadline,
            deferred: slot.deferred,
            since: slot.since,
            due_here: slot.release + self.grant.stage + extra,
            delay: slot.delay,
        };
        self.complete.push(delivered).unwrap_or_else(|_| unreachable!("as many places as buffers"));
    }

    /// True if nothing more can come or waits once the sender has sent `sent` messages.
    pub(crate) fn is_through(&self, sent: u64) -> bool {
        let c = &self.counters;
        // A peer's numbers, where its messages are handled in the kernel: they end wherever it likes.
        self.is_drained() && c.delivered.saturating_add(c.lost).saturating_add(c.dropped) >= sent
    }

    /// True if a message waits for the application.
    pub fn has_delivery(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Takes a buffer back from the application; only as many as it was lent, and none that is too small.
    pub fn recycle(&mut self, message: MessageBuf) {
        if message.capacity() >= self.terms.largest_message() as usize && self.buffers.lent > 0 {
            self.buffers.lent -= 1;
            self.buffers.free.push(message);
        }
    }

    /// Tells that the sender sent `sent` messages in all: those that have not come by now were lost.
    pub fn finish(&mut self, sent: u64) {
        // The number is an allegation too: count at most what a channel can have had under way.
        let most =
            self.counters.next.saturating_add(u64::from(limits::MAX_QUEUED_MESSAGES)).saturating_add(self.handled);
        self.give_up_to(sent.min(most));
    }

    /// Empties everything; frames go back to the region.
    pub fn clear(&mut self, frames: &mut impl Frames) {
        while let Some(arrived) = self.packets.pop() {
            frames.free(arrived.frame);
        }
        self.left.clear();
    }
}
