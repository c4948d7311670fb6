//! Alternatives to cooperative preemption, to show its use [channels §5.3, Fig. 9]. For experiments only.

use super::{BEST_EFFORT_LEVEL, JobOrder};
use crate::units::Instant;

/// The points at which the running job may be replaced. Anything but [`Preemption::Cooperative`] is for the experiments of
/// `[channels Fig. 9]`: **it breaks the analysis**, so nothing that was admitted holds, and no live host sets it but that of
/// `laxity bench` (docs/adr, 16).
///
/// Meant for [`EarliestDeadline`](super::Policy::EarliestDeadline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preemption {
    /// After every P packets of a message and at its end: the only choice that the analysis knows.
    #[default]
    Cooperative,
    /// Fig. 9a: the best-effort handler runs on, whatever waits, until its queue is empty or its packet queue full.
    BestEffortRunsOn,
    /// Fig. 9b: a real-time handler is replaced only at the end of a message. Early messages, where they may run, come before
    /// best effort.
    MessageBoundary,
    /// Fig. 9b, at its worst: a real-time handler runs until its queue is empty, early messages included if they may run at
    /// all. Early messages come before best effort.
    Drain,
}

impl Preemption {
    /// True if a job of this order is not replaced even at the end of a message.
    pub(super) fn stays(self, now: Instant, order: &JobOrder) -> bool {
        match (self, *order) {
            (Self::BestEffortRunsOn, JobOrder::BestEffort) => true,
            (Self::Drain, JobOrder::RealTime { release, work_conserving, .. }) => work_conserving || release <= now,
            _ => false,
        }
    }

    /// True if a job of this order is not replaced before the end of a message.
    pub(super) fn takes_whole_messages(self, order: &JobOrder) -> bool {
        match self {
            Self::Cooperative => false,
            Self::BestEffortRunsOn => matches!(order, JobOrder::BestEffort),
            Self::MessageBoundary | Self::Drain => matches!(order, JobOrder::RealTime { .. }),
        }
    }

    /// The rank of early messages: after best effort, or just before it.
    pub(super) fn early_band(self) -> u8 {
        match self {
            Self::Cooperative | Self::BestEffortRunsOn => u8::MAX,
            Self::MessageBoundary | Self::Drain => BEST_EFFORT_LEVEL - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NextWork, Policy, Processor, RemainingWork};
    use super::*;

    const NOW: Instant = Instant::from_nanos(10);

    /// One packet between preemption points.
    const BEST_EFFORT: NextWork = NextWork { order: JobOrder::BestEffort, block: 1 };

    fn real_time(release: u64, deadline: u64) -> NextWork {
        let (release, deadline) = (Instant::from_nanos(release), Instant::from_nanos(deadline));
        NextWork { order: JobOrder::RealTime { release, deadline, priority: 0, work_conserving: true }, ..BEST_EFFORT }
    }

    fn processor(preemption: Preemption) -> Processor {
        let mut processor = Processor::new(Policy::EarliestDeadline, 4);
        processor.preemption = preemption;
        processor
    }

    /// The jobs that are picked after each of these, while all others wait.
    fn order(processor: &mut Processor, after: &[RemainingWork]) -> alloc::vec::Vec<u32> {
        let mut picked = alloc::vec![processor.pick(NOW).unwrap().id];
        for &after in after {
            processor.stepped(NOW, after);
            picked.push(processor.pick(NOW).unwrap().id);
        }
        picked
    }

    /// Handler 0 runs with `work`; then 1 becomes current with the earliest deadline.
    fn interrupted(preemption: Preemption, work: NextWork, after: &[RemainingWork]) -> alloc::vec::Vec<u32> {
        let mut processor = processor(preemption);
        processor.ready(NOW, 0, work);
        processor.pick(NOW);
        processor.ready(NOW, 1, real_time(0, 11));
        processor.stepped(NOW, RemainingWork::Same(work));
        order(&mut processor, after)
    }

    #[test]
    fn best_effort_runs_on_until_it_has_nothing_to_do() {
        let work = BEST_EFFORT;
        let after = [
            RemainingWork::Same(work),
            RemainingWork::Message(Some(work)),
            RemainingWork::Same(work),
            RemainingWork::Blocked,
        ];
        assert_eq!(interrupted(Preemption::BestEffortRunsOn, work, &after), [0, 0, 0, 0, 1]);
        assert_eq!(interrupted(Preemption::Cooperative, work, &[]), [1]);
        assert_eq!(interrupted(Preemption::Drain, work, &[]), [1]);
    }

    #[test]
    fn a_message_or_the_whole_queue_is_not_interrupted() {
        let work = real_time(0, 99);
        let after = [RemainingWork::Same(work), RemainingWork::Message(Some(work))];
        assert_eq!(interrupted(Preemption::MessageBoundary, work, &after), [0, 0, 1]);
        let early = real_time(500, 599);
        let after = [RemainingWork::Same(work), RemainingWork::Message(Some(early)), RemainingWork::Message(None)];
        assert_eq!(interrupted(Preemption::Drain, work, &after), [0, 0, 0, 1]);
        assert_eq!(interrupted(Preemption::BestEffortRunsOn, work, &[]), [1]);
    }

    #[test]
    fn early_messages_come_before_best_effort_where_the_figure_has_it_so() {
        for (preemption, expected) in [
            (Preemption::Cooperative, [2, 0, 1]),
            (Preemption::BestEffortRunsOn, [2, 0, 1]),
            (Preemption::MessageBoundary, [2, 1, 0]),
            (Preemption::Drain, [2, 1, 0]),
        ] {
            let mut processor = processor(preemption);
            processor.ready(NOW, 0, BEST_EFFORT);
            processor.ready(NOW, 1, real_time(50, 60));
            processor.ready(NOW, 2, real_time(0, 60));
            let after = [RemainingWork::Message(None); 2];
            assert_eq!(order(&mut processor, &after), expected, "{preemption:?}");
        }
    }
}
