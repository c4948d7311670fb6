//! The laboratory's doorway to the kernel: network namespaces, and what benchmarks compare Laxity with: plain loops, and asynchronous I/O.
//!
//! All unsafe code of this crate stands here, each block with its reason.

pub mod bare_udp;
pub mod bare_xdp;
pub mod namespace;
pub(crate) mod posix_aio;
pub(crate) mod signals;
pub(crate) mod stamped;
pub(crate) mod uring;

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
