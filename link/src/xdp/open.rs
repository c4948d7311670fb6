//! Making the fast path: from an interface's name to sockets on each of its queues. A failure leaves nothing behind.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use laxity_core::receive::{ArrivalClass, ExpectedChannel, RateLimit};
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::Xdp;
use super::config::{OpenedXdp, XdpConfig};
use super::error::XdpError;
use super::headers::{self, Template, ip_and_udp};
use super::peers::PeerTable;
use super::program::{self, MOST_CHANNELS, MOST_QUEUES, Mode, Program, Settings, TestRun};
use super::queue::{CLASSES, Queue};
use super::region::{KernelFrames, MOST_PACKET};
use super::watcher::{WatchTarget, Watcher};
use crate::netlink::{Interface, Netlink};
use crate::sys::features::{queues, takes_vlan_tags};
use crate::sys::rings::{self, BindTarget};
use crate::sys::{self, now};
use crate::transmit_queue::TransmitQueue;
use crate::udp::{MAX_BATCH, Udp, UdpConfig};
use crate::{Link, OutOfRange, PendingEvents};

/// Control frames of each peer with a channel: keep-alives of as many channels as a host has, all at once and every tenth of a
/// second; no more at once than half of what may wait.
const PEER_CONTROL: RateLimit = RateLimit { spacing: Duration::from_micros(250), tolerance: Duration::from_millis(64) };
/// Control frames of all unknown peers together: a few handshakes at a time.
const UNKNOWN_CONTROL: RateLimit =
    RateLimit { spacing: Duration::from_millis(1), tolerance: Duration::from_millis(64) };
/// Addresses of a host that the program has room for (`ADDRESSES` of demux.bpf.c).
const MOST_ADDRESSES: usize = 64;
/// The interval at which a queue that another program has just given up is asked for.
const ASK_EVERY: std::time::Duration = std::time::Duration::from_millis(10);

impl Xdp {
    /// The largest packet that the interface of `config` carries and a frame holds, bytes. It does not matter whether another program drives
    /// the interface now.
    ///
    /// # Errors
    /// There is no such interface, or it cannot be used for this.
    pub fn largest_packet(config: &XdpConfig) -> Result<usize, XdpError> {
        Ok(InterfaceStack::find(config)?.largest_packet(config.bind.ip()))
    }

    /// As [`largest_packet`](Self::largest_packet), for a caller that wants to drive the interface right now. Changes nothing.
    ///
    /// # Errors
    /// Likewise; or another program drives it.
    pub fn largest_packet_if_free(config: &XdpConfig) -> Result<usize, XdpError> {
        let place = InterfaceStack::find(config)?;
        place.wait_until_free(Duration::ZERO)?;
        Ok(place.largest_packet(config.bind.ip()))
    }

