//! Streams of an interface: the control of the program's part for them, of which `steer.bpf.h` documents the decisions.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::programs::SchedClassifier;
use aya_obj::generated::bpf_attach_type::BPF_TCX_EGRESS;
use laxity_core::units::Duration;
use serde::{Deserialize, Serialize};

use super::Program;
use super::error::Error;
use super::kernel;
use super::layout::octets;
use super::mapped_array::{Atomics, MappedArray};
use crate::sys;

/// As STREAMS of `steer.bpf.h`.
const STREAMS: usize = 8;
/// Packets that may wait for a path's thread; what is beyond that is lost, and the kernel's limit is 16,384.
const QUEUE: u32 = 4096;
/// The maps of paths; the last is that of all others.
pub(super) const PATHS: [&str; STREAMS + 1] =
    ["path_0", "path_1", "path_2", "path_3", "path_4", "path_5", "path_6", "path_7", "path_of_others"];

/// `struct stream`.
#[repr(C)]
struct Stream {
    known_by: AtomicU32,
    processor: AtomicU32,
    local: [AtomicU64; 2],
    remote: [AtomicU64; 2],
    local_port: AtomicU16,
    remote_port: AtomicU16,
    /// Protocol and code point, a byte each, as they lie in memory.
    kind: AtomicU16,
    is_dropped: AtomicU16,
    packet_ns: AtomicU64,
    tolerance_ns: AtomicU64,
    paid_until: AtomicU64,
    packets: AtomicU64,
    excess: AtomicU64,
    cgroup: AtomicU64,
    class: AtomicU32,
    unused: AtomicU32,
}

/// `struct steering`.
#[repr(C)]
pub(super) struct Steering {
    streams: AtomicU32,
    others: AtomicU32,
    own_port: AtomicU16,
    unused: [AtomicU16; 3],
    stream: [Stream; STREAMS],
}

// `steer.bpf.h` asserts the same.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Stream>() == 104 && size_of::<Steering>() == 16 + STREAMS * 104);
    assert!(offset_of!(Stream, local) == 8);
    assert!(offset_of!(Stream, remote) == 24);
    assert!(offset_of!(Stream, local_port) == 40);
    assert!(offset_of!(Stream, kind) == 44);
    assert!(offset_of!(Stream, is_dropped) == 46);
    assert!(offset_of!(Stream, packet_ns) == 48);
    assert!(offset_of!(Stream, paid_until) == 64);
    assert!(offset_of!(Stream, packets) == 72);
    assert!(offset_of!(Stream, excess) == 80);
    assert!(offset_of!(Stream, cgroup) == 88);
    assert!(offset_of!(Stream, class) == 96);
};

// SAFETY: only atomic integers; the sums of their sizes are those of the types, asserted above.
unsafe impl Atomics for Steering {}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
}

/// The values that all packets of a flow have in common; a value that is `None` may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Protocol.
    pub protocol: Option<Protocol>,
    /// Address of this host.
    pub local: Option<IpAddr>,
    /// Port of this host.
    pub local_port: Option<u16>,
    /// Address of the other host.
    pub remote: Option<IpAddr>,
    /// Port of the other host.
    pub remote_port: Option<u16>,
    /// Differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
    /// The control group (version 2) of the socket, that one and none below it, by its number: the inode of its directory. Known of outgoing packets only.
    pub cgroup: Option<u64>,
}

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
    let found = sys::kernel_threads(|shown| is_called(name, shown)).ok()?;
    if let [only] = *found { Some(only) } else { None }
}

fn load_classifier(object: &mut Ebpf) -> Result<OwnedFd, Error> {
    let classifier: &mut SchedClassifier =
        object.program_mut("classify").ok_or(Error::Object)?.try_into().map_err(Error::program)?;
    classifier.load().map_err(Error::program)?;
    classifier.fd().map_err(Error::program)?.as_fd().try_clone_to_owned().map_err(Error::kernel("dup"))
}

/// The program's counters, for any thread; reading it takes no system call.
#[derive(Clone)]
pub struct StreamCounts(Arc<MappedArray<Steering>>);

