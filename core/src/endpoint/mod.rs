//! One host's end of Laxity: the contract between the core and whatever drives it.
//!
//! See [`Endpoint`].

mod channel;
mod clocks;
mod closing;
mod control;
mod gaps;
mod inspect;
mod job;
mod link;
mod relay;
mod replay;
mod restage;
mod seal;
mod secret;
mod signalling;
mod step;
mod transmit;
mod watched;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

pub use channel::{Channel, ReceiveSetup, SendSetup};
use clocks::PeerClocks;
pub use clocks::{ClockConfig, MAX_PEER_CLOCKS};
use gaps::RecentGaps;
pub use inspect::QueuePeaks;
use link::LinkState;
use restage::StageChange;
pub use restage::Stages;
pub use seal::SharedKey;
use secret::Secret;
pub use signalling::DECISION;
use signalling::Signalling;
pub use watched::{ExceededPremise, PeerPremises};

pub use crate::event::Destination;

use crate::collections::{FifoSet, Ring, Slab};
use crate::event::{ChannelId, Event, LinkId};
use crate::frames::{FrameId, Frames, MessageBuf};
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::piece::Piece;
use crate::platform::Interference;
use crate::processor::{PickedJob, Policy};
pub use crate::receive::ReceiveGrant;
use crate::receive::{Cause, DeliveredMessage, Evidence, FrameTimes, SegmentExcess, TimeLoss, UnexplainedDrops};
pub use crate::send::LinkConfig;
use crate::send::{AcceptedMessage, Arrival, RejectedMessage, Violation};
use crate::signal::SignalState;
use crate::units::{Duration, Instant};
use crate::upcall::Upcalls;
use crate::wire::{DataView, FrameKind, MAX_CONTROL_BYTES, WireError, classify};

/// The parameters of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most channels at once.
    pub channels: usize,
    /// Most upcalls at once that run on the driver's thread.
    pub upcalls: usize,
    /// Frames that are kept for channels, for each as many as it may ever hold: all but those that receive best effort. The rest of
    /// the region is the driver's, for what is in transit.
    pub frames: usize,
    /// Frames beside those that the channels that receive best effort share. One holds at most as many as are left.
    pub best_effort_frames: usize,
    /// S: the largest packet payload, bytes.
    pub packet: u32,
    /// P: packets between preemption points.
    pub quantum: u32,
    /// The order of handlers.
    pub policy: Policy,
    /// The links, by number.
    pub links: Vec<LinkConfig>,
    /// Largest age of a message when the executive sees it, unless its channel has a shorter one: an arrival before `now − handover` is not believed.
    pub handover: Duration,
    /// The processor time that the platform may take without being to blame for a miss.
    pub envelope: Interference,
    /// The ratio of a message's delay to the time that the platform took, in parts per million
    /// ([`crate::admission::Admission::stretch_ppm`]).
    pub stretch_ppm: u64,
    /// The clock's identity, equal on hosts that share it; 0 if unknown.
    pub clock: u64,
    /// The parameters by which the clocks of peers that do not share it are estimated.
    pub peer_clocks: ClockConfig,
    /// The key of the function that tokens and keys come from; unpredictable on a live host.
    pub secret: u128,
    /// The key that this host and its peers have. With one, only they may ask for channels, and only they are answered; frames need 8
    /// more bytes ([`limits::TAG_BYTES`]).
    pub key: Option<SharedKey>,
}

/// A packet to be handed to a link.
pub struct Transmit {
    /// The frame that holds it; free it when the link is done with it.
    pub frame: FrameId,
    /// Bytes of the packet.
    pub len: usize,
    /// The destination.
    pub peer: SocketAddr,
    /// The message that it is part of; `None` for control frames.
    pub message: Option<DepartedMessage>,
    /// The end of its transmission, by the link's model.
    pub completes: Instant,
}

/// The message of a packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartedMessage {
    /// The channel.
    pub channel: ChannelId,
    /// The message's number.
    pub sequence: u64,
    /// True if it is the message's last packet.
    pub last: bool,
    /// The time from which this host serves the message: its logical arrival, unless it, or one before it, was handed over too late.
    pub logical_arrival: Instant,
    /// The time by which this host had to be done with it, counted from there.
    pub deadline: Instant,
}

