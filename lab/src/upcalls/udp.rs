//! Experiment 3 of the paper: a client and a server over UDP on one machine, as plain processes and as upcalls [rtu §7.3].
//!
//! The client wants to send a batch of packets every 20 ms. As a plain process it sends them in a loop and sleeps until the next period;
//! as an upcall it sends them in a run. The server looks at every byte. As a plain process it waits in `recv()`; as an upcall it takes what
//! is there, up to its batch, every 10 ms. In the paper the plain client does not sleep. On a present-day machine it would overrun any
//! server, so here all clients want the same, and what differs is who keeps it up.
//!
//! The number of packets of a batch is measured before: so many that either end needs [`DEMAND`] of a processor.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration as StdDuration;

use laxity::upcall::{Progress, Upcall, UpcallMisses, UpcallRun, UpcallSpec, Upcalls};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, buffers, now};
use strum::{IntoStaticStr, VariantArray};

use super::{LEAD, background, broken_promise, ordinary, processor, sleep_until, start};
use crate::attack::HOGS;
use crate::conditions::stay_on;
use crate::error::Error;
use crate::figures::per_second;
use crate::timing::{apart, joined};
use crate::turns::Turns;

/// Bytes of a packet.
pub const SIZES: [usize; 5] = [512, 1024, 2048, 4096, 8192];
/// Between batches of the client.
pub const CLIENT_PERIOD: Duration = Duration::from_millis(20);
/// Between runs of the server's upcall.
pub const SERVER_PERIOD: Duration = Duration::from_millis(10);
/// The part of the processor that either end needs, in per cent.
pub const DEMAND: u64 = 20;
/// Processor-bound processes beside it: more than in other benches, because it is two threads that share the processor with them.
pub const BACKGROUND: usize = 2 * HOGS;

/// Packets of an iteration: between them an upcall yields.
const BLOCK: u32 = 16;
/// The time that upcalls declare, in per cent of the measured time.
const MARGIN_PERCENT: u64 = 150;
/// Packets of the server's batch, in eighths of the client's: 1.25 of them in the client's period.
const SERVER_EIGHTHS: u32 = 5;
/// Socket buffers have room for so many batches, as the kernel counts them.
const BATCHES: usize = 2;
/// The time that a plain server waits for a packet before it looks whether there will be more, and the time that upcalls have for the rest.
const LOOK: StdDuration = StdDuration::from_millis(200);

/// The threads that do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray, serde::Serialize)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Client and server are plain threads of normal priority.
    Process,
    /// The server is an upcall.
    UpcallServer,
    /// Both are upcalls.
    UpcallBoth,
}

/// One size of packets, in one way.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Row {
    /// Of a packet.
    pub packet_bytes: usize,
    /// The scheme.
    pub scheme: Scheme,
    /// True if processor-bound processes ran beside it.
    pub background: bool,
    /// The rate that the client wants to send, bytes a second.
    pub offered_bytes_s: u64,
    /// The rate that the server got in the span, bytes a second.
    pub received_bytes_s: u64,
    /// Packets that the client sent.
    pub sent: u64,
    /// Of these, packets that never came: there was no room at the server's socket.
    pub lost: u64,
    /// Runs of upcalls that missed their deadlines, by cause; `None` without upcalls.
    pub misses: Option<UpcallMisses>,
}

impl Row {
    /// The promise that was not kept.
    pub fn broken_promise(&self) -> Option<String> {
        let scheme: &str = self.scheme.into();
        broken_promise(format_args!("{} bytes, {scheme}", self.packet_bytes), self.misses)
    }
}

/// The result, by sizes.
pub type Report = super::Report<Row>;

/// Runs all schemes, each for `span` with each size. `progress` is told how many of how many rows are done.
///
/// # Errors
/// Upcalls are refused; sockets or processes cannot be made.
pub fn run(span: Duration, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    let processor = processor();
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    notes.push(format!(
        "LIVE over loopback: client and server are threads of one process, on one processor with the background, which is {BACKGROUND} \
         processor-bound processes of normal priority"
    ));
    notes.push(format!(
        "a batch every {CLIENT_PERIOD} has so many packets that either end needs {DEMAND} % of the processor, as measured before; all \
         schemes have the same socket buffers, room for {BATCHES} batches"
    ));
    let mut turns = Turns::new((SIZES.len() * 2 * Scheme::VARIANTS.len()) as u64, progress);
    for (number, packet_bytes) in SIZES.into_iter().enumerate() {
        let plan = Plan::measured(packet_bytes, processor)?;
        for has_background in [false, true] {
            let whole = (span + Duration::from_secs(2)) * Scheme::VARIANTS.len() as u64;
            let _hogs = has_background.then(|| background(BACKGROUND, processor, whole)).transpose()?;
            let found = turns.round(number, Scheme::VARIANTS.len(), |at| {
                plan.run(Scheme::VARIANTS[at], has_background, processor, span)
            })?;
            for (row, note) in found {
                rows.push(row);
                notes.extend(note.filter(|note| !notes.contains(note)));
            }
        }
    }
    Ok(Report { rows, notes })
}

