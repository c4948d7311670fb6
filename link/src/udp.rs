//! UDP over IPv4 and IPv6 on a non-blocking socket, in batches.
//!
//! Relies on: Linux with `sendmmsg`, `recvmmsg`, `IP_RECVERR`, `SO_RXQ_OVFL`, `SO_TIMESTAMPNS`. Packets are never split (don't-fragment is set)
//! and never cut (a datagram longer than a frame is dropped and counted). An IPv6 socket on `[::]` serves IPv4 peers too;
//! their addresses are IPv4 addresses here, never `::ffff:a.b.c.d`.
//!
//! **Errors belong to peers.** With `IP_RECVERR` the kernel keeps what the network reported about packets that had left, and
//! fails the next call with it, whomever that call is for. So such a failure is not the failure of the packet at hand: we read
//! the reports, turn them into [`LinkEvent`]s and try that packet again. A packet is dropped only for a refusal of its own.
//! With `IP_RECVERR` the kernel also admits that a full device queue dropped a packet (ENOBUFS), which we count.
//!
//! Leaves out: pacing (the link scheduler's), segmentation offload, multicast.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use laxity_core::frames::FrameId;
use laxity_core::units::{Duration, Instant};

use crate::staging::{MAX_RETRIES, Outcome, Staged, Staging};
use crate::sys::{self, Interest, NetworkError, ReceiveBatch, SendBatch, StableFrames, wait};
use crate::{Counters, Events, Link, LinkError, LinkEvent, LinkOver, Received};

/// The largest batch; the kernel's own limit for one call (UIO_MAXIOV).
pub const MAX_BATCH: usize = 1024;

/// Reports that are read from the error queue at a time: bounds the work that a flood of ICMP messages can cause.
const MAX_REPORTS: usize = 32;

/// How to make a [`Udp`] link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The local address; port 0 takes any.
    pub bind: SocketAddr,
    /// Frames per system call, and frames that can be staged: 1 to [`MAX_BATCH`].
    pub batch: usize,
    /// Bytes of the socket's receive buffer to ask for, at most 1 GiB; `None` leaves the system's default. The kernel charges
    /// its bookkeeping to it too: some 800 bytes for a small packet.
    pub receive_buffer_bytes: Option<usize>,
    /// Bytes of the socket's send buffer to ask for, likewise.
    pub send_buffer_bytes: Option<usize>,
    /// Whether to ask for the type of service of each datagram ([`Received::tos`]).
    pub receive_tos: bool,
}

impl UdpConfig {
    /// 4 MiB: a burst of some 5000 small packets.
    pub const DEFAULT_BUFFER_BYTES: usize = 4 << 20;

    /// Batches of 64 and buffers of [`DEFAULT_BUFFER_BYTES`](Self::DEFAULT_BUFFER_BYTES).
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            batch: 64,
            receive_buffer_bytes: Some(Self::DEFAULT_BUFFER_BYTES),
            send_buffer_bytes: Some(Self::DEFAULT_BUFFER_BYTES),
            receive_tos: false,
        }
    }
}

