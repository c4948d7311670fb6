//! The paths to the peers: the headers before a packet to each, as the kernel's routes and neighbours have them.
//!
//! A thread beside the data path ([`super::watcher`]) asks the kernel and listens to its changes. The link copies what is new when
//! it is told so, and only if no thread holds the table at that moment: it never waits. A peer that is not known here, or not on this
//! interface, is the kernel's: an ordinary UDP socket sends to it, which also makes the kernel look for the neighbour.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::headers::Template;

/// A peer that is sent to directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectPeer {
    pub(super) template: Template,
    /// Bytes of the largest UDP payload that the interface carries.
    pub(super) most: usize,
}

#[derive(Clone, Debug)]
struct PeerEntry {
    address: SocketAddr,
    /// Channels that need it.
    channels: u32,
    direct: Option<DirectPeer>,
}

/// The link's table, in the order of addresses.
pub(super) struct PeerTable {
    known: Vec<PeerEntry>,
    /// As of which change it is.
    seen: u64,
    /// The watcher is to hear of a change of the table.
    untold: bool,
}

/// The table that link and watcher share.
pub(super) struct PeerDirectory {
    changes: AtomicU64,
    /// The peers that the link has, in the order of addresses.
    table: Mutex<Vec<(SocketAddr, Option<DirectPeer>)>>,
}

impl PeerDirectory {
    pub(super) fn new(peers: usize) -> Self {
        Self { changes: AtomicU64::new(0), table: Mutex::new(Vec::with_capacity(peers)) }
    }

    /// Whom the link sends to.
    pub(super) fn peers(&self) -> Vec<SocketAddr> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(address, _)| *address).collect()
    }

    /// The direct path to a peer, if that is known.
    pub(super) fn direct(&self, address: SocketAddr) -> Option<DirectPeer> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let place = table.binary_search_by_key(&address, |peer| peer.0).ok()?;
        table[place].1.clone()
    }

    /// Puts what was found out into the table; the link sees it the next time that it sends.
    pub(super) fn publish(&self, found: &[(SocketAddr, Option<DirectPeer>)]) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        for (address, direct) in found {
            if let Ok(place) = table.binary_search_by_key(address, |peer| peer.0)
                && table[place].1 != *direct
            {
                table[place].1.clone_from(direct);
                changed = true;
            }
        }
        if changed {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl PeerTable {
    /// For at most `peers` of them.
    pub(super) fn new(peers: usize) -> Self {
        Self { known: Vec::with_capacity(peers), seen: 0, untold: false }
    }

    /// One more channel has this peer. Without room it is the kernel's.
    pub(super) fn add(&mut self, address: SocketAddr) {
        match self.known.binary_search_by_key(&address, |peer| peer.address) {
            Ok(place) => self.known[place].channels += 1,
            Err(place) if self.known.len() < self.known.capacity() => {
                self.known.insert(place, PeerEntry { address, channels: 1, direct: None });
                self.untold = true;
            }
            Err(_) => {}
        }
    }

    /// One channel less.
    pub(super) fn remove(&mut self, address: SocketAddr) {
        let Ok(place) = self.known.binary_search_by_key(&address, |peer| peer.address) else { return };
        self.known[place].channels -= 1;
        if self.known[place].channels == 0 {
            self.known.remove(place);
            self.untold = true;
        }
    }

    /// The direct path to a peer; `None` if the kernel sends to it.
    pub(super) fn direct(&self, address: SocketAddr) -> Option<&DirectPeer> {
        let place = self.known.binary_search_by_key(&address, |peer| peer.address).ok()?;
        self.known[place].direct.as_ref()
    }

    /// Tells the watcher of peers that came and went, and learns what it found out, if that is available without waiting. True if the
    /// watcher has something to look for.
    pub(super) fn exchange(&mut self, directory: &PeerDirectory) -> bool {
        if !self.untold && self.seen == directory.changes.load(Ordering::Acquire) {
            return false;
        }
        let Ok(mut table) = directory.table.try_lock() else { return false };
        let told = std::mem::take(&mut self.untold);
        if told {
            table.retain(|(address, _)| self.known.binary_search_by_key(address, |peer| peer.address).is_ok());
            for (place, peer) in self.known.iter().enumerate() {
                if table.get(place).is_none_or(|other| other.0 != peer.address) {
                    table.insert(place, (peer.address, None));
                }
            }
        }
        self.seen = directory.changes.load(Ordering::Acquire);
        for (peer, (_, direct)) in self.known.iter_mut().zip(&*table) {
            peer.direct.clone_from(direct);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 5709))
    }

    fn direct(last: u8) -> DirectPeer {
        let template = Template::new(([2; 6], address(1)), ([last; 6], address(last)), None, 0).unwrap();
        DirectPeer { template, most: 1472 }
    }

    #[test]
    fn what_is_found_out_is_used_until_it_changes() {
        let (mut peers, directory) = (PeerTable::new(4), PeerDirectory::new(4));
        for last in [7, 3, 7] {
            peers.add(address(last));
        }
        assert!(peers.exchange(&directory), "the watcher has to look");
        assert_eq!(directory.peers(), [address(3), address(7)]);
        directory.publish(&[(address(7), Some(direct(7))), (address(9), Some(direct(9)))]);
        assert_eq!(peers.direct(address(7)), None, "not yet seen");
        assert!(!peers.exchange(&directory));
        assert_eq!(peers.direct(address(7)), Some(&direct(7)));
        assert_eq!((peers.direct(address(3)), peers.direct(address(9))), (None, None));
        // One of two channels goes: the peer stays.
        peers.remove(address(7));
        peers.add(address(1));
        assert!(peers.exchange(&directory));
        assert_eq!(peers.direct(address(7)), Some(&direct(7)));
        peers.remove(address(7));
        assert!(peers.exchange(&directory));
        assert_eq!((directory.peers(), peers.direct(address(7))), (vec![address(1), address(3)], None));
        directory.publish(&[(address(3), None)]);
        assert!(!peers.exchange(&directory));
    }

    #[test]
    fn a_thread_that_holds_the_table_keeps_no_other_waiting() {
        let (mut peers, directory) = (PeerTable::new(1), PeerDirectory::new(1));
        peers.add(address(1));
        peers.add(address(2));
        let held = directory.table.lock().unwrap();
        assert!(!peers.exchange(&directory));
        drop(held);
        assert!(peers.exchange(&directory), "later");
        assert_eq!(directory.peers(), [address(1)], "there is room for one");
    }
}
