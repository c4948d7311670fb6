//! One receiving channel: policing, its packet queue, reassembly and its message queue [channels §3.1, Fig. 2b].
//!
//! What a peer sends is an allegation. Sizes and indices were checked against the wire format; here they are checked
//! against the contract, and the alleged logical arrival is confined to what an honest sender could allege. Memory is
//! bounded by the contract and allocated by [`Receiving::new`].
//!
//! Messages are delivered exact and in order. One that is overtaken by a complete later one is lost: an unreliable,
//! sequenced service [channels §2] delivers a fresh message rather than wait for a stale one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::attribution::{Cause, Evidence};
use super::delivered::Delivered;
use super::early::{DroppedEarly, Expected, Taken};
use super::policing::{Policed, Policing};
use super::slot::{HeldUp, Left, Slot, is_for, is_newer};
use crate::collections::Ring;
use crate::contract::{Service, packets};
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::limits;
use crate::piece::{Piece, Worked};
use crate::processor::{Order, Work};
use crate::units::{Duration, Instant};
use crate::wire::{Counts, DATA_HEADER_BYTES, DataHeader, DataView};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How a receiving channel is set up.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveConfig {
    /// What it is served as.
    pub service: Service,
    /// S: the packet payload that both sides agreed on, bytes.
    pub packet: u32,
    /// The level under the fixed-priority policy.
    pub priority: u8,
    /// Whether the handler may process a message before its logical arrival here.
    pub work_conserving: bool,
    /// d_rx: from the logical arrival here to delivery.
    pub stage: Duration,
    /// How long a frame may wait here until it is found ([`crate::admission::Admission::input_delay`]); part of `upstream`.
    pub input_delay: Duration,
    /// From the logical arrival at the sender to the logical arrival here: the sender's stages and the network path.
    pub upstream: Duration,
    /// True if the sender's clock is ours.
    pub same_clock: bool,
    /// How long a packet may take from the hand-over to the sender's link until it is found here: look-ahead, transmission,
    /// propagation, clock error, and the wait in the socket. Beyond it the network is to blame.
    pub transit: Duration,
    /// How many times `max_message` a message may have: more than 1 if the sender's overload policy is `decay`.
    pub oversize: u32,
}

impl ReceiveConfig {
    /// The largest message that may come, bytes.
    pub fn largest_message(&self) -> u32 {
        self.service.largest_message(self.oversize)
    }

    /// How many intervals a message of `bytes` uses up: its packets in proportion to the contract's.
    fn intervals(&self, bytes: u32) -> u32 {
        self.service.intervals(bytes, self.packet)
    }

    /// Which part of an oversize message the packet `index` is of; 0 within the contract's size.
    fn part(&self, index: u16) -> u32 {
        u32::from(index) / packets(self.service.max_message(), self.packet)
    }
}

/// Why a frame of this channel was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The header contradicts the contract, or the packet size that was agreed.
    Invalid,
    /// More, or earlier, than the contract allows: the sender broke it.
    OverContract,
    /// The packet queue or the message queue was full: the receiver was too slow.
    ReceiverFull,
    /// A packet that was received before, or of a message that is over.
    Stale,
}

/// What happened to the channel's messages at the receiver. Words of 64 bits, so that they can be published one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct ReceiveCounters {
    /// Delivered to the application, in time or late.
    pub delivered: u64,
    /// Of these, after the deadline.
    pub late: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Never complete, because packets were lost in transit.
    pub lost: u64,
    /// Dropped because the receiver's queue was full.
    pub dropped_receiver: u64,
    /// Dropped because the sender broke its contract.
    pub dropped_sender: u64,
    /// Frames that were not taken, by reason.
    pub frames_invalid: u64,
    /// Frames over the contract.
    pub frames_over_contract: u64,
    /// Frames that found a queue full.
    pub frames_receiver_full: u64,
    /// Frames that were duplicates or too late to be of use.
    pub frames_stale: u64,
    /// Late messages by cause: network, platform, laxity.
    pub late_network: u64,
    /// Late, and the platform's excess explains it.
    pub late_platform: u64,
    /// Late without another cause.
    pub late_laxity: u64,
    /// The largest latency of a delivered message.
    pub largest: Duration,
}

