//! The emulated link in real time: a relay for any UDP traffic on loopback, so that every stack crosses the same bottleneck.
//!
//! ```text
//! clients ──► ingress 0 ─┐   queue(s)        ┌─► egress 0 ──► target 0
//! clients ──► ingress 1 ─┼─► ░░░░░░ ─► rate ─┼─► egress 1 ──► target 1
//! flood   ──► foreign   ─┘                   └─► (sink)
//! clients ◄── ingress n ◄──────────────────────── egress n ◄── replies, at once
//! ```
//!
//! Each route maps addresses as a NAT does: the target sees the egress socket, and what it sends there goes to the client that
//! sent last on this route. Towards the targets all routes share one transmitter: a packet of `n` UDP payload bytes occupies
//! it for `model.occupancy(n)`, then it is handed over whole. The other direction passes at once, as the reverse traffic here
//! is a few control frames.
//!
//! One thread, SCHED_FIFO where permitted and above the stacks. It sleeps until the transmission that goes on ends and looks at
//! the ingress sockets then: while the transmitter is busy no packet is delayed by that. A packet found then counts as
//! arrived when that transmission ended, so the wire's own late wake-ups do not make it slower; it is never faster than its
//! rate. Nothing is allocated after the start.
//!
//! **What is the wire's fault is told**: how late it released packets, and what the kernel dropped in front of it
//! ([`WireFigures`]). Leaves out: propagation, loss, reordering (`laxity_link::emulated` has them), and marks: the egress does
//! not carry the code point on.

mod bottleneck;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use laxity_core::frames::{Frames, HeapFrames};
use laxity_core::platform::LinkModel;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, PollFd, PollFlags, Wake, now, readable};
use laxity_link::udp::{Udp, UdpConfig};
use laxity_link::{Link, LinkError, LinkOver};

use serde::Serialize;

use crate::error::Error;
use crate::timing;
use bottleneck::{Bottleneck, Packet};

/// Most routes, the foreign one included.
pub const MAX_ROUTES: usize = 7;
/// A release that is later than this is counted as a gap of the wire.
pub const GAP: Duration = Duration::from_millis(1);
/// Above every stack's threads.
const PRIORITY: u8 = 80;
/// Datagrams per system call.
const BATCH: usize = 32;
/// Of each ingress socket: what a flood may pile up while the wire sleeps, or stalls for some 20 ms.
const INGRESS_BUFFER_BYTES: usize = 16 << 20;

/// Which packet goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, Serialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Discipline {
    /// First come, first served, in one queue.
    #[default]
    Fifo,
    /// Strict priority without preemption: code points EF, VOICE-ADMIT and CS4 to CS7 before all others; a queue each.
    TwoClassesByDscp,
}

/// True if a packet with this code point is of the high class.
pub fn is_high(dscp: u8) -> bool {
    const EF: u8 = 46;
    const VOICE_ADMIT: u8 = 44;
    const CS4: u8 = 32;
    matches!(dscp, EF | VOICE_ADMIT) || (dscp >= CS4 && dscp.is_multiple_of(8))
}

/// The parameters of a wire.
pub struct WireConfig {
    /// The time for which a packet occupies it, by its UDP payload.
    pub model: LinkModel,
    /// Which packet goes next.
    pub discipline: Discipline,
    /// Packets that may wait in a queue: 1 to 100,000.
    pub queue_packets: usize,
    /// The longest UDP payload, 1 to 65,507; longer ones are dropped and counted.
    pub packet_bytes: usize,
    /// The destinations of the routes, in their order. Loopback addresses only.
    pub targets: Vec<SocketAddr>,
    /// True to ask for SCHED_FIFO.
    pub realtime: bool,
}

impl WireConfig {
    /// A FIFO queue of 1000 packets, which is Linux's `txqueuelen` for Ethernet; packets of at most 2048 bytes;
    /// real-time.
    pub fn new(model: LinkModel, targets: Vec<SocketAddr>) -> Self {
        Self { model, discipline: Discipline::Fifo, queue_packets: 1000, packet_bytes: 2048, targets, realtime: true }
    }

    fn validate(&self) -> Result<(), Error> {
        let up_to = |what, found: usize, most: usize, expected| {
            (1..=most).contains(&found).then_some(()).ok_or_else(|| Error::setup(what, found, expected))
        };
        up_to("queue_packets", self.queue_packets, 100_000, "1 to 100000")?;
        up_to("packet_bytes", self.packet_bytes, 65_507, "1 to 65507")?;
        up_to("the number of routes", self.targets.len() + 1, MAX_ROUTES, "1 to 7, the foreign one included")?;
        let far = self.targets.iter().find(|target| !target.ip().is_loopback());
        let told = |target| format!("{target} is not a loopback address: the wire stays on this host");
        far.map_or(Ok(()), |target| Err(Error::usage(told(target))))
    }
}

