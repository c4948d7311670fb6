//! The ceiling of what other programs send, where Laxity's packets pass by the queueing disciplines: moved with what Laxity uses of the link.
//!
//! Others have R less what Laxity has lately sent, and less what the link is behind; never less than their floor. Laxity never sends faster than R − floor.
//! So the link falls behind only from when Laxity begins to send more until the ceiling is lower: at most by `(R − floor) · lag`, if no time from one look at what
//! Laxity has sent until what followed from the next one is in force is longer than four fifths of the lag ([`Ceiling::next`]'s property test). The fifth is for
//! what changes between two looks, of which only the sum is known.
//!
//! The looks come four times in a lag, from a thread just less urgent than the executive, which so does not wait for it; on a host with a second processor
//! the kernel runs it there. How late it was is told ([`CeilingLateness`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration as StdDuration;

use laxity_core::units::{Duration, Instant, NANOS_PER_SECOND};
use laxity_link::netlink::{GuardClasses, Netlink};
use laxity_link::sys;

/// What of a lag may pass from a look until what followed from the next one is in force.
const IN_TIME: (u64, u64) = (4, 5);
/// Looks in a lag.
const LOOKS: u64 = 4;
/// A ceiling is one of so many steps of the link's rate, rounded down, so that not each look changes it.
const STEPS: u64 = 64;

/// The ceiling, as a function of what was sent.
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
        let left_by_others = self.rate.saturating_sub(self.set[0].max(self.set[1]));
        let behind = (u128::from(self.behind) + u128::from(sent)).saturating_sub(in_it(left_by_others));
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

/// The lateness of the ceiling.
#[derive(Debug, Default)]
pub(crate) struct CeilingLateness {
    times: AtomicU64,
    /// Of the longest, ns.
    longest: AtomicU64,
}

impl CeilingLateness {
    /// In words, if it ever was later than the bounds contain.
    pub(crate) fn told(&self, interface: &str, lag: Duration) -> Option<String> {
        let times = self.times.load(Ordering::Relaxed);
        let longest = Duration::from_nanos(self.longest.load(Ordering::Relaxed));
        let in_time = lag.mul_ratio(IN_TIME.0, IN_TIME.1);
        (times > 0).then(|| {
            format!(
                "the guard of {interface} followed Laxity too late {times} times, or not at all: after {longest} at the longest, expected {in_time} at most: \
                 packets of other programs may have been in the way"
            )
        })
    }
}

/// The component that moves the ceiling of an interface.
pub(crate) struct CeilingFollower {
    ceiling: Ceiling,
    classes: GuardClasses,
    lag: Duration,
    /// The bytes that the executive has sent since its start.
    sent: Arc<AtomicU64>,
    lateness: Arc<CeilingLateness>,
    /// The bytes that it had sent at the last look, and the time of the look.
    last: (u64, Instant),
    /// The ceiling that is in force, if that is known.
    in_force: Option<u64>,
}

impl CeilingFollower {
    pub(crate) fn new(
        classes: GuardClasses,
        lag: Duration,
        sent: Arc<AtomicU64>,
        lateness: Arc<CeilingLateness>,
    ) -> Self {
        let last = (sent.load(Ordering::Relaxed), sys::now());
        // What streams have is not for others. As if these had had all of the rest until now: the first ceiling is made of what Laxity uses from here on.
        let ceiling = Ceiling::new(classes.rate - classes.streams.rate, classes.floor);
        Self { ceiling, classes, lag, sent, lateness, last, in_force: Some(classes.ceiling) }
    }

    /// Others have had no more than their floor until now, which is in force.
    pub(crate) fn begin(&mut self) {
        self.last = (self.sent.load(Ordering::Relaxed), sys::now());
    }

    /// The time until the next look.
    pub(crate) fn pause(&self) -> StdDuration {
        self.lag.mul_ratio(1, LOOKS).into()
    }

    /// Looks, and sets the ceiling if it is another one. One that the kernel refuses to set is too late.
    pub(crate) fn follow(&mut self, netlink: &mut Netlink, interface: u32) {
        let classes = self.classes;
        self.look(sys::now, |ceiling| netlink.set_ceiling(interface, ceiling, &classes));
    }

