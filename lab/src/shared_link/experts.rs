//! The set-up of experts with kernel sockets on a link that others share, as the manuals have it: tc-pfifo_fast(8), tc-htb(8), and the guide
//! *Linux Advanced Routing & Traffic Control*, which puts the queue on the host by a rate just below the link's.
//!
//! In each the applications are those of [`crate::stack::tuned_udp`]: SCHED_FIFO, large buffers, a message in one system call, messages of a burst an
//! interval apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::network::{ADDRESSES, Network, each};
use super::{RATE_KBIT, Stack, by_deadline};
use crate::error::Error;
use crate::record::ArrivedMessage;
use crate::stack::datagram::{
    Assembler, Cutter, DatagramSource, HEADER_BYTES, Receiver, ReceivingSocket, Sender, SendingSocket,
};
use crate::stack::{Inlet, ReadyChannel, ReceivedCounts};
use crate::timing::Finally;
use crate::workload::{BEST_EFFORT, MESSAGE_BYTES, WorkloadRow};

/// The major number of the classes.
const HANDLE: u32 = 0x1_0000;
/// The rate that other programs have in any case with classes, kbit/s: a twentieth, as with Laxity's guard.
const FLOOR_KBIT: u64 = RATE_KBIT / 20;
/// The rate that best effort has in any case: little, so that it comes before no stream that borrows.
const BEST_EFFORT_KBIT: u64 = 1_000;
/// The burst that the guide gives to classes that are to have their rate at once: as much as late timers lose. Some 1.2 ms of the link.
const BURST: &str = " burst 15k cburst 15k";
/// The class of the real-time streams together, of the first one alone, of best effort, and of what other programs send.
const TOGETHER: u32 = 0x10;
const OF_ITS_OWN: u32 = 0x11;
const OF_BEST_EFFORT: u32 = 0x20;
const OF_OTHERS: u32 = 0x30;
/// TC_PRIO_INTERACTIVE, the first band of pfifo_fast.
const FIRST_BAND: u32 = 6;
/// Bytes of the headers of UDP, IPv4 and Ethernet, as the kernel counts a packet.
const HEADERS: u64 = 42;

/// The commands of a set-up, for streams with these contracts and packets of at most so much payload.
pub(super) fn commands(stack: Stack, rows: &[WorkloadRow], payload: usize) -> Vec<String> {
    let class = |id: u32, rate: u64, priority: usize, burst: &str| {
        format!(
            "tc class add dev a0 parent 1:1 classid 1:{id:x} htb rate {rate}kbit ceil {RATE_KBIT}kbit prio {priority}{burst}"
        )
    };
    let link = [
        format!("tc qdisc add dev a0 root handle 1: htb default {OF_OTHERS:x}"),
        format!("tc class add dev a0 parent 1: classid 1:1 htb rate {RATE_KBIT}kbit ceil {RATE_KBIT}kbit{BURST}"),
    ];
    // A tenth more than each needs.
    let needed = |row: &WorkloadRow| {
        let bytes = wire_bytes(row.contract.max_message(), payload as u32);
        bytes * 8 * 1_100_000 / row.contract.interval().as_nanos()
    };
    // Best effort borrows what streams leave before what other programs send does.
    let rest = |priority| {
        [class(OF_BEST_EFFORT, BEST_EFFORT_KBIT, priority, ""), class(OF_OTHERS, FLOOR_KBIT, priority + 1, "")]
    };
    match stack {
        Stack::PfifoFast => vec![
            format!("tc qdisc add dev a0 root handle 1: tbf rate {RATE_KBIT}kbit burst 3028 limit 150000"),
            "tc qdisc add dev a0 parent 1:1 handle 10: pfifo_fast".to_owned(),
        ],
        Stack::HtbClass => {
            [&link[..], &[class(TOGETHER, RATE_KBIT - FLOOR_KBIT - BEST_EFFORT_KBIT, 0, BURST)], &rest(1)].concat()
        }
        Stack::HtbStreams => {
            let classes = by_deadline(rows).into_iter().enumerate().map(|(priority, number)| {
                // With a longer burst than the usual one, several classes would send at once at the link's rate, and wait behind it in the order in which
                // they came.
                class(OF_ITS_OWN + number as u32, needed(&rows[number]), priority, "")
            });
            link.into_iter().chain(classes).chain(rest(rows.len())).collect()
        }
        Stack::LaxityUdp | Stack::LaxityXdp | Stack::LaxityXdpLag => Vec::new(),
    }
}

/// The bytes that a message takes of a link, as the kernel counts it, in packets of at most so much payload.
pub(super) fn wire_bytes(message: u32, payload: u32) -> u64 {
    u64::from(message) + u64::from(message.div_ceil(payload)) * (HEADERS + HEADER_BYTES as u64)
}

