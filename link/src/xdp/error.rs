//! The reasons why there is no fast path, and what to do about them.

use std::io;
use std::net::IpAddr;

use crate::error::{LinkError, OutOfRange};

/// The reason why an interface cannot be driven with AF_XDP. Nothing is left changed.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The kernel refuses for want of rights.
    #[error(
        "xdp {interface}: not permitted to {what}; run as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON"
    )]
    NotPermitted {
        /// The interface.
        interface: String,
        /// The operation that was refused.
        what: &'static str,
    },
    /// No interface in this network namespace has this name.
    #[error("xdp: there is no interface {interface} in this network namespace; `ip link` lists what is there")]
    NoInterface {
        /// The interface that was asked for.
        interface: String,
    },
    /// No interface has the address.
    #[error(
        "xdp {address}: no interface of this host has this address; bind to an address of the interface, or name the interface"
    )]
    NoInterfaceOf {
        /// The address that was asked for.
        address: IpAddr,
    },
    /// The wildcard is of no interface.
    #[error(
        "xdp: {address} is the wildcard, which says no interface; name the interface (`--interface`), or bind to an address of it (`--bind`)"
    )]
    Wildcard {
        /// The address that was asked for.
        address: IpAddr,
    },
    /// It cannot be used for this.
    #[error("xdp {interface}: {reason}")]
    Unsuitable {
        /// The interface.
        interface: String,
        /// The reason, and what would help.
        reason: String,
    },
    /// A program of another executive, or another XDP program, is there.
    #[error(
        "xdp {interface}: program {program} is attached already: it is in use by another executive, or by another program; end who attached it (`bpftool net` and `ip link show dev {interface}` name it), or use another interface"
    )]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The program's number.
        program: u32,
    },
    /// Neither the driver nor the kernel takes the program.
    #[error("xdp {interface}: the program cannot be attached ({source}); {advice}")]
    NotAttached {
        /// The interface.
        interface: String,
        /// Advice that may help.
        advice: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another socket has a receive queue.
    #[error(
        "xdp {interface}: receive queue {queue} is in use by another AF_XDP socket, still after {waited_ms} ms; end the program that uses it (`ss --xdp -p` names it), or use another interface"
    )]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The time that it was waited for.
        waited_ms: u64,
    },
    /// The user may not lock as much memory as the region has.
    #[error(
        "xdp {interface}: {bytes} bytes of frames cannot be locked in memory, {limit} are the limit for all that this user's programs lock; raise it (`ulimit -l {}`, LimitMEMLOCK={bytes}), run with CAP_IPC_LOCK, or give the interface fewer queues (`ethtool -L {interface}`)",
        bytes.div_ceil(1024)
    )]
    MemoryLimit {
        /// The interface.
        interface: String,
        /// The region.
        bytes: u64,
        /// RLIMIT_MEMLOCK.
        limit: u64,
    },
    /// There is no memory for the region.
    #[error("xdp {interface}: there is no memory for {bytes} bytes of frames ({source}); ask for fewer frames")]
    Memory {
        /// The interface.
        interface: String,
        /// The region.
        bytes: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program that demultiplexes cannot be loaded.
    #[error("xdp: {0}")]
    Program(String),
    /// A parameter is out of range; the caller's fault.
    #[error("xdp: {0}")]
    Config(OutOfRange),
    /// An error of the socket of the same port that takes what the fast path leaves.
    #[error(transparent)]
    Udp(#[from] LinkError),
    /// The kernel refused something that every supported Linux has.
    #[error("xdp {interface}: the kernel refused {what}: {source}")]
    Kernel {
        /// The interface.
        interface: String,
        /// The call or the option.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}
