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
use std::os::fd::OwnedFd;

use laxity_core::units::Duration;

use super::error::XdpError;
use super::mode::Mode;
use super::open::{of_attach, of_program};
pub use super::program::{Flow, Protocol, StreamCounts};
use super::program::{Program, STREAMS, StreamProgram};
use crate::netlink::Netlink;
use crate::sys;

impl Flow {
    /// True if a packet can belong to both.
    pub fn overlaps(&self, other: &Self) -> bool {
        fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.zip(other).is_none_or(|(one, other)| one == other)
        }
        agree(self.protocol, other.protocol)
            && agree(self.local, other.local)
            && agree(self.local_port, other.local_port)
            && agree(self.remote, other.remote)
            && agree(self.remote_port, other.remote_port)
            && agree(self.dscp, other.dscp)
            && agree(self.cgroup, other.cgroup)
    }
}

/// The packets that a stream may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicingRate {
    /// The number that may come at once, at least one.
    pub packets: u32,
    /// The span in which as many may come on average `[rio §2.0.3]`.
    pub period: Duration,
    /// True if packets beyond that are dropped where they come in; else they are only counted.
    pub is_dropped: bool,
}

/// The prefix of the names of the kernel's threads that process packets of streams.
pub const THREADS: &str = "cpumap/";

/// True if a thread that is shown as `shown` is the one that is called `name`: kernels before 5.17 show the first 15 bytes.
pub fn is_called(name: &str, shown: &str) -> bool {
    shown == name || shown.len() == 15 && name.starts_with(shown)
}

fn only_thread(name: &str) -> Option<i32> {
    match sys::kernel_threads(|shown| is_called(name, shown)).ok()?.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

/// The streams of an interface.
pub struct InterfaceStreams {
    steered: StreamProgram,
    /// That which steers, unless the link has it.
    _program: Option<Program>,
    /// That which classifies, for as long as it is open.
    egress: io::Result<OwnedFd>,
    flows: [Option<Flow>; STREAMS],
}

impl InterfaceStreams {
    /// Most streams of an interface.
    pub const MOST: usize = STREAMS;

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
        Ok(Self::new(steered, interface, Some(program)))
    }

    /// Of an interface of the calling thread's network namespace; `program` unless its link has it.
    pub(super) fn new(steered: StreamProgram, interface: u32, program: Option<Program>) -> Self {
        let egress = steered.attach_classifier(interface);
        Self { steered, _program: program, egress, flows: [None; STREAMS] }
    }

    /// Packets that come by UDP to this port of this host are of no stream, and not other programs': they are Laxity's.
    pub fn leave_alone(&self, port: u16) {
        self.steered.set_own_port(port);
    }

    /// Tells whether packets that leave can be [classified](Self::set_class).
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_classify(&self) -> io::Result<()> {
        match &self.egress {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(io::Error::new(error.kind(), format!("packets that leave cannot be classified: {error}")))
            }
        }
    }

    /// Adds a stream for a flow, whose packets are processed on `processor` from now on. Returns its place.
    ///
    /// # Errors
    /// `InvalidInput`: the flow has no distinguishing value, a code point above 63, no packets or no period; `AlreadyExists`: a packet could be of another stream, too;
    /// `StorageFull`: there are [`MOST`](Self::MOST); the kernel's: there is no such processor.
    pub fn add(&mut self, flow: &Flow, policing: Option<&PolicingRate>, processor: usize) -> io::Result<usize> {
        let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidInput, what);
        if *flow == Flow::default() {
            return Err(invalid("a stream of all packets would be none: say an address, a port, a protocol"));
        }
        if flow.cgroup == Some(0) {
            return Err(invalid("no control group has the number 0"));
        }
        if flow.dscp.is_some_and(|dscp| dscp > 63) {
            return Err(invalid("a code point is 0 to 63"));
        }
        if self.flows.iter().flatten().any(|other| other.overlaps(flow)) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a packet could be of another stream, too"));
        }
        let place = self.flows.iter().position(Option::is_none);
        let place =
            place.ok_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "an interface has 8 streams at most"))?;
        let policed = match policing {
            Some(PolicingRate { packets: 0, .. }) => {
                return Err(invalid("a stream has one packet in a period at least"));
            }
            Some(PolicingRate { period, .. }) if period.is_zero() => {
                return Err(invalid("a period is longer than nothing"));
            }
            Some(PolicingRate { packets, period, is_dropped }) => {
                // As with channels a thousandth less, for a clock that is faster than ours.
                let spacing = (period.as_nanos() / u64::from(*packets)).max(1);
                let spacing = spacing - spacing / 1024;
                (spacing, spacing.saturating_mul(u64::from(*packets) - 1), *is_dropped)
            }
            None => (0, 0, false),
        };
        let processor = u32::try_from(processor).map_err(|_| invalid("there is no such processor"))?;
        self.steered.set(place, flow, policed, processor)?;
        self.flows[place] = Some(*flow);
        Ok(place)
    }

    /// Removes the stream at `place`: its packets take their usual path again.
    ///
    /// # Errors
    /// The kernel's. The stream is gone all the same.
    pub fn remove(&mut self, place: usize) -> io::Result<()> {
        match self.flows.get_mut(place).and_then(Option::take) {
            Some(_) => self.steered.clear(place),
            None => Ok(()),
        }
    }

    /// The kernel's name of the thread of the stream at `place`. For a moment the thread of an earlier stream at this place may have the same name.
    pub fn thread_name(&self, place: usize) -> Option<String> {
        self.steered.thread_name(place).filter(|_| place < STREAMS)
    }

    /// The kernel thread of the stream at `place`, whose priority may be set; `None` if there is none, or it cannot be seen (in another namespace of processes).
    pub fn thread(&self, place: usize) -> Option<i32> {
        only_thread(&self.thread_name(place)?)
    }

    /// Has all packets that are of no stream, and not Laxity's, processed by a thread on `processor`, which is an ordinary one until it is
    /// given a priority. Then their cost, but for telling them apart, is no more urgent than other work. `None` processes them as usual.
    /// Returns the thread.
    ///
    /// # Errors
    /// The kernel's: there is no such processor. They take their usual path then.
    pub fn set_others(&mut self, processor: Option<usize>) -> io::Result<Option<i32>> {
        let processor = processor.map(u32::try_from).transpose().map_err(io::Error::other)?;
        self.steered.set_others(processor)?;
        Ok(self.steered.thread_name(STREAMS).and_then(|name| only_thread(&name)))
    }

    /// Puts packets that leave of the stream at `place` into this class of the interface's queueing discipline: their priority (SO_PRIORITY) is that number; 0 leaves it as it is.
    ///
    /// # Errors
    /// The kernel's; `Unsupported` or `InvalidInput` before 6.6.
    pub fn set_class(&self, place: usize, class: u32) -> io::Result<()> {
        self.can_classify()?;
        if self.flows.get(place).is_some_and(Option::is_some) {
            self.steered.set_class(place, class);
        }
        Ok(())
    }

    /// The counters, for a thread that only reads them.
    pub fn counts(&self) -> StreamCounts {
        self.steered.counts()
    }

    /// Packets of the stream at `place` that came in so far, and those of them beyond its limit.
    pub fn counted(&self, place: usize) -> (u64, u64) {
        match self.flows.get(place) {
            Some(Some(_)) => self.steered.counts().counted(place),
            _ => (0, 0),
        }
    }
}
