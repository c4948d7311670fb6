//! Bandwidth that is guaranteed to streams beside one that takes what is left `[rio §3.2.4]`.
//!
//! All are TCP, from the client's host to the server's. The best-effort transfer starts first, then one guaranteed stream after the other. The sender of a
//! guaranteed one sends a block at a time by its schedule, as many in each period as it asked for; the kernel's threads that process its packets, and its
//! applications, are SCHED_FIFO, more urgent the more it asked for.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use laxity_core::units::{Duration, Instant, NANOS_PER_SECOND};
use laxity_link::sys::now;
use laxity_link::xdp::steer::PolicingRate;

use super::steered::{self, SteeredEnds};
use super::tcp::{self, BLOCK_BYTES, ServicePort};
use crate::conditions::{HostConditions, Report, ThreadSetup};
use crate::error::Error;
use crate::hosts::{Devices, Hosts, MTU};
use crate::timing::{joined, set_at_end, sleep_until};

/// In which a stream sends the blocks that it asked for `[rio §3.2.4]`.
pub const PERIOD: Duration = Duration::from_millis(10);
/// The largest deviation of a second of a guaranteed stream from its request, in ppm.
pub const WITHIN_PPM: u64 = 50_000;
/// In the order in which they start. The paper calls 6,400 KiB a second 6.4 MBps.
pub const STREAMS: [Stream; 4] = [
    Stream { name: "best-effort", request: None },
    Stream { name: "guaranteed-6.4", request: Some(Request { blocks: 8, priority: 63 }) },
    Stream { name: "guaranteed-3.2", request: Some(Request { blocks: 4, priority: 62 }) },
    Stream { name: "guaranteed-1.6", request: Some(Request { blocks: 2, priority: 61 }) },
];
/// The server's port of the first stream; the others follow.
const PORT: u16 = 5712;
/// From when all threads are there until the first stream starts.
const AHEAD: Duration = Duration::from_millis(100);
/// Bytes of IPv4's and TCP's headers, with a timestamp.
const HEADERS: usize = 52;
/// The interval at which the progress is told.
const LOOK: Duration = Duration::from_millis(100);

/// One of the streams.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// As tables and JSON have it.
    pub name: &'static str,
    /// The bandwidth that it asked for; `None` if it takes what is left.
    pub request: Option<Request>,
}

/// The bandwidth that a stream asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Blocks of [`BLOCK_BYTES`] in each [`PERIOD`].
    pub blocks: u32,
    /// Of its threads.
    pub priority: u8,
}

impl Request {
    /// The bytes a second that it comes to.
    pub fn bytes_s(self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES as u64 * (NANOS_PER_SECOND / PERIOD.as_nanos())
    }

    /// Packets that a sender needs for it.
    fn policing(self) -> PolicingRate {
        let packets = BLOCK_BYTES.div_ceil(MTU as usize - HEADERS) as u32 * self.blocks;
        PolicingRate { packets, period: PERIOD, is_dropped: false }
    }
}

/// The bytes that a stream's receiver had in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Second {
    /// Whole seconds since the start of the first stream.
    pub second: u64,
    /// The name of one of [`STREAMS`].
    pub stream: &'static str,
    /// The bandwidth that it asked for; `None` if it takes what is left.
    pub requested_bytes_s: Option<u64>,
    /// The bandwidth that it had.
    pub received_bytes_s: u64,
}

impl Second {
    /// True if the stream had what it asked for, within [`WITHIN_PPM`]. True if it asked for nothing.
    pub fn is_kept(&self) -> bool {
        self.requested_bytes_s.is_none_or(|requested| {
            u128::from(requested.abs_diff(self.received_bytes_s)) * 1_000_000
                <= u128::from(requested) * u128::from(WITHIN_PPM)
        })
    }
}

/// The result: each second of each stream, from its first full one on.
pub type Bandwidth = Report<Second>;

/// The seconds of a run, and what a receiver had in each.
struct Seconds {
    begin: Instant,
    bytes: Vec<u64>,
}

impl Seconds {
    fn new(begin: Instant, span: Duration) -> Self {
        // What comes in a second that is not full counts nowhere.
        Self { begin, bytes: vec![0; (span.as_nanos() / NANOS_PER_SECOND) as usize] }
    }

    fn add(&mut self, at: Instant, bytes: u64) {
        let second = at.since(self.begin).as_nanos() / NANOS_PER_SECOND;
        if let Some(of_second) = usize::try_from(second).ok().and_then(|second| self.bytes.get_mut(second)) {
            *of_second += bytes;
        }
    }

    /// Those of a stream that started `after` the first one.
    fn rows(&self, stream: Stream, after: Duration) -> impl Iterator<Item = Second> {
        let first = after.as_nanos().div_ceil(NANOS_PER_SECOND);
        let requested_bytes_s = stream.request.map(Request::bytes_s);
        (0..).zip(&self.bytes).filter(move |(second, _)| *second >= first).map(move |(second, &received_bytes_s)| {
            Second { second, stream: stream.name, requested_bytes_s, received_bytes_s }
        })
    }
}

