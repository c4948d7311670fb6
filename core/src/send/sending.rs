//! One sending channel: the enforcement of its contract, its queues and its handler [channels §2.1, §3.1, Figs. 2a and 3].
//!
//! All memory is allocated by [`SendingChannel::new`], by the opener of the channel, and moves into the endpoint.

use crate::clock::UNSURE_EPOCH;
use crate::collections::Ring;
use crate::contract::{ChannelTerms, Contract, Overload, SendingStages, Service, packets};
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::limits;
use crate::piece::{Piece, StepResult};
use crate::processor::{JobOrder, NextWork};
use crate::regulator::{Regulator, RegulatorStamp};
use crate::send::link_scheduler::PacketHead;
use crate::units::{Duration, Instant};
use crate::wire::{DataHeader, micros_saturating};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The parameters of a sending channel.
#[derive(Clone, Copy, Debug)]
pub struct SendConfig {
    /// The service that it has.
    pub service: Service,
    /// The treatment of messages beyond the contract.
    pub overload: Overload,
    /// The level under the fixed-priority policy, below [`limits::PRIORITY_LEVELS`].
    pub priority: u8,
    /// S: the packet payload, bytes.
    pub packet: u32,
    /// True if the handler may process early messages when nothing else wants the processor.
    pub work_conserving: bool,
}

/// The arrival of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The application's stamp. The promise counts from it, whenever the message was handed over.
    pub stamp: Instant,
    /// The time from which it may be served: not before the time that admission allows for the hand-over, however old the stamp is, so that
    /// no deadline comes closer than was admitted.
    pub served: Instant,
    /// The time for which the application itself withheld it after the stamp.
    pub withheld: Duration,
}

impl From<Instant> for Arrival {
    /// Handed over in time.
    fn from(stamp: Instant) -> Self {
        Self { stamp, served: stamp, withheld: Duration::ZERO }
    }
}

/// Violations of a contract by a channel's application, counted one by one [channels §2.1: "each parameter constituting
/// the traffic specification needs to be policed individually"].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct Violations {
    /// Messages larger than `max_message`, or smaller than `min_message`.
    pub size: u64,
    /// Messages that came sooner than the interval allows but within the burst: they were held, or served early.
    pub rate: u64,
    /// Messages beyond the burst: the contract has no room for them.
    pub burst: u64,
}

/// The reason why a message was not taken; the caller gets its buffer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Larger than declared.
    #[error("the message has {found} bytes, the channel's contract allows at most {most}")]
    Oversize {
        /// Bytes of the message.
        found: u64,
        /// Bytes that the contract (or the `decay` policy) allows.
        most: u64,
    },
    /// Smaller than declared.
    #[error("the message has {found} bytes, the channel's contract allows no less than {least}")]
    Undersize {
        /// Bytes of the message.
        found: u64,
        /// Bytes that the contract demands.
        least: u64,
    },
    /// More messages ahead of their time than the burst allows, or the message queue is full.
    #[error("the channel's burst is used up, the next message is due in {wait}")]
    Burst {
        /// Until when the contract has room for one more.
        wait: Duration,
    },
}

/// A message that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// Its number, from 0.
    pub sequence: u64,
    /// The promise counts from it.
    pub logical_arrival: Instant,
    /// The time from which it is served, later than that if it, or one before it, was handed over too late.
    pub release: Instant,
}

/// The lateness of a message's service against the promise, because it, or one before it, was handed over too late.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandOverDelay {
    /// The lateness.
    pub late: Duration,
    /// The part of that which is not ours: an application had withheld its message, or the platform had taken the processor.
    pub explained: Duration,
    /// The part of that which the platform had taken before, since the message arrived.
    pub before: Duration,
}

impl HandOverDelay {
    /// The explained part of the lateness of a message that arrived logically at `arrival`, if the platform has taken as much as `stolen`
    /// tells since a point in time.
    #[inline]
    pub(crate) fn explained(&self, arrival: Instant, stolen: impl Fn(Instant) -> Duration) -> Duration {
        // Of what was taken before, only that counts which made it late.
        self.explained + stolen(arrival).saturating_sub(self.before)
    }
}

/// A message that was not taken, with its buffer.
#[derive(Debug)]
pub struct RejectedMessage {
    /// The buffer, unchanged.
    pub message: MessageBuf,
    /// The reason.
    pub violation: Violation,
    /// True if waiting would help and the channel's policy is to wait ([`Overload::Block`]).
    pub would_block: bool,
}

