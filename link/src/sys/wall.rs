//! What the kernel knows of the wall clock: whether somebody keeps it to the world's time, and how far it may be off.

use std::io;
use std::mem::zeroed;

use laxity_core::units::Duration;

/// How well the wall clock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Somebody keeps it synchronised.
    pub synchronised: bool,
    /// The error that whoever keeps it states; the kernel lets it grow by 500 ppm between two corrections.
    pub largest_error: Duration,
    /// The error that is likely, by the same source.
    pub likely_error: Duration,
}

/// How well the wall clock is kept. Only reads.
///
/// # Errors
/// What the kernel says.
pub fn wall_clock() -> io::Result<WallClock> {
    // SAFETY: timex is plain data for which zero is a value; no mode set, so the call only reads.
    let mut state: libc::timex = unsafe { zeroed() };
    // SAFETY: the pointer is to a valid timex for the length of the call.
    if unsafe { libc::adjtimex(&raw mut state) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let micros = |error: libc::c_long| Duration::from_micros(u64::try_from(error).unwrap_or(0));
    Ok(WallClock {
        synchronised: state.status & libc::STA_UNSYNC == 0,
        largest_error: micros(state.maxerror),
        likely_error: micros(state.esterror),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        let found = wall_clock().unwrap();
        assert!(found.synchronised || found.largest_error > Duration::ZERO);
    }
}
