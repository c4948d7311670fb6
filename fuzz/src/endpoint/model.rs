//! The expected behaviour of channels: a sender's contract by its definition, packets as arithmetic cuts them, messages as they were
//! sent.

use laxity_core::contract::{Overload, Service, packets};
use laxity_core::event::{ChannelId, End, PeerRequest};
use laxity_core::limits::DECAY_FACTOR;
use laxity_core::receive::ReceiveCounters;
use laxity_core::send::{SendCounters, Violation};

/// A message that was taken.
pub struct Message {
    /// ns on the sender's clock.
    pub logical_arrival: u64,
    /// From when on it is served.
    pub release: u64,
    pub bytes: usize,
    /// The number of messages of the contract that it takes the place of.
    pub weight: u64,
    pub delivered: bool,
}

/// A sending channel.
pub struct SentChannel {
    pub host: usize,
    pub to: usize,
    pub link: u8,
    pub id: ChannelId,
    pub service: Service,
    pub overload: Overload,
    /// Places in its message queue.
    pub room: usize,
    /// Frames that it may hold.
    pub quota: usize,
    /// The payload size that was agreed on, once it was.
    pub packet: Option<u32>,
    pub begun: bool,
    pub closed: bool,
    pub end: Option<End>,
    pub released: bool,
    /// The connection's, once OPEN has left.
    pub token: Option<u64>,
    /// A frame of this connection was forged: nothing is promised to its two ends then.
    pub tainted: bool,
    pub messages: Vec<Message>,
    /// The earliest logical arrival of the next message, and from when on it is served at the earliest.
    next: u64,
    serving: u64,
    /// The next packet that its handler makes, and the next that leaves: message and index.
    pub made: (usize, u32),
    pub left: (usize, u32),
    /// The receiving channel that its frames name.
    pub partner: Option<usize>,
    pub counters: SendCounters,
}

/// The verdict on a message that is submitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Taken { logical_arrival: u64, weight: u64 },
    Oversize,
    Undersize,
    Burst,
}

