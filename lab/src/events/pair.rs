//! A server and its client on two hosts, on a network of their own.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_link::sys::{self, now};

use super::channels::{HandlerWatchPoint, RowChannels};
use super::client::{self, Client};
use super::{BATCH, MESSAGE_BYTES, Plan, Priority, Server, Turn};
use crate::conditions::{HostConditions, ThreadSetup};
use crate::error::Error;
use crate::figures::per_second;
use crate::hosts::{Devices, Hosts, InterfaceEnd};
use crate::sys::is_nothing;
use crate::timing::{Finally, joined, set_at_end};

/// Messages at the beginning of a turn, before anything competes, whose time is not counted.
const WARM_UP: u64 = 16;
/// The time for which a turn goes on without any answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The server.
pub(super) enum ServingEnd {
    /// A thread of a turn, with this socket, which is connected to the client's address.
    Socket(UdpSocket),
    /// A handler of Laxity, also between turns.
    Handler {
        /// Its host's.
        channels: Box<RowChannels>,
        /// The times at which it begins with messages, if that is looked at.
        entries: Option<HandlerWatchPoint>,
    },
}

/// Both ends.
pub(super) struct Pair {
    pub(super) server: Server,
    pub(super) priority: Priority,
    pub(super) client: Client,
    pub(super) serving: ServingEnd,
    /// Of both ends.
    pub(super) manner: ThreadSetup,
    places: [InterfaceEnd; 2],
}

impl Pair {
    /// Opens both ends on network `number`. `is_watched` if it is looked at when a handler begins.
    pub(super) fn open(
        lab: &Hosts,
        conditions: &mut HostConditions,
        number: u8,
        (server, priority): (Server, Priority),
        is_watched: bool,
    ) -> Result<Self, Error> {
        let devices = if server.is_over_xdp() { Devices::Whole } else { Devices::Default };
        let places = lab.joined(number, devices)?;
        let manner = ThreadSetup {
            processor: conditions.processors[1],
            priority: conditions.priority.filter(|_| priority == Priority::RealTime),
        };
        let (serving, client) = if server.is_laxity() {
            let name = format!("{server} ({priority})");
            let (mut channels, reply, client) = RowChannels::open(lab, conditions, places, name, server, manner)?;
            let entries = channels.install(reply, server, is_watched)?;
            (ServingEnd::Handler { channels: Box::new(channels), entries }, client)
        } else {
            let opened = lab.on(1, || client::socket(places[1].address, places[0].address));
            (ServingEnd::Socket(opened.map_err(Error::system("a UDP socket"))?), Client::of_datagrams())
        };
        Ok(Self { server, priority, client, serving, manner, places })
    }

