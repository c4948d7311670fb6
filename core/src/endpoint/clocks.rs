//! The clocks of this host's peers: which are asked, how often, and what came of it ([`crate::clock`]).
//!
//! Each peer that is not known to have this host's clock has one [`PeerClock`], whatever number of channels there are to it. Stamps travel in
//! KEEPALIVE and STATUS, and in CLOSE: of the channels that go to a peer one carries them, its *bearer*, and says KEEPALIVE once in
//! [`ClockConfig::period`] for it. If that one ends, another one takes its place at once. Peers that only receive answer in STATUS.
//!
//! A channel between two clocks is known by one exchange of its own: each sending channel says stamps until it hears some, and a receiving one
//! takes part only once it was told some. So a relay's channels, whose times are another host's, and those of peers that have only asked
//! for a channel take no place here.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Endpoint;
use super::watched::{Watched, WatchedPeer};
use crate::admission::Admission;
use crate::clock::{Exchange, Jump, MAX_EPOCH, Message, PeerClock, UNSURE_EPOCH};
use crate::collections::FifoSet;
use crate::event::ChannelId;
use crate::platform::Platform;
use crate::receive::{Decision, Found, Known};
use crate::signal::State;
use crate::units::{Duration, Instant};
use crate::wire::{ControlType, DataHeader};

/// Periods after which messages are judged whether or not the peer has reported anything.
const JUDGED_AFTER: u64 = 4;
/// How long the last messages of a closed channel wait for a report.
const LAST_REPORT: Duration = Duration::from_millis(250);
/// Channels that one call looks at for a message that is judged.
const LOOKED_AT: usize = 16;
/// Peers with another clock than this host's whose clocks are estimated; those of further ones stay unknown.
pub const MAX_PEER_CLOCKS: usize = 256;
/// Of these, those at one IP address: one host with many ports leaves places for others.
const MOST_OF_ONE_HOST: usize = MAX_PEER_CLOCKS / 4;

/// How peers' clocks are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockConfig {
    /// How often stamps are exchanged with each peer that has another clock, above zero: that is one KEEPALIVE for all channels to it, and one
    /// STATUS for all from it.
    pub period: Duration,
    /// How far the rates of two clocks may deviate from true time, both together, in parts per million, below a million. A statement
    /// that estimates rest on.
    pub drift_ppm: u32,
    /// How uncertain a peer's clock may be: what admission allows for. Zero allows for nothing.
    pub error: Duration,
    /// What the least of eight round trips to a peer may be ([`Admission::round_trip`]). Zero says nothing of it.
    pub round_trip: Duration,
}

impl ClockConfig {
    /// As the platform has it, and what follows from it.
    pub fn of(admission: &Admission) -> Self {
        let Platform { clock_error: error, clock_drift_ppm: drift_ppm, .. } = *admission.platform();
        Self { drift_ppm, error, round_trip: admission.round_trip(), ..Self::default() }
    }
}

