//! The processor's half of the split test: earliest deadline first with preemption every P packets.
//!
//! With `n_i(t) = ⌊(t − d_i)/I_i⌋ + 1` for `t ≥ d_i`, else 0; `q_i = ⌊(N_i − 1)/P⌋` inner preemption points of a message;
//! `R = K·C_d` the frames that one poll of the inputs may find:
//!
//! ```text
//! W(t) = Σ n_i (H_i + C_csp + (q_i + 1) R) + C_csp · min(Σ n_i, Σ n_i q_i)
//! B(t) = max( W_wake + R,  best effort: C_csp + block + R,  d_j > t: C_csp + block(N_j) + R )
//! J(s) = Intf(s) + the link's tax, which is the machine's
//! require FIX(W(t) + B(t), J) ≤ t   for all t ≥ min d_i
//! ```
//!
//! The first switch of a message is in its own term. A switch back to a preempted message happens at most once for each
//! message that preempted it, and at most once for each inner preemption point: hence the minimum. H_i is
//! `C_p^1st + (N − 1) C_p` [channels §3.2], with C_r in place of C_p for a message that is received. Assumptions A1–A8 are
//! those of the machine; the papers' has R = W_wake = 0. A channel's burst does not count: logical arrivals are an interval
//! apart [channels §2.2].
//!
//! B(t) leaves out channels with `d_j ≤ t` also where messages are served early: a message that was begun before the busy
//! period and is due after t is its channel's next one, so that channel has nothing else in the window, and at least one
//! H_j that was counted, which is no less than block(N_j), did not happen. For the same reason W + B never falls.

use alloc::vec::Vec;

use super::machine::{Machine, StepCost};
use super::walk::{self, Demand, LongRunTask, ONE, StolenTime};
use crate::mutant::{self, Mutant};

/// The messages of one channel, as the processor sees them; nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    /// I: shortest distance of two releases; not zero.
    pub(super) interval: u64,
    /// d: from release to completion.
    pub(super) deadline: u64,
    /// H + C_csp + (q + 1) R.
    pub(super) cost: u64,
    /// q: inner preemption points.
    pub(super) inner: u64,
    /// C_csp + block(N) + R; at most `cost`.
    pub(super) block: u64,
    /// The least time of the last block, without looks and switches.
    pub(super) last: u64,
    /// Of which `cost` is made.
    pub(super) steps: StepCost,
    /// N.
    pub(super) packets: u64,
}

impl Job {
    /// H.
    pub(super) fn processing(&self) -> u64 {
        self.steps.message(self.packets)
    }
    /// n(t).
    pub(super) fn due(&self, t: u64) -> u64 {
        t.checked_sub(self.deadline).map_or(0, |span| (span / self.interval).saturating_add(1))
    }
    /// Messages released before `s`, at least one.
    pub(super) fn begun(&self, s: u64) -> u64 {
        s.div_ceil(self.interval).max(1)
    }
}

/// The tasks, each with how many channels are like it: the cost of a test grows with the kinds, not with the channels.
pub(super) fn grouped<T: Copy + Ord>(mut tasks: Vec<T>) -> Vec<(T, u64)> {
    tasks.sort_unstable();
    let mut groups: Vec<(T, u64)> = Vec::new();
    for task in tasks {
        match groups.last_mut() {
            Some((last, count)) if *last == task => *count += 1,
            _ => groups.push((task, 1)),
        }
    }
    groups
}

/// A set of jobs on one processor.
pub(super) struct ProcessorTest {
    jobs: Vec<(Job, u64)>,
    switch: u64,
    /// Which side of the minimum grows slower: one switch back per message, or one per inner preemption point. In the long
    /// run, the demand is below the line of either; both the share and the excess are taken from this one.
    per_message: bool,
    /// The longest block that does not come from a channel.
    other_block: u64,
    stolen: StolenTime,
}