/// A packet that waits for the link.
pub struct Packet {
    /// The frame that holds it.
    pub frame: FrameId,
    /// Payload, bytes.
    pub payload: u32,
    /// Its message's number.
    pub sequence: u64,
    /// True for the last packet of its message.
    pub last: bool,
    /// The time at which its message was sent, by the application's stamp.
    pub sent: Instant,
    /// The logical arrival of its message.
    pub message_arrival: Instant,
    /// The time from which it is served (of its part, if the message is oversize).
    pub logical_arrival: Instant,
    /// Its deadline at this host: `logical_arrival` + d_cpu + d_link.
    pub deadline: Instant,
    /// The lateness of that against the promise.
    pub handed_over: HandOverDelay,
}

/// The counters of a sending channel. Words of 64 bits, so that they can be published one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct SendCounters {
    /// Messages that the host accepted.
    pub accepted: u64,
    /// Messages refused because of the contract (dropped, or handed back to a caller that waits).
    pub refused: u64,
    /// Messages handed to the link completely.
    pub sent: u64,
    /// Payload bytes handed to the link.
    pub sent_bytes: u64,
    /// Messages whose transmission ended later than this host's part of the deadline allows.
    pub late: u64,
    /// Violations of the contract.
    pub violations: Violations,
}

struct QueuedMessage {
    message: MessageBuf,
    sequence: u64,
    logical_arrival: Instant,
    ahead: Duration,
    release: Instant,
    handed_over: HandOverDelay,
}

struct FragmentedMessage {
    queued: QueuedMessage,
    index: u32,
    count: u32,
}

/// One sending channel.
pub struct SendingChannel {
    /// What is offered to the peer; its packet size is the agreed one once there is one.
    pub(crate) terms: ChannelTerms,
    overload: Overload,
    priority: u8,
    work_conserving: bool,
    /// The stage deadlines in force; messages in flight keep theirs.
    pub(crate) stages: SendingStages,
    /// Of a real-time channel. The promise counts from the stamps of the first one: those of the application. The service counts from the stamps of
    /// the other one: an interval apart, whenever messages are handed over.
    regulators: Option<[Regulator; 2]>,
    /// The lateness of the hand-over of the last message, or of one that it stands behind.
    handed_over: HandOverDelay,
    next_sequence: u64,
    queue: Ring<QueuedMessage>,
    fragmenting: Option<FragmentedMessage>,
    /// The packets that wait for the link; its frame quota is what they can be at most.
    pub packets: Ring<Packet>,
    /// The counters.
    pub counters: SendCounters,
}

impl SendingChannel {
    /// A channel with room for `messages` waiting messages and `packets` packets in its packet queue. Allocates both.
    pub fn new(config: SendConfig, messages: u32, packets: u32) -> Self {
        let SendConfig { service, overload, priority, packet, work_conserving } = config;
        let oversize = if overload == Overload::Decay { limits::DECAY_FACTOR } else { 1 };
        let regulators = |contract: &Contract| [(); 2].map(|()| Regulator::new(contract.interval()));
        Self {
            terms: ChannelTerms { service, packet, oversize, same_clock: true },
            overload,
            priority,
            work_conserving,
            regulators: service.contract().map(regulators),
            handed_over: HandOverDelay::default(),
            stages: SendingStages::default(),
            next_sequence: 0,
            queue: Ring::with_capacity(messages.max(1) as usize),
            fragmenting: None,
            packets: Ring::with_capacity(packets.max(1) as usize),
            counters: SendCounters::default(),
        }
    }

