//! One question to the kernel at a time, and its answer.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::invalid;

/// The kernel answers while it is asked; this only ends what would wait for ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than the kernel puts into one datagram.
const DATAGRAM: usize = 64 << 10;
/// The number of times that a list is asked for that changed while it was read.
const TRIES: usize = 16;

/// A connection to the kernel's tables of one network namespace. One request at a time.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
    answer: Vec<u8>,
}

impl Netlink {
    /// Connects to the tables of the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0, answer: vec![0; DATAGRAM] })
    }

    /// Asks, and returns what was answered. `flags` beside "request" and "acknowledge".
    ///
    /// # Errors
    /// The kernel's refusal; `TimedOut`; `InvalidData`.
    pub(super) fn ask(&mut self, question: Message, flags: u16) -> io::Result<Vec<Message>> {
        let is_list = flags & NLM_F_DUMP == NLM_F_DUMP;
        for _ in 0..TRIES {
            let mut header = NetlinkHeader::default();
            self.sequence = self.sequence.wrapping_add(1);
            (header.flags, header.sequence_number) = (NLM_F_REQUEST | NLM_F_ACK | flags, self.sequence);
            let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question.clone()));
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
            if let Some(answers) = self.answers(is_list)? {
                return Ok(answers);
            }
        }
        Err(invalid("the kernel's table changes faster than it can be read"))
    }

    /// The answers to the last question; `None` if the list changed while it was read.
    fn answers(&mut self, is_list: bool) -> io::Result<Option<Vec<Message>>> {
        let (mut answers, mut is_whole) = (Vec::new(), true);
        loop {
            let length = self.receive()?;
            let is_ours = |message: &NetlinkBuffer<&[u8]>| message.sequence_number() == self.sequence;
            for message in messages(&self.answer[..length]).filter(is_ours) {
                is_whole &= message.flags() & NLM_F_DUMP_INTR == 0;
                match NetlinkMessage::<Message>::deserialize(message.into_inner()) {
                    Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(message), .. }) => answers.push(message),
                    Ok(NetlinkMessage { payload: NetlinkPayload::Error(error), .. }) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    Ok(NetlinkMessage { payload: NetlinkPayload::Done(done), .. }) if done.code != 0 => {
                        return Err(io::Error::from_raw_os_error(done.code.saturating_abs()));
                    }
                    // A list ends with "done", everything else with an acknowledgement.
                    Ok(NetlinkMessage { payload: NetlinkPayload::Done(_) | NetlinkPayload::Error(_), .. }) => {
                        return Ok(is_whole.then_some(answers));
                    }
                    Ok(_) => return Err(invalid("the kernel lost a part of its answer")),
                    // A device of a kind, or an attribute of a form, that the parser does not know.
                    Err(_) if is_list => {}
                    Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
                }
            }
        }
    }

    /// The length of the kernel's next datagram.
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            match self.socket.recv_from(&mut self.answer.as_mut_slice(), libc::MSG_TRUNC) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer (rtnetlink)"));
                }
                // Of another process.
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok((length, _)) if length > self.answer.len() => {
                    return Err(invalid("an answer of the kernel is longer than any should be"));
                }
                received => return received.map(|(length, _)| length),
            }
        }
    }
}

/// The messages of a datagram, up to the first that cannot be.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    std::iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(datagram).ok()?.length() as usize;
        let message = datagram.get(..length)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(NetlinkBuffer::new(message))
    })
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
