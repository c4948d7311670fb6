//! Two premises, as exchanges with peers show them: the delay of the network, and the uncertainty of a peer's clock.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::units::Duration;

/// The number of times that a premise was seen to be broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExceededPremise {
    /// The number of exchanges of stamps that showed it.
    pub count: u64,
    /// The largest value that was seen.
    pub largest: Duration,
    /// The limit on which the bounds counted then.
    pub limit: Duration,
}

impl ExceededPremise {
    /// A zero limit says nothing.
    fn note(&mut self, found: Duration, limit: Duration) {
        if found > limit && !limit.is_zero() {
            self.count += 1;
            if found > self.largest {
                (self.largest, self.limit) = (found, limit);
            }
        }
    }
}

/// The premises about one peer that has another clock. The least of eight consecutive exchanges with it counts, so that a single delayed
/// frame breaks no premise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerPremises {
    /// Its address.
    pub peer: SocketAddr,
    /// The least of the last eight round trips.
    pub round_trip: Duration,
    /// The smallest uncertainty of its clock at the last eight exchanges.
    pub error: Duration,
    /// True if the uncertainty rests on the reports of both hosts' kernels about their wall clocks.
    pub by_wall_clocks: bool,
    /// Round trips beyond the limit ([`ClockConfig::round_trip`](super::ClockConfig::round_trip)): the network took longer.
    pub network: ExceededPremise,
    /// Uncertainties of its clock beyond the limit ([`ClockConfig::error`](super::ClockConfig::error)).
    pub clock: ExceededPremise,
}

impl PeerPremises {
    fn new(peer: SocketAddr) -> Self {
        let (round_trip, error) = (Duration::ZERO, Duration::ZERO);
        let (network, clock) = (ExceededPremise::default(), ExceededPremise::default());
        Self { peer, round_trip, error, by_wall_clocks: false, network, clock }
    }

    /// True if one of them was broken at any time.
    pub fn is_broken(&self) -> bool {
        self.network.count + self.clock.count > 0
    }
}

/// Those of all peers. They stay when their channels end.
pub(super) struct WatchedPeers {
    pub(super) peers: Vec<PeerPremises>,
    /// Changes with them.
    pub(super) revision: u64,
    room: usize,
    /// The place of the next one, once all are taken.
    next: usize,
}

impl WatchedPeers {
    /// Allocates the places.
    pub(super) fn new(room: usize) -> Self {
        Self { peers: Vec::with_capacity(room), revision: 0, room, next: 0 }
    }

    /// The least of the last eight exchanges with a peer, whether that rests on wall clocks, and the limits of both; zero says nothing.
    pub(super) fn note(
        &mut self,
        peer: SocketAddr,
        (round_trip, error): (Duration, Duration),
        by_wall_clocks: bool,
        limits: (Duration, Duration),
    ) {
        let Some(of) = self.entry(peer) else { return };
        (of.round_trip, of.error, of.by_wall_clocks) = (round_trip, error, by_wall_clocks);
        of.network.note(round_trip, limits.0);
        of.clock.note(error, limits.1);
        self.revision += 1;
    }

    /// If there is no room, a peer takes the place of one of which nothing bad is known, or else of one with its own IP address, or else of any,
    /// in turn.
    fn entry(&mut self, peer: SocketAddr) -> Option<&mut PeerPremises> {
        let place = match self.peers.iter().position(|of| of.peer == peer) {
            Some(place) => place,
            None if self.peers.len() < self.room => {
                self.peers.push(PeerPremises::new(peer));
                self.peers.len() - 1
            }
            None => {
                let harmless = self.peers.iter().position(|of| !of.is_broken());
                let own = || self.peers.iter().position(|of| of.peer.ip() == peer.ip());
                let place = harmless.or_else(own).unwrap_or(self.next);
                self.next = (self.next + 1) % self.room.max(1);
                *self.peers.get_mut(place)? = PeerPremises::new(peer);
                place
            }
        };
        self.peers.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_what_is_broken_stays_as_long_as_it_can() {
        let peer = |port: u16| SocketAddr::from(([10, 0, 0, port as u8], port));
        let [low, high] = [1, 9].map(Duration::from_millis);
        let mut watched = WatchedPeers::new(3);
        let note = |watched: &mut WatchedPeers, port, found| {
            watched.note(peer(port), (found, low), false, (Duration::from_millis(5), Duration::ZERO));
            let ports: Vec<u16> = watched.peers.iter().map(|of| of.peer.port()).collect();
            ports
        };
        for (port, found) in [(1, high), (2, low), (3, high), (1, low)] {
            note(&mut watched, port, found);
        }
        assert_eq!(note(&mut watched, 4, high), [1, 4, 3]);
        let first = watched.peers[0];
        assert_eq!((first.round_trip, first.network.count, first.network.largest), (low, 1, high));
        assert_eq!(first.clock, ExceededPremise::default(), "nothing is said of it");
        // All are broken.
        let mut left = Vec::new();
        for port in 5..8 {
            left = note(&mut watched, port, high);
        }
        left.sort_unstable();
        assert_eq!(left, [5, 6, 7]);
        assert_eq!(watched.revision, 8);
        // However many ports one of them uses.
        for port in 100..110 {
            watched.note(SocketAddr::from(([10, 0, 0, 6], port)), (high, low), false, (low, low));
        }
        let others = watched.peers.iter().map(|of| of.peer.port()).filter(|&port| port < 100);
        assert_eq!(others.sum::<u16>(), 5 + 7);
        let mut none = WatchedPeers::new(0);
        assert!(note(&mut none, 1, high).is_empty());
    }
}
