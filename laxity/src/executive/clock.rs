//! The live host's clock, and its witnesses of time that the platform took.
//!
//! The thread's processor time says for how long it did not run while it was awake. Either the platform kept it from running, or it
//! waited for something by itself, which a mistake of ours may cause. Two more witnesses tell these apart: how often it waited by
//! itself, beside its sleeps; and if it did, how long it stood ready without a processor, as the kernel's scheduler counts, and whether
//! the whole process was stopped meanwhile ([`super::stopped`]).
//!
//! Another clock of the kernel tells whether the clock itself stood still while the host was suspended ([`sys::ClockJumps`]).

use std::fs::File;
use std::os::unix::fs::FileExt;

use laxity_core::clock::WallReading;
use laxity_core::units::{Duration, Instant};
use laxity_drive::{Clock, WorkDone};
use laxity_link::sys;

use super::spin::SpinBudget;
use super::stopped;

/// How old a reading of the run delay may be.
const DELAY_LASTS: Duration = Duration::from_millis(100);

/// A sleep that is shorter may have been none, as there was something to do already.
const SURE_TO_SLEEP: Duration = Duration::from_micros(50);

/// CLOCK_MONOTONIC; what the platform took is the clock's time against the thread's own.
#[derive(Debug, Default)]
pub(crate) struct SystemClock {
    /// The thread's processor time when it was last asked for.
    own: Duration,
    /// How often it had waited by itself when that was last asked for, and how often it has slept since.
    waited: u64,
    slept: u64,
    run_delay: RunDelay,
    /// What the executive has seen of the clock itself.
    pub(crate) jumps: sys::ClockJumps,
    /// What its thread may still spin.
    pub(crate) budget: SpinBudget,
}

impl SystemClock {
    /// The thread that it is for begins, or goes to sleep: what delays it from now on is of interest.
    pub(crate) fn refresh(&mut self, now: Instant) {
        if self.run_delay.refresh(now) {
            (self.waited, self.slept) = (sys::times_waited(), 0);
        }
    }

    /// What the thread did until now is nothing to this clock. Whether it waits by itself from here on is known from the first question
    /// on: of what it was away for before that, the kernel's scheduler has to know.
    pub(crate) fn begin(&mut self) {
        self.own = sys::thread_processor_time();
        (self.waited, self.slept) = (0, 0);
    }

    /// The thread let others have the processor while it had nothing to do: that they did delays nothing.
    pub(crate) fn forget_delay(&mut self) {
        self.run_delay.grown();
    }

    /// It has slept for so long.
    pub(crate) fn slept(&mut self, took: Duration) {
        self.slept += u64::from(took > SURE_TO_SLEEP);
    }
}

/// How long the thread has waited for a processor so far, as the kernel's scheduler counts it (`schedstat`, the second figure).
#[derive(Debug, Default)]
struct RunDelay {
    /// `None` before the thread has begun, or where the kernel does not count.
    schedstat: Option<File>,
    read: Duration,
    read_at: Instant,
}

impl RunDelay {
    /// Reads it if the last reading is old; whether it was.
    fn refresh(&mut self, now: Instant) -> bool {
        if self.read_at == Instant::ZERO {
            self.schedstat = File::open("/proc/thread-self/schedstat").ok();
        }
        let is_old = now.since(self.read_at) >= DELAY_LASTS;
        if is_old {
            self.grown();
            self.read_at = now;
        }
        is_old
    }

    /// By how much it has grown since it was last read.
    fn grown(&mut self) -> Duration {
        let mut text = [0; 64];
        let read = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = read.and_then(|read| std::str::from_utf8(&text[..read]).ok()).unwrap_or_default();
        let Some(delay) = text.split(' ').nth(1).and_then(|delay| delay.parse().ok()) else { return Duration::ZERO };
        let delay = Duration::from_nanos(delay);
        delay.saturating_sub(std::mem::replace(&mut self.read, delay))
    }
}