/// The work of one packet. The driver measures it, or charges it; its results show at the next call.
pub struct Step {
    /// The channel whose handler ran.
    pub channel: ChannelId,
    /// The work that it did: [`Piece::First`], [`Piece::Next`], [`Piece::Reassemble`] or [`Piece::Deliver`].
    pub kind: Piece,
    /// True if another handler ran before: the step cost a switch.
    pub switched: bool,
    /// True if this was a preemption point.
    pub quantum_end: bool,
    /// Payload bytes that were moved.
    pub bytes: u32,
    /// The buffer of a message that was processed completely: the application's again.
    pub spent: Option<MessageBuf>,
}

/// Frames that belong to no channel here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EndpointCounters {
    /// Not a frame of ours, or damaged.
    pub foreign: u64,
    /// Ours, of another major version.
    pub other_version: u64,
    /// For a channel that is not open here, or with a wrong key or from a wrong address.
    pub unknown_channel: u64,
    /// Between hosts with a key: without a code or a tag, or with a wrong one.
    pub unauthenticated: u64,
    /// Between hosts with a key: control frames that had come before, or come too late.
    pub replayed: u64,
    /// Control frames that could not be used.
    pub control_invalid: u64,
    /// Control frames that found their queue full; their timers repeat them.
    pub control_overflow: u64,
    /// All frames that came.
    pub handled: u64,
    /// Packets that the network delayed for longer than it may.
    pub delayed: u64,
    /// Submitted messages whose arrival stamp was older than the handover bound.
    pub stamps_clamped: u64,
}

impl EndpointCounters {
    /// Frames that no channel of this host waits for.
    pub fn unclaimed(&self) -> u64 {
        self.foreign
            + self.other_version
            + self.unknown_channel
            + self.unauthenticated
            + self.replayed
            + self.control_invalid
    }
}

