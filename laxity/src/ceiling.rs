//! The ceiling of what other programs send, where Laxity's packets pass by the queueing disciplines: moved with what Laxity uses of the link.
//!
//! Others have R less what Laxity has lately sent, and less what the link is behind; never less than their floor. Laxity never sends faster than R − floor.
//! So the link falls behind only from when Laxity begins to send more until the ceiling is lower: at most by `(R − floor) · lag`, if the lag is the longest
//! time from one look at what Laxity has sent until what followed from the next one is in force ([`Ceiling::next`]'s property test).
//!
//! The looks come four times in a lag, from a thread just less urgent than the executive, which so does not wait for it; on a host with a second processor
//! the kernel runs it there. How late it was is told ([`Lateness`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration as StdDuration;

use laxity_core::units::{Duration, Instant, NANOS_PER_SECOND};
use laxity_link::netlink::{GuardClasses, Netlink};
use laxity_link::sys;

/// Looks in a lag.
const LOOKS: u64 = 4;
/// A ceiling is one of so many steps of the link's rate, rounded down, so that not each look changes it.
const STEPS: u64 = 64;

/// The ceiling, as a function of what was sent.
#[derive(Debug)]
struct Ceiling {
    /// R, bytes a second.
    rate: u64,
    floor: u64,
    /// The one that was set last, and the one before, which may have been in force until some moment after the last look.
    set: [u64; 2],
    /// Bytes that the link is behind, at most.
    behind: u64,
}

impl Ceiling {
    fn new(rate: u64, floor: u64) -> Self {
        Self { rate, floor, set: [rate; 2], behind: 0 }
    }

    /// The next one, after Laxity has sent so many bytes in a time that is not zero.
    fn next(&mut self, sent: u64, elapsed: Duration) -> u64 {
        let nanos = u128::from(elapsed.as_nanos().max(1));
        let in_it = |rate: u64| u128::from(rate) * nanos / u128::from(NANOS_PER_SECOND);
        let others = in_it(self.set[0].max(self.set[1])) + 1;
        let behind = (u128::from(self.behind) + u128::from(sent) + others).saturating_sub(in_it(self.rate));
        self.behind = u64::try_from(behind).unwrap_or(u64::MAX);
        // What Laxity goes on with, and what is to be made up for until the next look.
        let taken = (u128::from(sent) + behind) * u128::from(NANOS_PER_SECOND) / nanos;
        let left = self.rate.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX));
        let step = (self.rate / STEPS).max(1);
        let next = (left / step * step).max(self.floor);
        self.set = [next, self.set[0]];
        next
    }
}

/// How late the ceiling was.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    times: AtomicU64,
    /// Of the longest, ns.
    longest: AtomicU64,
}

impl Lateness {
    /// In words, if it ever was later than the bounds contain.
    pub(crate) fn told(&self, interface: &str, lag: Duration) -> Option<String> {
        let times = self.times.load(Ordering::Relaxed);
        let longest = Duration::from_nanos(self.longest.load(Ordering::Relaxed));
        (times > 0).then(|| {
            format!(
                "the guard of {interface} followed Laxity too late {times} times, after {longest} at the longest, bounds contain {lag}: packets of other \
                 programs may have been in the way"
            )
        })
    }
}

/// What moves the ceiling of an interface.
#[derive(Debug)]
pub(crate) struct Follower {
    ceiling: Ceiling,
    lag: Duration,
    /// What the executive has sent since its start, bytes.
    sent: Arc<AtomicU64>,
    lateness: Arc<Lateness>,
    /// What it had sent at the last look, and when that was.
    last: (u64, Instant),
    in_force: u64,
}

impl Follower {
    pub(crate) fn new(classes: &GuardClasses, lag: Duration, sent: Arc<AtomicU64>, lateness: Arc<Lateness>) -> Self {
        let last = (sent.load(Ordering::Relaxed), sys::now());
        // As if others had had all of it until now: the first ceiling is made of what Laxity uses from here on.
        Self {
            ceiling: Ceiling::new(classes.rate, classes.floor),
            lag,
            sent,
            lateness,
            last,
            in_force: classes.ceiling,
        }
    }

    /// How long to wait until the next look.
    pub(crate) fn pause(&self) -> StdDuration {
        StdDuration::from_nanos(self.lag.as_nanos() / LOOKS)
    }

