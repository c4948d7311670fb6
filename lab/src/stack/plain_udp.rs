//! What people do first: a socket for each channel with the buffers that the system gives, each message sent in a loop at once
//! as it comes, ordinary threads. The wire has one FIFO queue.
//!
//! Datagrams carry the platform's packet payload (1400 bytes) behind a header of 24 bytes, so a message has as many packets as
//! with Laxity.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity_core::units::Instant;
use laxity_link::sys::now;

use super::datagram::{Assembler, Cutter, HEADER_BYTES};
use super::{Assembly, Inlet, Outlet, Ready, Received, Sent, Setup, wire};
use crate::error::Error;
use crate::record::Arrived;
use crate::wire::Discipline;
use crate::workload::{BEST_EFFORT, Row, Workload};

/// How long a receiver does not look at its stop flag.
const LOOK: StdDuration = StdDuration::from_millis(50);

pub(super) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<Row>) -> Result<Assembly, Error> {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::system("binding a UDP socket"));
    let contracts = rows.into_iter().map(|row| (row.name, Some(row.contract)));
    let contracts: Vec<_> = contracts.chain([(BEST_EFFORT.to_owned(), None)]).collect();
    let sockets = contracts.iter().map(|_| bind()).collect::<Result<Vec<_>, _>>()?;
    let targets: Result<Vec<SocketAddr>, io::Error> = sockets.iter().map(UdpSocket::local_addr).collect();
    let wire = wire(setup, Discipline::Fifo, targets.map_err(Error::system("a socket's address"))?)?;
    let mut channels = Vec::new();
    for (number, ((name, contract), inbound)) in contracts.into_iter().zip(sockets).enumerate() {
        inbound.set_read_timeout(Some(LOOK)).map_err(Error::system("setting a timeout"))?;
        let outbound = bind()?;
        outbound.connect(wire.ingress(number)).map_err(Error::system("connecting a UDP socket"))?;
        let payload = setup.costs.platform.packet as usize;
        let cutter = Cutter { channel: number as u32, message_bytes: workload.longest(), payload };
        let datagram = vec![0x5a; HEADER_BYTES + payload];
        channels.push(Ready {
            name,
            contract,
            real_time_threads: false,
            outlet: Box::new(Sender { socket: outbound, cutter, datagram: datagram.clone(), sent: 0 }),
            inlet: Box::new(Receiver { socket: inbound, assembler: Assembler::new(cutter), datagram }),
        });
    }
    Ok(Assembly { channels, hosts: Vec::new(), wire, notes: Vec::new() })
}

struct Sender {
    socket: UdpSocket,
    cutter: Cutter,
    datagram: Vec<u8>,
    sent: u64,
}

impl Outlet for Sender {
    fn send(&mut self, message: &[u8], logical_arrival: Option<Instant>, _: &AtomicBool) -> Result<bool, Error> {
        for (header, payload) in self.cutter.cut(self.sent, logical_arrival, message) {
            let datagram = &mut self.datagram[..HEADER_BYTES + payload.len()];
            header.write(datagram);
            datagram[HEADER_BYTES..].copy_from_slice(payload);
            // A datagram that the kernel refuses is lost, as on the way: the receiver misses it.
            let _ = self.socket.send(datagram);
        }
        self.sent += 1;
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<Sent, Error> {
        Ok(Sent { messages: self.sent, ..Sent::default() })
    }
}

struct Receiver {
    socket: UdpSocket,
    assembler: Assembler,
    datagram: Vec<u8>,
}

impl Inlet for Receiver {
    fn run(mut self: Box<Self>, take: &mut dyn FnMut(Arrived, &[u8]), stop: &AtomicBool) -> Result<Received, Error> {
        while !stop.load(Ordering::Relaxed) {
            match self.socket.recv(&mut self.datagram) {
                Ok(len) => {
                    if let Some((header, message)) = self.assembler.take(&self.datagram[..len]) {
                        take(Arrived::complete(header.logical_arrival(), now(), message), message);
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {}
                    _ => return Err(Error::System { what: "receiving", source: error }),
                },
            }
        }
        Ok(Received::Numbers { lost: self.assembler.lost(), next: self.assembler.next })
    }
}
