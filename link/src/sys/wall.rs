//! The kernel's knowledge of the wall clock: whether a daemon synchronises it, and its largest error.

use std::io;
use std::mem::zeroed;

use laxity_core::clock::WallReading;
use laxity_core::units::Duration;

use super::clock::kernel_now;
use super::done;
use super::process_clock::has_process_clock;

/// The quality of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// True if a daemon keeps it synchronised.
    pub synchronised: bool,
    /// The error that the daemon states, at most; the kernel lets it grow by 500 ppm between two corrections.
    pub largest_error: Duration,
    /// The error that is likely, by the same source.
    pub likely_error: Duration,
    /// True if the kernel inserts or deletes a leap second, or has just done so, or its clock failed.
    pub is_unsettled: bool,
}

impl WallClock {
    /// True if its largest error was stated by a daemon that knows one. Some daemons set it to zero, to keep the clock from being called unsynchronised: systemd-timesyncd
    /// together with the likely one, phc2sys without that, which stays at the kernel's first value of 16 s.
    pub fn is_vouched_for(&self) -> bool {
        self.synchronised
            && !self.is_unsettled
            && self.likely_error > Duration::ZERO
            && self.likely_error <= self.largest_error
    }
}

/// The quality of the wall clock. Only reads.
///
/// # Errors
/// The kernel's.
pub fn wall_clock() -> io::Result<WallClock> {
    read().map(|(wall, _)| wall)
}

/// The wall clock beside [`now`](super::now), if the kernel vouches for it and for its error. `None` if the process has a clock of its own.
pub fn vouched_wall() -> Option<WallReading> {
    if has_process_clock() {
        return None;
    }
    let before = kernel_now();
    let (wall, reads) = read().ok()?;
    let after = kernel_now();
    let ahead = i64::try_from(i128::from(reads) - i128::from(before.as_nanos())).ok()?;
    // It may have been read at `after`, and its reading is rounded down to whole microseconds.
    let error = wall.largest_error + after.since(before) + Duration::from_micros(1);
    wall.is_vouched_for().then_some(WallReading { at: after, ahead, error })
}

/// Its state, and the time that it read, ns.
fn read() -> io::Result<(WallClock, u64)> {
    // SAFETY: timex is plain data for which zero is a value; no mode set, so the call only reads.
    let mut state: libc::timex = unsafe { zeroed() };
    // SAFETY: the pointer is to a valid timex for the length of the call.
    let condition = unsafe { libc::adjtimex(&raw mut state) };
    done(condition)?;
    let micros = |error: libc::c_long| Duration::from_micros(u64::try_from(error).unwrap_or(0));
    let [seconds, parts] = [state.time.tv_sec, state.time.tv_usec].map(|part| u64::try_from(part).unwrap_or(0));
    let parts = if state.status & libc::STA_NANO == 0 { parts.saturating_mul(1_000) } else { parts };
    let wall = WallClock {
        synchronised: state.status & libc::STA_UNSYNC == 0,
        largest_error: micros(state.maxerror),
        likely_error: micros(state.esterror),
        is_unsettled: condition != libc::TIME_OK,
    };
    Ok((wall, seconds.saturating_mul(1_000_000_000).saturating_add(parts)))
}

#[cfg(test)]
mod tests {
    use super::super::clock::{WallReading, wall_reading};
    use super::*;

    #[test]
    fn the_kernel_answers() {
        let (found, reads) = read().unwrap();
        assert!(found.synchronised || found.largest_error > Duration::ZERO);
        let WallReading { at, most_ahead, .. } = wall_reading();
        let later = i128::from(at.as_nanos()) + most_ahead - i128::from(reads);
        assert!((-1_000..60_000_000_000).contains(&later), "{later} ns after the same clock was read");
        assert!(vouched_wall().is_none() || found.synchronised);
    }

    /// The values that daemons leave in the kernel.
    #[test]
    fn an_error_that_was_only_cleared_is_not_believed() {
        let micros = Duration::from_micros;
        let wall = |largest: u64, likely: u64| WallClock {
            synchronised: true,
            largest_error: micros(largest),
            likely_error: micros(likely),
            is_unsettled: false,
        };
        assert!(wall(18_000, 300).is_vouched_for(), "chrony");
        for (cleared, by) in
            [(wall(0, 0), "timesyncd"), (wall(1_500, 0), "timesyncd"), (wall(500, 16_000_000), "phc2sys")]
        {
            assert!(!cleared.is_vouched_for(), "{by}");
        }
        let kept = wall(18_000, 300);
        assert!(!WallClock { synchronised: false, ..kept }.is_vouched_for());
        assert!(!WallClock { is_unsettled: true, ..kept }.is_vouched_for());
    }
}
