//! The clocks of this host's peers: which are asked, how often, and what came of it ([`crate::clock`]).
//!
//! Each peer that is not known to have this host's clock has one [`PeerClock`], whatever number of channels there are to it. Stamps travel in
//! KEEPALIVE and STATUS, and in CLOSE: of the channels that go to a peer one carries them, its *bearer*, and says KEEPALIVE once in
//! [`ClockConfig::period`] for it. If that one ends, the next one that says KEEPALIVE is the bearer. Peers that only receive answer in STATUS.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Endpoint;
use crate::clock::{Exchange, MAX_EPOCH, PeerClock, UNSURE_EPOCH};
use crate::event::ChannelId;
use crate::receive::Found;
use crate::units::{Duration, Instant};
use crate::wire::ControlType;

/// Peers with another clock than this host's whose clocks are estimated; those of further ones stay unknown.
pub const MAX_PEER_CLOCKS: usize = 256;

/// How peers' clocks are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockConfig {
    /// How often stamps are exchanged with each peer that has another clock.
    pub period: Duration,
    /// How far the rates of two clocks may deviate from true time, both together, in parts per million, below a million. A statement
    /// that estimates rest on.
    pub drift_ppm: u32,
}

impl Default for ClockConfig {
    /// Ten times a second, and 100 parts per million.
    fn default() -> Self {
        Self { period: Duration::from_millis(100), drift_ppm: 100 }
    }
}

/// One peer's.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    clock: PeerClock,
    /// Channels to and from it.
    channels: u32,
    /// The channel to it that carries the exchange.
    bearer: Option<ChannelId>,
    /// Whether it was told at once what was heard of it first.
    is_told: bool,
}

/// Those of all peers.
#[derive(Debug)]
pub(super) struct PeerClocks {
    config: ClockConfig,
    peers: Vec<Option<Peer>>,
    /// How often this host's clock was seen to leave its rate, modulo 7, and by when the last time.
    epoch: u8,
    begun: Instant,
}

impl PeerClocks {
    /// Allocates the table.
    pub(super) fn new(config: ClockConfig, channels: usize) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(channels.min(MAX_PEER_CLOCKS), || None);
        Self { config, peers, epoch: 0, begun: Instant::ZERO }
    }

    /// The epoch of a stamp of this host's, as others are told.
    pub(super) fn epoch_at(&self, stamp: Instant) -> u8 {
        if stamp < self.begun { UNSURE_EPOCH } else { self.epoch }
    }

    fn at(&mut self, place: Option<u16>) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(place?))?.as_mut()
    }

    /// The place of a peer to or from which there is one channel more; `None` if there is none left.
    fn take(&mut self, address: SocketAddr) -> Option<u16> {
        let is_this = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.address == address);
        let place = self.peers.iter().position(is_this).or_else(|| self.peers.iter().position(Option::is_none))?;
        let ClockConfig { period, drift_ppm } = self.config;
        let clock = || PeerClock::new(drift_ppm, period);
        let peer = self.peers.get_mut(place)?;
        let peer =
            peer.get_or_insert_with(|| Peer { address, clock: clock(), channels: 0, bearer: None, is_told: false });
        peer.channels += 1;
        u16::try_from(place).ok()
    }

    /// A channel is over.
    fn leave(&mut self, place: Option<u16>, key: ChannelId) {
        let Some(peer) = self.at(place) else { return };
        peer.channels -= 1;
        peer.bearer = peer.bearer.filter(|bearer| *bearer != key);
        if peer.channels == 0
            && let Some(place) = place.and_then(|place| self.peers.get_mut(usize::from(place)))
        {
            *place = None;
        }
    }
}

impl Endpoint {
    /// A channel is open whose peer has not shown that it has this host's clock.
    pub(super) fn watch_clock(&mut self, key: ChannelId) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        if channel.clock.is_none() {
            channel.clock = self.clocks.take(channel.peer);
        }
    }

    /// A channel is over.
    pub(super) fn leave_clock(&mut self, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            self.clocks.leave(channel.clock.take(), key);
        }
    }

    /// What a frame of a channel says of this host's time when it leaves at `now`, if it says anything.
    pub(super) fn exchange(&mut self, now: Instant, key: ChannelId, frame: ControlType) -> Option<Exchange> {
        let epoch = self.clocks.epoch_at(now);
        let channel = self.channels.get_mut(key)?;
        let peer = self.clocks.at(channel.clock)?;
        match frame {
            ControlType::Keepalive | ControlType::Close if !channel.job.is_receiving() => {
                if *peer.bearer.get_or_insert(key) != key {
                    return None;
                }
                channel.association.hurry(self.clocks.config.period);
            }
            ControlType::Status if core::mem::take(&mut channel.owes_time) => {}
            _ => return None,
        }
        let peer = self.clocks.at(channel.clock)?;
        Some(peer.clock.say(now, epoch))
    }

    /// What a channel's peer said of its time.
    pub(super) fn hear_exchange(&mut self, found: Found, key: ChannelId, exchange: Option<Exchange>) {
        let epoch = self.clocks.epoch;
        let Some((exchange, channel)) = exchange.zip(self.channels.get_mut(key)) else { return };
        let Some(peer) = self.clocks.at(channel.clock) else { return };
        let is_receiving = channel.job.is_receiving();
        channel.owes_time = is_receiving;
        peer.clock.hear(&exchange, found.arrival(), epoch);
        // Once, and not only after a period: until then nothing is known.
        if !is_receiving && !core::mem::replace(&mut peer.is_told, true) {
            self.say(key, ControlType::Keepalive);
        }
    }

    /// This host's clock was seen to stand still while time passed, as in a suspended host, or to jump ahead, some time before it read `now`: what
    /// was known of peers' clocks is void, and peers are told. The driver looks after it has read the time of a turn, and before
    /// anything of that turn leaves.
    pub fn note_clock_jump(&mut self, now: Instant) {
        self.clocks.epoch = (self.clocks.epoch + 1) % (MAX_EPOCH + 1);
        self.clocks.begun = now;
    }

    /// What is known of a peer's clock, while there are channels to or from it; `None` if it is this host's, or there are too many peers.
    pub fn peer_clock(&self, peer: SocketAddr) -> Option<&PeerClock> {
        self.clocks.peers.iter().flatten().find(|of| of.address == peer).map(|of| &of.clock)
    }
}
