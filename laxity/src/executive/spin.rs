//! Spinning: with nothing to do the executive looks on for a while before it sleeps, so that what comes soon costs no wake-up.
//!
//! - **Bounded.** It ends [`AdvancedConfig::spin`](crate::AdvancedConfig::spin) after there was last something to do.
//! - **Never into the throttle.** A thread spins no longer than it has idled before: a [`SpinBudget`] grows by the time in which the thread had no
//!   processor, whatever it did otherwise, and of which at most C is kept. In any span of length T that is at most (T + C) / 2. The throttle lets
//!   real-time threads run for a share r of each of its periods T. A thread whose own work takes no more than nine tenths of that, as the
//!   executive's does (`laxity_drive`), idles for at least ((1 − 0.9 r) T − C) / 2 of each period, which is (1 − r) T or more if C is at most
//!   (1.1 r − 1) T: so C is that, or [`MOST_KEPT`] if that is less. If nothing is left, nothing spins.
//! - **Yielding.** After each look a real-time thread yields to those that are as urgent, and to no others; an ordinary one is preempted
//!   anyway. While a restriction, an upcall or a blocked link asks for a sleep
//!   of its own kind it does not spin.
//!
//! Relied on: a turn that finds nothing changes nothing. The throttle counts a processor, and the budget a thread: several that share a
//! processor can use it up together.

use laxity_core::units::{Duration, Instant};
use laxity_link::sys;

use crate::realtime::{self, Scheduling};

/// The most idle time that a thread keeps to spin for.
const MOST_KEPT: Duration = Duration::from_millis(10);

/// What a thread may still spin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpinBudget {
    left: Duration,
    /// When idle time was last added, and the thread's processor time then.
    at: Instant,
    own: Duration,
}

impl SpinBudget {
    /// Adds the time in which the thread did not run. `own` is its processor time until `now`; it keeps at most `most`.
    fn refill(&mut self, now: Instant, own: Duration, most: Duration) {
        let idle = now.since(self.at).saturating_sub(own.saturating_sub(self.own));
        *self = Self { left: (self.left + idle).min(most), at: now, own };
    }

    /// The thread spun for so long.
    pub(crate) fn spent(&mut self, took: Duration) {
        self.left = self.left.saturating_sub(took);
    }
}

/// How an executive spins, and since when.
#[derive(Debug, Default)]
pub(crate) struct SpinState {
    /// From the last work on; zero never.
    limit: Duration,
    /// What a budget keeps.
    most: Duration,
    /// When it ends, if there was nothing to do since.
    ends: Option<Instant>,
    /// The last look, while it spins by turns.
    looked: Option<Instant>,
    /// The executive's thread is a real-time thread.
    is_real_time: bool,
}

impl SpinState {
    /// For an executive whose thread, the calling one, runs as `scheduling`; `is_inline` if applications' threads spin in its place.
    ///
    /// # Errors
    /// Why it may not, in plain words.
    pub(crate) fn new(limit: Duration, is_inline: bool, scheduling: Scheduling) -> Result<Self, String> {
        let throttle = match scheduling {
            _ if limit.is_zero() => return Ok(Self::default()),
            Scheduling::Fifo(_) => realtime::throttle(),
            _ if is_inline => {
                return Err("only real-time threads do the executive's work (inline)".to_owned());
            }
            _ => None,
        };
        // A leader is the application, and may have a processor to itself; an executive needs another one for its applications.
        if is_inline && realtime::has_one_processor() || !is_inline && sys::processors().len() < 2 {
            return Err("there is one processor, and who is waited for needs it".to_owned());
        }
        let most = kept(throttle);
        if let (true, Some((runtime, period))) = (most.is_zero(), throttle) {
            return Err(format!("real-time threads may run for {runtime} in {period} only (sched_rt_runtime_us)"));
        }
        let is_real_time = matches!(scheduling, Scheduling::Fifo(_));
        Ok(Self { limit, most, is_real_time, ..Self::default() })
    }

    /// Whether it ever spins.
    pub(crate) fn is_on(&self) -> bool {
        !self.limit.is_zero()
    }

    /// There was something to do.
    pub(crate) fn worked(&mut self) {
        (self.ends, self.looked) = (None, None);
    }