/// One host's end of Laxity, without I/O, clock or threads.
///
/// # Contract
/// *Time* is an argument of every call and never runs backwards. *Commands* open, close and submit. *Inputs* tell what
/// happened outside. *Drains* are polled until they are empty, or some at a time where [`poll_timeout`](Self::poll_timeout) asks for the rest. Every call is bounded: by the logarithm of the number of
/// channels, by one packet, or by some of what became due.
///
/// The drive loop: inputs; [`poll_transmit`](Self::poll_transmit) until the link is full; one
/// [`poll_step`](Self::poll_step); again. Then deliveries, events, and a sleep until
/// [`poll_timeout`](Self::poll_timeout). `poll_step` does the work of *one* packet and changes the handler only at a
/// preemption point; the driver decides when processor time is spent, and measures it.
///
/// After [`new`](Self::new) no call allocates: channels come in boxes that the caller allocated ([`SendSetup`],
/// [`ReceiveSetup`]) and leave the same way ([`Channel`]).
///
/// ```
/// use laxity_core::contract::{Contract, Overload, SendingStages, Service};
/// use laxity_core::endpoint::*;
/// use laxity_core::event::{End, Event, Name};
/// use laxity_core::frames::{Frames, HeapFrames, MessageBuf};
/// use laxity_core::platform::{BestEffort, LinkModel};
/// use laxity_core::send::SendConfig;
/// use laxity_core::units::{Duration, Instant};
///
/// let config = |secret| Config {
///     envelope: Default::default(), stretch_ppm: 1_000_000, channels: 4, upcalls: 0, frames: 64, best_effort_frames: 0, packet: 1000, quantum: 4, policy: Default::default(), handover: Duration::ZERO,
///     clock: 7, peer_clocks: ClockConfig::default(), secret, key: None,
///     links: vec![LinkConfig {
///         model: LinkModel::UNLIMITED, look_ahead: Duration::ZERO, horizon: Duration::ZERO, best_effort: BestEffort::UNLIMITED,
///     }],
/// };
/// let ms = |millis: u64| Instant::from_nanos(millis * 1_000_000);
/// let (here, there) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
/// let (mut sender, mut receiver) = (Endpoint::new(config(1)), Endpoint::new(config(2)));
/// let (mut frames, mut frames2) = (HeapFrames::new(64, 1052), HeapFrames::new(64, 1052));
///
/// // Whatever leaves one side arrives at the other: a link without delay.
/// fn carry(now: Instant, a: &mut Endpoint, fa: &mut HeapFrames, from: core::net::SocketAddr, b: &mut Endpoint, fb: &mut HeapFrames) {
///     a.handle_link_ready(now, 0, 16);
///     while let Some(out) = a.poll_transmit(now, 0, fa) {
///         let frame = fb.take().unwrap();
///         fb.packet_mut(&frame)[..out.len].copy_from_slice(&fa.packet(&out.frame)[..out.len]);
///         fa.free(out.frame);
///         b.handle_frame(now, 0, from, frame, out.len, fb);
///     }
/// }
///
/// // Open: both sides have admitted the channel (not shown), the receiver gives 4 ms of the 10 to itself.
/// let contract = Contract::new(2500, 1, Duration::from_millis(20), 2, Duration::from_millis(10)).unwrap();
/// receiver.listen(Name::new("camera").unwrap());
/// let send = SendConfig { service: Service::RealTime(contract), overload: Overload::Block, priority: 0, packet: 1000, work_conserving: false };
/// let to = Destination { link: 0, peer: there, name: Name::new("camera").unwrap() };
/// let channel = sender.open(ms(0), SendSetup::new(to, send, Duration::from_millis(2), Duration::from_secs(2), 2, 6)).unwrap();
/// sender.handle_timeout(ms(0));
/// carry(ms(0), &mut sender, &mut frames, here, &mut receiver, &mut frames2);
/// let Some(Event::Requested(request)) = receiver.poll_event() else { panic!() };
/// let (upstream, stage) = (Duration::from_millis(6), Duration::from_millis(4));
/// let (input_delay, transit) = (Duration::ZERO, upstream);
/// let reception = ReceiveGrant {
///     stage, input_delay, upstream, transit, work_conserving: true, priority: 0, messages: 4, packets: 12,
/// };
/// receiver.accept(ms(0), &request, ReceiveSetup::new(&request, reception)).unwrap();
/// carry(ms(0), &mut receiver, &mut frames2, there, &mut sender, &mut frames);
/// assert!(matches!(sender.poll_event(), Some(Event::Accepted { .. })));
/// sender.begin(ms(0), channel, SendingStages { processor: Duration::from_millis(3), link: Duration::from_millis(3) });
///
/// // Send: three packets, one step each; each step's packet is on the link before the next one.
/// let mut message = MessageBuf::with_capacity(2500);
/// message.fill(&[5; 2500]);
/// sender.submit(ms(1), channel, ms(1), Duration::ZERO, message).unwrap();
/// while let Some(step) = sender.poll_step(ms(1), &mut frames) {
///     carry(ms(1), &mut sender, &mut frames, here, &mut receiver, &mut frames2);
///     assert!(step.bytes <= 1000);
/// }
/// while receiver.poll_step(ms(2), &mut frames2).is_some() {}
/// let (_, delivered, cause) = receiver.poll_delivery(ms(2)).unwrap();
/// assert_eq!((&delivered.message[..], delivered.latency(), cause), (&[5; 2500][..], Duration::from_millis(1), None));
/// assert_eq!(frames.available(), 64);
/// ```
pub struct Endpoint {
    config: Config,
    channels: Slab<Box<Channel>>,
    /// The handlers of channels, by their places, and upcalls.
    jobs: Upcalls,
    /// The upcall that the processor scheduler has picked.
    next_upcall: Option<PickedJob>,
    links: Vec<LinkState>,
    signalling: Signalling,
    events: Ring<Event>,
    events_dropped: u64,
    deliverable: FifoSet,
    /// The channel whose last packet is being made: it may not leave yet.
    making: Option<u32>,
    starved: FifoSet,
    clocks: PeerClocks,
    /// See [`Endpoint::restage`].
    restaging: Option<StageChange>,
    gaps: RecentGaps,
    /// Packets that this host had and lost, and why.
    lost: (UnexplainedDrops, Cause),
    frames_in_quota: usize,
    /// Frames that channels hold of those that best effort shares.
    frames_shared: usize,
    /// Channels, or sides of relays, to which something is promised.
    promises: usize,
    /// See [`Endpoint::set_restricted`].
    restricted: bool,
    /// Frames that real-time channels and relays took so far.
    pub promised_frames: u64,
    /// Frames that belong to no channel here.
    pub counters: EndpointCounters,
}

