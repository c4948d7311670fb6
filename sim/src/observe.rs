//! The events that an observer of a world is told, while they happen.
//!
//! An observer sees and changes nothing: a world with one and a world without do the same. Without one, a world pays for a
//! branch. All times are the world's.

use laxity_core::contract::{Service, packets};
use laxity_core::endpoint::{Endpoint, Transmit};
use laxity_core::event::{ChannelId, End, LinkId, Name};
use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::piece::Piece;
use laxity_core::receive::{Cause, DropReason, FrameTimes};
use laxity_core::relay::RelayCounters;
use laxity_core::send::Violation;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::DataView;

use crate::{ArrivedFrame, ChannelHandle, Fault, FindingKind, Gap, HostId, World};

/// Watches a world: it is told what happens ([`World::set_observer`]). Times do not always ascend from call to call: a host works ahead of the
/// world's time until its work is paid for.
pub type Observer = Box<dyn FnMut(Observation)>;

/// The work of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A step of a handler, the change of handler included.
    Step {
        /// The channel that it is for.
        channel: Option<ChannelHandle>,
        /// The kind of work.
        kind: Piece,
        /// True if another handler ran before.
        switched: bool,
    },
    /// C_l: handing a packet over to the link.
    HandOver {
        /// The channel of the packet; `None` for a control frame.
        channel: Option<ChannelHandle>,
    },
    /// C_d: looking at a frame that arrived.
    Look,
    /// An iteration of an upcall on the executive's thread, the change of handler included.
    Upcall {
        /// Which.
        number: usize,
    },
}

/// The place of a packet in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPlace {
    /// The channel.
    pub channel: ChannelHandle,
    /// The message's number.
    pub sequence: u64,
    /// The packet's number in its message.
    pub index: u16,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A channel is there, the next one by number; nothing of it has been said before.
    Opened {
        /// Its name.
        name: Name,
        /// The sending host.
        from: HostId,
        /// The receiving one.
        to: HostId,
    },
    /// The processor of a host was busy, with what the platform took in between.
    Worked {
        /// The host.
        host: HostId,
        /// With what.
        work: Activity,
        /// From when.
        start: Instant,
        /// Until when.
        end: Instant,
    },
    /// The platform took the processor away; told when it is over, and before the sleep that it fell into.
    Taken {
        /// The host.
        host: HostId,
        /// The gap: its begin, its length, and the part of it that was beyond the envelope.
        gap: Gap,
    },
    /// The executive slept; told when it wakes up.
    Slept {
        /// The host.
        host: HostId,
        /// From when.
        start: Instant,
        /// Until when.
        end: Instant,
    },
    /// A packet goes over the wire of a host, whether or not it arrives.
    Transmitted {
        /// The host whose wire it is.
        host: HostId,
        /// Which packet; `None` for a control frame.
        place: Option<PacketPlace>,
        /// True for the last packet of its message.
        last: bool,
        /// Bytes of the frame.
        bytes: usize,
        /// The begin of its transmission.
        start: Instant,
        /// The end of its transmission.
        end: Instant,
    },
    /// A channel took a message.
    Submitted {
        /// The channel.
        channel: ChannelHandle,
        /// The message's number.
        sequence: u64,
        /// The time at which the application had it.
        arrival: Instant,
        /// The time from which its deadline counts.
        logical_arrival: Instant,
        /// The time at which it is due; `None` for best effort.
        deadline: Option<Instant>,
        /// Bytes.
        bytes: u32,
    },
    /// A channel did not take a message, and no application waits to offer it again.
    Refused {
        /// The channel.
        channel: ChannelHandle,
        /// The time.
        at: Instant,
        /// The reason.
        violation: Violation,
    },
    /// The receiving host found a packet of a channel, or one that the channel passes through did not take it.
    Found {
        /// Which.
        place: PacketPlace,
        /// The time.
        at: Instant,
        /// The reason why it was not taken, if so.
        dropped: Option<DropReason>,
    },
    /// A packet found every place taken, and the receiving host gave up the oldest messages that it waited for.
    GaveUp {
        /// Their channel.
        channel: ChannelHandle,
        /// The time.
        at: Instant,
        /// Their number.
        messages: u64,
        /// Of these, by the receiver's fault.
        receiver: u64,
    },
    /// A message was delivered. Those before it that were not are over.
    Delivered {
        /// The channel.
        channel: ChannelHandle,
        /// The message's number.
        sequence: u64,
        /// The time at which it was complete.
        completion: Instant,
        /// The cause, if it was late.
        cause: Option<Cause>,
        /// Complete after its bound, though in time, and nothing outside explains it.
        over_bound: bool,
    },
    /// A fault begins, or is over.
    Fault {
        /// Its number, in the order in which faults were added.
        number: usize,
        /// The fault.
        fault: Fault,
        /// Else it is over.
        begins: bool,
        /// The time.
        at: Instant,
    },
    /// A checker found something.
    Finding {
        /// The time.
        at: Instant,
        /// Of which channel, if of one.
        channel: Option<ChannelHandle>,
        /// The rule that did not hold.
        what: FindingKind,
    },
    /// A side of a channel is over.
    Ended {
        /// The channel.
        channel: ChannelHandle,
        /// The time.
        at: Instant,
        /// The sending side; else the receiving one.
        sender: bool,
        /// Messages that are over for the receiving side, however they ended; zero at the sending one.
        over: u64,
        /// The kind of end.
        end: End,
    },
}