/// Sets the queues up, and opens sockets for the streams and for best effort. What comes with these takes the queues away again when it goes.
pub(super) fn open(
    network: &Network,
    stack: Stack,
    rows: &[WorkloadRow],
    payload: usize,
    best_effort: &Arc<AtomicU64>,
) -> Result<(Vec<ReadyChannel>, Finally<impl FnMut()>), Error> {
    let set_up = Finally(|| _ = network.hosts.run(0, || each(&["tc qdisc del dev a0 root"])));
    network.hosts.run(0, || each(&commands(stack, rows, payload)))?;
    let most = HEADER_BYTES + payload;
    let contracts = rows.iter().map(|row| (row.name.clone(), Some(row.contract)));
    let mut channels = Vec::new();
    for (number, (name, contract)) in contracts.chain([(BEST_EFFORT.to_owned(), None)]).enumerate() {
        let incoming = network.hosts.run(1, || ReceivingSocket::bind(ADDRESSES[1], most))?;
        let to = incoming.address();
        let outgoing = network.hosts.run(0, || SendingSocket::bind(ADDRESSES[0], to, most))?;
        let priority = match (contract, stack) {
            (Some(_), Stack::PfifoFast) => FIRST_BAND,
            (None, Stack::PfifoFast) => 0,
            (None, _) => HANDLE + OF_BEST_EFFORT,
            (Some(_), Stack::HtbClass) => HANDLE + TOGETHER,
            (Some(_), _) => HANDLE + OF_ITS_OWN + number as u32,
        };
        outgoing.link.set_class(priority)?;
        let cutter = Cutter { channel: number as u32, message_bytes: MESSAGE_BYTES as usize, payload };
        let inlet: Box<dyn Inlet> = match contract {
            Some(_) => Box::new(Receiver { incoming, assembler: Assembler::new(cutter) }),
            None => Box::new(Counting { incoming, bytes: Arc::clone(best_effort) }),
        };
        let outlet = Box::new(Sender { outgoing, cutter, paced: contract.is_some(), sent: 0 });
        channels.push(ReadyChannel { name, contract, outlet, inlet });
    }
    Ok((channels, set_up))
}

/// Counts what comes of best effort, datagram by datagram: of a message of many there is rarely a whole one where queues drop.
struct Counting {
    incoming: ReceivingSocket,
    bytes: Arc<AtomicU64>,
}

impl Inlet for Counting {
    fn run(
        mut self: Box<Self>,
        _: &mut dyn FnMut(ArrivedMessage, &[u8]),
        stop: &AtomicBool,
    ) -> Result<ReceivedCounts, Error> {
        while !stop.load(Ordering::Relaxed) {
            let bytes = &self.bytes;
            self.incoming.receive(|datagram| {
                let payload = datagram.len().saturating_sub(HEADER_BYTES);
                bytes.fetch_add(payload as u64, Ordering::Relaxed);
            })?;
        }
        Ok(ReceivedCounts::Numbers { lost: 0, next: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::table_3;

    #[test]
    fn set_ups_are_as_the_manuals_have_them() {
        let rows = table_3();
        let one = commands(Stack::HtbClass, &rows, 1_400);
        assert_eq!(
            one[2..],
            [
                "tc class add dev a0 parent 1:1 classid 1:10 htb rate 93620kbit ceil 99600kbit prio 0 burst 15k cburst 15k",
                "tc class add dev a0 parent 1:1 classid 1:20 htb rate 1000kbit ceil 99600kbit prio 1",
                "tc class add dev a0 parent 1:1 classid 1:30 htb rate 4980kbit ceil 99600kbit prio 2",
            ]
        );
        // 61,440 bytes in 44 packets with 66 around each: 64,344 in 30 ms are 17.16 Mbit/s, and a tenth more 18.87. The shortest deadline comes first, best effort last.
        let each = commands(Stack::HtbStreams, &rows, 1_400);
        let classes: Vec<&str> =
            each.iter().filter_map(|command| command.split_once("classid 1:")).map(|(_, of)| of).collect();
        assert_eq!(
            classes,
            [
                "1 htb rate 99600kbit ceil 99600kbit burst 15k cburst 15k",
                "12 htb rate 18874kbit ceil 99600kbit prio 0",
                "13 htb rate 18874kbit ceil 99600kbit prio 1",
                "11 htb rate 11324kbit ceil 99600kbit prio 2",
                "20 htb rate 1000kbit ceil 99600kbit prio 3",
                "30 htb rate 4980kbit ceil 99600kbit prio 4",
            ]
        );
        assert!(commands(Stack::LaxityUdp, &rows, 1_400).is_empty());
    }
}
