//! The fast path: AF_XDP with early demultiplexing in the kernel [rio §2.1].
//!
//! ```text
//!                       ┌─ not ours ───────────────────► the kernel ──► its socket of our port ─┐
//! receive queue ──► demux.bpf.c ── real-time ──► ring ─┐                                        │
//!                       ├──────── control ────► ring ──┼─► one look, in this order ─────────────┴─► executive
//!                       ├──────── best effort ► ring ──┘
//!                       └─ unknown, malformed, over its contract: counted and dropped
//! ```
//!
//! The executive's frame region is the memory that the kernel writes to and reads from (UMEM): a packet is written once when it
//! arrives and once by the handler that sends it. Each class has a socket of its own on every receive queue, so that no class can
//! crowd out another (`queue.rs`). Peers that routes and neighbours do not place on this interface, and packets that come in
//! elsewhere, go through an ordinary UDP socket of the same port.
//!
//! Relies on: Linux 5.12 or later, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON. The program is attached by a link that ends with the
//! process. Packets that take this path do not pass the kernel's filters and counters (netfilter).
//!
//! When the interface goes down, packets are lost until it is up again. When it disappears, or the program is detached, the
//! UDP socket remains.

mod config;
mod error;
pub mod handler;
mod headers;
mod open;
mod peers;
mod probe;
mod program;
mod queue;
mod region;
pub mod steer;
mod watcher;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use laxity_core::frames::{FrameId, Frames};
use laxity_core::receive::{EarlyHandling, ExpectedChannel};
use laxity_core::units::Duration;

pub use config::{BusyPoll, OpenedXdp, XdpConfig};
pub use error::XdpError;
pub use program::{EarlyDrops, EarlyFigures, Mode, can_load as can_load_program};
pub use region::KernelFrames;
pub use watcher::XdpStatus;

use crate::netlink::GuardClasses;
use crate::sys::rings::{SendResult, XdpSocket};
use crate::sys::{PollFlags, readable, wait};
use crate::transmit_queue::{QueuedPacket, TransmitQueue};
use crate::udp::Udp;
use crate::{Counters, Link, LinkEvent, LinkOver, PendingEvents, Received};
use headers::{Template, ip_and_udp};
use peers::PeerTable;
use program::Program;
use queue::{CLASSES, Queue};
use watcher::Watcher;

/// Channels that can be demultiplexed early; those at higher places are refused.
pub const MAX_PLACES: usize = program::MOST_CHANNELS as usize;
/// Receive queues that an interface may have.
pub const MAX_QUEUES: u32 = program::MOST_QUEUES;

/// Looks at the rings that may find as much as they take before the socket is looked at all the same.
const LOOKS_WITHOUT_SOCKET: u32 = 8;
/// Frames that the socket is asked for at first; twice as many each time that it has them. A look at it costs for each.
const FROM_SOCKET: usize = 4;
/// Queues whose ring for real-time packets is waited for by itself; those of further queues are among the `others`.
const QUEUES_BY_THEMSELVES: usize = 4;
/// The time after which packets are offered again that the device did not take.
const RETRY_AFTER: Duration = Duration::from_micros(100);
/// Calls for one flush: in copy mode the kernel sends some 32 frames a call.
const MAX_CALLS: usize = 64;

/// An interface driven with AF_XDP as a link. See the module for the path of each packet.
pub struct Xdp {
    // First what brings frames here, last the memory that they lie in.
    program: Program,
    watcher: Watcher,
    /// Readable when the doorbell rings or something has arrived elsewhere than in the rings that are waited for by themselves. It
    /// costs one descriptor's wait however many it stands for; but the kernel notifies it of each packet, also while its owner is awake,
    /// and a sender on the same host pays for that.
    others: OwnedFd,
    queues: Vec<Queue>,
    /// Its counters are those of the fast path, too.
    udp: Udp,
    interface: u32,
    busy_poll: bool,
    peers: PeerTable,
    /// The peer that is expected at each place.
    expected: Box<[Option<SocketAddr>]>,
    /// Packets of each place that were dropped as beyond its contract, as far as that was told; and which place is next.
    policed: Box<[u64]>,
    policed_next: usize,
    policed_in_all: u64,
    /// The messages that handlers in the kernel were done with, as far as that was told.
    handled_in_all: u64,
    transmit_queue: TransmitQueue,
    /// Frames that the kernel has for sending, and how many it may have.
    in_flight: usize,
    most_in_flight: usize,
    /// The doorbell that `others` stands for, too.
    doorbell: Option<RawFd>,
    /// For what `others` is set.
    waits_to_send: bool,
    /// The interface is gone: what remains is the socket.
    is_gone: bool,
    /// Looks since that at the UDP socket.
    looks: u32,
    /// The last look found something in the rings.
    was_busy: bool,
    from_socket: usize,
    /// Bytes that its frames have taken of the wire so far, for those in other threads.
    wire_bytes: Arc<AtomicU64>,
    events: PendingEvents,
}

