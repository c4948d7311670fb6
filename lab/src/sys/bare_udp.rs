//! The yardstick over UDP, as an expert would write it, without Laxity: one connected, non-blocking socket, packets of one size in
//! batches, arrays that are made once and never refreshed. For benchmarks only.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use laxity_link::sys::buffers;

use super::or_nothing;

/// One end of the loop.
pub struct BareUdp {
    socket: UdpSocket,
    packet: usize,
    outgoing: Batch,
    incoming: Batch,
}

/// Packets, and what the kernel is told of them.
struct Batch {
    memory: Box<[u8]>,
    headers: Box<[libc::mmsghdr]>,
    _slices: Box<[libc::iovec]>,
}

// SAFETY: the headers point into the boxes beside them, whose contents stay where they are when the value moves.
unsafe impl Send for Batch {}

impl Batch {
    fn new(packet: usize, count: usize) -> Self {
        let mut memory = vec![0; packet * count].into_boxed_slice();
        let mut slices: Box<[libc::iovec]> = memory
            .chunks_exact_mut(packet)
            .map(|area| libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() })
            .collect();
        let headers = slices
            .iter_mut()
            .map(|slice| {
                // SAFETY: mmsghdr is plain data for which zero is a value.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (slice, 1);
                header
            })
            .collect();
        Self { memory, headers, _slices: slices }
    }
}

impl AsFd for BareUdp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl BareUdp {
    /// A socket on `own` for packets of `packet` bytes from and to `peer`, up to `batch` (1 to 1024) in a call; the kernel
    /// keeps up to `bytes` of them in each direction.
    ///
    /// # Errors
    /// `InvalidInput` for sizes that cannot be; else what the kernel says.
    pub fn open(own: SocketAddr, peer: SocketAddr, packet: usize, batch: usize, bytes: usize) -> io::Result<Self> {
        if !(1..=65_507).contains(&packet) || !(1..=1024).contains(&batch) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "packet is 1 to 65507, batch 1 to 1024"));
        }
        let socket = UdpSocket::bind(own)?;
        socket.set_nonblocking(true)?;
        buffers(socket.as_fd(), Some(bytes), Some(bytes))?;
        socket.connect(peer)?;
        Ok(Self { socket, packet, outgoing: Batch::new(packet, batch), incoming: Batch::new(packet, batch) })
    }

    /// Sends up to `count` packets, each of which `fill` writes, at most a batch; how many the kernel took.
    ///
    /// # Errors
    /// The kernel's, except for a full buffer and an absent peer: nothing was sent then.
    pub fn send(&mut self, count: usize, fill: impl FnMut(&mut [u8])) -> io::Result<usize> {
        let count = count.min(self.outgoing.headers.len());
        self.outgoing.memory.chunks_exact_mut(self.packet).take(count).for_each(fill);
        // SAFETY: `count` headers point to slices of `memory`; no other code uses it during the call.
        let sent = unsafe {
            let headers = self.outgoing.headers.as_mut_ptr();
            libc::sendmmsg(self.socket.as_raw_fd(), headers, count as libc::c_uint, libc::MSG_DONTWAIT as _)
        };
        number(sent)
    }

    /// Gives up to `limit` packets to `sink`, at most a batch; how many.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&mut self, limit: usize, mut sink: impl FnMut(&[u8])) -> io::Result<usize> {
        let count = limit.min(self.incoming.headers.len());
        // SAFETY: as in `send`; the kernel writes into `memory`.
        let received = unsafe {
            let headers = self.incoming.headers.as_mut_ptr();
            let (flags, no_timeout) = (libc::MSG_DONTWAIT as _, ptr::null_mut());
            libc::recvmmsg(self.socket.as_raw_fd(), headers, count as libc::c_uint, flags, no_timeout)
        };
        let received = number(received)?;
        for packet in self.incoming.memory.chunks_exact(self.packet).take(received) {
            sink(packet);
        }
        Ok(received)
    }
}

/// The number of packets that a call returned; 0 if it would have blocked or waited too long, a signal came, or no socket was there.
fn number(returned: libc::c_int) -> io::Result<usize> {
    or_nothing(usize::try_from(returned).map_err(|_| io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_in_order() {
        let free = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (here, there) = (free(), free());
        let mut a = BareUdp::open(here, there, 8, 4, 1 << 16).unwrap();
        let mut b = BareUdp::open(there, here, 8, 4, 1 << 16).unwrap();
        assert_eq!(b.receive(4, |_| ()).unwrap(), 0);
        let mut next = 0u64;
        let sent = a.send(3, |packet| {
            packet.copy_from_slice(&next.to_be_bytes());
            next += 1;
        });
        assert_eq!(sent.unwrap(), 3);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            b.receive(4, |packet| seen.push(u64::from_be_bytes(packet.try_into().unwrap()))).unwrap();
        }
        assert_eq!(seen, [0, 1, 2]);
        assert!(BareUdp::open(here, there, 0, 4, 1 << 16).is_err());
    }
}