    /// Drives an interface: loads and attaches the program, binds the sockets, and makes the region. Allocates now and never again.
    ///
    /// # Errors
    /// See [`XdpError`]; the interface is as it was then.
    pub fn open(config: &XdpConfig) -> Result<(Self, KernelFrames), XdpError> {
        check(config).map_err(XdpError::Config)?;
        let place = InterfaceStack::find(config)?;
        place.carries(config)?;
        place.wait_until_free(config.patience)?;
        let name = place.below.name.as_str();
        let mut program = Program::load().map_err(|error| of_program(name, error))?;
        let udp = Udp::bind(&UdpConfig { batch: config.batch, ..UdpConfig::new(config.bind) })?;
        let address = udp.local_address();
        let kernel = |what| move |source: io::Error| XdpError::Kernel { interface: name.to_owned(), what, source };
        let told = |source| XdpError::Kernel { interface: name.to_owned(), what: "what the program is told", source };
        let clock_ahead_ns =
            sys::ahead_of_first_namespace().map_err(kernel("how far the clock of its time namespace is ahead"))?;
        let queues = place.queues()?;
        let transmit = (2 * config.batch as u32).next_power_of_two();
        let waiting = config.waiting.map(u32::next_power_of_two);
        let for_kernel = queues * waiting.iter().sum::<u32>() + transmit;
        let wanted = config.frames as u64 + u64::from(for_kernel);
        let memory = |source| XdpError::Memory { interface: name.to_owned(), bytes: wanted * 4096, source };
        let count = u32::try_from(wanted).map_err(|_| memory(io::ErrorKind::OutOfMemory.into()))?;
        let mut frames = KernelFrames::new(count, config.packet, clock_ahead_ns).map_err(memory)?;
        let opened = open_queues(config, &place, queues, waiting, transmit, &mut frames)?;
        for (number, queue) in opened.iter().enumerate() {
            for (class, socket) in CLASSES.into_iter().zip(&queue.sockets) {
                program.set_socket(number as u32, class, socket.as_fd()).map_err(told)?;
            }
        }
        for ip in place.addresses(address.ip()) {
            program.add_address(ip).map_err(told)?;
        }
        let settings = program.settings(&Settings {
            port: address.port(),
            vlan: place.vlan,
            mac: place.own.mac,
            largest_frame: frames.largest_frame() as u16,
            control: UNKNOWN_CONTROL,
            peer_control: PEER_CONTROL,
            clock_ahead_ns,
        });
        settings.map_err(told)?;
        let drop_cost = drop_cost(&mut program, &place, address).map_err(told)?;
        // What the measurement counted is not to be seen.
        let observer = program.observer().map_err(kernel("another descriptor"))?;
        let index = place.below.index;
        let attached = program.attach(index, config.mode);
        let attached = attached.map_err(|source| of_attach(name, index, config.mode, source))?;
        let mode = if attached.is_native { Mode::Native } else { Mode::Generic };
        let zero_copy = opened[0].sockets[0].is_zero_copy();
        let notes = place.notes(attached.refused.as_ref(), zero_copy);
        let found = OpenedXdp {
            interface: name.to_owned(),
            index,
            vlan: place.vlan,
            mode,
            zero_copy,
            queues,
            drop_cost,
            notes,
        };
        let sockets = |queue: &Queue| queue.sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect();
        let watched = WatchTarget {
            interface: place.own.index,
            bind: address,
            observer,
            sockets: opened.iter().map(sockets).collect::<io::Result<_>>().map_err(kernel("another descriptor"))?,
            largest_frame: frames.largest_frame().min(config.packet + headers::MOST),
            peers: config.peers,
        };
        let others = others(&opened, &udp).map_err(kernel("epoll"))?;
        let watcher = Watcher::start(watched, found).map_err(kernel("a thread and its netlink sockets"))?;
        if let Some(busy_poll) = config.busy_poll {
            for queue in &opened {
                queue.sockets[0].busy_poll(busy_poll.span, busy_poll.frames).map_err(kernel("SO_BUSY_POLL"))?;
            }
        }
        // What the measurement counted belongs to no channel.
        let policed = program.policed_total();
        let link = Self {
            program,
            watcher,
            others,
            queues: opened,
            udp,
            interface: place.own.index,
            busy_poll: config.busy_poll.is_some(),
            peers: PeerTable::new(config.peers),
            expected: vec![None; MOST_CHANNELS as usize].into_boxed_slice(),
            policed: vec![0; config.peers.min(MOST_CHANNELS as usize)].into_boxed_slice(),
            policed_next: 0,
            handled_in_all: 0,
            policed_in_all: policed,
            transmit_queue: TransmitQueue::new(config.batch),
            in_flight: 0,
            most_in_flight: transmit as usize,
            doorbell: None,
            waits_to_send: false,
            is_gone: false,
            looks: 0,
            was_busy: false,
            from_socket: super::FROM_SOCKET,
            wire_bytes: Arc::default(),
            events: PendingEvents::new(),
        };
        Ok((link, frames))
    }
}

