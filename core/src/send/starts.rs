//! The rate at which best effort starts on the link (premise P2: the analysis counts on it, so the run time polices it).
//!
//! Every hand-over of a best-effort packet or a control frame takes C_l of the processor from the current handler, whatever
//! its size. [`Starts`] bounds how often: at most `burst + ⌈s/spacing⌉` in any half-open span `s`. A token bucket keeps that
//! exactly, in integer nanoseconds and without a timer: it holds the *theoretical arrival time*, at which the starts so far
//! would have been due had they come one `spacing` after the other. A start may be early by `burst · spacing`, no more.
//!
//! Why that is the bound: let n starts fall into `[a, a + s)`, the first at `t ≥ a`, the last at `u ≤ a + s − 1`. The first
//! leaves the theoretical time at `t + spacing` at least and each other one adds `spacing`, so before the last it is at least
//! `t + (n − 1) spacing`, and `u ≥ t + (n − 1) spacing − burst · spacing`. So `(n − 1 − burst) spacing ≤ s − 1`, which is
//! `n ≤ burst + ⌈s/spacing⌉`. A source that starts as soon as possible reaches it: nothing is given away, nothing drifts.

use crate::platform::Starts;
use crate::units::{Duration, Instant};

/// Polices the starts of best effort on one link.
#[derive(Clone, Copy, Debug)]
pub struct StartPolicer {
    spacing: Duration,
    /// The time by which a start may be early: `burst · spacing`.
    tolerance: Duration,
    /// The time at which the next start would be due if all had come `spacing` apart.
    theoretical: Instant,
}

impl StartPolicer {
    /// A policer before the first start; `None` lets every start through.
    pub fn new(starts: Option<Starts>) -> Self {
        let (burst, spacing) = starts.map(|starts| (starts.burst, starts.spacing)).unwrap_or_default();
        Self { spacing, tolerance: spacing * u64::from(burst), theoretical: Instant::ZERO }
    }

    /// The time from which the next start is allowed; the origin if nothing is policed.
    pub fn allowed_at(&self) -> Instant {
        self.theoretical.before(self.tolerance)
    }

    /// Notes a start at `now`, which must be allowed.
    pub fn started(&mut self, now: Instant) {
        if !self.spacing.is_zero() {
            self.theoretical = self.theoretical.max(now) + self.spacing;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// The definition: every window, one after the other.
    fn is_within(times: &[u64], starts: Starts) -> bool {
        let spacing = starts.spacing.as_nanos();
        (0..times.len()).all(|first| {
            (first..times.len()).all(|last| {
                // The shortest half-open span that holds both.
                let span = times[last] - times[first] + 1;
                (last - first + 1) as u64 <= u64::from(starts.burst) + span.div_ceil(spacing)
            })
        })
    }

    proptest! {
        /// A start is let through at the first instant at which the definition allows it, and not before.
        #[test]
        fn a_start_is_allowed_exactly_when_the_definition_allows_it(
            burst in 1u32..5,
            spacing in 1u64..12,
            pauses in prop::collection::vec(prop_oneof![3 => Just(0u64), 1 => 0u64..40], 1..40),
        ) {
            let starts = Starts { burst, spacing: Duration::from_nanos(spacing) };
            let mut policer = StartPolicer::new(Some(starts));
            let (mut times, mut now) = (Vec::<u64>::new(), 0);
            for pause in pauses {
                now += pause;
                let mut naive = now;
                while !is_within(&[&times[..], &[naive]].concat(), starts) {
                    naive += 1;
                }
                prop_assert_eq!(policer.allowed_at().max(at(now)), at(naive));
                policer.started(at(naive));
                times.push(naive);
                now = naive;
            }
        }
    }

    #[test]
    fn years_later_it_is_as_exact_as_at_the_start() {
        let spacing = Duration::from_secs(3600);
        let mut policer = StartPolicer::new(Some(Starts { burst: 65_535, spacing }));
        let now = at(20 * 365 * 86_400 * 1_000_000_000);
        for _ in 0..65_536 {
            assert!(policer.allowed_at() <= now);
            policer.started(now);
        }
        assert_eq!(policer.allowed_at(), now + spacing);
    }

    #[test]
    fn without_a_limit_every_start_is_allowed() {
        let mut policer = StartPolicer::new(None);
        for now in [0, 0, 5] {
            assert_eq!(policer.allowed_at(), at(0));
            policer.started(at(now));
        }
    }
}