    /// There is nothing to do: until when it may spin by its limit, if that is not over.
    pub(crate) fn ends(&mut self, now: Instant) -> Option<Instant> {
        let ends = *self.ends.get_or_insert(now + self.limit);
        (now < ends).then_some(ends)
    }

    /// There is nothing to do: until when the thread may look for frames, if it may. `own` is its processor time.
    pub(crate) fn until(
        &mut self,
        now: Instant,
        budget: &mut SpinBudget,
        own: impl FnOnce() -> Duration,
    ) -> Option<Instant> {
        let ends = self.ends(now).filter(|_| self.is_on())?;
        budget.refill(now, own(), self.most);
        Some(ends.min(now + budget.left)).filter(|&ends| now < ends)
    }

    /// There is nothing to do: whether to take another turn all the same. `own` is the thread's processor time.
    pub(crate) fn goes_on(&mut self, now: Instant, budget: &mut SpinBudget, own: impl FnOnce() -> Duration) -> bool {
        let is_over = self.ends(now).is_none();
        match self.looked.take() {
            Some(looked) => budget.spent(now.since(looked)),
            None if is_over => {}
            None => budget.refill(now, own(), self.most),
        }
        if is_over || budget.left.is_zero() {
            // Not again before there was something to do.
            self.ends = Some(now);
            return false;
        }
        self.looked = Some(now);
        true
    }

    /// Between two turns.
    pub(crate) fn pause(&self) {
        if self.is_real_time {
            give_way();
        }
    }

    /// Whether the spin that [`goes_on`](Self::goes_on) has allowed has just begun: no look was taken in it.
    pub(crate) fn begins(&self) -> bool {
        self.ends.zip(self.looked).is_some_and(|(ends, looked)| looked + self.limit == ends)
    }
}

/// Between two looks of a real-time thread: others that are as urgent have their turn, less urgent ones do not.
pub(crate) fn give_way() {
    std::thread::yield_now();
}

