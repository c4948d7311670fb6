//! The two ends of each stack: who asks, and who answers.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity::{
    ChannelSpec, Host, HostConfig, LinkChoice, ListenConfig, Message, Placement, Receiver, Sender, StreamsConfig,
    XdpOptions,
};
use laxity_core::figures::Figures;
use laxity_core::limits::MIN_INTERVAL;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now, readable};

use super::serving::ServerProcess;
use super::{AT_REST, LOST_AFTER, OpenCost, REQUEST_BYTES, RoundtripBench, SEGMENTS, ThreadSetup};
use crate::conditions::stay_on;
use crate::error::{Error, or_none};
use crate::hosts::{Devices, Hosts, InterfaceEnd};
use crate::sys::{is_nothing, or_nothing};
use crate::workload::{open, real_time};

/// The time for which an expert that has a processor to itself, or a host that spins, polls before it blocks.
const SPIN: Duration = Duration::from_micros(150);
/// The longest time between two looks of the answering end at the end of the turn.
const LOOK: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(100);
const ACCEPT: StdDuration = StdDuration::from_secs(5);
/// Messages that may wait on a best-effort channel, as with `laxity send`.
const QUEUE: u64 = 64;
/// Intervals of contracts are tried in such steps; the first one that is granted is taken.
const INTERVAL_STEP: Duration = Duration::from_micros(50);
const LONGEST_INTERVAL: Duration = Duration::from_millis(10);
/// The number of times that a channel is opened and closed.
const OPENINGS: usize = 50;

/// One end of a stack.
pub(crate) enum StackEnd {
    /// A connected socket. Who asks by it spins for so long before it blocks.
    Plain { socket: UdpSocket, spin: Duration },
    /// A channel in each direction.
    Laxity { sender: Box<Sender>, receiver: Box<Receiver> },
}

/// Both ends of one stack.
pub(super) struct Pair {
    stack: &'static str,
    pub(super) asks: StackEnd,
    pub(super) answers: StackEnd,
    /// The scheduling of the asking and of the answering end.
    pub(super) manners: [ThreadSetup; 2],
    /// The threads that work for it alone outside this process: threads of the kernel, which receive; executives in processes of their own.
    outside: Vec<i32>,
    places: [InterfaceEnd; 2],
    hosts: Vec<Host>,
    _served: Vec<ServerProcess>,
}

/// What `work` returned, and how long it took, ns.
fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(T, u64), Error> {
    let begin = now();
    let done = work()?;
    Ok((done, now().since(begin).as_nanos()))
}

/// The message is the answer to this request.
fn answers(request: &[u8], message: &[u8]) -> bool {
    message.len() == request.len() && message[..8] == request[..8]
}

/// Most bytes of a plain datagram: what Laxity has in a packet.
const DATAGRAM: usize = 1_400;

/// A message in plain datagrams of about the same size, one if it fits. Each begins with the number of the message.
fn send_plainly(socket: &UdpSocket, message: &[u8]) -> io::Result<()> {
    if message.len() <= DATAGRAM {
        return socket.send(message).map(|_| ());
    }
    let mut datagram = [0; DATAGRAM];
    for part in message.chunks(message.len().div_ceil(message.len().div_ceil(DATAGRAM))) {
        datagram[..part.len()].copy_from_slice(part);
        datagram[..8].copy_from_slice(&message[..8]);
        socket.send(&datagram[..part.len()])?;
    }
    Ok(())
}

/// The part of a message that has come in plain datagrams.
#[derive(Default)]
struct PartialMessage {
    number: [u8; 8],
    bytes: usize,
}

impl PartialMessage {
    /// One more has come; true if it completes a message of `bytes`.
    fn take(&mut self, datagram: &[u8], bytes: usize) -> bool {
        let Some(&number) = datagram.first_chunk() else { return false };
        if number != self.number {
            *self = Self { number, bytes: 0 };
        }
        self.bytes += datagram.len();
        self.bytes == bytes
    }
}

