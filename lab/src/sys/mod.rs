//! The laboratory's doorway to the kernel: network namespaces, and what benchmarks compare Laxity with: plain loops, and asynchronous I/O.
//!
//! All unsafe code of this crate stands here, each block with its reason.

pub mod bare_udp;
pub mod bare_xdp;
pub mod namespace;
pub(crate) mod signals;
pub(crate) mod stamped;
pub(crate) mod uring;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Has a command's process end when the thread that starts it does, and so with this process, however that ends.
pub(crate) fn ends_with_its_thread(command: &mut Command) {
    // SAFETY: between fork and exec this is one system call, prctl(2), and nothing that allocates or locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// True if a socket says that nothing is there now.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    // Who answers may not be there yet, or no more.
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

/// What a call of a socket returned, or nothing if the socket says that there is nothing.
pub(crate) fn or_nothing<T: Default>(returned: io::Result<T>) -> io::Result<T> {
    returned.or_else(|error| if is_nothing(&error) { Ok(T::default()) } else { Err(error) })
}
