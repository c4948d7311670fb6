//! The clocks of this host's peers: which peers exchange stamps, how often, and the estimates ([`crate::clock`]).
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
use super::watched::{PeerPremises, WatchedPeers};
use crate::admission::Admission;
use crate::clock::{ClockExchange, ClockJump, CompletedMessage, MAX_EPOCH, PeerClock, UNSURE_EPOCH, WallReading};
use crate::collections::FifoSet;
use crate::event::ChannelId;
use crate::platform::Platform;
use crate::receive::{FinalJudgement, FrameTimes, SenderClock};
use crate::signal::SignalState;
use crate::units::{Duration, Instant};
use crate::wire::{ControlType, DataHeader};

/// Periods after which messages are judged whether or not the peer has reported anything.
const JUDGED_AFTER: u64 = 4;
/// The time for which the last messages of a closed channel wait for a report.
const LAST_REPORT: Duration = Duration::from_millis(250);
/// Channels that one call looks at for a message that is judged.
const LOOKED_AT: usize = 16;
/// Peers with another clock than this host's whose clocks are estimated; the clocks of further peers stay unknown.
pub const MAX_PEER_CLOCKS: usize = 256;
/// Of these, those at one IP address: one host with many ports leaves places for others.
const MOST_OF_ONE_HOST: usize = MAX_PEER_CLOCKS / 4;

/// The parameters by which peers' clocks are estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockConfig {
    /// The interval at which stamps are exchanged with each peer that has another clock, above zero. An exchange is one KEEPALIVE for all
    /// channels to the peer, and one STATUS for all from it.
    pub period: Duration,
    /// The largest deviation of the rates of two clocks from true time, both together, in parts per million, below a million. A statement
    /// that estimates rest on.
    pub drift_ppm: u32,
    /// The largest uncertainty of a peer's clock that admission allows for. Zero allows for nothing.
    pub error: Duration,
    /// The largest value for the least of eight round trips to a peer ([`Admission::round_trip`]). Zero says nothing of it.
    pub round_trip: Duration,
}

impl ClockConfig {
    /// The parameters of a platform, and those that follow from it.
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
struct PeerState {
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

impl PeerState {
    /// A channel carries the exchange no more. The one that takes its place, if it was the bearer.
    fn hand_on(&mut self, key: ChannelId) -> Option<ChannelId> {
        self.standby = self.standby.filter(|standby| *standby != key);
        let next = if self.bearer == Some(key) { self.standby.take() } else { None };
        self.bearer = next.or(self.bearer);
        next
    }
}

/// A peer that does not answer so many stamps on end is told no more of them than KEEPALIVE is due anyway.
const MOST_UNANSWERED: u8 = 16;

/// Those of all peers.
pub(super) struct PeerClocks {
    config: ClockConfig,
    peers: Vec<Option<PeerState>>,
    /// The number of times that this host's clock was seen to leave its rate, from any number on and modulo 4, and by when the last time.
    epoch: u8,
    begun: Option<Instant>,
    /// The number of times that it was seen to go ahead at once, modulo 4, and by when the last time.
    own_epoch: u8,
    went_ahead: Option<Instant>,
    /// This host's wall clock, as it was read last, if its kernel vouched for it; and whether it is to be read.
    wall: Option<WallReading>,
    wants_wall: bool,
    /// Peers' places: what is told of these waits for that reading.
    await_wall: FifoSet,
    /// Channels of which messages wait for their judgement, and how many of them are still to be looked at.
    waiting: FifoSet,
    to_look_at: usize,
    waits: usize,
    /// Reports of all peers so far, and as many as there were when those who waited had waited for long enough.
    reports: u64,
    overdue: u64,
    /// True once there was a channel to or from a host that has not shown that it has this host's clock.
    pub(super) is_compared: bool,
    /// The instant at which they are looked at although nothing was reported.
    due: Option<Instant>,
    /// A judgement that made room for a message that was delivered.
    displaced: Option<(ChannelId, FinalJudgement)>,
    /// That of a peer of which nothing is known.
    unknown: PeerClock,
    watched: WatchedPeers,
}

impl PeerClocks {
    /// Allocates the table. The host's clock begins in `epoch`.
    pub(super) fn new(config: ClockConfig, channels: usize, epoch: u8) -> Self {
        let most = channels.min(MAX_PEER_CLOCKS);
        Self {
            config,
            peers: (0..most).map(|_| None).collect(),
            epoch,
            begun: None,
            own_epoch: 0,
            went_ahead: None,
            wall: None,
            wants_wall: false,
            await_wall: FifoSet::with_capacity(most),
            waiting: FifoSet::with_capacity(channels),
            to_look_at: 0,
            waits: 0,
            reports: 0,
            overdue: 0,
            is_compared: false,
            due: None,
            displaced: None,
            unknown: PeerClock::new(config.drift_ppm, config.period),
            watched: WatchedPeers::new(most),
        }
    }

