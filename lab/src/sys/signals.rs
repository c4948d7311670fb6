//! Signals that tell of input, and the threads that take them: by asking for the next one, not in a handler, which costs a frame on the stack and a system call more.

use std::io;
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use laxity_link::sys::thread_id;

/// From the kernel's asm-generic/fcntl.h; libc has them for some of its targets only.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// The owner of a descriptor, as the kernel has it.
#[repr(C)]
struct DescriptorOwner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// A queued signal of this crate that the calling thread blocks and takes by itself.
struct Signal {
    number: libc::c_int,
    set: libc::sigset_t,
}

/// Signals that a descriptor sends, and those of POSIX AIO.
enum SignalKind {
    Descriptor = 1,
    PosixAio = 2,
}

impl Signal {
    fn blocked(of: SignalKind) -> io::Result<Self> {
        let number = libc::SIGRTMIN() + of as libc::c_int;
        // SAFETY: a set of signals is plain data, for which zero is a value; sigemptyset makes it one of libc's.
        let mut set: libc::sigset_t = unsafe { zeroed() };
        // SAFETY: the set is valid for the length of the calls, and the signal one that the system has. No old mask is asked for.
        let result = unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, number);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut())
        };
        if result == 0 { Ok(Self { number, set }) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// Waits for the next one, or for less: the caller looks whether there is what it waits for.
    fn wait(&self) {
        // SAFETY: the set is valid for the length of the call; nothing of the signal is asked for.
        unsafe { libc::sigwaitinfo(&raw const self.set, ptr::null_mut()) };
    }
}

/// Blocks the signals of POSIX AIO in the calling thread and in all that it makes. glibc sends them to the process, so no thread may have them unblocked.
///
/// # Errors
/// The kernel's.
pub(crate) fn reserve() -> io::Result<()> {
    Signal::blocked(SignalKind::PosixAio).map(drop)
}

/// Has the kernel send the calling thread a signal for each datagram that comes to `socket` from here on; what waits for the next one. The first time it does not wait: there may
/// be a datagram already.
///
/// # Errors
/// The kernel's.
pub(crate) fn of_descriptor(socket: BorrowedFd<'_>) -> io::Result<impl FnMut() -> io::Result<()>> {
    let signal = Signal::blocked(SignalKind::Descriptor)?;
    let owner = DescriptorOwner { kind: F_OWNER_TID, id: thread_id() };
    let control = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    let fd = socket.as_raw_fd();
    // SAFETY: the pointer is to a valid owner for the length of the call.
    control(unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: this command takes an integer.
    control(unsafe { libc::fcntl(fd, F_SETSIG, signal.number) })?;
    // SAFETY: this command takes nothing.
    let flags = control(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: this command takes an integer.
    control(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC) })?;
    let mut is_first = true;
    Ok(move || {
        if !std::mem::take(&mut is_first) {
            signal.wait();
        }
        Ok(())
    })
}

/// Sends back each datagram of `bytes` bytes that comes to a socket that blocks, until one of another length comes. By POSIX AIO, as glibc has it: a thread of the library reads, and a signal
/// tells that it has. The signal was [reserved](reserve).
///
/// # Errors
/// The kernel's or the library's.
pub(crate) fn echo_by_aio(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    let signal = Signal::blocked(SignalKind::PosixAio)?;
    // One more, so that a longer datagram is seen to be that.
    let mut message = vec![0u8; bytes + 1].into_boxed_slice();
    // SAFETY: an aiocb is plain data, for which zero is a value.
    let mut request: Box<libc::aiocb> = Box::new(unsafe { zeroed() });
    request.aio_fildes = socket.as_raw_fd();
    request.aio_buf = message.as_mut_ptr().cast();
    request.aio_nbytes = message.len();
    request.aio_sigevent.sigev_notify = libc::SIGEV_SIGNAL;
    request.aio_sigevent.sigev_signo = signal.number;
    let request = Box::into_raw(request);
    let echoed = loop {
        // SAFETY: request and message stay where they are until the read is over, which is waited for below; no other read has them.
        if unsafe { libc::aio_read(request) } != 0 {
            break Err(io::Error::last_os_error());
        }
        let error = loop {
            // SAFETY: the request is one that was submitted.
            match unsafe { libc::aio_error(request) } {
                libc::EINPROGRESS => signal.wait(),
                error => break error,
            }
        };
        // SAFETY: the request is over, and this is the only call that asks what it returned.
        let returned = unsafe { libc::aio_return(request) };
        if error == libc::ECONNREFUSED {
            continue;
        }
        match usize::try_from(returned) {
            Ok(found) if found == bytes => {
                if let Err(error) = socket.send(&message[..bytes]) {
                    break Err(error);
                }
            }
            Ok(_) => break Ok(()),
            Err(_) => break Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: it came from a box, and no read goes on.
    drop(unsafe { Box::from_raw(request) });
    echoed
}