impl Clock for SystemClock {
    fn now(&mut self) -> Instant {
        sys::now()
    }

    fn after(&mut self, _: &WorkDone) -> Instant {
        sys::now()
    }

    fn jumps(&mut self, now: Instant) -> [u64; 2] {
        self.jumps.seen(now)
    }

    fn wall(&mut self) -> Option<WallReading> {
        sys::vouched_wall()
    }

    fn stolen(&mut self, now: Instant, awake: Duration) -> Duration {
        let own = sys::thread_processor_time();
        let used = own.saturating_sub(std::mem::replace(&mut self.own, own));
        let away = awake.saturating_sub(used);
        if away.is_zero() {
            return away;
        }
        let waited = sys::times_waited();
        let by_itself = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        // It only slept: the platform took all the time that it was away.
        if by_itself <= std::mem::take(&mut self.slept) {
            return away;
        }
        self.delayed(now.before(away), now).min(away)
    }

    fn delayed(&mut self, since: Instant, now: Instant) -> Duration {
        let before = sys::times_waited();
        let was_stopped = stopped::since(since, now);
        // To wait for the answer was no mistake.
        self.waited += sys::times_waited() - before;
        if was_stopped { now.since(since) } else { self.run_delay.grown() }
    }
}

#[cfg(test)]
mod tests {
    use laxity_link::sys::now;

    use super::*;

    /// What the clock says that `work` took.
    fn timed(work: impl FnOnce()) -> Duration {
        let start = now();
        work();
        now().since(start)
    }

    #[test]
    fn time_without_a_processor_counts_and_neither_own_work_nor_waiting_does() {
        let mut clock = SystemClock::default();
        clock.refresh(now());
        clock.stolen(now(), Duration::ZERO);
        let nap = Duration::from_millis(20);
        let sleep = || timed(|| std::thread::sleep(std::time::Duration::from_millis(20)));
        // The clock was not told that this was a sleep: a mistake of ours, except for the time that the thread stood ready.
        let awake = sleep();
        let stolen = clock.stolen(now(), awake);
        assert!(stolen + nap <= awake, "{stolen} of {awake}");
        // The sleeper has no processor for as long as it sleeps, whatever else the machine does.
        let awake = sleep();
        clock.slept(awake);
        let stolen = clock.stolen(now(), awake);
        assert!(stolen >= nap.mul_ratio(9, 10), "{stolen} of {awake}");

        let own = sys::thread_processor_time();
        let mut wasted = 0u64;
        let ran = timed(|| {
            while sys::thread_processor_time() - own < nap {
                wasted = wasted.wrapping_mul(31).wrapping_add(1);
            }
        });
        let stolen = clock.stolen(now(), ran);
        assert!(stolen <= ran.saturating_sub(nap), "20 ms of {ran} were our own work ({wasted})");
    }

    /// A thread that shares a processor with one that never sleeps waits for it, and the kernel says for how long.
    #[test]
    fn waiting_for_a_processor_is_counted_and_sleeping_is_not() {
        let processor = sys::processors()[0];
        sys::pin(processor).unwrap();
        let mut clock = SystemClock::default();
        clock.refresh(now());
        let slept = timed(|| std::thread::sleep(std::time::Duration::from_millis(30)));
        let delayed = clock.delayed(now(), now());
        assert!(delayed + Duration::from_millis(30) <= slept, "{delayed} of {slept}");
        let busy = move || {
            sys::pin(processor).unwrap();
            let own = sys::thread_processor_time();
            while sys::thread_processor_time() - own < Duration::from_millis(50) {}
        };
        let took = timed(|| {
            let other = std::thread::spawn(busy);
            busy();
            other.join().unwrap();
        });
        let delayed = clock.delayed(now(), now());
        println!("delayed {delayed} of {took}");
        assert!(took < Duration::from_millis(90) || delayed > Duration::from_millis(10), "{delayed} of {took}");
    }
}
