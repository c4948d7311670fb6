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
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::limits::MIN_INTERVAL;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, Interest, now};

use super::serving::{Served, Told};
use super::{Bench, LOST_AFTER, Manner, Opening, Requests, SEGMENTS};
use crate::error::Error;
use crate::hosts::{Devices, Hosts, Place};
use crate::timing::joined;

/// How long an expert that has a processor to itself, or a host that spins, looks before it blocks.
const SPIN: Duration = Duration::from_micros(150);
/// How long who answers does not look whether the turn is over.
const LOOK: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(100);
const ACCEPT: StdDuration = StdDuration::from_secs(5);
/// Messages that may wait on a best-effort channel, as with `laxity send`.
const QUEUE: u64 = 64;
/// Intervals of contracts are tried in such steps; the first one that is granted is taken.
const INTERVAL_STEP: Duration = Duration::from_micros(50);
const LONGEST_INTERVAL: Duration = Duration::from_millis(10);
/// How often a channel is opened and closed.
const OPENINGS: usize = 50;

/// What goes between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Over Laxity, channels whose contract is exactly the plan's messages at this interval.
    Contract(Duration),
    /// Over Laxity, best-effort channels.
    BestEffort,
}

/// Who asks.
pub(crate) enum Asks {
    Plain { socket: UdpSocket, spin: Duration },
    Laxity { sender: Box<Sender>, receiver: Box<Receiver> },
}

/// Who answers.
pub(crate) enum Answers {
    Plain { socket: UdpSocket, bytes: usize },
    Laxity { sender: Box<Sender>, receiver: Box<Receiver> },
}

