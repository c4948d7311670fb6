//! Early demultiplexing [rio §2.1]: what may arrive for a channel, in the few numbers that a program in the driver can judge by.
//!
//! [`Expected`] is what a link is told of a channel. [`EarlyDemux`] says what the program decides with it about a packet that is
//! for our port: a model, which [`route`] and [`DataView`](crate::wire::DataView) have a part in. A test of the link gives both
//! the same packets, so that the kernel's program is compared with the demultiplexer that ships.
//!
//! # Nothing is dropped early that the host would take
//!
//! The host polices messages, the program packets. A channel's packets move a virtual clock on by `spacing` e each, as far as it
//! was behind from now; a packet is dropped if the clock is more than `tolerance` T ahead. So it is dropped exactly if there is a
//! window of length t that ends with it, and in which k packets were let through before it, with `k·e > t + T`.
//!
//! What [`Receiving::accept`](super::Receiving::accept) takes in a window of length t, with the contract's interval I
//! and N packets in the largest message:
//!
//! - *Messages that begin in it.* Policing believes logical arrivals that are `w·I` apart for a message that uses up w intervals,
//!   and of which none is more than the credit C behind its time or more than `a + upstream` ahead of it, a being
//!   [`Contract::most_ahead`](crate::contract::Contract::most_ahead). One that is
//!   overtaken takes up time that the one which overtook it skipped, and there is never more of it than the host remembers, `s·o·I`.
//!   So without the last one they use up at most `(t + C + a + upstream) / I + s·o` intervals; the last one uses up o at
//!   most, where o is how many times its size a message may have (`oversize`).
//! - *Messages that began before.* There are s at most: as many as are under reassembly at once (a relay: one). Each has o at most.
//! - A message that uses up w intervals has at most `w·N` packets, each of which is taken once. A short message has fewer.
//! - A frame may wait for `input_delay` until the host finds it, so what it takes in t is what arrived in `t + input_delay`.
//!
//! Together `K(t)·I/N ≤ t + C + a + upstream + input_delay + (2·s + 1)·o·I`. With `e ≤ I/N` and T as above no packet that
//! the host would take is dropped, as long as it takes all that are let through. What it does not take (duplicates, what is stale
//! or beyond the contract) moves the clock on, too. T has room for [`SURPLUS_PACKETS`] of that, and in the long run it may be a
//! fifteenth of what the contract allows: e is that much shorter. A sender that breaks its contract may lose packets to that
//! which the host would have taken; it has only itself to blame.
//!
//! C, the second for which policing believes what is late, is also what an honest host or a network that was stopped for so long
//! sends in a bunch. Nothing depends on how long the host takes to look: what arrives in an honest sender's bunch is bounded the
//! same way.
//!
//! # What is let through
//!
//! Conversely at most `(t + T) / e + 1` packets pass in any window of length t, whatever a peer sends: sixteen fifteenths of the
//! contract's packets in the long run, and a constant. Best effort is not policed in packets: its queue and the share of its class
//! bound what it costs.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::demux::{Foreign, Route, route};
use super::policing::CREDIT;
use crate::contract::{Service, packets};
use crate::units::{Duration, Instant};
use crate::wire::{Kind, fragment_bytes};

/// Packets that need not be of use: copies that the network made, and what comes too late.
pub const SURPLUS_PACKETS: u64 = 64;

/// In the long run, so many packets may come where the contract allows one less.
const SURPLUS_SHARE: u64 = 16;

/// In which order the frames of a host are looked at, and which share memory: a flood of one class costs the others no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArrivalClass {
    /// Packets of real-time channels.
    RealTime,
    /// Control frames.
    Control,
    /// Packets of best-effort channels.
    BestEffort,
}

/// What may arrive for one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Who sends it.
    pub peer: SocketAddr,
    /// The key that its packets carry.
    pub key: u64,
    /// Real-time or best effort.
    pub class: ArrivalClass,
    /// S: the packet payload that was agreed on, bytes.
    pub packet: u32,
    /// The largest message that may come, bytes.
    pub max_message: u32,
    /// How often a packet may come in the long run; zero is not policed.
    pub spacing: Duration,
    /// How much too early it may come.
    pub tolerance: Duration,
}

/// Messages that an application's handler was done with before the host saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// How many.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Those of them that it was done with after their deadline. Why is not known.
    pub late: u64,
    /// The longest time from a logical arrival until one of the channel was done with, as far as can be told.
    pub largest: Duration,
}

