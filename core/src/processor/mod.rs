//! The processor scheduler, which picks the job that runs next.
//!
//! A job is known here by its number and by its next [`NextWork`]: its order among the others, and
//! the number of steps until it may be replaced. The contents of a step are the job's own.
//!
//! Three policies: multi-class earliest deadline first and fixed priority with 32 levels, first come first served within a level
//! [channels §4.2]; and rate-monotonic, for upcalls, which with the preemption below is RMDP [rtu §5.1]. Under all of them preemption
//! is cooperative [channels §3.1]: the running job may be replaced only
//! 1. after every block of steps of its current message (of a channel: P packets; of an upcall: an iteration),
//! 2. at the end of a message, and
//! 3. when it has nothing to do (or no room to put it).
//!
//! Point 2 bounds a block: if the count of steps ran across messages, a block could be P first packets. On equal
//! deadlines the running job keeps the processor (premise P4 of the analysis): without a fixed total order two equal
//! messages would take turns, and pay for a switch each time.

mod preemption;

pub use preemption::Preemption;

use crate::collections::{DeadlineHeap, FifoSet};
use crate::limits::PRIORITY_LEVELS;
use crate::mutant::{self, Mutant};
use crate::units::Instant;

/// The order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Current real-time by deadline, then best effort first come first served, then early real-time by logical arrival.
    #[default]
    EarliestDeadline,
    /// By level, 0 first; first come first served within a level. Messages that are early still wait or come last.
    FixedPriority,
    /// The shorter the time from release to deadline, the earlier; of equal ones the lower number first, whichever of them runs.
    RateMonotonic,
}

/// The class of a job's next work, and its order within the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOrder {
    /// A real-time message: current from `release` (its logical arrival here) on, early before that.
    RealTime {
        /// Logical arrival at this host.
        release: Instant,
        /// The time by which this host's processor must be done with it.
        deadline: Instant,
        /// The level under [`Policy::FixedPriority`], below [`PRIORITY_LEVELS`].
        priority: u8,
        /// True if it may be processed before `release` when nothing else wants the processor.
        work_conserving: bool,
    },
    /// A best-effort message.
    BestEffort,
}

impl JobOrder {
    fn is_current(&self, now: Instant) -> bool {
        matches!(self, Self::RealTime { release, .. } if *release <= now)
    }
}

/// The next work of a job, as far as scheduling is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextWork {
    /// The time from which it may run, and its place among others.
    pub order: JobOrder,
    /// Steps until its next preemption point inside a message.
    pub block: u32,
}

/// The job that was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickedJob {
    /// Its number.
    pub id: u32,
    /// True if another job ran before.
    pub switched: bool,
}

/// The state in which a step leaves its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingWork {
    /// More steps of the same message.
    Same(NextWork),
    /// The message is at its end; the next one is this, if any.
    Message(Option<NextWork>),
    /// Nothing to do, or nowhere to put it.
    Blocked,
}

/// Order among jobs: smaller runs first. The number counts only under [`Policy::RateMonotonic`], where it is a part of the priority.
type Rank = (u8, Instant, u32);

const BEST_EFFORT_LEVEL: u8 = PRIORITY_LEVELS as u8 - 1;

#[derive(Debug)]
struct RunningJob {
    id: u32,
    work: NextWork,
    /// Steps since the last preemption point; a preemption point is where this is zero.
    steps: u32,
}

/// Run queues and the job that runs.
#[derive(Debug)]
pub struct Processor {
    policy: Policy,
    /// Q1: current real-time jobs by deadline (EDF).
    current: DeadlineHeap,
    /// Q2: best effort; under fixed priority every level.
    levels: FifoSet,
    /// Q3: early jobs that may run, by logical arrival.
    early: DeadlineHeap,
    /// Early jobs that must wait for their logical arrival.
    waiting: DeadlineHeap,
    /// The next work of each queued job, by id.
    work: alloc::boxed::Box<[Option<NextWork>]>,
    running: Option<RunningJob>,
    last: Option<u32>,
    /// Anything but the default is for experiments: see [`Preemption`].
    pub(crate) preemption: Preemption,
    /// Only current real-time jobs are picked while this is set. So a driver keeps its share of the processor within what the platform allows
    /// without delaying what was promised.
    pub(crate) restricted: bool,
}

