//! The network between the hosts, and the attackers on it.

use std::net::SocketAddr;

use laxity_core::frames::Frames;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{Control, DataHeader, DataView, MAX_CONTROL_BYTES};

use super::super::bytes::Bytes;
use super::super::wire::made;
use super::model::ReceivedChannel;
use super::{HOSTS, World, host};

/// How far back a receiver believes a logical arrival.
const CREDIT: Duration = Duration::from_secs(1);
/// Frames under way at most.
const MOST: usize = 400;

/// A frame under way.
pub struct FrameInTransit {
    pub from: usize,
    pub to: usize,
    pub link: u8,
    pub bytes: Vec<u8>,
}

impl World {
    /// A frame has left a host.
    pub(super) fn carry(&mut self, from: usize, link: u8, peer: SocketAddr, bytes: Vec<u8>) {
        self.listen_in(from, &bytes);
        // Answers to unknown peers go nowhere.
        let Some(to) = (0..HOSTS).find(|host| host::address(*host) == peer) else { return };
        if self.wire.len() >= MOST {
            self.disturbed[from][to] = true;
            return;
        }
        self.wire.push_back(FrameInTransit { from, to, link, bytes });
    }

    /// What the model learns from control frames: tokens and keys.
    fn listen_in(&mut self, from: usize, bytes: &[u8]) {
        match Control::parse(bytes) {
            Ok((token, Control::Open(open))) => {
                let number: usize = open.name.trim_start_matches('c').parse().expect("a name that was opened");
                let sent = &mut self.sent[number];
                assert_eq!(sent.host, from);
                assert_eq!(*sent.token.get_or_insert(token), token, "a connection has one token");
            }
            Ok((token, Control::Accept(accept))) => {
                // One that waited for the link until its channel was released may name the place of another one.
                let received = self.received.iter_mut().find(|received| {
                    received.host == from && received.id.index() == accept.channel && !received.released
                });
                if let Some(received) = received {
                    received.remotes.push((accept.channel, accept.key));
                    received.remotes.dedup();
                    // Another peer asked under this name.
                    let sender = self.sent.get(received.sender);
                    received.tainted |= sender.is_none_or(|sender| sender.token != Some(token));
                }
            }
            Ok((token, Control::Close(close))) if !close.reverse => self.partner(token, (close.channel, close.key)),
            Ok(_) => {}
            Err(_) => assert!(DataView::parse(bytes).is_ok(), "what is sent can be read"),
        }
    }

    fn partner(&mut self, token: u64, remote: (u32, u64)) {
        if let Some(number) = self.sent.iter().position(|sent| sent.token == Some(token)) {
            let is_partner =
                |received: &ReceivedChannel| received.remotes.contains(&remote) && received.sender == number;
            let partner = self.received.iter().position(is_partner);
            let sent = &mut self.sent[number];
            sent.partner = sent.partner.or(partner);
        }
    }

    /// A frame reaches a host, if that has a place for it.
    pub(super) fn arrive(&mut self, to: usize, link: u8, peer: SocketAddr, bytes: &[u8]) -> bool {
        let host = &mut self.hosts[to];
        let now = host.time(self.now);
        let Some(frame) = host.region.take() else { return false };
        let len = bytes.len().min(host.region.packet_capacity());
        host.region.packet_mut(&frame)[..len].copy_from_slice(&bytes[..len]);
        let link = link % host.links();
        let view = DataView::parse(&bytes[..len]).ok();
        let mut unknown = view.is_some();
        if let Some(view) = view {
            let remote = (view.header().channel, view.header().key);
            let is_for = |r: &&mut ReceivedChannel| {
                r.host == to && !r.released && r.remotes.contains(&remote) && r.request.from.peer == peer
            };
            for received in self.received.iter_mut().filter(is_for) {
                received.stalled |= now.since(view.header().logical_arrival) > CREDIT;
                unknown = false;
            }
        }
        let before = host.endpoint.counters.unknown_channel;
        host.call(1, |endpoint, region| endpoint.handle_frame(now, link, peer, frame, len, region));
        let counted = host.endpoint.counters.unknown_channel - before;
        assert!(counted == 1 || !unknown, "a packet with a wrong key, or from another peer, is taken");
        true
    }

