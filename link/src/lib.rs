//! Links: how the frames of one executive reach the network and come back.
//!
//! A link is fed by the link scheduler and feeds the demultiplexer; it neither orders nor paces nor looks into a packet.
//! All network system calls and all unsafe code of this crate stand in [`sys`].
//!
//! | Module | Contents |
//! |---|---|
//! | [`udp`] | UDP over IPv4 and IPv6, in batches, on a socket of the kernel |
//! | [`xdp`] | AF_XDP with early demultiplexing in the driver, and an ordinary UDP socket beside it |
//! | [`netlink`] | the kernel's interfaces, routes and neighbours, read and watched |
//! | [`emulated`] | one wire in virtual time, seeded, without I/O: for the simulator and for tests |
//! | [`sys`] | the doorway to the kernel: batches, waiting, waking, the clock |
//!
//! No link allocates after construction, and every call of one is bounded by the batch size or by its `limit`.
//!
//! ```
//! use laxity_core::frames::{Frames, HeapFrames};
//! use laxity_link::{Link, LinkOver, udp::{Udp, UdpConfig}};
//!
//! let mut frames = HeapFrames::new(8, 1400);
//! let mut link = Udp::bind(&UdpConfig::new("127.0.0.1:0".parse()?))?;
//! let me = link.local_address();
//!
//! // Send: take a frame, write the packet, stage it, hand over. The frame comes back when the kernel has the bytes.
//! let frame = frames.take().ok_or("no free frame")?;
//! frames.packet_mut(&frame)[..5].copy_from_slice(b"hello");
//! link.transmit(frame, 5, me);
//! link.flush(&mut frames)?;
//!
//! // Receive: the sink owns each frame and gives it back.
//! let mut seen = 0;
//! link.receive(32, &mut frames, |received, frames| {
//!     assert_eq!(&frames.packet(&received.frame)[..received.len], b"hello");
//!     frames.free(received.frame);
//!     seen += 1;
//! })?;
//! assert_eq!((seen, frames.available()), (1, 8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use laxity_core::frames::{FrameId, Frames};
use laxity_core::receive::{EarlyHandling, ExpectedChannel};
use laxity_core::units::{Duration, Instant};

pub mod emulated;
mod error;
pub mod netlink;
#[allow(unsafe_code)]
pub mod sys;
mod transmit_queue;
pub mod udp;
#[allow(unsafe_code)]
pub mod xdp;

pub use error::{LinkError, OutOfRange};
pub use sys::StableFrames;

/// The kind of link that a host's packets go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, serde::Serialize, serde::Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum LinkKind {
    /// A UDP socket of the kernel.
    Udp,
    /// AF_XDP.
    Xdp,
}

impl LinkKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Xdp];

    /// The name in all files and options.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The counters of what a link has done since it was made. Each value only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Frames that the network took.
    pub sent_frames: u64,
    /// Packet bytes in them, without the headers of UDP and IP.
    pub sent_bytes: u64,
    /// Frames that were handed to the sink.
    pub received_frames: u64,
    /// Packet bytes in them.
    pub received_bytes: u64,
    /// Frames that the kernel refused for another reason than that it would block; they are lost.
    pub send_dropped: u64,
    /// Those of `send_dropped` that were longer than the interface or the path carries in one piece.
    pub send_too_large: u64,
    /// Datagrams that were longer than a frame; dropped whole.
    pub receive_truncated: u64,
    /// Frames whose headers or checksum contradict what they hold; dropped.
    pub receive_damaged: u64,
    /// Datagrams that the kernel dropped at our socket, nearly always because its buffer was full (`SO_RXQ_OVFL`). Known
    /// only with the next datagram that gets through, so it lags behind.
    pub receive_overflow: u64,
    /// Calls of `receive` that found no free frame in the region, so that the kernel kept the datagrams.
    pub receive_starved: u64,
    /// Events that were dropped, because the driver did not drain them.
    pub events_lost: u64,
}

/// One received frame. Its owner gives it back with [`Frames::free`].
pub struct Received {
    /// The frame, with the packet at its start.
    pub frame: FrameId,
    /// Bytes of the packet.
    pub len: usize,
    /// The sender, as the network says. IPv4 addresses are always in their IPv4 form.
    pub peer: SocketAddr,
    /// Its type of service (IPv4) or traffic class (IPv6), if the link was told to ask for it; else 0.
    pub tos: u8,
    /// The time at which this host had it (CLOCK_MONOTONIC): stamped by the kernel, or by the program in the driver, before the executive looked. `None` if
    /// it was not, or the stamp's clock was set meanwhile.
    pub arrived: Option<Instant>,
}

/// Something that the network reported about a peer. It concerns that peer only; the link goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The network or the peer's host says that this peer cannot be reached (no such port, host or route, or forbidden).
    Unreachable(SocketAddr),
    /// A packet to this peer was longer than what can be carried in one piece, and was dropped.
    TooLarge {
        /// The destination of the packet.
        peer: SocketAddr,
        /// The largest IP packet that is carried, with its headers; 0 if the kernel did not say.
        mtu_bytes: u32,
    },
}

/// A link that is driven by polling. One thread owns it.
///
/// The order of calls: [`transmit`](Link::transmit) while [`room`](Link::room) is left, then [`flush`](LinkOver::flush);
/// [`receive`](LinkOver::receive) when readable; [`poll_event`](Link::poll_event) until it is `None`. Time plays no part.
pub trait Link {
    /// The address that peers send to. An IPv4 or IPv6 wildcard stays a wildcard; the port is the real one.
    fn local_address(&self) -> SocketAddr;

