//! Datagrams with the time at which the kernel received them.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{SystemTime, UNIX_EPOCH};

use laxity_core::units::Instant;
use laxity_link::sys::now;

/// Has the kernel stamp what comes to `socket` as it receives it (SO_TIMESTAMPNS).
///
/// # Errors
/// The kernel's.
pub(crate) fn stamp(socket: &UdpSocket) -> io::Result<()> {
    let (on, bytes) = (1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the pointer and the length describe `on`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const on).cast(), bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for the stamp behind its header, aligned as that.
#[repr(C)]
union Control {
    _header: libc::cmsghdr,
    bytes: [u8; 64],
}

/// A datagram: its length, and its stamp on CLOCK_MONOTONIC, if it has one.
///
/// # Errors
/// The kernel's.
pub(crate) fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<(usize, Option<Instant>)> {
    let mut control = Control { bytes: [0; 64] };
    let mut slice = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: msghdr is plain data, for which zero is a value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut slice, 1);
    (header.msg_control, header.msg_controllen) = ((&raw mut control).cast(), size_of::<Control>() as _);
    // SAFETY: the header describes memory that only this call uses.
    let found = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written whole control messages into `control`, and their length into the header.
    let stamp = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        let is_stamp =
            !first.is_null() && ((*first).cmsg_level, (*first).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
        is_stamp.then(|| ptr::read_unaligned(libc::CMSG_DATA(first).cast::<libc::timespec>()))
    };
    Ok((found, stamp.and_then(monotonic)))
}

/// The kernel stamps by CLOCK_REALTIME. That is slewed by 500 ppm at most; if it is set meanwhile, the stamp says nothing.
fn monotonic(stamp: libc::timespec) -> Option<Instant> {
    let stamp = i128::from(stamp.tv_sec) * 1_000_000_000 + i128::from(stamp.tv_nsec);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ago = i128::try_from(wall.as_nanos()).ok()? - stamp;
    Some(now().before(laxity_core::units::Duration::from_nanos(u64::try_from(ago).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_says_when_it_came() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        stamp(&socket).unwrap();
        let before = now();
        socket.send_to(b"datagram", socket.local_addr().unwrap()).unwrap();
        let (found, stamp) = receive(&socket, &mut [0; 16]).unwrap();
        // The kernel has another reading of its clock than we.
        let stamp = stamp.unwrap() + laxity_core::units::Duration::from_micros(100);
        assert!(found == 8 && stamp >= before && stamp <= now() + laxity_core::units::Duration::from_micros(100));
    }
}