impl Default for ClockConfig {
    /// Ten times a second, and 100 parts per million.
    fn default() -> Self {
        Self { period: Duration::from_millis(100), drift_ppm: 100, error: Duration::ZERO, round_trip: Duration::ZERO }
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
    /// Another one, if there is one.
    standby: Option<ChannelId>,
    /// Stamps that it was told since it last told any in STATUS.
    unanswered: u8,
    /// The number of its last report.
    reported: u64,
}

/// A peer that does not answer so many stamps on end is told no more of them than KEEPALIVE is due anyway.
const MOST_UNANSWERED: u8 = 16;

/// Those of all peers.
#[derive(Debug)]
pub(super) struct PeerClocks {
    config: ClockConfig,
    peers: Vec<Option<Peer>>,
    /// How often this host's clock was seen to leave its rate, from any number on and modulo 4, and by when the last time.
    epoch: u8,
    begun: Option<Instant>,
    /// How often it was seen to go ahead at once, modulo 4, and by when the last time.
    own_epoch: u8,
    went_ahead: Option<Instant>,
    /// Channels of which messages wait for their judgement, and how many of them are still to be looked at.
    waiting: FifoSet,
    to_look_at: usize,
    waits: usize,
    /// Reports of all peers so far, and as many as there were when those who waited had waited for long enough.
    reports: u64,
    overdue: u64,
    /// True once there was a channel to or from a host that has not shown that it has this host's clock.
    is_compared: bool,
    /// When they are looked at although nothing was reported.
    due: Option<Instant>,
    /// A judgement that made room for a message that was delivered.
    displaced: Option<(ChannelId, Decision)>,
    /// That of a peer of which nothing is known.
    unknown: PeerClock,
    watched: Watched,
}

impl PeerClocks {
    /// Allocates the table. The host's clock begins in `epoch`.
    pub(super) fn new(config: ClockConfig, channels: usize, epoch: u8) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(channels.min(MAX_PEER_CLOCKS), || None);
        Self {
            config,
            peers,
            epoch,
            begun: None,
            own_epoch: 0,
            went_ahead: None,
            waiting: FifoSet::with_capacity(channels),
            to_look_at: 0,
            waits: 0,
            reports: 0,
            overdue: 0,
            is_compared: false,
            due: None,
            displaced: None,
            unknown: PeerClock::new(config.drift_ppm, config.period),
            watched: Watched::new(channels.min(MAX_PEER_CLOCKS)),
        }
    }

    /// This host's epoch, and whether a stamp of its may be older, as others are told.
    pub(super) fn epoch_at(&self, stamp: Instant) -> u8 {
        let is_older = [self.begun, self.went_ahead].into_iter().flatten().any(|jumped| stamp <= jumped);
        self.epoch | if is_older { UNSURE_EPOCH } else { 0 }
    }

    /// True if a stamp may be from before this host's clock went ahead.
    fn is_older(&self, stamp: Instant) -> bool {
        self.went_ahead.is_some_and(|jumped| stamp <= jumped)
    }

