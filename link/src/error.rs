//! The reasons why a link cannot be made, as the user is told.

use std::io;
use std::net::SocketAddr;

pub use laxity_core::limits::OutOfRange;

/// The reason why a link cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Another process or executive has the port.
    #[error(
        "udp {address}: the address is in use; another process or executive has bound this port; choose another port, or 0 for any"
    )]
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address is not of this host.
    #[error("udp {address}: no interface of this host has this address; expected a local address, 0.0.0.0 or [::]")]
    AddressNotAvailable {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The user may not bind this port.
    #[error(
        "udp {address}: not permitted to bind; a port below net.ipv4.ip_unprivileged_port_start (usually 1024) needs CAP_NET_BIND_SERVICE, and a sandbox may forbid sockets"
    )]
    NotPermitted {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The kernel has no such protocol.
    #[error("udp {address}: this host has no {family}; use an address of the other family")]
    NoFamily {
        /// The address that was asked for.
        address: SocketAddr,
        /// "IPv4" or "IPv6".
        family: &'static str,
    },
    /// A parameter is out of range; the caller's fault.
    #[error("udp: {0}")]
    Config(OutOfRange),
    /// The kernel refused something that every supported Linux has.
    #[error("udp {address}: the kernel refused {what}: {source}")]
    Kernel {
        /// The address that was asked for.
        address: SocketAddr,
        /// The call or the socket option.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}
