//! Experiment 1 of the paper: periods of 40 to 90 ms, more and more of the processor, and whether deadlines are met [rtu §7.1].
//!
//! The paper has two processes with six upcalls each. Here one process has all twelve, on one thread: the upcalls of a processor belong to
//! one process.

use laxity::upcall::{Overrun, Progress, Upcall, UpcallFigures, UpcallMisses, UpcallSpec, Upcalls};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::now;
use strum::{IntoStaticStr, VariantArray};

use super::tasks::{self, Kind, Task};
use super::{LEAD, background, broken_promise, ordinary, processor, sleep_until, start};
use crate::attack::HOGS;
use crate::error::Error;
use crate::turns::Turns;

/// Periods of the upcalls of a process, ms.
pub const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];
/// Processes of the paper.
pub const PROCESSES: u64 = 2;
/// Shares of the processor that all take together, in thousandths; what admission does not grant is left out.
pub const STEPS: [u64; 6] = [300, 500, 600, 700, 750, 800];
/// The part of its declared time that a run takes, in per cent: work that takes exactly that would exceed it by reading a clock.
pub const WORK_PERCENT: u64 = 90;
/// Units of a run, one in an iteration: so preemption is all but immediate.
const BATCH: u32 = 50;

/// A thread of upcalls that was held up has so long to count what it missed, and that is looked at so often. What it did not count then is
/// a miss without a cause.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// The threads that do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Scheme {
    /// Upcalls of Laxity.
    Upcalls,
    /// Threads under SCHED_FIFO, rate-monotonic.
    FifoThreads,
    /// Threads of normal priority, each with a timer.
    TimerThreads,
    /// Threads under SCHED_DEADLINE.
    DeadlineThreads,
}

/// The result of one upcall, or of a thread in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Periodic {
    /// T.
    #[serde(rename = "period_ns")]
    pub period: Duration,
    /// Runs that were due.
    pub invocations: u64,
    /// Of these, late or not begun within their period.
    pub missed: u64,
    /// The same by cause, where causes are told; of upcalls, those that their thread has counted.
    pub misses: Option<UpcallMisses>,
    /// The least time that was left at a run's end, ns; negative if it was late; `None` if none was done.
    #[serde(rename = "min_slack_ns")]
    pub min_slack: Option<i64>,
}

/// One share of the processor, served in one way.
#[derive(Clone, Debug)]
pub struct Row {
    /// Of the processor, in thousandths, that all declare together.
    pub utilisation: u64,
    /// True if processor-bound processes ran beside it.
    pub background: bool,
    /// The scheme.
    pub scheme: Scheme,
    /// True if the exact response-time test accepts the set; live also beside what the platform takes. `None` if it was not asked.
    pub accepted: Option<bool>,
    /// In the order of [`PERIODS_MS`], those of the second process after those of the first; none if the kernel refused.
    pub upcalls: Vec<Periodic>,
    /// The reason why the kernel refused to schedule it like that.
    pub reason: Option<String>,
}

impl Row {
    /// Missed runs of all.
    pub fn missed(&self) -> u64 {
        self.upcalls.iter().map(|upcall| upcall.missed).sum()
    }

    /// The least slack of those with that period, ns.
    pub fn min_slack(&self, period_ms: u64) -> Option<i64> {
        let of_period = self.upcalls.iter().filter(|upcall| upcall.period == Duration::from_millis(period_ms));
        of_period.filter_map(|upcall| upcall.min_slack).min()
    }

    /// The promise that was not kept: a miss by Laxity's own fault, or by any cause in virtual time, where nothing else can be one.
    pub fn broken_promise(&self) -> Option<String> {
        broken_promise(share(self.utilisation), self.upcalls.iter().filter_map(|upcall| upcall.misses))
    }
}

/// The result.
#[derive(Clone, Debug)]
pub struct Report {
    /// A row for each scheme of each step, without background load and with it.
    pub rows: Vec<Row>,
    /// Remarks on all.
    pub notes: Vec<String>,
}

/// A share of the processor in thousandths, in words.
pub fn share(utilisation: u64) -> String {
    format!("utilisation {}.{:03}", utilisation / 1000, utilisation % 1000)
}

