//! The memory of the process, locked for a scenario.

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, geteuid, getrlimit};

/// Locks the process's memory, or says why not: with a small limit, later allocations would fail.
pub(crate) fn lock() -> Result<(), String> {
    if getrlimit(Resource::Memlock).current.is_some() && !geteuid().is_root() {
        return Err("memory is not locked: the limit of locked memory is too small".to_owned());
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(|error| format!("memory is not locked: {error}"))
}

/// Unlocks the process's memory when it goes.
pub(crate) struct Unlock;

impl Drop for Unlock {
    fn drop(&mut self) {
        let _ = munlockall();
    }
}
