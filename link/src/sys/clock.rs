//! The clock of the live system, and its identity.

use std::io;
use std::num::NonZeroU64;
use std::path::Path;

use laxity_core::units::{Duration, Instant, NANOS_PER_SECOND};
use rustix::time::{ClockId, clock_gettime};

use super::process_clock::{from_kernel, has_process_clock, has_stepped};

/// Now: CLOCK_MONOTONIC in nanoseconds, or the reading of the process's own clock ([`super::process_clock`]).
#[inline]
pub fn now() -> Instant {
    from_kernel(kernel_now())
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(super) fn kernel_now() -> Instant {
    Instant::from_nanos(nanos(ClockId::Monotonic))
}

/// The reading of a clock, ns.
#[inline]
fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(nanos)
}

/// A reading of CLOCK_REALTIME, or of another clock, between two of CLOCK_MONOTONIC, whatever clock the process has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallReading {
    /// CLOCK_MONOTONIC when it was over.
    pub(crate) at: Instant,
    /// The time by which it was ahead of CLOCK_MONOTONIC, ns: at least,
    pub(crate) least_ahead: i128,
    /// and at most.
    pub(crate) most_ahead: i128,
}

/// CLOCK_REALTIME, ns since the epoch. It is the same on all hosts of a machine: in no time namespace, and not under a process's own clock.
pub fn wall_now() -> u64 {
    nanos(ClockId::Realtime)
}

/// Reads both clocks, again if the thread was interrupted meanwhile, a few times at most.
pub(crate) fn wall_reading() -> WallReading {
    reading_of(ClockId::Realtime)
}

/// The jumps of [`now`]: CLOCK_MONOTONIC stands still while the host is suspended, and CLOCK_BOOTTIME goes on, so the difference between them tells
/// of it. A virtual machine that its own host stops is not seen. A process's own clock may step ahead, too.
#[derive(Debug, Default)]
pub struct ClockJumps {
    /// The largest time by which CLOCK_BOOTTIME was ahead, ns.
    apart: Option<i128>,
    suspensions: u64,
}

impl ClockJumps {
    /// The number of suspensions that readings of [`now`] showed so far, and the number of jumps ahead, which only the laboratory's clock
    /// makes. Those of the host before the first call do not count, and none that is shorter than a millisecond.
    pub fn seen(&mut self, now: Instant) -> [u64; 2] {
        let before = if has_process_clock() { kernel_now() } else { now };
        // They are not farther apart than this. Else the thread may have been interrupted since `now` was read.
        if i128::from(nanos(ClockId::Boottime)) - i128::from(before.as_nanos()) > self.limit() {
            self.judge(reading_of(ClockId::Boottime));
        }
        [self.suspensions, has_stepped().into()]
    }

    /// The largest difference between them without a suspension that counts.
    fn limit(&self) -> i128 {
        const LEAST: i128 = 1_000_000;
        self.apart.map_or(i128::MIN, |apart| apart + LEAST)
    }

    /// Takes a reading of CLOCK_BOOTTIME.
    fn judge(&mut self, reading: WallReading) {
        if self.apart.is_some() && reading.least_ahead > self.limit() {
            self.suspensions += 1;
            self.apart = None;
        }
        self.apart = Some(self.apart.map_or(reading.most_ahead, |apart| apart.min(reading.most_ahead)));
    }
}

/// A reading of another clock between two of CLOCK_MONOTONIC, of a few that with the least time in between.
fn reading_of(clock: ClockId) -> WallReading {
    const ATTEMPTS: usize = 3;
    const QUICK: Duration = Duration::from_micros(1);
    let read = || {
        let (before, wall, after) = (kernel_now(), nanos(clock), kernel_now());
        let ahead_of = |reading: Instant| i128::from(wall) - i128::from(reading.as_nanos());
        (after.since(before), WallReading { at: after, least_ahead: ahead_of(after), most_ahead: ahead_of(before) })
    };
    let mut best = read();
    for _ in 1..ATTEMPTS {
        if best.0 <= QUICK {
            break;
        }
        let again = read();
        // When it was over is the last time in any case.
        best = if again.0 < best.0 { again } else { (best.0, WallReading { at: again.1.at, ..best.1 }) };
    }
    best.1
}

/// The number of times that the calling thread has given its processor up by itself so far: it slept or waited. (The kernel's count of voluntary
/// context switches; one that is preempted, or yields, does not.)
pub fn times_waited() -> u64 {
    // SAFETY: zero is a value of plain numbers, and the kernel writes a whole rusage.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

/// The time for which the calling thread has had a processor so far (CLOCK_THREAD_CPUTIME_ID). Time that the hypervisor takes is not in
/// it where the kernel accounts for it; interrupts are.
pub fn thread_processor_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
}

/// The time for which all threads of this process together have had processors so far.
pub fn process_processor_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::ProcessCPUTime))
}

/// Sets the timer slack of the calling thread to 1 ns, so that [`wait`](super::wait) ends at the given time. The usual slack
/// is 50 µs; threads with a real-time policy have none anyway.
///
/// # Errors
/// The kernel's; Linux always allows it for the calling thread.
pub fn precise_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// The identity of the clock that [`now`] reads: equal in two processes exactly if their readings can be compared, that is in one boot of one kernel and
/// in one time namespace. 0 if it cannot be found out, which equals nothing, not even another 0.
pub fn clock_identity() -> u64 {
    identity(Path::new("/proc/sys/kernel/random/boot_id"), Path::new("/proc/self/ns/time")).unwrap_or(0)
}