/// What a budget keeps under a throttle of (runtime, period), C at the head of this file.
fn kept(throttle: Option<(Duration, Duration)>) -> Duration {
    let Some((runtime, period)) = throttle else { return MOST_KEPT };
    runtime.mul_ratio(11, 10).saturating_sub(period).min(MOST_KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(150);

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn spin() -> SpinState {
        SpinState { limit: LIMIT, most: MOST_KEPT, ..SpinState::default() }
    }

    /// A thread with its clocks, which spins by turns of a microsecond.
    struct Thread {
        now: Instant,
        own: Duration,
        spin: SpinState,
        budget: SpinBudget,
        spun: Duration,
    }

    impl Thread {
        fn new() -> Self {
            let (now, own) = (Instant::ZERO + us(1_000_000), us(1000));
            Self { now, own, spin: spin(), budget: SpinBudget::default(), spun: Duration::ZERO }
        }

        fn run(&mut self, took: Duration) {
            self.now += took;
            self.own += took;
        }

        /// Looks on until it has to sleep, or `found` from now there is something; whether it was found without a sleep.
        fn looks_on(&mut self, found: Duration) -> bool {
            let begin = self.now;
            while self.spin.goes_on(self.now, &mut self.budget, || self.own) {
                self.run(us(1));
                if self.now.since(begin) >= found {
                    // The look that finds something is work.
                    self.spin.worked();
                    return true;
                }
                self.spun += us(1);
            }
            self.now = self.now.max(begin + found);
            self.spin.worked();
            false
        }
    }

    #[test]
    fn it_ends_so_long_after_the_last_work_and_begins_with_the_next() {
        let mut thread = Thread::new();
        assert!(thread.looks_on(us(100)), "what comes in time is found by a look");
        assert!(!thread.looks_on(us(1000)), "what comes later ends a sleep");
        assert_eq!(thread.spun, us(99) + LIMIT);
        let (mut spin, now) = (spin(), thread.now);
        assert!(spin.goes_on(now, &mut thread.budget, || thread.own) && spin.begins());
        assert!(spin.goes_on(now + us(149), &mut thread.budget, || thread.own) && !spin.begins());
        assert!(!spin.goes_on(now + LIMIT, &mut thread.budget, || thread.own));
        // A timer woke it, and there was nothing to do.
        assert!(!spin.goes_on(now + us(900), &mut thread.budget, || thread.own));
        spin.worked();
        assert!(spin.goes_on(now + us(901), &mut thread.budget, || thread.own));
    }

    #[test]
    fn it_spins_for_as_long_as_it_idled_before_and_for_what_it_kept() {
        // Work of 10 µs, and the next 100 µs later: without a budget it would never sleep.
        let mut thread = Thread::new();
        let (begin, own) = (thread.now, thread.own);
        for _ in 0..20_000 {
            thread.run(us(10));
            thread.looks_on(us(100));
        }
        let (took, ran) = (thread.now.since(begin), thread.own - own);
        let idle = took - ran;
        assert!(thread.spun <= idle + MOST_KEPT, "{} spun, {idle} idle", thread.spun);
        assert!(thread.spun >= idle, "it spins when it may: {} of {idle}", thread.spun);
        assert!(ran <= took.mul_ratio(60, 100), "{ran} of {took}");
    }

    #[test]
    fn work_of_nine_tenths_of_the_throttle_and_spinning_stay_within_it() {
        for (runtime, period) in [(950_000, 1_000_000), (990_000, 1_000_000), (95_000, 100_000)] {
            let throttle = (us(runtime), us(period));
            let mut thread = Thread::new();
            thread.spin.most = kept(Some(throttle));
            assert!(!thread.spin.most.is_zero());
            // Work and pauses by turns, so that the work is nine tenths of what it may have.
            let pause = us(100);
            let work = pause.mul_ratio(9 * runtime, 10 * period - 9 * runtime);
            let mut ran = Vec::new();
            for _ in 0..3 * period / (work + pause).as_nanos().div_ceil(1000) {
                thread.run(work);
                thread.looks_on(pause);
                ran.push((thread.now, thread.own));
            }
            for (index, &(begin, own)) in ran.iter().enumerate() {
                let within = ran[index..].iter().take_while(|(now, _)| now.since(begin) <= us(period));
                let most = within.map(|&(_, later)| later - own).max().unwrap_or_default();
                assert!(most <= us(runtime), "{most} of {runtime} µs");
            }
        }
    }

    #[test]
    fn a_throttle_that_leaves_little_leaves_nothing_to_spin() {
        let kept = |runtime, period| kept(Some((us(runtime), us(period))));
        assert_eq!(kept(950_000, 1_000_000), MOST_KEPT);
        assert_eq!(kept(95_000, 100_000), us(4500));
        assert_eq!([kept(900_000, 1_000_000), kept(500_000, 1_000_000)], [Duration::ZERO; 2]);
        assert_eq!(super::kept(None), MOST_KEPT);
    }

    #[test]
    fn a_leader_looks_until_the_limit_or_its_budget_is_over() {
        let (mut spin, mut budget, now) = (spin(), SpinBudget::default(), Instant::ZERO + us(1_000_000));
        let own = || Duration::ZERO;
        assert_eq!(spin.until(now, &mut budget, own), Some(now + LIMIT));
        assert_eq!(spin.until(now + us(50), &mut budget, own), Some(now + LIMIT), "the same spin goes on");
        assert_eq!(spin.until(now + LIMIT, &mut budget, own), None);
        spin.worked();
        // It ran all the time, and has spun for all that it had.
        budget.spent(MOST_KEPT);
        let ran = || us(500);
        budget.own = us(150);
        assert_eq!(spin.until(now + us(400), &mut budget, ran), None);
        assert_eq!(spin.until(now + us(420), &mut budget, ran), Some(now + us(440)), "20 µs of idling");
        assert_eq!(SpinState::default().until(now, &mut budget, own), None);
    }

    #[test]
    fn without_a_limit_it_never_spins_and_inline_takes_real_time_threads() {
        let spin = |limit, is_inline| SpinState::new(limit, is_inline, Scheduling::Ordinary);
        assert!(!spin(Duration::ZERO, true).unwrap().is_on());
        assert!(spin(LIMIT, true).unwrap_err().contains("real-time"));
        match spin(LIMIT, false) {
            Ok(spin) => assert!(spin.is_on()),
            Err(why) => assert!(why.contains("one processor"), "{why}"),
        }
    }
}