/// Both ends of one stack.
pub(super) struct Pair {
    stack: &'static str,
    pub(super) asks: Asks,
    pub(super) answers: Answers,
    /// How who asks, and who answers, runs.
    pub(super) manners: [Manner; 2],
    /// What works for it alone outside this process: threads of the kernel, which receive; executives in processes of their own.
    outside: Vec<i32>,
    places: [Place; 2],
    hosts: Vec<Host>,
    _served: Vec<Served>,
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

/// How much of a message has come in plain datagrams.
#[derive(Default)]
struct Partial {
    number: [u8; 8],
    bytes: usize,
}

impl Partial {
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

pub(crate) fn is_nothing(error: &io::Error) -> bool {
    // Who answers may not be there yet, or no more.
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

impl Asks {
    /// Sends a request and waits for its answer, at most until `limit`; `None` if it did not come, else where its time went, if that is known.
    pub(crate) fn ask(&mut self, request: &[u8], limit: Instant) -> Result<Option<Option<Segments>>, Error> {
        match self {
            Self::Plain { socket, spin } => {
                let came = ask_plainly(socket, *spin, request, limit).map_err(Error::system("a UDP socket"))?;
                Ok(came.then_some(None))
            }
            Self::Laxity { sender, receiver } => {
                sender.send(request)?;
                loop {
                    match receiver.recv_timeout(StdDuration::from_nanos(limit.since(now()).as_nanos())) {
                        Ok(message) if answers(request, &message) => return Ok(Some(segments(&message))),
                        Ok(_) => {}
                        Err(laxity::Error::WouldBlock) => return Ok(None),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }
}

pub(crate) type Segments = [u64; SEGMENTS.len()];

/// Where the time of a message in hand went.
fn segments(message: &Message) -> Option<Segments> {
    let in_hand = now().since(message.completion());
    let found = message.segments()?;
    Some([found.sending, found.transit, found.waiting, found.receiving, in_hand].map(Duration::as_nanos))
}

fn ask_plainly(socket: &UdpSocket, spin: Duration, request: &[u8], limit: Instant) -> io::Result<bool> {
    if let Err(error) = send_plainly(socket, request)
        && !is_nothing(&error)
    {
        return Err(error);
    }
    let (mut datagram, mut partial, blocks_at) = ([0; DATAGRAM], Partial::default(), now() + spin);
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
                    sys::wait(&[(socket.as_fd(), Interest::Readable)], Some(limit.since(time)))?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl Asks {
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
}

impl Answers {
    /// From here on messages have so many bytes.
    pub(super) fn expect(&mut self, expected: usize) {
        if let Self::Plain { bytes, .. } = self {
            *bytes = expected;
        }
    }

    /// One message, if it comes within `LOOK`: its bytes.
    fn take(&mut self) -> Result<Option<usize>, Error> {
        match self {
            Self::Plain { socket, .. } => match socket.recv(&mut [0; DATAGRAM]) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if is_nothing(&error) => Ok(None),
                Err(error) => Err(Error::system("a UDP socket")(error)),
            },
            Self::Laxity { receiver, .. } => match receiver.recv_timeout(StdDuration::from_nanos(LOOK.as_nanos())) {
                Ok(message) => Ok(Some(message.len())),
                Err(laxity::Error::WouldBlock) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// How many messages of `bytes` come until then.
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

    /// Sends back what comes, until `over`.
    pub(crate) fn serve(&mut self, over: &AtomicBool) -> Result<(), Error> {
        let (mut datagram, mut partial) = ([0; DATAGRAM], Partial::default());
        let mut answer = match self {
            Self::Plain { bytes, .. } => vec![0; *bytes],
            Self::Laxity { .. } => Vec::new(),
        };
        while !over.load(Ordering::Relaxed) {
            match self {
                Self::Plain { socket, bytes } => {
                    let served = match socket.recv(&mut datagram) {
                        Ok(len) if partial.take(&datagram[..len], *bytes) => {
                            answer[..8].copy_from_slice(&partial.number);
                            send_plainly(socket, &answer)
                        }
                        Ok(_) => Ok(()),
                        Err(error) => Err(error),
                    };
                    served
                        .or_else(|error| if is_nothing(&error) { Ok(()) } else { Err(error) })
                        .map_err(Error::system("a UDP socket"))?;
                }
                Self::Laxity { sender, receiver } => {
                    match receiver.recv_timeout(StdDuration::from_nanos(LOOK.as_nanos())) {
                        Ok(message) => sender.send(&message)?,
                        Err(laxity::Error::WouldBlock) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }
}

impl Pair {
    /// Opens both ends, on a network of that number.
    pub(super) fn open(
        bench: &mut Bench<'_>,
        number: u8,
        stack: &'static str,
        traffic: Traffic,
    ) -> Result<Self, Error> {
        let Bench { lab, plan, directory, conditions } = bench;
        let (processors, priority, notes) = (conditions.processors, conditions.priority, &mut conditions.notes);
        let processors = if stack.ends_with("-1") { [processors[1]; 2] } else { processors };
        let devices = match stack {
            "expert-1" => Devices::Queued,
            _ if stack.starts_with("laxity-xdp") => Devices::Whole,
            _ => Devices::Default,
        };
        let mut places = lab.join(number, devices).map_err(Error::system("a pair of virtual Ethernet interfaces"))?;
        // Where either end is.
        let is_one = stack.ends_with("one-host");
        let of_end = |end: usize| if is_one { 0 } else { end };
        if is_one {
            places[1].address.set_ip(places[0].address.ip());
            places[1].address.set_port(places[0].address.port() + 1);
        }
        let urgent = |processor| Manner { processor, priority };
        let (manners, spin) = match stack {
            "udp" => ([Manner::default(); 2], Duration::ZERO),
            "expert-1" => ([urgent(processors[1]); 2], Duration::ZERO),
            "expert-2" => (processors.map(urgent), if processors[0].is_some() { SPIN } else { Duration::ZERO }),
            // As urgent as the executive whose work they do.
            _ if stack.contains("inline") => {
                let priority = priority.and(HostConfig::default().fifo_priority);
                (processors.map(|processor| Manner { processor, priority }), Duration::ZERO)
            }
            _ => (processors.map(urgent), Duration::ZERO),
        };
        let mut outside = Vec::new();
        if stack == "expert-1" {
            let given = processors[1].zip(priority).ok_or_else(|| io::ErrorKind::PermissionDenied.into());
            for host in [0, 1] {
                let thread = given.as_ref().map_err(|error: &io::Error| error.kind().into());
                match thread.and_then(|&(processor, priority)| lab.receive_by_thread(host, number, processor, priority))
                {
                    Ok(thread) => outside.push(thread),
                    Err(error) => notes.push(format!("expert-1: the kernel receives in soft interrupts: {error}")),
                }
            }
        }
        if !stack.starts_with("laxity") {
            let open = |host: usize| -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind(places[host].address)?;
                socket.connect(places[1 - host].address)?;
                let limit = if host == 0 { LOST_AFTER } else { LOOK };
                socket.set_read_timeout(Some(StdDuration::from_nanos(limit.as_nanos())))?;
                socket.set_nonblocking(host == 0 && !spin.is_zero())?;
                Ok(socket)
            };
            let socket = |host| lab.on(of_end(host), || open(host)).map_err(Error::system("a UDP socket"));
            let (asks, answers) = (
                Asks::Plain { socket: socket(0)?, spin },
                Answers::Plain { socket: socket(1)?, bytes: plan.largest() },
            );
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
                let socket = directory.join(format!("{number}-{}", of_end(host)));
                if of_end(host) == host {
                    let told = Told { laxity: &plan.laxity, socket: &socket, address, over_xdp };
                    let one = Served::start(lab, host, manner, told)?;
                    outside.push(one.process());
                    served.push(one);
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
                start(lab, host, HostConfig { bind: address, link, placement, spin, streams, ..assumed() }, manner)?
            };
            notes.extend(started.standing().notes.iter().map(|note| format!("{stack}, {of} host: {note}")));
            let urgent = HostConfig::default().fifo_priority.filter(|_| over_xdp && plan.prioritised.thread);
            if let (Some(processor), Some(priority), false) = (processors[host], urgent, started.is_attached()) {
                // The program is attached by now: that makes new threads.
                match lab.receive_by_thread(host, number, processor, priority + 1) {
                    Ok(thread) => outside.push(thread),
                    Err(error) => notes.push(format!("{stack}: the kernel receives in soft interrupts: {error}")),
                }
            }
            hosts.push(started);
        }
        let (a, b) = (&hosts[0], &hosts[1]);
        let spec = plan.channel(traffic)?;
        let (to_b, at_b) = connect(a, b, "requests", spec)?;
        let (to_a, at_a) = connect(b, a, "answers", spec)?;
        Ok(Self {
            stack,
            asks: Asks::Laxity { sender: Box::new(to_b), receiver: Box::new(at_a) },
            answers: Answers::Laxity { sender: Box::new(to_a), receiver: Box::new(at_b) },
            manners,
            outside,
            places,
            hosts,
            _served: served,
        })
    }

    /// Processor time of this process, and of what works for this pair outside it.
    pub(super) fn processor_time(&self) -> Duration {
        let outside = self.outside.iter().filter_map(|&process| sys::processor_time_of_process(process).ok());
        outside.fold(sys::process_processor_time(), |sum, time| sum + time)
    }

    /// Opens one more channel to the answering end and closes it, again and again; of plain UDP, a socket that is bound and connected.
    pub(super) fn openings(&self, bench: &Bench<'_>, traffic: Traffic) -> Result<Opening, Error> {
        let (mut opened, mut closed) = (Vec::with_capacity(OPENINGS), Vec::with_capacity(OPENINGS));
        let mut took = |before: Instant, between: Instant, closing: Instant| {
            opened.push(between.since(before).as_nanos());
            closed.push(now().since(closing).as_nanos());
        };
        let manner = self.manners[0];
        let [own, peer] = self.places.map(|place| place.address);
        match &self.hosts[..] {
            [a, b] => {
                let spec = bench.plan.channel(traffic)?;
                let listener = b.listen("opened")?;
                let took = &mut took;
                std::thread::scope(|scope| {
                    let opening = scope.spawn(move || -> Result<(), Error> {
                        manner.take();
                        for _ in 0..OPENINGS {
                            let before = now();
                            let sender = a.open(b.address(), "opened", spec)?;
                            let between = now();
                            let receiver = listener.accept(Some(ACCEPT))?;
                            let closing = now();
                            sender.close()?;
                            took(before, between, closing);
                            drop(receiver);
                        }
                        Ok(())
                    });
                    joined(opening)
                })?;
            }
            _ => {
                let opening = || {
                    manner.take();
                    for _ in 0..OPENINGS {
                        let before = now();
                        let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0))?;
                        socket.connect(peer)?;
                        let between = now();
                        let closing = now();
                        drop(socket);
                        took(before, between, closing);
                    }
                    Ok(())
                };
                bench.lab.on(0, opening).map_err(Error::system("a UDP socket"))?;
            }
        }
        opened.sort_unstable();
        closed.sort_unstable();
        Ok(Opening { stack: self.stack, opened, closed })
    }

    /// Where the flood goes: a closed port of the answering host.
    pub(super) fn flooded(&self) -> SocketAddr {
        let answering = self.places[1].address;
        SocketAddr::new(answering.ip(), answering.port() + 1)
    }

    /// The figures of its channels, if it has any.
    pub(super) fn close(self) -> Vec<Figures> {
        match (self.asks, self.answers) {
            (Asks::Laxity { receiver: answers, .. }, Answers::Laxity { receiver: requests, .. }) => {
                let named = |receiver: Box<Receiver>| {
                    let figures = receiver.figures();
                    Figures { name: format!("{} {}", self.stack, figures.name), ..figures }
                };
                vec![named(requests), named(answers)]
            }
            _ => Vec::new(),
        }
    }
}

/// Costs that nobody measured, and a link of its own.
pub(crate) fn assumed() -> HostConfig {
    HostConfig { claims: None, ..HostConfig::with_costs(Platform::assumed_host()) }
}

/// A host whose threads stay on the processor of its application.
pub(crate) fn start(lab: &Hosts, host: usize, config: HostConfig, manner: Manner) -> Result<Host, Error> {
    let started = lab.on(host, || {
        if let Some(processor) = manner.processor {
            let _ = sys::pin(processor);
        }
        // The pair of interfaces is as fast as it is handed packets.
        let costs = config.costs.clone().map(|costs| costs.at(config.bind.ip()));
        Ok(Host::start(HostConfig { costs, ..config }))
    });
    Ok(started.map_err(Error::system("entering a network namespace"))??)
}

pub(crate) fn connect(from: &Host, to: &Host, name: &str, spec: ChannelSpec) -> Result<(Sender, Receiver), Error> {
    connect_to(from, to, name, spec, ListenConfig::default())
}

/// As [`connect`], where the receiving end listens like this.
pub(crate) fn connect_to(
    from: &Host,
    to: &Host,
    name: &str,
    spec: ChannelSpec,
    config: ListenConfig,
) -> Result<(Sender, Receiver), Error> {
    let listener = to.listen_with(name, config)?;
    let sender = from.open(to.address(), name, spec)?;
    Ok((sender, listener.accept(Some(ACCEPT))?))
}

/// Calls `open` with longer and longer intervals of contracts; what it opened with the first one that is granted, and that interval.
pub(crate) fn with_shortest_interval<T>(
    mut open: impl FnMut(Duration) -> Result<T, Error>,
) -> Result<(T, Duration), Error> {
    let mut interval = MIN_INTERVAL;
    loop {
        match open(interval) {
            Err(Error::Laxity(laxity::Error::Refused { .. })) if interval < LONGEST_INTERVAL => {
                interval += INTERVAL_STEP;
            }
            opened => return Ok((opened?, interval)),
        }
    }
}

impl super::Plan {
    fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(Requests::BYTES[0])
    }

    /// A channel for exactly these messages.
    fn channel(&self, traffic: Traffic) -> Result<ChannelSpec, Error> {
        let [least, most] = [self.sizes.iter().copied().min().unwrap_or(Requests::BYTES[0]), self.largest()];
        match traffic {
            Traffic::Contract(interval) => {
                let contract = Contract::new(most as u64, least as u64, interval, 1, DEADLINE);
                Ok(ChannelSpec::real_time(contract.map_err(laxity::Error::from)?))
            }
            Traffic::BestEffort => Ok(ChannelSpec::best_effort(most as u64, QUEUE)?),
        }
    }
}