#[derive(Debug)]
struct Arrived {
    frame: FrameId,
    slot: u16,
    sequence: u64,
    index: u16,
    payload: u16,
}

/// The buffers of a channel's messages.
#[derive(Debug)]
struct Buffers {
    free: Vec<MessageBuf>,
    /// How few were free at least.
    least_free: usize,
    /// Buffers that the application has.
    lent: usize,
}

impl Buffers {
    fn take(&mut self) -> Option<MessageBuf> {
        let buffer = self.free.pop();
        self.least_free = self.least_free.min(self.free.len());
        buffer
    }
}

/// One receiving channel.
#[derive(Debug)]
pub struct Receiving {
    config: ReceiveConfig,
    policing: Option<Policing>,
    held_up: HeldUp,
    /// Messages below this number have begun to arrive, or were overtaken.
    begun: u64,
    packets: Ring<Arrived>,
    /// Messages that were given up and of which packets wait.
    left: Vec<Left>,
    slots: Box<[Option<Slot>]>,
    /// One bit a fragment, `words` words a slot.
    seen: Box<[u64]>,
    words: usize,
    buffers: Buffers,
    complete: Ring<Delivered>,
    /// The least sequence that may still be delivered.
    next: u64,
    dropped_early: DroppedEarly,
    /// What happened.
    pub counters: ReceiveCounters,
}

impl Receiving {
    /// A channel with room for `messages` messages (under reassembly, complete, or with the application) and `packets`
    /// packets waiting for its handler. Allocates all of it.
    pub fn new(config: ReceiveConfig, messages: u32, packet_queue: u32) -> Self {
        let messages = messages.clamp(2, limits::MAX_QUEUED_MESSAGES) as usize;
        let slots = messages.min(limits::MAX_REASSEMBLIES as usize);
        let fragments = packets(config.largest_message(), config.packet) as usize;
        let reordered = slots as u64 * u64::from(config.intervals(config.largest_message()));
        let words = fragments.div_ceil(64);
        Self {
            policing: config
                .service
                .contract()
                .map(|contract| Policing::new(*contract, config.upstream, config.same_clock, reordered)),
            held_up: HeldUp::default(),
            begun: 0,
            packets: Ring::with_capacity(packet_queue.max(1) as usize),
            left: Vec::with_capacity(packet_queue.max(1) as usize),
            slots: (0..slots).map(|_| None).collect(),
            seen: alloc::vec![0; slots * words].into_boxed_slice(),
            words,
            buffers: Buffers {
                free: (0..messages).map(|_| MessageBuf::with_capacity(config.largest_message() as usize)).collect(),
                least_free: messages,
                lent: 0,
            },
            complete: Ring::with_capacity(messages),
            next: 0,
            dropped_early: DroppedEarly::default(),
            counters: ReceiveCounters::default(),
            config,
        }
    }

    /// The channel is accepted at `now`: no message of it can have arrived at its sender before.
    pub fn begin_at(&mut self, now: Instant) {
        if let Some(policing) = &mut self.policing {
            policing.begin_at(now);
        }
    }

    /// How it was set up.
    pub fn config(&self) -> &ReceiveConfig {
        &self.config
    }
    /// Frames that its packet queue can hold: its quota.
    pub fn frame_quota(&self) -> usize {
        self.packets.capacity()
    }
    /// True if nothing is kept for it, because what it carries is best effort: it shares frames with others of its kind.
    #[inline]
    pub(crate) fn shares_frames(&self) -> bool {
        matches!(self.config.service, Service::BestEffort { .. })
    }
    /// Packets that wait for the handler.
    pub(crate) fn waiting(&self) -> usize {
        self.packets.len()
    }
    /// Messages with a buffer and packets that were here at most. As many buffers as places for complete messages.
    pub(crate) fn peaks(&self) -> (u32, u32) {
        ((self.complete.capacity() - self.buffers.least_free) as u32, self.packets.peak() as u32)
    }
    /// What may arrive for the channel from `peer` with `key`: nothing that [`accept`](Self::accept) would take is beyond it.
    pub fn expected(&self, peer: SocketAddr, key: u64) -> Expected {
        let ReceiveConfig { service, packet, oversize, upstream, input_delay, .. } = &self.config;
        let (packet, oversize, upstream, input_delay) = (*packet, *oversize, *upstream, *input_delay);
        Taken { service, packet, oversize, upstream, input_delay, messages: self.slots.len() }.expected(peer, key)
    }
    /// Notes that `packets` packets were dropped as over the contract before this host saw them. What they leave missing is the
    /// sender's fault.
    pub fn note_policed(&mut self, now: Instant, packets: u64) {
        self.counters.frames_over_contract = self.counters.frames_over_contract.saturating_add(packets);
        let most = u64::from(limits::MAX_QUEUED_MESSAGES) * u64::from(self.most_packets());
        self.dropped_early.note(now, packets, most);
    }
    /// Packets of the largest message.
    fn most_packets(&self) -> u32 {
        packets(self.config.largest_message(), self.config.packet)
    }
    /// True if no packet waits for the handler and no message for the application.
    pub fn is_drained(&self) -> bool {
        self.packets.is_empty() && self.complete.is_empty()
    }