impl ProcessorTest {
    pub(super) fn new(machine: &Machine, existing: Vec<Job>, newcomer: Option<Job>, stolen: StolenTime) -> Self {
        let mut jobs = grouped(existing);
        jobs.extend(newcomer.map(|job| (job, 1)));
        let sum = |cost: &dyn Fn(&Job) -> u128| {
            jobs.iter().fold(0, |sum: u128, (job, count)| {
                sum.saturating_add(walk::share(cost(job), job.interval).saturating_mul((*count).into()))
            })
        };
        let per_message = sum(&|_| 1) <= sum(&|job| job.inner.into());
        Self { jobs, switch: machine.switch, per_message, other_block: machine.other_block, stolen }
    }

    /// The demand that is due within `t` and begins before `s`: work of jobs, switches back, the block.
    pub(super) fn parts(&self, t: u64, s: u64) -> (u128, u128, u64) {
        let (mut work, mut messages, mut inner, mut block) = (0u128, 0u128, 0u128, self.other_block);
        for (job, count) in &self.jobs {
            match job.due(t) {
                0 => block = block.max(job.block),
                due => {
                    let n = u128::from(due.min(job.begun(s))) * u128::from(*count);
                    work = work.saturating_add(n.saturating_mul(job.cost.into()));
                    messages = messages.saturating_add(n);
                    inner = inner.saturating_add(n.saturating_mul(job.inner.into()));
                }
            }
        }
        let back = if mutant::is_on(Mutant::NoSwitchBack) { 0 } else { messages.min(inner) };
        (work, back.saturating_mul(self.switch.into()), block)
    }
}

impl Demand for ProcessorTest {
    fn due(&self, t: u64, s: u64) -> u128 {
        let (work, back, block) = self.parts(t, s);
        work.saturating_add(back).saturating_add(block.into())
    }
    fn stolen(&self) -> &StolenTime {
        &self.stolen
    }
    fn tasks(&self) -> impl ExactSizeIterator<Item = (LongRunTask, u64)> {
        self.jobs.iter().map(|(job, count)| {
            // With its part of the switches back.
            let back = if self.per_message { 1 } else { job.inner };
            let cost = u128::from(job.cost).saturating_add(u128::from(self.switch).saturating_mul(back.into()));
            (LongRunTask { cost, interval: job.interval, deadline: job.deadline }, *count)
        })
    }
    fn blocks(&self) -> u128 {
        self.jobs.iter().map(|(job, _)| job.block).fold(self.other_block, u64::max).into()
    }
    fn set_deadline(&mut self, deadline: u64) {
        if let Some((job, _)) = self.jobs.last_mut() {
            job.deadline = deadline;
        }
    }
    fn least_possible(&self) -> u64 {
        self.jobs.last().map_or(1, |(job, _)| job.cost)
    }
}

