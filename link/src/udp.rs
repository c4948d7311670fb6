//! UDP over IPv4 and IPv6 on a non-blocking socket, in batches.
//!
//! Relies on: Linux with `sendmmsg`, `recvmmsg`, `IP_RECVERR`, `SO_RXQ_OVFL`, `SO_TIMESTAMPNS`. Packets are never split (don't-fragment is set)
//! and never cut (a datagram longer than a frame is dropped and counted). An IPv6 socket on `[::]` serves IPv4 peers too;
//! their addresses are IPv4 addresses here, never `::ffff:a.b.c.d`.
//!
//! **Errors belong to peers.** With `IP_RECVERR` the kernel keeps what the network reported about packets that had left, and
//! fails the next call with it, to whichever peer that call sends. So such a failure is not the failure of the packet at hand: we read
//! the reports, turn them into [`LinkEvent`]s and try that packet again. A packet is dropped only for a refusal of its own.
//! With `IP_RECVERR` the kernel also admits that a full device queue dropped a packet (ENOBUFS), which we count.
//!
//! Leaves out: pacing (the link scheduler's), segmentation offload, multicast.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use laxity_core::frames::{FrameId, Frames};
use laxity_core::units::{Duration, Instant};

use crate::sys::{
    self, Batch, BoundSocket, NetworkError, PollFd, PollFlags, StableFrames, WallReading, readable, wait,
};
use crate::transmit_queue::{QueuedPacket, TransmitQueue};
use crate::{Counters, Link, LinkError, LinkEvent, LinkOver, OutOfRange, PendingEvents, Received};

/// The largest batch; the kernel's own limit for one call (UIO_MAXIOV).
pub const MAX_BATCH: usize = 1024;

/// The number of times that a packet is tried again after a report that may concern another peer. Each such report is taken off the
/// socket, so more than a few in a row mean that they are this packet's own.
const MAX_RETRIES: u32 = 3;

/// Reports that are read from the error queue at a time: bounds the work that a flood of ICMP messages can cause.
const MAX_REPORTS: usize = 32;

/// The parameters of a [`Udp`] link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The local address; port 0 takes any.
    pub bind: SocketAddr,
    /// Frames per system call, and frames that can be buffered: 1 to [`MAX_BATCH`].
    pub batch: usize,
    /// Bytes of the socket's receive buffer to ask for, 1 to 1 GiB. The kernel charges its bookkeeping to it too: some 800
    /// bytes for a small packet.
    pub receive_buffer_bytes: usize,
    /// Bytes of the socket's send buffer to ask for, likewise.
    pub send_buffer_bytes: usize,
    /// True to ask for the type of service of each datagram ([`Received::tos`]).
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
            receive_buffer_bytes: Self::DEFAULT_BUFFER_BYTES,
            send_buffer_bytes: Self::DEFAULT_BUFFER_BYTES,
            receive_tos: false,
        }
    }
}

/// A UDP socket as a link. See the module for the treatment of errors.
pub struct Udp {
    socket: BoundSocket,
    transmit_queue: TransmitQueue,
    send: Batch,
    receive: Batch,
    /// Frames that wait for datagrams within one call of `receive`; empty between calls.
    armed: Vec<FrameId>,
    pub(crate) counters: Counters,
    /// The kernel's count of drops when it was last seen.
    drops: u32,
    stamps: KernelStamps,
    reports: ErrorReports,
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

impl Udp {
    /// Binds a socket. Allocates now and never again.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn bind(config: &UdpConfig) -> Result<Self, LinkError> {
        for (field, found, most) in [
            ("batch", config.batch, MAX_BATCH),
            ("receive_buffer_bytes", config.receive_buffer_bytes, 1 << 30),
            ("send_buffer_bytes", config.send_buffer_bytes, 1 << 30),
        ] {
            OutOfRange::check(field, found as u64, 1, most as u64).map_err(LinkError::Config)?;
        }
        // Before anything can arrive.
        let stamps = KernelStamps::new(sys::wall_reading());
        let socket = sys::open(config.bind, config.receive_buffer_bytes, config.send_buffer_bytes)?;
        if config.receive_tos {
            sys::receive_tos(socket.fd.as_fd(), socket.address.is_ipv6()).map_err(|source| LinkError::Kernel {
                address: config.bind,
                what: "IP_RECVTOS or IPV6_RECVTCLASS",
                source,
            })?;
        }
        Ok(Self {
            socket,
            transmit_queue: TransmitQueue::new(config.batch),
            send: Batch::new(config.batch),
            receive: Batch::new(config.batch),
            armed: Vec::with_capacity(config.batch),
            counters: Counters::default(),
            drops: 0,
            stamps,
            reports: ErrorReports::new(),
        })
    }

