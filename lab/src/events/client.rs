//! The client of all rows: a plain UDP socket that sends a message, and blocks until its answer is there.
//!
//! To a handler of Laxity it sends frames of a channel, by hand ([`attack::violator`](crate::attack::violator)), within its contract. The channel, and the one that answers
//! come on, was opened by a host of Laxity. Frames of a channel come from its host's port and answers go there, so the client's socket has that port, too, for a turn: it is
//! connected, and what comes from the server is its own then, that host's control frames included. They are few, and said again; the lease is longer than a turn.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration as StdDuration;

use laxity::Sender;
use laxity_core::regulator::Regulator;
use laxity_core::units::{Duration, Instant};
use laxity_core::wire::{DATA_HEADER_BYTES, DataHeader, micros_saturating};
use laxity_link::sys::{self, now};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::MESSAGE_BYTES;
use crate::attack::violator::frames_of;
use crate::sys::or_nothing;

/// A message without an answer for so long is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
/// The number of a message, and when the client was about to send it, at its beginning.
const NUMBER_BYTES: usize = 8;

/// The client that asks.
pub(super) struct Client {
    /// If its messages are those of a channel: the header of the next one, and what regulates it.
    channel: Option<(DataHeader, Regulator)>,
    number: u64,
    frame: [u8; DATA_HEADER_BYTES + MESSAGE_BYTES],
}

impl Client {
    /// Its messages are datagrams.
    pub(super) fn of_datagrams() -> Self {
        Self { channel: None, number: 0, frame: [0x5a; _] }
    }

    /// Its messages are those of a channel, whose contract has this interval.
    pub(super) fn of_channel(sender: &Sender, interval: Duration) -> Self {
        let (header, _) = frames_of(sender, 0);
        let header = DataHeader { payload: MESSAGE_BYTES as u16, ..header };
        Self { channel: Some((header, Regulator::new(interval))), ..Self::of_datagrams() }
    }

    /// Waits until all messages so far have reached their logical arrivals: the contract has room for a whole burst.
    pub(super) fn rest(&self) {
        let Some((_, regulator)) = &self.channel else { return };
        loop {
            let ahead = regulator.stamp(now()).ahead;
            if ahead.is_zero() {
                return;
            }
            // An error would be one of the arguments, and there are none.
            let _ = sys::wait(&mut [], Some(ahead));
        }
    }

    /// The datagram of the next message, which its application sends at `called`.
    fn next(&mut self, called: Instant) -> &[u8] {
        let message_at = self.message_at();
        let frame = &mut self.frame[..message_at + MESSAGE_BYTES];
        if let Some((header, regulator)) = &mut self.channel {
            let stamp = regulator.stamp(called);
            regulator.accept(stamp, 1);
            (header.logical_arrival, header.ahead_micros) = (stamp.logical_arrival, micros_saturating(stamp.ahead));
            header.write(frame).expect("the frame has room, and its fields are those of a channel");
            header.sequence += 1;
        }
        self.number += 1;
        let (number, rest) = frame[message_at..].split_at_mut(NUMBER_BYTES);
        number.copy_from_slice(&self.number.to_be_bytes());
        rest[..8].copy_from_slice(&called.as_nanos().to_be_bytes());
        frame
    }

    fn message_at(&self) -> usize {
        if self.channel.is_some() { DATA_HEADER_BYTES } else { 0 }
    }

    /// Sends a message, and waits for its answer: how long that took; `None` if it did not come.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn ask(&mut self, socket: &UdpSocket) -> io::Result<Option<Duration>> {
        let (message_at, called) = (self.message_at(), now());
        or_nothing(socket.send(self.next(called)))?;
        let (number, mut answer) = (self.number.to_be_bytes(), [0; DATA_HEADER_BYTES + MESSAGE_BYTES]);
        loop {
            let len = or_nothing(socket.recv(&mut answer))?;
            let took = now().since(called);
            let message = answer[..len].get(message_at..).filter(|message| message.len() == MESSAGE_BYTES);
            if message.is_some_and(|message| message[..NUMBER_BYTES] == number) {
                return Ok(Some(took));
            }
            if took >= LOST_AFTER {
                return Ok(None);
            }
        }
    }
}

/// The time at which the client was about to send this message.
pub(super) fn called_at(message: &[u8]) -> Option<Instant> {
    let nanos = message.get(NUMBER_BYTES..)?.first_chunk()?;
    Some(Instant::from_nanos(u64::from_be_bytes(*nanos)))
}

/// A UDP socket on `own`, connected to `peer`. If `own` is a port that was [`shared`](share), what `peer` sends comes to this one.
pub(super) fn socket(own: SocketAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &own)?;
    rustix::net::connect(&socket, &peer)?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(StdDuration::from_nanos(LOST_AFTER.as_nanos())))?;
    Ok(socket)
}

/// Lets other sockets have the port of the UDP socket that this process has on `address`, too (SO_REUSEADDR): a host of Laxity opens its own for itself alone.
pub(super) fn share(address: SocketAddr) -> io::Result<()> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_socket = fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_socket) else {
            continue;
        };
        let Ok(socket) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
        let bound = rustix::net::getsockname(&socket).ok().and_then(|bound| SocketAddr::try_from(bound).ok());
        if bound == Some(address) && sockopt::socket_type(&socket)? == SocketType::DGRAM {
            return Ok(sockopt::set_socket_reuseaddr(&socket, true)?);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no UDP socket of this process is bound to {address}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connected_socket_has_what_its_peer_sends_to_a_shared_port() {
        let host = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (peer, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (own, peer_address) = (host.local_addr().unwrap(), peer.local_addr().unwrap());
        assert_eq!(socket(own, peer_address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        share(own).unwrap();
        let mut found = [0; 8];
        let client = socket(own, peer_address).unwrap();
        for (from, to, said) in [(&peer, &client, b"to the client".as_slice()), (&other, &host, b"to the host")] {
            from.send_to(&said[..6], own).unwrap();
            assert_eq!(to.recv(&mut found).unwrap(), 6);
        }
        drop(client);
        peer.send_to(b"again", own).unwrap();
        assert_eq!(host.recv(&mut found).unwrap(), 5, "after the turn it is the host's again");
        assert_eq!(share("127.0.0.1:1".parse().unwrap()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_message_is_numbered_and_says_when_it_was_sent() {
        let mut client = Client::of_datagrams();
        for number in 1..3_u64 {
            let datagram = client.next(Instant::from_nanos(7)).to_vec();
            assert_eq!((datagram.len(), &datagram[..NUMBER_BYTES]), (MESSAGE_BYTES, &number.to_be_bytes()[..]));
            assert_eq!(called_at(&datagram), Some(Instant::from_nanos(7)));
        }
        assert_eq!(called_at(&[0; 15]), None);
    }
}