/// Runs all schemes, each for `span`, at each step that admission grants. `progress` is told how many of how many rows are done.
///
/// # Errors
/// Upcalls or processes cannot be started.
pub fn run(span: Duration, progress: impl FnMut(u64, u64)) -> Result<Report, Error> {
    let processor = processor();
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    // Once for all schemes: page faults are no part of the comparison.
    if let Err(error) = laxity::metering::lock_memory() {
        notes.push(format!("memory is not locked: {error}"));
    }
    notes.push(
        "LIVE: one process has all twelve upcalls, on one thread; the paper has two processes with six each".to_owned(),
    );
    notes.push(format!(
        "a run takes {WORK_PERCENT} % of what it declares; upcalls, fifo-threads and timer-threads share one processor with the background, \
         deadline-threads may run on any: the kernel does not let them be kept to one"
    ));
    let mut turns = Turns::new((STEPS.len() * 2 * Scheme::VARIANTS.len()) as u64, progress);
    for (number, utilisation) in STEPS.into_iter().enumerate() {
        let tasks = tasks(utilisation);
        if let Some(refusal) = refused(&tasks, processor)? {
            notes.push(format!("{} and more is not run, because admission refuses it: {refusal}", share(utilisation)));
            break;
        }
        for has_background in [false, true] {
            let whole = (span + Duration::from_secs(2)) * Scheme::VARIANTS.len() as u64;
            let _hogs = has_background.then(|| background(HOGS, processor, whole)).transpose()?;
            let found = turns.round(number, Scheme::VARIANTS.len(), |at| {
                one(Scheme::VARIANTS[at], utilisation, has_background, &tasks, processor, span)
            })?;
            for (row, note) in found {
                rows.push(row);
                notes.extend(note.filter(|note| !notes.contains(note)));
            }
        }
    }
    Ok(Report { rows, notes })
}

/// The tasks that take so many thousandths of a processor together, each the same share.
fn tasks(utilisation: u64) -> Vec<Task> {
    let one = |millis: &u64| {
        let period = Duration::from_millis(*millis);
        let cost = period.mul_ratio(utilisation, 1000 * PROCESSES * PERIODS_MS.len() as u64);
        Task { period, cost, work: cost.mul_ratio(WORK_PERCENT, 100) }
    };
    (0..PROCESSES).flat_map(|_| PERIODS_MS.iter().map(one)).collect()
}

/// Creates them all; the error is that of the first that admission refuses.
fn create(upcalls: &Upcalls, tasks: &[Task]) -> Result<Vec<Upcall>, laxity::Error> {
    let one = |(number, task): (usize, &Task)| {
        let unit = task.work.mul_ratio(1, BATCH.into());
        let spec = UpcallSpec::every(task.period).taking(task.cost).batch(BATCH).block(1).on_overrun(Overrun::Count);
        let handler = move |run: &mut laxity::upcall::UpcallRun<'_>| -> Progress { run.each(|_| tasks::take(unit)) };
        upcalls.create(&format!("{}-{number}", task.period), spec, handler)
    };
    tasks.iter().enumerate().map(one).collect()
}

/// The answer of admission if it does not grant them.
fn refused(tasks: &[Task], processor: Option<usize>) -> Result<Option<laxity::Error>, Error> {
    match create(&start(processor)?, tasks) {
        Ok(_) => Ok(None),
        Err(error @ (laxity::Error::UpcallRefused { .. } | laxity::Error::Throttled { .. })) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

/// One scheme; and what is to be said of it.
fn one(
    scheme: Scheme,
    utilisation: u64,
    background: bool,
    tasks: &[Task],
    processor: Option<usize>,
    span: Duration,
) -> Result<(Row, Option<String>), Error> {
    let row = |upcalls, accepted, reason| Row { utilisation, background, scheme, accepted, upcalls, reason };
    let kind = match scheme {
        Scheme::Upcalls => {
            let (upcalls, note) = by_upcalls(tasks, processor, span)?;
            return Ok((row(upcalls, Some(true), None), note));
        }
        Scheme::FifoThreads => Kind::Fifo,
        Scheme::TimerThreads => Kind::Timer,
        Scheme::DeadlineThreads => Kind::Deadline,
    };
    Ok(match tasks::run(kind, tasks, processor, span) {
        Ok(seen) => (row(seen, None, None), None),
        Err(error) => (row(Vec::new(), None, Some(error.to_string())), None),
    })
}

/// The upcalls, for `span`.
fn by_upcalls(
    tasks: &[Task],
    processor: Option<usize>,
    span: Duration,
) -> Result<(Vec<Periodic>, Option<String>), Error> {
    let upcalls = start(processor)?;
    let created = create(&upcalls, tasks)?;
    let first: Instant = now() + LEAD;
    for upcall in &created {
        upcall.run_from(first)?;
    }
    sleep_until(first + span);
    let patience = now() + PATIENCE;
    loop {
        let figures: Vec<UpcallFigures> = created.iter().map(Upcall::figures).collect::<Result<_, _>>()?;
        let is_counted = |figures: &UpcallFigures| figures.invocations >= due(figures, span);
        if figures.iter().all(is_counted) || now() >= patience {
            return Ok((figures.iter().map(|figures| of_figures(figures, span)).collect(), ordinary(&upcalls)));
        }
        sleep_until(now() + LOOK);
    }
}

/// Runs whose deadlines are within the span.
fn due(figures: &UpcallFigures, span: Duration) -> u64 {
    figures.period.map_or(0, |period| span.div_floor(period))
}

fn of_figures(figures: &UpcallFigures, span: Duration) -> Periodic {
    let uncounted = due(figures, span).saturating_sub(figures.invocations);
    Periodic {
        period: figures.period.unwrap_or_default(),
        invocations: figures.invocations + uncounted,
        missed: figures.late + figures.skipped + uncounted,
        misses: Some(figures.misses),
        min_slack: figures.min_slack_ns,
    }
}