    /// Looks, and sets the ceiling if it is another one.
    pub(crate) fn follow(&mut self, netlink: &mut Netlink, interface: u32, classes: &GuardClasses) -> io::Result<()> {
        let (before, looked) = self.last;
        let now = sys::now();
        let elapsed = now.since(looked);
        if elapsed.is_zero() {
            return Ok(());
        }
        let sent = self.sent.load(Ordering::Relaxed);
        let next = self.ceiling.next(sent.wrapping_sub(before), elapsed);
        self.last = (sent, now);
        if next != self.in_force {
            netlink.set_ceiling(interface, next, classes)?;
            self.in_force = next;
        }
        let took = sys::now().since(looked);
        if took > self.lag {
            self.lateness.times.fetch_add(1, Ordering::Relaxed);
            self.lateness.longest.fetch_max(took.as_nanos(), Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: u64 = 12_500_000;

    fn behind(floor: u64, steps: &[(u64, u64, u64)], lag: u64) -> u64 {
        // Byte for byte: a link that sends RATE, Laxity as it likes, others all that they may.
        let mut ceiling = Ceiling::new(RATE, floor);
        let (mut in_force, mut queue, mut most) = (RATE, 0.0f64, 0.0f64);
        let per_nano = |rate: u64| rate as f64 / 1e9;
        let mut pass = |queue: &mut f64, nanos: u64, laxity: u64, others: u64| {
            *queue = (*queue + nanos as f64 * (per_nano(laxity) + per_nano(others) - per_nano(RATE))).max(0.0);
            most = most.max(*queue);
        };
        let mut late = 0;
        for &(span, delay, percent) in steps {
            // From the last look to this one, of which the first part was spent on setting the last ceiling: at most half a lag in all.
            let (span, delay) = (1 + span * lag / 400, delay * lag / 800);
            let laxity = (RATE - floor) * percent / 100;
            let first = late.min(span);
            // `in_force` is what was before, until `late`.
            pass(&mut queue, first, laxity, in_force);
            let set = ceiling.set[0];
            pass(&mut queue, span - first, laxity, if late > span { in_force } else { set });
            in_force = set;
            let sent = u128::from(laxity) * u128::from(span) / 1_000_000_000;
            ceiling.next(u64::try_from(sent).unwrap() + 1, Duration::from_nanos(span));
            late = delay.min(lag / 8);
        }
        most.ceil() as u64
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Whatever Laxity sends within its rate, and whenever it is looked at within half a lag.
        #[test]
        fn the_link_falls_behind_by_a_lag_at_most(
            floor in 1_000..RATE / 2,
            steps in prop::collection::vec((50u64..100, 0u64..100, 0u64..=100), 1..200),
        ) {
            let lag = 4_000_000;
            let most = u128::from(RATE - floor) * u128::from(lag) / 1_000_000_000;
            let found = behind(floor, &steps, lag);
            prop_assert!(u128::from(found) <= most, "{found} of {most}");
        }
    }

    #[test]
    fn others_have_what_is_left_and_never_less_than_their_floor() {
        let floor = RATE / 20;
        let millis = Duration::from_millis(1);
        let mut ceiling = Ceiling::new(RATE, floor);
        let all = (RATE - floor) / 1000;
        for _ in 0..4 {
            ceiling.next(all, millis);
        }
        assert_eq!(ceiling.set[0], floor);
        // Half of it, again and again: the other half, but for the rounding.
        for _ in 0..1_000 {
            ceiling.next(RATE / 2_000, millis);
        }
        assert!((RATE / 2 - RATE / 32..=RATE / 2).contains(&ceiling.set[0]), "{}", ceiling.set[0]);
        for _ in 0..1_000 {
            ceiling.next(0, millis);
        }
        assert!(ceiling.set[0] >= RATE - RATE / 32, "{}", ceiling.set[0]);
    }

    #[test]
    fn what_is_late_is_told() {
        let lateness = Lateness::default();
        assert_eq!(lateness.told("a0", Duration::from_millis(4)), None);
        lateness.times.fetch_add(2, Ordering::Relaxed);
        lateness.longest.fetch_max(5_000_000, Ordering::Relaxed);
        let told = lateness.told("a0", Duration::from_millis(4)).unwrap();
        assert!(told.contains("too late 2 times, after 5ms at the longest, bounds contain 4ms"), "{told}");
    }
}