impl World {
    /// Lets `observer` watch from now on, instead of the one before. Of channels that are there already it is not told the names.
    pub fn set_observer(&mut self, observer: Observer) {
        self.observer = Some(observer);
        self.hosts.iter_mut().for_each(|host| host.suffered = Some(Vec::new()));
    }

    /// Tells the observer, if there is one.
    pub(crate) fn tell(&mut self, seen: Observation) {
        if let Some(observer) = &mut self.observer {
            observer(seen);
        }
    }

    /// A host wakes up at `at`; it slept since `asleep`, if it did.
    pub(crate) fn tell_waking(&mut self, number: usize, asleep: Option<Instant>, at: Instant) {
        if self.observer.is_some()
            && let Some(start) = asleep
        {
            self.tell_gaps(number);
            self.tell(Observation::Slept { host: HostId(number), start, end: at });
        }
    }

    /// Tells the work of a host's processor from `start` to `end`.
    pub(crate) fn tell_interrupt(&mut self, number: usize, start: Instant, end: Instant, work: Activity) {
        self.tell(Observation::Worked { host: HostId(number), work, start, end });
    }

    /// Tells the work of a host's processor since `start`.
    pub(crate) fn tell_work(&mut self, number: usize, start: Instant, work: Activity) {
        self.tell_interrupt(number, start, self.hosts[number].now, work);
    }

    /// Tells the work of a host's handler since `start`.
    pub(crate) fn tell_step(&mut self, number: usize, start: Instant, key: ChannelId, kind: Piece, switched: bool) {
        if self.observer.is_some() {
            let channel = self.channel_at(number, key);
            self.tell_work(number, start, Activity::Step { channel, kind, switched });
        }
    }

    /// A packet was handed over to the link since `start`.
    pub(crate) fn tell_hand_over(&mut self, number: usize, start: Instant, packet: &Transmit) {
        if self.observer.is_some() {
            let channel = self.channel_of(number, packet);
            self.tell_work(number, start, Activity::HandOver { channel });
        }
    }

    /// The channel of which this is a side at a host: at an end, or at one that it passes through.
    fn channel_at(&self, number: usize, key: ChannelId) -> Option<ChannelHandle> {
        self.hosts[number].memory.keys.get(&key).map(|&(channel, _)| ChannelHandle(channel))
    }

    /// The channel of a packet.
    pub(crate) fn channel_of(&self, number: usize, packet: &Transmit) -> Option<ChannelHandle> {
        let departed = packet.message?;
        self.channel_at(number, departed.channel)
    }

    /// A packet, which was just copied from its frame, is on the wire, which was busy until `busy_until` before; its transmission ends at `end`.
    pub(crate) fn tell_transmission(&mut self, number: usize, packet: &Transmit, busy_until: Instant, end: Instant) {
        if self.observer.is_none() {
            return;
        }
        let host = &self.hosts[number];
        let place = packet.message.and_then(|departed| {
            let channel = self.channel_at(number, departed.channel)?;
            let view = DataView::parse(&self.scratch[..packet.len]).ok()?;
            Some(PacketPlace { channel, sequence: departed.sequence, index: view.header().index })
        });
        let last = packet.message.is_some_and(|departed| departed.last);
        let start = busy_until.max(host.now);
        let host = HostId(number);
        self.tell(Observation::Transmitted { host, place, last, bytes: packet.len, start, end });
    }

