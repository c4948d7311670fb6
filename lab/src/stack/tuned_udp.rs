//! The set-up of an expert with kernel sockets, knowing that the network has two classes.
//!
//! - **Marks**: EF (46) for the real-time channels, CS1 (8) for best effort; the wire serves EF first.
//! - **Buffers** of 4 MiB on both sides, beyond the system's limit where permitted (`SO_RCVBUFFORCE`).
//! - **Threads**: SCHED_FIFO 60 for the senders and receivers of the real-time channels, where permitted; best effort stays
//!   ordinary. Memory locked, where permitted.
//! - **Batches**: a message goes out in one `sendmmsg`, `recvmmsg` on the other side.
//! - **Paced bursts**: a channel's messages leave an interval apart, at their logical arrivals, because a burst of twelve messages
//!   at once would hold up all others in the class for 60 ms. In user space, as the kernel here paces no UDP
//!   (`SO_MAX_PACING_RATE` needs fq). Within a message nothing is paced: that would only delay it. So the high class gets the
//!   same traffic as Laxity's link scheduler does; what it lacks is an order inside the class.
//! - Pacing is part of the application here, so an application that breaks its contract does not pace either: the violator's
//!   messages leave at once. No component downstream enforces the contract, which is the point.

use std::net::{IpAddr, Ipv4Addr};

use laxity_link::udp::UdpConfig;

use super::datagram::{HEADER_BYTES, ReceivingSocket, SendingSocket};
use super::{Assembly, Setup, of_sockets};
use crate::error::Error;
use crate::wire::Discipline;
use crate::workload::{Workload, WorkloadRow};

const EF: u8 = 46;
const CS1: u8 = 8;

pub(super) fn assemble(setup: &Setup, workload: &Workload, rows: Vec<WorkloadRow>) -> Result<Assembly, Error> {
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let most = HEADER_BYTES + setup.costs.platform.packet as usize;
    let (mut got, wanted) = (UdpConfig::DEFAULT_BUFFER_BYTES, UdpConfig::DEFAULT_BUFFER_BYTES);
    let inbound = || {
        let socket = ReceivingSocket::bind(LOOPBACK, most)?;
        got = socket.link.receive_buffer_bytes();
        let address = socket.address();
        Ok((socket, address))
    };
    let outbound = |to, is_real_time| {
        let socket = SendingSocket::bind(LOOPBACK, to, most)?;
        socket.mark(if is_real_time { EF } else { CS1 })?;
        Ok(socket)
    };
    let mut assembly = of_sockets(setup, workload, rows, Discipline::TwoClassesByDscp, inbound, outbound)?;
    if got < wanted {
        assembly.notes.push(format!("receive buffers of {got} bytes instead of {wanted} (net.core.rmem_max)"));
    }
    if setup.realtime
        && let Err(error) = laxity::metering::lock_memory()
    {
        assembly.notes.push(format!("memory is not locked: {error}"));
    }
    Ok(assembly)
}