impl Endpoint {
    /// An endpoint without channels. Allocates everything but the channels themselves.
    ///
    /// # Panics
    /// If the configuration exceeds [`limits`] or has no link: a mistake of the driver.
    pub fn new(config: Config) -> Self {
        assert!((1..=limits::MAX_CHANNELS).contains(&config.channels), "channels: {}", config.channels);
        assert!((1..=limits::MAX_PACKET_BYTES).contains(&config.packet), "packet: {}", config.packet);
        assert!(config.quantum > 0, "a quantum has at least one packet");
        assert!(!config.peer_clocks.period.is_zero(), "peers are asked for their time at intervals");
        assert!(!config.links.is_empty() && config.links.len() <= usize::from(LinkId::MAX), "at least one link");
        let capacity = config.channels;
        let links = config.links.iter().map(|link| LinkState::new(link, capacity));
        Self {
            channels: Slab::with_capacity(capacity),
            jobs: Upcalls::beside(capacity, config.policy, config.upcalls),
            next_upcall: None,
            links: links.collect(),
            signalling: Signalling::new(capacity, config.secret, config.key.as_ref()),
            // Beside requests, each channel is accepted once and ends once: those must never be lost.
            events: Ring::with_capacity(limits::MAX_EVENTS + 2 * capacity),
            events_dropped: 0,
            deliverable: FifoSet::with_capacity(capacity),
            making: None,
            starved: FifoSet::with_capacity(capacity),
            clocks: PeerClocks::new(config.peer_clocks, capacity, Secret::new(config.secret).first_epoch()),
            restaging: None,
            gaps: RecentGaps::new(config.envelope.clone()),
            lost: (UnexplainedDrops::default(), Cause::Laxity),
            frames_in_quota: 0,
            frames_shared: 0,
            promises: 0,
            restricted: false,
            promised_frames: 0,
            counters: EndpointCounters::default(),
            config,
        }
    }

    /// The parameters that it was set up with.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// True if there is a real-time channel, or a relay of one.
    pub fn has_promises(&self) -> bool {
        self.promises > 0
    }
    /// True if a complete message was not handed out yet.
    pub fn has_delivery(&self) -> bool {
        !self.deliverable.is_empty()
    }
    /// The number of channels, including those that are being set up or have ended.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    // ------------------------------------------------------------------------------------------------ commands

    /// Takes a message that arrived at `stamp` in the application's thread, not after `now`, and that the application itself withheld for so
    /// long after it had stamped it. The promise and the check of the contract count from `stamp`. The message is served as if it had
    /// arrived no more than `handover` ago, so no application can bring deadlines closer than was admitted by handing over late.
    ///
    /// # Errors
    /// The message comes back with the reason. A channel that is not open counts as having no burst.
    pub fn submit(
        &mut self,
        now: Instant,
        channel: ChannelId,
        stamp: Instant,
        withheld: Duration,
        message: MessageBuf,
    ) -> Result<AcceptedMessage, RejectedMessage> {
        let (stamp, earliest) = (stamp.min(now), now.before(self.handover(channel)));
        let mut arrival = Arrival::from(stamp);
        if stamp < earliest {
            self.counters.stamps_clamped += 1;
            let stamp = if mutant::is_on(Mutant::StampClamped) { earliest } else { stamp };
            arrival = Arrival { stamp, served: earliest, withheld };
        }
        let violation = Violation::Burst { wait: Duration::MAX };
        let closed = |message| RejectedMessage { message, violation, would_block: false };
        let state = self.channels.get_mut(channel).filter(|state| state.association.state == SignalState::Open);
        let Some(state) = state.map(Box::as_mut) else { return Err(closed(message)) };
        let Some(sending) = state.job.try_as_sender_mut() else { return Err(closed(message)) };
        let submitted = sending.submit(arrival, message, |since| self.gaps.stolen(since, now))?;
        if let Some(work) = state.job.work(self.config.quantum) {
            self.jobs.processor.ready(now, channel.index(), work);
        }
        Ok(submitted)
    }

    /// The largest age of a message of the channel when it is taken: an earlier arrival is not believed.
    pub fn handover(&self, channel: ChannelId) -> Duration {
        let own = self.channels.get(channel).and_then(|channel| channel.state.handover);
        own.unwrap_or(self.config.handover)
    }

    /// Replaces the envelope, which is what the platform may take without being to blame for a miss; `envelope` then holds the old one.
    pub fn count_on(&mut self, envelope: &mut Interference) {
        core::mem::swap(&mut self.gaps.envelope, envelope);
    }

    /// Hands the buffer of a delivered message back.
    pub fn recycle(&mut self, channel: ChannelId, message: MessageBuf) {
        if let Some(receiving) = self.channels.get_mut(channel).and_then(|channel| channel.job.try_as_receiver_mut()) {
            receiving.recycle(message);
        }
    }

    /// Notes time that no work accounts for and that ends now: evidence when a message is late. Of the platform's time, only the part
    /// beyond the envelope counts.
    pub fn note_gap(&mut self, now: Instant, taken: TimeLoss) {
        self.gaps.note(now, taken);
    }