/// The outcomes of the packets of one class, or of one route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassFigures {
    /// Packets that crossed the bottleneck.
    pub forwarded: u64,
    /// UDP payload bytes in them.
    pub bytes: u64,
    /// Packets that found their queue full.
    pub dropped: u64,
}

/// The figures of a wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WireFigures {
    /// Which packet went next.
    pub discipline: Discipline,
    /// Packets of the high class, by their code points; under FIFO they are counted, but go no sooner.
    pub high: ClassFigures,
    /// All other packets.
    pub low: ClassFigures,
    /// Those of both classes that came through the foreign ingress.
    pub foreign: ClassFigures,
    /// Packets that went the other way.
    pub reverse: u64,
    /// Packets that were longer than the wire takes.
    pub too_long: u64,
    /// Packets that the kernel dropped before the wire saw them (as far as it said so): the wire was too slow. Not the
    /// stack's fault.
    pub overflow: u64,
    /// Packets that it could not hand over behind the bottleneck, and replies that had no client.
    pub undeliverable: u64,
    /// Packets that it released more than [`GAP`] too late. Not the stack's fault.
    pub late_releases: u64,
    /// The latest release.
    #[serde(rename = "largest_lateness_ns")]
    pub largest_lateness: Duration,
    /// The time for which the transmitter was busy.
    #[serde(rename = "busy_ns")]
    pub busy: Duration,
    /// True if its thread was real-time.
    pub realtime: bool,
}

/// A running wire. Dropping it stops it.
#[derive(Debug)]
pub struct Wire {
    /// The addresses to which clients of each route send, in the order of the targets; and the [`foreign`](Self::foreign) one.
    pub ingress: Vec<SocketAddr>,
    /// Rings once it is to stop.
    stop: Arc<Wake>,
    thread: Option<JoinHandle<WireFigures>>,
}

impl Wire {
    /// Binds the sockets and starts the thread.
    ///
    /// # Errors
    /// A value out of range, a target that is not on loopback, or what the system refuses.
    pub fn start(config: &WireConfig) -> Result<Self, Error> {
        config.validate()?;
        let loopback = |ipv6| if ipv6 { (Ipv6Addr::LOCALHOST, 0).into() } else { (Ipv4Addr::LOCALHOST, 0).into() };
        let bind = |ipv6, buffer| {
            Udp::bind(&UdpConfig {
                batch: BATCH,
                receive_buffer_bytes: buffer,
                receive_tos: true,
                ..UdpConfig::new(loopback(ipv6))
            })
        };
        // Never read: what does not fit into its buffer is dropped by the kernel.
        let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::system("binding the wire's sink"))?;
        let sink_address = sink.local_addr().map_err(Error::system("the sink's address"))?;
        let targets = config.targets.iter().copied().chain([sink_address]);
        let routes = targets
            .map(|target| {
                let ipv6 = target.is_ipv6();
                let ingress = bind(ipv6, INGRESS_BUFFER_BYTES)?;
                Ok(Route { ingress, egress: bind(ipv6, UdpConfig::DEFAULT_BUFFER_BYTES)?, target, client: None })
            })
            .collect::<Result<Vec<Route>, LinkError>>()?;
        let ingress: Vec<SocketAddr> = routes.iter().map(|route| route.ingress.local_address()).collect();
        let stop = Arc::new(Wake::new().map_err(Error::system("creating the wire's wake-up event"))?);
        // Both queues full, and beside them a batch on its way in and one on its way out at every socket.
        let frames = 2 * config.queue_packets + 4 * BATCH * routes.len() + 1;
        let running = WireThread {
            bottleneck: Bottleneck::new(config.model, config.discipline, config.queue_packets),
            frames: HeapFrames::new(frames, config.packet_bytes),
            routes,
            _sink: sink,
            looked: Instant::ZERO,
            figures: WireFigures { discipline: config.discipline, ..WireFigures::default() },
            stop: Arc::clone(&stop),
        };
        let priority = config.realtime.then_some(PRIORITY);
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || running.run(priority))
            .map_err(Error::system("starting the wire's thread"))?;
        Ok(Self { ingress, stop, thread: Some(thread) })
    }

    /// The address to which unknown peers send that share the bottleneck: the last route, whose packets end in a sink behind it.
    pub fn foreign(&self) -> SocketAddr {
        self.ingress[self.ingress.len() - 1]
    }

    /// Stops it and returns its figures. Packets that are still in its queues are lost and not counted.
    ///
    /// # Errors
    /// Its thread panicked, a bug.
    pub fn stop(mut self) -> Result<WireFigures, Error> {
        self.stop.wake();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(figures)) => Ok(figures),
            _ => Err(Error::panicked("the wire")),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Route {
    ingress: Udp,
    egress: Udp,
    target: SocketAddr,
    /// The client that sent last.
    client: Option<SocketAddr>,
}

