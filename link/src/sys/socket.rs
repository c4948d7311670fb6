//! Making the UDP socket: its options, and errors that name the side at fault.

use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::done;
use crate::error::LinkError;

/// From the kernel's asm-generic/socket.h; libc lacks it. The same on all architectures that Rust has Linux for, but sparc.
#[cfg(not(any(target_arch = "sparc", target_arch = "sparc64")))]
pub(super) const SO_RXQ_OVFL: libc::c_int = 40;
/// From the kernel's sparc asm/socket.h.
#[cfg(any(target_arch = "sparc", target_arch = "sparc64"))]
pub(super) const SO_RXQ_OVFL: libc::c_int = 0x24;

/// From the kernel's asm-generic/socket.h, since Linux 6.16; libc lacks it. The same on all architectures that Rust has Linux for, but sparc.
#[cfg(not(any(target_arch = "sparc", target_arch = "sparc64")))]
const SO_PASSRIGHTS: libc::c_int = 83;
/// From the kernel's sparc asm/socket.h.
#[cfg(any(target_arch = "sparc", target_arch = "sparc64"))]
const SO_PASSRIGHTS: libc::c_int = 0x5c;

/// A bound socket, and the buffers that it got.
pub(crate) struct BoundSocket {
    pub(crate) fd: OwnedFd,
    pub(crate) address: SocketAddr,
    pub(crate) receive_buffer_bytes: usize,
    pub(crate) send_buffer_bytes: usize,
}

/// Sets an option that is an integer.
pub(super) fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    done(result)
}

/// Opens a non-blocking socket on `address` with what every link needs. Sizes are bytes.
pub(crate) fn open(address: SocketAddr, receive_buffer: usize, send_buffer: usize) -> Result<BoundSocket, LinkError> {
    let kernel = |what| move |source: io::Error| LinkError::Kernel { address, what, source };
    let (family, family_name) =
        if address.is_ipv6() { (AddressFamily::INET6, "IPv6") } else { (AddressFamily::INET, "IPv4") };
    let no_family = LinkError::NoFamily { address, family: family_name };
    let fd = match rustix::net::socket_with(
        family,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(rustix::net::ipproto::UDP),
    ) {
        Ok(fd) => fd,
        Err(Errno::AFNOSUPPORT) => return Err(no_family),
        Err(Errno::ACCESS | Errno::PERM) => return Err(LinkError::NotPermitted { address }),
        Err(other) => return Err(kernel("a UDP socket")(other.into())),
    };
    let socket = fd.as_fd();

    // PROBE and not DO: a packet has a fixed size, never to be split, and a forged ICMP message must not make it "too long".
    // What the interface cannot carry is refused at once. On an IPv6 socket both hold, because IPv4 peers use it too.
    set(socket, libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE).map_err(kernel("IP_MTU_DISCOVER"))?;
    set(socket, libc::SOL_IP, libc::IP_RECVERR, 1).map_err(kernel("IP_RECVERR"))?;
    if address.is_ipv6() {
        set(socket, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
            .map_err(kernel("IPV6_MTU_DISCOVER"))?;
        set(socket, libc::SOL_IPV6, libc::IPV6_RECVERR, 1).map_err(kernel("IPV6_RECVERR"))?;
        set(socket, libc::SOL_IPV6, libc::IPV6_V6ONLY, 0).map_err(kernel("IPV6_V6ONLY"))?;
    }
    set(socket, libc::SOL_SOCKET, SO_RXQ_OVFL, 1).map_err(kernel("SO_RXQ_OVFL"))?;
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).map_err(kernel("SO_TIMESTAMPNS"))?;
    let buffers = buffers(socket, Some(receive_buffer), Some(send_buffer)).map_err(kernel("SO_RCVBUF or SO_SNDBUF"))?;

    rustix::net::bind(&fd, &address).map_err(|error| match error {
        Errno::ADDRINUSE => LinkError::AddressInUse { address },
        Errno::ADDRNOTAVAIL => LinkError::AddressNotAvailable { address },
        Errno::ACCESS | Errno::PERM => LinkError::NotPermitted { address },
        other => kernel("bind")(other.into()),
    })?;
    let bound = rustix::net::getsockname(&fd)
        .and_then(SocketAddr::try_from)
        .map_err(|error| kernel("the name of the socket")(error.into()))?;
    Ok(BoundSocket { fd, address: bound, receive_buffer_bytes: buffers.0, send_buffer_bytes: buffers.1 })
}

/// Asks the kernel to tell the type of service, or traffic class, of each datagram. On an IPv6 socket both, because IPv4 peers
/// use it too.
pub(crate) fn receive_tos(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    sockopt::set_ip_recvtos(socket, true)?;
    if ipv6 {
        sockopt::set_ipv6_recvtclass(socket, true)?;
    }
    Ok(())
}

/// Every packet that `socket` sends from here on is of this class of a queueing discipline.
pub(crate) fn set_class(socket: BorrowedFd<'_>, class: u32) -> io::Result<()> {
    // The kernel's option is as many bits, with a sign.
    set(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, class.cast_signed())
}

/// Marks every packet that `socket` sends from here on with a differentiated services code point, 0 to 63. The two bits of
/// congestion notification stay 0.
///
/// # Errors
/// `InvalidInput` for a larger code point; else the kernel's.
pub fn mark(socket: BorrowedFd<'_>, dscp: u8) -> io::Result<()> {
    if dscp > 63 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a code point is 0 to 63"));
    }
    let tos = dscp << 2;
    match rustix::net::getsockname(socket).and_then(SocketAddr::try_from)? {
        SocketAddr::V4(_) => sockopt::set_ip_tos(socket, tos)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(socket, tos.into())?,
    }
    Ok(())
}

/// The process at the other end of a Unix socket, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its process; 0 if that is not in the own namespace of processes.
    pub process: u32,
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
}

/// Process and user at the other end of a Unix socket, as the kernel says. The process is 0 if it has no number here, in another namespace.
///
/// # Errors
/// It is no such socket, or not connected.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which `found` has, and all bits are values of its integers.
    let answer = unsafe {
        let to = (&raw mut found).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    done(answer)?;
    Ok(PeerCredentials { process: u32::try_from(found.pid).unwrap_or(0), user: found.uid, group: found.gid })
}

/// From now on nothing that is sent to this Unix socket, or to one that it accepts, may have descriptors: to send some fails with EPERM.
///
/// # Errors
/// It is no such socket, or the kernel is older than Linux 6.16 and has no such option.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, 0)
}

/// Asks for buffers, beyond the system's limits if that is permitted, and returns the sizes that the kernel gave (receive, send).
///
/// The kernel doubles a request, to have room for its own bookkeeping, and reports the doubled value; we report half of it,
/// so that it compares with the request.
pub fn buffers(socket: BorrowedFd<'_>, receive: Option<usize>, send: Option<usize>) -> io::Result<(usize, usize)> {
    if let Some(bytes) = receive {
        sockopt::set_socket_recv_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))?;
    }
    if let Some(bytes) = send {
        sockopt::set_socket_send_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes))?;
    }
    Ok((sockopt::socket_recv_buffer_size(socket)? / 2, sockopt::socket_send_buffer_size(socket)? / 2))
}