    /// Sends packets of this class of the interface's queueing discipline from here on (SO_PRIORITY).
    ///
    /// # Errors
    /// The kernel's: a class needs CAP_NET_ADMIN.
    pub fn set_class(&self, class: u32) -> Result<(), LinkError> {
        sys::set_class(self.socket.fd.as_fd(), class).map_err(|source| LinkError::Kernel {
            address: self.socket.address,
            what: "SO_PRIORITY",
            source,
        })
    }

    /// Bytes of receive buffer that the kernel gave; less than what was asked for if `net.core.rmem_max` is less and the
    /// process lacks CAP_NET_ADMIN.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.socket.receive_buffer_bytes
    }

    /// Bytes of send buffer that the kernel gave; the limit is `net.core.wmem_max`.
    pub fn send_buffer_bytes(&self) -> usize {
        self.socket.send_buffer_bytes
    }
}

impl Udp {
    /// Offers what is buffered to the kernel until nothing is left or it would block; returns how many it took.
    ///
    /// Ends after at most `batch · (1 + MAX_RETRIES)` calls: each sends, drops, stops or counts against the retries of the head.
    fn send_buffered<F: Frames>(&mut self, frames: &mut F) -> io::Result<usize> {
        let Self { socket, transmit_queue: TransmitQueue { ring, blocked, .. }, send, counters, reports, .. } = self;
        let (socket, ipv6) = (socket.fd.as_fd(), socket.address.is_ipv6());
        let (mut sent, mut retries) = (0, 0);
        *blocked = false;
        while let Some(&QueuedPacket { peer: head, .. }) = ring.front() {
            let messages = ring.iter().map(|buffered| (&frames.packet(&buffered.frame)[..buffered.len], buffered.peer));
            let error = match send.send(socket, ipv6, messages) {
                Ok(count) => {
                    // A batch ends early without saying why: it may have met, and swallowed, a report.
                    reports.pending |= count < ring.len();
                    for buffered in ring.drain(..count) {
                        counters.sent_frames += 1;
                        counters.sent_bytes += buffered.len as u64;
                        frames.free(buffered.frame);
                    }
                    (sent, retries) = (sent + count, 0);
                    continue;
                }
                Err(error) => error,
            };
            match class(&error) {
                // After a signal, too: the descriptor is writable still, so a thread that waits for that comes back at once.
                ErrorClass::WouldBlock | ErrorClass::Interrupted => {
                    *blocked = true;
                    break;
                }
                ErrorClass::Report(errno) => {
                    reports.pending = true;
                    reports.drain(socket)?;
                    if retries < MAX_RETRIES {
                        retries += 1;
                        continue;
                    }
                    if reports.pending {
                        // A flood of reports, too many for one call: they may explain it, so the packet stays.
                        *blocked = true;
                        break;
                    }
                    // No report about another packet explains it: it is this packet's own.
                    if errno == libc::EMSGSIZE {
                        reports.sent_too_large += 1;
                        reports.events.push(LinkEvent::TooLarge { peer: head, mtu_bytes: reports.local_mtu_bytes });
                    } else {
                        reports.events.push(LinkEvent::Unreachable(head));
                    }
                }
                ErrorClass::Packet => {}
                ErrorClass::Link => return Err(error),
            }
            // It will never be taken.
            if let Some(refused) = ring.pop_front() {
                counters.send_dropped += 1;
                frames.free(refused.frame);
            }
            retries = 0;
        }
        Ok(sent)
    }
}

impl Link for Udp {
    fn local_address(&self) -> SocketAddr {
        self.socket.address
    }

    fn room(&self) -> usize {
        self.transmit_queue.room()
    }

    fn transmit(&mut self, frame: FrameId, len: usize, peer: SocketAddr) {
        self.transmit_queue.push(QueuedPacket { frame, len, peer });
    }

