//! io_uring as an expert uses it for one socket: one submission receives all datagrams into buffers that the kernel was given, an answer is submitted by the call that waits for the next message,
//! and the kernel completes requests only in that call.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, CancelBuilder, Fd};
use io_uring::{IoUring, cqueue, opcode};
use laxity_link::sys::rings::Mapping;

/// Requests that may be submitted at once.
const REQUESTS: u32 = 16;
/// Buffers for what comes: a power of two, and more than come before the oldest is answered.
const BUFFERS: u16 = 64;
const GROUP: u16 = 0;
/// Bytes of a buffer.
const BUFFER: usize = 2048;
/// The offset of the first one: behind the kernel's ring of them.
const FIRST: usize = 4096;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

const _: () = assert!(BUFFERS as usize * size_of::<BufRingEntry>() <= FIRST && BUFFERS.is_power_of_two());

/// Buffers that the kernel fills, and the ring in which it is given them.
struct Buffers {
    memory: Mapping,
    given: u16,
}

impl Buffers {
    /// All of them are given.
    fn new() -> io::Result<Self> {
        let mut buffers = Self { memory: Mapping::anonymous(FIRST + usize::from(BUFFERS) * BUFFER)?, given: 0 };
        (0..BUFFERS).for_each(|number| buffers.give(number));
        Ok(buffers)
    }

    fn at(&self, number: u16) -> *mut u8 {
        // SAFETY: the mapping holds `BUFFERS` of them behind `FIRST`.
        unsafe { self.memory.start().add(FIRST + usize::from(number % BUFFERS) * BUFFER) }.as_ptr()
    }

    /// Gives the kernel a buffer, which it has no longer.
    fn give(&mut self, number: u16) {
        let ring: *mut BufRingEntry = self.memory.start().as_ptr().cast();
        // SAFETY: the ring lies at the beginning of the mapping, of whole pages, with a place for each buffer. The kernel reads a place only once the tail is behind it, which is stored after
        // it; the tail shares the first place with what is written there, but no byte.
        unsafe {
            let entry = &mut *ring.add(usize::from(self.given % BUFFERS));
            entry.set_addr(self.at(number) as u64);
            entry.set_len(BUFFER as u32);
            entry.set_bid(number);
            self.given = self.given.wrapping_add(1);
            let tail = BufRingEntry::tail(ring).cast_mut();
            AtomicU16::from_ptr(tail).store(self.given, Ordering::Release);
        }
    }
}

fn ring() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(REQUESTS)
}

/// True if this host has it.
///
/// # Errors
/// The kernel has none, is too old, or this process may not use it.
pub(crate) fn check() -> io::Result<()> {
    ring().map(drop)
}

/// Sends back each datagram of `bytes` bytes that comes to a socket, until one of another length comes.
///
/// # Errors
/// The kernel's.
pub(crate) fn echo(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    // Unmapped after the ring is gone.
    let mut buffers = Buffers::new()?;
    let mut ring = ring()?;
    let memory = buffers.memory.start().as_ptr() as u64;
    // SAFETY: the mapping is longer than the ring, and lives until that is gone.
    unsafe { ring.submitter().register_buf_ring_with_flags(memory, BUFFERS, GROUP, 0) }?;
    let echoed = serve(&mut ring, &mut buffers, Fd(socket.as_raw_fd()), bytes);
    // Nothing may be written to a buffer any more.
    match ring.submitter().register_sync_cancel(None, CancelBuilder::any()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            // Better lost than written to by the kernel when it is another's.
            std::mem::forget(buffers);
            echoed.and(Err(error))
        }
        _ => echoed,
    }
}

fn serve(ring: &mut IoUring, buffers: &mut Buffers, socket: Fd, bytes: usize) -> io::Result<()> {
    let (submitter, mut requests, mut completions) = ring.split();
    let mut is_armed = false;
    loop {
        let mut push = |request: &Entry| {
            // SAFETY: a receive has the kernel's own buffers, and a send one of the same mapping, which lives until all requests are cancelled.
            unsafe { requests.push(request) }.map_err(io::Error::other)
        };
        if !is_armed {
            push(&opcode::RecvMulti::new(socket, GROUP).build().user_data(RECEIVE))?;
            is_armed = true;
        }
        completions.sync();
        for completion in &mut completions {
            let (flags, found) = (completion.flags(), usize::try_from(completion.result()));
            let failed = || io::Error::from_raw_os_error(-completion.result());
            if completion.user_data() == SEND {
                // One that was sent completes without a word. The peer may have closed its port.
                match failed() {
                    error if error.raw_os_error() == Some(libc::ECONNREFUSED) => continue,
                    error => return Err(error),
                }
            }
            is_armed &= cqueue::more(flags);
            match (found, cqueue::buffer_select(flags)) {
                (Ok(found), Some(number)) if found == bytes => {
                    let send = opcode::Send::new(socket, buffers.at(number), bytes as u32).build();
                    push(&send.flags(Flags::SKIP_SUCCESS).user_data(SEND))?;
                    // The next datagram is written only after what was submitted before has been done, and into the buffer that was given first.
                    buffers.give(number);
                }
                (Ok(_), _) => return Ok(()),
                (Err(_), _) if matches!(-completion.result(), libc::ENOBUFS | libc::ECONNREFUSED) => {}
                (Err(_), _) => return Err(failed()),
            }
        }
        requests.sync();
        match submitter.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn datagrams_of_the_length_come_back() {
        if let Err(error) = check() {
            return println!("skipped: no io_uring: {error}");
        }
        let (client, server) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        thread::scope(|scope| {
            let served = scope.spawn(|| echo(&server, 100));
            // More than there are buffers.
            let answers = (0..200_u8).map(|number| {
                let mut found = [0; 200];
                client.send(&[number; 100])?;
                loop {
                    match client.recv(&mut found) {
                        // What the kernel has the threads of a process do for its ring counts as a signal.
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        length => break Ok((length?, found[99])),
                    }
                }
            });
            let answers: io::Result<Vec<_>> = answers.collect();
            // Whatever came, or the server waits for ever.
            client.send(&[0]).unwrap();
            served.join().unwrap().unwrap();
            assert_eq!(answers.unwrap(), (0..200).map(|number| (100, number)).collect::<Vec<_>>());
        });
    }
}