    fn look(&mut self, clock: impl Fn() -> Instant, set: impl FnOnce(u64) -> io::Result<()>) {
        let (before, looked) = self.last;
        let now = clock();
        let elapsed = now.since(looked);
        if elapsed.is_zero() {
            return;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        let next = self.ceiling.next(sent.wrapping_sub(before), elapsed);
        self.last = (sent, now);
        let mut is_set = true;
        if self.in_force != Some(next) {
            is_set = set(next).is_ok();
            self.in_force = is_set.then_some(next);
            if !is_set {
                // Others may have as much as ever, until one is set.
                self.ceiling.set[0] = self.ceiling.rate;
            }
        }
        let took = clock().since(looked);
        if !is_set || took > self.lag.mul_ratio(IN_TIME.0, IN_TIME.1) {
            self.lateness.times.fetch_add(1, Ordering::Relaxed);
            self.lateness.longest.fetch_max(took.as_nanos(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use laxity_link::netlink::StreamClasses;
    use proptest::prelude::*;

    use super::*;

    const RATE: u64 = 12_500_000;

    const LAG: u64 = 4_000_000;

    #[derive(Clone, Debug)]
    struct TestStep {
        /// Thousandths of a lag.
        span: u64,
        /// Percent of what may be.
        delay: u64,
        /// Laxity's share of what it may send, before and after a moment of the step, percent.
        shares: [u64; 2],
        change: u64,
    }

    fn step() -> impl Strategy<Value = TestStep> {
        let share = || prop_oneof![Just(0u64), Just(100), 0..=100u64];
        (1u64..800, 0..=100u64, [share(), share()], 0..=100u64).prop_map(|(span, delay, shares, change)| TestStep {
            span,
            delay,
            shares,
            change,
        })
    }

    /// How far a link of RATE falls behind, in bytes: others send all that they may, and Laxity a share of the rest, which changes within each step. A step is from one
    /// look to the next; what followed from the look at its beginning comes into force within it.
    fn behind(floor: u64, steps: &[TestStep]) -> u64 {
        let mut ceiling = Ceiling::new(RATE, floor);
        let (mut in_force, mut queue, mut most) = (RATE, 0.0f64, 0.0f64);
        let mut spent = 0;
        for step in steps {
            // From the last look until this one's ceiling is in force: four fifths of a lag at most; and the next look comes after that.
            let delay = (LAG * 4 / 5).saturating_sub(spent) * step.delay / 100;
            let span = (1 + LAG * step.span / 1_000).max(delay);
            let change = span * step.change / 100;
            let mut marks = [0, delay, change, span];
            marks.sort_unstable();
            let mut sent = 0.0f64;
            for pair in marks.windows(2) {
                let nanos = (pair[1] - pair[0]) as f64;
                let share = if pair[0] < change { step.shares[0] } else { step.shares[1] };
                let laxity = (RATE - floor) as f64 * share as f64 / 100.0;
                let others = if pair[0] < delay { in_force } else { ceiling.set[0] };
                sent += laxity * nanos / 1e9;
                queue = (queue + nanos * (laxity + others as f64 - RATE as f64) / 1e9).max(0.0);
                most = most.max(queue);
            }
            in_force = ceiling.set[0];
            ceiling.next(sent.ceil() as u64, Duration::from_nanos(span));
            spent = span;
        }
        most.floor() as u64
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        /// Whatever Laxity sends within its rate, and whenever it is looked at in time.
        #[test]
        fn the_link_falls_behind_by_a_lag_at_most(
            floor in 1_000..RATE / 2,
            steps in prop::collection::vec(step(), 1..100),
        ) {
            let most = u128::from(RATE - floor) * u128::from(LAG) / 1_000_000_000;
            let found = behind(floor, &steps);
            prop_assert!(u128::from(found) <= most, "{found} of {most}");
        }
    }

    #[test]
    fn what_is_not_set_is_told_and_set_again() {
        let streams = StreamClasses::default();
        let classes = GuardClasses { rate: RATE, floor: RATE / 20, ceiling: RATE / 20, mtu: 1_500, streams };
        let lateness = Arc::new(CeilingLateness::default());
        let lag = Duration::from_nanos(LAG);
        let mut follower = CeilingFollower::new(classes, lag, Arc::default(), Arc::clone(&lateness));
        let start = follower.last.1;
        let at = |millis| move || start + Duration::from_millis(millis);
        let mut tries = Vec::new();
        follower.look(at(1), |ceiling| {
            tries.push(ceiling);
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert!(lateness.told("a0", lag).is_some_and(|told| told.contains("1 times")));
        // The same one, until it is set; then no more.
        for millis in 2..5 {
            follower.look(at(millis), |ceiling| {
                tries.push(ceiling);
                Ok(())
            });
        }
        assert_eq!(tries, [RATE / (RATE / STEPS) * (RATE / STEPS); 2]);
        assert_eq!(lateness.times.load(Ordering::Relaxed), 1);
        // One that comes too late is told, too.
        follower.look(at(8), |_| Ok(()));
        assert_eq!(lateness.times.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn streams_have_their_part_beside_it() {
        let streams = StreamClasses { rate: RATE / 5, most: 8 };
        let classes = GuardClasses { rate: RATE, floor: RATE / 20, ceiling: RATE / 20, mtu: 1_500, streams };
        let mut follower = CeilingFollower::new(classes, Duration::from_nanos(LAG), Arc::default(), Arc::default());
        let start = follower.last.1;
        for millis in 1..9 {
            follower.look(|| start + Duration::from_millis(millis), |_| Ok(()));
        }
        assert!(follower.in_force.is_some_and(|ceiling| ceiling <= RATE * 4 / 5), "{:?}", follower.in_force);
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
        let lateness = CeilingLateness::default();
        assert_eq!(lateness.told("a0", Duration::from_millis(4)), None);
        lateness.times.fetch_add(2, Ordering::Relaxed);
        lateness.longest.fetch_max(5_000_000, Ordering::Relaxed);
        let told = lateness.told("a0", Duration::from_millis(4)).unwrap();
        assert!(
            told.contains("too late 2 times, or not at all: after 5ms at the longest, expected 3.2ms at most"),
            "{told}"
        );
    }
}