    /// What is known of the clock at a place.
    pub(super) fn known(&self, place: Option<u16>) -> Known<'_> {
        let peer = place.and_then(|place| self.peers.get(usize::from(place))?.as_ref());
        let clock = peer.map_or(&self.unknown, |peer: &Peer| &peer.clock);
        let (is_direct, allowed_error) = (peer.is_some(), self.config.error);
        Known { clock, own_epoch: self.own_epoch, begun: self.went_ahead, is_direct, allowed_error }
    }

    /// The least that a packet can have been in transit, as far as its sender's clock is known.
    pub(super) fn transit(&self, place: Option<u16>, found: Found, header: &DataHeader) -> Option<Duration> {
        place?;
        // It left before its logical arrival, and perhaps in an earlier epoch (as handlers' replies in the kernel do).
        if header.epoch > MAX_EPOCH && header.waited_micros == 0 {
            return None;
        }
        let Known { clock, own_epoch, .. } = self.known(place);
        // The clocks are compared when it left, or later if that was before its logical arrival.
        clock.lower_latency(&Message {
            sent: header.logical_arrival + Duration::from_micros(header.waited_micros.into()),
            completed: found.arrival(),
            epoch: header.epoch & MAX_EPOCH,
            own_epoch,
            least: Duration::ZERO,
            deadline: Duration::MAX,
            token: 0,
        })
    }

    /// A message of a channel was delivered and waits for its judgement; another one was judged to make room for it.
    pub(super) fn waits(&mut self, now: Instant, key: ChannelId, displaced: Option<Decision>) {
        let id = key.index();
        self.displaced = displaced.map(|judgement| (key, judgement)).or(self.displaced.take());
        if !self.waiting.contains(id) {
            self.waiting.push_back(0, id);
            self.waits += 1;
        }
        self.due.get_or_insert(now + self.config.period * JUDGED_AFTER);
    }

    /// This host's clock will be compared with another one.
    pub(super) fn compare(&mut self) {
        self.is_compared = true;
    }

    /// Looks at those who wait for reports of one peer, or at all.
    pub(super) fn look(&mut self, place: Option<u16>) {
        self.reports += 1;
        let reports = self.reports;
        match self.at(place) {
            Some(peer) => peer.reported = reports,
            None => self.overdue = reports,
        }
        self.to_look_at = self.waits;
    }

    /// When something is to be done about messages that wait.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        if self.to_look_at > 0 { Some(now) } else { self.due }
    }

    /// What is due by `now`.
    pub(super) fn timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = (self.waits > 0).then(|| now + self.config.period * JUDGED_AFTER);
            self.look(None);
        }
    }

    /// What is held against the premises of a peer. A zero limit says nothing.
    fn note_settled(&mut self, peer: SocketAddr, settled: (Duration, Duration), ahead: Duration) {
        let ClockConfig { round_trip, error, .. } = self.config;
        let round_trip = if round_trip.is_zero() { round_trip } else { round_trip + ahead };
        self.watched.note(peer, settled, (round_trip, error));
    }

    fn at(&mut self, place: Option<u16>) -> Option<&mut Peer> {
        self.peers.get_mut(usize::from(place?))?.as_mut()
    }

    /// The place of a peer to or from which there is one channel more; `None` if there is none left, for it or for its host.
    fn take(&mut self, address: SocketAddr) -> Option<u16> {
        let is_this = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.address == address);
        let free = || {
            let of_its_host = self.peers.iter().flatten().filter(|peer| peer.address.ip() == address.ip()).count();
            self.peers.iter().position(Option::is_none).filter(|_| of_its_host < MOST_OF_ONE_HOST)
        };
        let place = self.peers.iter().position(is_this).or_else(free)?;
        let ClockConfig { period, drift_ppm, .. } = self.config;
        let epoch = self.own_epoch;
        let peer = self.peers.get_mut(place)?.get_or_insert_with(|| {
            let mut clock = PeerClock::new(drift_ppm, period);
            clock.set_epoch(epoch);
            Peer { address, clock, channels: 0, bearer: None, standby: None, unanswered: MOST_UNANSWERED, reported: 0 }
        });
        peer.channels += 1;
        u16::try_from(place).ok()
    }

    /// A channel is over. If it was the bearer, the one that takes its place.
    fn leave(&mut self, place: Option<u16>, key: ChannelId) -> Option<ChannelId> {
        let peer = self.at(place)?;
        peer.channels -= 1;
        peer.standby = peer.standby.filter(|standby| *standby != key);
        let next = if peer.bearer == Some(key) { peer.standby.take() } else { None };
        peer.bearer = next.or(peer.bearer.filter(|bearer| *bearer != key));
        if peer.channels == 0
            && let Some(place) = place.and_then(|place| self.peers.get_mut(usize::from(place)))
        {
            *place = None;
        }
        next
    }
}

impl Endpoint {
    /// A channel to a peer is accepted that has not shown that it has this host's clock.
    pub(super) fn watch_clock(&mut self, key: ChannelId) {
        self.clocks.compare();
        if let Some(channel) = self.channels.get_mut(key).filter(|channel| channel.clock.is_none()) {
            channel.clock = self.clocks.take(channel.peer);
        }
    }

