//! Packets of a host to itself: they are given to its own input, and the network has nothing to do with them.
//!
//! The link scheduler treats them like all others, so that admission need not know of them: what it counts on, one order and one spacing for all that leaves, holds. They only take
//! less of the processor than a packet that the kernel carries back.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use laxity_core::frames::FrameId;
use laxity_core::units::Instant;
use laxity_link::netlink::Interface;

/// The addresses of an executive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnAddresses {
    /// The one that it is bound to.
    One(SocketAddr),
    /// It is bound to all addresses of the host: those of the loopback interface, and these.
    Any(SocketAddr, Vec<IpAddr>),
}

impl OwnAddresses {
    /// Of an executive that is bound so, on a host with these interfaces: those that are up.
    pub(crate) fn new(bound: SocketAddr, interfaces: &[Interface]) -> Self {
        if !bound.ip().is_unspecified() {
            return Self::One(bound);
        }
        let up = interfaces.iter().filter(|interface| interface.is_up);
        let addresses = up.flat_map(|interface| interface.addresses.iter().map(|(address, _)| *address));
        // An address of IPv6 that is for a link is another host's on another link.
        let is_of_a_link = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        Self::Any(bound, addresses.filter(|address| !is_of_a_link(address)).collect())
    }

    fn has(&self, address: SocketAddr) -> bool {
        match self {
            Self::One(own) => *own == address,
            Self::Any(bound, addresses) => {
                let ip = address.ip();
                // A socket of IPv6 hears both.
                let is_heard = address.port() == bound.port() && (bound.is_ipv6() || ip.is_ipv4());
                is_heard && (ip.is_loopback() || addresses.contains(&ip))
            }
        }
    }
}

/// A packet in transit.
pub(crate) struct LoopedPacket {
    pub(crate) frame: FrameId,
    pub(crate) len: usize,
    /// Where it goes, which is where it comes from.
    pub(crate) address: SocketAddr,
    /// When it was handed over, and so had arrived.
    pub(crate) since: Instant,
}

/// Those that were sent and not yet received.
pub(crate) struct LoopedPackets {
    own: OwnAddresses,
    passing: VecDeque<LoopedPacket>,
    most: usize,
    /// An odd look's frame in the middle is the network's, or the host's own, in turn.
    is_favoured: bool,
    /// How many were sent so far.
    pub(crate) sent: u64,
}

impl LoopedPackets {
    /// For at most so many packets at once.
    pub(crate) fn new(own: OwnAddresses, most: usize) -> Self {
        Self { own, passing: VecDeque::with_capacity(most), most, is_favoured: false, sent: 0 }
    }

    pub(crate) fn is_own(&self, peer: SocketAddr) -> bool {
        self.own.has(peer)
    }

    pub(crate) fn room(&self) -> usize {
        self.most - self.passing.len()
    }

    /// How many of the frames of a look may be these if the network has as many: half of them.
    pub(crate) fn share(&mut self, limit: usize) -> usize {
        self.is_favoured = !self.is_favoured;
        (limit + usize::from(self.is_favoured)) / 2
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.passing.is_empty()
    }

    /// How many were received so far.
    pub(crate) fn received(&self) -> u64 {
        self.sent - self.passing.len() as u64
    }

    /// Takes a packet.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) fn push(&mut self, passing: LoopedPacket) {
        assert!(self.passing.len() < self.most, "no room for a packet of the host to itself");
        self.passing.push_back(passing);
        self.sent += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<LoopedPacket> {
        self.passing.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_the_bound_one_or_all_of_the_host() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let one = OwnAddresses::One(at("127.0.0.1:5709"));
        assert!(one.has(at("127.0.0.1:5709")));
        for other in ["127.0.0.1:5710", "127.0.0.2:5709", "[::1]:5709"] {
            assert!(!one.has(at(other)), "{other}");
        }
        let interface = |is_up, addresses: &[&str]| Interface {
            is_up,
            addresses: addresses.iter().map(|address| (address.parse().unwrap(), 24)).collect(),
            ..Interface::default()
        };
        let interfaces = [interface(true, &["10.0.0.7", "2001:db8::7", "fe80::7"]), interface(false, &["10.1.0.7"])];
        assert_eq!(OwnAddresses::new(at("10.0.0.7:5709"), &interfaces), OwnAddresses::One(at("10.0.0.7:5709")));
        for (bound, hears_six) in [("0.0.0.0:5709", false), ("[::]:5709", true)] {
            let any = OwnAddresses::new(at(bound), &interfaces);
            for own in ["127.0.0.1:5709", "127.3.2.1:5709", "10.0.0.7:5709"] {
                assert!(any.has(at(own)), "{bound}: {own}");
            }
            for own in ["[::1]:5709", "[2001:db8::7]:5709"] {
                assert_eq!(any.has(at(own)), hears_six, "{bound}: {own}");
            }
            // Of another host, another executive, an interface that is down, and of whichever link.
            for other in ["10.0.0.8:5709", "10.0.0.7:5710", "10.1.0.7:5709", "[2001:db8::8]:5709", "[fe80::7%2]:5709"] {
                assert!(!any.has(at(other)), "{bound}: {other}");
            }
        }
    }

    #[test]
    fn what_was_sent_first_is_received_first() {
        use laxity_core::frames::{Frames, HeapFrames};
        let mut frames = HeapFrames::new(3, 100);
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut looped = LoopedPackets::new(OwnAddresses::One(address), 2);
        for len in 1..=2 {
            let frame = frames.take().unwrap();
            looped.push(LoopedPacket { frame, len, address, since: Instant::ZERO });
        }
        assert_eq!((looped.room(), looped.sent, looped.received(), looped.is_empty()), (0, 2, 0, false));
        let received: Vec<usize> = std::iter::from_fn(|| looped.pop()).map(|one| one.len).collect();
        assert_eq!(
            [looped.share(1), looped.share(1), looped.share(5), looped.share(5), looped.share(4)],
            [1, 0, 3, 2, 2]
        );
        assert_eq!((received, looped.room(), looped.sent, looped.received()), (vec![1, 2], 2, 2, 2));
    }
}