    /// Notes that this host lost `packets` more packets in its input, before this endpoint saw them. Messages that turn out to miss some of
    /// them are not the network's fault.
    pub fn note_lost(&mut self, now: Instant, packets: u64) {
        if mutant::is_on(Mutant::LossesAreNetworks) {
            return;
        }
        let taken = self.gaps.taken(now.before(UnexplainedDrops::LAST), now);
        let cause =
            Evidence::of_backlog(SegmentExcess::default(), taken, self.config.stretch_ppm).unwrap_or(Cause::Laxity);
        if self.lost.1 != cause {
            self.lost = (UnexplainedDrops::default(), cause);
        }
        self.lost.0.note(now, packets, u64::MAX);
    }

    /// Notes that of all packets given to `link`, `departed` were sent or are still there. It has lost the others, and the receivers are told.
    pub fn note_departed(&mut self, link: LinkId, departed: u64) {
        if let Some(state) = self.links.get_mut(usize::from(link)) {
            state.unsent = state.unsent.max(state.issued.saturating_sub(departed));
        }
    }

    /// Updates a packet that a link did not take, so that it has been waiting for `late` more: its statements of waiting are
    /// written anew.
    pub fn restamp(&self, packet: &mut [u8], late: Duration) {
        let epoch = |stamp| self.clocks.epoch_at(stamp);
        crate::wire::add_waited(packet, late, epoch, |channel, key, covered| {
            let all = self.channels.iter().filter(|(_, of)| of.state.remote == (channel, key));
            let seal = all.filter_map(|(_, of)| of.state.seal.as_ref()).next();
            seal.map_or(0, |seal| seal.tag(covered))
        });
    }

    /// Notes that the driver slept because its processor had nothing to do before `until`. While a current packet waits for a link, the host does not count as caught up.
    pub fn note_idle(&mut self, until: Instant) {
        if self.links.iter().all(|link| !link.scheduler.has_current(until)) {
            self.gaps.caught_up = self.gaps.caught_up.max(until);
        }
    }

    // ------------------------------------------------------------------------------------------------ inputs

    /// Takes a frame of `len` bytes that came in on `link` from `peer`, and was found then. The endpoint owns the frame now, and frees it
    /// unless it keeps it. The channel of a packet is found before any protocol work, so that frames that are not ours, or beyond a contract,
    /// cost next to nothing [rio §2.1, channels §3.1].
    pub fn handle_frame(
        &mut self,
        found: impl Into<FrameTimes>,
        link: LinkId,
        peer: SocketAddr,
        frame: FrameId,
        len: usize,
        frames: &mut impl Frames,
    ) {
        let found = found.into();
        self.counters.handled += 1;
        let bytes = &frames.packet(&frame)[..len.min(frames.packet_capacity())];
        match classify(bytes) {
            Ok(FrameKind::Control) if len <= MAX_CONTROL_BYTES => self.handle_control(found, link, peer, bytes),
            Ok(FrameKind::Control) => self.counters.control_invalid += 1,
            Ok(FrameKind::Data | FrameKind::Tagged) => match DataView::parse(bytes) {
                Ok(view) => {
                    if let Some(frame) = self.handle_data(found, peer, view, frame) {
                        frames.free(frame);
                    }
                    return;
                }
                Err(_) => self.counters.foreign += 1,
            },
            Err(WireError::Version(_)) => {
                self.counters.other_version += 1;
                self.answer_version(link, peer, bytes);
            }
            Err(_) => self.counters.foreign += 1,
        }
        frames.free(frame);
    }

