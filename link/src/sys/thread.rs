//! The scheduling class of a thread, and the processors that it runs on.

use std::io;
use std::os::fd::AsFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use laxity_core::units::Duration;
use rustix::event::epoll;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::done;

/// Makes the calling thread SCHED_FIFO with `priority` (1 to 99); threads and processes that it starts are ordinary ones again.
///
/// # Errors
/// EPERM without CAP_SYS_NICE or an RLIMIT_RTPRIO, EINVAL for another priority. The thread runs on as it is.
pub fn real_time(priority: u8) -> io::Result<()> {
    // 0 names the calling thread.
    real_time_of(0, priority)
}

/// The calling thread's number, by which [`real_time_of`], [`ordinary`] and [`processor_time_of`] know it.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// As [`real_time`], of a thread of this process.
///
/// # Errors
/// As [`real_time`]; ESRCH if there is no such thread.
pub fn real_time_of(thread: i32, priority: u8) -> io::Result<()> {
    set_scheduler(thread, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority.into())
}

/// Makes a thread of this process an ordinary one.
///
/// # Errors
/// ESRCH if there is no such thread.
pub fn ordinary(thread: i32) -> io::Result<()> {
    set_scheduler(thread, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
}

fn set_scheduler(thread: i32, policy: i32, sched_priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the pointer is to a valid sched_param for the length of the call; the kernel checks the number of the thread.
    done(unsafe { libc::sched_setscheduler(thread, policy, &parameters) })
}

/// The scheduling class of a thread: its policy and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    policy: i32,
    priority: i32,
}

impl Urgency {
    /// The scheduling class of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of_thread() -> io::Result<Self> {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 names the calling thread, and the pointer is to a sched_param that the kernel fills.
        let (policy, answer) = unsafe { (libc::sched_getscheduler(0), libc::sched_getparam(0, &mut parameters)) };
        done(policy.min(answer))?;
        Ok(Self { policy, priority: parameters.sched_priority })
    }

    /// Its priority, 1 to 99, if it runs as SCHED_FIFO or SCHED_RR.
    pub fn real_time(self) -> Option<u8> {
        let is_real_time = matches!(self.policy & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR);
        u8::try_from(self.priority).ok().filter(|_| is_real_time)
    }

    /// The same class with another priority.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self { priority: i32::from(priority), ..self }
    }

    /// Gives the calling thread this class.
    ///
    /// # Errors
    /// As [`real_time`].
    pub fn take(self) -> io::Result<()> {
        set_scheduler(0, self.policy, self.priority)
    }
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Makes [`forks`] count from now on.
pub fn watch_forks() {
    static ONCE: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only adds to an atomic, which is permitted between fork and exec.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// The number of forks (fork(2), after [`watch_forks`]) by which this process is a copy: it grows in the copy, not in the process that was copied. Where that has grown, none of the threads that were there
/// before run any more.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The kernel's sched_attr (SCHED_ATTR_SIZE_VER0).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// In the ordinary class: the slice.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes the calling thread SCHED_DEADLINE: it may take `runtime` of a processor in every `period`, and gets it before the period's end.
/// It runs on any processor of the system, and cannot start threads.
///
/// # Errors
/// EPERM without CAP_SYS_NICE, or while it is kept to some processors; EBUSY if the kernel has not so much left; EINVAL for a runtime below
/// 1024 ns or above the period. The thread runs on as it is.
pub fn deadline(runtime: Duration, period: Duration) -> io::Result<()> {
    let (runtime, period) = (runtime.as_nanos(), period.as_nanos());
    let policy = libc::SCHED_DEADLINE as u32;
    set_attributes(Attributes { policy, runtime, deadline: period, period, ..Attributes::default() })
}

/// Asks for a slice of `slice` in the ordinary class, for the calling thread; kernels before 6.12 ignore it.
///
/// # Errors
/// The kernel's; the thread runs on as it is.
pub fn short_slice(slice: Duration) -> io::Result<()> {
    // As it is: a slice is no reason to lose what the user set.
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    let policy = libc::SCHED_OTHER as u32;
    set_attributes(Attributes { policy, nice, runtime: slice.as_nanos(), ..Attributes::default() })
}

/// Of the calling thread.
fn set_attributes(attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    // SAFETY: `attributes` has the layout of the kernel's sched_attr (SCHED_ATTR_SIZE_VER0) and says its size.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

/// The kernel's own threads for whose name `is_it` is true, as far as they can be seen. A process may have any name, and does not count.
///
/// # Errors
/// There is no `/proc`.
pub fn kernel_threads(is_it: impl Fn(&str) -> bool) -> io::Result<Vec<i32>> {
    /// PF_KTHREAD.
    const KERNEL: u32 = 0x20_0000;
    let found = std::fs::read_dir("/proc")?.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        if !is_it(name.trim_end()) {
            return None;
        }
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name: state, parent, group, session, terminal, its group, flags.
        let flags: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()?;
        (flags & KERNEL != 0).then_some(number)
    });
    Ok(found.collect())
}

/// The time for which a thread of this process has had a processor so far.
///
/// # Errors
/// EINVAL if there is no such thread.
pub fn processor_time_of(thread: i32) -> io::Result<Duration> {
    // CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD.
    processor_time(thread, 6)
}

/// Likewise for all threads of any process together, or for a thread of the kernel.
///
/// # Errors
/// EINVAL if there is no such process.
pub fn processor_time_of_process(process: i32) -> io::Result<Duration> {
    // CPUCLOCK_SCHED.
    processor_time(process, 2)
}

fn processor_time(of: i32, kind: i32) -> io::Result<Duration> {
    // The kernel's number of a processor clock: the complement of whose it is, three bits up, and its kind.
    let clock = (!of << 3) | kind;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that the kernel fills; it checks the clock's number.
    done(unsafe { libc::clock_gettime(clock, &mut time) })?;
    let [seconds, nanos] = [time.tv_sec.try_into(), time.tv_nsec.try_into()].map(|part| part.unwrap_or(0));
    Ok(Duration::from_secs(seconds) + Duration::from_nanos(nanos))
}

/// Calls `interrupted` each time that the kernel ends a wait of the calling thread without a reason of the thread's own; the thread takes no
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

/// The processors that this process may run on; empty if that is unknown.
pub fn processors() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect()
}

/// Keeps the calling thread, and those that it starts, on one processor.
///
/// # Errors
/// The process may not run there.
pub fn pin(processor: usize) -> io::Result<()> {
    // 0 names the calling thread.
    pin_other(0, processor)
}

/// Keeps a thread, of whatever process, on one processor.
///
/// # Errors
/// EPERM where that is not permitted; ESRCH if there is no such thread.
pub fn pin_other(thread: i32, processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(rustix::thread::Pid::from_raw(thread), &only)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_fork_knows_it_and_its_parent_does_not() {
        watch_forks();
        let before = forks();
        // SAFETY: the child only asks for an atomic and exits, both of which are permitted after fork in a process of several threads.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(if forks() == before + 1 { 42 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert_eq!((libc::WEXITSTATUS(status), forks()), (42, before));
    }

    #[test]
    fn a_priority_that_cannot_be_is_refused() {
        let error = std::thread::spawn(|| real_time(100).unwrap_err()).join().unwrap();
        assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)), "{error}");
    }
}
