//! Which servers there are, and the loops of those with a socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::MESSAGE_BYTES;
use crate::error::Error;
use crate::sys::{or_nothing, signals, uring};

/// The server that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Server {
    /// `recv` and `send`.
    Blocking,
    /// Behind `epoll_wait`.
    Epoll,
    /// Behind a queued signal for each datagram.
    Sigio,
    /// POSIX AIO, with a signal for each read.
    Aio,
    /// A multishot receive of io_uring.
    IoUring,
    /// A handler in the executive, over a UDP socket.
    LaxityUdp,
    /// The same over AF_XDP.
    LaxityXdp,
    /// A handler in the kernel, before that.
    LaxityKernel,
}

/// Waits until there may be a datagram.
pub(super) type Wait<'a> = Box<dyn FnMut() -> io::Result<()> + 'a>;

impl Server {
    /// In the order of the rows.
    pub const EACH: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// True if it is a handler of Laxity; else it is a program with a socket.
    pub fn is_laxity(self) -> bool {
        matches!(self, Self::LaxityUdp | Self::LaxityXdp | Self::LaxityKernel)
    }

    /// True if it is over AF_XDP.
    pub(super) fn is_over_xdp(self) -> bool {
        matches!(self, Self::LaxityXdp | Self::LaxityKernel)
    }

    /// True if this host has it.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check(self) -> Result<(), Error> {
        let found = if self == Self::IoUring { uring::check() } else { Ok(()) };
        found.map_err(Error::system("the kernel gives no io_uring of a single issuer with deferred work (Linux 6.1, kernel.io_uring_disabled = 0)"))
    }

    /// True if its socket blocks.
    pub(super) fn blocks(self) -> bool {
        matches!(self, Self::Blocking | Self::Aio | Self::IoUring)
    }

    /// The wait before it receives, on the thread that calls this; `None` if it does not wait separately.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn wait(self, socket: &UdpSocket) -> io::Result<Option<Wait<'_>>> {
        Ok(match self {
            Self::Blocking => Some(Box::new(|| Ok(()))),
            Self::Epoll => Some(Box::new(polled(socket)?)),
            Self::Sigio => Some(Box::new(signals::of_descriptor(socket.as_fd())?)),
            Self::Aio | Self::IoUring | Self::LaxityUdp | Self::LaxityXdp | Self::LaxityKernel => None,
        })
    }

    /// Answers every message that comes to its socket with itself, until a datagram comes that is none.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn serve(self, socket: &UdpSocket) -> io::Result<()> {
        match self.wait(socket)? {
            Some(wait) => echo(socket, wait),
            None if self == Self::IoUring => uring::echo(socket, MESSAGE_BYTES),
            None => signals::echo_by_aio(socket, MESSAGE_BYTES),
        }
    }
}

/// A wait until `socket` is readable.
fn polled(socket: &UdpSocket) -> io::Result<impl FnMut() -> io::Result<()>> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let mut events = Vec::with_capacity(1);
    Ok(move || {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None::<&Timespec>) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

fn echo(socket: &UdpSocket, mut wait: Wait<'_>) -> io::Result<()> {
    // One byte more, so that a longer datagram is seen to be none.
    let mut message = [0; MESSAGE_BYTES + 1];
    loop {
        wait()?;
        let echoed = match socket.recv(&mut message) {
            Ok(MESSAGE_BYTES) => socket.send(&message[..MESSAGE_BYTES]),
            Ok(_) => return Ok(()),
            Err(error) => Err(error),
        };
        or_nothing(echoed)?;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// POSIX AIO is not among them: its signal goes to a thread of the harness, where it is not blocked.
    #[test]
    fn messages_come_back_until_there_is_none() {
        for server in [Server::Blocking, Server::Epoll, Server::Sigio] {
            let [client, at] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            client.connect(at.local_addr().unwrap()).unwrap();
            at.connect(client.local_addr().unwrap()).unwrap();
            at.set_nonblocking(!server.blocks()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            thread::scope(|scope| {
                let served = scope.spawn(|| server.serve(&at));
                for number in 0..20 {
                    let mut found = [0; MESSAGE_BYTES];
                    client.send(&[number; MESSAGE_BYTES]).unwrap();
                    assert_eq!(client.recv(&mut found).unwrap(), MESSAGE_BYTES, "{server}");
                    assert_eq!(found, [number; MESSAGE_BYTES]);
                }
                client.send(&[0]).unwrap();
                served.join().unwrap().unwrap();
            });
        }
    }
}
