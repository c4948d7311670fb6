//! One sending channel: its queues and its handler [channels §3.1, Figs. 2a and 3].
//!
//! All memory is allocated by [`Sending::new`], by the opener of the channel, and moves into the endpoint.

use crate::clock::UNSURE_EPOCH;
use crate::collections::Ring;
use crate::contract::{Overload, SendingStages, Service, packets};
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::limits;
use crate::piece::{Piece, Worked};
use crate::processor::{Order, Work};
use crate::regulator::Regulator;
use crate::send::enforce::{Violation, Violations};
use crate::send::link_scheduler::Head;
use crate::units::{Duration, Instant};
use crate::wire::{DataHeader, micros_saturating};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How a sending channel is set up.
#[derive(Clone, Copy, Debug)]
pub struct SendConfig {
    /// What it is served as.
    pub service: Service,
    /// What happens to messages beyond the contract.
    pub overload: Overload,
    /// The level under the fixed-priority policy, below [`limits::PRIORITY_LEVELS`].
    pub priority: u8,
    /// S: the packet payload, bytes.
    pub packet: u32,
    /// Whether the handler may process early messages when nothing else wants the processor.
    pub work_conserving: bool,
}

/// When a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// By the application's stamp. What is promised counts from it, whenever the message was handed over.
    pub stamp: Instant,
    /// From when on it may be served: not before the time that admission allows for the hand-over, however old the stamp is, so that
    /// no deadline comes closer than was admitted.
    pub served: Instant,
    /// How long the application itself withheld it after the stamp.
    pub withheld: Duration,
}

impl From<Instant> for Arrival {
    /// Handed over in time.
    fn from(stamp: Instant) -> Self {
        Self { stamp, served: stamp, withheld: Duration::ZERO }
    }
}

/// A message that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number, from 0.
    pub sequence: u64,
    /// What is promised counts from it.
    pub logical_arrival: Instant,
    /// From when on it is served, later than that if it, or one before it, was handed over too late.
    pub release: Instant,
}

/// By how much a message is served later than is promised, because it, or one before it, was handed over too late.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandOver {
    /// So much.
    pub late: Duration,
    /// How much of that is not ours: an application had withheld its message, or the platform had taken the processor.
    pub explained: Duration,
    /// How much of what the platform had taken since the message had arrived is in that.
    pub before: Duration,
}

impl HandOver {
    /// What is explained of how late a message is that arrived logically at `arrival`, if the platform has taken as much as `stolen`
    /// tells since a point in time.
    #[inline]
    pub(crate) fn explained(&self, arrival: Instant, stolen: impl Fn(Instant) -> Duration) -> Duration {
        // Of what was taken before, only that counts which made it late.
        self.explained + stolen(arrival).saturating_sub(self.before)
    }
}

/// A message that was not taken, with its buffer.
#[derive(Debug)]
pub struct Rejected {
    /// The buffer, unchanged.
    pub message: MessageBuf,
    /// Why.
    pub violation: Violation,
    /// Whether waiting would help and the channel's policy is to wait ([`Overload::Block`]).
    pub would_block: bool,
}

/// A packet that waits for the link.
#[derive(Debug)]
pub struct Packet {
    /// Where it lies.
    pub frame: FrameId,
    /// Payload, bytes.
    pub payload: u32,
    /// Its message's number.
    pub sequence: u64,
    /// True for the last packet of its message.
    pub last: bool,
    /// When its message was sent, by the application's stamp.
    pub sent: Instant,
    /// The logical arrival of its message.
    pub message_arrival: Instant,
    /// From when on it is served (of its part, if the message is oversize).
    pub logical_arrival: Instant,
    /// Its deadline at this host: that and d_cpu + d_link.
    pub deadline: Instant,
    /// How much later that is than is promised.
    pub handed_over: HandOver,
}

/// What a sending channel did. Words of 64 bits, so that they can be published one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct SendCounters {
    /// Messages taken.
    pub accepted: u64,
    /// Messages refused because of the contract (dropped, or handed back to a caller that waits).
    pub refused: u64,
    /// Messages handed to the link completely.
    pub sent: u64,
    /// Payload bytes handed to the link.
    pub sent_bytes: u64,
    /// Messages whose transmission ended after this host's stages' deadline.
    pub late: u64,
    /// Violations of the contract.
    pub violations: Violations,
}

