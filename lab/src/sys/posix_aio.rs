//! POSIX AIO, as glibc has it: a thread of the library reads, and a signal tells that it has.

use std::io;
use std::mem::zeroed;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::signals::{Signal, SignalKind};

/// Sends back each datagram of `bytes` bytes that comes to a socket that blocks, until one of another length comes. The signal was [reserved](super::signals::reserve).
///
/// # Errors
/// The kernel's or the library's.
pub(crate) fn echo(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
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