impl StackEnd {
    /// Sends a request and waits for its answer, at most until `limit`; `None` if it did not come, else where its time went, if that is known.
    pub(crate) fn ask(&mut self, request: &[u8], limit: Instant) -> Result<Option<Option<Segments>>, Error> {
        match self {
            Self::Plain { socket, spin } => {
                let came = ask_plainly(socket, *spin, request, limit).map_err(Error::system("a UDP socket"))?;
                Ok(came.then_some(None))
            }
            Self::Laxity { sender, receiver } => {
                sender.send(request)?;
                while let Some(message) = or_none(receiver.recv_timeout(limit.since(now()).into()))? {
                    if answers(request, &message) {
                        return Ok(Some(segments(&message)));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Sends messages one after the other until then; how many were taken.
    pub(super) fn push(&mut self, bytes: usize, until: Instant) -> Result<u64, Error> {
        let (message, mut taken) = (vec![0x5a; bytes], 0);
        while now() < until {
            taken += 1;
            match self {
                Self::Plain { socket, .. } => match send_plainly(socket, &message) {
                    Err(error) if is_nothing(&error) => taken -= 1,
                    sent => sent.map_err(Error::system("a UDP socket"))?,
                },
                Self::Laxity { sender, .. } => sender.send(&message)?,
            }
        }
        Ok(taken)
    }

    /// One message, if it comes within `LOOK`: its bytes.
    fn take(&mut self) -> Result<Option<usize>, Error> {
        match self {
            Self::Plain { socket, .. } => {
                or_nothing(socket.recv(&mut [0; DATAGRAM]).map(Some)).map_err(Error::system("a UDP socket"))
            }
            Self::Laxity { receiver, .. } => {
                Ok(or_none(receiver.recv_timeout(LOOK.into()))?.map(|message| message.len()))
            }
        }
    }

    /// The number of messages of `bytes` that come until then.
    pub(super) fn count(&mut self, bytes: usize, until: Instant) -> Result<u64, Error> {
        let mut came = 0;
        while now() < until {
            came += u64::from(self.take()? == Some(bytes));
        }
        Ok(came)
    }

    /// Takes what has come in the meantime.
    pub(super) fn forget(&mut self) -> Result<(), Error> {
        while self.take()?.is_some() {}
        Ok(())
    }

    /// Sends back the messages of `bytes` that come, until `over`.
    pub(crate) fn serve(&mut self, bytes: usize, over: &AtomicBool) -> Result<(), Error> {
        let (mut datagram, mut partial, mut answer) = ([0; DATAGRAM], PartialMessage::default(), vec![0; bytes]);
        while !over.load(Ordering::Relaxed) {
            match self {
                Self::Plain { socket, .. } => {
                    let served = socket.recv(&mut datagram).and_then(|len| {
                        if !partial.take(&datagram[..len], bytes) {
                            return Ok(());
                        }
                        answer[..8].copy_from_slice(&partial.number);
                        send_plainly(socket, &answer)
                    });
                    or_nothing(served).map_err(Error::system("a UDP socket"))?;
                }
                Self::Laxity { sender, receiver } => {
                    if let Some(message) = or_none(receiver.recv_timeout(LOOK.into()))? {
                        sender.send(&message)?;
                    }
                }
            }
        }
        Ok(())
    }
}

pub(crate) type Segments = [u64; SEGMENTS.len()];

/// The parts of the time of a message in hand.
fn segments(message: &Message) -> Option<Segments> {
    let in_hand = now().since(message.completion());
    let found = message.segments()?;
    Some([found.sending, found.transit, found.waiting, found.receiving, in_hand].map(Duration::as_nanos))
}

fn ask_plainly(socket: &UdpSocket, spin: Duration, request: &[u8], limit: Instant) -> io::Result<bool> {
    or_nothing(send_plainly(socket, request))?;
    let (mut datagram, mut partial, blocks_at) = ([0; DATAGRAM], PartialMessage::default(), now() + spin);
    loop {
        match socket.recv(&mut datagram) {
            Ok(len) if partial.take(&datagram[..len], request.len()) && partial.number == request[..8] => {
                return Ok(now() <= limit);
            }
            Ok(_) if now() > limit => return Ok(false),
            Ok(_) => {}
            Err(error) if is_nothing(&error) => {
                let time = now();
                if time >= limit {
                    return Ok(false);
                }
                // A socket that spins does not block; one that does not has blocked already.
                if spin.is_zero() || time < blocks_at {
                    std::hint::spin_loop();
                } else {
                    sys::wait(&mut [readable(socket.as_fd())], Some(limit.since(time)))?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl Pair {
    /// Opens both ends, on a network of that number.
    pub(super) fn open(
        bench: &mut RoundtripBench<'_>,
        number: u8,
        stack: &'static str,
        spec: ChannelSpec,
    ) -> Result<Self, Error> {
        let RoundtripBench { lab, plan, directory, conditions } = bench;
        let (processors, priority, notes) = (conditions.processors, conditions.priority, &mut conditions.notes);
        let processors = if stack.ends_with("-1") { [processors[1]; 2] } else { processors };
        let devices = match stack {
            "expert-1" => Devices::Queued,
            _ if stack.starts_with("laxity-xdp") => Devices::Whole,
            _ => Devices::Default,
        };
        let mut places = lab.joined(number, devices)?;
        // Where either end is.
        let is_one = stack.ends_with("one-host");
        let of_end = |end: usize| if is_one { 0 } else { end };
        if is_one {
            places[1].address.set_ip(places[0].address.ip());
            places[1].address.set_port(places[0].address.port() + 1);
        }
        // As urgent as the executive whose work they do, if they do it.
        let inline = priority.and(HostConfig::default().advanced.fifo_priority);
        let priority = if stack.contains("inline") { inline } else { priority };
        let manners = match stack {
            "udp" => [ThreadSetup::default(); 2],
            _ => processors.map(|processor| ThreadSetup { processor, priority }),
        };
        let spin = if stack == "expert-2" && processors[0].is_some() { SPIN } else { Duration::ZERO };
        let mut outside = Vec::new();
        let mut receive_by_thread = |host, given: Option<(usize, u8)>, notes: &mut Vec<String>| {
            let thread = given.ok_or_else(|| io::ErrorKind::PermissionDenied.into());
            match thread.and_then(|(processor, priority)| lab.receive_by_thread(host, number, processor, priority)) {
                Ok(thread) => outside.push(thread),
                Err(error) => notes.push(format!("{stack}: the kernel receives in soft interrupts: {error}")),
            }
        };
        if stack == "expert-1" {
            for host in [0, 1] {
                receive_by_thread(host, processors[1].zip(priority), notes);
            }
        }
        if !stack.starts_with("laxity") {
            let open = |host: usize| -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind(places[host].address)?;
                socket.connect(places[1 - host].address)?;
                let limit = if host == 0 { LOST_AFTER } else { LOOK };
                socket.set_read_timeout(Some(limit.into()))?;
                socket.set_nonblocking(host == 0 && !spin.is_zero())?;
                Ok(socket)
            };
            let socket = |host| lab.on(of_end(host), || open(host)).map_err(Error::system("a UDP socket"));
            let [asks, answers] = [socket(0)?, socket(1)?].map(|socket| StackEnd::Plain { socket, spin });
            let (hosts, _served) = (Vec::new(), Vec::new());
            return Ok(Self { stack, asks, answers, manners, outside, places, hosts, _served });
        }
        let over_xdp = stack.contains("xdp");
        let placement = if stack.contains("inline") { Placement::Inline } else { Placement::Thread };
        let (mut hosts, mut served) = (Vec::new(), Vec::new());
        for (host, of) in ["asking", "answering"].into_iter().enumerate() {
            // Only who asks, as with the expert.
            let spin = if host == 0 && stack.ends_with("spin") { SPIN } else { Duration::ZERO };
            let (address, manner) = (places[host].address, manners[host]);
            let started = if is_one || stack.ends_with("server") {
                let socket = directory.0.join(format!("{number}-{}", of_end(host)));
                if of_end(host) == host {
                    served.push(ServerProcess::start(lab, host, manner, &plan.laxity, &socket, address, over_xdp)?);
                }
                Host::start(HostConfig { placement: Placement::Server, server: Some(socket), ..HostConfig::default() })?
            } else {
                let link = if over_xdp { LinkChoice::Xdp(XdpOptions::default()) } else { LinkChoice::Udp };
                let others = processors[host].filter(|_| over_xdp && plan.prioritised.others);
                let streams = others.map(|others| StreamsConfig {
                    share_ppm: StreamsConfig::SHARES[0],
                    others: Some(others),
                    ..StreamsConfig::default()
                });
                let config = assumed().advanced(|advanced| advanced.spin = spin.into());
                start(lab, host, HostConfig { bind: address, link, placement, streams, ..config }, manner)?
            };
            notes.extend(started.status().notes.iter().map(|note| format!("{stack}, {of} host: {note}")));
            let urgent = HostConfig::default().advanced.fifo_priority.filter(|_| over_xdp && plan.prioritised.thread);
            if let (Some(processor), Some(priority), false) = (processors[host], urgent, started.is_attached()) {
                // The program is attached by now: that makes new threads.
                receive_by_thread(host, Some((processor, priority + 1)), notes);
            }
            hosts.push(started);
        }
        outside.extend(served.iter().map(ServerProcess::process));
        let (a, b) = (&hosts[0], &hosts[1]);
        let (asks, answers) = ends(connect(a, b, "requests", spec)?, connect(b, a, "answers", spec)?);
        Ok(Self { stack, asks, answers, manners, outside, places, hosts, _served: served })
    }

    /// Processor time of this process, and of what works for this pair outside it.
    pub(super) fn processor_time(&self) -> Duration {
        let outside = self.outside.iter().filter_map(|&process| sys::processor_time_of_process(process).ok());
        outside.fold(sys::process_processor_time(), |sum, time| sum + time)
    }

    /// The same since it was `before`, at `begin`, without what it would have taken at rest.
    pub(super) fn processor_time_since(&self, (before, begin): (Duration, Instant), at_rest: Duration) -> Duration {
        let used = self.processor_time().saturating_sub(before);
        used.saturating_sub(at_rest.mul_ratio(now().since(begin).as_nanos(), AT_REST.as_nanos()))
    }

    /// Opens one more channel to the answering end and closes it, again and again; of plain UDP, a socket that is bound and connected.
    pub(super) fn openings(&self, bench: &RoundtripBench<'_>, spec: ChannelSpec) -> Result<OpenCost, Error> {
        let (mut opened, mut closed) = (Vec::with_capacity(OPENINGS), Vec::with_capacity(OPENINGS));
        let [own, peer] = self.places.map(|place| place.address);
        // How long it took to open it, and to close it.
        type Once<'a> = Box<dyn FnMut() -> Result<[u64; 2], Error> + Send + 'a>;
        let mut once: Once<'_> = match &self.hosts[..] {
            [a, b] => {
                let listener = b.listen("opened")?;
                Box::new(move || {
                    let (sender, opened) = timed(|| Ok(a.open(b.address(), "opened", spec)?))?;
                    let _receiver = listener.accept(Some(ACCEPT))?;
                    Ok([opened, timed(|| Ok(sender.close()?))?.1])
                })
            }
            _ => Box::new(|| {
                let connected = || {
                    let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0))?;
                    socket.connect(peer)?;
                    Ok(socket)
                };
                let (socket, opened) = timed(|| connected().map_err(Error::system("a UDP socket")))?;
                let close = || {
                    drop(socket);
                    Ok(())
                };
                Ok([opened, timed(close)?.1])
            }),
        };
        let manner = self.manners[0];
        bench.lab.run(0, || {
            manner.take();
            for _ in 0..OPENINGS {
                let [open, close] = once()?;
                opened.push(open);
                closed.push(close);
            }
            Ok(())
        })?;
        opened.sort_unstable();
        closed.sort_unstable();
        Ok(OpenCost { stack: self.stack, opened, closed })
    }

    /// The target of the flood: a closed port of the answering host.
    pub(super) fn flooded(&self) -> SocketAddr {
        let answering = self.places[1].address;
        SocketAddr::new(answering.ip(), answering.port() + 1)
    }

    /// The figures of its channels, if it has any.
    pub(super) fn close(self) -> Vec<Figures> {
        figures_of(self.stack, &self.asks, &self.answers)
    }
}

/// Costs that were not measured, and a link of its own.
pub(crate) fn assumed() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

/// A host whose threads stay on the processor of its application.
pub(crate) fn start(lab: &Hosts, host: usize, config: HostConfig, manner: ThreadSetup) -> Result<Host, Error> {
    lab.run(host, || {
        stay_on(manner.processor);
        // The pair of interfaces is as fast as it is handed packets.
        let costs = config.costs.map(|costs| costs.at(config.bind.ip()));
        Ok(Host::start(HostConfig { costs, ..config })?)
    })
}

pub(crate) fn connect(from: &Host, to: &Host, name: &str, spec: ChannelSpec) -> Result<(Sender, Receiver), Error> {
    Ok(open(from, to, to.address(), name, spec, ListenConfig::default())?)
}

/// A channel's ends.
type Channel = (Sender, Receiver);

/// Opens channels there and back with longer and longer intervals of their contracts, until both are granted; the interval, which `name` is told of among `notes` if it is not the least that there is.
pub(crate) fn with_shortest_interval(
    name: &str,
    notes: &mut Vec<String>,
    there: impl Fn(Duration) -> Result<Channel, Error>,
    back: impl Fn(Duration) -> Result<Channel, Error>,
) -> Result<([Channel; 2], Duration), Error> {
    let both = |interval| {
        let there = there(interval)?;
        match back(interval) {
            Ok(back) => Ok([there, back]),
            Err(refused) => {
                // What it was granted is free again then.
                there.0.close()?;
                Err(refused)
            }
        }
    };
    let mut interval = MIN_INTERVAL;
    let mut opened = both(interval);
    while interval < LONGEST_INTERVAL && matches!(opened, Err(Error::Laxity(laxity::Error::Refused { .. }))) {
        interval += INTERVAL_STEP;
        opened = both(interval);
    }
    let opened = opened?;
    if interval > MIN_INTERVAL {
        notes.push(format!("{name}: the shortest interval that is granted is {interval}"));
    }
    Ok((opened, interval))
}

/// The ends of two channels, by which one asks and the other one answers.
pub(crate) fn ends((to_b, at_b): Channel, (to_a, at_a): Channel) -> (StackEnd, StackEnd) {
    let end = |sender, receiver| StackEnd::Laxity { sender: Box::new(sender), receiver: Box::new(receiver) };
    (end(to_b, at_a), end(to_a, at_b))
}

/// The figures of the channels between them, if there are any.
pub(crate) fn figures_of(stack: &str, asks: &StackEnd, answers: &StackEnd) -> Vec<Figures> {
    // Requests, then answers: each end has those that it receives.
    let figures = [answers, asks].into_iter().filter_map(|end| match end {
        StackEnd::Plain { .. } => None,
        StackEnd::Laxity { receiver, .. } => Some(receiver.figures()),
    });
    figures.map(|figures| Figures { name: format!("{stack} {}", figures.name), ..figures }).collect()
}

impl super::Plan {
    pub(super) fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(REQUEST_BYTES[0])
    }

    /// A channel whose contract is exactly these messages at this interval.
    pub(super) fn contract(&self, interval: Duration) -> Result<ChannelSpec, Error> {
        let least = self.sizes.iter().copied().min().unwrap_or(REQUEST_BYTES[0]);
        real_time(self.largest() as u64, least as u64, interval, 1, DEADLINE)
    }

    /// A best-effort channel for these messages.
    pub(super) fn best_effort(&self) -> Result<ChannelSpec, Error> {
        Ok(ChannelSpec::best_effort(self.largest() as u64, QUEUE)?)
    }
}