fn identity(boot: &Path, namespace: &Path) -> Option<u64> {
    let boot = std::fs::read(boot).ok()?;
    // A kernel before 5.6 has no time namespaces: then all processes share the one clock.
    let namespace = match std::fs::read_link(namespace) {
        Ok(link) => link.into_os_string().into_encoded_bytes(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(_) => return None,
    };
    let boot = boot.trim_ascii();
    if boot.is_empty() {
        return None;
    }
    // A separator that neither part contains.
    let hash = fnv_1a(boot.iter().chain(b"\n").chain(&namespace));
    Some(hash.max(1))
}

/// The time by which CLOCK_MONOTONIC is ahead of that of the first time namespace, ns. BPF programs and kernel threads tell the time by the latter.
///
/// # Errors
/// `/proc` does not say: the process has made a time namespace for its children that is not its own, and the kernel tells the offsets of that
/// one alone.
pub(crate) fn ahead_of_first_namespace() -> io::Result<i64> {
    let link = |name| match std::fs::read_link(Path::new("/proc/self/ns").join(name)) {
        // A kernel without time namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    };
    let own = link("time")?;
    if own.as_deref().is_none_or(|own| own == Path::new(FIRST_NAMESPACE)) {
        return Ok(0);
    }
    if own != link("time_for_children")? {
        return Err(io::Error::other(
            "the process has made another time namespace for its children, so the kernel does not tell the offset of its own",
        ));
    }
    let told = std::fs::read_to_string("/proc/self/timens_offsets")?;
    offset_of_monotonic(&told).ok_or_else(|| {
        let problem = format!("/proc/self/timens_offsets is {told:?}, expected a line `monotonic SECONDS NANOSECONDS`");
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
}

/// As `/proc/self/ns/time` names the first one: PROC_TIME_INIT_INO of the kernel.
const FIRST_NAMESPACE: &str = "time:[4026531834]";

/// The offset of CLOCK_MONOTONIC in `timens_offsets`, ns: seconds, and nanoseconds on top of them.
fn offset_of_monotonic(told: &str) -> Option<i64> {
    let mut words =
        told.lines().find_map(|line| line.trim_start().strip_prefix("monotonic "))?.split_ascii_whitespace();
    let (seconds, nanos): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    seconds.checked_mul(i64::try_from(NANOS_PER_SECOND).ok()?)?.checked_add(nanos)
}

/// FNV-1a with 64 bits.
fn fnv_1a<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv_1a(b"".iter()), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"a".iter()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(b"foobar".iter()), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_identity_is_stable_and_zero_when_unreadable() {
        assert_eq!(clock_identity(), clock_identity());
        assert_eq!(identity(Path::new("/nowhere/at/all"), Path::new("/proc/self/ns/time")), None);
    }

    #[test]
    fn the_wall_clock_is_read_between_two_readings() {
        let before = kernel_now();
        let (first, second) = (wall_reading(), wall_reading());
        assert!(before <= first.at && first.at <= second.at && second.at <= kernel_now());
        for reading in [first, second] {
            assert!(reading.least_ahead <= reading.most_ahead, "{reading:?}");
        }
    }

    /// A reading that took so long, ns, while CLOCK_BOOTTIME was so far ahead.
    fn reading(ahead: i128, took: i128) -> WallReading {
        WallReading { at: Instant::ZERO, least_ahead: ahead - took / 2, most_ahead: ahead + took - took / 2 }
    }

    fn suspensions(readings: &[WallReading]) -> Vec<u64> {
        let mut jumps = ClockJumps::default();
        readings.iter().map(|&reading| (jumps.judge(reading), jumps.suspensions).1).collect()
    }

    #[test]
    fn a_suspension_is_seen_once() {
        let apart = [7_000_000_000, 7_000_500_000, 7_002_500_000, 7_002_500_000, 7_004_500_000];
        assert_eq!(suspensions(&apart.map(|apart| reading(apart, 100))), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn a_thread_that_was_interrupted_has_seen_none() {
        assert_eq!(suspensions(&[reading(5_000, 100), reading(1_005_000, 2_000_000), reading(5_000, 100)]), [0, 0, 0]);
        // What it has seen first is no measure for long.
        let readings = [reading(1_000_000, 2_000_000), reading(0, 100), reading(1_100_000, 100)];
        assert_eq!(suspensions(&readings), [0, 0, 1]);
    }

    #[test]
    fn apart_is_the_least_that_was_seen() {
        let mut jumps = ClockJumps::default();
        assert_eq!(jumps.limit(), i128::MIN);
        for (ahead, limit) in [(400, 1_000_450), (300, 1_000_350), (900, 1_000_350), (1_100_000, 2_100_050)] {
            jumps.judge(reading(ahead, 100));
            assert_eq!(jumps.limit(), limit);
        }
        assert_eq!(jumps.suspensions, 1);
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_read_as_the_kernel_writes_it() {
        let told = "monotonic           7  250000000\nboottime            0          0\n";
        assert_eq!(offset_of_monotonic(told), Some(7_250_000_000));
        assert_eq!(offset_of_monotonic("boottime 1 1\nmonotonic         -2  750000000\n"), Some(-1_250_000_000));
        assert_eq!(offset_of_monotonic("monotonic 0 0"), Some(0));
        for wrong in
            ["", "boottime 1 1", "monotonic", "monotonic 1", "monotonic a 0", "monotonic 9223372036854775807 0"]
        {
            assert_eq!(offset_of_monotonic(wrong), None, "{wrong}");
        }
        assert!(ahead_of_first_namespace().is_ok());
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let first = now();
        assert!(first > Instant::ZERO);
        assert!(now() >= first);
        precise_timers().unwrap();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
    }
}