/// What an application's handler did for one channel before the host saw anything of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandledEarly {
    /// The channel's place.
    pub place: u32,
    /// The messages.
    pub handled: Handled,
    /// Replies: on the channel at which place, how many, and bytes of them.
    pub replies: Option<(u32, u64, u64)>,
}

/// What of a channel's set-up decides how much the host takes; the letters are those of this module's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) service: &'a Service,
    /// S.
    pub(crate) packet: u32,
    /// o.
    pub(crate) oversize: u32,
    pub(crate) upstream: Duration,
    pub(crate) input_delay: Duration,
    /// s: messages of which packets may come at once.
    pub(crate) messages: usize,
}

impl Taken<'_> {
    /// From `peer`, with `key`.
    pub(crate) fn expected(&self, peer: SocketAddr, key: u64) -> Expected {
        let Self { service, packet, oversize, upstream, input_delay, messages } = *self;
        let (class, spacing, tolerance) = match service.contract() {
            None => (ArrivalClass::BestEffort, Duration::ZERO, Duration::ZERO),
            Some(contract) => {
                let interval = contract.interval();
                let largest = service.largest_message(oversize);
                let parts = u64::from(service.intervals(largest, packet));
                let count = u64::from(packets(contract.max_message(), packet));
                // Down, and never to zero: that would be no policing.
                let spacing = interval.mul_ratio(SURPLUS_SHARE - 1, SURPLUS_SHARE * count).max(Duration::from_nanos(1));
                let whole = interval * ((2 * messages as u64 + 1) * parts);
                let ahead = contract.most_ahead() + upstream;
                let tolerance = CREDIT + ahead + input_delay + whole + spacing * SURPLUS_PACKETS;
                (ArrivalClass::RealTime, spacing, tolerance)
            }
        };
        Expected { peer, key, class, packet, max_message: service.largest_message(oversize), spacing, tolerance }
    }
}

/// A rate: one may come every `spacing`, and `tolerance` too early. A spacing of zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Budget {
    /// Zero is not policed.
    pub spacing: Duration,
    /// How much too early one may come.
    pub tolerance: Duration,
}

/// What becomes of a packet for our port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// No frame of ours, or a damaged one.
    Malformed,
    /// No such channel, another key, or another sender.
    Unknown,
    /// A message, or a fragment, that the channel at this place cannot have.
    TooLarge(u32),
    /// More packets than the contract of the channel at this place has.
    OverRate(u32),
    /// More control frames than are answered.
    OverControl,
    /// To the host, in this class.
    Take(ArrivalClass),
}

/// A virtual clock: until when what came is paid for, ns.
type PaidUntil = u64;

/// Whether one more is within `budget` at `now`; it is paid for then.
fn is_within(until: &mut PaidUntil, now: u64, budget: Budget) -> bool {
    if budget.spacing.is_zero() {
        return true;
    }
    let from = (*until).max(now);
    if from - now > budget.tolerance.as_nanos() {
        return false;
    }
    *until = from.saturating_add(budget.spacing.as_nanos());
    true
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    expected: Option<Expected>,
    paid_until: PaidUntil,
    /// Whose control frames it lets in.
    control: Option<Sender>,
}

/// A sender as the program sees it: IPv4 addresses are what they are mapped to, and a scope is not seen.
type Sender = (core::net::IpAddr, u16);

fn sender(peer: SocketAddr) -> Sender {
    (peer.ip().to_canonical(), peer.port())
}

/// What the program in the driver decides about packets for our port, once the headers before ours are off.
#[derive(Debug)]
pub struct EarlyDemux {
    places: Box<[Place]>,
    /// Senders with a channel, and until when their control frames are paid for.
    peers: Vec<(Sender, PaidUntil)>,
    strangers: Budget,
    strangers_until: PaidUntil,
    each_peer: Budget,
}

impl EarlyDemux {
    /// For channels at places below `channels`. Control frames of those who have no channel are within `strangers` together, those
    /// of each peer that has one within `peers`.
    pub fn new(channels: usize, strangers: Budget, peers: Budget) -> Self {
        Self {
            places: alloc::vec![Place::default(); channels].into_boxed_slice(),
            peers: Vec::with_capacity(channels),
            strangers,
            strangers_until: 0,
            each_peer: peers,
        }
    }

