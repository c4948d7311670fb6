//! Datagrams with headers of our own: as from another socket, which need not know. For attacks; needs root (CAP_NET_RAW). IPv4 only.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::headers;

/// Of the socket: some thousand small packets.
const BUFFER_BYTES: usize = 4 << 20;

/// A socket that writes the IPv4 and UDP headers itself.
#[derive(Debug)]
pub(super) struct Forger {
    fd: OwnedFd,
    datagram: Vec<u8>,
}

impl Forger {
    /// Permission is denied without CAP_NET_RAW.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // RAW and not UDP: who writes all headers receives nothing.
        let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW))?;
        if sockopt::set_socket_send_buffer_size_force(&fd, BUFFER_BYTES).is_err() {
            sockopt::set_socket_send_buffer_size(&fd, BUFFER_BYTES)?;
        }
        Ok(Self { fd, datagram: Vec::new() })
    }

    /// Sends a datagram of `len` bytes that `write` fills, to `to`, as if `from` had sent it. False if the kernel has no room for it:
    /// an attacker does not wait.
    pub(super) fn send(
        &mut self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> io::Result<bool> {
        self.datagram.resize(headers::BYTES + len, 0);
        let (before, body) = self.datagram.split_at_mut(headers::BYTES);
        before.copy_from_slice(&headers::written(from, to, len));
        write(body);
        use rustix::io::Errno;
        match rustix::net::sendto(&self.fd, &self.datagram, SendFlags::DONTWAIT, &to) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_forged_datagram_comes_from_whom_it_says() {
        let mut forger = match Forger::open() {
            Ok(forger) => forger,
            Err(error) => return println!("skipped: a raw socket cannot be had here: {error}"),
        };
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let SocketAddr::V4(to) = receiver.local_addr().unwrap() else { unreachable!("it was bound to one") };
        let from = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 4_567);
        for round in 0..3_u8 {
            for len in [1, 2, 1_999, 2_000] {
                assert!(forger.send(from, to, len, |area| area.fill(round)).unwrap());
                let mut bytes = [9; 4_000];
                let (found, peer) = receiver.recv_from(&mut bytes).unwrap();
                assert_eq!((found, peer), (len, from.into()));
                assert!(bytes[..found].iter().all(|&byte| byte == round));
            }
        }
    }
}