/// A connected client and the server's socket, with room for so many packets at the server.
fn sockets(packet_bytes: usize, packets: usize) -> Result<[UdpSocket; 2], Error> {
    let bound = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::system("a UDP socket"));
    let (client, server) = (bound()?, bound()?);
    let connect = || {
        client.connect(server.local_addr()?)?;
        // A packet takes up to twice its bytes, rounded up by the allocator, and its descriptor. The kernel doubles what is asked for.
        buffers(server.as_fd(), Some(packets * (packet_bytes + 1024)), None)?;
        server.set_read_timeout(Some(LOOK))
    };
    connect().map_err(Error::system("preparing UDP sockets"))?;
    Ok([client, server])
}

/// The parameters of a run, for packets of one size.
struct Plan {
    packet_bytes: usize,
    /// Packets of a batch of the client.
    batch: u32,
    /// The processor time that a packet takes: to send it, and to receive it.
    costs: [Duration; 2],
}

impl Plan {
    /// Measures what packets take.
    fn measured(packet_bytes: usize, processor: Option<usize>) -> Result<Self, Error> {
        let costs = apart(|| {
            stay_on(processor);
            measure(packet_bytes)
        })?;
        let each = costs[0].max(costs[1]).max(Duration::from_nanos(1));
        let batch = CLIENT_PERIOD.mul_ratio(DEMAND, 100).div_floor(each).clamp(u64::from(BLOCK), 60_000);
        Ok(Self { packet_bytes, batch: batch as u32, costs })
    }

    fn run(
        &self,
        scheme: Scheme,
        has_background: bool,
        processor: Option<usize>,
        span: Duration,
    ) -> Result<(Row, Option<String>), Error> {
        let [client, server] = sockets(self.packet_bytes, BATCHES * self.batch as usize)?;
        let counts = Arc::new(Counts::default());
        let of_threads = &*counts;
        let upcalls = (scheme != Scheme::Process).then(|| start(processor)).transpose()?;
        let first = now() + LEAD;
        let end = first + span;
        let (received, figures) = thread::scope(|scope| -> Result<_, Error> {
            let mut running: Vec<Upcall> = Vec::new();
            let server_thread = match &upcalls {
                Some(upcalls) => {
                    running.push(self.server(upcalls, server, &counts)?);
                    None
                }
                // A plain one.
                None => Some(scope.spawn(move || {
                    stay_on(processor);
                    let mut packet = vec![0; 1 << 16];
                    while of_threads.receive(&server, &mut packet) || !of_threads.over.load(Relaxed) {}
                })),
            };
            let client_thread = match &upcalls {
                Some(upcalls) if scheme == Scheme::UpcallBoth => {
                    running.push(self.client(upcalls, client, &counts)?);
                    None
                }
                _ => Some(scope.spawn(move || {
                    stay_on(processor);
                    self.send(&client, of_threads, [first, end])
                })),
            };
            for upcall in &running {
                upcall.run_from(first)?;
            }
            sleep_until(end);
            let received = counts.received.load(Relaxed);
            if let Some(client) = running.get(1) {
                client.suspend()?;
            }
            client_thread.into_iter().for_each(joined);
            counts.over.store(true, Relaxed);
            if let Some(thread) = server_thread {
                joined(thread)
            } else {
                thread::sleep(LOOK)
            }
            let figures = running.iter().map(Upcall::figures).collect::<Result<Vec<_>, _>>()?;
            Ok((received, figures))
        })?;
        let sent = counts.sent.load(Relaxed);
        let bytes = |packets: u64| packets * self.packet_bytes as u64;
        let misses = upcalls.as_ref().map(|_| {
            figures.iter().map(|figures| figures.misses).fold(UpcallMisses::default(), |sum, more| UpcallMisses {
                upcall: sum.upcall + more.upcall,
                platform: sum.platform + more.platform,
                laxity: sum.laxity + more.laxity,
            })
        });
        let row = Row {
            packet_bytes: self.packet_bytes,
            scheme,
            background: has_background,
            offered_bytes_s: per_second(bytes(self.batch.into()), CLIENT_PERIOD),
            received_bytes_s: per_second(bytes(received), span),
            sent,
            lost: sent.saturating_sub(counts.received.load(Relaxed)),
            misses,
        };
        Ok((row, upcalls.as_ref().and_then(ordinary)))
    }

