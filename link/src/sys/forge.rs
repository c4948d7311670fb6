//! Datagrams with headers of our own: as from another socket, which need not know. For attacks in tests and labs; needs root
//! (CAP_NET_RAW). IPv4 only. Holds no unsafe code: a raw socket of the kernel's that only sends, and the batches of every link.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::SendBatch;

const IPV4_HEADER: usize = 20;
const HEADERS: usize = IPV4_HEADER + 8;
/// Of the socket: some thousand small packets.
const BUFFER_BYTES: usize = 4 << 20;

/// A socket that writes the IPv4 and UDP headers itself.
pub struct Forger {
    fd: OwnedFd,
    batch: SendBatch,
    memory: Box<[u8]>,
    /// Of each datagram that is staged, with its headers, and where it goes.
    staged: VecDeque<(usize, SocketAddr)>,
    room: usize,
    chunk: usize,
}

impl std::fmt::Debug for Forger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forger").field("room", &self.room).finish_non_exhaustive()
    }
}

impl AsFd for Forger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Forger {
    /// For `room` datagrams at a time, of at most `longest` bytes. Allocates now and never again.
    ///
    /// # Errors
    /// Permission denied without CAP_NET_RAW.
    pub fn open(room: usize, longest: usize) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // RAW and not UDP: who writes all headers receives nothing.
        let fd = rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW))?;
        if sockopt::set_socket_send_buffer_size_force(&fd, BUFFER_BYTES).is_err() {
            sockopt::set_socket_send_buffer_size(&fd, BUFFER_BYTES)?;
        }
        let chunk = HEADERS + longest;
        Ok(Self {
            fd,
            batch: SendBatch::new(room),
            memory: vec![0; room * chunk].into(),
            staged: VecDeque::with_capacity(room),
            room,
            chunk,
        })
    }

    /// How many datagrams can be staged now.
    pub fn room(&self) -> usize {
        self.room - self.staged.len()
    }

    /// Stages a datagram of `len` bytes that `write` fills, to `to`, as if `from` had sent it.
    ///
    /// # Panics
    /// If there is no [`room`](Self::room), or it is longer than what was said to be the longest.
    pub fn stage(&mut self, from: SocketAddrV4, to: SocketAddrV4, len: usize, write: impl FnOnce(&mut [u8])) {
        assert!(self.room() > 0 && HEADERS + len <= self.chunk, "{len} bytes, room for {}", self.room());
        let total = HEADERS + len;
        let area = &mut self.memory[self.staged.len() * self.chunk..][..total];
        let (headers, body) = area.split_at_mut(HEADERS);
        headers.fill(0);
        // Version and length, whole length, not to be split, hops, UDP. Identification and checksum are the kernel's to fill in.
        headers[0] = 0x45;
        headers[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        headers[6] = 0x40;
        headers[8] = 64;
        headers[9] = 17;
        headers[12..16].copy_from_slice(&from.ip().octets());
        headers[16..20].copy_from_slice(&to.ip().octets());
        headers[20..22].copy_from_slice(&from.port().to_be_bytes());
        headers[22..24].copy_from_slice(&to.port().to_be_bytes());
        // Without a checksum, which IPv4 permits.
        headers[24..26].copy_from_slice(&((total - IPV4_HEADER) as u16).to_be_bytes());
        write(body);
        self.staged.push_back((total, to.into()));
    }

    /// Hands over what is staged; returns how many datagrams the kernel took. What it does not take now is dropped: an attacker
    /// does not wait.
    ///
    /// # Errors
    /// The first refusal, if it took none at all.
    pub fn flush(&mut self) -> io::Result<usize> {
        let mut done = 0;
        let mut refused = None;
        while done < self.staged.len() && refused.is_none() {
            let chunks = self.memory.chunks_exact(self.chunk);
            let left = self.staged.iter().zip(chunks).skip(done).map(|(&(len, to), chunk)| (&chunk[..len], to));
            match self.batch.send(self.fd.as_fd(), false, left) {
                Ok(count) => done += count,
                Err(error) => refused = Some(error),
            }
        }
        self.staged.clear();
        match refused {
            Some(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_forged_datagram_comes_from_whom_it_says() {
        let mut forger = match Forger::open(4, 2_000) {
            Ok(forger) => forger,
            Err(error) => return println!("skipped: a raw socket cannot be had here: {error}"),
        };
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let SocketAddr::V4(to) = receiver.local_addr().unwrap() else { unreachable!("it was bound to one") };
        let from = SocketAddrV4::new(Ipv4Addr::new(127, 1, 2, 3), 4_567);
        for round in 0..3_usize {
            for len in [1, 2, 1_999, 2_000] {
                forger.stage(from, to, len, |area| area.fill(round as u8));
            }
            assert_eq!(forger.room(), 0);
            assert_eq!(forger.flush().unwrap(), 4);
            let mut bytes = [9; 4_000];
            for len in [1, 2, 1_999, 2_000] {
                let (found, peer) = receiver.recv_from(&mut bytes).unwrap();
                assert_eq!((found, peer), (len, from.into()));
                assert!(bytes[..found].iter().all(|&byte| byte == round as u8));
            }
        }
        assert_eq!(forger.flush().unwrap(), 0);
    }
}