/// A UDP socket as a link. See the module for what happens to errors.
pub struct Udp {
    fd: OwnedFd,
    address: SocketAddr,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
    staging: Staging,
    send: SendBatch,
    receive: ReceiveBatch,
    /// Frames that wait for datagrams within one call of `receive`; empty between calls.
    armed: Vec<FrameId>,
    counters: Counters,
    /// The kernel's count of drops when it was last seen.
    drops: u32,
    stamps: Stamps,
    reports: Reports,
}

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Udp").field("address", &self.address).field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Udp {
    /// Binds a socket. Allocates now and never again.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn bind(config: &UdpConfig) -> Result<Self, LinkError> {
        let range = |field, found: usize, least: usize, most: usize| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(LinkError::Config { field, found: found as u64, least: least as u64, most: most as u64 })
            }
        };
        range("batch", config.batch, 1, MAX_BATCH)?;
        range("receive_buffer_bytes", config.receive_buffer_bytes.unwrap_or(1), 1, 1 << 30)?;
        range("send_buffer_bytes", config.send_buffer_bytes.unwrap_or(1), 1, 1 << 30)?;
        let endpoint = sys::open(config.bind, config.receive_buffer_bytes, config.send_buffer_bytes)?;
        if config.receive_tos {
            sys::receive_tos(endpoint.fd.as_fd(), endpoint.address.is_ipv6()).map_err(|source| LinkError::Kernel {
                address: config.bind,
                what: "IP_RECVTOS or IPV6_RECVTCLASS",
                source,
            })?;
        }
        Ok(Self {
            fd: endpoint.fd,
            address: endpoint.address,
            receive_buffer_bytes: endpoint.receive_buffer_bytes,
            send_buffer_bytes: endpoint.send_buffer_bytes,
            staging: Staging::new(config.batch),
            send: SendBatch::new(config.batch),
            receive: ReceiveBatch::new(config.batch),
            armed: Vec::with_capacity(config.batch),
            counters: Counters::default(),
            drops: 0,
            stamps: Stamps::default(),
            reports: Reports::new(),
        })
    }

    /// Sends packets of this class of the interface's queueing discipline from here on (SO_PRIORITY).
    ///
    /// # Errors
    /// The kernel's: a class needs CAP_NET_ADMIN.
    pub fn set_class(&self, class: u32) -> Result<(), LinkError> {
        sys::set_class(self.fd.as_fd(), class).map_err(|source| LinkError::Kernel {
            address: self.address,
            what: "SO_PRIORITY",
            source,
        })
    }

    /// Bytes of receive buffer that the kernel gave; less than what was asked for if `net.core.rmem_max` is less and the
    /// process lacks CAP_NET_ADMIN.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Bytes of send buffer that the kernel gave; the limit is `net.core.wmem_max`.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }
}

impl Link for Udp {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn room(&self) -> usize {
        self.staging.room()
    }

    fn transmit(&mut self, frame: FrameId, len: usize, peer: SocketAddr) {
        self.staging.push(Staged { frame, len, peer });
    }

    fn staged(&self) -> usize {
        self.staging.len()
    }

    fn wants_writable(&self) -> bool {
        self.staging.blocked()
    }

    fn wait(&mut self, doorbell: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
        let interest = if self.staging.blocked() { Interest::Both } else { Interest::Readable };
        let ready = wait(&[(doorbell, Interest::Readable), (self.fd.as_fd(), interest)], timeout)?;
        Ok(ready.readable(0))
    }

    fn inputs(&self) -> io::Result<Vec<BorrowedFd<'_>>> {
        Ok(vec![self.fd.as_fd()])
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        if self.reports.events.waiting.is_empty() {
            // An error while reading reports concerns no peer; the data path meets it too and says so.
            let _ = self.reports.drain(self.fd.as_fd());
        }
        self.reports.events.waiting.pop_front()
    }

    fn counters(&self) -> Counters {
        Counters { events_lost: self.reports.events.lost, send_too_large: self.reports.sent_too_large, ..self.counters }
    }
}