    fn arrive_from(&mut self, flying: &FrameInTransit) {
        let arrived = self.arrive(flying.to, flying.link, host::address(flying.from), &flying.bytes);
        self.disturbed[flying.from][flying.to] |= !arrived;
    }

    /// The oldest frame, or another one, arrives; it may stay to arrive once more.
    pub(super) fn deliver_next(&mut self, bytes: &mut Bytes<'_>, stays: bool) {
        if self.wire.is_empty() {
            return;
        }
        let place = bytes.u8() as usize % self.wire.len();
        let (from, to) = (self.wire[place].from, self.wire[place].to);
        let overtakes = self.wire.iter().take(place).any(|other| (other.from, other.to) == (from, to));
        self.disturbed[from][to] |= overtakes || stays;
        let flying = self.wire.remove(place).expect("a place on the wire");
        self.arrive_from(&flying);
        if stays {
            self.wire.push_back(flying);
        }
    }

    /// Everything under way arrives in order.
    pub(super) fn deliver_all(&mut self) {
        for _ in 0..self.wire.len() {
            let Some(flying) = self.wire.pop_front() else { return };
            self.arrive_from(&flying);
        }
    }

    pub(super) fn lose(&mut self, bytes: &mut Bytes<'_>) {
        if !self.wire.is_empty() {
            let place = bytes.u8() as usize % self.wire.len();
            let flying = self.wire.remove(place).expect("a place on the wire");
            self.disturbed[flying.from][flying.to] = true;
        }
    }

    /// The host is told of packets that ended before it, as over a contract: one that was in transit, or any number of any channel's.
    pub(super) fn police(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let (to, place, packets) = if bytes.bool() {
            if self.wire.is_empty() {
                return;
            }
            let place = bytes.u8() as usize % self.wire.len();
            let Ok(view) = DataView::parse(&self.wire[place].bytes) else { return };
            let (to, channel) = (self.wire[place].to, view.header().channel);
            self.disturbed[self.wire[place].from][to] = true;
            self.wire.remove(place);
            (to, channel, 1)
        } else {
            let own: Vec<_> = self.received.iter().filter(|r| r.host == host && !r.released).collect();
            let place =
                if own.is_empty() || bytes.u8() == 0 { bytes.u32() } else { own[bytes.place(own.len())].id.index() };
            (host, place, bytes.number())
        };
        let now = self.hosts[to].time(self.now);
        self.hosts[to].call(0, |endpoint, _| endpoint.handle_policed(now, place, packets));
        for received in self.received.iter().filter(|r| r.host == to && !r.released) {
            let told = if received.id.index() == place { packets } else { 0 };
            let expected = received.counters.frames_over_contract.saturating_add(told);
            let counters = self.hosts[to].endpoint.receive_counters(received.id).expect("a receiver");
            assert_eq!(counters.frames_over_contract, expected, "packets that ended early are another channel's");
        }
    }

    /// A frame arrives with other bytes.
    pub(super) fn damage(&mut self, bytes: &mut Bytes<'_>) {
        if self.wire.is_empty() {
            return;
        }
        let place = bytes.u8() as usize % self.wire.len();
        let mut flying = self.wire.remove(place).expect("a place on the wire");
        self.disturbed[flying.from][flying.to] = true;
        for _ in 0..1 + bytes.up_to(3) {
            let at = bytes.up_to(flying.bytes.len() as u64 - 1) as usize;
            flying.bytes[at] ^= bytes.u8();
        }
        if bytes.u8() == 1 {
            let cut = bytes.up_to(flying.bytes.len() as u64) as usize;
            flying.bytes.truncate(cut);
        }
        let peer = host::address(flying.from);
        self.forged(flying.to, peer, &flying.bytes);
        self.arrive(flying.to, flying.link, peer, &flying.bytes);
    }

