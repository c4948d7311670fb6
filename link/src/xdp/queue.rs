//! One receive queue of the interface: a socket for each class, and the frames that the kernel has to fill.
//!
//! The sockets of a queue share one fill ring, so a class that took all of it would take the others' frames. It cannot: the kernel
//! has as many frames of ours, in the fill ring or received, as all receive rings have places. A class whose ring is full loses its
//! own packets, and the frames that they would have taken stay for the others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use laxity_core::frames::{FrameId, Frames};
use laxity_core::receive::ArrivalClass;

use super::region::KernelFrames;
use crate::sys::rings::{self, BindTarget, FrameSupply, Mapping, XdpSocket};

/// The classes in the order in which their frames are looked at, which is that of the program's sockets.
pub(super) const CLASSES: [ArrivalClass; 3] = [ArrivalClass::RealTime, ArrivalClass::Control, ArrivalClass::BestEffort];

/// A queue, and what the kernel holds for it. The region outlives the sockets.
pub(super) struct Queue {
    /// Those of the classes, in the order of [`CLASSES`].
    pub(super) sockets: Vec<XdpSocket>,
    /// Sends, and does nothing else: a thread that reads a socket's statistics holds a lock that sending with it would wait for. Only the first
    /// queue has one.
    pub(super) sender: Option<XdpSocket>,
    pub(super) supply: FrameSupply,
    /// Frames that the kernel is to be given as soon as its ring has room: it takes one off a moment after it used it.
    owed: u32,
    pub(super) region: Arc<Mapping>,
}

impl Queue {
    /// Binds the sockets and gives the kernel its frames. `first` has registered the region and is the first queue's own socket, or
    /// `with` is a socket of another queue that has. Sizes are places, powers of two: of each class's ring, and of the ring for sending
    /// and that by which frames come back.
    pub(super) fn open(
        port: BindTarget,
        receive: [u32; CLASSES.len()],
        transmit: u32,
        first: OwnedFd,
        with: Option<BorrowedFd<'_>>,
        frames: &mut KernelFrames,
        bind: impl Fn(&dyn Fn() -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<Self> {
        // Frames that the kernel is given to fill: one for each place where one may wait.
        let given: u32 = receive.iter().sum();
        // More than are ever in it: the kernel takes one off a moment after it used it.
        let supply = FrameSupply::new(first.as_fd(), (given + given / 2).next_power_of_two(), transmit)?;
        let first = XdpSocket::receiving(first, receive[0])?;
        bind(&|| first.bind(port, with))?;
        let another = |make: fn(OwnedFd, u32) -> io::Result<XdpSocket>, places| {
            let socket = make(rings::socket()?, places)?;
            bind(&|| socket.bind(port, Some(first.as_fd())))?;
            Ok::<_, io::Error>(socket)
        };
        let others = receive[1..].iter().map(|&places| another(XdpSocket::receiving, places));
        let others = others.collect::<io::Result<Vec<_>>>()?;
        let sender = with.is_none().then(|| another(XdpSocket::sending, transmit)).transpose()?;
        let sockets = [first].into_iter().chain(others).collect();
        let mut queue = Self { sockets, sender, supply, owed: 0, region: Arc::clone(&frames.memory) };
        for _ in 0..given {
            if !queue.replace(frames) {
                return Err(io::Error::other("the region has too few frames for the fill ring"));
            }
        }
        queue.publish(frames);
        Ok(queue)
    }

    /// The next frame of a class, where it begins and its bytes; the kernel gets another for it. `None` if there is none, or the
    /// region has no other.
    pub(super) fn next(&mut self, class: usize, frames: &mut KernelFrames) -> Option<(FrameId, usize, usize)> {
        // One that is none of ours would be a mistake of the kernel's; the next one may be.
        while self.has(class) {
            if frames.available() == 0 {
                return None;
            }
            let received = self.sockets[class].ring.read()?;
            if !self.replace(frames) {
                self.owed += 1;
            }
            let Some((frame, begin)) = frames.take_back(received.addr) else { continue };
            return Some((frame, begin, received.len as usize));
        }
        None
    }

    /// True if frames of a class wait.
    pub(super) fn has(&self, class: usize) -> bool {
        self.sockets[class].ring.filled() > 0
    }

    /// Tells the kernel which frames were taken and which are free; has it look if it waits for that.
    pub(super) fn publish(&mut self, frames: &mut KernelFrames) {
        while self.owed > 0 && self.replace(frames) {
            self.owed -= 1;
        }
        // First the frames, then the places where they may wait: there are never more places than frames.
        self.supply.fill.produce();
        for socket in &mut self.sockets {
            socket.ring.consume();
        }
        if self.supply.fill.wants_wakeup() {
            self.sockets[0].wake();
        }
    }

    /// Gives the kernel one more frame.
    fn replace(&mut self, frames: &mut KernelFrames) -> bool {
        if self.supply.fill.room() == 0 {
            return false;
        }
        let Some(frame) = frames.take() else { return false };
        let address = frames.lend(frame);
        self.supply.fill.write(address)
    }
}
