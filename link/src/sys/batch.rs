//! Many datagrams in one system call. The arrays are made once; every pointer in them is written anew before each call, so
//! that no older pointer is ever followed.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use laxity_core::frames::FrameId;
use laxity_core::units::NANOS_PER_SECOND;

use super::StableFrames;
use super::address::Address;
use super::socket::SO_RXQ_OVFL;

/// Room for two control messages of at most 32 bits each, and a time; `u64` for the alignment of `cmsghdr`.
type Control = [u64; 10];

const _: () = {
    // SAFETY: CMSG_SPACE only computes.
    let space = unsafe { libc::CMSG_SPACE(size_of::<u32>() as libc::c_uint) };
    // SAFETY: likewise.
    let stamp = unsafe { libc::CMSG_SPACE(size_of::<libc::timespec>() as libc::c_uint) };
    assert!(2 * space as usize + stamp as usize <= size_of::<Control>());
    assert!(align_of::<libc::cmsghdr>() <= align_of::<Control>());
};

const EMPTY_SLICE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// The values of one received datagram beside its bytes.
pub(crate) struct Datagram {
    pub(crate) len: usize,
    /// It was longer than the frame.
    pub(crate) truncated: bool,
    pub(crate) peer: SocketAddr,
    /// The number of datagrams that the kernel had dropped at this socket when it queued this one, modulo 2³²; `None` means none.
    pub(crate) drops: Option<u32>,
    /// The type of service (IPv4) or traffic class (IPv6), if it was asked for; else 0.
    pub(crate) tos: u8,
    /// The time at which the kernel had it, by CLOCK_REALTIME, ns since the epoch.
    pub(crate) stamp: Option<u64>,
}

/// The arrays of one `sendmmsg` or `recvmmsg`: a batch is for one of them.
pub(crate) struct Batch {
    headers: Box<[libc::mmsghdr]>,
    slices: Box<[libc::iovec]>,
    addresses: Box<[Address]>,
    /// Of what is received.
    controls: Box<[Control]>,
}

// SAFETY: the pointers inside are written before each use within one call of `send` or `receive`. `datagram` follows only `msg_control`, which points
// into a box that moves with `self` without changing its address.
unsafe impl Send for Batch {}

impl Batch {
    /// Room for `count` datagrams. Allocates now and never again.
    pub(crate) fn new(count: usize) -> Self {
        // SAFETY: mmsghdr is plain data for which zero (null pointers, no lengths) is a value.
        let empty = || unsafe { zeroed() };
        Self {
            headers: (0..count).map(|_| empty()).collect(),
            slices: vec![EMPTY_SLICE; count].into(),
            addresses: vec![Address::EMPTY; count].into(),
            controls: vec![Control::default(); count].into(),
        }
    }

    /// Sends the first messages, as many as there is room for; returns how many the kernel took, at least one.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        ipv6: bool,
        messages: impl Iterator<Item = (&'a [u8], SocketAddr)>,
    ) -> io::Result<usize> {
        let mut count = 0;
        let slots = self.headers.iter_mut().zip(self.slices.iter_mut()).zip(self.addresses.iter_mut());
        for (((header, slice), address), (bytes, peer)) in slots.zip(messages) {
            let (name, name_len) = Address::for_socket(peer, ipv6);
            *address = name;
            // The kernel only reads from it, although the type says `mut`.
            *slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            header.msg_hdr.msg_name = ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = name_len;
            header.msg_hdr.msg_iov = slice;
            header.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: `count` headers were filled above. Their addresses and slices are in boxes that `self` owns and does not move;
        // the bytes are borrowed for 'a, which outlives this call. No control data is given: this batch receives nothing.
        let sent =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives into `armed` in order; returns how many were filled, at least one.
    pub(crate) fn receive<F: StableFrames>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: &mut F,
        armed: &[FrameId],
    ) -> io::Result<usize> {
        let mut count = 0;
        let slots = self.headers.iter_mut().zip(self.slices.iter_mut()).zip(self.addresses.iter_mut());
        for ((((header, slice), address), control), frame) in slots.zip(self.controls.iter_mut()).zip(armed) {
            let area = frames.packet_mut(frame);
            *slice = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
            *address = Address::EMPTY;
            header.msg_hdr.msg_name = ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = Address::BYTES;
            header.msg_hdr.msg_iov = slice;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = ptr::from_mut(control).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
            header.msg_hdr.msg_flags = 0;
            count += 1;
        }
        // SAFETY: `count` headers were filled above; addresses, slices and controls are in boxes that `self` owns. The packet
        // areas stay valid and in place while the others are asked for, which `StableFrames` promises, and `frames` is
        // borrowed exclusively until this call is over.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// The datagram in the frame `index` of the last successful `receive`; `index` is less than what that returned.
    pub(crate) fn datagram(&self, index: usize) -> Datagram {
        let header = &self.headers[index];
        let mut datagram = Datagram {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            peer: self.addresses[index].read(),
            drops: None,
            tos: 0,
            stamp: None,
        };
        for_each_control(&header.msg_hdr, &self.controls[index], |level, kind, value| match (level, kind) {
            (libc::SOL_SOCKET, SO_RXQ_OVFL) => datagram.drops = Some(first(value)),
            // One byte with IPv4.
            (libc::SOL_IP, libc::IP_TOS) => datagram.tos = value[0],
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => datagram.tos = first(value) as u8,
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => datagram.stamp = time(value),
            _ => {}
        });
        datagram
    }
}

fn first(value: [u8; 16]) -> u32 {
    u32::from_ne_bytes([value[0], value[1], value[2], value[3]])
}

/// A `timespec` of two words in ns; `None` if it is shorter here, or no time.
fn time(value: [u8; 16]) -> Option<u64> {
    let [seconds, nanos] = [0, 8].map(|at| value[at..at + 8].try_into().map(i64::from_ne_bytes).ok());
    let (seconds, nanos) = (u64::try_from(seconds?).ok()?, u64::try_from(nanos?).ok()?);
    (size_of::<libc::timespec>() == 16).then(|| seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos))
}

/// Calls `found` with level, type and the first sixteen bytes (zero where there are fewer) of each control message of `header`, whose buffer is `control`.
#[allow(clippy::unnecessary_cast, reason = "the lengths are u32 with musl")]
pub(super) fn for_each_control(
    header: &libc::msghdr,
    control: &[u64],
    mut found: impl FnMut(libc::c_int, libc::c_int, [u8; 16]),
) {
    let given = (header.msg_controllen as usize).min(size_of_val(control));
    // SAFETY: CMSG_LEN only computes.
    let first = unsafe { libc::CMSG_LEN(0) as usize };
    let bytes = control.as_ptr().cast::<u8>();
    let mut at = 0;
    while at + first <= given {
        // SAFETY: `first` bytes from `at` on, at least a cmsghdr, lie inside of the control buffer, which is wholly initialised.
        let message = unsafe { bytes.add(at).cast::<libc::cmsghdr>().read_unaligned() };
        let len = message.cmsg_len as usize;
        if len < first || at + len > given {
            return;
        }
        let mut value = [0; 16];
        for (offset, byte) in value.iter_mut().enumerate().take(len - first) {
            // SAFETY: it is less than `at + len`, which is at most the size of the buffer.
            *byte = unsafe { bytes.add(at + first + offset).read() };
        }
        found(message.cmsg_level, message.cmsg_type, value);
        // SAFETY: CMSG_SPACE only computes; the payload's length is that of a message that fits into the buffer.
        at += unsafe { libc::CMSG_SPACE((len - first) as libc::c_uint) as usize };
    }
}