/// Runs it: every `step` another stream starts, and two steps after the last one it ends. `progress` is told how much of how much has passed, ns.
///
/// # Errors
/// Not permitted here; the kernel has no such interfaces or sockets, or cannot receive by stream.
pub fn bandwidth(step: Duration, progress: impl FnMut(u64, u64)) -> Result<Bandwidth, Error> {
    let highest = STREAMS.iter().filter_map(|stream| stream.request).map(|request| request.priority).max();
    let mut conditions = HostConditions::find(highest.unwrap_or(1));
    let is_real_time = conditions.priority.is_some();
    let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
    let places = lab.joined(0, Devices::Queued)?;
    let streams: Vec<steered::Stream> = (PORT..)
        .zip(STREAMS)
        .map(|(port, Stream { name, request })| steered::Stream {
            name,
            port,
            priority: request.map(|request| request.priority).filter(|_| is_real_time),
            policing: request.map(Request::policing),
        })
        .collect();
    let steered = SteeredEnds::open(&lab, places, conditions.processors, &streams);
    let steered = steered.map_err(Error::system("kernel threads that receive by stream"))?;
    let connect = |stream: &steered::Stream| ServicePort::open(&lab, places, stream.port)?.connect(&lab);
    let connections: Result<Vec<[TcpStream; 2]>, _> = streams.iter().map(connect).collect();
    let connections = connections.map_err(Error::system("a stream over TCP"))?;
    let span = step * (STREAMS.len() as u64 + 1);
    let seconds = run(&connections, &conditions, step, span, progress)?;
    conditions.notes.extend(steered.counted());
    let rows = (0..).zip(STREAMS).zip(&seconds);
    let rows = rows.flat_map(|((place, stream), seconds)| seconds.rows(stream, step * place)).collect();
    Ok(conditions.report(rows, Vec::new(), ()))
}

/// Sends and receives on all of the connections, which are in the order of [`STREAMS`], the sender's end first; what each receiver had.
fn run(
    connections: &[[TcpStream; 2]],
    conditions: &HostConditions,
    step: Duration,
    span: Duration,
    mut progress: impl FnMut(u64, u64),
) -> Result<Vec<Seconds>, Error> {
    let over = AtomicBool::new(false);
    let begin = now() + AHEAD;
    let of_stream = Error::system("a stream over TCP");
    let outcome = thread::scope(|scope| {
        let stop = set_at_end(&over);
        let threads: Vec<_> = (0..)
            .zip(STREAMS)
            .zip(connections)
            .map(|((place, stream), [sender, receiver])| {
                let (over, start) = (&over, begin + step * place);
                let manner = |end: usize| match stream.request {
                    // The best-effort stream's threads are ordinary ones, on any processor.
                    None => ThreadSetup::default(),
                    Some(Request { priority, .. }) => ThreadSetup {
                        processor: conditions.processors[end],
                        priority: conditions.priority.and(Some(priority)),
                    },
                };
                let [sending, receiving] = [0, 1].map(manner);
                let sent = scope.spawn(move || {
                    sending.take();
                    match stream.request {
                        _ if !sleep_until(start, over) => Ok(()),
                        None => tcp::send_bulk(sender, over),
                        Some(request) => send(sender, request, start, over),
                    }
                });
                let received = scope.spawn(move || {
                    receiving.take();
                    let mut seconds = Seconds::new(begin, span);
                    tcp::receive_bulk(receiver, over, |at, bytes| seconds.add(at, bytes))?;
                    Ok(seconds)
                });
                (sent, received)
            })
            .collect();
        while now() < begin + span && !over.load(Ordering::Relaxed) {
            progress(now().since(begin).as_nanos(), span.as_nanos());
            sleep_until((now() + LOOK).min(begin + span), &over);
        }
        drop(stop);
        let ends = threads.into_iter().map(|(sent, received)| (joined(sent), joined(received)));
        ends.map(|(sent, received)| sent.and(received)).collect::<std::io::Result<Vec<Seconds>>>()
    });
    outcome.map_err(of_stream)
}

/// Sends a block at a time by the schedule that begins with `start`, until it is `over`. Delayed blocks are made up for.
fn send(to: &TcpStream, request: Request, start: Instant, over: &AtomicBool) -> std::io::Result<()> {
    let block = [0x5a; BLOCK_BYTES];
    for number in 0.. {
        let due = start + PERIOD.mul_ratio(number, request.blocks.into());
        if !sleep_until(due, over) || !tcp::write(to, &block, over)? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_paper() {
        let requests: Vec<u64> = STREAMS.iter().filter_map(|stream| stream.request).map(Request::bytes_s).collect();
        assert_eq!(requests, [6_400 << 10, 3_200 << 10, 1_600 << 10]);
        let policing = STREAMS[1].request.map(Request::policing);
        assert_eq!(policing, Some(PolicingRate { packets: 48, period: PERIOD, is_dropped: false }), "6 for each of 8");
    }

    #[test]
    fn bytes_belong_to_the_second_in_which_they_came() {
        let second = Duration::from_secs(1);
        let begin = Instant::ZERO + second;
        let mut seconds = Seconds::new(begin, second * 3 + Duration::from_millis(900));
        for (millis, bytes) in [(0, 1), (999, 2), (1_000, 4), (2_500, 8), (3_100, 16), (9_000, 32)] {
            seconds.add(begin + Duration::from_millis(millis), bytes);
        }
        assert_eq!(seconds.bytes, [3, 4, 8]);
        let shown = |after| -> Vec<(u64, u64)> {
            seconds.rows(STREAMS[1], after).map(|row| (row.second, row.received_bytes_s)).collect()
        };
        assert_eq!((shown(Duration::ZERO), shown(second)), (vec![(0, 3), (1, 4), (2, 8)], vec![(1, 4), (2, 8)]));
        assert_eq!(shown(Duration::from_millis(1_001)), [(2, 8)], "the first full second");
    }

    #[test]
    fn a_request_is_kept_within_a_twentieth() {
        let row = |received_bytes_s| Second {
            second: 0,
            stream: STREAMS[1].name,
            requested_bytes_s: Some(1_000),
            received_bytes_s,
        };
        assert_eq!([949, 950, 1_050, 1_051].map(|received| row(received).is_kept()), [false, true, true, false]);
        assert!(Second { requested_bytes_s: None, ..row(0) }.is_kept());
    }
}
