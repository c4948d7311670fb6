//! Streams: prioritised paths through the kernel for flows of its own sockets `[rio §2.0.1]`.
//!
//! The packets of a stream that come in on an interface are told apart in the driver (or as soon as the kernel has a buffer) and processed by a kernel
//! thread of their own, an entry of a CPUMAP. That thread has the priority that it is given, as RIO's threads have: so the protocol work for one
//! flow neither waits for that of the others nor, where that is less urgent, delays it. Outgoing packets get the class of their stream, for the queueing discipline of the
//! interface.
//!
//! Everything in the kernel hangs on descriptors of this process: a process that is killed leaves nothing behind.
//!
//! Needs: Linux 5.12, 5.15 where the driver takes no program (before, packets of streams would be lost there), 6.6 for classes; rights as [`Xdp`](super::Xdp). Relies on: checksums of incoming packets are in the packets (a virtual pair leaves them out unless its other end has
//! `ethtool -K DEV tx off`); VLANs' tags are in the packets, too (`rxvlan off`).
//!
//! Left out: fragments and packets with IPv6 extension headers, which have no ports; ranges of addresses or ports; cgroups of incoming packets, since a packet's
//! socket is not known yet.

use std::io;

use super::error::XdpError;
use super::open::{of_attach, of_program};
pub use super::program::{Flow, InterfaceStreams, PolicingRate, Protocol, StreamCounts, THREADS, is_called};
use super::program::{Mode, Program};
use crate::netlink::Netlink;

impl InterfaceStreams {
    /// The streams of an interface that no [`Xdp`](super::Xdp) link drives: its number in the calling thread's network namespace. Packets take their usual path until there is a stream.
    ///
    /// # Errors
    /// No rights; another program is attached; no such interface; the kernel is too old.
    pub fn open(interface: u32) -> Result<Self, XdpError> {
        let asked = format!("interface {interface}");
        let failed =
            |source| XdpError::Kernel { interface: asked.clone(), what: "a question about interfaces", source };
        let found = Netlink::open().and_then(|mut netlink| netlink.interface_by_index(interface)).map_err(failed)?;
        let name = found.ok_or(XdpError::NoInterface { interface: asked.clone() })?.name;
        let mut program = Program::load().map_err(|error| of_program(&name, error))?;
        let steered = program.steered.take().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        program.attach(interface, Mode::Any).map_err(|source| of_attach(&name, interface, Mode::Any, source))?;
        Ok(steered.of(interface, Some(Box::new(program))))
    }
}
