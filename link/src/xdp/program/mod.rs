//! The early demultiplexer in the kernel [rio §2.1]: loads it, tells it which frames may arrive, and attaches it to an interface.
//!
//! `demux.bpf.c` documents its decisions. Its object lies beside it, so that a build does not need clang; `.ci/bpf` compares the
//! two. The description of a channel's frames is written into memory that is shared with the program, and the counters of dropped frames are read from there:
//! neither takes a system call. Nothing here allocates after [`Program::load`], except for functions that say that they are for set-up only.
//!
//! Everything in the kernel hangs on descriptors of this process: a process that is killed leaves nothing behind.

mod error;
mod handlers;
mod kernel;
mod layout;
mod mapped_array;
mod module;
mod steering;
mod survey;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, XskMap};
use aya::programs::{ProgramError, TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use laxity_core::limits::MAX_PACKET_BYTES;
use laxity_core::receive::{ArrivalClass, ExpectedChannel, RateLimit};
use rustix::mm::ProtFlags;
use serde::Serialize;

pub(crate) use error::Error;
pub use handlers::{
    HandlerCounts, HandlerError, Handlers, InstallRequest, InstalledHandler, LONGEST_MESSAGE, MOST_HANDLERS, ReplyTo,
};
pub(crate) use kernel::TestRun;
pub use kernel::can_load;
use layout::{Address, CHANNELS, CLASSES, Channel, Drops, QUEUES, REASONS, Sender};
use mapped_array::MappedArray;
pub use module::{Module, ModuleMap, Notice, Notices};
pub use steering::{Flow, InterfaceStreams, PolicingRate, Protocol, StreamCounts, THREADS, is_called};

/// The object that lies beside this.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../demux.bpf.o");
/// The function in it that sees each frame.
const DEMULTIPLEX: &str = "demultiplex";
/// Channels that the program has a place for; those beyond it get nothing by the fast path.
pub(crate) const MOST_CHANNELS: u32 = CHANNELS;
/// Queues of an interface that it looks at; what comes in on others is the kernel's.
pub(crate) const MOST_QUEUES: u32 = QUEUES;

/// The place in the kernel where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// In the driver, or where the driver cannot, as soon as the kernel has a buffer.
    #[default]
    Any,
    /// In the driver.
    Native,
    /// As soon as the kernel has a buffer: any interface can.
    Generic,
}

/// Which frames are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Our UDP port.
    pub(crate) port: u16,
    /// 1 to 4094: only frames of that VLAN; `None`: only those of no VLAN.
    pub(crate) vlan: Option<u16>,
    /// The interface's address at the link layer.
    pub(crate) mac: [u8; 6],
    /// Bytes of the largest frame, Ethernet header included, that a socket takes; longer ones are the kernel's.
    pub(crate) largest_frame: u16,
    /// Control frames of all peers without a channel, together.
    pub(crate) control: RateLimit,
    /// Control frames of each peer that has a channel.
    pub(crate) peer_control: RateLimit,
    /// The time by which CLOCK_MONOTONIC is ahead of that of the first time namespace, by which the program tells the time.
    pub(crate) clock_ahead_ns: i64,
}

/// The result of [`Program::attach`].
pub(crate) struct AttachedProgram {
    /// In the driver; else generic.
    pub(crate) is_native: bool,
    /// The reason why the driver did not take it, where [`Mode::Any`] tried.
    pub(crate) refused: Option<io::Error>,
}

/// The counters of frames before they came here. Each value only grows; those of the last tenth of a second may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyFigures {
    /// Frames that went to the kernel: not ours, not to be judged there, or without a socket on their queue.
    pub passed: u64,
    /// Frames given to the socket of their class.
    pub taken: u64,
    /// Frames that ended there, by reason.
    pub dropped: EarlyDrops,
    /// Frames that were lost because the receive ring was full: of real-time channels, control, best effort.
    pub full: [u64; 3],
    /// The most frames that were dropped early in a tenth of a second or so, as a rate.
    pub most_dropped_per_second: u64,
    /// Frames that were lost because the kernel had no free frame of the region; a bug of Laxity if it is not zero.
    pub no_frame: u64,
}

/// Frames that were dropped early, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EarlyDrops {
    /// Frames for Laxity's port that are not valid frames of its protocol.
    pub malformed: u64,
    /// Frames of no channel, with a wrong key, or from an address that is not the channel's peer.
    pub unknown: u64,
    /// Frames of a message or fragment that is larger than the channel allows.
    pub too_large: u64,
    /// Packets beyond the contract's rate.
    pub over_rate: u64,
    /// Control frames beyond the rate that is answered.
    pub over_control: u64,
}