impl SentChannel {
    #[allow(clippy::too_many_arguments, reason = "as a channel is opened")]
    pub fn new(
        host: usize,
        to: usize,
        link: u8,
        id: ChannelId,
        service: Service,
        overload: Overload,
        room: usize,
        quota: usize,
    ) -> Self {
        Self {
            host,
            to,
            link,
            id,
            service,
            overload,
            room,
            quota,
            packet: None,
            begun: false,
            closed: false,
            end: None,
            released: false,
            token: None,
            tainted: false,
            messages: Vec::new(),
            next: 0,
            serving: 0,
            made: (0, 0),
            left: (0, 0),
            partner: None,
            counters: SendCounters::default(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.begun && !self.closed && self.end.is_none() && !self.released
    }

    /// I in ns; zero for best effort.
    pub fn interval(&self) -> u64 {
        self.service.contract().map_or(0, |contract| contract.interval().as_nanos())
    }

    /// Packets of a message.
    pub fn count(&self, message: usize) -> u32 {
        packets(self.messages[message].bytes as u32, self.packet.expect("messages come after the agreement"))
    }

    /// The place of a packet in its message.
    pub fn part(&self, (message, index): (usize, u32)) -> std::ops::Range<usize> {
        let packet = self.packet.expect("messages come after the agreement") as usize;
        let (start, bytes) = (index as usize * packet, self.messages[message].bytes);
        start..bytes.min(start + packet)
    }

    /// The packet after this one.
    pub fn after(&self, (message, index): (usize, u32)) -> (usize, u32) {
        if index + 1 == self.count(message) { (message + 1, 0) } else { (message, index + 1) }
    }

    /// [channels §2.2] on an open channel: l(m_k) = max(l(m_{k−1}) + I, t_k), at most B − 1 intervals ahead of t_k.
    pub fn verdict(&self, arrival: u64, bytes: usize) -> Verdict {
        let (max, packet) = (self.service.max_message(), self.packet.expect("the channel is open"));
        let largest = match self.overload {
            Overload::Decay => u64::from(max * DECAY_FACTOR),
            _ => u64::from(max),
        };
        if bytes as u64 > largest {
            return Verdict::Oversize;
        }
        let least = self.service.contract().map_or(1, |contract| contract.min_message());
        if (bytes as u64) < u64::from(least) {
            return Verdict::Undersize;
        }
        // The message that is being cut has left the queue.
        let begun = self.made.0 + usize::from(self.made.1 > 0);
        if self.messages.len() - begun >= self.room {
            return Verdict::Burst;
        }
        let Some(contract) = self.service.contract() else {
            return Verdict::Taken { logical_arrival: arrival, weight: 1 };
        };
        let logical_arrival = self.next.max(arrival);
        let ahead = (logical_arrival - arrival).div_ceil(self.interval());
        if ahead > u64::from(contract.burst()) - 1 && self.overload != Overload::Decay {
            return Verdict::Burst;
        }
        let weight = u64::from(packets(bytes as u32, packet).div_ceil(packets(max, packet))).max(1);
        Verdict::Taken { logical_arrival, weight }
    }

    /// The time at which a message is served that is not served before `earliest`.
    pub fn served(&self, logical_arrival: u64, earliest: u64) -> u64 {
        logical_arrival.max(earliest).max(self.serving)
    }

    pub fn take(&mut self, (logical_arrival, release): (u64, u64), weight: u64, bytes: usize) {
        self.next = logical_arrival + weight * self.interval();
        if self.service.contract().is_some() {
            self.serving = release + weight * self.interval();
        }
        self.messages.push(Message { logical_arrival, release, bytes, weight, delivered: false });
    }
}

/// The verdict that a violation stands for.
pub fn verdict_of(violation: &Violation) -> Verdict {
    match violation {
        Violation::Oversize { .. } => Verdict::Oversize,
        Violation::Undersize { .. } => Verdict::Undersize,
        Violation::Burst { .. } => Verdict::Burst,
    }
}

/// A receiving channel.
pub struct ReceivedChannel {
    pub host: usize,
    pub id: ChannelId,
    pub request: PeerRequest,
    /// The time at which it was accepted, ns on its host's clock.
    pub accepted: u64,
    pub quota: usize,
    /// The channel at the sender, by the name that was asked for.
    pub sender: usize,
    /// Place and key, once ACCEPT has left; with those of an earlier channel, if its ACCEPT came late.
    pub remotes: Vec<(u32, u64)>,
    pub tainted: bool,
    /// A packet came more than a second after its message's logical arrival: those behind it are taken for younger.
    pub stalled: bool,
    pub closed: bool,
    pub end: Option<End>,
    pub released: bool,
    /// The least sequence that may still be delivered.
    pub next: u64,
    pub delivered: u64,
    pub counters: ReceiveCounters,
}

/// The byte of a message at a place.
pub fn content(channel: usize, message: usize, place: usize) -> u8 {
    let mixed = [(channel, 89), (message, 31), (place, 7), (place / 64, 5)];
    mixed.iter().fold(0, |sum: u8, &(number, factor)| sum.wrapping_add((number as u8).wrapping_mul(factor)))
}

/// Counters only grow, and add up.
pub fn check_send_counters(old: &SendCounters, new: &SendCounters) {
    let list = |c: &SendCounters| {
        [c.accepted, c.refused, c.sent, c.sent_bytes, c.late, c.violations.size, c.violations.rate, c.violations.burst]
    };
    assert!(list(old).iter().zip(list(new)).all(|(old, new)| *old <= new), "{old:?} {new:?}");
    assert!(new.sent <= new.accepted && new.late <= new.sent, "{new:?}");
}

/// As [`check_send_counters`].
pub fn check_receive_counters(old: &ReceiveCounters, new: &ReceiveCounters) {
    let list = |c: &ReceiveCounters| {
        [
            [c.delivered, c.late, c.delivered_bytes, c.lost, c.dropped, c.frames_invalid],
            [
                c.frames_over_contract,
                c.frames_receiver_full,
                c.frames_stale,
                c.largest.as_nanos(),
                c.misses.sender + c.misses.receiver,
                c.misses.laxity + c.misses.platform,
            ],
        ]
        .concat()
    };
    assert!(list(old).iter().zip(list(new)).all(|(old, new)| *old <= new), "{old:?} {new:?}");
    assert!(new.late <= new.delivered && new.misses.all() == new.late + new.lost + new.dropped, "{new:?}");
}