    /// This host's epoch, and whether a stamp of its may be older, as others are told.
    pub(super) fn epoch_at(&self, stamp: Instant) -> u8 {
        let is_older = [self.begun, self.went_ahead].into_iter().flatten().any(|jumped| stamp <= jumped);
        self.epoch | if is_older { UNSURE_EPOCH } else { 0 }
    }

    /// The knowledge of the clock at a place.
    pub(super) fn known(&self, place: Option<u16>) -> SenderClock<'_> {
        let peer = place.and_then(|place| self.peers.get(usize::from(place))?.as_ref());
        let clock = peer.map_or(&self.unknown, |peer: &PeerState| &peer.clock);
        let (is_direct, allowed_error) = (peer.is_some(), self.config.error);
        SenderClock { clock, own_epoch: self.own_epoch, begun: self.went_ahead, is_direct, allowed_error }
    }

    /// The least that a packet can have been in transit, as far as its sender's clock is known.
    pub(super) fn transit(&self, place: Option<u16>, found: FrameTimes, header: &DataHeader) -> Option<Duration> {
        place?;
        // It left before its logical arrival, and perhaps in an earlier epoch (as handlers' replies in the kernel do).
        if header.epoch > MAX_EPOCH && header.waited_micros == 0 {
            return None;
        }
        let SenderClock { clock, own_epoch, .. } = self.known(place);
        // The clocks are compared when it left, or later if that was before its logical arrival.
        clock.lower_latency(&CompletedMessage {
            sent: header.logical_arrival + Duration::from_micros(header.waited_micros.into()),
            completed: found.arrival(),
            epoch: header.epoch & MAX_EPOCH,
            own_epoch,
            least: Duration::ZERO,
            deadline: Duration::MAX,
            token: [0; 2],
        })
    }

    /// A message of a channel was delivered and waits for its judgement; another one was judged to make room for it.
    pub(super) fn waits(&mut self, now: Instant, key: ChannelId, displaced: Option<FinalJudgement>) {
        let id = key.index();
        self.displaced = displaced.map(|judgement| (key, judgement)).or(self.displaced.take());
        if !self.waiting.contains(id) {
            self.waiting.push_back(0, id);
            self.waits += 1;
        }
        self.due.get_or_insert(now + self.config.period * JUDGED_AFTER);
    }

    /// Looks at those who wait for reports of one peer, or at all.
    pub(super) fn look(&mut self, place: Option<u16>) {
        self.reports += 1;
        let reports = self.reports;
        if let Some(peer) = self.at(place) {
            peer.reported = reports
        } else {
            self.overdue = reports
        }
        self.to_look_at = self.waits;
    }

    /// The time at which messages that wait are to be looked at.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        if self.to_look_at > 0 { Some(now) } else { self.due }
    }

    /// Does the work that is due by `now`.
    pub(super) fn timeout(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = (self.waits > 0).then(|| now + self.config.period * JUDGED_AFTER);
            self.look(None);
        }
    }

    fn at(&mut self, place: Option<u16>) -> Option<&mut PeerState> {
        self.peers.get_mut(usize::from(place?))?.as_mut()
    }

    /// The place of a peer to or from which there is one channel more; `None` if there is none left, for it or for its host.
    fn take(&mut self, address: SocketAddr) -> Option<u16> {
        let is_this = |peer: &Option<PeerState>| peer.as_ref().is_some_and(|peer| peer.address == address);
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
            PeerState {
                address,
                clock,
                channels: 0,
                bearer: None,
                standby: None,
                unanswered: MOST_UNANSWERED,
                reported: 0,
            }
        });
        peer.channels += 1;
        u16::try_from(place).ok()
    }

    /// A channel is over. If it was the bearer, the one that takes its place.
    fn leave(&mut self, place: Option<u16>, key: ChannelId) -> Option<ChannelId> {
        let place = self.peers.get_mut(usize::from(place?))?;
        let peer = place.as_mut()?;
        peer.channels -= 1;
        let next = peer.hand_on(key);
        peer.bearer = peer.bearer.filter(|bearer| *bearer != key);
        place.take_if(|peer| peer.channels == 0);
        next
    }
}

impl Endpoint {
    /// A channel to a peer is accepted that has not shown that it has this host's clock.
    pub(super) fn watch_clock(&mut self, key: ChannelId) {
        self.clocks.is_compared = true;
        if let Some(channel) = self.channels.get_mut(key).filter(|channel| channel.state.clock.is_none()) {
            channel.state.clock = self.clocks.take(channel.at.peer);
        }
    }