/// The things that the thread owns.
struct WireThread {
    bottleneck: Bottleneck,
    frames: HeapFrames,
    routes: Vec<Route>,
    _sink: UdpSocket,
    /// The time at which it last looked at the ingress sockets.
    looked: Instant,
    figures: WireFigures,
    stop: Arc<Wake>,
}

impl WireThread {
    fn run(mut self, priority: Option<u8>) -> WireFigures {
        self.figures.realtime = timing::prepare(priority);
        while self.sleep() {
            self.take();
            self.reply();
            self.release();
        }
        let Self { bottleneck, frames, figures, routes, .. } = &mut self;
        bottleneck.clear(|packet| frames.free(packet.frame));
        figures.busy = bottleneck.busy;
        for route in routes.iter() {
            let (ingress, egress) = (route.ingress.counters(), route.egress.counters());
            figures.too_long += ingress.receive_truncated + egress.receive_truncated;
            figures.overflow += ingress.receive_overflow + egress.receive_overflow;
            figures.undeliverable += ingress.send_dropped + egress.send_dropped;
        }
        self.figures
    }

    /// Looks at the ingress sockets: at most a batch each, the rest at the next look.
    fn take(&mut self) {
        let now = now();
        let Self { bottleneck, frames, routes, figures, .. } = self;
        let foreign = routes.len() - 1;
        // It did not look while the transmitter was busy: then a packet came by the end of that transmission, as far as the
        // wire is concerned, and not when the wire woke up.
        let arrival = bottleneck.ends_at().map_or(now, |end| end.max(self.looked).min(now));
        self.looked = now;
        for (number, route) in routes.iter_mut().enumerate() {
            let client = &mut route.client;
            // An error leaves the packets where they are; the next look tries again.
            let _ = route.ingress.receive(BATCH, frames, |received, frames| {
                *client = Some(received.peer);
                let high = is_high(received.tos >> 2);
                let packet = Packet { frame: received.frame, len: received.len, route: number, high, arrival };
                if let Err(packet) = bottleneck.offer(packet) {
                    frames.free(packet.frame);
                    let class = if high { &mut figures.high } else { &mut figures.low };
                    class.dropped += 1;
                    figures.foreign.dropped += u64::from(number == foreign);
                }
            });
            while route.ingress.poll_event().is_some() {}
        }
    }

    /// Passes replies on.
    fn reply(&mut self) {
        let Self { frames, routes, figures, .. } = self;
        for Route { ingress, egress, client, .. } in routes.iter_mut() {
            let _ = egress.receive(BATCH, frames, |received, frames| match *client {
                Some(client) if ingress.room() > 0 => {
                    figures.reverse += 1;
                    ingress.transmit(received.frame, received.len, client);
                }
                _ => {
                    figures.undeliverable += 1;
                    frames.free(received.frame);
                }
            });
            let _ = ingress.flush(frames);
            while egress.poll_event().is_some() {}
        }
    }

    /// Hands over what has crossed the bottleneck.
    fn release(&mut self) {
        let now = now();
        let Self { bottleneck, frames, routes, figures, .. } = self;
        let foreign = routes.len() - 1;
        let mut busy = false;
        while let Some((packet, end)) = bottleneck.pop(now) {
            let late = now.since(end);
            figures.largest_lateness = figures.largest_lateness.max(late);
            figures.late_releases += u64::from(late > GAP);
            let Route { egress, target, .. } = &mut routes[packet.route];
            if egress.room() == 0 {
                let _ = egress.flush(frames);
            }
            if egress.room() == 0 {
                figures.undeliverable += 1;
                frames.free(packet.frame);
                continue;
            }
            let class = if packet.high { &mut figures.high } else { &mut figures.low };
            class.forwarded += 1;
            class.bytes += packet.len as u64;
            if packet.route == foreign {
                figures.foreign.forwarded += 1;
                figures.foreign.bytes += packet.len as u64;
            }
            egress.transmit(packet.frame, packet.len, *target);
            busy = true;
        }
        if busy {
            routes.iter_mut().for_each(|route| drop(route.egress.flush(frames)));
        }
    }

    /// Sleeps until the transmission ends; or, if there is none, until a packet comes. False if it is to stop.
    fn sleep(&self) -> bool {
        // Each route has two sockets to wait for, and there is the stop.
        let mut fds: [_; 1 + 2 * MAX_ROUTES] = std::array::from_fn(|_| readable(self.stop.as_fd()));
        let mut count = 1;
        let mut add = |fd| {
            fds[count] = fd;
            count += 1;
        };
        let end = self.bottleneck.ends_at();
        for route in &self.routes {
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, route.egress.wants_writable());
            add(PollFd::new(&route.egress, events));
            if end.is_none() {
                add(readable(route.ingress.as_fd()));
            }
        }
        let span = end.map(|end| end.since(now()));
        sys::wait(&mut fds[..count], span).is_ok() && fds[0].revents().is_empty()
    }
}