    fn buffered(&self) -> usize {
        self.transmit_queue.ring.len()
    }

    fn wants_writable(&self) -> bool {
        self.transmit_queue.blocked
    }

    fn wait(&mut self, doorbell: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, self.transmit_queue.blocked);
        let mut waited = [readable(doorbell), PollFd::new(&self.socket.fd, events)];
        wait(&mut waited, timeout)?;
        Ok(!waited[0].revents().is_empty())
    }

    fn inputs(&self) -> io::Result<Vec<BorrowedFd<'_>>> {
        Ok(vec![self.socket.fd.as_fd()])
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        if self.reports.events.waiting.is_empty() {
            // An error while reading reports concerns no peer; the data path meets it too and says so.
            let _ = self.reports.drain(self.socket.fd.as_fd());
        }
        self.reports.events.waiting.pop_front()
    }

    fn counters(&self) -> Counters {
        let send_too_large = self.counters.send_too_large + self.reports.sent_too_large;
        Counters { events_lost: self.reports.events.lost, send_too_large, ..self.counters }
    }
}

impl<F: StableFrames> LinkOver<F> for Udp {
    fn flush(&mut self, frames: &mut F) -> io::Result<usize> {
        let sent = self.send_buffered(frames);
        // What a partial batch swallowed; without any, this is no system call.
        self.reports.drain(self.socket.fd.as_fd())?;
        sent
    }

    fn rewrite(&mut self, frames: &mut F, write: impl FnMut(&mut [u8])) {
        self.transmit_queue.rewrite(frames, write);
    }

