//! The control of the program's part for streams: `steer.bpf.h` documents its decisions.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

use aya::Ebpf;
use aya::maps::xdp::XdpMapError;
use aya::maps::{CpuMap, MapData, MapError};
use aya::programs::SchedClassifier;
use serde::{Deserialize, Serialize};

use super::error::{self, Error};
use super::kernel;
use super::layout::octets;
use super::mapped_array::{Atomics, MappedArray};

/// As STREAMS of `steer.bpf.h`.
pub(crate) const STREAMS: usize = 8;
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

// LOCAL and so on of `steer.bpf.h`.
const LOCAL: u32 = 1;
const REMOTE: u32 = 2;
const LOCAL_PORT: u32 = 4;
const REMOTE_PORT: u32 = 8;
const PROTOCOL: u32 = 16;
const DSCP: u32 = 32;
const CGROUP: u32 = 64;

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

/// The settings of streams for the program. The program itself need not be held by it.
pub(crate) struct StreamProgram {
    table: Arc<MappedArray<Steering>>,
    paths: Vec<CpuMap<MapData>>,
    /// Numbers of the maps of `paths`, and handles to delete an entry.
    handles: Vec<(u32, OwnedFd)>,
    /// The program for the way out, or why there is none: the way in does not need it.
    classifier: Result<OwnedFd, Error>,
}

impl StreamProgram {
    pub(super) fn load(object: &mut Ebpf) -> Result<Self, Error> {
        let classifier = load_classifier(object);
        let mut take = |name| object.take_map(name).ok_or(Error::Object);
        let table = Arc::new(MappedArray::writable(take("steering")?, 1)?);
        let (mut paths, mut handles) = (Vec::new(), Vec::new());
        for name in PATHS {
            let map = take(name)?;
            let aya::maps::Map::CpuMap(data) = &map else { return Err(Error::Object) };
            let number = data.info().map_err(Error::map)?.id();
            let handle = data.fd().as_fd().try_clone_to_owned().map_err(Error::kernel("dup"))?;
            handles.push((number, handle));
            paths.push(CpuMap::try_from(map).map_err(Error::map)?);
        }
        Ok(Self { table, paths, handles, classifier })
    }

    fn table(&self) -> &Steering {
        &self.table[0]
    }

    /// Packets of `flow` go by the path at `place`, whose thread runs on `processor`; those beyond one every `spacing`, `tolerance` too early at
    /// most, both in nanoseconds, are dropped or counted. `spacing` 0 is not policed.
    pub(crate) fn set(
        &mut self,
        place: usize,
        flow: &Flow,
        (spacing, tolerance, is_dropped): (u64, u64, bool),
        processor: u32,
    ) -> io::Result<()> {
        self.open_path(place, processor)?;
        let stream = &self.table().stream[place];
        let mut known_by = 0;
        let mut by = |is_given: bool, bit: u32| known_by |= if is_given { bit } else { 0 };
        by(flow.local.is_some(), LOCAL);
        by(flow.remote.is_some(), REMOTE);
        by(flow.local_port.is_some(), LOCAL_PORT);
        by(flow.remote_port.is_some(), REMOTE_PORT);
        by(flow.protocol.is_some(), PROTOCOL);
        by(flow.dscp.is_some(), DSCP);
        by(flow.cgroup.is_some(), CGROUP);
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
        let last = (0..STREAMS).rev().find(|place| self.is_used(*place)).map_or(0, |place| place + 1);
        self.table().streams.store(last as u32, Release);
        Ok(())
    }

    fn open_path(&mut self, path: usize, processor: u32) -> io::Result<()> {
        self.paths[path].set(processor, QUEUE, None, 0).map_err(|error| match error {
            XdpMapError::MapError(MapError::OutOfBounds { .. }) => io::Error::from_raw_os_error(libc::ENODEV),
            XdpMapError::MapError(error) => error::of_map(error),
            XdpMapError::ChainedProgramNotSupported => io::ErrorKind::Unsupported.into(),
        })
    }

    pub(crate) fn is_used(&self, place: usize) -> bool {
        self.table().stream[place].known_by.load(Relaxed) != 0
    }

    /// Sets the priority of outgoing packets of the stream at `place`; 0 leaves it as it is.
    pub(crate) fn set_class(&self, place: usize, class: u32) {
        self.table().stream[place].class.store(class, Relaxed);
    }

    /// Packets of the stream at `place` go the usual way again, and its thread ends when it has done what it has.
    pub(crate) fn clear(&mut self, place: usize) -> io::Result<()> {
        let stream = &self.table().stream[place];
        stream.known_by.store(0, Relaxed);
        fence(Release);
        let processor = stream.processor.load(Relaxed);
        kernel::delete(self.handles[place].1.as_fd(), processor)
    }

    /// Packets that are of no stream, and not Laxity's, are processed by a thread on `processor`; `None` as usual.
    pub(crate) fn set_others(&mut self, processor: Option<u32>) -> io::Result<()> {
        let before = self.table().others.swap(0, Relaxed);
        fence(Release);
        if let Some(before) = before.checked_sub(1) {
            kernel::delete(self.handles[STREAMS].1.as_fd(), before)?;
        }
        if let Some(processor) = processor {
            self.open_path(STREAMS, processor)?;
            self.table().others.store(processor + 1, Release);
        }
        Ok(())
    }

    /// The program's counters.
    pub(crate) fn counts(&self) -> StreamCounts {
        StreamCounts(Arc::clone(&self.table))
    }

    /// The kernel's name of the thread of the path at `place`, [`STREAMS`] for that of others.
    pub(crate) fn thread_name(&self, place: usize) -> Option<String> {
        let processor = match self.table().stream.get(place) {
            Some(stream) => self.is_used(place).then(|| stream.processor.load(Relaxed))?,
            None => self.table().others.load(Relaxed).checked_sub(1)?,
        };
        Some(format!("cpumap/{processor}/map:{}", self.handles[place].0))
    }

    /// Gives what leaves by an interface the class of its stream, for as long as the descriptor is open.
    pub(crate) fn attach_classifier(&self, interface: u32) -> io::Result<OwnedFd> {
        match &self.classifier {
            Ok(classifier) => kernel::link_egress(classifier.as_fd(), interface),
            Err(error) => Err(io::Error::new(io::ErrorKind::Unsupported, error.to_string())),
        }
    }

    /// Packets that come by UDP to this port are of no stream, and not others'.
    pub(crate) fn set_own_port(&self, port: u16) {
        self.table().own_port.store(port.to_be(), Relaxed);
    }
}