impl Xdp {
    /// The properties of the open link, and what happens to frames before they come here. It can be read in any thread.
    pub fn status(&self) -> Arc<XdpStatus> {
        Arc::clone(&self.watcher.status)
    }

    /// Takes the frames back that were sent.
    fn reap(&mut self, frames: &mut KernelFrames) -> usize {
        let Some(queue) = self.queues.first_mut() else { return 0 };
        let sent = &mut queue.supply.completion;
        let mut reaped = 0;
        while let Some(address) = sent.read() {
            if let Some((frame, _)) = frames.take_back(address) {
                frames.free(frame);
            }
            reaped += 1;
        }
        sent.consume();
        self.in_flight = self.in_flight.saturating_sub(reaped);
        reaped
    }

    /// Has the kernel send what the ring holds: all, or some while it takes no more now; or the interface is down.
    fn kick(&mut self, frames: &mut KernelFrames) -> io::Result<SendResult> {
        for _ in 0..MAX_CALLS {
            let Some(sender) = self.queues.first_mut().and_then(|queue| queue.sender.as_mut()) else {
                return Ok(SendResult::Down);
            };
            let sent = sender.send()?;
            let reaped = self.reap(frames);
            match sent {
                SendResult::Dropped => self.udp.counters.send_dropped += 1,
                SendResult::Some if reaped > 0 => {}
                // If it is down, what is in the ring leaves when it is up again; there is no waiting for that.
                SendResult::All | SendResult::Some | SendResult::Down => return Ok(sent),
            }
        }
        Ok(SendResult::Some)
    }

    /// Hands what is buffered to the ring, or to the socket.
    fn send(&mut self, frames: &mut KernelFrames) -> io::Result<()> {
        self.transmit_queue.blocked = false;
        while let Some(buffered) = self.transmit_queue.ring.pop_front() {
            let Some(direct) = self.peers.direct(buffered.peer).filter(|_| !self.is_gone) else {
                self.udp.transmit(buffered.frame, buffered.len, buffered.peer);
                continue;
            };
            if buffered.len > direct.most {
                let mtu_bytes = (direct.most + ip_and_udp(buffered.peer.ip())) as u32;
                self.udp.counters.send_dropped += 1;
                self.udp.counters.send_too_large += 1;
                self.events.push(LinkEvent::TooLarge { peer: buffered.peer, mtu_bytes });
                frames.free(buffered.frame);
                continue;
            }
            if self.in_flight < self.most_in_flight
                && let Some(sender) = self.queues.first_mut().and_then(|queue| queue.sender.as_mut())
                && sender.ring.room() > 0
            {
                self.udp.counters.sent_frames += 1;
                self.udp.counters.sent_bytes += buffered.len as u64;
                let of_frame = GuardClasses::on_the_wire(buffered.len + direct.template.len());
                // The only one that writes it.
                self.wire_bytes
                    .store(self.wire_bytes.load(Ordering::Relaxed).wrapping_add(of_frame), Ordering::Relaxed);
                self.in_flight += 1;
                put(buffered, &direct.template, sender, frames);
                continue;
            }
            self.transmit_queue.ring.push_front(buffered);
            // The ring is full: the kernel takes some, or nothing can be sent now.
            let kicked = self.kick(frames)?;
            if self.in_flight < self.most_in_flight {
                continue;
            }
            if kicked != SendResult::Down {
                // What was sent comes back when the device has done with it.
                self.transmit_queue.blocked = true;
                return Ok(());
            }
            if let Some(buffered) = self.transmit_queue.ring.pop_front() {
                // What the interface has is old already.
                self.udp.counters.send_dropped += 1;
                frames.free(buffered.frame);
            }
        }
        if self.in_flight > 0 && !self.is_gone {
            self.transmit_queue.blocked = self.kick(frames)? == SendResult::Some;
        }
        Ok(())
    }