#[derive(Debug)]
struct Queued {
    message: MessageBuf,
    sequence: u64,
    logical_arrival: Instant,
    ahead: Duration,
    release: Instant,
    handed_over: HandOver,
}

/// When a message that is taken arrives logically, how long before that it was sent, and from when on it is served.
struct Admitted {
    logical_arrival: Instant,
    ahead: Duration,
    release: Instant,
}

#[derive(Debug)]
struct Fragmenting {
    queued: Queued,
    index: u32,
    count: u32,
}

/// Why a message is not taken.
enum Refused {
    /// It breaks the contract, or there is none and the queue is full.
    Violates(Violation),
    /// It does not, but the queue is full.
    Behind,
}

/// One sending channel.
#[derive(Debug)]
pub struct Sending {
    config: SendConfig,
    stages: SendingStages,
    /// What is promised counts from its stamps: those of the application.
    regulator: Option<Regulator>,
    /// What is served counts from its stamps: an interval apart, whenever messages are handed over.
    serving: Option<Regulator>,
    /// How late the last message was handed over, or one that it stands behind.
    handed_over: HandOver,
    next_sequence: u64,
    queue: Ring<Queued>,
    fragmenting: Option<Fragmenting>,
    packets: Ring<Packet>,
    /// What happened.
    pub counters: SendCounters,
}

impl Sending {
    /// A channel that may have `messages` messages waiting and `packets` packets in its packet queue. Allocates both.
    pub fn new(config: SendConfig, messages: u32, packets: u32) -> Self {
        let regulator = config.service.contract().map(|contract| Regulator::new(contract.interval()));
        Self {
            serving: regulator.clone(),
            regulator,
            handed_over: HandOver::default(),
            config,
            stages: SendingStages::default(),
            next_sequence: 0,
            queue: Ring::with_capacity(messages.max(1) as usize),
            fragmenting: None,
            packets: Ring::with_capacity(packets.max(1) as usize),
            counters: SendCounters::default(),
        }
    }

