//! Runs of upcalls as their thread makes them: picked, asked once whether to yield, and done.

use laxity_core::units::{Duration, Instant};
use laxity_core::upcall::{Upcall, Upcalls};

/// What is counted, for `--toggle-collect`.
pub(crate) const COUNTED: &str = "*::runs::phase::*";

/// So many runs of so many upcalls, whose first releases are together or spread over their period of a second.
pub(crate) fn run(together: bool, upcalls: usize, runs: usize) {
    let mut queue = Upcalls::new(upcalls);
    let period = Duration::from_secs(1);
    for number in 0..upcalls as u64 {
        // Periods differ by a nanosecond, so that priorities do.
        let upcall = Upcall::new(period + Duration::from_nanos(number), Duration::from_nanos(100), 1, 1);
        let upcall = upcall.expect("an upcall that can be");
        let id = queue.create(upcall, upcall.period(), 0).expect("room for all");
        let after = if together { 0 } else { period.as_nanos() / upcalls as u64 * number };
        queue.run(Instant::ZERO, id, Instant::from_nanos(after));
    }
    let mut now = Instant::ZERO;
    let mut done = 0;
    while done < runs {
        if phase::run(&mut queue, now) {
            now += Duration::from_nanos(100);
            done += 1;
        } else {
            now = queue.next_release().expect("all of them are active").max(now);
        }
    }
}

pub(crate) mod phase {
    use laxity_core::units::Instant;
    use laxity_core::upcall::{RunOutcome, Upcalls};

    /// One run of the first upcall, if one is ready.
    #[inline(never)]
    pub(crate) fn run(queue: &mut Upcalls, now: Instant) -> bool {
        if queue.pick(now).is_none() {
            return false;
        }
        std::hint::black_box(queue.should_yield(now));
        queue.ran(now, 1, RunOutcome::Done).is_some()
    }
}
