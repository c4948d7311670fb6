//! The four rings that an AF_XDP socket shares with the kernel, and the socket itself.
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
    XdpStatistics,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

// What libc has no names for.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Memory that is mapped until it is dropped.
#[derive(Debug)]
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

/// One ring. `T` is the place: an address in the region, or a descriptor.
#[derive(Debug)]
struct Ring<T> {
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
    fn room(&self) -> u32 {
        let full = self.own.wrapping_sub(Self::counter(&self.consumer).load(Ordering::Acquire));
        self.size.saturating_sub(full)
    }

    /// Writes the next place, if there is [`room`](Self::room). Told with [`produce`](Self::produce).
    #[must_use]
    fn write(&mut self, value: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the index is below `size`, and all of the places lie in the mapping. The kernel reads it once it was told.
        unsafe { self.places.add((self.own & (self.size - 1)) as usize).write(value) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Tells what was written.
    fn produce(&mut self) {
        if self.told != self.own {
            Self::counter(&self.producer).store(self.own, Ordering::Release);
            self.told = self.own;
            // The kernel looks at the counter after it has set its flag; we look at the flag after the counter.
            fence(Ordering::SeqCst);
        }
    }

    /// Places that we may read, as the consumer; never more than there are.
    fn filled(&self) -> u32 {
        Self::counter(&self.producer).load(Ordering::Acquire).wrapping_sub(self.own).min(self.size)
    }

    /// Reads the next place; there has to be one that is [`filled`](Self::filled). Told with [`consume`](Self::consume).
    fn read(&mut self) -> T {
        // SAFETY: the index is below `size`, and all of the places lie in the mapping. The kernel wrote it before it told us.
        let value = unsafe { self.places.add((self.own & (self.size - 1)) as usize).read() };
        self.own = self.own.wrapping_add(1);
        value
    }

    /// Gives back what was read.
    fn consume(&mut self) {
        if self.told != self.own {
            Self::counter(&self.consumer).store(self.own, Ordering::Release);
            self.told = self.own;
        }
    }

    /// True if the kernel waits for a system call.
    fn wants_wakeup(&self) -> bool {
        let set = |flags| Self::counter(flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0;
        // Without flags, it always does.
        self.flags.as_ref().is_none_or(set)
    }
}

/// Sizes of the rings, in places; powers of two, or 0 for none.
#[derive(Clone, Copy, Debug)]
pub struct RingSizes {
    /// Frames that the kernel may be given to receive into.
    pub fill: u32,
    /// Frames that may wait to be received.
    pub receive: u32,
    /// Frames that may wait to be sent.
    pub transmit: u32,
    /// Frames that the queue's only sender may have handed over.
    pub completion: u32,
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

/// The ring from which the kernel takes frames, and the one by which it gives those back that it has sent. One pair for each queue.
#[derive(Debug)]
pub struct FrameSupply {
    fill: Ring<u64>,
    completion: Ring<u64>,
}

impl FrameSupply {
    /// Frames that the kernel may be given.
    pub fn room(&self) -> u32 {
        self.fill.room()
    }

    /// Gives the kernel the frame that begins at `address` in the region, to receive into; [`publish`](Self::publish) tells it. False
    /// without room.
    #[must_use]
    pub fn give(&mut self, address: u64) -> bool {
        self.fill.write(address)
    }

    /// True if the kernel waits for a system call on one of the queue's sockets before it receives.
    pub fn wants_wakeup(&self) -> bool {
        self.fill.wants_wakeup()
    }

    /// Tells the kernel of the frames that it was given.
    pub fn publish(&mut self) {
        self.fill.produce();
    }

    /// A frame that was sent, if there is one.
    pub fn sent(&mut self) -> Option<u64> {
        (self.completion.filled() > 0).then(|| self.completion.read())
    }

    /// Tells the kernel that the frames from [`sent`](Self::sent) are taken.
    pub fn took_sent(&mut self) {
        self.completion.consume();
    }
}

/// One AF_XDP socket.
#[derive(Debug)]
pub struct XdpSocket {
    receive: Option<Ring<XdpDesc>>,
    transmit: Option<Ring<XdpDesc>>,
    // Dropped after the mappings: the queue stays busy as long as they are there.
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
/// The region stays mapped until every socket that uses it is closed. No code reads or writes a frame that was given or pushed until the
/// kernel has given it back.
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
    /// Makes the rings of `fd`; with a supply if it is the first socket of its queue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn prepare(fd: OwnedFd, sizes: RingSizes, is_first_of_queue: bool) -> io::Result<(Self, Option<FrameSupply>)> {
        if is_first_of_queue {
            sockopt::set_xdp_umem_fill_ring_size(&fd, sizes.fill)?;
            sockopt::set_xdp_umem_completion_ring_size(&fd, sizes.completion)?;
        }
        if sizes.receive > 0 {
            sockopt::set_xdp_rx_ring_size(&fd, sizes.receive)?;
        }
        if sizes.transmit > 0 {
            sockopt::set_xdp_tx_ring_size(&fd, sizes.transmit)?;
        }
        let offsets = sockopt::xdp_mmap_offsets(&fd)?;
        let ring = |offsets, size, page_offset| {
            (size > 0).then(|| Ring::new(fd.as_fd(), offsets, size, page_offset)).transpose()
        };
        let receive = ring(&offsets.rx, sizes.receive, XDP_PGOFF_RX_RING)?;
        let transmit = ring(&offsets.tx, sizes.transmit, XDP_PGOFF_TX_RING)?;
        let supply = || -> io::Result<FrameSupply> {
            Ok(FrameSupply {
                fill: Ring::new(fd.as_fd(), &offsets.fr, sizes.fill, XDP_UMEM_PGOFF_FILL_RING)?,
                completion: Ring::new(fd.as_fd(), &offsets.cr, sizes.completion, XDP_UMEM_PGOFF_COMPLETION_RING)?,
            })
        };
        let supply = is_first_of_queue.then(supply).transpose()?;
        Ok((Self { receive, transmit, fd }, supply))
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

    /// The kernel's counters of this socket.
    ///
    /// # Errors
    /// The kernel's.
    pub fn statistics(fd: BorrowedFd<'_>) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(fd)?)
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

    /// Frames that wait to be received.
    pub fn received(&self) -> u32 {
        self.receive.as_ref().map_or(0, Ring::filled)
    }

    /// The next of them: where it begins in the region, and its bytes.
    pub fn take_received(&mut self) -> Option<(u64, u32)> {
        let receive = self.receive.as_mut().filter(|receive| receive.filled() > 0)?;
        let XdpDesc { addr, len, .. } = receive.read();
        Some((addr, len))
    }

    /// Tells the kernel that the frames from [`take_received`](Self::take_received) are taken.
    pub fn took_received(&mut self) {
        if let Some(receive) = &mut self.receive {
            receive.consume();
        }
    }

    /// Frames that can be handed over to be sent.
    pub fn room(&self) -> u32 {
        self.transmit.as_ref().map_or(0, Ring::room)
    }

    /// Hands over a frame; [`send`](Self::send) tells the kernel. False without room.
    #[must_use]
    pub fn push(&mut self, addr: u64, len: u32) -> bool {
        let options = rustix::net::xdp::XdpDescOptions::empty();
        self.transmit.as_mut().is_some_and(|transmit| transmit.write(XdpDesc { addr, len, options }))
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
        let Some(transmit) = &mut self.transmit else { return Ok(SendResult::All) };
        transmit.produce();
        if !transmit.wants_wakeup() {
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