    /// `expected` may arrive for the channel at `place` from now on, and its peer's control frames. False if there is no such
    /// place.
    pub fn expect(&mut self, place: u32, expected: Expected) -> bool {
        let is_there = self.expect_control(place, expected.peer);
        if let Some(place) = self.places.get_mut(place as usize) {
            (place.expected, place.paid_until) = (Some(expected), 0);
        }
        is_there
    }

    /// The channel at `place` sends to `peer`, whose control frames are none of a stranger's. False if there is no such place.
    pub fn expect_control(&mut self, place: u32, peer: SocketAddr) -> bool {
        self.expect_nothing(place);
        let Some(place) = self.places.get_mut(place as usize) else { return false };
        let peer = sender(peer);
        place.control = Some(peer);
        if !self.peers.iter().any(|(known, _)| *known == peer) {
            self.peers.push((peer, 0));
        }
        true
    }

    /// Nothing may arrive for the channel at `place` any more.
    pub fn expect_nothing(&mut self, place: u32) {
        let Some(before) = self.places.get_mut(place as usize).map(core::mem::take) else { return };
        let is_left = |peer: &Sender| self.places.iter().any(|place| place.control.as_ref() == Some(peer));
        if let Some(peer) = before.control.filter(|peer| !is_left(peer)) {
            self.peers.retain(|(known, _)| *known != peer);
        }
    }

    /// What becomes of `packet`, which came from `peer` at `now`.
    pub fn judge(&mut self, now: Instant, peer: SocketAddr, packet: &[u8]) -> Judgement {
        let (now, from) = (now.as_nanos(), sender(peer));
        let view = match route(packet) {
            Ok(Route::Data(view)) => view,
            Ok(Route::Control) => return self.judge_control(now, from),
            // Whatever version it is of: the host answers.
            Err(Foreign::Version(_)) if packet[3] == Kind::Control as u8 => return self.judge_control(now, from),
            Err(_) => return Judgement::Malformed,
        };
        let header = view.header();
        let place = self.places.get_mut(header.channel as usize);
        let Some((expected, paid_until)) =
            place.and_then(|place| Some((place.expected.as_ref()?, &mut place.paid_until)))
        else {
            return Judgement::Unknown;
        };
        if expected.key != header.key || sender(expected.peer) != from {
            return Judgement::Unknown;
        }
        let fits = fragment_bytes(header.message_bytes, expected.packet, header.index) == Some(header.payload);
        if header.message_bytes > expected.max_message || !fits {
            return Judgement::TooLarge(header.channel);
        }
        let budget = Budget { spacing: expected.spacing, tolerance: expected.tolerance };
        match is_within(paid_until, now, budget) {
            true => Judgement::Take(expected.class),
            false => Judgement::OverRate(header.channel),
        }
    }

    fn judge_control(&mut self, now: u64, from: Sender) -> Judgement {
        let is_paid = match self.peers.iter_mut().find(|(known, _)| *known == from) {
            Some((_, until)) => is_within(until, now, self.each_peer),
            None => is_within(&mut self.strangers_until, now, self.strangers),
        };
        if is_paid { Judgement::Take(ArrivalClass::Control) } else { Judgement::OverControl }
    }
}

/// Packets of a channel that were dropped as over its contract before the host saw them, and that no missing message has been
/// explained by yet.
#[derive(Debug, Default)]
pub(crate) struct DroppedEarly {
    packets: u64,
    noted: Instant,
}

impl DroppedEarly {
    /// Notes that `packets` were dropped; at most `most` explain anything.
    pub(crate) fn note(&mut self, now: Instant, packets: u64, most: u64) {
        self.forget_old(now);
        self.packets = self.packets.saturating_add(packets).min(most);
        self.noted = now;
    }

    /// What has explained nothing for as long as a packet may be late explains nothing any more: what is lost from now on has
    /// another cause.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        if now.since(self.noted) > CREDIT {
            self.packets = 0;
        }
    }

    /// How many of `messages` that are missing they explain, if of each `missing` packets are, or it is not known to be more.
    pub(crate) fn explain(&mut self, messages: u64, missing: u64) -> u64 {
        let explained = messages.min(self.packets.div_ceil(missing.max(1)));
        self.packets = self.packets.saturating_sub(explained.saturating_mul(missing.max(1)));
        explained
    }
}