impl<F: StableFrames> LinkOver<F> for Udp {
    fn flush(&mut self, frames: &mut F) -> io::Result<usize> {
        let Self { fd, address, staging, send, counters, reports, .. } = self;
        let (socket, ipv6) = (fd.as_fd(), address.is_ipv6());
        let result = staging.flush(frames, counters, |ring, frames, attempt| {
            let messages = ring.iter().map(|staged| (&frames.packet(&staged.frame)[..staged.len], staged.peer));
            let error = match send.send(socket, ipv6, messages) {
                Ok(count) => {
                    // A batch ends early without saying why: it may have met, and swallowed, a report.
                    reports.pending |= count < ring.len();
                    return Ok(Outcome::Sent(count));
                }
                Err(error) => error,
            };
            let head = ring[0].peer;
            match class(&error) {
                Class::WouldBlock => Ok(Outcome::WouldBlock),
                // The descriptor is writable still, so whoever waits for that comes back at once.
                Class::Interrupted => Ok(Outcome::WouldBlock),
                Class::Report(errno) => {
                    reports.pending = true;
                    reports.drain(socket)?;
                    if attempt < MAX_RETRIES {
                        return Ok(Outcome::Retry);
                    }
                    if reports.pending {
                        // A flood of reports, too many for one call: they may explain it, so the packet stays.
                        return Ok(Outcome::WouldBlock);
                    }
                    // Nobody else's reports explain it: it is this packet's own.
                    if errno == libc::EMSGSIZE {
                        reports.sent_too_large += 1;
                        reports.events.push(LinkEvent::TooLarge { peer: head, mtu_bytes: reports.local_mtu_bytes });
                    } else {
                        reports.events.push(LinkEvent::Unreachable(head));
                    }
                    Ok(Outcome::Refused)
                }
                Class::Packet => Ok(Outcome::Refused),
                Class::Link => Err(error),
            }
        });
        // What a partial batch swallowed; without any, this is no system call.
        self.reports.drain(self.fd.as_fd())?;
        result
    }

    fn rewrite(&mut self, frames: &mut F, write: impl FnMut(&mut [u8])) {
        self.staging.rewrite(frames, write);
    }

    fn receive(&mut self, limit: usize, frames: &mut F, mut sink: impl FnMut(Received, &mut F)) -> io::Result<usize> {
        let (mut given, mut taken, mut retries) = (0, 0, 0);
        let batch = self.armed.capacity();
        // Each turn fills `taken`, counts a retry, or ends.
        while taken < limit {
            let wanted = batch.min(limit - taken);
            while self.armed.len() < wanted {
                match frames.take() {
                    Some(frame) => self.armed.push(frame),
                    None => break,
                }
            }
            let armed = self.armed.len();
            if armed == 0 {
                self.counters.receive_starved += 1;
                break;
            }
            let outcome = self.receive.receive(self.fd.as_fd(), frames, &self.armed);
            let filled = *outcome.as_ref().unwrap_or(&0);
            if filled > 0 {
                self.stamps.read();
            }
            while self.armed.len() > filled {
                if let Some(frame) = self.armed.pop() {
                    frames.free(frame);
                }
            }
            if let Err(error) = outcome {
                match class(&error) {
                    Class::WouldBlock => break,
                    Class::Interrupted | Class::Report(_) if retries < MAX_RETRIES => {
                        self.reports.pending = true;
                        self.reports.drain(self.fd.as_fd())?;
                        retries += 1;
                        continue;
                    }
                    Class::Interrupted | Class::Report(_) => break,
                    Class::Packet | Class::Link => return Err(error),
                }
            }
            taken += filled;
            for (index, frame) in self.armed.drain(..).enumerate() {
                let datagram = self.receive.datagram(index);
                if let Some(drops) = datagram.drops {
                    self.counters.receive_overflow += u64::from(drops.wrapping_sub(self.drops));
                    self.drops = drops;
                }
                if datagram.truncated {
                    self.counters.receive_truncated += 1;
                    frames.free(frame);
                    continue;
                }
                self.counters.received_frames += 1;
                self.counters.received_bytes += datagram.len as u64;
                given += 1;
                let arrived = datagram.stamp.and_then(|stamp| self.stamps.monotonic(stamp));
                sink(Received { frame, len: datagram.len, peer: datagram.peer, tos: datagram.tos, arrived }, frames);
            }
            if filled < armed {
                self.stamps.emptied();
            }
            if filled < armed || armed < wanted {
                break;
            }
        }
        Ok(given)
    }
}

/// The kernel stamps datagrams by CLOCK_REALTIME, which can be set.
#[derive(Debug, Default)]
struct Stamps {
    /// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, and on which reading of the latter; ns.
    ahead: i128,
    read_at: Instant,
    /// It was set, and datagrams may wait that were stamped before.
    doubtful: bool,
}

