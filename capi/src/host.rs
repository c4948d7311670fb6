//! Hosts, and the costs that they reason with.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;

use laxity::{Costs, Host as Inner, HostConfig as Config, Placement};
use laxity_core::platform::Platform;

use crate::failure::{Failure, asked, borrowed, give_object, guarded, guarded_or, take, text};

/// The costs of this host's calibration; assumed ones if it was not calibrated.
pub const LAXITY_COSTS_OF_THIS_HOST: c_int = 0;
/// Costs that are assumed of a present-day machine, not measured.
pub const LAXITY_COSTS_ASSUMED: c_int = 1;
/// A value instead of a real-time priority: the thread stays an ordinary one.
pub const LAXITY_NO_PRIORITY: c_int = 0;

/// A thread of the host's own does its work: messages are handed over to it, and by it.
pub const LAXITY_PLACEMENT_THREAD: c_int = 0;
/// Threads in laxity_sender_send() and laxity_receiver_recv() do the host's work themselves, as far as they run as SCHED_FIFO or SCHED_RR: no hand-over, and one wake-up
/// less at each end. For that, every bound contains the platform's wake-up twice.
pub const LAXITY_PLACEMENT_INLINE: c_int = 1;
/// The executive of another process, to which this one attaches (laxity serve, or the first process with LAXITY_PLACEMENT_AUTO): its address, link and costs. Upcalls need
/// an executive in this process.
pub const LAXITY_PLACEMENT_SERVER: c_int = 2;
/// As LAXITY_PLACEMENT_SERVER, if a process serves; else as LAXITY_PLACEMENT_THREAD, and this process serves the next ones, unless it claims nothing.
pub const LAXITY_PLACEMENT_AUTO: c_int = 3;

/// A host: the executive that sends and receives its channels. Threads: every function that takes a host may be called from any thread at any time,
/// except laxity_host_free().
pub struct Host(pub(crate) Inner);

/// The parameters of a host. Begin with laxity_host_config_default().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Address and port of its link, such as "127.0.0.1:5709"; port 0 takes any. Null is loopback, any port.
    pub bind: *const c_char,
    /// LAXITY_COSTS_OF_THIS_HOST or LAXITY_COSTS_ASSUMED.
    pub costs: c_int,
    /// The SCHED_FIFO priority of the executive, 1 to 99, or LAXITY_NO_PRIORITY. If it is not permitted, the host does without it.
    pub fifo_priority: c_int,
    /// True if the host does without a claim of its link and processors, and does not look at other hosts' claims: for hosts that are emulated on one machine. Otherwise
    /// a second host on the same link or processors is refused.
    pub claim_nothing: bool,
    /// True to lock the process's memory, where that is permitted without limit.
    pub lock_memory: bool,
    /// The longest iteration of an upcall on the executive's own thread (laxity_trusted_upcalls_start()), nanoseconds; 0 if there will be none.
    pub longest_iteration_ns: u64,
    /// LAXITY_PLACEMENT_AUTO, _THREAD, _INLINE or _SERVER; inline excludes upcalls on the executive's own thread.
    pub placement: c_int,
    /// The time for which the executive spins with nothing to do before it sleeps, nanoseconds, up to 1,000,000; 0 for not at all. A frame or message that comes meanwhile costs no wake-up. It takes
    /// processor time: no more than the time for which the thread did not run before, and never so much that the kernel stops it. Where that is not possible it is done
    /// without.
    pub spin_ns: u64,
}

pub(crate) fn costs(which: c_int) -> Result<Option<Costs>, Failure> {
    match which {
        LAXITY_COSTS_OF_THIS_HOST => Ok(None),
        LAXITY_COSTS_ASSUMED => Ok(Some(Platform::assumed_host().into())),
        other => Err(Failure::argument(format!("costs is {other}, expected LAXITY_COSTS_OF_THIS_HOST or _ASSUMED"))),
    }
}

fn placement(which: c_int) -> Result<Placement, Failure> {
    match which {
        LAXITY_PLACEMENT_THREAD => Ok(Placement::Thread),
        LAXITY_PLACEMENT_INLINE => Ok(Placement::Inline),
        LAXITY_PLACEMENT_SERVER => Ok(Placement::Server),
        LAXITY_PLACEMENT_AUTO => Ok(Placement::Auto),
        other => {
            let expected = "expected LAXITY_PLACEMENT_THREAD, _INLINE, _SERVER or _AUTO";
            Err(Failure::argument(format!("placement is {other}, {expected}")))
        }
    }
}