/// The descriptors that are readable when something has arrived that is not waited for by itself.
fn others(queues: &[Queue], udp: &Udp) -> io::Result<OwnedFd> {
    let others = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&others, udp, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    for socket in super::waited_for_together(queues) {
        epoll::add(&others, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(others)
}

fn check(config: &XdpConfig) -> Result<(), OutOfRange> {
    let range = OutOfRange::check;
    range("batch", config.batch as u64, 1, MAX_BATCH as u64)?;
    range("packet", config.packet as u64, 1, MOST_PACKET as u64)?;
    range("frames", config.frames as u64, 1, 1 << 24)?;
    range("peers", config.peers as u64, 1, 1 << 16)?;
    range("vlan", config.vlan.unwrap_or(1).into(), 1, 4094)?;
    for waiting in config.waiting {
        range("waiting", u64::from(waiting), 1, 1 << 15)?;
    }
    if let Some(busy) = config.busy_poll { range("busy_poll.frames", u64::from(busy.frames), 1, 64) } else { Ok(()) }
}

/// True if the program looks at packets from and to such an address; the others are the kernel's.
fn is_judged(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => ip.segments()[..5] != [0; 5] && !ip.is_multicast(),
    }
}

/// The interface, and the one below it if it is a VLAN.
struct InterfaceStack {
    own: Interface,
    below: Interface,
    vlan: Option<u16>,
}

impl InterfaceStack {
    fn find(config: &XdpConfig) -> Result<Self, XdpError> {
        let asked = config.interface.clone().unwrap_or_else(|| config.bind.ip().to_string());
        let failed =
            |source| XdpError::Kernel { interface: asked.clone(), what: "a question about interfaces", source };
        let mut netlink = Netlink::open().map_err(failed)?;
        let ip = config.bind.ip();
        let own = match &config.interface {
            Some(name) => {
                let found = netlink.interface_by_name(name).map_err(failed)?;
                found.ok_or_else(|| XdpError::NoInterface { interface: name.clone() })?
            }
            None if ip.is_unspecified() => return Err(XdpError::Wildcard { address: ip }),
            None => netlink.interface_of_address(ip).map_err(failed)?.ok_or(XdpError::NoInterfaceOf { address: ip })?,
        };
        let unsuitable = |reason: String| XdpError::Unsuitable { interface: own.name.clone(), reason };
        if !ip.is_unspecified() && !own.addresses.iter().any(|(found, _)| *found == ip) {
            return Err(unsuitable(format!("it does not have the address {ip}; bind to one of its own")));
        }
        if ip.is_loopback() || own.mac == [0; 6] {
            return Err(unsuitable("it has no address at the link layer; on loopback, use the link udp".to_owned()));
        }
        if !ip.is_unspecified() && !is_judged(ip) {
            return Err(unsuitable(format!(
                "packets from and to {ip}, a reserved address, are always left to the kernel; bind to another address of it, or use the \
                 link udp"
            )));
        }
        if !own.is_up {
            return Err(unsuitable(format!("it is down; `ip link set {} up`", own.name)));
        }
        let (below, vlan) = match own.vlan {
            None => (own.clone(), None),
            Some((0, _)) => {
                return Err(unsuitable("the interface below this VLAN is in another network namespace".to_owned()));
            }
            Some((below, vlan)) => {
                let below = netlink.interface_by_index(below).map_err(failed)?;
                (below.ok_or_else(|| unsuitable("the interface below this VLAN is gone".to_owned()))?, Some(vlan))
            }
        };
        let vlan = config.vlan.or(vlan);
        // These join several interfaces into one.
        if matches!(below.kind.as_deref(), Some("bond" | "team")) {
            return Err(unsuitable(format!(
                "packets come in on the interfaces that {} joins, where no program of ours is; use one of those",
                below.name
            )));
        }
        if vlan.is_some() && takes_vlan_tags(&below.name).unwrap_or(false) {
            return Err(unsuitable(format!(
                "{0} takes the VLAN's tag off before the program can see it; `ethtool -K {0} rxvlan off`",
                below.name
            )));
        }
        let place = Self { own, below, vlan };
        match place.addresses(ip).count() {
            0 => Err(place.unsuitable(format!("it has no address that packets to {ip} may have; `ip address add`"))),
            1..=MOST_ADDRESSES => Ok(place),
            found => Err(place.unsuitable(format!(
                "it has {found} addresses, and there is room for {MOST_ADDRESSES}; bind to one of them (`--bind`)"
            ))),
        }
    }

    /// Checks that packets are short enough for it.
    fn carries(&self, config: &XdpConfig) -> Result<(), XdpError> {
        let (carried, headers) = (self.own.mtu as usize, ip_and_udp(config.bind.ip()));
        let needed = config.packet + headers;
        if needed <= carried {
            return Ok(());
        }
        Err(self.unsuitable(format!(
            "packets of {} bytes need an MTU of {needed}, it has {carried}; ask for packets of {} bytes at most",
            config.packet,
            carried.saturating_sub(headers)
        )))
    }

    fn largest_packet(&self, bind: IpAddr) -> usize {
        (self.own.mtu as usize).saturating_sub(ip_and_udp(bind)).min(MOST_PACKET)
    }

    /// The process that attached a program may be ending.
    fn wait_until_free(&self, patience: Duration) -> Result<(), XdpError> {
        let interface = || self.below.name.clone();
        let failed = |source| XdpError::Kernel { interface: interface(), what: "a question about interfaces", source };
        let start = now();
        let mut attached = self.below.program;
        while let Some(program) = attached {
            if now().since(start) >= patience {
                return Err(XdpError::ForeignProgram { interface: interface(), program });
            }
            std::thread::sleep(ASK_EVERY);
            let found = Netlink::open().and_then(|mut netlink| netlink.interface_by_index(self.below.index));
            attached = found.map_err(failed)?.and_then(|below| below.program);
        }
        Ok(())
    }

    fn unsuitable(&self, reason: String) -> XdpError {
        XdpError::Unsuitable { interface: self.own.name.clone(), reason }
    }

    /// The queues that packets may arrive on.
    fn queues(&self) -> Result<u32, XdpError> {
        let interface = self.below.name.clone();
        match queues(&interface) {
            Ok((found @ 1..=MOST_QUEUES, _)) => Ok(found),
            Err(source) => Err(XdpError::Kernel { interface, what: "the number of receive queues", source }),
            Ok((found, _)) => Err(XdpError::Unsuitable {
                interface,
                reason: format!(
                    "it has {found} receive queues, and packets of ours may arrive on any; expected 1 to {MOST_QUEUES}; `ethtool -L {} combined {MOST_QUEUES}`",
                    self.below.name
                ),
            }),
        }
    }

    /// The addresses that packets of ours are sent to.
    fn addresses(&self, bound: IpAddr) -> impl Iterator<Item = IpAddr> + '_ {
        let all = self.own.addresses.iter().map(|(ip, _)| *ip).filter(|ip| is_judged(*ip));
        all.filter(move |ip| *ip == bound || bound.is_unspecified() && (ip.is_ipv4() || bound.is_ipv6()))
    }

    fn notes(&self, refused: Option<&io::Error>, zero_copy: bool) -> Vec<String> {
        let name = &self.below.name;
        let mut notes = Vec::new();
        if let Some(refused) = refused {
            notes.push(format!(
                "{name}: the driver does not take the program ({refused}); it runs once the kernel has a buffer (generic mode), so each dropped frame costs more"
            ));
        }
        if self.vlan.is_none() && takes_vlan_tags(name).unwrap_or(false) {
            notes.push(format!(
                "{name} takes VLANs' tags off before the program can see them: packets of any VLAN count as untagged; where that matters, \
                 `ethtool -K {name} rxvlan off`"
            ));
        }
        if !zero_copy {
            notes.push(format!("{name}: the kernel copies frames to and from the device (copy mode)"));
        }
        notes
    }
}