impl Processor {
    /// A scheduler for the jobs `0..capacity`.
    pub fn new(policy: Policy, capacity: usize) -> Self {
        Self {
            policy,
            current: DeadlineHeap::with_capacity(capacity),
            levels: FifoSet::with_capacity(capacity),
            early: DeadlineHeap::with_capacity(capacity),
            waiting: DeadlineHeap::with_capacity(capacity),
            work: alloc::vec![None; capacity].into_boxed_slice(),
            running: None,
            last: None,
            preemption: Preemption::Cooperative,
            restricted: false,
        }
    }

    /// Makes `id` runnable with `work`. A job that runs keeps its place, and so does one that is queued, as long as its work is
    /// the same. Its next work may have changed.
    pub fn ready(&mut self, now: Instant, id: u32, work: NextWork) {
        if self.running.as_ref().is_some_and(|running| running.id == id) || self.work[id as usize] == Some(work) {
            return;
        }
        if self.work[id as usize].is_some() {
            self.remove(id);
        }
        self.enqueue(now, id, work, false);
    }

    /// As [`Processor::ready`]; one that runs goes on with `work`, the same with another deadline.
    pub fn renew(&mut self, now: Instant, id: u32, work: NextWork) {
        match &mut self.running {
            Some(running) if running.id == id => running.work = work,
            _ => self.ready(now, id, work),
        }
    }

    /// Takes `id` out, wherever it is.
    pub fn remove(&mut self, id: u32) {
        if self.running.as_ref().is_some_and(|running| running.id == id) {
            self.running = None;
        }
        self.work[id as usize] = None;
        let _ = self.current.remove(id) || self.levels.remove(id) || self.early.remove(id) || self.waiting.remove(id);
    }

    /// True if `id` is runnable, waiting for its logical arrival, or running.
    pub fn is_known(&self, id: u32) -> bool {
        self.work[id as usize].is_some() || self.running.as_ref().is_some_and(|running| running.id == id)
    }

    /// The job whose step is next, or `None` if none may run at `now`.
    ///
    /// O(log n), plus O(log n) once for each message that became current since the last call.
    pub fn pick(&mut self, now: Instant) -> Option<PickedJob> {
        self.promote(now);
        if let Some(running) = &self.running
            && (!self.restricted || running.work.order.is_current(now))
            && (running.steps > 0
                || self.preemption.stays(now, &running.work.order)
                || self.best_rank().is_none_or(|best| keeps(self.rank(now, running), best)))
        {
            return Some(PickedJob { id: running.id, switched: self.note_switch() });
        }
        if self.restricted && self.best_rank().is_none_or(|(band, ..)| band >= BEST_EFFORT_LEVEL) {
            // This is a preemption point for the job that has to wait, wherever it is: what becomes current until it goes on must not
            // find it in the middle of a block, after a sleep at that.
            if let Some(previous) = self.running.take() {
                self.enqueue(now, previous.id, previous.work, true);
            }
            return None;
        }
        let next = self.pop_best()?;
        if let Some(previous) = self.running.take() {
            self.enqueue(now, previous.id, previous.work, true);
        }
        let work = self.work[next as usize].take().expect("a queued job has work");
        self.running = Some(RunningJob { id: next, work, steps: 0 });
        Some(PickedJob { id: next, switched: self.note_switch() })
    }

    /// True if the running job would be replaced if this were a preemption point: then it is asked to yield [rtu §5.1].
    ///
    /// O(1), plus O(log n) once for each message that became current since the last call.
    pub fn is_outranked(&mut self, now: Instant) -> bool {
        self.promote(now);
        let Some(running) = &self.running else { return false };
        self.best_rank().is_some_and(|best| !keeps(self.rank(now, running), best))
    }

    /// Notes the state in which a step left the running job; true if this is a preemption point.
    pub fn stepped(&mut self, now: Instant, after: RemainingWork) -> bool {
        let Some(running) = &mut self.running else { return true };
        let after = match after {
            RemainingWork::Message(Some(work))
                if mutant::is_on(Mutant::NoYieldAtMessageEnd)
                    && (work.order == JobOrder::BestEffort || work.order.is_current(now)) =>
            {
                RemainingWork::Same(work)
            }
            after => after,
        };
        match after {
            RemainingWork::Same(work) => {
                running.work = work;
                running.steps = running.steps.saturating_add(1);
                if running.steps >= work.block && !self.preemption.takes_whole_messages(&work.order) {
                    running.steps = 0;
                }
                running.steps == 0
            }
            RemainingWork::Message(Some(work)) => {
                let id = running.id;
                running.work = work;
                running.steps = 0;
                // A best-effort message is at its end: the others have been waiting longer. And what is early now must
                // wait like any other job.
                if !work.order.is_current(now) && !self.preemption.stays(now, &work.order) {
                    self.running = None;
                    self.enqueue(now, id, work, false);
                }
                true
            }
            RemainingWork::Message(None) | RemainingWork::Blocked => {
                self.running = None;
                true
            }
        }
    }