    /// An attacker makes a frame up, with any knowledge, under any address.
    pub(super) fn forge(&mut self, to: usize, bytes: &mut Bytes<'_>) {
        let peer = match bytes.u8() % 5 {
            known @ 0..3 => host::address(usize::from(known)),
            _ => SocketAddr::from(([192, 0, 2, bytes.u8()], 9)),
        };
        let known = bytes.u8();
        let frame = match known % 4 {
            0 => bytes.slice(700).to_vec(),
            1 => {
                let remotes: Vec<_> =
                    self.received.iter().flat_map(|received| received.remotes.iter().copied()).collect();
                let (channel, key) = match remotes.len() {
                    0 => (bytes.u32(), bytes.u64()),
                    count => remotes[bytes.place(count)],
                };
                let message_bytes = (1 + bytes.up_to(3_000)) as u32;
                let header = DataHeader {
                    channel,
                    key,
                    message_bytes,
                    sequence: bytes.number(),
                    logical_arrival: Instant::from_nanos(match bytes.bool() {
                        true => bytes.number(),
                        false => (self.now + bytes.up_to(1 << 40)).saturating_sub(1 << 39),
                    }),
                    index: bytes.up_to(20) as u16,
                    payload: (1 + bytes.up_to(255)).min(message_bytes.into()) as u16,
                    priority: 0,
                    epoch: bytes.u8() & 7,
                    deadline_micros: 0,
                    stolen_units: bytes.u16(),
                    waited_micros: bytes.u32(),
                    ahead_micros: bytes.u32(),
                };
                let mut frame = vec![0x5A; header.frame_bytes()];
                header.write(&mut frame).expect("within the ranges");
                frame
            }
            _ => {
                let tokens: Vec<u64> = self.sent.iter().filter_map(|sent| sent.token).collect();
                let token =
                    if tokens.is_empty() || known > 200 { bytes.u64() } else { tokens[bytes.place(tokens.len())] };
                let remotes: Vec<_> =
                    self.received.iter().flat_map(|received| received.remotes.iter().copied()).collect();
                let kind = bytes.u8();
                let mut control = made(kind, bytes);
                if !remotes.is_empty() && bytes.bool() {
                    let remote = remotes[bytes.place(remotes.len())];
                    match &mut control {
                        Control::Keepalive(keepalive) => (keepalive.channel, keepalive.key) = remote,
                        Control::Close(close) => (close.channel, close.key) = remote,
                        Control::Accept(accept) => (accept.channel, accept.key) = remote,
                        _ => {}
                    }
                }
                let mut frame = [0; MAX_CONTROL_BYTES];
                let Ok(len) = control.write(token, &mut frame) else { return };
                frame[..len].to_vec()
            }
        };
        self.forged(to, peer, &frame);
        self.arrive(to, bytes.u8(), peer, &frame);
    }

    /// Notes whose promises a forged frame takes away: those of the connection whose secrets it has, if the hosts
    /// share no key.
    fn forged(&mut self, to: usize, peer: SocketAddr, frame: &[u8]) {
        if self.is_keyed {
            return;
        }
        if let Ok(view) = DataView::parse(frame) {
            let remote = (view.header().channel, view.header().key);
            self.received
                .iter_mut()
                .filter(|r| r.host == to && r.remotes.contains(&remote) && r.request.from.peer == peer)
                .for_each(|received| received.tainted = true);
        }
        if let Ok((token, control)) = Control::parse(frame) {
            for (number, sent) in self.sent.iter_mut().enumerate() {
                let asked = matches!(control, Control::Open(open) if open.name == host::name(number).as_str());
                sent.tainted |= sent.token == Some(token) || asked;
            }
        }
    }
}