    /// Bytes that its frames have taken of the wire since its start, as they are handed over; for any thread. Packets that go by the socket do not count.
    pub fn wire_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.wire_bytes)
    }

    /// The handlers of applications in the kernel, for any thread.
    pub fn handlers(&self) -> Arc<handler::Handlers> {
        Arc::clone(&self.program.handlers)
    }

    /// Returns the test whether packets that the handlers send back arrive.
    pub fn prober(&self) -> handler::Prober {
        handler::Prober { shared: Arc::clone(&self.watcher.shared), handlers: self.handlers() }
    }

    /// Returns, once, the part that steers the kernel's packets into streams; to be called in the network namespace of the interface.
    pub fn take_steering(&mut self) -> Option<steer::InterfaceStreams> {
        let below = self.watcher.status.opened.index;
        self.program.steered.take().map(|steered| steered.of(below, None))
    }

    /// The channel at `place` has this peer from here on.
    fn begin(&mut self, place: u32, peer: SocketAddr) {
        self.peers.add(peer);
        if let Some(slot) = self.expected.get_mut(place as usize) {
            *slot = Some(peer);
        }
        self.exchange_peers();
    }

    fn exchange_peers(&mut self) {
        if self.peers.exchange(&self.watcher.shared.directory) {
            self.watcher.shared.wake.wake();
        }
    }

    /// The kernel reads and writes the region that the sockets were made with, and only its driver may say what is in it.
    fn check_region(&self, frames: &KernelFrames) {
        let is_ours = self.queues.first().is_none_or(|queue| Arc::ptr_eq(&queue.region, &frames.memory));
        assert!(is_ours, "the frames are those of another link");
    }

    /// The state that remains without the interface.
    fn give_up_interface(&mut self) {
        self.is_gone = true;
        for fd in waited_for_together(&self.queues) {
            let _ = rustix::event::epoll::delete(&self.others, fd);
        }
    }

    /// Sets for what `others` is ready: room in the socket, only while that is waited for. Room in the ring is
    /// nothing to wait for: a device may take no more though there is some ([`Link::retry_after`]).
    fn wait_to_send(&mut self, wait: bool) {
        use rustix::event::epoll::{EventData, EventFlags, modify};
        if self.waits_to_send != wait {
            self.waits_to_send = wait;
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, wait);
            let _ = modify(&self.others, &self.udp, EventData::new_u64(0), flags);
        }
    }
}

/// The sockets of the queues that `others` stands for.
fn waited_for_together(queues: &[Queue]) -> impl Iterator<Item = BorrowedFd<'_>> {
    let skipped = |index| usize::from(index < QUEUES_BY_THEMSELVES);
    queues.iter().enumerate().flat_map(move |(index, queue)| queue.sockets[skipped(index)..].iter().map(AsFd::as_fd))
}

/// Puts one packet into a ring that has room, with its headers.
fn put(buffered: QueuedPacket, template: &Template, ring: &mut XdpSocket, frames: &mut KernelFrames) {
    let (headers, len) = (template.len(), buffered.len);
    let (before, packet) = frames.packet_with_headers(&buffered.frame, headers, len);
    template.write(before, packet);
    let address = frames.lend_packet(buffered.frame, headers);
    let is_pushed = ring.push(address, (headers + len) as u32);
    debug_assert!(is_pushed, "there was room");
}

impl Link for Xdp {
    fn local_address(&self) -> SocketAddr {
        self.udp.local_address()
    }

    fn room(&self) -> usize {
        self.transmit_queue.room().min(self.udp.room())
    }