    /// The time at which the next job that waits for its logical arrival becomes current.
    pub fn next_release(&self) -> Option<Instant> {
        let first = |heap: &DeadlineHeap| heap.peek().map(|(at, _)| at);
        let early = || {
            let release = |order| if let JobOrder::RealTime { release, .. } = order { Some(release) } else { None };
            let running = self.running.as_ref().and_then(|running| release(running.work.order));
            first(&self.early).into_iter().chain(running).min()
        };
        // While restricted, what is early waits as well, the job that was interrupted included.
        let early = if self.restricted { early() } else { None };
        first(&self.waiting).into_iter().chain(early).min()
    }

    /// True if a job could run at `now`.
    pub fn has_ready(&self, now: Instant) -> bool {
        let may_run = |running: &RunningJob| !self.restricted || running.work.order.is_current(now);
        self.has_queued(now)
            || self.running.as_ref().is_some_and(may_run)
            || !(self.restricted || self.levels.is_empty() && self.early.is_empty())
    }

    /// True if a real-time job is current at `now`. While none is, no deadline depends on what happened before.
    pub fn has_current(&self, now: Instant) -> bool {
        self.has_queued(now)
            || self.early.peek().is_some_and(|(at, _)| at <= now)
            || self.running.as_ref().is_some_and(|running| running.work.order.is_current(now))
    }

    /// True if a real-time job other than the running one is known to be current, under either policy.
    fn has_queued(&self, now: Instant) -> bool {
        !self.current.is_empty()
            || self.next_release().is_some_and(|at| at <= now)
            || self.levels.first_list().is_some_and(|level| level < BEST_EFFORT_LEVEL)
    }

    fn note_switch(&mut self) -> bool {
        let id = self.running.as_ref().map(|running| running.id);
        let switched = self.last != id;
        self.last = id;
        switched
    }

