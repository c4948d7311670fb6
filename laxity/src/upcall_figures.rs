//! What is counted of an upcall: written by its thread alone, read by anybody at any time.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use laxity_core::figures::Latencies;
use laxity_core::units::{Duration, Instant};
use strum::{FromRepr, IntoStaticStr};

use crate::statistics::Histogram;

/// What an upcall does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[repr(u8)]
pub enum State {
    /// It was not told to run, was suspended, or has finished.
    Suspended = 0,
    /// It is released every period, or by its descriptor, or was asked for and is not done.
    Active = 1,
    /// Its handler panicked, or failed ([`Progress::Failed`](crate::upcall::Progress::Failed)). It runs no more.
    Panicked = 2,
    /// A run took more than it declared, and its policy was to stop then ([`Overrun::Stop`](crate::upcall::Overrun::Stop)); or the descriptor that it
    /// reads is at its end, or cannot be read any more ([`Upcalls::create_reader`](crate::upcall::Upcalls::create_reader)).
    Stopped = 3,
    /// It was closed.
    Closed = 4,
}

/// Why runs were not done by their deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpcallMisses {
    /// An upcall took more than it declared: this one, or another of the same thread.
    pub upcall: u64,
    /// The platform took more than was allowed for, by a witness.
    pub platform: u64,
    /// None of these: a bug of ours.
    pub laxity: u64,
}

/// What was counted of one upcall so far.
#[derive(Clone, Debug)]
pub struct UpcallFigures {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: State,
    /// Its period; `None` if it is aperiodic.
    pub period: Option<Duration>,
    /// What a run may take of the processor.
    pub declared_cost: Duration,
    /// How long a run may take from its release until it is done, with all that is admitted now; `None` if it is aperiodic.
    pub bound: Option<Duration>,
    /// Runs that were due: completed, skipped, or given up. One that is under way is not counted yet.
    pub invocations: u64,
    /// Runs that were done, late ones included.
    pub completed: u64,
    /// Of these, after their deadline.
    pub late: u64,
    /// Runs that did not begin within their period, and so not at all.
    pub skipped: u64,
    /// Late and skipped runs by cause.
    pub misses: UpcallMisses,
    /// The upcall that was the cause last, if one was.
    pub because_of: Option<String>,
    /// Completed after the bound though by the deadline, without a cause that would excuse a miss.
    pub over_bound: u64,
    /// Runs that took more of the processor than was declared.
    pub over_cost: u64,
    /// The least time that was left at a run's end; negative if it was late.
    pub min_slack_ns: Option<i64>,
    /// How long after its release a run began.
    pub jitter: Latencies,
    /// How long after its release it was done.
    pub response: Latencies,
    /// What was left of its period then.
    pub slack: Latencies,
    /// What it took of the processor.
    pub cost: Latencies,
}

/// What the thread publishes of an upcall.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) period: Option<Duration>,
    pub(crate) declared: Duration,
    state: AtomicU8,
    /// ns; zero before it is known, `u64::MAX` if there is none.
    pub(crate) bound: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) by_upcall: AtomicU64,
    pub(crate) by_platform: AtomicU64,
    pub(crate) by_laxity: AtomicU64,
    pub(crate) over_bound: AtomicU64,
    pub(crate) over_cost: AtomicU64,
    /// The place of the culprit, plus one.
    pub(crate) culprit: AtomicU32,
    /// When the run that is next, or under way, was or will be released, ns; `u64::MAX` if none.
    pub(crate) release: AtomicU64,
    min_slack: std::sync::atomic::AtomicI64,
    pub(crate) jitter: Histogram,
    pub(crate) response: Histogram,
    pub(crate) slack: Histogram,
    pub(crate) cost: Histogram,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

impl Record {
    pub(crate) fn new(name: &str, period: Option<Duration>, declared: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            name: name.to_owned(),
            period,
            declared,
            state: AtomicU8::new(State::Suspended as u8),
            bound: zero(),
            completed: zero(),
            late: zero(),
            skipped: zero(),
            by_upcall: zero(),
            by_platform: zero(),
            by_laxity: zero(),
            over_bound: zero(),
            over_cost: zero(),
            culprit: AtomicU32::new(0),
            release: AtomicU64::new(u64::MAX),
            min_slack: std::sync::atomic::AtomicI64::new(i64::MAX),
            jitter: Histogram::default(),
            response: Histogram::default(),
            slack: Histogram::default(),
            cost: Histogram::default(),
        }
    }

    /// How long a run may take; `None` if that has no bound.
    pub(crate) fn bound(&self) -> Option<Duration> {
        let nanos = self.bound.load(Relaxed);
        (nanos != 0 && nanos != u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    /// The bound is this much now; in force is the largest that ever was.
    pub(crate) fn raise_bound(&self, bound: Option<Duration>) {
        self.bound.fetch_max(bound.map_or(u64::MAX, Duration::as_nanos), Relaxed);
    }

    pub(crate) fn state(&self) -> State {
        State::from_repr(self.state.load(SeqCst)).unwrap_or(State::Closed)
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, SeqCst);
    }

    /// A run was released at `release`, and done at `end`.
    pub(crate) fn done(&self, release: Instant, deadline: Instant, end: Instant) {
        self.response.record(end.since(release).as_nanos());
        self.slack.record(deadline.since(end).as_nanos());
        let slack = i64::try_from(i128::from(deadline.as_nanos()) - i128::from(end.as_nanos())).unwrap_or(i64::MIN);
        self.min_slack.store(self.min_slack.load(Relaxed).min(slack), Relaxed);
    }

    /// What was counted; `name_of` knows the names of culprits, `stuck` who has the thread and does not give it back, as of `now`.
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
        // Behind one that does not give the thread back nothing is counted by the thread.
        if let (Some(stuck), Some(period), State::Active) = (stuck, self.period, self.state()) {
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
