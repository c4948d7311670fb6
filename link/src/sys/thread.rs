//! What a thread runs as, and where.

use std::io;
use std::os::fd::AsFd;

use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Makes the calling thread SCHED_FIFO with `priority` (1 to 99); threads and processes that it starts are ordinary ones again.
///
/// # Errors
/// EPERM without CAP_SYS_NICE or an RLIMIT_RTPRIO, EINVAL for another priority. The thread runs on as it is.
pub fn real_time(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: the pointer is to a valid sched_param for the length of the call; 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls `interrupted` each time that the kernel ends a wait of the calling thread without a reason of the thread's own, which takes no
/// signals from here on: the process had been stopped, and goes on. Calls `asked` when `question`, an eventfd, was written to: by then
/// it has been interrupted for all that happened before. Never returns, unless the kernel refuses.
///
/// # Errors
/// The kernel has no epoll for it.
pub fn wait_for_interruptions(
    question: impl AsFd,
    mut interrupted: impl FnMut(),
    mut asked: impl FnMut(),
) -> io::Result<()> {
    // SAFETY: the set is a local that sigfillset fills; the old one is not asked for.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    let waits = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&waits, &question, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let mut event = [const { std::mem::MaybeUninit::uninit() }; 1];
    loop {
        match epoll::wait(&waits, &mut event[..], None) {
            Err(rustix::io::Errno::INTR) => interrupted(),
            Ok(_) => {
                rustix::io::read(&question, &mut [0; 8])?;
                asked();
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The processors that this process may run on; none if it cannot tell.
pub fn processors() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect()
}

/// Keeps the calling thread, and those that it starts, on one processor.
///
/// # Errors
/// The process may not run there.
pub fn pin(processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_that_cannot_be_is_refused() {
        let error = std::thread::spawn(|| real_time(100).unwrap_err()).join().unwrap();
        assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)), "{error}");
    }
}
