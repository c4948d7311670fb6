//! Experiment 1 of the paper: periods of 40 to 90 ms, more and more of the processor, and whether deadlines are met [rtu §7.1].
//!
//! The paper has two processes with six upcalls each. Here one process has all twelve, on one thread: the upcalls of a processor belong to
//! one process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Barrier, OnceLock};
use std::thread;

use laxity::upcall::{Overrun, Progress, Upcall, UpcallFigures, UpcallMisses, UpcallSpec, Upcalls};
use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};
use strum::{IntoStaticStr, VariantArray};

use super::{LEAD, background, broken_promise, ordinary, processor, sleep_until, start};
use crate::attack::HOGS;
use crate::conditions::stay_on;
use crate::error::Error;
use crate::timing::joined;
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

/// Of the thread with the longest period; a task whose period is shorter than that of so many others comes so much higher.
const PRIORITY: u8 = 40;

/// The threads that do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray, serde::Serialize)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Upcalls of Laxity.
    Upcalls,
    /// Threads under SCHED_FIFO, rate-monotonic.
    FifoThreads,
    /// Threads of normal priority, each with an exact timer.
    TimerThreads,
    /// Threads under SCHED_DEADLINE, on any processor.
    DeadlineThreads,
}

/// A task that has to be done every period, by its end.
struct Task {
    period: Duration,
    /// The processor time that a run may take.
    cost: Duration,
    /// The processor time that it does take.
    work: Duration,
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
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// Of the processor, in thousandths, that all declare together.
    pub utilisation: u64,
    /// True if processor-bound processes ran beside it.
    pub background: bool,
    /// The scheme.
    pub scheme: Scheme,
    /// True if the exact response-time test accepts the set; live also beside what the platform takes. `None` if it was not asked.
    pub accepted: Option<bool>,
    /// The reason why the kernel refused to schedule it like that.
    pub reason: Option<String>,
    /// In the order of [`PERIODS_MS`], those of the second process after those of the first; none if the kernel refused.
    pub upcalls: Vec<Periodic>,
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

/// The result, by steps.
pub type Report = super::Report<Row>;

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
                let (scheme, background) = (Scheme::VARIANTS[at], has_background);
                let row =
                    |upcalls, accepted, reason| Row { utilisation, background, scheme, accepted, upcalls, reason };
                if scheme == Scheme::Upcalls {
                    let (upcalls, note) = by_upcalls(&tasks, processor, span)?;
                    return Ok((row(upcalls, Some(true), None), note));
                }
                Ok(match on_threads(scheme, &tasks, processor, span) {
                    Ok(seen) => (row(seen, None, None), None),
                    Err(error) => (row(Vec::new(), None, Some(error.to_string())), None),
                })
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
        let handler = move |run: &mut laxity::upcall::UpcallRun<'_>| -> Progress { run.each(|_| compute(unit)) };
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

/// The upcalls, for `span`; and what is to be said of them.
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

/// The same work without upcalls, as applications do it without Laxity: each of `tasks` in a thread of its own, for `span`, all released together.
///
/// # Errors
/// The kernel refuses the scheduling of one of them.
fn on_threads(scheme: Scheme, tasks: &[Task], processor: Option<usize>, span: Duration) -> io::Result<Vec<Periodic>> {
    let (ready, first) = (Barrier::new(tasks.len()), OnceLock::new());
    let is_refused = AtomicBool::new(false);
    let one = |task: &Task| {
        let scheduled = schedule(scheme, task, tasks, processor);
        is_refused.fetch_or(scheduled.is_err(), SeqCst);
        ready.wait();
        // Without one of them nothing is compared.
        if is_refused.load(SeqCst) {
            return scheduled.map(|()| Periodic::default());
        }
        let first = *first.get_or_init(|| now() + LEAD);
        Ok(serve(task, first, first + span))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = tasks.iter().map(|task| scope.spawn(|| one(task))).collect();
        // All are waited for before the first error is told.
        let all: Vec<io::Result<Periodic>> = threads.into_iter().map(joined).collect();
        all.into_iter().collect()
    })
}

/// Prepares the thread of one of `tasks`.
fn schedule(scheme: Scheme, task: &Task, tasks: &[Task], processor: Option<usize>) -> io::Result<()> {
    let _ = sys::precise_timers();
    if scheme != Scheme::DeadlineThreads {
        stay_on(processor);
    }
    let longer = tasks.iter().filter(|other| other.period > task.period).count();
    match scheme {
        Scheme::FifoThreads => sys::real_time(PRIORITY + longer as u8),
        Scheme::DeadlineThreads => sys::deadline(task.cost, task.period),
        Scheme::TimerThreads | Scheme::Upcalls => Ok(()),
    }
}

/// As upcalls are: a run that did not begin within its period is skipped.
fn serve(task: &Task, first: Instant, end: Instant) -> Periodic {
    let (mut seen, mut release) = (Periodic { period: task.period, ..Periodic::default() }, first);
    while release < end {
        sleep_until(release);
        let left = end.since(release).div_ceil(task.period);
        let skipped = now().since(release).div_floor(task.period).min(left);
        seen.invocations += skipped;
        seen.missed += skipped;
        release += task.period * skipped;
        if release >= end {
            break;
        }
        compute(task.work);
        let (done, deadline) = (now(), release + task.period);
        let slack = i128::from(deadline.as_nanos()) - i128::from(done.as_nanos());
        let slack = i64::try_from(slack).unwrap_or(i64::MIN);
        seen.invocations += 1;
        seen.missed += u64::from(slack < 0);
        seen.min_slack = Some(seen.min_slack.map_or(slack, |least| least.min(slack)));
        release = deadline;
    }
    seen
}

/// Computes until the calling thread has had so much more of a processor.
fn compute(work: Duration) {
    let end = sys::thread_processor_time() + work;
    while sys::thread_processor_time() < end {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine's load meanwhile does not matter: each release is accounted for, once.
    #[test]
    fn every_release_is_counted() {
        let ms = Duration::from_millis;
        let task = |period| Task { period: ms(period), cost: ms(1), work: Duration::from_micros(50) };
        let seen = on_threads(Scheme::TimerThreads, &[task(5), task(8)], processor(), ms(40)).unwrap();
        assert_eq!(seen.iter().map(|seen| seen.invocations).collect::<Vec<_>>(), [8, 5]);
        // Ends after its deadline, and the three that follow pass meanwhile.
        let late = Task { work: ms(20), ..task(5) };
        let begin = now();
        let seen = serve(&late, begin, begin + ms(20));
        assert!(seen.invocations == 4 && seen.missed == 4 && seen.min_slack.is_some_and(|slack| slack < 0), "{seen:?}");
    }
}
