//! A server and its client on two hosts, on a network of their own.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use laxity_core::figures::Figures;
use laxity_core::units::Duration;
use laxity_link::sys::{self, now};

use super::client::{self, Client};
use super::in_process::InProcess;
use super::{BATCH, Plan, Priority, Server, Turn};
use crate::conditions::{Conditions, Manner};
use crate::error::Error;
use crate::hosts::{Devices, Hosts, Place};
use crate::roundtrip::is_nothing;
use crate::timing::{SetAtEnd, joined};

/// Messages at the beginning of a turn whose time is not counted, unless they take a tenth of it.
const WARM_UP: u64 = 16;
/// How long a turn goes on without any answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What serves.
pub(super) enum Serving {
    /// A thread of a turn, with this socket, which is connected to the client's address.
    Socket(UdpSocket),
    /// A host of Laxity, also between turns.
    Handler(Box<InProcess>),
}

/// Both ends.
pub(super) struct Pair {
    pub(super) server: Server,
    pub(super) priority: Priority,
    pub(super) client: Client,
    pub(super) serving: Serving,
    /// Of both ends.
    pub(super) manner: Manner,
    places: [Place; 2],
}

impl Pair {
    /// Opens both ends on network `number`. `is_watched` if it is looked at when a handler begins.
    pub(super) fn open(
        lab: &Hosts,
        conditions: &mut Conditions,
        number: u8,
        (server, priority): (Server, Priority),
        is_watched: bool,
    ) -> Result<Self, Error> {
        server.check()?;
        let over_xdp = server == Server::LaxityXdp;
        let devices = if over_xdp { Devices::Whole } else { Devices::Default };
        let places = lab.join(number, devices).map_err(Error::system("a pair of virtual Ethernet interfaces"))?;
        let manner = Manner {
            processor: conditions.processors[1],
            priority: conditions.priority.filter(|_| priority == Priority::RealTime),
        };
        let (serving, client) = if server.is_laxity() {
            let told = (format!("{server} ({priority})"), over_xdp, manner);
            let (opened, client) = InProcess::open(lab, conditions, places, told, is_watched)?;
            (Serving::Handler(Box::new(opened)), client)
        } else {
            let opened = lab.on(1, || client::socket(places[1].address, places[0].address));
            (Serving::Socket(opened.map_err(Error::system("a UDP socket"))?), Client::of_datagrams())
        };
        Ok(Self { server, priority, client, serving, manner, places })
    }

    /// Asks for a turn.
    pub(super) fn turn(&mut self, lab: &Hosts, plan: &Plan) -> Result<Turn, Error> {
        let server = self.server;
        let serve = |socket: &UdpSocket| server.serve(socket);
        let ask = |client: &mut Client, socket: &UdpSocket, over: &AtomicBool| ask(client, socket, plan, over);
        Ok(self.with_ends(lab, serve, ask)?.0)
    }

    /// Runs `serve` with the server's socket, if it has one, and `ask` with the client and its own, each on a thread of a turn's manner, until `ask` is over; what they came back with. `ask`
    /// is told when there is no server any more.
    pub(super) fn with_ends<A: Send, S: Send>(
        &mut self,
        lab: &Hosts,
        serve: impl FnOnce(&UdpSocket) -> io::Result<S> + Send,
        ask: impl FnOnce(&mut Client, &UdpSocket, &AtomicBool) -> io::Result<A> + Send,
    ) -> Result<(A, Option<S>), Error> {
        let [own, peer] = self.places.map(|place| place.address);
        let socket = lab.on(0, || client::socket(own, peer)).map_err(Error::system("the client's UDP socket"))?;
        let (client, manner, over) = (&mut self.client, self.manner, AtomicBool::new(false));
        let at_server = match &self.serving {
            Serving::Socket(socket) => {
                prepare(socket, self.server).map_err(Error::system("a UDP socket"))?;
                Some(socket)
            }
            Serving::Handler(_) => None,
        };
        client.rest();
        thread::scope(|scope| {
            let over = &over;
            let served = at_server.map(|socket| {
                scope.spawn(move || {
                    let _over = SetAtEnd(over);
                    manner.take();
                    serve(socket)
                })
            });
            let has_server = served.is_some();
            let socket = &socket;
            let asked = scope.spawn(move || {
                manner.take();
                let asked = ask(client, socket, over);
                // What is no message ends the turn; more than once, for it may be lost.
                while has_server && !over.load(Ordering::Acquire) {
                    let _ = socket.send(&[0]);
                    let _ = sys::wait(&[], Some(Duration::from_millis(1)));
                }
                asked
            });
            let asked = joined(asked).map_err(Error::system("the client's UDP socket"));
            let served = served.map(|served| joined(served).map_err(Error::system("a server"))).transpose()?;
            Ok((asked?, served))
        })
    }

    /// The figures of the channel that a handler had. `notes` are told what is to be said of it.
    pub(super) fn close(self, notes: &mut Vec<String>) -> Option<Figures> {
        match self.serving {
            Serving::Socket(_) => None,
            Serving::Handler(handler) => Some(handler.close(notes)),
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

/// Sends one message behind the answer to the other: as many as the plan has, in batches, but no longer than it says, and at least until there is one answer.
fn ask(client: &mut Client, socket: &UdpSocket, plan: &Plan, over: &AtomicBool) -> io::Result<Turn> {
    let mut turn = Turn { round_trips: Vec::with_capacity(plan.messages), ..Turn::default() };
    let begin = now();
    for _ in 0..WARM_UP {
        client.ask(socket)?;
        if now().since(begin) >= plan.span.mul_ratio(1, 10) {
            break;
        }
    }
    let is_over = |turn: &Turn| {
        let answered = turn.round_trips.len();
        let is_late = turn.elapsed >= plan.span && (answered > 0 || turn.elapsed >= plan.span + PATIENCE);
        is_late || answered >= plan.messages || over.load(Ordering::Acquire)
    };
    loop {
        let (begin, before) = (now(), turn.elapsed);
        for _ in 0..BATCH {
            match client.ask(socket)? {
                Some(took) => turn.round_trips.push(took.as_nanos()),
                None => turn.lost += 1,
            }
            turn.elapsed = before + now().since(begin);
            if is_over(&turn) {
                turn.round_trips.sort_unstable();
                return Ok(turn);
            }
        }
        client.rest();
    }
}