    /// Checks a packet against the contract and queues it, if fewer than `most` wait; the frame comes back with the reason if it is
    /// not taken.
    pub fn accept(
        &mut self,
        now: Instant,
        view: &DataView<'_>,
        frame: FrameId,
        most: usize,
    ) -> Result<(), (FrameId, Drop)> {
        self.dropped_early.forget_old(now);
        match self.find_slot(now, view) {
            Ok(slot) => {
                let header = view.header();
                let (sequence, index, payload) = (header.sequence, header.index, header.payload);
                let arrived = Arrived { frame, slot, sequence, index, payload };
                // In front of later messages, which may have to wait for their logical arrival.
                let behind = self.packets.iter().rev().take_while(|other| other.sequence > sequence).count();
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
                        self.spoil(slot, Cause::Receiver);
                        self.counters.frames_receiver_full += 1;
                        Err((arrived.frame, Drop::ReceiverFull))
                    }
                }
            }
            Err(reason) => {
                match reason {
                    Drop::Invalid => self.counters.frames_invalid += 1,
                    Drop::OverContract => self.counters.frames_over_contract += 1,
                    Drop::ReceiverFull => self.counters.frames_receiver_full += 1,
                    Drop::Stale => self.counters.frames_stale += 1,
                }
                Err((frame, reason))
            }
        }
    }

    fn find_slot(&mut self, now: Instant, view: &DataView<'_>) -> Result<u16, Drop> {
        let header = view.header();
        let max = self.config.largest_message();
        let least = self.config.service.contract().map_or(1, |contract| contract.min_message());
        // The last number of all has no successor; nobody gets there by counting.
        let impossible = header.message_bytes > max || header.message_bytes < least || header.sequence == u64::MAX;
        if impossible || view.check(self.config.packet).is_err() {
            return Err(Drop::Invalid);
        }
        if header.sequence < self.next {
            return Err(Drop::Stale);
        }
        if let Some(number) = self.slots.iter().position(|slot| is_for(slot, header.sequence)) {
            let slot = self.slots[number].as_mut().expect("it was just found");
            slot.stolen_micros = slot.stolen_micros.max(header.stolen_micros);
            slot.transit_excess = slot.transit_excess.max(transit_excess(&self.config, now, header));
            if slot.sequence == self.held_up.sequence {
                self.held_up = HeldUp::of(slot);
            }
            if slot.message_bytes != header.message_bytes {
                return Err(Drop::Invalid);
            }
            let spoilt = slot.spoilt;
            return match spoilt {
                None if self.is_seen(number, header.index) => Err(Drop::Stale),
                None => {
                    self.arrives_anew(number, now, header.index);
                    Ok(number as u16)
                }
                Some(Cause::Receiver) => Err(Drop::ReceiverFull),
                Some(_) => Err(Drop::OverContract),
            };
        }
        self.begin(now, header)
    }

    /// A message's first packet to arrive: its logical arrival here, and a slot for it.
    fn begin(&mut self, now: Instant, header: &DataHeader) -> Result<u16, Drop> {
        let intervals = self.config.intervals(header.message_bytes);
        if self.policing.as_ref().is_some_and(|policing| !policing.has_place(header, intervals)) {
            return Err(Drop::Stale);
        }
        // First the place: a packet that finds none must leave the regulator alone.
        let number = match self.slots.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                let (oldest, _) = self
                    .slots
                    .iter()
                    .enumerate()
                    .filter_map(|(number, slot)| slot.as_ref().map(|slot| (number, slot.sequence)))
                    .min_by_key(|&(_, sequence)| sequence)
                    .ok_or(Drop::Invalid)?;
                if is_newer(&self.slots[oldest], header.sequence) {
                    return Err(Drop::Stale);
                }
                let mut sequence = 0;
                if let Some(slot) = &mut self.slots[oldest] {
                    sequence = slot.sequence;
                    // All of it has come: nobody but this host, which has not got round to it, keeps it from being complete.
                    if slot.waiting >= slot.remaining {
                        slot.spoilt.get_or_insert(Cause::Receiver);
                    }
                }
                self.give_up_to(sequence.saturating_add(1));
                oldest
            }
        };
        let mut spoilt = None;
        let (mut eligible, mut release, mut deferred) = (now, now, Duration::ZERO);
        let mut logical_arrival = if self.config.same_clock { header.logical_arrival } else { now };
        if let Some(policing) = &mut self.policing {
            let policed = policing.take(now, header, intervals);
            match policed.believed {
                Some(arrival) => {
                    self.begun = self.begun.max(header.sequence.saturating_add(1));
                    logical_arrival = arrival;
                }
                None => spoilt = Some(Cause::Sender),
            }
            Policed { eligible, release, .. } = policed;
            deferred = release.since(eligible);
        }
        let buffer = if spoilt.is_none() { self.buffers.take() } else { None };
        if spoilt.is_none() && buffer.is_none() {
            spoilt = Some(Cause::Receiver);
        }
        self.seen[number * self.words..][..self.words].fill(0);
        let mut slot = Slot {
            sequence: header.sequence,
            logical_arrival,
            eligible,
            release,
            message_bytes: header.message_bytes,
            remaining: packets(header.message_bytes, self.config.packet),
            waiting: 0,
            stolen_micros: header.stolen_micros,
            transit_excess: transit_excess(&self.config, now, header),
            deferred,
            since: logical_arrival,
            buffer,
            spoilt,
        };
        if header.sequence.saturating_add(1) < self.begun {
            // It was overtaken, and takes the place behind those that it should have come before. They wait for it, too: who
            // overtakes gets no second place. All that is the way's doing.
            slot.transit_excess = slot.transit_excess.max(deferred);
            for later in self.slots.iter_mut().flatten().filter(|later| later.sequence > header.sequence) {
                later.transit_excess = later.transit_excess.max(release.since(later.release));
            }
        } else {
            if !deferred.is_zero() {
                slot.inherit(&self.held_up);
            }
            self.held_up = HeldUp::of(&slot);
        }
        self.slots[number] = Some(slot);
        match spoilt {
            None => Ok(number as u16),
            Some(Cause::Receiver) => Err(Drop::ReceiverFull),
            Some(_) => Err(Drop::OverContract),
        }
    }

    /// Another packet of a message was found, later than all of them had to be found, as far as was known. What is left to do
    /// cannot have been due before it was there: the message arrives with it, and those behind it an interval later each, so
    /// that what is due here stays what was admitted. When the message itself is late does not change, if the clock is the same.
    ///
    /// Where the clocks differ nobody here knows when packets had to be found at the latest; not before the last one has been. For
    /// an honest sender that is never after what was admitted, because there its messages are an interval apart.
    fn arrives_anew(&mut self, number: usize, now: Instant, index: u16) {
        let (Some(late), Some(contract)) = (&self.slots[number], self.config.service.contract()) else { return };
        // The parts of an oversize message follow each other an interval apart.
        let now = now.before(contract.interval() * u64::from(self.config.part(index)));
        if now <= late.release {
            return;
        }
        let (held_up, same_clock) = (HeldUp::of(late), self.config.same_clock);
        let intervals = self.config.intervals(late.message_bytes);
        if let Some(late) = &mut self.slots[number] {
            late.release = now;
            if !same_clock {
                (late.eligible, late.logical_arrival) = (now, now);
            }
        }
        self.keep_apart(now, &held_up, intervals);
    }

    /// The message `before` arrives logically at `release`, later than those that have begun behind it counted on: they arrive
    /// logically an interval later each.
    fn keep_apart(&mut self, release: Instant, before: &HeldUp, intervals: u32) {
        let (Some(contract), Some(policing)) = (self.config.service.contract(), &mut self.policing) else { return };
        let earliest = |sequence: u64| {
            let behind =
                u64::from(intervals).saturating_add(sequence.saturating_sub(before.sequence).saturating_sub(1));
            release + contract.interval() * behind
        };
        if self.begun > before.sequence {
            policing.not_before(earliest(self.begun));
        }
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.sequence > before.sequence) {
            let earliest = earliest(slot.sequence);
            if earliest <= slot.release {
                continue;
            }
            if self.config.same_clock {
                slot.deferred += earliest.since(slot.release);
                slot.inherit(before);
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
        let mut missing = next.saturating_sub(self.next);
        for number in 0..self.slots.len() {
            if self.slots[number].as_ref().is_none_or(|slot| slot.sequence >= next) {
                continue;
            }
            let Some(slot) = self.slots[number].take() else { continue };
            missing = missing.saturating_sub(1);
            if slot.waiting > 0 {
                // No more messages than packets, so that there is room.
                self.left.push(Left::of(&slot));
            }
            match slot.spoilt {
                Some(Cause::Receiver) => self.counters.dropped_receiver += 1,
                Some(Cause::Sender) => self.counters.dropped_sender += 1,
                _ => self.count_missing(1, slot.remaining.saturating_sub(slot.waiting)),
            }
            self.buffers.free.extend(slot.buffer);
        }
        // Of a message that nobody saw no more is known than that it has at least as many packets as the smallest.
        let least = self.config.service.contract().map_or(1, |contract| contract.min_message());
        self.count_missing(missing, packets(least, self.config.packet));
        self.next = self.next.max(next);
    }

    /// Counts messages of which `packets` each are missing: by the sender's fault, as far as packets were dropped as over its
    /// contract, and else as lost in transit.
    fn count_missing(&mut self, messages: u64, packets: u32) {
        let explained = self.dropped_early.explain(messages, u64::from(packets));
        self.counters.dropped_sender += explained;
        self.counters.lost += messages - explained;
    }

    fn is_seen(&self, slot: usize, index: u16) -> bool {
        self.seen[slot * self.words + usize::from(index) / 64] & (1 << (index % 64)) != 0
    }

    fn note_seen(&mut self, slot: usize, index: u16) {
        self.seen[slot * self.words + usize::from(index) / 64] |= 1 << (index % 64);
    }

    /// What the handler has to do next, `block` packets at a time.
    pub fn work(&self, block: u32) -> Option<Work> {
        let head = self.packets.front()?;
        let slot = self.slots[head.slot as usize].as_ref().filter(|slot| slot.sequence == head.sequence);
        // An oversize message counts as those of the contract that it takes the place of, an interval apart.
        let part = self.config.part(head.index);
        let delay =
            self.config.service.contract().map_or(Duration::ZERO, |contract| contract.interval() * u64::from(part));
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
        let order = match (self.config.service, claim) {
            (Service::RealTime(_), Some((eligible, release))) => Order::RealTime {
                release: eligible,
                deadline: release + self.config.stage,
                priority: self.config.priority,
                work_conserving: self.config.work_conserving,
            },
            _ => Order::BestEffort,
        };
        Some(Work { order, block })
    }

    /// Copies one packet to its place and frees its frame. `None` if there is none.
    pub fn step(&mut self, frames: &mut impl Frames) -> Option<Worked> {
        let Arrived { frame, slot: number, sequence, index, payload } = self.packets.pop()?;
        let (mut bytes, mut completed) = (0, false);
        let next = self.packets.front().filter(|next| next.sequence == sequence);
        let number = usize::from(number);
        if let Some(slot) = self.slots[number].as_mut().filter(|slot| slot.sequence == sequence) {
            slot.waiting -= 1;
            if let Some(buffer) = &mut slot.buffer {
                buffer.set_len(slot.message_bytes as usize);
                let start = usize::from(index) * self.config.packet as usize;
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
        let part = |index| self.config.part(index);
        let part_end = completed || next.is_none_or(|next| part(next.index) != part(index));
        if completed {
            self.complete_message(number);
        }
        let piece = if completed { Piece::Deliver } else { Piece::Reassemble };
        Some(Worked { piece, bytes, part_end, spent: None })
    }

    fn complete_message(&mut self, number: usize) {
        let Some(slot) = self.slots[number].take() else { return };
        let Some(message) = slot.buffer else { return };
        self.give_up_to(slot.sequence);
        self.next = slot.sequence.saturating_add(1);
        let deadline = self.config.service.contract().map(|contract| {
            let extra = contract.interval() * u64::from(self.config.intervals(slot.message_bytes) - 1);
            match self.config.same_clock {
                true => slot.logical_arrival + contract.deadline() + extra,
                false => slot.release + self.config.stage,
            }
        });
        let delivered = Delivered {
            message,
            sequence: slot.sequence,
            logical_arrival: slot.logical_arrival,
            completion: Instant::MAX,
            deadline,
            stolen: Duration::from_micros(u64::from(slot.stolen_micros)),
            transit_excess: slot.transit_excess,
            deferred: slot.deferred,
            since: slot.since,
        };
        self.complete.push(delivered).unwrap_or_else(|_| unreachable!("as many places as buffers"));
    }

    /// True if nothing more can come or waits once the sender has sent `sent` messages.
    pub(crate) fn is_through(&self, sent: u64) -> bool {
        let c = &self.counters;
        self.is_drained() && c.delivered + c.lost + c.dropped_receiver + c.dropped_sender >= sent
    }

    /// What the sender is told.
    pub(crate) fn counts(&self) -> Counts {
        let c = &self.counters;
        let (delivered, dropped) = (c.delivered - c.late, c.dropped_receiver + c.dropped_sender);
        Counts { delivered, late: c.late, lost: c.lost, dropped, largest: c.largest, laxity: c.late_laxity }
    }

    /// True if a message waits for the application.
    pub fn has_delivery(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The next message for the application, complete at `now`; counts it, with the evidence if it is late. `gaps` tells how
    /// much processor time beyond the envelope the platform took at this host since a point in time, `stretch_ppm` what
    /// [`Evidence`] needs.
    pub fn deliver(
        &mut self,
        now: Instant,
        gaps: impl FnOnce(Instant) -> Duration,
        stretch_ppm: u64,
    ) -> Option<(Delivered, Option<Evidence>)> {
        let mut delivered = self.complete.pop()?;
        self.buffers.lent += 1;
        delivered.completion = now;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += delivered.message.len() as u64;
        self.counters.largest = self.counters.largest.max(delivered.latency());
        let lateness = delivered.lateness();
        if lateness.is_zero() {
            return Some((delivered, None));
        }
        self.counters.late += 1;
        let taken_here = gaps(delivered.since);
        let evidence = Evidence::judge(lateness, delivered.stolen, taken_here, delivered.transit_excess, stretch_ppm);
        match evidence.cause {
            Cause::Network => self.counters.late_network += 1,
            Cause::Platform => self.counters.late_platform += 1,
            Cause::Sender | Cause::Receiver | Cause::Laxity => self.counters.late_laxity += 1,
        }
        Some((delivered, Some(evidence)))
    }

    /// Takes a buffer back from the application; only as many as it was lent, and none that is too small.
    pub fn recycle(&mut self, message: MessageBuf) {
        if message.capacity() >= self.config.largest_message() as usize && self.buffers.lent > 0 {
            self.buffers.lent -= 1;
            self.buffers.free.push(message);
        }
    }

    /// The sender says that it sent `sent` messages in all: what has not come by now was lost.
    pub fn finish(&mut self, sent: u64) {
        // The number is an allegation too: count at most what a channel can have had under way.
        let most = self.next.saturating_add(u64::from(limits::MAX_QUEUED_MESSAGES));
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

/// How much longer than granted a packet found at `now` was in transit; zero where the clocks differ.
fn transit_excess(config: &ReceiveConfig, now: Instant, header: &DataHeader) -> Duration {
    if !config.same_clock {
        return Duration::ZERO;
    }
    let handed_over = header.logical_arrival + Duration::from_micros(u64::from(header.waited_micros));
    now.since(handed_over).saturating_sub(config.transit)
}
