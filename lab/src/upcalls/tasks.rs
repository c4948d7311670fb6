//! The same work every period without upcalls: a thread for each task, as applications do it without Laxity.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Barrier, OnceLock};
use std::thread;

use laxity_core::units::{Duration, Instant};
use laxity_link::sys::{self, now};

use super::deadlines::Periodic;
use super::{LEAD, sleep_until};
use crate::conditions::stay_on;
use crate::timing::joined;

/// A task that has to be done every period, by its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) period: Duration,
    /// The processor time that a run may take.
    pub(super) cost: Duration,
    /// The processor time that it does take.
    pub(super) work: Duration,
}

/// The scheduling of the threads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// SCHED_FIFO, the higher the shorter the period.
    Fifo,
    /// Of normal priority, with exact timers.
    Timer,
    /// SCHED_DEADLINE, on any processor.
    Deadline,
}

/// Of the longest period; a task whose period is shorter than that of so many others comes so much higher.
const PRIORITY: u8 = 40;

/// Runs all `tasks` for `span`, all released together.
///
/// # Errors
/// The kernel refuses the scheduling of one of them.
pub(super) fn run(kind: Kind, tasks: &[Task], processor: Option<usize>, span: Duration) -> io::Result<Vec<Periodic>> {
    let (ready, first) = (Barrier::new(tasks.len()), OnceLock::new());
    let is_refused = AtomicBool::new(false);
    let one = |task: &Task| {
        let scheduled = schedule(kind, task, tasks, processor);
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
fn schedule(kind: Kind, task: &Task, tasks: &[Task], processor: Option<usize>) -> io::Result<()> {
    let _ = sys::precise_timers();
    if !matches!(kind, Kind::Deadline) {
        stay_on(processor);
    }
    let longer = tasks.iter().filter(|other| other.period > task.period).count();
    match kind {
        Kind::Fifo => sys::real_time(PRIORITY + longer as u8),
        Kind::Timer => Ok(()),
        Kind::Deadline => sys::deadline(task.cost, task.period),
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
        take(task.work);
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
pub(super) fn take(work: Duration) {
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
        let seen = run(Kind::Timer, &[task(5), task(8)], processor(), ms(40)).unwrap();
        assert_eq!(seen.iter().map(|seen| seen.invocations).collect::<Vec<_>>(), [8, 5]);
        // Ends after its deadline, and the three that follow pass meanwhile.
        let late = Task { work: ms(20), ..task(5) };
        let begin = now();
        let seen = serve(&late, begin, begin + ms(20));
        assert!(seen.invocations == 4 && seen.missed == 4 && seen.min_slack.is_some_and(|slack| slack < 0), "{seen:?}");
    }

    fn processor() -> Option<usize> {
        super::super::processor()
    }
}