    /// Demultiplexes a packet; gives the frame back if no channel takes it.
    fn handle_data(
        &mut self,
        found: FrameTimes,
        peer: SocketAddr,
        view: DataView<'_>,
        frame: FrameId,
    ) -> Option<FrameId> {
        let now = found.at;
        let header = view.header();
        let place = header.channel;
        let channel = self.channels.at_mut(place).map(Box::as_mut).filter(|channel| {
            channel.state.remote == (place, header.key)
                && channel.at.peer == peer
                && channel.job.is_receiving()
                && matches!(channel.association.state, SignalState::Open | SignalState::Finishing { .. })
        });
        let Some(channel) = channel else {
            self.counters.unknown_channel += 1;
            return Some(frame);
        };
        let is_genuine = match (&channel.state.seal, view.tag()) {
            (None, None) => true,
            (Some(seal), Some((covered, tag))) => seal.tag(covered) == tag,
            _ => false,
        };
        if !is_genuine {
            self.counters.unauthenticated += 1;
            return Some(frame);
        }
        channel.association.heard(now);
        let found = FrameTimes { transit: self.clocks.transit(channel.state.clock, found, header), ..found };
        let Some(receiving) = channel.job.try_as_receiver_mut() else {
            self.promised_frames += 1;
            let Some(inward) = self.channels.key_at(place) else { return Some(frame) };
            let refused = self.pass_on(found, inward, &view, frame);
            self.conclude_if_complete(now, inward);
            return refused;
        };
        let shares = receiving.shares_frames();
        let most = if shares { self.config.best_effort_frames - self.frames_shared } else { usize::MAX };
        let taken = |since| self.gaps.taken(since, now);
        let refused = receiving.accept(found, &view, frame, most, taken).err().map(|(frame, _)| frame);
        self.promised_frames += u64::from(!shares && refused.is_none());
        receiving.explain_lost_by_host(now, &mut self.lost);
        self.counters.delayed += u64::from(receiving.is_delayed());
        self.frames_shared += usize::from(shares && refused.is_none());
        if let Some(work) = channel.job.work(self.config.quantum) {
            self.jobs.processor.ready(now, place, work);
        }
        refused
    }

    /// Tells that the link takes `room` more packets.
    pub fn handle_link_ready(&mut self, now: Instant, link: LinkId, room: usize) {
        if let Some(state) = self.links.get_mut(usize::from(link)) {
            state.scheduler.room = room;
        }
        while let Some(id) = self.starved.pop_front(0) {
            if let Some(work) = self.channels.at(id).and_then(|channel| channel.job.work(self.config.quantum)) {
                self.jobs.processor.ready(now, id, work);
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ drains

    /// The next message that is complete at `now`, and the cause if it is late.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<(ChannelId, DeliveredMessage, Option<Evidence>)> {
        loop {
            let id = self.deliverable.pop_front(0)?;
            let Some(key) = self.channels.key_at(id) else { continue };
            let Some(channel) = self.channels.get_mut(key).map(Box::as_mut) else { continue };
            let clock = self.clocks.known(channel.state.clock);
            let Some(receiving) = channel.job.try_as_receiver_mut() else { continue };
            let taken = |since| self.gaps.taken(since, now);
            let Some((delivered, cause, displaced)) = receiving.deliver(now, clock, taken) else { continue };
            if receiving.unjudged() > 0 {
                self.clocks.waits(now, key, displaced);
            }
            if receiving.has_delivery() {
                self.deliverable.push_back(0, id);
            }
            self.conclude_if_complete(now, key);
            return Some((key, delivered, cause));
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop() {
            return Some(event);
        }
        let dropped = core::mem::take(&mut self.events_dropped);
        (dropped > 0).then_some(Event::Overflow { dropped })
    }

    /// The time at which to call again if nothing else happens. A time that is not after `now` means: right away. So it is while events, or timers
    /// that are due, are left.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let step = if self.jobs.processor.has_ready(now) { Some(now) } else { self.jobs.processor.next_release() };
        let link = self.links.iter().filter_map(LinkState::next_time).min();
        let held_until = self.signalling.held_until.unwrap_or(Instant::ZERO);
        let told = self.has_event().then_some(now);
        let signal = self.signalling.timers.peek().map(|(at, _)| at).into_iter().chain(told).min();
        let signal = signal.map(|at| at.max(held_until));
        let judged = self.clocks.next_time(now).filter(|_| !self.restricted).map(|at| at.max(held_until));
        [step, link, signal, judged].into_iter().flatten().min()
    }

    // ------------------------------------------------------------------------------------------------ helpers

    /// True if [`poll_event`](Self::poll_event) has one.
    fn has_event(&self) -> bool {
        !self.events.is_empty() || self.events_dropped > 0
    }

    fn push_event(&mut self, event: Event) {
        let crowded = self.events.len() >= limits::MAX_EVENTS;
        match event {
            Event::Requested(request) if crowded => {
                self.forget(&request);
                self.events_dropped += 1;
            }
            event => self.events_dropped += u64::from(self.events.push(event).is_err()),
        }
    }

    fn set_timer(&mut self, key: ChannelId) {
        match self.channels.get(key).and_then(|channel| channel.association.next_due()) {
            Some(at) => self.signalling.timers.set(key.index(), at),
            None => {
                self.signalling.timers.remove(key.index());
            }
        }
    }
}
