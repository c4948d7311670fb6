//! What changed in the kernel's tables, without what it changed to: that is read again.

use std::io;
use std::ops::BitOrAssign;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::{exchange, is};

/// From the kernel's uapi/linux/rtnetlink.h: RTMGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;
/// Datagrams that one call reads at most.
const LIMIT: usize = 1024;
/// Enough for the headers of a message; the rest is not looked at. Several messages in one datagram are in lists only.
const DATAGRAM: usize = 8 << 10;

/// Which tables changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// An interface came, went, or was set otherwise; also a program that was attached to one.
    pub links: bool,
    /// An address of this host.
    pub addresses: bool,
    /// A route.
    pub routes: bool,
    /// A neighbour's address or state.
    pub neighbours: bool,
}

impl Changes {
    const ALL: Self = Self { links: true, addresses: true, routes: true, neighbours: true };

    /// Whether anything changed.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// What a message of this type is about: RTM_NEWLINK and so on come in fours.
    const fn of(kind: u16) -> Self {
        let none = Self { links: false, addresses: false, routes: false, neighbours: false };
        match kind {
            16..=19 => Self { links: true, ..none },
            20..=23 => Self { addresses: true, ..none },
            24..=27 => Self { routes: true, ..none },
            28..=31 => Self { neighbours: true, ..none },
            _ => none,
        }
    }
}

impl BitOrAssign for Changes {
    fn bitor_assign(&mut self, other: Self) {
        self.links |= other.links;
        self.addresses |= other.addresses;
        self.routes |= other.routes;
        self.neighbours |= other.neighbours;
    }
}

/// Hears of changes in the tables of the network namespace in which it was opened. Readable when there are some; never blocks.
pub struct Watch {
    socket: Socket,
    datagram: Vec<u8>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Hears of every change from here on.
    ///
    /// # Errors
    /// The kernel gives no such socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, datagram: vec![0; DATAGRAM] })
    }

    /// What changed since the last call. If the kernel could not keep all of it for us, everything may have. Reads 1024 datagrams
    /// at most; if there are more, it is still readable.
    ///
    /// # Errors
    /// The socket's; nothing can be heard any more.
    pub fn drain(&mut self) -> io::Result<Changes> {
        let mut changes = Changes::default();
        for _ in 0..LIMIT {
            match self.socket.recv_from(&mut self.datagram.as_mut_slice(), libc::MSG_TRUNC) {
                Ok((length, from)) if from.port_number() == 0 => {
                    let length = length.min(self.datagram.len());
                    for (kind, _, _) in exchange::all_messages(&self.datagram[..length]) {
                        changes |= Changes::of(kind.number);
                    }
                    // Of a message that is longer than what was read, the type is lost with it.
                    if length == self.datagram.len() {
                        changes = Changes::ALL;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is(&error, libc::ENOBUFS) => changes = Changes::ALL,
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_add_up() {
        let mut changes = Changes::default();
        assert!(!changes.any());
        changes |= Changes::of(16);
        changes |= Changes::of(29);
        assert_eq!(changes, Changes { links: true, neighbours: true, ..Changes::default() });
        changes |= Changes::of(100);
        changes |= Changes::of(20);
        changes |= Changes::of(25);
        assert_eq!(changes, Changes::ALL);
    }
}