/// A share in millionths, rounded up; saturates.
pub(super) fn parts_per_million(share: u128) -> u64 {
    u64::try_from(share.saturating_mul(1_000_000).div_ceil(ONE)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::walk::{StaircaseLine, Verdict, brute, walk};
    use super::*;
    use crate::platform::Platform;
    use alloc::vec;
    use proptest::prelude::*;

    /// A small system, with its costs taken apart as the formulas have them.
    #[derive(Clone, Debug)]
    struct ReferenceSystem {
        channels: Vec<(u64, u64, u64, u64)>, // interval, deadline, packets, cost of each packet
        quantum: u64,
        switch: u64,
        frames: u64,
        wake_up: u64,
        best_effort: u64,
        interference: (u64, u64, u64), // burst, period, cost
        link: (u64, u64, u64),         // C_l, max(L_min, C_l) − C_l, A
    }

    fn small() -> impl Strategy<Value = ReferenceSystem> {
        (
            prop::collection::vec((20u64..120, 1u64..150, 1u64..6, 0u64..6), 0..4),
            (1u64..4, 0u64..4, 0u64..3, 0u64..10, 0u64..5),
            (0u64..10, 10u64..40, 0u64..3),
            (0u64..4, 5u64..30, 0u64..20),
        )
            .prop_map(|(channels, (quantum, switch, frames, wake_up, best_effort), interference, link)| {
                ReferenceSystem { channels, quantum, switch, frames, wake_up, best_effort, interference, link }
            })
    }

    /// One that takes so long for a change of handler, and has so long a block that is no channel's.
    fn machine(switch: u64, other_block: u64) -> Machine {
        let mut machine = Machine::new(Platform::channels_table_2b(), false).unwrap();
        (machine.switch, machine.other_block) = (switch, other_block);
        machine
    }

    impl ReferenceSystem {
        fn block(&self, packets: u64, cost: u64) -> u64 {
            self.switch + packets.min(self.quantum) * cost + self.frames
        }
        fn fast(&self) -> ProcessorTest {
            let jobs = self.channels.iter().map(|&(interval, deadline, packets, cost)| {
                let inner = (packets - 1) / self.quantum;
                let whole = packets * cost + self.switch + (inner + 1) * self.frames;
                let block = self.block(packets, cost);
                Job {
                    interval,
                    deadline,
                    cost: whole,
                    inner,
                    block,
                    steps: StepCost { first: cost, other: cost },
                    packets,
                    last: 0,
                }
            });
            let mut jobs: Vec<Job> = jobs.collect();
            let newcomer = jobs.pop();
            let mut stolen = StaircaseLine::constant(self.interference.0 + self.link.0);
            stolen.add_term(self.interference.1, self.interference.2, 0);
            stolen.add_term(self.link.0 + self.link.1, self.link.0, self.link.2);
            let other = (self.wake_up + self.frames).max(self.block(self.best_effort, 3));
            ProcessorTest::new(&machine(self.switch, other), jobs, newcomer, StolenTime::new(stolen))
        }
        /// Message by message, instant by instant.
        fn slow(&self, last: u64) -> Verdict {
            let until = |t: u64| {
                let (mut work, mut messages, mut inner) = (0, 0, 0);
                let mut block = (self.wake_up + self.frames).max(self.block(self.best_effort, 3));
                for &(interval, deadline, packets, cost) in &self.channels {
                    let mut due = deadline;
                    while due <= t {
                        work += self.switch;
                        for packet in 1..=packets {
                            work += cost;
                            if packet == packets || packet % self.quantum == 0 {
                                work += self.frames;
                            }
                            if packet != packets && packet % self.quantum == 0 {
                                inner += 1;
                            }
                        }
                        messages += 1;
                        due += interval;
                    }
                    if deadline > t {
                        block = block.max(self.block(packets, cost));
                    }
                }
                work + self.switch * u64::min(messages, inner) + block
            };
            let stolen = |s: u64| {
                self.interference.0
                    + s.div_ceil(self.interference.1) * self.interference.2
                    + self.link.0 * ((s + self.link.2).div_ceil(self.link.0 + self.link.1) + 1)
            };
            let first = self.channels.iter().map(|channel| channel.1).min().unwrap_or(last + 1);
            brute::walk(until, stolen, first, last)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// 3,000 instants are many times the longest busy period of all but a few of these systems.
        #[test]
        fn the_walk_agrees_with_every_instant(system in small()) {
            match walk::walk(&system.fast(), true) {
                // So near full use that the walk may be given up.
                Verdict::TooLong => prop_assert!(system.fast().utilisation() >= ONE * 99 / 100),
                Verdict::Fits => prop_assert_eq!(system.slow(1500), Verdict::Fits),
                // One that is given up may have found a later failure only.
                Verdict::Fails(at) if system.fast().utilisation() >= ONE * 99 / 100 => {
                    prop_assert!(matches!(system.slow(at), Verdict::Fails(first) if first <= at));
                }
                Verdict::Fails(at) => prop_assert_eq!(system.slow(at), Verdict::Fails(at)),
            }
        }

        #[test]
        fn a_longer_deadline_never_turns_yes_into_no(mut system in small(), which in 0usize..4, longer in 1u64..100) {
            let before = walk(&system.fast(), false);
            if let Some(count) = core::num::NonZero::new(system.channels.len()) {
                system.channels[which % count].1 += longer;
            }
            prop_assert!(before != Verdict::Fits || walk(&system.fast(), false) == Verdict::Fits);
        }

        #[test]
        fn one_more_channel_never_helps(system in small(), more in (20u64..120, 1u64..150, 1u64..6, 0u64..6)) {
            let mut fuller = system.clone();
            fuller.channels.push(more);
            if walk(&fuller.fast(), false) == Verdict::Fits {
                prop_assert_eq!(walk(&system.fast(), false), Verdict::Fits);
            }
        }

        #[test]
        fn demand_never_falls(system in small()) {
            let test = system.fast();
            for t in 0..400 {
                prop_assert!(test.until(t) <= test.until(t + 1));
            }
        }

        #[test]
        fn order_does_not_matter(mut system in small()) {
            let before = walk(&system.fast(), true);
            system.channels.reverse();
            prop_assert_eq!(walk(&system.fast(), true), before);
        }
    }

    /// A message without inner preemption points is charged a switch back as well, as it may preempt others: 3 switches
    /// for 3 messages here, of which only one can be preempted. 5/21 + 6/33 + 11/32 + 3/21 + 3/33 + 3/32 > 1.
    #[test]
    fn switches_back_count_for_who_preempts() {
        let system = ReferenceSystem {
            channels: vec![(21, 26, 1, 2), (33, 18, 1, 3), (32, 126, 4, 2)],
            quantum: 1,
            switch: 3,
            frames: 0,
            wake_up: 0,
            best_effort: 0,
            interference: (0, 18, 0),
            link: (0, 5, 0),
        };
        assert_eq!(walk(&system.fast(), true), Verdict::TooLong);
        assert_eq!(system.slow(1500), Verdict::Fails(1310));
    }

    /// 16/50 + 14/37 + 2/39 + 3/12 = 0.9997: the walk from 60,000 instants on is given up before it comes to the first.
    #[test]
    fn a_walk_that_is_given_up_may_name_a_later_failure() {
        let system = ReferenceSystem {
            channels: vec![(50, 1, 5, 2), (37, 1, 4, 2)],
            quantum: 1,
            switch: 3,
            frames: 0,
            wake_up: 0,
            best_effort: 0,
            interference: (0, 39, 2),
            link: (3, 9, 0),
        };
        assert!(system.fast().utilisation() < ONE);
        assert!(matches!(walk(&system.fast(), true), Verdict::Fails(at) if at > 1));
        assert_eq!(system.slow(1500), Verdict::Fails(1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// The latest of all instants from each mark on, one by one.
        #[test]
        fn the_latest_is_the_latest_of_all(system in small()) {
            let test = system.fast();
            let mut marks: Vec<u64> = test.jobs.iter().map(|(job, _)| job.deadline).collect();
            marks.sort_unstable();
            marks.dedup();
            prop_assume!(test.utilisation() < ONE * 19 / 20 && !marks.is_empty());
            let done = |t: u64| (0u64..100_000).find(|&s| test.due(t, s) + test.stolen.within(s) <= u128::from(s)).unwrap();
            let found = walk::latest(&test, &marks).unwrap();
            for (mark, found) in marks.iter().zip(found) {
                let lateness = |t: u64| done(t) as i64 - t as i64;
                let naive = (*mark..*mark + 3000).map(lateness).max().unwrap();
                prop_assert_eq!(found.done as i64 - found.due as i64, naive, "{}", mark);
                prop_assert!(found.due >= *mark && done(found.due) == found.done);
            }
        }

        /// The least deadline of the last job, by trying all.
        #[test]
        fn the_least_deadline_is_the_first_that_fits(system in small()) {
            let mut test = system.fast();
            prop_assume!(test.utilisation() < ONE * 99 / 100 && !test.jobs.is_empty());
            const LONGEST: u64 = 400;
            let mut naive = None;
            for deadline in (1..=LONGEST).rev() {
                test.set_deadline(deadline);
                match walk(&test, false) {
                    Verdict::Fits => naive = Some(deadline),
                    Verdict::Fails(_) | Verdict::TooLong => break,
                }
            }
            prop_assert_eq!(walk::least_deadline(&mut test, LONGEST).ok(), naive);
        }
    }

    #[test]
    fn no_job_is_always_feasible() {
        let stolen = StolenTime::new(StaircaseLine::constant(u64::MAX));
        let test = ProcessorTest::new(&machine(1, u64::MAX), vec![], None, stolen);
        assert_eq!(walk(&test, true), Verdict::Fits);
    }
}