    /// How it was set up.
    pub fn config(&self) -> &SendConfig {
        &self.config
    }
    /// The stage deadlines in force.
    pub fn stages(&self) -> SendingStages {
        self.stages
    }
    /// Sets the stage deadlines; messages in flight keep theirs.
    pub fn set_stages(&mut self, stages: SendingStages) {
        self.stages = stages;
    }
    /// The payload size that both sides agreed on; must not exceed the configured one.
    pub fn set_packet(&mut self, packet: u32) {
        self.config.packet = packet.min(self.config.packet).max(1);
    }
    /// Frames that its packet queue can hold: its quota.
    pub fn frame_quota(&self) -> usize {
        self.packets.capacity()
    }
    /// True if nothing waits for the handler or the link.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.fragmenting.is_none() && self.packets.is_empty()
    }
    /// Messages and packets that were in its queues at most.
    pub(crate) fn peaks(&self) -> (u32, u32) {
        (self.queue.peak() as u32, self.packets.peak() as u32)
    }

    /// Enforces the contract on a message that arrived so and queues it. One that has no room though its contract has waits with the
    /// caller, if it may, and is no violation: it is this host that is behind.
    pub fn submit(&mut self, arrival: impl Into<Arrival>, message: MessageBuf) -> Result<Submitted, Rejected> {
        self.submit_after(arrival.into(), message, |_| Duration::ZERO)
    }

    /// As [`Sending::submit`], where the platform has taken as much as `stolen` tells since a point in time.
    pub(crate) fn submit_after(
        &mut self,
        arrival: Arrival,
        message: MessageBuf,
        stolen: impl Fn(Instant) -> Duration,
    ) -> Result<Submitted, Rejected> {
        match self.admit(&arrival, message.len() as u64) {
            Ok(Admitted { logical_arrival, release, ahead }) => {
                let sequence = self.next_sequence;
                self.next_sequence += 1;
                self.counters.accepted += 1;
                let handed_over = self.hand_over(arrival.withheld, logical_arrival, release, stolen);
                let queued = Queued { message, sequence, logical_arrival, ahead, release, handed_over };
                self.queue.push(queued).unwrap_or_else(|_| unreachable!("admit() found room"));
                Ok(Submitted { sequence, logical_arrival, release })
            }
            Err(Refused::Behind) => {
                let violation = Violation::Burst { wait: Duration::ZERO };
                Err(Rejected { message, violation, would_block: true })
            }
            Err(Refused::Violates(violation)) => {
                self.counters.refused += 1;
                let would_block =
                    self.config.overload == Overload::Block && matches!(violation, Violation::Burst { .. });
                Err(Rejected { message, violation, would_block })
            }
        }
    }

    /// What is known of a message that is served later than is promised: by its own hand-over, or by that of one before it, which keeps it an
    /// interval away. What explains the one before explains as much of this one; what is taken later explains only what is added.
    fn hand_over(
        &mut self,
        withheld: Duration,
        arrival: Instant,
        release: Instant,
        stolen: impl Fn(Instant) -> Duration,
    ) -> HandOver {
        let late = release.since(arrival);
        if late.is_zero() {
            self.handed_over = HandOver::default();
            return self.handed_over;
        }
        let (last, stolen) = (self.handed_over, stolen(arrival));
        let added = late.saturating_sub(last.late).min(withheld + stolen);
        let explained = last.explained.min(late) + added;
        self.handed_over = HandOver { late, explained, before: added.saturating_sub(withheld) };
        self.handed_over
    }

    /// Notes messages that left without passing here, numbered from where the channel was.
    pub(crate) fn note_replied(&mut self, messages: u64, bytes: u64) {
        self.next_sequence += messages;
        self.counters.accepted += messages;
        self.counters.sent += messages;
        self.counters.sent_bytes += bytes;
    }

    /// Whether a message is taken, and when it arrives logically then.
    fn admit(&mut self, arrival: &Arrival, bytes: u64) -> Result<Admitted, Refused> {
        let max = u64::from(self.config.service.max_message());
        let weight = match self.config.overload {
            Overload::Decay if bytes > max => self.decay_weight(bytes),
            _ => u32::from(bytes <= max),
        };
        if weight == 0 {
            self.counters.violations.size += 1;
            let most = if self.config.overload == Overload::Decay { u64::from(self.largest_decayed()) } else { max };
            return Err(Refused::Violates(Violation::Oversize { found: bytes, most }));
        }
        let least = self.config.service.contract().map_or(1, |contract| u64::from(contract.min_message()));
        if bytes < least {
            self.counters.violations.size += 1;
            return Err(Refused::Violates(Violation::Undersize { found: bytes, least }));
        }
        if weight > 1 {
            self.counters.violations.size += 1;
        }
        let (Some(regulator), Some(serving)) = (&mut self.regulator, &mut self.serving) else {
            if self.queue.is_full() {
                self.counters.violations.burst += 1;
                return Err(Refused::Violates(Violation::Burst { wait: Duration::ZERO }));
            }
            return Ok(Admitted { logical_arrival: arrival.stamp, ahead: Duration::ZERO, release: arrival.served });
        };
        let stamp = regulator.stamp(arrival.stamp);
        let contract = self.config.service.contract().expect("a regulated channel has a contract");
        let beyond = stamp.ahead > contract.most_ahead();
        if self.queue.is_full() && !beyond && self.config.overload == Overload::Block {
            return Err(Refused::Behind);
        }
        if self.queue.is_full() || (beyond && self.config.overload != Overload::Decay) {
            self.counters.violations.burst += 1;
            let wait = stamp.ahead.saturating_sub(contract.most_ahead());
            return Err(Refused::Violates(Violation::Burst { wait }));
        }
        match (stamp.ahead.is_zero(), beyond) {
            (true, _) => {}
            (_, false) => self.counters.violations.rate += 1,
            (_, true) => self.counters.violations.burst += 1,
        }
        regulator.accept(stamp, weight);
        let served = serving.stamp(stamp.logical_arrival.max(arrival.served));
        serving.accept(served, weight);
        Ok(Admitted { logical_arrival: stamp.logical_arrival, ahead: stamp.ahead, release: served.logical_arrival })
    }

    /// The largest message that `decay` takes, bytes: what the wire can carry is the limit, too.
    fn largest_decayed(&self) -> u32 {
        let most = self.config.service.max_message().saturating_mul(limits::DECAY_FACTOR);
        most.min(limits::MAX_MESSAGE_BYTES).min(self.config.packet.saturating_mul(limits::MAX_PACKETS_PER_MESSAGE))
    }

    /// How many intervals an oversize message pays for: its packets in proportion to the contract's; 0 if it is too large
    /// even for `decay`.
    fn decay_weight(&self, bytes: u64) -> u32 {
        match u32::try_from(bytes) {
            Ok(bytes) if bytes <= self.largest_decayed() => {
                let own = packets(self.config.service.max_message(), self.config.packet);
                packets(bytes, self.config.packet).div_ceil(own)
            }
            _ => 0,
        }
    }

    /// What the handler has to do next, `block` packets at a time; `None` if nothing, or if its packet queue is full.
    pub fn work(&self, block: u32) -> Option<Work> {
        if self.packets.is_full() {
            return None;
        }
        let (queued, index) = match &self.fragmenting {
            Some(fragmenting) => (&fragmenting.queued, fragmenting.index),
            None => (self.queue.front()?, 0),
        };
        let order = match self.config.service {
            Service::BestEffort { .. } => Order::BestEffort,
            Service::RealTime(_) => {
                let release = queued.release + self.part_delay(index);
                Order::RealTime {
                    release,
                    deadline: release + self.stages.processor,
                    priority: self.config.priority,
                    work_conserving: self.config.work_conserving,
                }
            }
        };
        Some(Work { order, block })
    }

    /// An oversize message (`decay`) is served as the messages of the contract that it takes the place of, one after the
    /// other, an interval apart: so the analysis need not know of it. This is how much later than the message's logical
    /// arrival the part with packet `index` arrives logically; zero within the contract's size.
    fn part_delay(&self, index: u32) -> Duration {
        match self.config.service {
            Service::RealTime(contract) => contract.interval() * u64::from(index / self.part_packets()),
            Service::BestEffort { .. } => Duration::ZERO,
        }
    }

    /// Packets of the contract's largest message.
    fn part_packets(&self) -> u32 {
        packets(self.config.service.max_message(), self.config.packet)
    }

    /// Makes one packet for the receiver with this slot and key. `None` if there is nothing to do or no frame.
    pub fn step(&mut self, (channel, key): (u32, u64), frames: &mut impl Frames) -> Option<Worked> {
        if self.packets.is_full() || (self.fragmenting.is_none() && self.queue.is_empty()) {
            return None;
        }
        let frame = frames.take()?;
        let size = self.config.packet;
        let part_packets = self.part_packets();
        let delay = self.part_delay(self.fragmenting.as_ref().map_or(0, |fragmenting| fragmenting.index));
        let first = self.fragmenting.is_none();
        if first {
            let queued = self.queue.pop()?;
            let count = packets(queued.message.len() as u32, size);
            self.fragmenting = Some(Fragmenting { queued, index: 0, count });
        }
        let fragmenting = self.fragmenting.as_mut()?;
        let Queued { message, sequence, logical_arrival, ahead, release, handed_over } = &fragmenting.queued;
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
        Some(Worked { piece, bytes: payload as u32, part_end, spent })
    }

    /// Packets that wait for the link.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }
    /// What the packet that is next for the link is to the link scheduler.
    pub fn head(&self) -> Option<Head> {
        let packet = self.packets.front()?;
        Some(match self.config.service {
            Service::RealTime(_) => Head::RealTime { release: packet.logical_arrival, deadline: packet.deadline },
            Service::BestEffort { .. } => Head::BestEffort,
        })
    }

    /// Takes the packet that the link scheduler picked.
    pub fn pop_packet(&mut self) -> Option<Packet> {
        self.packets.pop()
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
