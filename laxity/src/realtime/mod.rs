//! Requests of the executive's thread to the kernel, and their results.

use std::cell::Cell;
use std::fs;
use std::io;

use laxity_core::units::Duration;

/// The scheduling of the executive's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Scheduling {
    /// SCHED_FIFO with this priority.
    Fifo(u8),
    /// An ordinary thread with a short slice (EEVDF), so that it is picked soon after it wakes.
    ShortSlice,
    /// An ordinary thread.
    Ordinary,
}

/// Locks the memory that the process has and will have.
///
/// # Errors
/// If the process has no right to lock without limit. Then nothing is locked: with a small limit, later allocations would fail.
pub fn lock_memory() -> io::Result<()> {
    use rustix::process::{Resource, geteuid, getrlimit};
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    if !unlimited && !geteuid().is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the limit of locked memory is too small"));
    }
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(io::Error::from)
}

/// Keeps all processors of this host out of deep idle states, from which they wake slowly, as long as the file is open.
///
/// # Errors
/// The kernel's error: as a rule only root is permitted.
pub fn keep_awake() -> io::Result<fs::File> {
    use std::io::Write as _;
    const FILE: &str = "/dev/cpu_dma_latency";
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{FILE}: {error}"));
    let mut file = fs::OpenOptions::new().write(true).open(FILE).map_err(named)?;
    // The requested latency, in microseconds.
    file.write_all(&0i32.to_ne_bytes()).map_err(named)?;
    Ok(file)
}

/// The part of each period that real-time threads may run on this host (`sched_rt_runtime_us`); `None` for all of it.
pub(crate) fn throttle() -> Option<(Duration, Duration)> {
    let read = |name: &str| -> Option<i64> {
        fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
    };
    let runtime = u64::try_from(read("sched_rt_runtime_us")?).ok()?;
    let period = u64::try_from(read("sched_rt_period_us")?).ok()?;
    (runtime < period).then(|| (Duration::from_micros(runtime), Duration::from_micros(period)))
}

/// True if the machine has one processor only, as far as it reports.
pub(crate) fn has_one_processor() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    online.trim().parse::<u32>().is_ok()
}

/// A random number for secrets: the key of tokens and keys.
///
/// # Errors
/// The kernel's error.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; size_of::<u128>()];
    let mut got = 0;
    while got < bytes.len() {
        got += rustix::rand::getrandom(&mut bytes[got..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(u128::from_ne_bytes(bytes))
}

thread_local! {
    static IS_EXECUTIVE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as an executive's: it may not wait for itself.
pub(crate) fn begin_executive() {
    IS_EXECUTIVE.set(true);
}

/// True if the calling thread is an executive's, so that the caller is a handler or an upcall.
pub(crate) fn is_executive() -> bool {
    IS_EXECUTIVE.get()
}

/// Prepares the calling thread for handlers: makes what WebAssembly needs once in each thread, so that no message has to wait for
/// it.
pub(crate) fn begin_handlers() {
    #[cfg(feature = "wasm")]
    wasmtime::Engine::tls_eager_initialize();
}