    /// Tells the gaps of a host since the last call.
    pub(crate) fn tell_gaps(&mut self, number: usize) {
        let Some(observer) = &mut self.observer else { return };
        for gap in self.hosts[number].suffered.iter_mut().flat_map(|suffered| suffered.drain(..)) {
            observer(Observation::Taken { host: HostId(number), gap });
        }
    }

    /// Gives a frame that was looked at, when its host's clock read `now`, to the endpoint.
    pub(crate) fn handle_frame(
        &mut self,
        number: usize,
        link: LinkId,
        now: Instant,
        arrived: ArrivedFrame,
        frames: &mut HeapFrames,
        endpoint: &mut Endpoint,
    ) {
        let ArrivedFrame { at, peer, frame, len, .. } = arrived;
        let bytes = &frames.packet(&frame)[..len];
        let place = self.observer.is_some().then(|| self.place_of(number, bytes, endpoint)).flatten();
        let before = place.map(|(_, key)| drops(endpoint, key));
        // What its clock read then: a span of the world's time is another by a clock that drifts or was stepped since.
        let arrived = self.hosts[number].clock.reading(at).min(now);
        let found = FrameTimes { arrived: Some(arrived), ..FrameTimes::from(now) };
        endpoint.handle_frame(found, link, peer, frame, len, frames);
        let host = &mut self.hosts[number];
        host.counters.received += 1;
        let now = host.now;
        if let (Some((place, key)), Some(before)) = (place, before) {
            let after = drops(endpoint, key);
            let [lost, receiver, sender] = [5, 6, 7].map(|reason| after[reason] - before[reason]);
            let (channel, messages) = (place.channel, lost + receiver + sender);
            if messages > 0 {
                self.tell(Observation::GaveUp { channel, at: now, messages, receiver });
            }
            let has_grown = |count: usize| before[count] != after[count];
            let reasons = [DropReason::Invalid, DropReason::OverContract, DropReason::ReceiverFull, DropReason::Stale];
            let dropped = (1..).zip(reasons).find(|&(count, _)| has_grown(count)).map(|(_, reason)| reason);
            // Not of one that belongs to no channel here, nor of one that was taken to be passed on.
            if !has_grown(0) && (dropped.is_some() || self.channels[place.channel.0].to.0 == number) {
                self.tell(Observation::Found { place, at: now, dropped });
            }
        }
    }

    /// The packet in a frame, if it is one of a channel that this host receives or passes on, and the channel's key here.
    fn place_of(&self, number: usize, bytes: &[u8], endpoint: &Endpoint) -> Option<(PacketPlace, ChannelId)> {
        let view = DataView::parse(bytes).ok()?;
        let key = endpoint.key_at(view.header().channel)?;
        let is_sender = endpoint.receive_counters(key).is_none() && endpoint.relay_counters(key).is_none();
        let channel = self.channel_at(number, key).filter(|_| !is_sender)?;
        Some((PacketPlace { channel, sequence: view.header().sequence, index: view.header().index }, key))
    }
}

/// Frames that were not taken: of no channel, and of this channel by reason. Then messages that are over: lost, and dropped by whose
/// fault.
fn drops(endpoint: &Endpoint, key: ChannelId) -> [u64; 8] {
    let unknown = endpoint.counters.unknown_channel;
    if let Some(counters) = endpoint.relay_counters(key) {
        // A message that a relay drops is over at the receiver.
        let RelayCounters { frames_invalid, frames_over_contract, frames_full, frames_stale, .. } = counters;
        return [unknown, frames_invalid, frames_over_contract, frames_full, frames_stale, 0, 0, 0];
    }
    let counters = endpoint.receive_counters(key).unwrap_or_default();
    [
        unknown,
        counters.frames_invalid,
        counters.frames_over_contract,
        counters.frames_receiver_full,
        counters.frames_stale,
        counters.lost,
        counters.dropped - counters.misses.sender,
        counters.misses.sender,
    ]
}

/// From when until when a message is due after `bytes` of it were taken: an oversize one later in proportion.
pub(crate) fn due(logical_arrival: Instant, service: &Service, bytes: u32, packet: u32) -> Option<Instant> {
    let contract = service.contract()?;
    let packets = |bytes| packets(bytes, packet);
    let intervals = packets(bytes).div_ceil(packets(contract.max_message()).max(1)).max(1);
    let extra: Duration = contract.interval() * u64::from(intervals - 1);
    Some(logical_arrival + contract.deadline() + extra)
}
