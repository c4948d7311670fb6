//! The socket's error queue: what the network reported about packets that had left (`IP_RECVERR`, `IPV6_RECVERR`).

use std::io;
use std::mem::{transmute, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::address::Address;
use super::batch::for_each_control;

/// One report.
pub(crate) struct NetworkError {
    /// The destination of the packet.
    pub(crate) peer: SocketAddr,
    /// The error, as an errno.
    pub(crate) errno: i32,
    /// It was this host's own kernel that refused the packet in the call that sent it, which therefore failed too.
    pub(crate) local: bool,
    /// For EMSGSIZE the largest packet that would pass; else without meaning.
    pub(crate) info: u32,
}

/// Takes one report off the queue; `None` if there is none.
pub(crate) fn next_error(socket: BorrowedFd<'_>) -> io::Result<Option<NetworkError>> {
    let mut address = Address::EMPTY;
    // The report, the address of who sent it, and room to spare; `u64` for the alignment of cmsghdr.
    let mut control = [0u64; 32];
    // SAFETY: msghdr is plain data for which zero is a value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_name = ptr::from_mut(&mut address).cast();
    header.msg_namelen = Address::BYTES;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to locals that outlive the call, with their true sizes; no slices, so no bytes are written.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if received < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let mut report = NetworkError { peer: address.read(), errno: 0, local: false, info: 0 };
    for_each_control(&header, &control, |level, kind, value| {
        if let (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) = (level, kind) {
            // SAFETY: it is plain data of as many bytes; those that the message does not have are zero.
            let error: libc::sock_extended_err = unsafe { transmute(value) };
            report.errno = i32::try_from(error.ee_errno).unwrap_or(0);
            report.local = error.ee_origin == libc::SO_EE_ORIGIN_LOCAL;
            report.info = error.ee_info;
        }
    });
    Ok(Some(report))
}
