//! Both ends of one path: the client that asks, the server that answers, and a bulk transfer beside them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use laxity::{Host, HostConfig, LinkChoice, XdpOptions};
use laxity_core::figures::Figures;
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};

use super::steered::{SteeredEnds, Stream};
use super::tcp::{self, ServicePort};
use super::{MESSAGE_BYTES, Plan, SAMPLES, Turn};
use crate::conditions::{APPLICATION_PRIORITY, HostConditions, ThreadSetup, both_ends};
use crate::error::Error;
use crate::figures::per_second;
use crate::hosts::{Devices, Hosts};
use crate::roundtrip::{StackEnd, assumed, connect, ends, figures_of, start, with_shortest_interval};
use crate::timing::{joined, set_at_end};
use crate::workload::real_time;

/// Of the server.
const ECHO_PORT: u16 = 5710;
const BULK_PORT: u16 = 5711;
/// Of the kernel's threads that process the echo's packets: just above the applications.
const THREADS: u8 = APPLICATION_PRIORITY + 1;
/// Requests at the beginning of a turn whose time is not counted.
const WARM_UP: u64 = 16;
/// The time that a bulk transfer runs before the first request: until TCP has found its rate.
const BULK_BEFORE: Duration = Duration::from_millis(200);
/// The longest time of an answer. TCP loses none, but a connection may be stuck.
const PATIENCE: StdDuration = StdDuration::from_secs(5);
/// An answer over Laxity that takes longer is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_millis(100);

/// The client, or the server.
enum EchoEnd {
    Tcp(TcpStream),
    Laxity(StackEnd),
}

/// Both ends of one path, in network namespaces of their own.
pub(super) struct Pair {
    pub(super) path: &'static str,
    client: EchoEnd,
    server: EchoEnd,
    manners: [ThreadSetup; 2],
    bulk: ServicePort,
    _hosts: Vec<Host>,
    steered: Option<SteeredEnds>,
    lab: Hosts,
}

impl EchoEnd {
    /// Sends a request and waits for its answer: how long it took; `None` if it did not come.
    fn ask(&mut self, message: &[u8; MESSAGE_BYTES]) -> Result<Option<Duration>, Error> {
        match self {
            Self::Tcp(stream) => ask_over_tcp(stream, message).map(Some).map_err(Error::system("an echo over TCP")),
            Self::Laxity(asks) => {
                // The contract may have no room yet, which is no part of the round trip.
                if let StackEnd::Laxity { sender, .. } = asks {
                    let _ = sender.loan(message.len())?;
                }
                let called = now();
                let answer = asks.ask(message, called + LOST_AFTER)?;
                Ok(answer.map(|_| now().since(called)))
            }
        }
    }

    /// Sends back what comes, until it is `over`.
    fn serve(&mut self, over: &AtomicBool) -> Result<(), Error> {
        match self {
            Self::Tcp(stream) => {
                let mut message = [0; MESSAGE_BYTES];
                let mut serve = || -> io::Result<()> {
                    while tcp::read(stream, &mut message, over)? {
                        tcp::write(stream, &message, over)?;
                    }
                    Ok(())
                };
                serve().map_err(Error::system("an echo over TCP"))
            }
            Self::Laxity(answers) => answers.serve(MESSAGE_BYTES, over),
        }
    }
}

fn ask_over_tcp(mut stream: &TcpStream, message: &[u8; MESSAGE_BYTES]) -> io::Result<Duration> {
    let mut answer = [0; MESSAGE_BYTES];
    let called = now();
    stream.write_all(message)?;
    stream.read_exact(&mut answer)?;
    let took = now().since(called);
    if answer != *message {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is not the request"));
    }
    Ok(took)
}

impl Pair {
    /// Opens both ends of a path, on a network of that number.
    pub(super) fn open(conditions: &mut HostConditions, number: u8, path: &'static str) -> Result<Self, Error> {
        let HostConditions { processors, priority, notes, .. } = conditions;
        let manners = processors.map(|processor| ThreadSetup { processor, priority: *priority });
        let lab = Hosts::new().map_err(Error::system("two network namespaces"))?;
        let places = lab.joined(number, Devices::Queued)?;
        let bulk = ServicePort::open(&lab, places, BULK_PORT).map_err(Error::system("a bulk transfer over TCP"))?;
        if path.starts_with("laxity") {
            let mut hosts = Vec::new();
            for (host, end) in ["client", "server"].into_iter().enumerate() {
                let link = match path {
                    "laxity-xdp" => LinkChoice::Xdp(XdpOptions::default()),
                    _ => LinkChoice::Udp,
                };
                let config = HostConfig { bind: places[host].address, link, ..assumed() };
                let started = start(&lab, host, config, manners[host])?;
                notes.extend(started.status().notes.iter().map(|note| format!("{path}, {end}: {note}")));
                hosts.push(started);
            }
            let bytes = MESSAGE_BYTES as u64;
            let spec = |interval, burst| real_time(bytes, bytes, interval, burst, DEADLINE);
            let requests = |interval| connect(&hosts[0], &hosts[1], "requests", spec(interval, 1)?);
            // An answer that follows one that was late waits for nothing.
            let answers = |interval| connect(&hosts[1], &hosts[0], "answers", spec(interval, 2)?);
            let ([requests, answers], _) = with_shortest_interval(path, notes, requests, answers)?;
            let (asks, answers) = ends(requests, answers);
            let (client, server) = (EchoEnd::Laxity(asks), EchoEnd::Laxity(answers));
            return Ok(Self { path, client, server, manners, bulk, _hosts: hosts, steered: None, lab });
        }
        let streams = streams(path, priority.is_some());
        let steered = (!streams.is_empty()).then(|| SteeredEnds::open(&lab, places, *processors, &streams)).transpose();
        let steered = steered.map_err(Error::system("kernel threads that receive by stream"))?;
        let service = ServicePort::open(&lab, places, ECHO_PORT);
        let connection = service.and_then(|service| service.connect(&lab)).and_then(|ends| {
            ends[0].set_read_timeout(Some(PATIENCE))?;
            Ok(ends)
        });
        let [client, server] = connection.map_err(Error::system("an echo over TCP"))?;
        let (client, server) = (EchoEnd::Tcp(client), EchoEnd::Tcp(server));
        Ok(Self { path, client, server, manners, bulk, _hosts: Vec::new(), steered, lab })
    }