/// The time that the program takes to drop a frame: the larger median of some runs, each a mean; in a run that was disturbed it takes longer.
fn drop_cost(program: &mut Program, place: &InterfaceStack, address: SocketAddr) -> io::Result<Duration> {
    const RUNS: usize = 8;
    const FRAMES: u32 = 1000;
    let mut header = DataHeader {
        // A place that no channel has.
        channel: u32::MAX,
        message_bytes: 64,
        payload: 64,
        ..DataHeader::default()
    };
    let mut packet = [0; DATA_HEADER_BYTES + 64];
    let to = place.addresses(address.ip()).next().ok_or_else(|| io::Error::other("the interface has no address"))?;
    let (from, address) = (SocketAddr::new(to, 1), SocketAddr::new(to, address.port()));
    let template = Template::new((place.own.mac, from), (place.own.mac, address), place.vlan, 0);
    let template = template.ok_or_else(|| io::Error::other("both addresses are one"))?;
    // Of a channel that does not exist, and of one that is beyond its rate: one packet, and then none for longer than any host runs.
    let mut most = 0;
    for place in [header.channel, 0] {
        header.channel = place;
        header.write(&mut packet).map_err(io::Error::other)?;
        if place == 0 {
            program.expect(
                place,
                &ExpectedChannel {
                    peer: from,
                    key: header.key,
                    class: ArrivalClass::RealTime,
                    packet: 64,
                    max_message: 64,
                    spacing: Duration::from_secs(1 << 20),
                    tolerance: Duration::ZERO,
                },
            )?;
        }
        let mut frame = vec![0; template.len()];
        template.write(&mut frame, &packet);
        frame.extend_from_slice(&packet);
        // The one packet; or one more that is none.
        program.test_run(&frame, None, 1)?;
        let mut means = [0; RUNS];
        for mean in &mut means {
            let run = program.test_run(&frame, None, FRAMES)?;
            if run.verdict != TestRun::DROP {
                let verdict = run.verdict;
                return Err(io::Error::other(format!("the program does not drop what it should, but says {verdict}")));
            }
            *mean = run.duration_ns;
        }
        means.sort_unstable();
        most = most.max(means[RUNS / 2]);
    }
    program.expect_nothing(0);
    Ok(Duration::from_nanos(u64::from(most)))
}

