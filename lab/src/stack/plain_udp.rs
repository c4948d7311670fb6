//! The first attempt of most programs: a socket for each channel with the buffers that the system gives, each message sent in a loop at once
//! as it comes, ordinary threads. The wire has one FIFO queue.
//!
//! Datagrams carry the platform's packet payload (1400 bytes) behind a header of 24 bytes, so a message has as many packets as
//! with Laxity.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration as StdDuration;

use super::datagram::{DatagramSink, DatagramSource, HEADER_BYTES, Header, LOOK};
use super::{Assembly, Setup, of_sockets};
use crate::error::Error;
use crate::sys::is_nothing;
use crate::wire::Discipline;
use crate::workload::{Workload, WorkloadRow};

pub(super) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<WorkloadRow>) -> Result<Assembly, Error> {
    let bind = || -> io::Result<PlainSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(StdDuration::from_nanos(LOOK.as_nanos())))?;
        Ok(PlainSocket { socket, datagram: vec![0x5a; HEADER_BYTES + setup.costs.platform.packet as usize] })
    };
    let inbound = || {
        let socket = bind()?;
        let address = socket.socket.local_addr()?;
        Ok((socket, address))
    };
    let outbound = |to: SocketAddr| {
        let socket = bind()?;
        socket.socket.connect(to)?;
        Ok(socket)
    };
    let (inbound, outbound) = (
        || inbound().map_err(Error::system("binding a UDP socket")),
        |to, _| outbound(to).map_err(Error::system("connecting a UDP socket")),
    );
    of_sockets(setup, workload, rows, Discipline::Fifo, inbound, outbound)
}

/// One that sends or receives a datagram in a call.
struct PlainSocket {
    socket: UdpSocket,
    datagram: Vec<u8>,
}

impl DatagramSink for PlainSocket {
    fn push(&mut self, header: Header, payload: &[u8]) {
        let len = header.write_before(payload, &mut self.datagram);
        let _ = self.socket.send(&self.datagram[..len]);
    }

    fn flush(&mut self) {}
}

impl DatagramSource for PlainSocket {
    fn receive(&mut self, mut sink: impl FnMut(&[u8])) -> Result<(), Error> {
        match self.socket.recv(&mut self.datagram) {
            Ok(len) => sink(&self.datagram[..len]),
            Err(error) if is_nothing(&error) => {}
            Err(source) => return Err(Error::System { what: "receiving", source }),
        }
        Ok(())
    }
}
