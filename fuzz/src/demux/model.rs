//! The decisions of the program in the driver about packets for our port, as a model: `core/src/receive/early.rs` says what they are.

use std::net::SocketAddr;

use laxity_core::receive::{ArrivalClass, ExpectedChannel, RateLimit};
use laxity_core::units::Instant;
use laxity_core::wire::{DataView, FrameKind, WireError, classify, fragment_bytes};

/// The judgement of a packet for our port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyVerdict {
    /// Not a frame of ours, or a damaged one.
    Malformed,
    /// No such channel, another key, or another sender.
    Unknown,
    /// A message, or a fragment, that the channel at this place cannot have.
    TooLarge(u32),
    /// More packets than the contract of the channel at this place has.
    OverRate(u32),
    /// More control frames than are answered.
    OverControl,
    /// It goes to the host, in this class.
    Take(ArrivalClass),
}

/// A virtual clock: until when what came is paid for, ns.
type PaidUntil = u64;

/// True if one more is within `budget` at `now`; it is paid for then.
fn is_within(until: &mut PaidUntil, now: u64, budget: RateLimit) -> bool {
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
struct EarlyEntry {
    expected: Option<ExpectedChannel>,
    paid_until: PaidUntil,
    /// The peer whose control frames it lets in.
    control: Option<Sender>,
}

/// A sender as the program sees it: IPv4 addresses are what they are mapped to, and a scope is not seen.
type Sender = (std::net::IpAddr, u16);

fn sender(peer: SocketAddr) -> Sender {
    (peer.ip().to_canonical(), peer.port())
}

/// The decisions of the program in the driver about packets for our port, once the headers before ours are off.
#[derive(Debug)]
pub struct EarlyDemux {
    places: Box<[EarlyEntry]>,
    /// Senders with a channel, and until when their control frames are paid for.
    peers: Vec<(Sender, PaidUntil)>,
    unknown: RateLimit,
    unknown_until: PaidUntil,
    each_peer: RateLimit,
}

impl EarlyDemux {
    /// A model for channels at places below `channels`. Control frames of peers without a channel are within `unknown` together, those
    /// of each peer that has one within `peers`.
    pub fn new(channels: usize, unknown: RateLimit, peers: RateLimit) -> Self {
        Self {
            places: vec![EarlyEntry::default(); channels].into_boxed_slice(),
            peers: Vec::with_capacity(channels),
            unknown,
            unknown_until: 0,
            each_peer: peers,
        }
    }

    /// Tells that `expected` may arrive for the channel at `place` from now on, and its peer's control frames. False if there is no such
    /// place.
    pub fn expect(&mut self, place: u32, expected: ExpectedChannel) -> bool {
        let is_there = self.expect_control(place, expected.peer);
        if let Some(place) = self.places.get_mut(place as usize) {
            (place.expected, place.paid_until) = (Some(expected), 0);
        }
        is_there
    }

    /// Tells that the channel at `place` sends to `peer`, whose control frames are then those of a known peer. False if there is no such place.
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

    /// Tells that nothing may arrive for the channel at `place` any more.
    pub fn expect_nothing(&mut self, place: u32) {
        let Some(before) = self.places.get_mut(place as usize).map(std::mem::take) else { return };
        let is_left = |peer: &Sender| self.places.iter().any(|place| place.control.as_ref() == Some(peer));
        if let Some(peer) = before.control.filter(|peer| !is_left(peer)) {
            self.peers.retain(|(known, _)| *known != peer);
        }
    }

    /// The judgement of `packet`, which came from `peer` at `now`.
    pub fn judge(&mut self, now: Instant, peer: SocketAddr, packet: &[u8]) -> EarlyVerdict {
        let (now, from) = (now.as_nanos(), sender(peer));
        let view = match (classify(packet), DataView::parse(packet)) {
            (_, Ok(view)) => view,
            (Ok(FrameKind::Control), _) => return self.judge_control(now, from),
            // Whatever version it is of: the host answers.
            (Err(WireError::Version(_)), _) if packet[3] == FrameKind::Control as u8 => {
                return self.judge_control(now, from);
            }
            _ => return EarlyVerdict::Malformed,
        };
        let header = view.header();
        let place = self.places.get_mut(header.channel as usize);
        let Some((expected, paid_until)) =
            place.and_then(|place| Some((place.expected.as_ref()?, &mut place.paid_until)))
        else {
            return EarlyVerdict::Unknown;
        };
        if expected.key != header.key || sender(expected.peer) != from {
            return EarlyVerdict::Unknown;
        }
        let fits = fragment_bytes(header.message_bytes, expected.packet, header.index) == Some(header.payload);
        if header.message_bytes > expected.max_message || !fits {
            return EarlyVerdict::TooLarge(header.channel);
        }
        let budget = RateLimit { spacing: expected.spacing, tolerance: expected.tolerance };
        match is_within(paid_until, now, budget) {
            true => EarlyVerdict::Take(expected.class),
            false => EarlyVerdict::OverRate(header.channel),
        }
    }

    fn judge_control(&mut self, now: u64, from: Sender) -> EarlyVerdict {
        let is_paid = match self.peers.iter_mut().find(|(known, _)| *known == from) {
            Some((_, until)) => is_within(until, now, self.each_peer),
            None => is_within(&mut self.unknown_until, now, self.unknown),
        };
        if is_paid { EarlyVerdict::Take(ArrivalClass::Control) } else { EarlyVerdict::OverControl }
    }
}