impl Stamps {
    /// CLOCK_REALTIME is slewed by no more than 500 ppm; twice that, and what reading two clocks takes, is no step.
    const SLEW: u64 = 1_000;
    const LEAST_STEP: Duration = Duration::from_millis(1);

    /// Datagrams were just taken.
    fn read(&mut self) {
        let (now, wall) = sys::now_and_wall();
        let ahead = i128::from(wall) - i128::from(now.as_nanos());
        let slewed = Self::LEAST_STEP + now.since(self.read_at).mul_ratio(1, Self::SLEW);
        self.doubtful |= (ahead - self.ahead).unsigned_abs() > u128::from(slewed.as_nanos());
        (self.ahead, self.read_at) = (ahead, now);
    }

    /// None wait: those to come are stamped by the clock as it is.
    fn emptied(&mut self) {
        self.doubtful = false;
    }

    /// A stamp on CLOCK_MONOTONIC.
    fn monotonic(&self, stamp: u64) -> Option<Instant> {
        let nanos = u64::try_from(i128::from(stamp) - self.ahead).ok()?;
        (!self.doubtful).then(|| Instant::from_nanos(nanos).min(self.read_at))
    }
}

/// What an error of a call says, and about what.
enum Class {
    /// Not now.
    WouldBlock,
    /// A signal came.
    Interrupted,
    /// Perhaps a report of the network about an earlier packet, to anybody; the errno.
    Report(i32),
    /// This packet will not go.
    Packet,
    /// The socket is of no use.
    Link,
}

fn class(error: &io::Error) -> Class {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Class::WouldBlock,
        Some(libc::EINTR) => Class::Interrupted,
        // What icmp_err_convert and icmpv6_err_convert of the kernel yield, beside what routing says itself.
        Some(
            errno @ (libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EACCES
            | libc::EMSGSIZE),
        ) => Class::Report(errno),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => Class::Link,
        Some(_) => Class::Packet,
    }
}

/// What the network reports of earlier packets.
struct Reports {
    events: Events,
    /// The socket's error queue may hold more. Left alone it would end every wait at once.
    pending: bool,
    /// What the kernel last said of the largest packet when it refused one of ours in the call; 0 before that.
    local_mtu_bytes: u32,
    sent_too_large: u64,
}

impl Reports {
    fn new() -> Self {
        Self { events: Events::new(), pending: false, local_mtu_bytes: 0, sent_too_large: 0 }
    }

    /// Reads at most [`MAX_REPORTS`] reports, if there may be any.
    fn drain(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if !self.pending {
            return Ok(());
        }
        for _ in 0..MAX_REPORTS {
            let report = match sys::next_error(socket) {
                Ok(report) => report,
                Err(error) => match class(&error) {
                    Class::Link => return Err(error),
                    _ => return Ok(()),
                },
            };
            let Some(NetworkError { peer, errno, local, info }) = report else {
                self.pending = false;
                return Ok(());
            };
            match (local, errno) {
                // The call failed too, and its packet is judged there.
                (true, libc::EMSGSIZE) => self.local_mtu_bytes = info,
                (true, _) => {}
                (false, libc::EMSGSIZE) => self.events.push(LinkEvent::TooLarge { peer, mtu_bytes: info }),
                (false, _) => self.events.push(LinkEvent::Unreachable(peer)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EVENT_CAPACITY;

    #[test]
    fn waiting_events_are_bounded_and_equal_ones_are_one() {
        let mut reports = Reports::new();
        for port in 0..=u16::try_from(EVENT_CAPACITY).unwrap() {
            for _ in 0..2 {
                reports.events.push(LinkEvent::Unreachable(SocketAddr::from(([127, 0, 0, 1], port))));
            }
        }
        assert_eq!((reports.events.waiting.len(), reports.events.lost), (EVENT_CAPACITY, 2));
    }

    #[test]
    fn links_move_to_the_executives_thread() {
        fn sendable<T: Send>() {}
        sendable::<Udp>();
    }
}
