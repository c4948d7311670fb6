//! The yardstick: a plain `sendmmsg`/`recvmmsg` loop over loopback as an expert would write it, without Laxity.
//!
//! Arrays are made once and never refreshed, the sender's socket is connected, both are non-blocking and poll when they have to
//! wait. For benchmarks only; nothing else in Laxity uses it.

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::{Duration, Instant};

use super::{Interest, now, socket, wait};

/// How long it waits at most before it looks at the stop flag.
const LOOK: Duration = Duration::from_millis(10);

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Whole packets.
    pub packets: u64,
    /// Bytes in them, without the headers of UDP and IP.
    pub bytes: u64,
    /// From the first call to the last.
    pub elapsed: Duration,
}

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Bytes of a packet, 1 to 65,507; the receiver counts no longer ones.
    pub packet_bytes: usize,
    /// Packets in one call, 1 to 1024.
    pub batch: usize,
    /// Ends the run early.
    pub stop: &'a AtomicBool,
    /// Ends the run.
    pub limit: Duration,
}

impl Run<'_> {
    fn check(&self) -> io::Result<()> {
        if (1..=65_507).contains(&self.packet_bytes) && (1..=1024).contains(&self.batch) {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "packet_bytes is 1 to 65507, batch 1 to 1024"))
        }
    }
    fn goes_on(&self, start: Instant) -> bool {
        !self.stop.load(Ordering::Relaxed) && now().since(start) < self.limit
    }
}

/// A non-blocking socket on a loopback address, with buffers of the same size as a link's.
///
/// # Errors
/// `InvalidInput` if the address is not a loopback address; else what the kernel says.
pub fn bind(address: SocketAddr, buffer_bytes: Option<usize>) -> io::Result<UdpSocket> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the bare loop runs over loopback only"));
    }
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    socket::buffers(socket.as_fd(), buffer_bytes, buffer_bytes)?;
    Ok(socket)
}

/// Headers that all describe a slice of their own in `memory`.
pub(super) fn arrays(memory: &mut [u8], packet: usize) -> (Box<[libc::mmsghdr]>, Box<[libc::iovec]>) {
    let mut slices: Box<[libc::iovec]> = memory
        .chunks_exact_mut(packet)
        .map(|area| libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() })
        .collect();
    let headers = slices
        .iter_mut()
        .map(|slice| {
            // SAFETY: mmsghdr is plain data for which zero is a value.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = slice;
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect();
    (headers, slices)
}

/// Sends to `to` as fast as it goes. A receiver that is not there is not an error.
///
/// # Errors
/// What the kernel says.
pub fn sender(socket: &UdpSocket, to: SocketAddr, run: Run<'_>) -> io::Result<Moved> {
    run.check()?;
    socket.connect(to)?;
    let mut memory = vec![0x5a; run.packet_bytes * run.batch];
    let (mut headers, _slices) = arrays(&mut memory, run.packet_bytes);
    let (start, mut moved) = (now(), Moved::default());
    while run.goes_on(start) {
        // SAFETY: the headers point into `_slices` and these into `memory`; both outlive the loop and nobody else uses them.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), run.batch as libc::c_uint, libc::MSG_DONTWAIT as _)
        };
        match u64::try_from(sent) {
            Ok(count) => {
                moved.packets += count;
                moved.bytes += count * run.packet_bytes as u64;
            }
            Err(_) => pause(socket, Interest::Writable)?,
        }
    }
    moved.elapsed = now().since(start);
    Ok(moved)
}

/// Receives as fast as it goes.
///
/// # Errors
/// What the kernel says.
pub fn receiver(socket: &UdpSocket, run: Run<'_>) -> io::Result<Moved> {
    run.check()?;
    let mut memory = vec![0; run.packet_bytes * run.batch];
    let (mut headers, _slices) = arrays(&mut memory, run.packet_bytes);
    let (start, mut moved) = (now(), Moved::default());
    while run.goes_on(start) {
        // SAFETY: as in `sender`; the kernel writes into `memory`, which nobody reads meanwhile.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                run.batch as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        match usize::try_from(received) {
            Ok(count) => {
                for header in &headers[..count] {
                    if header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0 {
                        moved.packets += 1;
                        moved.bytes += u64::from(header.msg_len);
                    }
                }
            }
            Err(_) => pause(socket, Interest::Readable)?,
        }
    }
    moved.elapsed = now().since(start);
    Ok(moved)
}

/// After a call that failed: waits if it would have blocked, goes on if it was a signal or an absent receiver.
fn pause(socket: &UdpSocket, interest: Interest) -> io::Result<()> {
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => wait(&[(socket.as_fd(), interest)], Some(LOOK)).map(drop),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_packets_and_ends() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (here, there) = (bind(loopback, Some(1 << 18)).unwrap(), bind(loopback, Some(1 << 18)).unwrap());
        let to = there.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let run = Run { packet_bytes: 100, batch: 8, stop: &stop, limit: Duration::from_millis(50) };
        let sent = sender(&here, to, run).unwrap();
        // The receiver starts with what the socket's buffer kept.
        let received = receiver(&there, run).unwrap();
        assert!(sent.packets > 0 && received.packets > 0 && received.packets <= sent.packets);
        assert_eq!(sent.bytes, sent.packets * 100);
        assert_eq!(received.bytes, received.packets * 100);
        assert!(received.elapsed >= run.limit);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(sender(&here, to, Run { limit: Duration::MAX, ..run }).unwrap().packets, 0);
        assert!(bind(SocketAddr::from(([192, 0, 2, 1], 0)), None).is_err());
    }
}