    /// Runs `serve` with the server's socket, if it has one, and `ask`, each on a thread of a turn's manner, until `ask` is over; what they came back with. `begin` is called when `ask` is
    /// [ready](TurnClient::ready), and what it came back with is dropped when `ask` is over.
    pub(super) fn with_ends<A: Send, S: Send, G>(
        &mut self,
        lab: &Hosts,
        serve: impl FnOnce(&UdpSocket) -> io::Result<S> + Send,
        ask: impl FnOnce(&mut TurnClient<'_>) -> io::Result<A> + Send,
        begin: impl FnOnce() -> Result<G, Error>,
    ) -> Result<(A, Option<S>), Error> {
        let [own, peer] = self.places.map(|place| place.address);
        let socket = lab.on(0, || client::socket(own, peer)).map_err(Error::system("the client's UDP socket"))?;
        let (client, manner, over) = (&mut self.client, self.manner, AtomicBool::new(false));
        let at_server = match &self.serving {
            ServingEnd::Socket(socket) => {
                prepare(socket, self.server).map_err(Error::system("a UDP socket"))?;
                Some(socket)
            }
            ServingEnd::Handler { .. } => None,
        };
        client.rest();
        let ((ready, is_ready), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
        thread::scope(|scope| {
            let (over, socket) = (&over, &socket);
            let served = at_server.map(|socket| {
                scope.spawn(move || {
                    let _over = set_at_end(over);
                    manner.take();
                    serve(socket)
                })
            });
            let end = move || {
                while !over.load(Ordering::Acquire) {
                    // It is no message. More than once, for it may be lost.
                    let _ = socket.send(&[0]);
                    let _ = sys::wait(&mut [], Some(Duration::from_millis(1)));
                }
            };
            // A server with a socket.
            let ends = served.as_ref().map(|_| Finally(end));
            let asked = scope.spawn(move || {
                let _ends = ends;
                manner.take();
                ask(&mut TurnClient { client, socket, over, ready: Some((ready, goes_on)) })
            });
            // Nothing comes if the client fails before.
            let beside = is_ready.recv().ok().map(|()| begin());
            drop(go_on);
            let asked = joined(asked).map_err(Error::system("the client's UDP socket"));
            let served = served.map(|served| joined(served).map_err(Error::system("a server"))).transpose()?;
            beside.transpose()?;
            Ok((asked?, served))
        })
    }

    /// The figures of the channel that a handler had. `notes` are told what is to be said of it.
    pub(super) fn close(self, notes: &mut Vec<String>) -> Option<Figures> {
        match self.serving {
            ServingEnd::Socket(_) => None,
            ServingEnd::Handler { channels, .. } => Some(channels.close(notes)),
        }
    }
}

/// The values of a turn's client.
pub(super) struct TurnClient<'a> {
    pub(super) client: &'a mut Client,
    pub(super) socket: &'a UdpSocket,
    /// There is no server any more.
    pub(super) over: &'a AtomicBool,
    /// The channels by which it says that it is ready, and by which it is let go.
    ready: Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
}

impl TurnClient<'_> {
    /// Sends a message, and waits for its answer ([`Client::ask`]).
    pub(super) fn ask(&mut self) -> io::Result<Option<Duration>> {
        self.client.ask(self.socket)
    }

    /// Client and server run as they do in the turn. Comes back when what goes on beside them has begun.
    pub(super) fn ready(&mut self) {
        if let Some((ready, goes_on)) = self.ready.take() {
            let _ = ready.send(());
            // Until the other end is gone.
            let _ = goes_on.recv();
        }
    }
}

/// Takes what an earlier turn left, and has the socket block as its server wants it.
fn prepare(socket: &UdpSocket, server: Server) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    loop {
        match socket.recv(&mut [0; 1]) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if is_nothing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    socket.set_read_timeout(None)?;
    socket.set_nonblocking(!server.blocks())
}

/// The bytes a second of so many messages that were answered.
fn bytes_s(answered: usize, elapsed: Duration) -> u64 {
    per_second((answered * MESSAGE_BYTES) as u64, elapsed)
}

/// Sends one message behind the answer to the other: as many as the plan has, in batches, but no longer than it says, and at least until there is one answer.
pub(super) fn ask(asking: &mut TurnClient<'_>, plan: &Plan) -> io::Result<Turn> {
    let mut turn = Turn { round_trips: Vec::with_capacity(plan.messages), lost: 0, bytes_s: Some(0) };
    for _ in 0..WARM_UP {
        if asking.over.load(Ordering::Acquire) {
            return Ok(turn);
        }
        asking.ask()?;
    }
    asking.ready();
    // Without what the client rested.
    let mut elapsed = Duration::ZERO;
    loop {
        let (begin, before) = (now(), elapsed);
        for _ in 0..BATCH {
            match asking.ask()? {
                Some(took) => turn.round_trips.push(took.as_nanos()),
                None => turn.lost += 1,
            }
            elapsed = before + now().since(begin);
            let answered = turn.round_trips.len();
            let is_late = elapsed >= plan.span && (answered > 0 || elapsed >= plan.span + PATIENCE);
            if is_late || answered >= plan.messages || asking.over.load(Ordering::Acquire) {
                turn.round_trips.sort_unstable();
                turn.bytes_s = Some(bytes_s(answered, elapsed));
                return Ok(turn);
            }
        }
        asking.client.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_answers() {
        assert_eq!(bytes_s(1_000, Duration::from_millis(1)), 512_000_000);
    }
}