    /// The declaration of an upcall of so many packets.
    fn spec(period: Duration, packets: u32, each: Duration) -> UpcallSpec {
        let cost = (each * u64::from(packets)).mul_ratio(MARGIN_PERCENT, 100);
        UpcallSpec::every(period).taking(cost).batch(packets).block(BLOCK.min(packets))
    }

    fn client(&self, upcalls: &Upcalls, socket: UdpSocket, counts: &Arc<Counts>) -> Result<Upcall, Error> {
        let (packet, counts) = (vec![0x5a; self.packet_bytes], Arc::clone(counts));
        let spec = Self::spec(CLIENT_PERIOD, self.batch, self.costs[0]);
        Ok(upcalls.create("client", spec, move |run| run.each(|_| counts.send(&socket, &packet)))?)
    }

    fn server(&self, upcalls: &Upcalls, socket: UdpSocket, counts: &Arc<Counts>) -> Result<Upcall, Error> {
        let (mut packet, counts) = (vec![0; self.packet_bytes], Arc::clone(counts));
        socket.set_nonblocking(true).map_err(Error::system("preparing UDP sockets"))?;
        let batch = (self.batch * SERVER_EIGHTHS).div_ceil(8);
        let spec = Self::spec(SERVER_PERIOD, batch, self.costs[1]);
        let handler = move |run: &mut UpcallRun<'_>| loop {
            for _ in 0..run.block() {
                // Nothing more is there.
                if !counts.receive(&socket, &mut packet) {
                    return Progress::Done;
                }
                run.done(1);
            }
            if run.left() == 0 {
                return Progress::Done;
            }
            if run.should_yield() {
                return Progress::Yield;
            }
        };
        Ok(upcalls.create("server", spec, handler)?)
    }

    /// A plain client.
    fn send(&self, socket: &UdpSocket, counts: &Counts, [first, end]: [Instant; 2]) {
        let _ = sys::precise_timers();
        let packet = vec![0x5a; self.packet_bytes];
        let mut next = first;
        while next < end {
            sleep_until(next);
            for _ in 0..self.batch {
                counts.send(socket, &packet);
            }
            // If it was held up, it does not send faster for it: the server's room is for the rate that was agreed.
            next = (next + CLIENT_PERIOD).max(now());
        }
    }
}

/// The counters of both ends.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    /// The client sends no more.
    over: AtomicBool,
}

impl Counts {
    fn send(&self, socket: &UdpSocket, packet: &[u8]) {
        self.sent.fetch_add(u64::from(socket.send(packet).is_ok()), Relaxed);
    }

    /// True if there was a packet.
    fn receive(&self, socket: &UdpSocket, packet: &mut [u8]) -> bool {
        let Ok(bytes) = socket.recv(packet) else { return false };
        // The server looks at every byte, as a protocol in user space does.
        std::hint::black_box(packet[..bytes].iter().fold(1, |sum: u32, &byte| sum.rotate_left(5) ^ u32::from(byte)));
        self.received.fetch_add(1, Relaxed);
        true
    }
}

/// The processor time of sending and of receiving a packet: the middle of many, after some that warm up.
fn measure(packet_bytes: usize) -> Result<[Duration; 2], Error> {
    const PACKETS: u64 = 64;
    const ROUNDS: usize = 41;
    let [client, server] = sockets(packet_bytes, PACKETS as usize)?;
    let (counts, mut packet) = (Counts::default(), vec![0; packet_bytes]);
    let mut seen: [Vec<Duration>; 2] = Default::default();
    for _ in 0..ROUNDS {
        let before = sys::thread_processor_time();
        (0..PACKETS).for_each(|_| counts.send(&client, &packet));
        let between = sys::thread_processor_time();
        for _ in 0..PACKETS {
            if !counts.receive(&server, &mut packet) {
                let source = io::Error::from(io::ErrorKind::TimedOut);
                return Err(Error::System { what: "receiving over loopback", source });
            }
        }
        let after = sys::thread_processor_time();
        seen[0].push(between.saturating_sub(before));
        seen[1].push(after.saturating_sub(between));
    }
    Ok(seen.map(|mut rounds| {
        rounds.sort_unstable();
        rounds[ROUNDS / 2].mul_ratio(1, PACKETS)
    }))
}