/// Reads what became of the frames since it was made, for a thread that only watches.
pub(crate) struct CounterReader {
    reasons: OwnedFd,
    /// One value for each processor.
    counts: Box<[u64]>,
    /// The counters to subtract: runs for measurements.
    before: [u64; REASONS],
}

impl CounterReader {
    /// The counters of the frames since then. One system call for each field.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn reasons(&mut self) -> io::Result<EarlyFigures> {
        let mut counts = self.sums()?;
        for (count, before) in counts.iter_mut().zip(self.before) {
            *count -= before;
        }
        let [passed, taken, malformed, unknown, too_large, over_rate, over_control] = counts;
        let dropped = EarlyDrops { malformed, unknown, too_large, over_rate, over_control };
        Ok(EarlyFigures { passed, taken, dropped, ..EarlyFigures::default() })
    }

    fn sums(&mut self) -> io::Result<[u64; REASONS]> {
        let mut sums = [0; REASONS];
        for (reason, sum) in (0..).zip(&mut sums) {
            kernel::look_up_per_processor(self.reasons.as_fd(), reason, &mut self.counts)?;
            *sum = self.counts.iter().sum();
        }
        Ok(sums)
    }
}

/// The program, loaded, and what it is told. Detached and gone from the kernel when it is dropped.
pub(crate) struct Program {
    object: Ebpf,
    fd: OwnedFd,
    link: Option<OwnedFd>,
    settings: Array<MapData, layout::Settings>,
    /// The address that stands in the settings, too.
    first: Option<Address>,
    addresses: HashMap<MapData, Address, u8>,
    peers: HashMap<MapData, Sender, u64>,
    sockets: XskMap<MapData>,
    reasons: OwnedFd,
    /// Its part for streams, until it is taken.
    pub(crate) steered: Option<InterfaceStreams>,
    channels: Arc<MappedArray<Channel>>,
    /// The handlers of applications behind it.
    pub(crate) handlers: Arc<Handlers>,
    paid_until: MappedArray<AtomicU64>,
    dropped: MappedArray<Drops>,
    /// The peer that each place has in `peers`.
    senders: Box<[Option<Sender>]>,
}

impl Program {
    /// Loads the program and makes its maps; for set-up. It is attached to nothing yet and takes nothing.
    ///
    /// # Errors
    /// The user may not; the kernel is too old, has no memory, or its verifier refuses the program.
    pub(crate) fn load() -> Result<Self, Error> {
        let processors = aya::util::nr_cpus().map_err(|(path, source)| Error::Kernel { what: path, source })?;
        let mut loader = EbpfLoader::new();
        for path in steering::PATHS {
            loader.map_max_entries(path, processors as u32);
        }
        // That of a handler is its own.
        loader.map_max_entries("notices", rustix::param::page_size() as u32);
        let mut object = loader.load(OBJECT).map_err(Error::from_load)?;
        let xdp: &mut Xdp = object.program_mut(DEMULTIPLEX).ok_or(Error::Object)?.try_into().map_err(Error::program)?;
        xdp.load().map_err(Error::program)?;
        let fd = xdp.fd().map_err(Error::program)?.as_fd().try_clone_to_owned().map_err(Error::kernel("dup"))?;
        let (handlers, channels) = Handlers::load(&mut object)?;
        let mut take = |name: &str| object.take_map(name).ok_or(Error::Object);
        let settings = Array::try_from(take("settings")?).map_err(Error::map)?;
        let addresses = HashMap::try_from(take("addresses")?).map_err(Error::map)?;
        let peers = HashMap::try_from(take("peers")?).map_err(Error::map)?;
        let sockets = XskMap::try_from(take("sockets")?).map_err(Error::map)?;
        let reasons = take("reasons")?;
        // That its values are those we think.
        PerCpuArray::<_, u64>::try_from(&reasons).map_err(Error::map)?;
        let Map::PerCpuArray(reasons) = reasons else { return Err(Error::Object) };
        let reasons = reasons.fd().as_fd().try_clone_to_owned().map_err(Error::kernel("dup"))?;
        let paid_until = MappedArray::writable(take("paid_until")?, CHANNELS + 1)?;
        let dropped = MappedArray::new(take("dropped")?, CHANNELS + 1, ProtFlags::READ)?;
        let steered = InterfaceStreams::load(&mut object)?;
        Ok(Self {
            steered: Some(steered),
            channels,
            handlers,
            paid_until,
            dropped,
            senders: vec![None; CHANNELS as usize].into_boxed_slice(),
            link: None,
            fd,
            object,
            settings,
            first: None,
            addresses,
            peers,
            sockets,
            reasons,
        })
    }