    /// A channel is over.
    pub(super) fn leave_clock(&mut self, key: ChannelId) {
        if let Some(channel) = self.channels.get_mut(key) {
            if self.clocks.waiting.remove(key.index()) {
                self.clocks.waits -= 1;
            }
            if let Some(next) = self.clocks.leave(channel.state.clock.take(), key) {
                self.say(next, ControlType::Keepalive);
            }
        }
    }

    /// The exchange in a frame of a channel that leaves at `now`, if it has one.
    pub(super) fn exchange(&mut self, now: Instant, key: ChannelId, frame: ControlType) -> Option<ClockExchange> {
        let (epoch, own_epoch, wall) = (self.clocks.epoch_at(now), self.clocks.own_epoch, self.clocks.wall);
        let channel = self.channels.get_mut(key)?;
        let (period, mut next) = (self.clocks.config.period, None);
        let peer = self.clocks.at(channel.state.clock)?;
        match frame {
            ControlType::Keepalive if !channel.job.is_receiving() => {
                if *peer.bearer.get_or_insert(key) == key {
                    let is_heard = peer.unanswered < MOST_UNANSWERED;
                    peer.unanswered = peer.unanswered.saturating_add(1);
                    channel.association.hurry(now, if is_heard { period } else { Duration::MAX });
                    self.set_timer(key);
                } else {
                    peer.standby.get_or_insert(key);
                    if channel.state.has_time {
                        return None;
                    }
                }
            }
            // It is no bearer from here on: whether this is answered is its receiver's application's business.
            ControlType::Close if !channel.job.is_receiving() => {
                next = peer.hand_on(key);
            }
            ControlType::Status if core::mem::take(&mut channel.state.owes_time) => {}
            _ => return None,
        }
        if let Some(next) = next {
            self.say(next, ControlType::Keepalive);
        }
        let place = self.channels.get(key)?.state.clock;
        Some(ClockExchange { epoch, ..self.clocks.at(place)?.clock.say(now, own_epoch, wall) })
    }

    /// Takes an exchange of a channel's peer.
    pub(super) fn hear_exchange(&mut self, found: FrameTimes, key: ChannelId, exchange: Option<ClockExchange>) {
        let epoch = self.clocks.own_epoch;
        let Some((exchange, channel)) = exchange.zip(self.channels.get_mut(key)) else { return };
        let is_receiving = channel.job.is_receiving();
        let has_another = channel.job.try_as_receiver_ref().is_some_and(|receiving| !receiving.terms.same_clock);
        if channel.state.clock.is_none() && has_another && channel.association.state == SignalState::Open {
            channel.state.clock = self.clocks.take(channel.at.peer);
            channel.association.hurry(found.at, self.clocks.config.period);
            // It may have been before this host's clock went ahead.
            let is_older = self.clocks.went_ahead.is_some_and(|jumped| channel.state.opened <= jumped);
            if let Some(peer) = self.clocks.at(channel.state.clock).filter(|_| is_older) {
                peer.clock.expect_older();
            }
        }
        let Some(peer) = self.clocks.at(channel.state.clock) else { return };
        (channel.state.has_time, channel.state.owes_time) = (true, is_receiving);
        // Without an arrival stamp it may have come after the clock was read, and a bound may not be told too early.
        let Some(arrived) = found.arrived else { return };
        let heard = peer.clock.hear(&exchange, arrived, epoch);
        let answers = !is_receiving && heard.refused.is_none();
        // At once, and not only when KEEPALIVE is due: until then nothing is known of it there.
        let is_first = answers && core::mem::take(&mut peer.unanswered) >= MOST_UNANSWERED;
        let bearer = peer.bearer.filter(|_| is_first);
        let (wants_wall, by_walls) = (peer.clock.wants_wall(), peer.clock.rests_on_walls());
        if let Some(settled) = peer.clock.settled().filter(|_| heard.upper) {
            // What the peer's link may have been given ahead is in the limit as this host's is, but its sender has said it.
            let own = self.config.links.get(usize::from(channel.at.link)).map_or(Duration::MAX, |link| link.look_ahead);
            let ahead = if is_receiving { channel.state.pace.ahead.saturating_sub(own) } else { Duration::ZERO };
            // A limit of zero is no limit.
            let ClockConfig { round_trip, error, .. } = self.clocks.config;
            let round_trip = if round_trip.is_zero() { round_trip } else { round_trip + ahead };
            self.clocks.watched.note(channel.at.peer, settled, by_walls, (round_trip, error));
        }
        let place = channel.state.clock;
        self.clocks.wants_wall |= heard.refused.is_none();
        if heard.upper && wants_wall {
            place.into_iter().for_each(|place| self.clocks.await_wall.push_back(0, place.into()));
        } else if heard.upper || heard.contradiction || heard.refuted || heard.wall_refuted {
            self.clocks.look(place);
        }
        if let Some(bearer) = bearer {
            self.say(bearer, ControlType::Keepalive);
        }
    }