pub(super) fn of_program(interface: &str, error: program::Error) -> XdpError {
    let interface = interface.to_owned();
    match error {
        program::Error::NotPermitted { .. } => XdpError::NotPermitted { interface, what: "load and attach a program" },
        other => XdpError::Program(other.to_string()),
    }
}

/// The reason why the program cannot be attached to an interface, by its name and number.
pub(super) fn of_attach(name: &str, number: u32, mode: Mode, source: io::Error) -> XdpError {
    let interface = name.to_owned();
    // Of an interface that is not there the kernel says EINVAL.
    let there = Netlink::open().and_then(|mut netlink| netlink.interface_by_index(number));
    if let Ok(None) = there {
        return XdpError::NoInterface { interface };
    }
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            let program = there.ok().flatten().and_then(|found| found.program);
            XdpError::ForeignProgram { interface, program: program.unwrap_or(0) }
        }
        Some(libc::EPERM | libc::EACCES) => of_program(name, program::Error::NotPermitted { source }),
        // EOPNOTSUPP if it never does; ERANGE or EINVAL often mean that the MTU is too large.
        _ if mode == Mode::Native => XdpError::NotAttached {
            interface,
            advice: "ask for the mode any or generic; an MTU beyond what the driver takes with a program is another reason",
            source,
        },
        _ => of_program(name, program::Error::kernel("to attach the program")(source)),
    }
}

/// Tries again as long as the answer is `while_it_is`, until a time.
fn patiently(until: Instant, while_it_is: Errno, attempt: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
    loop {
        match attempt() {
            Err(error) if Errno::from_io_error(&error) == Some(while_it_is) && now() < until => {
                std::thread::sleep(ASK_EVERY);
            }
            other => return other,
        }
    }
}

fn open_queues(
    config: &XdpConfig,
    place: &InterfaceStack,
    queues: u32,
    waiting: [u32; CLASSES.len()],
    transmit: u32,
    frames: &mut KernelFrames,
) -> Result<Vec<Queue>, XdpError> {
    let name = &place.below.name;
    let kernel = |what| move |source: io::Error| XdpError::Kernel { interface: name.clone(), what, source };
    let permitted = |what: &'static str, source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => XdpError::NotPermitted { interface: name.clone(), what },
        _ => XdpError::Kernel { interface: name.clone(), what, source },
    };
    let region = Arc::clone(&frames.memory);
    let mut opened: Vec<Queue> = Vec::new();
    for number in 0..queues {
        let first = rings::socket().map_err(|source| permitted("open an AF_XDP socket", source))?;
        if opened.is_empty() {
            let bytes = region.bytes() as u64;
            let limit = getrlimit(Resource::Memlock).current;
            // The limit would do: the process that has so much locked may be ending.
            let is_enough = limit.is_some_and(|limit| limit >= bytes);
            let patience = if is_enough { config.patience } else { Duration::ZERO };
            // SAFETY: each queue keeps the region as long as its sockets.
            let register = || unsafe { rings::register(first.as_fd(), &region, frames.chunk as u32) };
            let registered = patiently(now() + patience, Errno::NOBUFS, &register);
            registered.map_err(|source| {
                let interface = name.clone();
                match (Errno::from_io_error(&source), limit) {
                    (Some(Errno::NOBUFS), Some(limit)) => XdpError::MemoryLimit { interface, bytes, limit },
                    (Some(Errno::NOBUFS | Errno::NOMEM), _) => XdpError::Memory { interface, bytes, source },
                    _ => kernel("to register the frames (XDP_UMEM_REG)")(source),
                }
            })?;
        }
        let port = BindTarget { interface: place.below.index, queue: number, copy: true };
        let with = opened.first().map(|queue| queue.sockets[0].as_fd());
        // The process that had it may be ending: the kernel takes a while to let go of the queue.
        let until = now() + config.patience;
        let bind = |bind: &dyn Fn() -> io::Result<()>| patiently(until, Errno::BUSY, bind);
        let queue =
            Queue::open(port, waiting, transmit, first, with, frames, bind).map_err(
                |source| match Errno::from_io_error(&source) {
                    Some(Errno::BUSY) => XdpError::QueueBusy {
                        interface: name.clone(),
                        queue: number,
                        waited_ms: config.patience.as_nanos() / 1_000_000,
                    },
                    _ => permitted("bind an AF_XDP socket to a receive queue", source),
                },
            )?;
        opened.push(queue);
    }
    Ok(opened)
}
