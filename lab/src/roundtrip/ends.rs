//! The two ends of each stack: who asks, and who answers.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity::serving::{ServeConfig, Serving};
use laxity::{ChannelSpec, Host, HostConfig, LinkChoice, Message, Placement, Receiver, Sender, XdpOptions};
use laxity_core::contract::Contract;
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, Interest, now};

use super::{LOST_AFTER, Manner, Requests, SEGMENTS};
use crate::error::Error;
use crate::hosts::{Devices, Hosts, Place};

/// How long an expert that has a processor to itself, or a host that spins, looks before it blocks.
const SPIN: Duration = Duration::from_micros(150);
/// How long who answers does not look whether the turn is over.
const LOOK: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(100);
const ACCEPT: StdDuration = StdDuration::from_secs(5);

/// Who asks.
pub(super) enum Asks {
    Plain { socket: UdpSocket, spin: Duration },
    Laxity { sender: Box<Sender>, receiver: Box<Receiver> },
}

/// Who answers.
pub(super) enum Answers {
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
    /// Threads of the kernel that receive for it alone.
    pub(super) receivers: Vec<i32>,
    place: Place,
    /// Those that applications are attached to come last.
    _hosts: Vec<Host>,
    _serving: Vec<Serving>,
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

fn is_nothing(error: &io::Error) -> bool {
    // Who answers may not be there yet, or no more.
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

impl Asks {
    /// Sends a request and waits for its answer, at most until `limit`; `None` if it did not come, else where its time went, if that is known.
    pub(super) fn ask(&mut self, request: &[u8], limit: Instant) -> Result<Option<Option<Segments>>, Error> {
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

type Segments = [u64; SEGMENTS.len()];

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

impl Answers {
    /// Sends back what comes, until `over`.
    pub(super) fn serve(&mut self, over: &AtomicBool) -> Result<(), Error> {
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
    pub(super) fn open(
        lab: &Hosts,
        number: u8,
        stack: &'static str,
        requests: Requests,
        (processors, priority): ([Option<usize>; 2], Option<u8>),
        notes: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let devices = match stack {
            "expert-1" => Devices::Queued,
            _ if stack.starts_with("laxity-xdp") => Devices::Whole,
            _ => Devices::Default,
        };
        let places = lab.join(number, devices).map_err(Error::system("a pair of virtual Ethernet interfaces"))?;
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
        let mut receivers = Vec::new();
        if stack == "expert-1" {
            let given = processors[1].zip(priority).ok_or_else(|| io::ErrorKind::PermissionDenied.into());
            for host in [0, 1] {
                let thread = given.as_ref().map_err(|error: &io::Error| error.kind().into());
                match thread.and_then(|&(processor, priority)| lab.receive_by_thread(host, number, processor, priority))
                {
                    Ok(thread) => receivers.push(thread),
                    Err(error) => notes.push(format!("expert-1: the kernel receives in soft interrupts: {error}")),
                }
            }
        }
        let place = places[1];
        if !stack.starts_with("laxity") {
            let open = |host: usize| -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind(places[host].address)?;
                socket.connect(places[1 - host].address)?;
                let limit = if host == 0 { LOST_AFTER } else { LOOK };
                socket.set_read_timeout(Some(StdDuration::from_nanos(limit.as_nanos())))?;
                socket.set_nonblocking(host == 0 && !spin.is_zero())?;
                Ok(socket)
            };
            let socket = |host| lab.on(host, || open(host)).map_err(Error::system("a UDP socket"));
            let (asks, answers) = (
                Asks::Plain { socket: socket(0)?, spin },
                Answers::Plain { socket: socket(1)?, bytes: requests.bytes },
            );
            return Ok(Self {
                stack,
                asks,
                answers,
                manners,
                receivers,
                place,
                _hosts: Vec::new(),
                _serving: Vec::new(),
            });
        }
        let link = if stack.contains("xdp") { LinkChoice::Xdp(XdpOptions::default()) } else { LinkChoice::Udp };
        let placement = if stack.contains("inline") { Placement::Inline } else { Placement::Thread };
        let [a, b] = [0, 1].map(|host| {
            // Only who asks, as with the expert.
            let spin = if host == 0 && stack.ends_with("spin") { SPIN } else { Duration::ZERO };
            let (bind, link) = (places[host].address, link.clone());
            let config = HostConfig { bind, link, placement, spin, ..assumed() };
            start(lab, host, config, manners[host])
        });
        let (mut hosts, mut serving) = (vec![a?, b?], Vec::new());
        if stack.ends_with("server") {
            serve(stack, &mut hosts, &mut serving)?;
        }
        let (a, b) = (&hosts[0], &hosts[1]);
        for (host, of) in [a, b].into_iter().zip(["asking", "answering"]) {
            notes.extend(host.standing().notes.iter().map(|note| format!("{stack}, {of} host: {note}")));
        }
        let (to_b, at_b) = connect(a, b, "requests", requests)?;
        let (to_a, at_a) = connect(b, a, "answers", requests)?;
        Ok(Self {
            stack,
            asks: Asks::Laxity { sender: Box::new(to_b), receiver: Box::new(at_a) },
            answers: Answers::Laxity { sender: Box::new(to_a), receiver: Box::new(at_b) },
            manners,
            receivers,
            place,
            _hosts: hosts,
            _serving: serving,
        })
    }

    /// Where the flood goes: a closed port of the answering host.
    pub(super) fn flooded(&self) -> SocketAddr {
        SocketAddr::new(self.place.address.ip(), self.place.address.port() + 1)
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
fn assumed() -> HostConfig {
    HostConfig { claims: None, ..HostConfig::with_costs(Platform::assumed_host()) }
}

/// A host whose threads stay on the processor of its application.
fn start(lab: &Hosts, host: usize, config: HostConfig, manner: Manner) -> Result<Host, Error> {
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

/// Has both executives serve, and an application attached to each: their hosts come first then. They are in this process, too, which has mapped the memory a
/// second time.
fn serve(stack: &str, hosts: &mut Vec<Host>, serving: &mut Vec<Serving>) -> Result<(), Error> {
    let mut attached = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let socket = std::env::temp_dir().join(format!("laxity-{stack}-{}-{number}", std::process::id()));
        serving.push(host.serve(ServeConfig { socket: socket.clone(), ..ServeConfig::default() })?);
        let server = Some(socket);
        attached.push(Host::start(HostConfig { placement: Placement::Server, server, ..HostConfig::default() })?);
    }
    attached.append(hosts);
    *hosts = attached;
    Ok(())
}

/// A channel for exactly these messages.
fn connect(from: &Host, to: &Host, name: &str, requests: Requests) -> Result<(Sender, Receiver), Error> {
    let bytes = requests.bytes as u64;
    let contract = Contract::new(bytes, bytes, requests.interval, 1, DEADLINE).map_err(laxity::Error::from)?;
    let listener = to.listen(name)?;
    let sender = from.open(to.address(), name, ChannelSpec::real_time(contract))?;
    Ok((sender, listener.accept(Some(ACCEPT))?))
}