    fn transmit(&mut self, frame: FrameId, len: usize, peer: SocketAddr) {
        self.transmit_queue.push(QueuedPacket { frame, len, peer });
    }

    fn buffered(&self) -> usize {
        self.transmit_queue.ring.len() + self.udp.buffered()
    }

    fn wants_writable(&self) -> bool {
        self.transmit_queue.blocked || self.udp.wants_writable()
    }

    fn wait(&mut self, doorbell: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
        use rustix::event::epoll::{EventData, EventFlags, add};
        if self.doorbell != Some(doorbell.as_raw_fd()) {
            add(&self.others, doorbell, EventData::new_u64(0), EventFlags::IN)?;
            self.doorbell = Some(doorbell.as_raw_fd());
        }
        let mut fds: [_; 1 + QUEUES_BY_THEMSELVES] = std::array::from_fn(|_| readable(self.others.as_fd()));
        let mut waited = 1;
        if !self.is_gone {
            for (slot, queue) in fds[1..].iter_mut().zip(&self.queues) {
                *slot = readable(queue.sockets[0].as_fd());
                waited += 1;
            }
        }
        wait(&mut fds[..waited], timeout)?;
        let others = fds[0].revents();
        let errors = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        // The interface is gone. Until that is done away with, the executive does not sleep: the watcher may not get the processor to say so.
        if fds[1..waited].iter().any(|ring| ring.revents().intersects(errors)) {
            self.give_up_interface();
        }
        Ok(!others.is_empty() && wait(&mut [readable(doorbell)], Some(Duration::ZERO))? > 0)
    }

    fn inputs(&self) -> io::Result<Vec<BorrowedFd<'_>>> {
        let by_themselves = self.queues.iter().take(QUEUES_BY_THEMSELVES).map(|queue| queue.sockets[0].as_fd());
        Ok([self.others.as_fd()].into_iter().chain(by_themselves).collect())
    }

    fn retry_after(&self) -> Option<Duration> {
        self.transmit_queue.blocked.then_some(RETRY_AFTER)
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.waiting.pop_front().or_else(|| self.udp.poll_event())
    }

    fn counters(&self) -> Counters {
        let both = self.udp.counters();
        Counters {
            receive_overflow: both.receive_overflow + self.watcher.status.overflow.load(Ordering::Relaxed),
            events_lost: both.events_lost + self.events.lost,
            ..both
        }
    }

    fn lost(&self) -> u64 {
        self.udp.counters().receive_overflow + self.watcher.status.real_time_overflow.load(Ordering::Relaxed)
    }

    fn expect(&mut self, place: u32, expected: &ExpectedChannel) -> io::Result<()> {
        self.expect_nothing(place);
        self.program.expect(place, expected)?;
        if let Some(told) = self.policed.get_mut(place as usize) {
            // Packets that were dropped of the channel that had the place before do not count.
            let (too_large, over_rate) = self.program.policed(place);
            *told = too_large + over_rate;
        }
        self.begin(place, expected.peer);
        Ok(())
    }

    fn expect_control(&mut self, place: u32, peer: SocketAddr) -> io::Result<()> {
        self.expect_nothing(place);
        self.program.expect_control(place, peer)?;
        self.begin(place, peer);
        Ok(())
    }

    fn expect_nothing(&mut self, place: u32) {
        let Some(peer) = self.expected.get_mut(place as usize).and_then(Option::take) else { return };
        self.program.expect_nothing(place);
        self.peers.remove(peer);
    }

    fn poll_policed(&mut self) -> Option<(u32, u64)> {
        let in_all = self.program.policed_total();
        if in_all == self.policed_in_all {
            return None;
        }
        // From where the last one was found: a channel that is dropped all the time does not keep the others from being told.
        for _ in 0..self.policed.len() {
            let place = self.policed_next;
            self.policed_next = (place + 1) % self.policed.len();
            let (too_large, over_rate) = self.program.policed(place as u32);
            let packets = too_large + over_rate;
            let told = std::mem::replace(&mut self.policed[place], packets);
            if packets != told {
                return Some((place as u32, packets - told));
            }
        }
        self.policed_in_all = in_all;
        None
    }

    fn poll_handled(&mut self) -> Option<EarlyHandling> {
        self.program.handlers.poll(&mut self.handled_in_all)
    }
}

