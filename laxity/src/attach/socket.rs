//! Whole messages over a Unix socket, each with up to two descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use laxity_link::sys::{PeerCredentials, peer_credentials, readable, refuse_descriptors, wait};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a message, at most.
pub(super) const MOST: usize = 64 << 10;
/// The time that the serving side may take to read, or to accept.
const TO_ANSWER: Duration = Duration::from_secs(5);
/// Descriptors of a message, at most.
const DESCRIPTORS: usize = 2;

/// One end of a connection.
pub(crate) struct Socket {
    socket: OwnedFd,
    /// True on the side that trusts the other one: a send may wait for room for a while, and descriptors are received.
    trusts: bool,
}

fn open() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Listens at a path. Where the kernel can, it keeps descriptors from being sent to the sockets that are accepted: to close one that was not
/// received would take as long as its sender wants.
pub(crate) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let socket = open()?;
    let _ = refuse_descriptors(socket.as_fd());
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

/// True if a message was not sent because it is longer than one may be: that says nothing of the other side.
pub(crate) fn is_too_long(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}

impl Socket {
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = open()?;
        // For a place in its queue, and for room in the socket.
        set_socket_timeout(&socket, Timeout::Send, Some(TO_ANSWER))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket, trusts: true })
    }

    /// One end of a pair.
    #[cfg(test)]
    pub(crate) fn of(socket: OwnedFd, trusts: bool) -> Self {
        Self { socket, trusts }
    }

    pub(crate) fn accept(listener: &OwnedFd) -> io::Result<Self> {
        let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
        // What is told waits here while the other side does not read; beyond that it is taken for gone.
        set_socket_send_buffer_size(&socket, 1 << 20)?;
        Ok(Self { socket, trusts: false })
    }

    /// The process and the user at the other end, as the kernel says.
    pub(crate) fn peer(&self) -> io::Result<PeerCredentials> {
        peer_credentials(self.socket.as_fd())
    }

    /// Nothing comes any more, and nothing goes.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sends a message. The side that serves does not wait for room.
    ///
    /// # Errors
    /// The other side is gone, or does not read; or the message is too long ([`is_too_long`]).
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MOST {
            return Err(Errno::MSGSIZE.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = if self.trusts { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
        Ok(())
    }

    /// As [`Self::receive`], until then.
    ///
    /// # Errors
    /// As [`Self::receive`], and if no message came.
    pub(crate) fn receive_until<T: DeserializeOwned>(&self, until: Instant) -> io::Result<(T, Vec<OwnedFd>)> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(None, left)? {
                Some(message) => return Ok(message),
                None if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                // A signal came.
                None => {}
            }
        }
    }

    /// The next message; waits for it at most `timeout`, and no longer than `other` has nothing.
    ///
    /// Descriptors come only to the side that trusts the other one. Elsewhere the kernel drops them: to close a descriptor may take as long
    /// as its sender wants, for example if it is of a file whose file system is that sender's.
    ///
    /// # Errors
    /// The other side is gone, as if it had not accepted; it sent something that is no such message; [`io::ErrorKind::PermissionDenied`] if it has
    /// descriptors that do not come.
    pub(crate) fn receive<T: DeserializeOwned>(
        &self,
        other: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        // One that is just going accepts, and closes.
        let gone = || Err(io::ErrorKind::ConnectionRefused.into());
        let own = self.socket.as_fd();
        let mut waited = [own, other.unwrap_or(own)].map(readable);
        let found = wait(&mut waited[..1 + usize::from(other.is_some())], Some(timeout.into()))?;
        if found == 0 || !waited[1].revents().is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; MOST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(if self.trusts { &mut space[..] } else { &mut [] });
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        // A side that goes with messages that it did not read resets the connection. That is told once, before what it said last.
        let mut is_reset = false;
        let received = loop {
            match rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
                Ok(received) => break received,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(Errno::CONNRESET) if !std::mem::replace(&mut is_reset, true) => {}
                Err(Errno::CONNRESET | Errno::PIPE) => return gone(),
                Err(error) => return Err(error.into()),
            }
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return gone();
        }
        if !self.trusts && received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a message has descriptors"));
        }
        if received.flags.contains(ReturnFlags::TRUNC) || received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, descriptors)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::net::socketpair;

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    /// Also where the kernel lets them be sent.
    #[test]
    fn descriptors_come_only_to_the_side_that_trusts() {
        for trusts in [false, true] {
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            let (here, there) = (Socket::of(pair.0, trusts), Socket::of(pair.1, true));
            let (mut reads, writes) = io::pipe().unwrap();
            there.send(&"bare", &[]).unwrap();
            there.send(&"with", &[writes.as_fd()]).unwrap();
            drop(writes);
            assert!(matches!(here.receive::<String>(None, WAIT), Ok(Some(_))));
            match here.receive::<String>(None, WAIT) {
                Ok(Some((text, descriptors))) => assert_eq!((trusts, &*text, descriptors.len()), (true, "with", 1)),
                Ok(None) => panic!("nothing came"),
                Err(error) => assert_eq!((trusts, error.kind()), (false, io::ErrorKind::PermissionDenied)),
            }
            assert_eq!(reads.read(&mut [0; 1]).unwrap(), 0, "it is closed");
        }
    }
}