impl StreamCounts {
    /// Packets that came in of the stream at `place` since it was added, and those of them beyond its limit.
    pub fn counted(&self, place: usize) -> (u64, u64) {
        let stream = self.0[0].stream.get(place);
        stream.map_or((0, 0), |stream| (stream.packets.load(Relaxed), stream.excess.load(Relaxed)))
    }
}

/// The streams of an interface.
pub struct InterfaceStreams {
    table: Arc<MappedArray<Steering>>,
    /// The maps of paths, with their numbers.
    paths: Vec<(u32, MapData)>,
    /// The program for the way out, and when it classifies what keeps it there; or why there is none: the way in does not need it.
    egress: io::Result<OwnedFd>,
    flows: [Option<Flow>; STREAMS],
    /// That which steers, unless the link has it.
    _program: Option<Box<Program>>,
}

impl InterfaceStreams {
    /// Most streams of an interface.
    pub const MOST: usize = STREAMS;

    /// Those of the program of `object`, before its maps are taken; of no interface yet.
    pub(super) fn load(object: &mut Ebpf) -> Result<Self, Error> {
        let classifier = load_classifier(object);
        let egress = classifier.map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error.to_string()));
        let mut take = |name| object.take_map(name).ok_or(Error::Object);
        let table = Arc::new(MappedArray::writable(take("steering")?, 1)?);
        let mut paths = Vec::new();
        for name in PATHS {
            let Map::CpuMap(map) = take(name)? else { return Err(Error::Object) };
            paths.push((map.info().map_err(Error::map)?.id(), map));
        }
        Ok(Self { table, paths, egress, flows: [None; STREAMS], _program: None })
    }

    /// Of an interface of the calling thread's network namespace; `program` unless its link has it. Gives what leaves the class of its stream.
    pub(crate) fn of(self, interface: u32, program: Option<Box<Program>>) -> Self {
        // A program of traffic control that sees what leaves, behind those that are there. Since Linux 6.6.
        let link = |program: OwnedFd| kernel::create_link(program.as_fd(), interface, BPF_TCX_EGRESS, 0);
        let egress = self.egress.and_then(link);
        Self { egress, _program: program, ..self }
    }

    /// Packets that come by UDP to this port of this host are of no stream, and not other programs': they are Laxity's.
    pub fn leave_alone(&self, port: u16) {
        self.table[0].own_port.store(port.to_be(), Relaxed);
    }

    /// Tells whether packets that leave can be [classified](Self::set_class).
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_classify(&self) -> io::Result<()> {
        let Err(error) = &self.egress else { return Ok(()) };
        Err(io::Error::new(error.kind(), format!("packets that leave cannot be classified: {error}")))
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
        let (spacing, tolerance, is_dropped) = match policing {
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
        self.open_path(place, processor)?;
        self.flows[place] = Some(*flow);
        let table = &self.table[0];
        let stream = &table.stream[place];
        // In the order of LOCAL and so on of `steer.bpf.h`, the first of which is the lowest bit.
        let known_by = [
            flow.local.is_some(),
            flow.remote.is_some(),
            flow.local_port.is_some(),
            flow.remote_port.is_some(),
            flow.protocol.is_some(),
            flow.dscp.is_some(),
            flow.cgroup.is_some(),
        ];
        let known_by = known_by.into_iter().rev().fold(0, |bits, is_given| bits << 1 | u32::from(is_given));
        for (words, address) in [(&stream.local, flow.local), (&stream.remote, flow.remote)] {
            let octets = address.map_or([0; 16], octets);
            let (halves, _) = octets.as_chunks();
            words[0].store(u64::from_ne_bytes(halves[0]), Relaxed);
            words[1].store(u64::from_ne_bytes(halves[1]), Relaxed);
        }
        stream.local_port.store(flow.local_port.unwrap_or(0).to_be(), Relaxed);
        stream.remote_port.store(flow.remote_port.unwrap_or(0).to_be(), Relaxed);
        let kind = [flow.protocol.map_or(0, |protocol| protocol as u8), flow.dscp.unwrap_or(0)];
        stream.kind.store(u16::from_ne_bytes(kind), Relaxed);
        stream.is_dropped.store(is_dropped.into(), Relaxed);
        stream.packet_ns.store(spacing, Relaxed);
        stream.tolerance_ns.store(tolerance, Relaxed);
        stream.cgroup.store(flow.cgroup.unwrap_or(0), Relaxed);
        stream.processor.store(processor, Relaxed);
        for counter in [&stream.paid_until, &stream.packets, &stream.excess] {
            counter.store(0, Relaxed);
        }
        stream.class.store(0, Relaxed);
        stream.known_by.store(known_by, Release);
        let last = self.flows.iter().rposition(Option::is_some).map_or(0, |place| place + 1);
        table.streams.store(last as u32, Release);
        Ok(place)
    }

    /// Has the thread of a path run on `processor`.
    fn open_path(&self, path: usize, processor: u32) -> io::Result<()> {
        // `struct bpf_cpumap_val`, of which kernels before 5.9 have the first half: the queue, and no further program.
        let value = [QUEUE, 0].map(u32::to_ne_bytes).concat();
        let opened = kernel::update(self.paths[path].1.fd().as_fd(), &processor.to_ne_bytes(), &value);
        opened.map_err(|error| match error.raw_os_error() {
            // It is beyond the map, which has as many places as there are processors.
            Some(libc::E2BIG) => io::Error::from_raw_os_error(libc::ENODEV),
            _ => error,
        })
    }

    /// Removes the stream at `place`: its packets take their usual path again, and its thread ends when it has done what it has.
    ///
    /// # Errors
    /// The kernel's. The stream is gone all the same.
    pub fn remove(&mut self, place: usize) -> io::Result<()> {
        if self.flows.get_mut(place).and_then(Option::take).is_none() {
            return Ok(());
        }
        let stream = &self.table[0].stream[place];
        stream.known_by.store(0, Relaxed);
        fence(Release);
        kernel::delete(self.paths[place].1.fd().as_fd(), stream.processor.load(Relaxed))
    }

    fn has(&self, place: usize) -> bool {
        self.flows.get(place).is_some_and(Option::is_some)
    }

    /// The kernel's name of the thread of the stream at `place`. For a moment the thread of an earlier stream at this place may have the same name.
    pub fn thread_name(&self, place: usize) -> Option<String> {
        self.has(place).then(|| self.thread_of_path(place, self.table[0].stream[place].processor.load(Relaxed)))
    }

    fn thread_of_path(&self, path: usize, processor: u32) -> String {
        format!("{THREADS}{processor}/map:{}", self.paths[path].0)
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
        let others = &self.table[0].others;
        let before = others.swap(0, Relaxed);
        fence(Release);
        if let Some(before) = before.checked_sub(1) {
            kernel::delete(self.paths[STREAMS].1.fd().as_fd(), before)?;
        }
        let Some(processor) = processor else { return Ok(None) };
        self.open_path(STREAMS, processor)?;
        others.store(processor + 1, Release);
        Ok(only_thread(&self.thread_of_path(STREAMS, processor)))
    }

    /// Puts packets that leave of the stream at `place` into this class of the interface's queueing discipline: their priority (SO_PRIORITY) is that number; 0 leaves it as it is.
    ///
    /// # Errors
    /// The kernel's; `Unsupported` or `InvalidInput` before 6.6.
    pub fn set_class(&self, place: usize, class: u32) -> io::Result<()> {
        self.can_classify()?;
        if self.has(place) {
            self.table[0].stream[place].class.store(class, Relaxed);
        }
        Ok(())
    }

    /// The counters, for a thread that only reads them.
    pub fn counts(&self) -> StreamCounts {
        StreamCounts(Arc::clone(&self.table))
    }

    /// Packets of the stream at `place` that came in so far, and those of them beyond its limit.
    pub fn counted(&self, place: usize) -> (u64, u64) {
        if self.has(place) { self.counts().counted(place) } else { (0, 0) }
    }
}
