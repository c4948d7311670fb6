//! The program, live: with rights, in a network namespace of each test's own. Without, each says so and passes.

use std::io::BufRead;
use std::process::{Command, Stdio};

use super::*;

mod attach;
mod differential;
mod frames;
mod handlers;
mod judging;
mod modules;

/// The program, or why there is none.
fn loaded() -> Option<Program> {
    match Program::load() {
        Ok(program) => Some(program),
        Err(Error::NotPermitted { source }) => {
            println!("skipped: no right to load programs ({source})");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Puts this thread, and what it starts, into a network namespace of its own, with two ends of a cable that have 80 queues each.
/// Their numbers. The namespace is gone with the thread.
fn cable() -> Option<[u32; 2]> {
    // SAFETY: only changes where this thread's sockets are made.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        println!("skipped: no namespace of its own ({})", io::Error::last_os_error());
        return None;
    }
    let queues = ["numrxqueues", "80", "numtxqueues", "80"];
    let ends = [["name", "one", "type", "veth", "peer", "name", "two"].as_slice()].concat();
    let made = ip(&[&["link", "add"], queues.as_slice(), &ends[..4], &ends[4..], queues.as_slice()].concat());
    if !made {
        println!("skipped: `ip` is not there, or makes no veth");
        return None;
    }
    let index = |name: &str| -> u32 {
        let name = std::ffi::CString::new(name).unwrap();
        // SAFETY: a string that ends with a zero.
        unsafe { libc::if_nametoindex(name.as_ptr()) }
    };
    let ends = [index("one"), index("two")];
    assert!(ends.iter().all(|end| *end > 0));
    Some(ends)
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