    /// Says which frames are ours, of those to one of our addresses, of which the first is known by now. Before this, none is.
    ///
    /// # Errors
    /// There is no such VLAN, or the kernel refuses.
    pub(crate) fn settings(&mut self, settings: &Settings) -> io::Result<()> {
        if settings.vlan.is_some_and(|vlan| !(1..4095).contains(&vlan)) {
            return Err(invalid("a VLAN is 1 to 4094"));
        }
        let Settings { port, vlan, mac, largest_frame, control, peer_control, clock_ahead_ns } = *settings;
        let told = layout::Settings {
            port: port.to_be(),
            vlan: vlan.unwrap_or(0),
            mac,
            most: largest_frame,
            unused: 0,
            control_ns: layout::nanos(control.spacing),
            control_tolerance_ns: layout::nanos(control.tolerance),
            peer_control_ns: layout::nanos(peer_control.spacing),
            peer_control_tolerance_ns: layout::nanos(peer_control.tolerance),
            // No packet is sent to the address of zeroes.
            address: self.first.unwrap_or_default(),
            clock_ahead_ns,
        };
        self.settings.set(0, told, 0).map_err(error::of_map)
    }

    /// Frames to this address are ours. At most 64 addresses.
    ///
    /// # Errors
    /// There are too many, or the kernel refuses.
    pub(crate) fn add_address(&mut self, address: IpAddr) -> io::Result<()> {
        let address = layout::octets(address);
        self.addresses.insert(address, 1, 0).map_err(error::of_map)?;
        self.first.get_or_insert(address);
        Ok(())
    }