    /// True if nothing waits for the handler or the link.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.fragmenting.is_none() && self.packets.is_empty()
    }
    /// Messages and packets that were in its queues at most.
    pub(crate) fn peaks(&self) -> (u32, u32) {
        (self.queue.peak() as u32, self.packets.peak() as u32)
    }

    /// Enforces the contract on a message and queues it. If the contract has room and the queue has none, the message waits with the
    /// caller, if it may. That is no violation: this host is behind. `stolen` tells how much the platform has taken since a point in time.
    pub fn submit(
        &mut self,
        arrival: impl Into<Arrival>,
        message: MessageBuf,
        stolen: impl Fn(Instant) -> Duration,
    ) -> Result<AcceptedMessage, RejectedMessage> {
        let arrival = arrival.into();
        match self.admit(&arrival, message.len() as u64) {
            Ok((RegulatorStamp { logical_arrival, ahead }, release)) => {
                let sequence = self.next_sequence;
                self.next_sequence += 1;
                self.counters.accepted += 1;
                let handed_over = self.hand_over(arrival.withheld, logical_arrival, release, stolen);
                let queued = QueuedMessage { message, sequence, logical_arrival, ahead, release, handed_over };
                self.queue.push(queued).unwrap_or_else(|_| unreachable!("admit() found room"));
                Ok(AcceptedMessage { sequence, logical_arrival, release })
            }
            Err((violation, is_behind)) => {
                self.counters.refused += u64::from(!is_behind);
                let would_block = self.overload == Overload::Block && matches!(violation, Violation::Burst { .. });
                Err(RejectedMessage { message, violation, would_block })
            }
        }
    }

    /// The evidence about a message that is served later than is promised: by its own hand-over, or by that of one before it, which keeps it an
    /// interval away. The explanation of the one before explains as much of this one; time that is taken later explains only the added part.
    fn hand_over(
        &mut self,
        withheld: Duration,
        arrival: Instant,
        release: Instant,
        stolen: impl Fn(Instant) -> Duration,
    ) -> HandOverDelay {
        let late = release.since(arrival);
        if late.is_zero() {
            self.handed_over = HandOverDelay::default();
            return self.handed_over;
        }
        let (last, stolen) = (self.handed_over, stolen(arrival));
        let added = late.saturating_sub(last.late).min(withheld + stolen);
        let explained = last.explained.min(late) + added;
        self.handed_over = HandOverDelay { late, explained, before: added.saturating_sub(withheld) };
        self.handed_over
    }

    /// Notes messages that left without passing here, numbered from where the channel was.
    pub(crate) fn note_replied(&mut self, messages: u64, bytes: u64) {
        self.next_sequence += messages;
        self.counters.accepted += messages;
        self.counters.sent += messages;
        self.counters.sent_bytes += bytes;
    }

    /// Decides whether a message is taken: its logical arrival, and the time from which it is served. Otherwise what it violates, and true if it
    /// keeps the contract, but the queue is full.
    fn admit(&mut self, arrival: &Arrival, bytes: u64) -> Result<(RegulatorStamp, Instant), (Violation, bool)> {
        let max = u64::from(self.terms.service.max_message());
        let most = match self.overload {
            Overload::Decay if bytes > max => self.largest_decayed().into(),
            _ => max,
        };
        if bytes > most {
            self.counters.violations.size += 1;
            return Err((Violation::Oversize { found: bytes, most }, false));
        }
        let least = u64::from(self.terms.service.min_message());
        if bytes < least {
            self.counters.violations.size += 1;
            return Err((Violation::Undersize { found: bytes, least }, false));
        }
        // An oversize message pays for as many intervals as its packets are in proportion to the contract's.
        let weight = if bytes > max { self.terms.intervals(bytes as u32) } else { 1 };
        if weight > 1 {
            self.counters.violations.size += 1;
        }
        let Some([regulator, serving]) = &mut self.regulators else {
            if self.queue.is_full() {
                self.counters.violations.burst += 1;
                return Err((Violation::Burst { wait: Duration::ZERO }, false));
            }
            return Ok((RegulatorStamp { logical_arrival: arrival.stamp, ahead: Duration::ZERO }, arrival.served));
        };
        let stamp = regulator.stamp(arrival.stamp);
        let contract = self.terms.service.contract().expect("a regulated channel has a contract");
        let beyond = stamp.ahead > contract.most_ahead();
        if self.queue.is_full() && !beyond && self.overload == Overload::Block {
            return Err((Violation::Burst { wait: Duration::ZERO }, true));
        }
        if self.queue.is_full() || (beyond && self.overload != Overload::Decay) {
            self.counters.violations.burst += 1;
            let wait = stamp.ahead.saturating_sub(contract.most_ahead());
            return Err((Violation::Burst { wait }, false));
        }
        match (stamp.ahead.is_zero(), beyond) {
            (true, _) => {}
            (_, false) => self.counters.violations.rate += 1,
            (_, true) => self.counters.violations.burst += 1,
        }
        regulator.accept(stamp, weight);
        let served = serving.stamp(stamp.logical_arrival.max(arrival.served));
        serving.accept(served, weight);
        Ok((stamp, served.logical_arrival))
    }

    /// The largest message that `decay` takes, bytes: what the wire can carry is the limit, too.
    fn largest_decayed(&self) -> u32 {
        self.terms.largest_message().min(self.terms.packet.saturating_mul(limits::MAX_PACKETS_PER_MESSAGE))
    }

    /// The next work of the handler, `block` packets at a time; `None` if nothing, or if its packet queue is full.
    pub fn work(&self, block: u32) -> Option<NextWork> {
        if self.packets.is_full() {
            return None;
        }
        let (queued, index) = match &self.fragmenting {
            Some(fragmenting) => (&fragmenting.queued, fragmenting.index),
            None => (self.queue.front()?, 0),
        };
        let order = match self.terms.service {
            Service::BestEffort { .. } => JobOrder::BestEffort,
            Service::RealTime(_) => {
                let release = queued.release + self.part_delay(index);
                JobOrder::RealTime {
                    release,
                    deadline: release + self.stages.processor,
                    priority: self.priority,
                    work_conserving: self.work_conserving,
                }
            }
        };
        Some(NextWork { order, block })
    }

    /// An oversize message (`decay`) is served as the messages of the contract that it takes the place of, one after the
    /// other, an interval apart: so the analysis need not know of it. This is how much later than the message's logical
    /// arrival the part with packet `index` arrives logically; zero within the contract's size.
    fn part_delay(&self, index: u32) -> Duration {
        self.terms.service.interval() * u64::from(self.terms.part(index))
    }

    /// Makes one packet for the receiver with this slot and key. `None` if there is nothing to do or no frame.
    pub fn step(&mut self, (channel, key): (u32, u64), frames: &mut impl Frames) -> Option<StepResult> {
        if self.packets.is_full() || (self.fragmenting.is_none() && self.queue.is_empty()) {
            return None;
        }
        let frame = frames.take()?;
        let size = self.terms.packet;
        let part_packets = packets(self.terms.service.max_message(), size);
        let delay = self.part_delay(self.fragmenting.as_ref().map_or(0, |fragmenting| fragmenting.index));
        let first = self.fragmenting.is_none();
        if first {
            let queued = self.queue.pop()?;
            let count = packets(queued.message.len() as u32, size);
            self.fragmenting = Some(FragmentedMessage { queued, index: 0, count });
        }
        let fragmenting = self.fragmenting.as_mut()?;
        let QueuedMessage { message, sequence, logical_arrival, ahead, release, handed_over } = &fragmenting.queued;
        let start = fragmenting.index as usize * size as usize;
        let payload = message.len().saturating_sub(start).min(size as usize);
        let area = frames.packet_mut(&frame);
        let header = DataHeader {
            channel,
            key,
            message_bytes: message.len() as u32,
            sequence: *sequence,
            logical_arrival: *logical_arrival,
            index: fragmenting.index as u16,
            payload: payload as u16,
            // The epoch and evidence are written when it leaves.
            epoch: UNSURE_EPOCH,
            ahead_micros: micros_saturating(*ahead + Duration::from_nanos(999)),
            ..DataHeader::default()
        };
        // The region's frames hold the header and S bytes; the endpoint checks that when it is made.
        let body = header.write(area).expect("a frame holds a header and a payload");
        body[..payload].copy_from_slice(&message[start..start + payload]);
        let last = fragmenting.index + 1 == fragmenting.count;
        let packet = Packet {
            frame,
            payload: payload as u32,
            sequence: *sequence,
            last,
            sent: logical_arrival.before(*ahead),
            message_arrival: *logical_arrival,
            logical_arrival: *release + delay,
            deadline: *release + delay + self.stages.processor + self.stages.link,
            handed_over: *handed_over,
        };
        fragmenting.index += 1;
        let part_end = last || fragmenting.index.is_multiple_of(part_packets);
        self.packets.push(packet).unwrap_or_else(|_| unreachable!("room was checked"));
        let spent = if last { self.fragmenting.take().map(|done| done.queued.message) } else { None };
        let piece = if first { Piece::First } else { Piece::Next };
        Some(StepResult { piece, bytes: payload as u32, part_end, spent })
    }

    /// The packet that is next for the link, as the link scheduler sees it.
    pub fn head(&self) -> Option<PacketHead> {
        let packet = self.packets.front()?;
        Some(match self.terms.service {
            Service::RealTime(_) => PacketHead::RealTime { release: packet.logical_arrival, deadline: packet.deadline },
            Service::BestEffort { .. } => PacketHead::BestEffort,
        })
    }

    /// Empties everything: frames go back to the region, messages to the caller one by one through `spent`.
    pub fn clear(&mut self, frames: &mut impl Frames, mut spent: impl FnMut(MessageBuf)) {
        while let Some(packet) = self.packets.pop() {
            frames.free(packet.frame);
        }
        if let Some(fragmenting) = self.fragmenting.take() {
            spent(fragmenting.queued.message);
        }
        while let Some(queued) = self.queue.pop() {
            spent(queued.message);
        }
    }
}