    fn enqueue(&mut self, now: Instant, id: u32, work: NextWork, preempted: bool) {
        self.work[id as usize] = Some(work);
        match work.order {
            JobOrder::BestEffort if preempted => self.levels.push_front(BEST_EFFORT_LEVEL, id),
            JobOrder::BestEffort => self.levels.push_back(BEST_EFFORT_LEVEL, id),
            JobOrder::RealTime { release, work_conserving, .. } if release > now => {
                if work_conserving && mutant::is_on(Mutant::EarlyOvertakes) {
                    self.current.set(id, release)
                } else if work_conserving {
                    self.early.set(id, release)
                } else {
                    self.waiting.set(id, release)
                }
            }
            JobOrder::RealTime { release, deadline, priority, .. } => match self.policy {
                Policy::EarliestDeadline => self.current.set(id, deadline),
                Policy::RateMonotonic => self.current.set(id, Instant::ZERO + deadline.since(release)),
                Policy::FixedPriority if preempted => self.levels.push_front(priority.min(BEST_EFFORT_LEVEL), id),
                Policy::FixedPriority => self.levels.push_back(priority.min(BEST_EFFORT_LEVEL), id),
            },
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some((_, id)) = self.waiting.pop_due(now).or_else(|| self.early.pop_due(now)) {
            let work = self.work[id as usize].expect("a queued job has work");
            self.enqueue(now, id, work, false);
        }
    }

    fn rank(&self, now: Instant, running: &RunningJob) -> Rank {
        match running.work.order {
            JobOrder::BestEffort if mutant::is_on(Mutant::BestEffortFirst) => (0, Instant::ZERO, 0),
            JobOrder::BestEffort => (BEST_EFFORT_LEVEL, Instant::ZERO, 0),
            JobOrder::RealTime { release, .. } if release > now && mutant::is_on(Mutant::EarlyOvertakes) => {
                (0, release, 0)
            }
            JobOrder::RealTime { release, .. } if release > now => (self.preemption.early_band(), release, 0),
            JobOrder::RealTime { deadline, priority, release, .. } => match self.policy {
                Policy::EarliestDeadline => (0, deadline, 0),
                Policy::FixedPriority => (priority.min(BEST_EFFORT_LEVEL), Instant::ZERO, 0),
                Policy::RateMonotonic => (0, Instant::ZERO + deadline.since(release), running.id),
            },
        }
    }

    fn best_rank(&self) -> Option<Rank> {
        if mutant::is_on(Mutant::BestEffortFirst) && self.levels.first_list() == Some(BEST_EFFORT_LEVEL) {
            return Some((0, Instant::ZERO, 0));
        }
        if let Some((key, id)) = self.current.peek() {
            return Some((0, key, if self.policy == Policy::RateMonotonic { id } else { 0 }));
        }
        let early = self.early.peek().map(|(release, _)| (self.preemption.early_band(), release, 0));
        match self.levels.first_list() {
            Some(level) if early.is_none_or(|(band, ..)| level < band) => Some((level, Instant::ZERO, 0)),
            _ => early,
        }
    }

    fn pop_best(&mut self) -> Option<u32> {
        if mutant::is_on(Mutant::BestEffortFirst) && self.levels.first_list() == Some(BEST_EFFORT_LEVEL) {
            return self.levels.pop_front(BEST_EFFORT_LEVEL);
        }
        if let Some((_, id)) = self.current.pop() {
            return Some(id);
        }
        match self.levels.first_list() {
            Some(level) if self.early.is_empty() || level < self.preemption.early_band() => {
                self.levels.pop_front(level)
            }
            _ => self.early.pop().map(|(_, id)| id),
        }
    }
}

/// True if the running job keeps the processor. On equal deadlines it does (premise P4).
fn keeps(running: Rank, best: Rank) -> bool {
    let newcomer_wins = mutant::is_on(Mutant::NewcomerWinsTies) && running.0 < BEST_EFFORT_LEVEL;
    running < best || (running == best && !newcomer_wins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }
    fn real_time(block: u32, release: u64, deadline: u64) -> NextWork {
        let (release, deadline) = (at(release), at(deadline));
        NextWork { order: JobOrder::RealTime { release, deadline, priority: 0, work_conserving: true }, block }
    }
    fn held(release: u64, deadline: u64) -> NextWork {
        let (release, deadline) = (at(release), at(deadline));
        NextWork { order: JobOrder::RealTime { release, deadline, priority: 0, work_conserving: false }, block: 4 }
    }
    fn best_effort(block: u32) -> NextWork {
        NextWork { order: JobOrder::BestEffort, block }
    }
    fn edf() -> Processor {
        Processor::new(Policy::EarliestDeadline, 8)
    }
    fn picked(processor: &mut Processor, now: u64) -> Option<u32> {
        processor.pick(at(now)).map(|pick| pick.id)
    }

    #[test]
    fn a_queued_job_whose_first_work_becomes_another_is_queued_anew() {
        let mut processor = edf();
        processor.ready(at(0), 0, held(50, 60));
        processor.ready(at(0), 1, real_time(4, 0, 90));
        // Something older turned up for handler 0, and something newer is first for handler 1.
        processor.ready(at(5), 0, held(5, 80));
        assert_eq!(picked(&mut processor, 5), Some(0));
        processor.stepped(at(5), RemainingWork::Message(None));
        processor.ready(at(5), 2, real_time(4, 0, 95));
        processor.ready(at(5), 1, real_time(4, 0, 99));
        assert_eq!(picked(&mut processor, 5), Some(2));
        // Who runs goes on with what it has.
        processor.stepped(at(5), RemainingWork::Same(real_time(4, 0, 95)));
        processor.ready(at(5), 2, real_time(4, 0, 200));
        assert_eq!(picked(&mut processor, 5), Some(2));
    }

    #[test]
    fn classes_run_in_the_order_current_best_effort_early() {
        let mut processor = edf();
        processor.ready(at(0), 0, real_time(4, 50, 60));
        processor.ready(at(0), 1, best_effort(4));
        processor.ready(at(0), 2, real_time(4, 0, 100));
        processor.ready(at(0), 3, real_time(4, 0, 90));
        let mut order = alloc::vec::Vec::new();
        while let Some(id) = picked(&mut processor, 0) {
            order.push(id);
            processor.stepped(at(0), RemainingWork::Message(None));
        }
        assert_eq!(order, [3, 2, 1, 0]);
    }

    #[test]
    fn a_job_is_replaced_only_after_its_quantum_or_at_a_message_end() {
        let mut processor = edf();
        processor.ready(at(0), 0, best_effort(2));
        assert_eq!(picked(&mut processor, 0), Some(0));
        assert!(!processor.stepped(at(1), RemainingWork::Same(best_effort(2))));
        processor.ready(at(1), 1, real_time(2, 1, 10));
        assert_eq!(picked(&mut processor, 1), Some(0), "one packet is left of the quantum");
        assert!(processor.stepped(at(2), RemainingWork::Same(best_effort(2))));
        assert_eq!(processor.pick(at(2)), Some(PickedJob { id: 1, switched: true }));
        assert!(processor.stepped(at(3), RemainingWork::Message(None)), "the end of a message is a preemption point");
        assert_eq!(picked(&mut processor, 3), Some(0), "the preempted handler has kept its turn");
    }

    #[test]
    fn on_equal_deadlines_the_running_handler_keeps_the_processor() {
        let mut processor = edf();
        processor.ready(at(0), 1, real_time(1, 0, 48));
        assert_eq!(picked(&mut processor, 0), Some(1));
        processor.ready(at(0), 0, real_time(1, 0, 48));
        for _ in 0..4 {
            assert!(processor.stepped(at(1), RemainingWork::Same(real_time(1, 0, 48))));
            assert_eq!(processor.pick(at(1)), Some(PickedJob { id: 1, switched: false }));
        }
    }

    #[test]
    fn a_held_message_waits_for_its_logical_arrival_and_says_when() {
        let mut processor = edf();
        processor.ready(at(0), 0, held(50, 60));
        assert_eq!((picked(&mut processor, 49), processor.next_release()), (None, Some(at(50))));
        assert_eq!(picked(&mut processor, 50), Some(0));
    }

    #[test]
    fn a_restricted_processor_says_when_the_early_handler_that_it_interrupted_becomes_current() {
        let mut processor = edf();
        processor.ready(at(0), 0, real_time(4, 50, 60));
        assert_eq!(picked(&mut processor, 0), Some(0));
        processor.stepped(at(1), RemainingWork::Same(real_time(4, 50, 60)));
        processor.restricted = true;
        assert_eq!((picked(&mut processor, 1), processor.has_ready(at(1))), (None, false));
        assert_eq!(processor.next_release(), Some(at(50)));
        assert_eq!((processor.has_ready(at(50)), picked(&mut processor, 50)), (true, Some(0)));
    }

    #[test]
    fn a_running_early_handler_yields_to_best_effort_and_becomes_current_in_time() {
        let mut processor = edf();
        processor.ready(at(0), 0, real_time(1, 50, 60));
        assert_eq!(picked(&mut processor, 0), Some(0));
        processor.stepped(at(1), RemainingWork::Same(real_time(1, 50, 60)));
        processor.ready(at(1), 1, best_effort(1));
        assert_eq!(picked(&mut processor, 1), Some(1));
        processor.stepped(at(50), RemainingWork::Same(best_effort(1)));
        assert_eq!(picked(&mut processor, 50), Some(0), "now it is current");
    }

    #[test]
    fn fixed_priority_is_first_come_first_served_within_a_level() {
        let mut processor = Processor::new(Policy::FixedPriority, 8);
        let level = |priority| {
            let (release, deadline) = (at(0), at(9));
            NextWork { order: JobOrder::RealTime { release, deadline, priority, work_conserving: false }, block: 1 }
        };
        for (id, priority) in [(0, 5), (1, 3), (2, 3), (3, 31), (4, 0)] {
            processor.ready(at(0), id, level(priority));
        }
        let mut order = alloc::vec::Vec::new();
        while let Some(id) = picked(&mut processor, 0) {
            order.push(id);
            processor.stepped(at(0), RemainingWork::Message(None));
        }
        assert_eq!(order, [4, 1, 2, 0, 3]);
    }

    #[test]
    fn a_restricted_processor_runs_only_what_is_current() {
        let mut processor = edf();
        processor.ready(at(0), 0, best_effort(1));
        processor.ready(at(0), 1, real_time(1, 0, 10));
        processor.ready(at(0), 2, real_time(1, 70, 80));
        processor.restricted = true;
        assert_eq!(picked(&mut processor, 0), Some(1));
        processor.stepped(at(1), RemainingWork::Message(None));
        assert_eq!((picked(&mut processor, 1), processor.has_ready(at(1))), (None, false));
        assert_eq!(processor.next_release(), Some(at(70)));
        processor.restricted = false;
        assert_eq!(picked(&mut processor, 1), Some(0));
    }
}
