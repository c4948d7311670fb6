//! The rings that an AF_XDP socket and its region share with the kernel, and the socket itself.
//!
//! Each ring has one producer and one consumer; we are one of them and the kernel is the other. A ring is an array of a power of two
//! of places, and two counters that only grow (and wrap): places from `consumer` to `producer` are full. The side that writes a counter
//! releases what lies before it, the side that reads the other's acquires it. The kernel's counter is not believed beyond the ring's size:
//! nothing here reads or writes outside the mapping, whatever it says.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use laxity_core::units::Duration;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpOptionsFlags, XdpRingFlags, XdpRingOffset,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

// What libc has no names for.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Memory that is mapped until it is dropped.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, wherever it is.
unsafe impl Send for Mapping {}
// SAFETY: a shared borrow tells only where it is; the code that reads or writes there answers for it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory, whole pages, zeroed.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let mapping = Self::new(start.cast(), bytes)?;
        // A child would copy what it never uses. A kernel without this does no harm.
        // SAFETY: the mapping is ours alone.
        let _ = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxDontFork) };
        Ok(mapping)
    }

    /// Memory behind `fd` that others have, too, from `offset` on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shared(fd: BorrowedFd<'_>, bytes: usize, offset: u64, protection: ProtFlags) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) }?;
        Self::new(start.cast(), bytes)
    }

    fn new(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    /// The address at which it begins.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The place of a `T` at `offset`.
    fn at<T>(&self, offset: u64) -> io::Result<NonNull<T>> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        if !fits || !offset.is_multiple_of(align_of::<T>()) {
            return Err(io::Error::other("the kernel's offsets lie outside its ring"));
        }
        // SAFETY: within the mapping, which is longer than that.
        Ok(unsafe { self.start.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length; all pointers into it were borrowed from this value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// One ring. `T` is the place: an address in the region, or a descriptor. Of a ring that the kernel consumes we are the producer, of the others
/// the consumer.
pub struct Ring<T> {
    _memory: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    places: NonNull<T>,
    size: u32,
    /// Our own counter, as of the last time that it was told.
    told: u32,
    /// Our own counter.
    own: u32,
    _places: PhantomData<T>,
}

// SAFETY: the mapping moves with it; the counters are atomic.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// `size` is a power of two, and what the kernel was told.
    fn new(fd: BorrowedFd<'_>, offsets: &XdpRingOffset, size: u32, page_offset: u64) -> io::Result<Self> {
        let bytes = usize::try_from(offsets.desc).unwrap_or(usize::MAX);
        let bytes = bytes.saturating_add(size as usize * size_of::<T>());
        let memory = Mapping::shared(fd, bytes, page_offset, ProtFlags::READ | ProtFlags::WRITE)?;
        let (producer, consumer) = (memory.at(offsets.producer)?, memory.at(offsets.consumer)?);
        let flags = offsets.flags.map(|offset| memory.at(offset)).transpose()?;
        let places = memory.at(offsets.desc)?;
        Ok(Self { _memory: memory, producer, consumer, flags, places, size, told: 0, own: 0, _places: PhantomData })
    }

    fn counter(counter: &NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: it lies in the mapping, aligned, and is shared with the kernel as an atomic.
        unsafe { counter.as_ref() }
    }

    /// Places that we may write, as the producer.
    pub fn room(&self) -> u32 {
        let full = self.own.wrapping_sub(Self::counter(&self.consumer).load(Ordering::Acquire));
        self.size.saturating_sub(full)
    }

    /// Writes the next place; false without [`room`](Self::room). Told with [`produce`](Self::produce).
    #[must_use]
    pub fn write(&mut self, value: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the index is below `size`, and all of the places lie in the mapping. The kernel reads it once it was told.
        unsafe { self.places.add((self.own & (self.size - 1)) as usize).write(value) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Tells what was written.
    pub fn produce(&mut self) {
        if self.told != self.own {
            Self::counter(&self.producer).store(self.own, Ordering::Release);
            self.told = self.own;
            // The kernel looks at the counter after it has set its flag; we look at the flag after the counter.
            fence(Ordering::SeqCst);
        }
    }

    /// Places that we may read, as the consumer; never more than there are.
    pub fn filled(&self) -> u32 {
        Self::counter(&self.producer).load(Ordering::Acquire).wrapping_sub(self.own).min(self.size)
    }

    /// Reads the next place, if one is [`filled`](Self::filled). Told with [`consume`](Self::consume).
    pub fn read(&mut self) -> Option<T> {
        if self.filled() == 0 {
            return None;
        }
        // SAFETY: the index is below `size`, and all of the places lie in the mapping. What stands there is a `T`,
        // which is made of integers; of a ring that we consume, the kernel wrote it before it told us.
        let value = unsafe { self.places.add((self.own & (self.size - 1)) as usize).read() };
        self.own = self.own.wrapping_add(1);
        Some(value)
    }

    /// Gives back what was read.
    pub fn consume(&mut self) {
        if self.told != self.own {
            Self::counter(&self.consumer).store(self.own, Ordering::Release);
            self.told = self.own;
        }
    }

    /// True if the kernel waits for a system call.
    pub fn wants_wakeup(&self) -> bool {
        let set = |flags| Self::counter(flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0;
        // Without flags, it always does.
        self.flags.as_ref().is_none_or(set)
    }
}

/// The interface and the queue that a socket is bound to.
#[derive(Clone, Copy, Debug)]
pub struct BindTarget {
    /// The interface's number.
    pub interface: u32,
    /// Its receive and transmit queue.
    pub queue: u32,
    /// True to ask for copy mode; else the kernel chooses.
    pub copy: bool,
}

/// The rings of a queue for frames, by where these begin in the region.
pub struct FrameSupply {
    /// Frames for the kernel to receive into. It may wait for a system call on one of the queue's sockets before it receives.
    pub fill: Ring<u64>,
    /// Frames that it gives back when they were sent.
    pub completion: Ring<u64>,
}

impl FrameSupply {
    /// Makes the rings of a queue, of which `fd` is the first socket. Sizes are places, powers of two: frames that the kernel may be given, and
    /// frames that the queue's only sender may have handed over.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(fd: BorrowedFd<'_>, fill: u32, completion: u32) -> io::Result<Self> {
        sockopt::set_xdp_umem_fill_ring_size(fd, fill)?;
        sockopt::set_xdp_umem_completion_ring_size(fd, completion)?;
        let offsets = sockopt::xdp_mmap_offsets(fd)?;
        Ok(Self {
            fill: Ring::new(fd, &offsets.fr, fill, XDP_UMEM_PGOFF_FILL_RING)?,
            completion: Ring::new(fd, &offsets.cr, completion, XDP_UMEM_PGOFF_COMPLETION_RING)?,
        })
    }
}

/// One AF_XDP socket, for one direction.
pub struct XdpSocket {
    /// Frames that were received, or are to be sent.
    pub ring: Ring<XdpDesc>,
    // Dropped after the mapping: the queue stays busy as long as that is there.
    fd: OwnedFd,
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A socket that is not bound.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_RAW; the kernel has no AF_XDP.
pub fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Registers `region` with a first socket: frames of `chunk` bytes, a power of two from 2048 to a page.
///
/// # Errors
/// The kernel's: too little memory may be locked, or the sizes are impossible.
///
/// # Safety
/// The region stays mapped until every socket that uses it is closed. No code reads or writes a frame that was written to a fill or a
/// transmit ring until the kernel has given it back.
pub unsafe fn register(fd: BorrowedFd<'_>, region: &Mapping, chunk: u32) -> io::Result<()> {
    let registration = rustix::net::xdp::XdpUmemReg {
        addr: region.start().as_ptr() as u64,
        len: region.bytes() as u64,
        chunk_size: chunk,
        headroom: 0,
        flags: rustix::net::xdp::XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    Ok(sockopt::set_xdp_umem_reg(fd, registration)?)
}

impl XdpSocket {
    /// Makes the ring of `fd` for so many frames that may wait to be received, a power of two.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receiving(fd: OwnedFd, size: u32) -> io::Result<Self> {
        sockopt::set_xdp_rx_ring_size(&fd, size)?;
        let ring = Ring::new(fd.as_fd(), &sockopt::xdp_mmap_offsets(&fd)?.rx, size, XDP_PGOFF_RX_RING)?;
        Ok(Self { ring, fd })
    }

    /// Likewise for so many frames that may wait to be sent.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sending(fd: OwnedFd, size: u32) -> io::Result<Self> {
        sockopt::set_xdp_tx_ring_size(&fd, size)?;
        let ring = Ring::new(fd.as_fd(), &sockopt::xdp_mmap_offsets(&fd)?.tx, size, XDP_PGOFF_TX_RING)?;
        Ok(Self { ring, fd })
    }

    /// Binds it; it shares the region of `with` if that is another socket. A queue that was just given up stays busy for a moment:
    /// the caller tries again, with the same socket.
    ///
    /// # Errors
    /// `ResourceBusy`, and the kernel's other errors.
    pub fn bind(&self, port: BindTarget, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match with {
            None => {
                let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
                flags.set(SocketAddrXdpFlags::XDP_COPY, port.copy);
                rustix::net::bind(&self.fd, &SocketAddrXdp::new(flags, port.interface, port.queue))?;
            }
            // Mode and wakeups are those of the first socket; the kernel refuses to be told.
            Some(shared_umem_fd) => {
                let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, port.interface, port.queue);
                rustix::net::bind(&self.fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?;
            }
        }
        Ok(())
    }

    /// True if the device itself reads and writes the region.
    pub fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.fd).is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Lets the thread that asks for frames also drive the device's queue, for up to `span` and `frames` at a time, and interrupts are
    /// put off as long as it does.
    ///
    /// # Errors
    /// The kernel's.
    pub fn busy_poll(&self, span: Duration, frames: u32) -> io::Result<()> {
        let micros = libc::c_int::try_from(span.as_nanos() / 1000).unwrap_or(libc::c_int::MAX);
        super::socket::set(self.as_fd(), libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
        super::socket::set(self.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, micros)?;
        let frames = libc::c_int::try_from(frames).unwrap_or(libc::c_int::MAX);
        super::socket::set(self.as_fd(), libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, frames)
    }

    /// Hands over a frame; [`send`](Self::send) tells the kernel. False without room.
    #[must_use]
    pub fn push(&mut self, addr: u64, len: u32) -> bool {
        let options = rustix::net::xdp::XdpDescOptions::empty();
        self.ring.write(XdpDesc { addr, len, options })
    }

    /// Has the kernel receive, if it waits for that.
    pub fn wake(&self) {
        let _ = rustix::net::recv(&self.fd, &mut [0u8; 0], rustix::net::RecvFlags::DONTWAIT);
    }

    /// Tells the kernel of the frames that were handed over, with a system call if it waits for one. In copy mode it takes some 32 frames a call.
    ///
    /// # Errors
    /// One that makes the socket useless: the interface is gone.
    pub fn send(&mut self) -> io::Result<SendResult> {
        self.ring.produce();
        if !self.ring.wants_wakeup() {
            return Ok(SendResult::All);
        }
        use rustix::io::Errno;
        match rustix::net::send(&self.fd, &[], rustix::net::SendFlags::DONTWAIT) {
            Ok(_) => Ok(SendResult::All),
            // More than it takes in a call, or its completion ring or the socket's buffer is full.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => Ok(SendResult::Some),
            // The interface's queue dropped a frame, which counts as sent; the rest waits.
            Err(Errno::BUSY) => Ok(SendResult::Dropped),
            Err(Errno::NETDOWN) => Ok(SendResult::Down),
            Err(other) => Err(other.into()),
        }
    }
}

/// The result of telling the kernel of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// The kernel has taken all of them; they may not have left yet.
    All,
    /// Some were sent: take the sent frames, and call again.
    Some,
    /// One was dropped.
    Dropped,
    /// Nothing, as long as the interface is down.
    Down,
}