    /// Asks again and again for a turn.
    pub(super) fn turn(&mut self, plan: &Plan) -> Result<Turn, Error> {
        let bulk = plan.has_bulk.then(|| self.bulk.connect(&self.lab)).transpose();
        let bulk = bulk.map_err(Error::system("a bulk transfer over TCP"))?;
        let (bulk_over, bulk_bytes, manners) = (AtomicBool::new(false), AtomicU64::new(0), self.manners);
        let (client, server) = (&mut self.client, &mut self.server);
        thread::scope(|scope| {
            let (over, bytes) = (&bulk_over, &bulk_bytes);
            let transfer = bulk.as_ref().map(|[client, server]| {
                let ordinary = manners.map(|end| ThreadSetup { priority: None, ..end });
                let took = move |_, more| {
                    bytes.fetch_add(more, Ordering::Relaxed);
                };
                let receive = move |_: &AtomicBool| tcp::receive_bulk(server, over, took);
                scope.spawn(move || both_ends(ordinary, || tcp::send_bulk(client, over), receive))
            });
            let asking = || -> Result<Turn, Error> {
                let _over = set_at_end(over);
                if plan.has_bulk {
                    let _ = sys::wait(&mut [], Some(BULK_BEFORE));
                }
                let (before, begin) = (bytes.load(Ordering::Relaxed), now());
                let mut turn = ask(client, plan.span)?;
                let (bytes, elapsed) = (bytes.load(Ordering::Relaxed) - before, now().since(begin));
                turn.bytes_s = plan.has_bulk.then(|| per_second(bytes, elapsed));
                Ok(turn)
            };
            let (asked, answered) = both_ends(manners, asking, |over| server.serve(over));
            if let Some((sent, received)) = transfer.map(joined) {
                sent.and(received).map_err(Error::system("a bulk transfer over TCP"))?;
            }
            answered?;
            asked
        })
    }

    /// The figures of its channels, if it has any. `notes` are told what its kernel threads did, if it has any.
    pub(super) fn close(self, notes: &mut Vec<String>) -> Vec<Figures> {
        let counted = self.steered.as_ref().map(SteeredEnds::counted);
        notes.extend(counted.into_iter().flatten().map(|note| format!("{}: {note}", self.path)));
        match (&self.client, &self.server) {
            (EchoEnd::Laxity(asks), EchoEnd::Laxity(answers)) => figures_of(self.path, asks, answers),
            _ => Vec::new(),
        }
    }
}

/// The stream that has a kernel thread of its own on this path; bulk is received as what is of no stream.
fn streams(path: &str, is_real_time: bool) -> Vec<Stream> {
    let priority = match path {
        "threads-normal" => None,
        "threads-realtime" => is_real_time.then_some(THREADS),
        _ => return Vec::new(),
    };
    vec![Stream { name: "echo", port: ECHO_PORT, priority, policing: None }]
}

/// Asks, one request behind the other, until `span` is over or there are [`SAMPLES`].
fn ask(client: &mut EchoEnd, span: Duration) -> Result<Turn, Error> {
    let mut turn = Turn { round_trips: Vec::with_capacity(SAMPLES), ..Turn::default() };
    let mut message = [0x5a; MESSAGE_BYTES];
    let begin: Instant = now();
    // What belongs to an earlier turn has a smaller number.
    for number in begin.as_nanos().. {
        if turn.round_trips.len() >= SAMPLES || now().since(begin) >= span {
            break;
        }
        message[..8].copy_from_slice(&number.to_be_bytes());
        match client.ask(&message)? {
            Some(took) if number - begin.as_nanos() >= WARM_UP => turn.round_trips.push(took.as_nanos()),
            Some(_) => {}
            None => turn.lost += 1,
        }
    }
    turn.round_trips.sort_unstable();
    Ok(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_echo_is_above_its_applications_where_that_is_permitted() {
        let priorities = |path, is_real_time| -> Vec<Option<u8>> {
            streams(path, is_real_time).iter().map(|stream| stream.priority).collect()
        };
        assert_eq!(priorities("threads-realtime", true), [Some(61)]);
        assert_eq!(priorities("threads-normal", true), [None]);
        assert_eq!(priorities("threads-realtime", false), [None]);
        assert_eq!((priorities("default", true), priorities("laxity-xdp", true)), (Vec::new(), Vec::new()));
    }
}