    /// The next message between two clocks for which it is finally known whether it was in time. Ask after each delivery; otherwise a judgement may
    /// get lost. Looks at some of the channels at a time; for the others it asks to be called again at once
    /// ([`poll_timeout`](Endpoint::poll_timeout)).
    pub fn poll_judged(&mut self, now: Instant) -> Option<(ChannelId, FinalJudgement)> {
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
            let is_over = channel.state.is_over;
            let reported = self.clocks.at(channel.state.clock).map_or(0, |peer| peer.reported).max(self.clocks.overdue);
            let known = self.clocks.known(channel.state.clock);
            let Some(receiving) = channel.job.try_as_receiver_mut() else { continue };
            let is_due = is_over || channel.state.looked_at < reported;
            let judged = if is_due { receiving.settle(now, known, is_over) } else { None };
            if judged.is_none() {
                channel.state.looked_at = reported;
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
        if channel.job.try_as_receiver_ref().is_none_or(|receiving| receiving.unjudged() == 0) {
            return true;
        }
        let is_worth_waiting = channel.state.clock.is_some() && channel.job.is_real_time();
        match channel.state.asked_at {
            None if is_worth_waiting => {
                channel.state.asked_at = Some(now);
                channel.state.owes_time = true;
                self.say(key, ControlType::Status);
            }
            Some(asked) if now.since(asked) < LAST_REPORT => {}
            _ => {
                channel.state.is_over = true;
                let place = channel.state.clock;
                self.clocks.look(place);
            }
        }
        false
    }

    /// Notes that this host's clock was seen to leave its rate some time before it read `now`. If it stood still, peers are told; if it
    /// went ahead, the knowledge of their clocks is void, and stamps from before are of no known epoch. The driver checks for a jump after
    /// it has read the clock, and before anything stamped with that reading leaves or is judged. It reads `now` after the check.
    pub fn note_clock_jump(&mut self, now: Instant, jump: ClockJump) {
        let clocks = &mut self.clocks;
        let (epoch, since) = match jump {
            ClockJump::StoodStill => (&mut clocks.epoch, &mut clocks.begun),
            ClockJump::Ahead => (&mut clocks.own_epoch, &mut clocks.went_ahead),
        };
        (*epoch, *since) = ((*epoch + 1) % (MAX_EPOCH + 1), Some(now));
        clocks.wall = None;
    }

    /// True if a peer has told of its clock since this host's wall clock was read last.
    pub fn wants_wall(&self) -> bool {
        self.clocks.wants_wall
    }

    /// Notes a reading of this host's wall clock; `None` if its kernel does not vouch for it. The driver has noted all jumps of the clock
    /// until then, because nothing is concluded from a reading that may be from before one.
    pub fn note_wall(&mut self, wall: Option<WallReading>) {
        let clocks = &mut self.clocks;
        let wall = wall.filter(|wall| clocks.epoch_at(wall.at) <= MAX_EPOCH);
        (clocks.wall, clocks.wants_wall) = (wall, false);
        while let Some(place) = clocks.await_wall.pop_front(0) {
            let (place, own_epoch) = (u16::try_from(place).ok(), clocks.own_epoch);
            if let Some(peer) = clocks.at(place) {
                peer.clock.set_epoch(own_epoch);
                peer.clock.read_wall(wall);
                clocks.look(place);
            }
        }
    }

    /// The epoch of this host's clock, as its peers are told, at most [`MAX_EPOCH`]. The first one is arbitrary.
    pub fn clock_epoch(&self) -> u8 {
        self.clocks.epoch
    }

    /// True once there was a channel to or from a host that has not shown that it has this host's clock: before that it does not matter
    /// whether this host's clock jumps.
    pub fn compares_clocks(&self) -> bool {
        self.clocks.is_compared
    }

    /// The observations of premises about peers with another clock than this host's: of the last [`MAX_PEER_CLOCKS`], also of those to
    /// which there are no channels any more. And a number that changes with it.
    pub fn watched_peers(&self) -> (&[PeerPremises], u64) {
        (&self.clocks.watched.peers, self.clocks.watched.revision)
    }

    /// The estimate of a peer's clock, while there are channels to or from it; `None` if it is this host's, or there are too many peers.
    pub fn peer_clock(&self, peer: SocketAddr) -> Option<&PeerClock> {
        self.clocks.peers.iter().flatten().find(|of| of.address == peer).map(|of| &of.clock)
    }
}