    /// Frames that can be buffered now.
    fn room(&self) -> usize;

    /// Stages one packet: the first `len` bytes of `frame`, to `peer`. The frame belongs to the link from here on.
    ///
    /// # Panics
    /// If there is no [`room`](Link::room).
    fn transmit(&mut self, frame: FrameId, len: usize, peer: SocketAddr);

    /// Frames that are buffered.
    fn buffered(&self) -> usize;

    /// True after a flush that left something buffered because the network was full: wait until the link is writable.
    fn wants_writable(&self) -> bool;

    /// Waits until something has arrived, there is room again ([`wants_writable`](Self::wants_writable)), `doorbell` is readable, or
    /// `timeout` is over; whether it is the doorbell. The same doorbell each time.
    ///
    /// # Errors
    /// `Unsupported` where there is nothing to wait for, as in virtual time; else the kernel's.
    fn wait(&mut self, doorbell: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
        let _ = (doorbell, timeout);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The descriptors that are readable when a frame has arrived, or when [`wait`](Self::wait) has to look after something, for threads that wait while another
    /// one has the link.
    ///
    /// # Errors
    /// `Unsupported` where there is none; else the kernel's.
    fn inputs(&self) -> io::Result<Vec<BorrowedFd<'_>>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The time after which to flush again because no event will tell that there is room; `None` if
    /// [`wants_writable`](Self::wants_writable) says all.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// The next thing that the network reported; equal reports that wait are one. Bounded: at most
    /// [`EVENT_CAPACITY`] wait, more are counted in [`Counters::events_lost`].
    fn poll_event(&mut self) -> Option<LinkEvent>;

    /// The counters of the link so far. No system call.
    fn counters(&self) -> Counters;

    /// Frames that this host had, of real-time channels perhaps, and lost for want of room. No system call.
    fn lost(&self) -> u64 {
        self.counters().receive_overflow
    }

    /// `expected` may arrive for the channel at `place` from now on; its peer's control frames are answered before those of
    /// unknown peers. A link that demultiplexes early needs to know, others ignore it. A few system calls, no allocation.
    ///
    /// # Errors
    /// The kernel refuses it; nothing will arrive for the channel then.
    fn expect(&mut self, place: u32, expected: &ExpectedChannel) -> io::Result<()> {
        let _ = (place, expected);
        Ok(())
    }

    /// The channel at `place` sends to `peer`, whose control frames are answered before those of unknown peers.
    ///
    /// # Errors
    /// The kernel refuses it.
    fn expect_control(&mut self, place: u32, peer: SocketAddr) -> io::Result<()> {
        let _ = (place, peer);
        Ok(())
    }

    /// Nothing may arrive for the channel at `place` any more.
    fn expect_nothing(&mut self, place: u32) {
        let _ = place;
    }

    /// A channel of which packets were dropped as beyond its contract before this host saw them, and how many since it was
    /// asked last. Nearly nothing to do if there are none.
    fn poll_policed(&mut self) -> Option<(u32, u64)> {
        None
    }

    /// The work of a handler in the kernel since the last call, of one channel. Nearly nothing to do if there are none.
    fn poll_handled(&mut self) -> Option<EarlyHandling> {
        None
    }
}

/// A link whose frames lie in a region of type `F`.
pub trait LinkOver<F: Frames>: Link {
    /// Hands everything buffered to the network, in the order of buffering, and frees the frames that are done into `frames`.
    /// Returns the number of frames that the network took. Frames that it cannot take yet stay buffered in order, see
    /// [`wants_writable`](Link::wants_writable). A frame that it refuses is dropped alone and counted.
    ///
    /// # Errors
    /// Only what makes the link as a whole useless. The frames stay buffered.
    ///
    /// # Panics
    /// If a buffered `len` exceeds the region's packet capacity.
    fn flush(&mut self, frames: &mut F) -> io::Result<usize>;

    /// Gives each packet that is buffered to `write`, which may change its bytes.
    fn rewrite(&mut self, frames: &mut F, write: impl FnMut(&mut [u8]));

    /// Receives at most `limit` frames, taking them from `frames`, and gives each to `sink` in the order of arrival.
    /// Returns how many it gave. Fewer than `limit` means that no more is there, that `frames` has no free frame, or that what is
    /// left is for the next call: a thread that waits for the link to be readable is told at once then.
    ///
    /// # Errors
    /// Only what makes the link as a whole useless; nothing that was received is lost by it.
    fn receive(&mut self, limit: usize, frames: &mut F, sink: impl FnMut(Received, &mut F)) -> io::Result<usize>;
}

/// The largest number of [`LinkEvent`]s that wait: enough for every peer of one batch of the usual size.
pub const EVENT_CAPACITY: usize = 64;

/// The reports of the network, read but not yet drained by the driver.
struct PendingEvents {
    waiting: VecDeque<LinkEvent>,
    lost: u64,
}

impl PendingEvents {
    fn new() -> Self {
        Self { waiting: VecDeque::with_capacity(EVENT_CAPACITY), lost: 0 }
    }

    /// Equal events that wait are one: a dead peer that is sent to at a high rate is one piece of news.
    fn push(&mut self, event: LinkEvent) {
        if self.waiting.contains(&event) {
            return;
        }
        if self.waiting.len() < EVENT_CAPACITY {
            self.waiting.push_back(event);
        } else {
            self.lost += 1;
        }
    }
}
