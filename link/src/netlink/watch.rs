//! Notices of changes in the kernel's tables, without their contents: the tables are read again.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::{exchange, is};

/// From the kernel's uapi/linux/rtnetlink.h: RTMGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;
/// RTM_NEWLINK to the last of RTM_NEWNEIGH: interfaces, addresses, routes and neighbours come in fours.
const TYPES: RangeInclusive<u16> = 16..=31;
/// Datagrams that one call reads at most.
const LIMIT: usize = 1024;
/// Enough for the headers of a message; the rest is not looked at. Several messages in one datagram are in lists only.
const DATAGRAM: usize = 8 << 10;

/// Hears of changes in the tables of the network namespace in which it was opened. Readable when there are some; never blocks.
pub struct NetlinkWatch {
    socket: Socket,
    datagram: Vec<u8>,
}

impl NetlinkWatch {
    /// A watch of all changes from here on.
    ///
    /// # Errors
    /// The kernel gives no such socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, datagram: vec![0; DATAGRAM] })
    }

    /// True if anything changed since the last call, or may have changed, because the kernel could not keep all of it for us. Reads 1024
    /// datagrams at most; if there are more, it is still readable.
    ///
    /// # Errors
    /// The socket's: then no change can be heard any more.
    pub fn drain(&mut self) -> io::Result<bool> {
        let mut changed = false;
        for _ in 0..LIMIT {
            match self.socket.recv_from(&mut self.datagram.as_mut_slice(), libc::MSG_TRUNC) {
                Ok((length, from)) if from.port_number() == 0 => {
                    let read = &self.datagram[..length.min(self.datagram.len())];
                    let mut kinds = exchange::messages(read).map(|message| message.message_type());
                    // Of a message that is longer than what was read, the type is lost with it.
                    changed |= read.len() < length || kinds.any(|kind| TYPES.contains(&kind));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is(&error, libc::ENOBUFS) => changed = true,
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }
}

impl AsFd for NetlinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