    /// A channel is over.
    pub(super) fn leave_clock(&mut self, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            if self.clocks.waiting.remove(key.index()) {
                self.clocks.waits -= 1;
            }
            if let Some(next) = self.clocks.leave(channel.clock.take(), key) {
                self.say(next, ControlType::Keepalive);
            }
        }
    }

    /// What a frame of a channel says of this host's time when it leaves at `now`, if it says anything.
    pub(super) fn exchange(&mut self, now: Instant, key: ChannelId, frame: ControlType) -> Option<Exchange> {
        let (epoch, own_epoch) = (self.clocks.epoch_at(now), self.clocks.own_epoch);
        let channel = self.channels.get_mut(key)?;
        let (period, mut next) = (self.clocks.config.period, None);
        let peer = self.clocks.at(channel.clock)?;
        match frame {
            ControlType::Keepalive if !channel.job.is_receiving() => {
                if *peer.bearer.get_or_insert(key) == key {
                    let is_heard = peer.unanswered < MOST_UNANSWERED;
                    peer.unanswered = peer.unanswered.saturating_add(1);
                    channel.association.hurry(now, if is_heard { period } else { Duration::MAX });
                    self.set_timer(key);
                } else {
                    peer.standby.get_or_insert(key);
                    if channel.has_time {
                        return None;
                    }
                }
            }
            // It is no bearer from here on: whether this is answered is its receiver's application's business.
            ControlType::Close if !channel.job.is_receiving() => {
                peer.standby = peer.standby.filter(|standby| *standby != key);
                next = if peer.bearer == Some(key) { peer.standby.take() } else { None };
                peer.bearer = next.or(peer.bearer);
            }
            ControlType::Status if core::mem::take(&mut channel.owes_time) => {}
            _ => return None,
        }
        if let Some(next) = next {
            self.say(next, ControlType::Keepalive);
        }
        let place = self.channels.get(key)?.clock;
        Some(Exchange { epoch, ..self.clocks.at(place)?.clock.say(now, own_epoch) })
    }

    /// What a channel's peer said of its time.
    pub(super) fn hear_exchange(&mut self, found: Found, key: ChannelId, exchange: Option<Exchange>) {
        let epoch = self.clocks.own_epoch;
        let Some((exchange, channel)) = exchange.zip(self.channels.get_mut(key)) else { return };
        let is_receiving = channel.job.is_receiving();
        let has_another = channel.job.receiver().is_some_and(|receiving| !receiving.config().same_clock);
        if channel.clock.is_none() && has_another && channel.association.state == State::Open {
            channel.clock = self.clocks.take(channel.peer);
            channel.association.hurry(found.at, self.clocks.config.period);
            let is_older = self.clocks.is_older(channel.opened);
            if let Some(peer) = self.clocks.at(channel.clock).filter(|_| is_older) {
                peer.clock.expect_older();
            }
        }
        let Some(peer) = self.clocks.at(channel.clock) else { return };
        (channel.has_time, channel.owes_time) = (true, is_receiving);
        // Without an arrival stamp it may have come after the clock was read, and a bound may not be told too early.
        let Some(arrived) = found.arrived else { return };
        let heard = peer.clock.hear(&exchange, arrived, epoch);
        let answers = !is_receiving && heard.refused.is_none();
        // At once, and not only when KEEPALIVE is due: until then nothing is known of it there.
        let is_first = answers && core::mem::take(&mut peer.unanswered) >= MOST_UNANSWERED;
        let bearer = peer.bearer.filter(|_| is_first);
        if let Some(settled) = peer.clock.settled().filter(|_| heard.upper) {
            // What the peer's link may have been given ahead is in the limit as this host's is, but its sender has said it.
            let own = self.links.get(usize::from(channel.link)).map_or(Duration::MAX, |link| link.look_ahead);
            let ahead = if is_receiving { channel.pace.ahead.saturating_sub(own) } else { Duration::ZERO };
            self.clocks.note_settled(channel.peer, settled, ahead);
        }
        if heard.upper || heard.contradiction || heard.refuted {
            let place = channel.clock;
            self.clocks.look(place);
        }
        if let Some(bearer) = bearer {
            self.say(bearer, ControlType::Keepalive);
        }
    }

    /// The next message between two clocks of which it is known now, in the end, whether it was in time. To be asked after each delivery, else one may
    /// not be told. Looks at some channels and not at all: what is left is asked for again at once
    /// ([`poll_timeout`](Endpoint::poll_timeout)).
    pub fn poll_judged(&mut self, now: Instant) -> Option<(ChannelId, Decision)> {
        if let displaced @ Some(_) = self.clocks.displaced.take() {
            return displaced;
        }
        for _ in 0..LOOKED_AT {
            if self.clocks.to_look_at == 0 {
                return None;
            }
            let Some(id) = self.clocks.waiting.pop_front(0) else {
                (self.clocks.to_look_at, self.clocks.waits) = (0, 0);
                return None;
            };
            self.clocks.waits -= 1;
            self.clocks.to_look_at -= 1;
            let Some(key) = self.channels.key_at(id) else { continue };
            let Some(channel) = self.channels.get_mut(key) else { continue };
            let is_over = channel.is_over;
            let reported = self.clocks.at(channel.clock).map_or(0, |peer| peer.reported).max(self.clocks.overdue);
            let known = self.clocks.known(channel.clock);
            let Some(receiving) = channel.job.receiver_mut() else { continue };
            let judged =
                if is_over || channel.looked_at < reported { receiving.settle(now, known, is_over) } else { None };
            if judged.is_none() {
                channel.looked_at = reported;
            }
            if receiving.unjudged() == 0 {
                self.conclude_if_complete(now, key);
                self.tell_end(key);
            } else {
                // One that may have more is looked at again before others.
                match judged {
                    Some(_) => self.clocks.waiting.push_front(0, id),
                    None => self.clocks.waiting.push_back(0, id),
                }
                self.clocks.waits += 1;
                self.clocks.to_look_at += usize::from(judged.is_some());
            }
            if let Some(judged) = judged {
                return Some((key, judged));
            }
        }
        None
    }

    /// True if the last messages of a channel that is closed are judged. Else its sender is asked for one more report, and waited for; after
    /// [`LAST_REPORT`] they are judged as they are. So they are at once where no report tells anything, or nothing depends on it.
    pub(super) fn is_judged(&mut self, now: Instant, key: ChannelId) -> bool {
        let Some(channel) = self.channels.get_mut(key) else { return true };
        if channel.job.receiver().is_none_or(|receiving| receiving.unjudged() == 0) {
            return true;
        }
        let is_worth_waiting = channel.clock.is_some() && channel.job.is_real_time();
        match channel.asked_at {
            None if is_worth_waiting => {
                channel.asked_at = Some(now);
                channel.owes_time = true;
                self.say(key, ControlType::Status);
            }
            Some(asked) if now.since(asked) < LAST_REPORT => {}
            _ => {
                channel.is_over = true;
                let place = channel.clock;
                self.clocks.look(place);
            }
        }
        false
    }

    /// This host's clock was seen to leave its rate some time before it read `now`. If it stood still peers are told, and if it went ahead what was
    /// known of their clocks is void; stamps from before are of no known epoch. The driver looks between a reading of the clock and what is
    /// stamped with it that leaves or is judged, and reads `now` after it has looked.
    pub fn note_clock_jump(&mut self, now: Instant, jump: Jump) {
        let clocks = &mut self.clocks;
        let (epoch, since) = match jump {
            Jump::StoodStill => (&mut clocks.epoch, &mut clocks.begun),
            Jump::Ahead => (&mut clocks.own_epoch, &mut clocks.went_ahead),
        };
        (*epoch, *since) = ((*epoch + 1) % (MAX_EPOCH + 1), Some(now));
    }

    /// This host's epoch, as its peers are told, at most [`MAX_EPOCH`]. It begins with any.
    pub fn clock_epoch(&self) -> u8 {
        self.clocks.epoch
    }

    /// True once there was a channel to or from a host that has not shown that it has this host's clock: until then it does not matter
    /// whether this one jumps.
    pub fn compares_clocks(&self) -> bool {
        self.clocks.is_compared
    }

    /// What was seen of premises about peers with another clock than this host's, also of those to which there are no channels any more, of the last
    /// [`MAX_PEER_CLOCKS`]; and a number that changes with it.
    pub fn watched_peers(&self) -> (&[WatchedPeer], u64) {
        (&self.clocks.watched.peers, self.clocks.watched.revision)
    }

    /// What is known of a peer's clock, while there are channels to or from it; `None` if it is this host's, or there are too many peers.
    pub fn peer_clock(&self, peer: SocketAddr) -> Option<&PeerClock> {
        self.clocks.peers.iter().flatten().find(|of| of.address == peer).map(|of| &of.clock)
    }
}