    fn receive(&mut self, limit: usize, frames: &mut F, mut sink: impl FnMut(Received, &mut F)) -> io::Result<usize> {
        let (mut given, mut taken, mut retries) = (0, 0, 0);
        let batch = self.armed.capacity();
        // Each turn fills `taken`, counts a retry, or ends.
        while taken < limit {
            let wanted = batch.min(limit - taken);
            self.armed.extend(std::iter::from_fn(|| frames.take()).take(wanted));
            let armed = self.armed.len();
            if armed == 0 {
                self.counters.receive_starved += 1;
                break;
            }
            let outcome = self.receive.receive(self.socket.fd.as_fd(), frames, &self.armed);
            let filled = *outcome.as_ref().unwrap_or(&0);
            if filled > 0 {
                self.stamps.read(sys::wall_reading());
            }
            self.armed.drain(filled..).rev().for_each(|frame| frames.free(frame));
            if let Err(error) = outcome {
                match class(&error) {
                    ErrorClass::WouldBlock => break,
                    ErrorClass::Interrupted | ErrorClass::Report(_) if retries < MAX_RETRIES => {
                        self.reports.pending = true;
                        self.reports.drain(self.socket.fd.as_fd())?;
                        retries += 1;
                        continue;
                    }
                    ErrorClass::Interrupted | ErrorClass::Report(_) => break,
                    ErrorClass::Packet | ErrorClass::Link => return Err(error),
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

/// The kernel stamps datagrams by CLOCK_REALTIME. CLOCK_MONOTONIC is slewed as that is, so how far apart they are changes only when the former is
/// set. A datagram that waits was stamped between two readings of both: before the call that found the queue empty last, and after the one that
/// took it. Of all readings from the first to the second the least difference gives the latest arrival, so no stamp is before the true arrival
/// unless the clock was set and set back between two readings.
struct KernelStamps {
    last: WallReading,
    last_but_one: WallReading,
    /// The least time by which CLOCK_REALTIME was ahead by the readings of a datagram that waits, ns.
    least: i128,
    /// The largest difference and the smallest one that some reading permits: no difference agrees with all readings if they cross.
    agreed: [i128; 2],
}

impl KernelStamps {
    /// Differences of readings that agree as well as this are no step, ns: what a step that small may add to an arrival.
    const TOLERANCE: i128 = 2_000;

    fn new(reading: WallReading) -> Self {
        let mut new = Self { last: reading, last_but_one: reading, least: 0, agreed: [0; 2] };
        new.emptied();
        new
    }

    /// Datagrams were just taken.
    fn read(&mut self, reading: WallReading) {
        (self.last_but_one, self.last) = (self.last, reading);
        self.least = self.least.min(reading.least_ahead);
        let [largest, smallest] = self.agreed;
        self.agreed = [largest.max(reading.least_ahead), smallest.min(reading.most_ahead)];
    }

    /// None waits that came before the last call, and that was after the last reading but one.
    fn emptied(&mut self) {
        let [before, after] = [self.last_but_one, self.last];
        self.least = before.least_ahead.min(after.least_ahead);
        self.agreed = [before.least_ahead.max(after.least_ahead), before.most_ahead.min(after.most_ahead)];
    }

    /// A stamp on CLOCK_MONOTONIC, not after the last reading; `None` if the clock was set since it can have been made.
    fn monotonic(&self, stamp: u64) -> Option<Instant> {
        let [largest, smallest] = self.agreed;
        let nanos = u64::try_from(i128::from(stamp) - self.least).ok()?;
        (largest <= smallest + Self::TOLERANCE).then(|| sys::from_kernel(Instant::from_nanos(nanos).min(self.last.at)))
    }
}

/// The meaning of a call's error, and the packet or link that it is about.
enum ErrorClass {
    /// Not now.
    WouldBlock,
    /// A signal came.
    Interrupted,
    /// Perhaps a report of the network about an earlier packet, to any peer; the errno.
    Report(i32),
    /// This packet will not go.
    Packet,
    /// The socket is of no use.
    Link,
}

fn class(error: &io::Error) -> ErrorClass {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => ErrorClass::WouldBlock,
        Some(libc::EINTR) => ErrorClass::Interrupted,
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
        ) => ErrorClass::Report(errno),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) | None => ErrorClass::Link,
        Some(_) => ErrorClass::Packet,
    }
}

/// The network's reports about earlier packets.
struct ErrorReports {
    events: PendingEvents,
    /// The socket's error queue may hold more. Left alone it would end every wait at once.
    pending: bool,
    /// The largest packet that the kernel last named when it refused one of ours in the call; 0 before that.
    local_mtu_bytes: u32,
    sent_too_large: u64,
}

impl ErrorReports {
    fn new() -> Self {
        Self { events: PendingEvents::new(), pending: false, local_mtu_bytes: 0, sent_too_large: 0 }
    }

    /// Reads at most [`MAX_REPORTS`] reports, if there may be any.
    fn drain(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if !self.pending {
            return Ok(());
        }
        for _ in 0..MAX_REPORTS {
            let report = match sys::next_error(socket) {
                Ok(report) => report,
                Err(error) if matches!(class(&error), ErrorClass::Link) => return Err(error),
                Err(_) => return Ok(()),
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
        let mut reports = ErrorReports::new();
        for port in 0..=u16::try_from(EVENT_CAPACITY).unwrap() {
            for _ in 0..2 {
                reports.events.push(LinkEvent::Unreachable(SocketAddr::from(([127, 0, 0, 1], port))));
            }
        }
        assert_eq!((reports.events.waiting.len(), reports.events.lost), (EVENT_CAPACITY, 2));
    }

    /// A reading at `at` of a CLOCK_REALTIME that is `ahead`, which took 100 ns.
    fn reading(at: u64, ahead: i128) -> WallReading {
        WallReading { at: Instant::from_nanos(at), least_ahead: ahead - 100, most_ahead: ahead }
    }

    const AHEAD: i128 = 1_700_000_000_000_000_000;

    /// The arrival time of a datagram that came at `at` while CLOCK_REALTIME was `ahead`.
    fn stamped(stamps: &KernelStamps, at: u64, ahead: i128) -> Option<u64> {
        stamps.monotonic(u64::try_from(i128::from(at) + ahead).unwrap()).map(Instant::as_nanos)
    }

    #[test]
    fn a_stamp_is_not_before_the_arrival_and_hardly_after_it() {
        let mut stamps = KernelStamps::new(reading(1_000, AHEAD));
        stamps.read(reading(50_000, AHEAD + 30));
        assert_eq!(stamped(&stamps, 40_000, AHEAD), Some(40_100));
        assert_eq!(stamped(&stamps, 49_990, AHEAD), Some(50_000), "not after the reading");
        // A reading that was interrupted says less, and nothing wrong.
        stamps.read(WallReading { at: Instant::from_nanos(900_000), least_ahead: AHEAD - 400_000, most_ahead: AHEAD });
        assert_eq!(stamped(&stamps, 60_000, AHEAD), Some(460_000));
        for at in [980_000, 1_000_000, 1_100_000] {
            stamps.emptied();
            stamps.read(reading(at, AHEAD));
        }
        assert_eq!(stamped(&stamps, 1_050_000, AHEAD), Some(1_050_100));
    }

    #[test]
    fn what_was_stamped_by_a_clock_that_was_set_since_has_no_stamp() {
        for step in [-1_000_000_000, -1_000_000, -5_000, 5_000, 900_000, 1_000_000_000] {
            let mut stamps = KernelStamps::new(reading(1_000, AHEAD));
            stamps.read(reading(50_000, AHEAD + step));
            assert_eq!(stamped(&stamps, 40_000, AHEAD), None, "{step}");
            // More wait.
            stamps.read(reading(60_000, AHEAD + step));
            assert_eq!(stamped(&stamps, 45_000, AHEAD), None, "{step}");
            stamps.emptied();
            stamps.read(reading(70_000, AHEAD + step));
            assert_eq!(stamped(&stamps, 65_000, AHEAD + step), Some(65_100), "{step}");
        }
    }

    #[test]
    fn a_clock_that_is_set_between_the_call_and_the_reading_is_noticed() {
        let mut stamps = KernelStamps::new(reading(1_000, AHEAD));
        // The call found the queue empty at 49,000; another datagram came, the clock was set, and then both were read.
        stamps.read(reading(50_000, AHEAD + 900_000));
        stamps.emptied();
        stamps.read(reading(60_000, AHEAD + 900_000));
        assert_eq!(stamped(&stamps, 49_500, AHEAD), None);
    }

    #[test]
    fn a_step_that_cannot_be_told_from_a_slow_reading_gives_the_later_arrival() {
        for step in [-1_500, -50, 50, 1_500] {
            let mut stamps = KernelStamps::new(reading(1_000, AHEAD));
            stamps.read(reading(50_000, AHEAD + step));
            for ahead in [AHEAD, AHEAD + step] {
                let found = stamped(&stamps, 40_000, ahead).unwrap();
                assert!((40_000..=42_000).contains(&found), "{step}: {found}");
            }
        }
    }

    #[test]
    fn an_error_of_the_link_keeps_everything() {
        let mut link = Udp::bind(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let mut frames = laxity_core::frames::HeapFrames::new(2, 16);
        let to = link.local_address();
        for len in 0..2 {
            link.transmit(frames.take().unwrap(), len, to);
        }
        // ENOTSOCK.
        link.socket.fd = std::fs::File::open("/dev/null").unwrap().into();
        assert!(link.flush(&mut frames).is_err());
        assert_eq!((link.buffered(), frames.available(), link.counters()), (2, 0, Counters::default()));
        assert!(!link.wants_writable());
    }

    /// A socket that takes nothing: its packets stay, in order, and leave once one takes them.
    #[test]
    fn what_cannot_be_sent_yet_stays_in_order() {
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut link = Udp::bind(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let (mut frames, room) = (laxity_core::frames::HeapFrames::new(3, 16), link.room());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut full = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        full.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut full, &[0; 65_536]).is_ok() {}
        let socket = std::mem::replace(&mut link.socket.fd, full.into());
        for len in 1..=3 {
            link.transmit(frames.take().unwrap(), len, peer.local_addr().unwrap());
        }
        for _ in 0..3 {
            assert_eq!(link.flush(&mut frames).unwrap(), 0);
            assert_eq!((link.buffered(), link.room(), frames.available()), (3, room - 3, 0));
            assert!(link.wants_writable());
        }
        link.socket.fd = socket;
        assert_eq!(link.flush(&mut frames).unwrap(), 3);
        assert_eq!((link.buffered(), link.room(), frames.available(), link.wants_writable()), (0, room, 3, false));
        let mut buffer = [0; 16];
        assert_eq!([(); 3].map(|()| peer.recv(&mut buffer).unwrap()), [1, 2, 3]);
    }

    #[test]
    fn links_move_to_the_executives_thread() {
        fn sendable<T: Send>() {}
        sendable::<Udp>();
    }
}
