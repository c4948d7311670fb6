//! The figures of an upcall: written by its thread alone, and read by any thread at any time.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use laxity_core::figures::Latencies;
use laxity_core::units::{Duration, Instant};
use strum::{FromRepr, IntoStaticStr};

use crate::statistics::Histogram;

/// The state of an upcall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum UpcallState {
    /// It was not started, was suspended, or has finished.
    Suspended = 0,
    /// It is released every period, or by its descriptor, or a requested run is not done.
    Active = 1,
    /// Its handler panicked, or failed ([`Progress::Failed`](crate::upcall::Progress::Failed)). It does not run any more.
    Panicked = 2,
    /// A run took more than it declared and the policy was [`Overrun::Stop`](crate::upcall::Overrun::Stop); or its descriptor is
    /// at its end, or cannot be read any more ([`Upcalls::create_reader`](crate::upcall::Upcalls::create_reader)).
    Stopped = 3,
    /// It was closed.
    Closed = 4,
}

/// Runs that were not done by their deadline, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct UpcallMisses {
    /// An upcall took more than it declared: this one, or another of the same thread.
    pub upcall: u64,
    /// The platform took more than was allowed for, by the evidence of a witness.
    pub platform: u64,
    /// None of these: a bug of Laxity.
    pub laxity: u64,
}

/// The figures of one upcall so far.
#[derive(Clone, Debug)]
pub struct UpcallFigures {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: UpcallState,
    /// Its period; `None` if it is aperiodic.
    pub period: Option<Duration>,
    /// The declared processor time of a run.
    pub declared_cost: Duration,
    /// The longest time from a run's release until it is done, with all that is admitted now; `None` if it is aperiodic.
    pub bound: Option<Duration>,
    /// Runs that were due: completed, skipped, or given up. A run in progress is not counted yet.
    pub invocations: u64,
    /// Runs that were done, including late ones.
    pub completed: u64,
    /// Completed runs that were late.
    pub late: u64,
    /// Runs that did not begin within their period, and so did not take place.
    pub skipped: u64,
    /// Late and skipped runs by cause.
    pub misses: UpcallMisses,
    /// The name of the upcall that caused the last miss, if an upcall did.
    pub because_of: Option<String>,
    /// Runs that were done by the deadline but after the bound, without a cause that would excuse a miss.
    pub over_bound: u64,
    /// Runs that took more of the processor than was declared.
    pub over_cost: u64,
    /// The least time from a run's end to its deadline, in nanoseconds; negative if the run was late.
    pub min_slack_ns: Option<i64>,
    /// The time from release to the beginning of a run.
    pub jitter: Latencies,
    /// The time from release to the end of a run.
    pub response: Latencies,
    /// The time from the end of a run to the end of its period.
    pub slack: Latencies,
    /// The processor time of a run.
    pub cost: Latencies,
}

/// The figures that the thread publishes of an upcall.
#[derive(Debug, Default)]
pub(crate) struct UpcallRecord {
    pub(crate) name: String,
    pub(crate) period: Option<Duration>,
    pub(crate) declared: Duration,
    /// [`UpcallState::Suspended`] at first.
    state: AtomicU8,
    /// ns; zero while unknown, `u64::MAX` without a bound.
    pub(crate) bound: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) by_upcall: AtomicU64,
    pub(crate) by_platform: AtomicU64,
    pub(crate) by_laxity: AtomicU64,
    pub(crate) over_bound: AtomicU64,
    pub(crate) over_cost: AtomicU64,
    /// Of an aperiodic one: the processor time of all requested runs that are not done, ns.
    pub(crate) backlog: AtomicU64,
    /// The place of the culprit, plus one.
    pub(crate) culprit: AtomicU32,
    /// The release of the next run or of the one in progress, ns; `u64::MAX` without one.
    pub(crate) release: AtomicU64,
    min_slack: AtomicI64,
    pub(crate) jitter: Histogram,
    pub(crate) response: Histogram,
    pub(crate) slack: Histogram,
    pub(crate) cost: Histogram,
}

impl UpcallRecord {
    pub(crate) fn new(name: &str, period: Option<Duration>, declared: Duration) -> Self {
        let (release, min_slack) = (AtomicU64::new(u64::MAX), AtomicI64::new(i64::MAX));
        Self { name: name.to_owned(), period, declared, release, min_slack, ..Self::default() }
    }

    /// The longest time of a run; `None` without a bound.
    pub(crate) fn bound(&self) -> Option<Duration> {
        let nanos = self.bound.load(Relaxed);
        (nanos != 0 && nanos != u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    /// Sets the present bound. The bound in force is the largest of all.
    pub(crate) fn raise_bound(&self, bound: Option<Duration>) {
        self.bound.fetch_max(bound.map_or(u64::MAX, Duration::as_nanos), Relaxed);
    }

    pub(crate) fn state(&self) -> UpcallState {
        UpcallState::from_repr(self.state.load(SeqCst)).unwrap_or(UpcallState::Closed)
    }

    pub(crate) fn set_state(&self, state: UpcallState) {
        self.state.store(state as u8, SeqCst);
    }

    /// Counts a run that was released at `release`, and done at `end`.
    pub(crate) fn done(&self, release: Instant, deadline: Instant, end: Instant) {
        self.response.record(end.since(release).as_nanos());
        self.slack.record(deadline.since(end).as_nanos());
        let slack = i64::try_from(i128::from(deadline.as_nanos()) - i128::from(end.as_nanos())).unwrap_or(i64::MIN);
        self.min_slack.store(self.min_slack.load(Relaxed).min(slack), Relaxed);
    }

    /// The figures as of `now`. `name_of` gives the names of culprits, and `stuck` the upcall that does not give its thread back.
    pub(crate) fn figures(
        &self,
        now: Instant,
        stuck: Option<u32>,
        name_of: impl Fn(u32) -> Option<String>,
    ) -> UpcallFigures {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let mut misses = UpcallMisses {
            upcall: read(&self.by_upcall),
            platform: read(&self.by_platform),
            laxity: read(&self.by_laxity),
        };
        let (completed, mut skipped) = (read(&self.completed), read(&self.skipped));
        let mut culprit = self.culprit.load(Relaxed).checked_sub(1);
        // Behind an upcall that does not give its thread back, the thread counts nothing.
        if let (Some(stuck), Some(period), UpcallState::Active) = (stuck, self.period, self.state()) {
            let due = now.since(Instant::from_nanos(read(&self.release))).div_floor(period);
            (skipped, misses.upcall) = (skipped + due, misses.upcall + due);
            culprit = if due > 0 { Some(stuck) } else { culprit };
        }
        let min_slack = self.min_slack.load(Relaxed);
        UpcallFigures {
            name: self.name.clone(),
            state: self.state(),
            period: self.period,
            declared_cost: self.declared,
            bound: self.bound(),
            invocations: completed + skipped,
            completed,
            late: read(&self.late),
            skipped,
            misses,
            because_of: culprit.and_then(name_of),
            over_bound: read(&self.over_bound),
            over_cost: read(&self.over_cost),
            min_slack_ns: (min_slack != i64::MAX).then_some(min_slack),
            jitter: self.jitter.latencies(),
            response: self.response.latencies(),
            slack: self.slack.latencies(),
            cost: self.cost.latencies(),
        }
    }
}