impl LinkOver<KernelFrames> for Xdp {
    fn flush(&mut self, frames: &mut KernelFrames) -> io::Result<usize> {
        self.check_region(frames);
        self.exchange_peers();
        let before = self.udp.counters.sent_frames;
        if self.in_flight > 0 {
            self.reap(frames);
        }
        // Whatever becomes of the ring, the socket sends.
        let sent = self.send(frames);
        if sent.is_err() {
            // A device that is being reset, perhaps; one that is gone is known soon.
            self.transmit_queue.blocked = true;
        }
        let by_socket = self.udp.flush(frames);
        self.wait_to_send(self.udp.wants_writable());
        if self.is_gone {
            sent?;
        }
        by_socket?;
        Ok((self.udp.counters.sent_frames - before) as usize)
    }

    fn rewrite(&mut self, frames: &mut KernelFrames, mut write: impl FnMut(&mut [u8])) {
        self.transmit_queue.rewrite(frames, &mut write);
        self.udp.rewrite(frames, write);
    }

    fn receive(
        &mut self,
        limit: usize,
        frames: &mut KernelFrames,
        mut sink: impl FnMut(Received, &mut KernelFrames),
    ) -> io::Result<usize> {
        self.check_region(frames);
        if !self.is_gone && self.watcher.status.is_gone() {
            self.give_up_interface();
        }
        if self.in_flight > 0 {
            self.reap(frames);
        }
        // What the kernel has is looked at when the rings are empty, and now and then if they never are. Right after packets have
        // come by the rings it is left to the next look, since a thread that waits instead is woken at once if it has some: so the executive never
        // pays for a look at the socket with each packet.
        self.looks += 1;
        let for_socket =
            if self.looks >= LOOKS_WITHOUT_SOCKET { limit.div_ceil(LOOKS_WITHOUT_SOCKET as usize) } else { 0 };
        let (in_all, limit) = (limit, limit - for_socket);
        let (mut looked, mut given) = (0, 0);
        for class in 0..CLASSES.len() {
            for queue in &mut self.queues {
                while looked < limit
                    && let Some((frame, begin, bytes)) = queue.next(class, frames)
                {
                    looked += 1;
                    let arrived = frames.arrived(&frame, begin, bytes).ok_or(headers::HeaderError::Headers);
                    match arrived.and_then(|arrived| headers::read(arrived, self.interface)) {
                        Ok(datagram) => {
                            frames.set_begin(&frame, begin + datagram.begin);
                            self.udp.counters.received_frames += 1;
                            self.udp.counters.received_bytes += datagram.len as u64;
                            given += 1;
                            let (peer, tos, len) = (datagram.peer, datagram.tos, datagram.len);
                            let arrived = frames.take_stamp(&frame, begin);
                            sink(Received { frame, len, peer, tos, arrived }, frames);
                        }
                        Err(_) => {
                            self.udp.counters.receive_damaged += 1;
                            frames.free(frame);
                        }
                    }
                }
            }
        }
        let is_starved = looked < limit && frames.available() == 0;
        if is_starved && self.queues.iter().any(|queue| (0..CLASSES.len()).any(|class| queue.has(class))) {
            self.udp.counters.receive_starved += 1;
        }
        for queue in &mut self.queues {
            queue.publish(frames);
            if self.busy_poll {
                // The kernel drives the device's queue from this thread.
                queue.sockets[0].wake();
            }
        }
        let was_busy = std::mem::replace(&mut self.was_busy, looked > 0);
        if looked == 0 && !was_busy || for_socket > 0 {
            self.looks = 0;
            let asked = self.from_socket.min(in_all - looked);
            let found = self.udp.receive(asked, frames, sink)?;
            self.from_socket = if found < asked {
                FROM_SOCKET
            } else {
                (2 * asked).clamp(FROM_SOCKET, self.transmit_queue.capacity.max(FROM_SOCKET))
            };
            given += found;
        }
        Ok(given)
    }
}