    /// Has the program see every frame that comes in on the interface, until [`detach`](Self::detach); for set-up. Where it was
    /// attached before, it no longer is.
    ///
    /// # Errors
    /// Another program is there, which is left alone; the driver cannot do it; there is no such interface; the user may not.
    pub(crate) fn attach(&mut self, interface: u32, mode: Mode) -> io::Result<AttachedProgram> {
        self.detach();
        let program = self.fd.as_fd();
        let mut attach = |is_native| {
            kernel::link(program, interface, is_native).map(|link| {
                self.link = Some(link);
                is_native
            })
        };
        let mut refused = None;
        let got = match mode {
            Mode::Native => attach(true),
            Mode::Generic => attach(false),
            Mode::Any => attach(true).or_else(|why| {
                // Else it was the driver that refused: generic mode may work.
                if let Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::EACCES) = why.raw_os_error() {
                    return Err(why);
                }
                refused = Some(why);
                attach(false)
            }),
        };
        got.map(|is_native| AttachedProgram { is_native, refused })
    }

    /// Takes the program off its interface; frames go the kernel's way again.
    pub(crate) fn detach(&mut self) {
        self.link = None;
    }

    /// Packets of the channel at `place` may arrive from now on, and its peer's control frames have a budget of their own. What
    /// was dropped at its place before stays counted. At most two system calls.
    ///
    /// # Errors
    /// The place is beyond [`MOST_CHANNELS`], or the packet size beyond what a frame can carry; or the kernel refuses. Nothing
    /// may arrive for the channel then.
    pub(crate) fn expect(&mut self, place: u32, expected: &ExpectedChannel) -> io::Result<()> {
        self.expect_control(place, expected.peer)?;
        if !(1..=MAX_PACKET_BYTES).contains(&expected.packet) {
            return Err(invalid("a packet has 1 to 8900 bytes"));
        }
        let channel = &self.channels[place as usize];
        let sender = Sender::from(expected.peer);
        channel.key.store(expected.key, Relaxed);
        channel.peer[0].store(sender.address[0], Relaxed);
        channel.peer[1].store(sender.address[1], Relaxed);
        channel.peer_port.store(sender.port, Relaxed);
        channel.class.store(layout::class(expected.class) as u16, Relaxed);
        channel.packet.store(expected.packet, Relaxed);
        channel.max_message.store(expected.max_message, Relaxed);
        // A thousandth less, so that a peer whose clock is faster than ours does not break its contract.
        let spacing = layout::nanos(expected.spacing);
        channel.packet_ns.store(spacing - spacing / 1024, Relaxed);
        channel.tolerance_ns.store(layout::nanos(expected.tolerance), Relaxed);
        self.paid_until[place as usize].store(0, Relaxed);
        channel.open.store(1, Release);
        Ok(())
    }

    /// The channel at `place` sends to `peer`, whose control frames have a budget of their own: nothing but those may arrive. At
    /// most two system calls.
    ///
    /// # Errors
    /// The place is beyond [`MOST_CHANNELS`], or the kernel refuses.
    pub(crate) fn expect_control(&mut self, place: u32, peer: SocketAddr) -> io::Result<()> {
        if place >= CHANNELS {
            return Err(invalid("early demultiplexing has places for 1024 channels"));
        }
        self.close(place);
        let sender = Sender::from(peer);
        if self.senders[place as usize] == Some(sender) {
            return Ok(());
        }
        self.forget_sender(place)?;
        if !self.senders.contains(&Some(sender)) {
            self.peers.insert(sender, 0, 0).map_err(error::of_map)?;
        }
        self.senders[place as usize] = Some(sender);
        Ok(())
    }

    /// Nothing may arrive for the channel at `place` any more. One system call if its peer has no other channel.
    pub(crate) fn expect_nothing(&mut self, place: u32) {
        if place < CHANNELS {
            self.close(place);
            // What stays in the kernel is a budget that no peer uses.
            let _ = self.forget_sender(place);
        }
    }

    fn close(&mut self, place: u32) {
        self.handlers.close(place);
        self.channels[place as usize].open.store(0, Relaxed);
        // What is written next is of a channel that is closed.
        fence(Release);
    }

    /// The peer of `place` has a budget of its own only if another place has the same peer.
    fn forget_sender(&mut self, place: u32) -> io::Result<()> {
        let Some(sender) = self.senders[place as usize].take() else { return Ok(()) };
        if self.senders.contains(&Some(sender)) { Ok(()) } else { self.peers.remove(&sender).map_err(error::of_map) }
    }

    /// Frames of `class` that come in on `queue` go to `socket`, which is bound there.
    ///
    /// # Errors
    /// The queue is beyond [`MOST_QUEUES`]; it is no AF_XDP socket.
    pub(crate) fn set_socket(&mut self, queue: u32, class: ArrivalClass, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(socket_place(queue, class)?, socket.as_raw_fd(), 0).map_err(error::of_map)
    }

    /// Reads what becomes of the frames from here on.
    ///
    /// # Errors
    /// The process has no descriptor left, or the kernel refuses.
    pub(crate) fn observer(&self) -> io::Result<CounterReader> {
        let counts = vec![0; aya::util::nr_cpus().map_err(|(_, source)| source)?].into_boxed_slice();
        let mut reader = CounterReader { reasons: self.reasons.try_clone()?, counts, before: [0; REASONS] };
        reader.before = reader.sums()?;
        Ok(reader)
    }

    /// Packets that were dropped as beyond their contract, of all channels; only grows. No system call.
    pub(crate) fn policed_total(&self) -> u64 {
        let (too_large, over_rate) = self.policed(CHANNELS);
        too_large + over_rate
    }

    /// Packets that were dropped as beyond the contract of the channel at `place`, and of those that had the place before it:
    /// messages or fragments that it cannot have, and packets beyond its rate. Only grows. No system call.
    pub(crate) fn policed(&self, place: u32) -> (u64, u64) {
        let drops = self.dropped.get(place as usize);
        drops.map_or((0, 0), |drops| (drops.too_large.load(Relaxed), drops.over_rate.load(Relaxed)))
    }

    /// Runs the program over `frame`, `repeat` times, as if it had come in on `queue` of an interface (by number), or on the first
    /// of the loopback's. The frame goes nowhere. For tests, and to measure what a frame costs.
    ///
    /// # Errors
    /// The frame is shorter than an Ethernet header or longer than a page has room for; there is no such interface or queue; the
    /// kernel refuses.
    pub(crate) fn test_run(&self, frame: &[u8], queue: Option<(u32, u32)>, repeat: u32) -> io::Result<TestRun> {
        let (interface, queue) = queue.unwrap_or((0, 0));
        // `struct xdp_md`: data, data_end, data_meta, interface, queue, and the interface that it leaves by.
        let context = [0, frame.len() as u32, 0, interface, queue, 0].map(u32::to_ne_bytes).concat();
        let options =
            TestRunOptions { data_in: Some(frame), ctx_in: Some(&context), repeat, ..TestRunOptions::default() };
        let program: Option<&Xdp> = self.object.program(DEMULTIPLEX).and_then(|program| program.try_into().ok());
        let program = program.ok_or_else(|| io::Error::other(Error::Object))?;
        let run = program.test_run(options).map_err(|error| match error {
            ProgramError::SyscallError(error) => error.io_error,
            other => io::Error::other(other),
        })?;
        let duration_ns = u32::try_from(run.duration.as_nanos()).unwrap_or(u32::MAX);
        Ok(TestRun { verdict: run.return_value, duration_ns })
    }
}

fn socket_place(queue: u32, class: ArrivalClass) -> io::Result<u32> {
    if queue >= QUEUES {
        return Err(invalid("early demultiplexing looks at 64 queues"));
    }
    Ok(queue * CLASSES + layout::class(class))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
