//! The doorway to the kernel: every system call and every unsafe block of this crate.
//!
//! Each unsafe block says why it is sound. Calls that rustix offers safely come from there; others (`sendmmsg`,
//! `recvmmsg`, the error queue, some socket options) go through libc.

mod address;
mod batch;
mod clock;
pub mod device;
mod errors;
pub mod features;
mod held;
mod lock;
pub mod process_clock;
pub mod rings;
mod socket;
mod thread;
mod wait;
mod wake;
mod wall;

use std::io;

use laxity_core::frames::{Frames, HeapFrames};

pub use clock::{
    ClockJumps, clock_identity, now, precise_timers, process_processor_time, thread_processor_time, times_waited,
    wall_now,
};
pub(crate) use clock::{WallReading, ahead_of_first_namespace, wall_reading};
pub use held::{hold, is_held};
pub use lock::{LockProtocol, PriorityGuard, PriorityLock};
pub use process_clock::from_kernel;
pub use socket::{PeerCredentials, buffers, mark, peer_credentials, refuse_descriptors};
pub use thread::{
    Urgency, deadline, forks, kernel_threads, ordinary, pin, pin_other, processor_time_of, processor_time_of_process,
    processors, real_time, real_time_of, short_slice, thread_id, wait_for_interruptions, watch_forks,
};
pub use wait::{PollFd, PollFlags, WaitSet, readable, wait};
pub use wake::{Wake, WakeSet};
pub use wall::{WallClock, vouched_wall, wall_clock};

pub(crate) use batch::Batch;
pub(crate) use errors::{NetworkError, next_error};
pub(crate) use socket::{BoundSocket, open, receive_tos, set_class};

/// A region whose packet areas stay where they are, so that the kernel can write into several at once.
///
/// Sending needs no such promise: shared borrows of many frames can be held together.
///
/// # Safety
/// `packet_mut(frame)` must return the same address and length for the same frame for as long as the region is not moved, and
/// no method of [`Frames`] called for one frame may free the packet area of another, write to it, or read from it.
pub unsafe trait StableFrames: Frames {}

// SAFETY: the memory is one boxed slice that is allocated in `new` and neither grows nor is replaced. `packet_mut` only computes
// a subslice of it, `take` and `free` touch only the list of free numbers.
unsafe impl StableFrames for HeapFrames {}

/// The error that the kernel left, if the answer of its call is negative.
pub(crate) fn done(answer: impl Into<i64>) -> io::Result<()> {
    if answer.into() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
