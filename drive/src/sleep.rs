//! Sleeping when there is nothing to do or the share of the processor is used up, and until when.

use laxity_core::frames::Frames;
use laxity_core::piece::Piece;
use laxity_core::units::{Duration, Instant};

use crate::driver::Driver;
use crate::environment::{Environment, Meter};
use crate::gaps::TimedRound;
use crate::mailbox::note_late_waking;

/// The accounting window: a tenth of the kernel's usual period, so that several fit into one.
const WINDOW: Duration = Duration::from_millis(100);
/// While restricted, inputs are looked at this often.
const RESTRICTED_POLL: Duration = Duration::from_micros(500);

/// The action after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTurn {
    /// Another turn, right away.
    Again,
    /// As [`NextTurn::Sleep`], but frames came just now: while they keep coming, another turn is cheaper than asking the kernel whether there are more.
    Look(Sleep),
    /// There is nothing to do before this sleep is over, a mailbox rings, or, unless the sleep says otherwise, a frame arrives.
    Sleep(Sleep),
    /// The driver was told to stop, and everything that it had taken has been sent.
    Stop,
}

/// A sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The time at which it ends at the latest; not after now means at once. `None` if only an input can end it.
    pub until: Option<Instant>,
    /// True if a frame that arrives ends it, too. False if the share of the processor is used up, many frames came that no channel waits
    /// for, or the driver is about to stop.
    pub hears_frames: bool,
    /// True if the share of the processor is used up.
    pub is_restricted: bool,
    /// True if an upcall is ready: work that is not current may wait, and goes on when no upcall is ready.
    pub is_held: bool,
}

/// The executive's share of its processor: busy time in the current window. It never runs into the kernel's real-time throttle.
///
/// A SCHED_FIFO thread that uses up `sched_rt_runtime_us` of a period is stopped for the rest of it, 50 ms as a rule, in the
/// middle of whatever it does. So the executive counts its own time in short windows. When a window's budget is used up it
/// does only current real-time work until the window ends, and looks for input only now and then: best effort waits,
/// promised work does not.
pub(crate) struct BusyBudget {
    /// Budget of a window; `None` if nothing throttles this thread.
    budget: Option<Duration>,
    /// The time at which the next window begins.
    pub(crate) window_ends: Instant,
    busy: Duration,
}

impl BusyBudget {
    /// `throttle` is (runtime, period) of the kernel's throttle, if it applies to this thread. Nine tenths of it are used.
    pub(crate) fn new(now: Instant, throttle: Option<(Duration, Duration)>) -> Self {
        let budget = throttle
            .map(|(runtime, period)| WINDOW.mul_ratio(runtime.as_nanos(), period.as_nanos().max(1)).mul_ratio(9, 10));
        Self { budget, window_ends: now + WINDOW, busy: Duration::ZERO }
    }

    /// Notes that the thread ran from `from` to `now`; whether the window's budget is used up, if there is one.
    pub(crate) fn ran(&mut self, from: Instant, now: Instant) -> Option<bool> {
        let budget = self.budget?;
        if now >= self.window_ends {
            self.window_ends = now + WINDOW;
            self.busy = Duration::ZERO;
        }
        self.busy += now.since(from);
        Some(self.busy >= budget)
    }
}

impl<F: Frames> Driver<F> {
    /// The time for which there is nothing to do, as of `now`; at most for `rest`, if inputs are to be looked at only then.
    pub(crate) fn sleep(&self, now: Instant, rest: Option<Duration>, env: &impl Environment<F>) -> Sleep {
        let (is_restricted, is_held) = (self.progress.restricted, self.progress.held);
        let flush = (0..env.links()).filter_map(|link| env.retry_after(link)).min().map(|after| now + after);
        let soon = now + RESTRICTED_POLL;
        // The share of the processor is used up, the driver is about to stop, or many frames came that no channel waits for: inputs are
        // looked at now and then.
        let poll = match (is_restricted, self.stops_at) {
            (true, _) => Some(soon.min(self.share.window_ends)),
            (false, Some(_)) => Some(soon),
            (false, None) => rest.map(|rest| now + rest),
        };
        let until = [self.endpoint.poll_timeout(now), self.mailbox_timeout(), flush, poll].into_iter().flatten().min();
        // A thread is not late for what was due before it sleeps.
        let until = until.map(|at| at.max(now));
        Sleep { until, hears_frames: poll.is_none(), is_restricted, is_held }
    }

    /// Tells that another thread calls [`turn`](Self::turn) from `now` on: earlier work is no evidence about it. If the thread before it left with
    /// something to do, and this one comes later than a wake-up may take, the platform may have delayed it: true if that was so.
    pub fn enter(&mut self, now: Instant, env: &mut impl Environment<F>) -> bool {
        env.meter().skip(now);
        let due = self.left.take().map(|left| left + self.platform.wake_up);
        note_late_waking(&mut self.endpoint, now, due, env);
        self.was_rung = false;
        self.awake_since = now;
        self.round = TimedRound::new(now);
        due.is_some()
    }

    /// Tells that a sleep is over. Its timeout ended at `due`, if it had one, and it began no later than that. `rung` is true if a
    /// mailbox rang: the next message that is taken shows the time of the wake-up.
    pub fn woke(&mut self, now: Instant, due: Option<Instant>, rung: bool, env: &mut impl Environment<F>) {
        env.meter().skip(now);
        self.was_rung = rung;
        self.awake_since = now;
        if let Some(late) = due.map(|due| now.since(due)).filter(|late| !late.is_zero()) {
            // Until then there was nothing to do, so nothing that was taken before delays what comes now.
            self.endpoint.note_idle(now.before(late));
            env.meter().record(Piece::Timer, late, now);
            self.note_gap(now, late.saturating_sub(self.platform.wake_up), env);
        }
        self.round.begin(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_busy_thread_is_restricted_before_the_kernel_stops_it_and_free_in_the_next_window() {
        let throttle = (Duration::from_millis(950), Duration::from_millis(1000));
        let mut share = BusyBudget::new(ms(0), Some(throttle));
        assert_eq!(share.ran(ms(0), ms(85)), Some(false));
        assert_eq!(share.ran(ms(85), ms(86)), Some(true), "nine tenths of 95 ms are used");
        assert_eq!(share.window_ends, ms(100));
        assert_eq!(share.ran(ms(99), ms(100)), Some(false));
    }

    #[test]
    fn without_a_throttle_nothing_is_restricted() {
        let mut share = BusyBudget::new(ms(0), None);
        assert_eq!(share.ran(ms(0), ms(10_000)), None);
    }
}