pub(crate) fn fifo(priority: c_int, most: u8) -> Result<Option<u8>, Failure> {
    match u8::try_from(priority) {
        Ok(0) => Ok(None),
        Ok(priority) if priority <= most => Ok(Some(priority)),
        _ => Err(Failure::argument(format!("fifo_priority is {priority}, expected 0 to {most}"))),
    }
}

pub(crate) fn address(of: &str, what: &str) -> Result<SocketAddr, Failure> {
    let parsed = of.parse();
    parsed.map_err(|_| Failure::argument(format!("{what} is {of:?}, expected an address such as 127.0.0.1:5709")))
}

/// The default: loopback and any port, the costs of this host, real-time priority 70 and locked memory where permitted, link and processors divided with the other
/// executives of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn laxity_host_config_default() -> HostConfig {
    HostConfig {
        bind: std::ptr::null(),
        costs: LAXITY_COSTS_OF_THIS_HOST,
        fifo_priority: 70,
        claim_nothing: false,
        lock_memory: true,
        longest_iteration_ns: 0,
        placement: LAXITY_PLACEMENT_AUTO,
        spin_ns: 0,
    }
}

/// Starts a host. `config` may be null for the default, and is not needed afterwards. On success `*host` is the caller's, to be given to
/// laxity_host_free(); otherwise it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_start(config: *const HostConfig, host: *mut *mut Host) -> c_int {
    let start = || {
        // SAFETY: the caller keeps the rules of the header: null, or valid during the call.
        let given = unsafe { config.as_ref() }.copied().unwrap_or_else(|| laxity_host_config_default());
        let mut config = Config { costs: costs(given.costs)?, ..Config::default() };
        if !given.bind.is_null() {
            // SAFETY: as above.
            config.bind = address(unsafe { text(given.bind, "bind") }?, "bind")?;
        }
        config.advanced.fifo_priority = fifo(given.fifo_priority, 99)?;
        config.advanced.lock_memory = given.lock_memory;
        config.advanced.longest_iteration = std::time::Duration::from_nanos(given.longest_iteration_ns);
        config.placement = placement(given.placement)?;
        config.advanced.spin = std::time::Duration::from_nanos(given.spin_ns);
        if given.claim_nothing {
            config.advanced.claims = None;
        }
        Ok(Host(Inner::start(config)?))
    };
    // SAFETY: as above.
    unsafe { give_object(host, "host", start) }
}

/// Writes the address of the host's link with its real port, such as "127.0.0.1:40123", and a zero byte to `buffer`, which has room for `capacity` bytes;
/// 64 are enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_address(host: *const Host, buffer: *mut c_char, capacity: usize) -> c_int {
    guarded(|| {
        // SAFETY: the caller keeps the rules of the header.
        let address = unsafe { borrowed(host, "host") }?.0.address().to_string();
        if buffer.is_null() {
            return Err(Failure::argument("buffer is a null pointer"));
        }
        if capacity <= address.len() {
            return Err(Failure::argument(format!("capacity is {capacity}, expected {} at least", address.len() + 1)));
        }
        // SAFETY: there is room for it and the zero byte; what was just made does not overlap it.
        unsafe {
            buffer.copy_from_nonoverlapping(address.as_ptr().cast(), address.len());
            buffer.add(address.len()).write(0);
        }
        Ok(())
    })
}

/// The number of times since the host started that the platform took more of its executive's time at once than the bounds count on: the bounds did not hold then. Zero for
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_gaps(host: *const Host) -> u64 {
    // SAFETY: the caller keeps the rules of the header.
    unsafe { asked(host, 0, |host| host.0.gaps().count) }
}

/// Ends the host, its channels and its threads; waits for them. Null is ignored. Senders, receivers and upcalls of the host may be used and freed
/// afterwards; their functions then fail.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn laxity_host_free(host: *mut Host) {
    // SAFETY: the caller gives it back once.
    guarded_or((), || drop(unsafe { take(host) }));
}

/// Now, ns of CLOCK_MONOTONIC.
#[unsafe(no_mangle)]
pub extern "C" fn laxity_now_ns() -> u64 {
    laxity_link::sys::now().as_nanos()
}
