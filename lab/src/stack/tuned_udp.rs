//! What an expert does with kernel sockets, knowing that the network has two classes.
//!
//! - **Marks**: EF (46) for the real-time channels, CS1 (8) for best effort; the wire serves EF first.
//! - **Buffers** of 4 MiB on both sides, beyond the system's limit where permitted (`SO_RCVBUFFORCE`).
//! - **Threads**: SCHED_FIFO 60 for the senders and receivers of the real-time channels, where permitted; best effort stays
//!   ordinary. Memory locked, where permitted.
//! - **Batches**: a message goes out in one `sendmmsg`, `recvmmsg` on the other side.
//! - **Paced bursts**: a channel's messages leave an interval apart, at their logical arrivals, because a burst of twelve messages
//!   at once would hold up everybody else in the class for 60 ms. In user space, as the kernel here paces no UDP
//!   (`SO_MAX_PACING_RATE` needs fq). Within a message nothing is paced: that would only delay it. So the high class gets the
//!   same traffic as Laxity's link scheduler does; what it lacks is an order inside the class.
//! - Pacing is part of the application here, so an application that breaks its contract does not pace either: the violator's
//!   messages leave at once. Nobody downstream holds it to anything, which is the point.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;

use super::datagram::{Assembler, Cutter, HEADER_BYTES, Incoming, Outgoing};
use super::{Assembly, Inlet, Outlet, Ready, Received, Sent, Setup, wire};
use crate::error::Error;
use crate::record::Arrived;
use crate::timing;
use crate::wire::Discipline;
use crate::workload::{BEST_EFFORT, Row, Workload};

const EF: u8 = 46;
const CS1: u8 = 8;
/// How long a receiver does not look at its stop flag.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<Row>) -> Result<Assembly, Error> {
    let payload = setup.costs.platform.packet as usize;
    let most = HEADER_BYTES + payload;
    let contracts = rows.into_iter().map(|row| (row.name, Some(row.contract)));
    let contracts: Vec<_> = contracts.chain([(BEST_EFFORT.to_owned(), None)]).collect();
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let inbound = contracts.iter().map(|_| Incoming::bind(LOOPBACK, most)).collect::<Result<Vec<_>, _>>()?;
    let wire = wire(setup, Discipline::TwoClassesByDscp, inbound.iter().map(Incoming::address).collect())?;
    let mut notes = Vec::new();
    let wanted = laxity_link::udp::UdpConfig::DEFAULT_BUFFER_BYTES;
    if let Some(incoming) = inbound.first()
        && incoming.buffer_bytes() < wanted
    {
        let got = incoming.buffer_bytes();
        notes.push(format!("receive buffers of {got} bytes instead of {wanted} (net.core.rmem_max)"));
    }
    if setup.realtime
        && let Err(error) = laxity::metering::lock_memory()
    {
        notes.push(format!("memory is not locked: {error}"));
    }
    let mut channels = Vec::new();
    for (number, ((name, contract), incoming)) in contracts.into_iter().zip(inbound).enumerate() {
        let dscp = if contract.is_some() { EF } else { CS1 };
        let outgoing = Outgoing::bind(LOOPBACK, wire.ingress(number), most)?;
        outgoing.mark(dscp)?;
        let cutter = Cutter { channel: number as u32, message_bytes: workload.longest(), payload };
        let paced = contract.is_some() && !(number == 0 && setup.attack.violates());
        channels.push(Ready {
            name,
            contract,
            real_time_threads: contract.is_some(),
            outlet: Box::new(Sender::new(outgoing, cutter, paced)),
            inlet: Box::new(Receiver::new(incoming, cutter)),
        });
    }
    Ok(Assembly { channels, hosts: Vec::new(), wire, notes })
}

/// Sends messages in datagrams, paced or at once.
pub(crate) struct Sender {
    outgoing: Outgoing,
    cutter: Cutter,
    paced: bool,
    sent: u64,
}

impl Sender {
    pub(crate) fn new(outgoing: Outgoing, cutter: Cutter, paced: bool) -> Self {
        Self { outgoing, cutter, paced, sent: 0 }
    }
}

impl Outlet for Sender {
    fn send(&mut self, message: &[u8], logical_arrival: Option<Instant>, stop: &AtomicBool) -> Result<bool, Error> {
        if let Some(at) = logical_arrival.filter(|_| self.paced)
            && !timing::sleep_until(at, stop)
        {
            return Ok(false);
        }
        for (header, payload) in self.cutter.cut(self.sent, logical_arrival, message) {
            let write = |area: &mut [u8]| {
                header.write(area);
                area[HEADER_BYTES..].copy_from_slice(payload);
            };
            self.outgoing.push(write, HEADER_BYTES + payload.len());
        }
        self.outgoing.flush();
        self.sent += 1;
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<Sent, Error> {
        Ok(Sent { messages: self.sent, ..Sent::default() })
    }
}

/// Puts messages together.
pub(crate) struct Receiver {
    incoming: Incoming,
    assembler: Assembler,
}

impl Receiver {
    pub(crate) fn new(incoming: Incoming, cutter: Cutter) -> Self {
        Self { incoming, assembler: Assembler::new(cutter) }
    }
}

impl Inlet for Receiver {
    fn run(self: Box<Self>, take: &mut dyn FnMut(Arrived, &[u8]), stop: &AtomicBool) -> Result<Received, Error> {
        let Self { mut incoming, mut assembler } = *self;
        while !stop.load(Ordering::Relaxed) {
            incoming.receive(LOOK, |datagram| {
                if let Some((header, message)) = assembler.take(datagram) {
                    take(Arrived::complete(header.logical_arrival(), now(), message), message);
                }
            })?;
        }
        Ok(Received::Numbers { lost: assembler.lost(), next: assembler.next })
    }
}
