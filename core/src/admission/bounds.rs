//! The worst case of each channel with those that are admitted now: response bounds, stage by stage.
//!
//! After Spuri 1996 (analysis of deadline scheduled real-time systems): what is due at t in a busy period of a resource is done
//! by `h(t) = FIX(due(t, s), J)`, due(t, s) being what is due within t and begins before s. So a channel's message, which is
//! due at some `t ≥ d_i`, is done by its deadline plus `max over t ≥ d_i of h(t) − t`, mostly less than nothing.
//!
//! **Split rule.** `R_cpu,i` is that for the processor. Then packet k is enqueued by `l + R_cpu,i − (N − k) C_p`, earlier than the
//! link's test counts on, so on the link it has until `d_cpu + d_link − R_cpu` from then: the link's bound is computed for
//! these deadlines. A packet that is enqueued before s belongs to a message released before s, and after −R_cpu: that is the
//! jitter. **Composite rule.** The composite demand until t, for the message's deadline.
//!
//! A receiving host counts from the message's logical arrival there, which is when its sender's stages end at the latest.
//! If a bound would take too long to compute, it is the sum of the stages' deadlines, which hold in any case.

use alloc::vec;
use alloc::vec::Vec;

use super::answer::{Bound, BoundTerm, Rule};
use super::link::{LinkTest, PacketStream};
use super::processor::{Job, ProcessorTest};
use super::reserve::{Admission, Reservation, ReservationId, nanos};
use super::walk::{Demand, LatenessWalk, latest};
use crate::units::Duration;

/// The names of terms, in the order in which they are shown.
pub mod terms {
    /// From `send()` until the executive has the message.
    pub const HANDOVER: &str = "handover";
    /// H: making (or reassembling) the message's packets.
    pub const PROCESSING: &str = "processing";
    /// C_csp of the message and of handlers that go on after others.
    pub const SWITCHING: &str = "switching";
    /// R: frames found at the preemption points.
    pub const INPUT_POLLS: &str = "input_polls";
    /// Messages due earlier on the processor.
    pub const PROCESSOR_OTHERS: &str = "processor_others";
    /// A quantum that cannot be preempted, or waking up.
    pub const PROCESSOR_BLOCKING: &str = "processor_blocking";
    /// C_l: handing packets to the link meanwhile.
    pub const LINK_SERVICE: &str = "link_service";
    /// The processor time that the platform takes.
    pub const PROCESSOR_INTERFERENCE: &str = "processor_interference";
    /// The message's own packets on the link.
    pub const TRANSMISSION: &str = "transmission";
    /// Packets due earlier on the link.
    pub const LINK_OTHERS: &str = "link_others";
    /// A packet that is on the link already.
    pub const LINK_BLOCKING: &str = "link_blocking";
    /// C_l + A: what the link was given ahead.
    pub const LOOK_AHEAD: &str = "look_ahead";
    /// F: packets of other programs of this host that a guard lets through.
    pub const FOREIGN: &str = "foreign";
    /// The time that the platform takes while the link waits to be served.
    pub const LINK_INTERFERENCE: &str = "link_interference";
    /// K: the message on whichever resource takes longer, packet by packet.
    pub const OWN_MESSAGE: &str = "own_message";
    /// Messages due earlier, on whichever resource takes longer.
    pub const OTHERS: &str = "others";
    /// The time that the platform takes.
    pub const INTERFERENCE: &str = "interference";
    /// The way between two hosts, and how far apart their clocks are.
    pub const WAY: &str = "way";
    /// Until the receiver looks at its link.
    pub const LOOK: &str = "look";
    /// Waiting at the last switch port, and for looks beyond the first.
    pub const ARRIVAL: &str = "arrival";
    /// The processor's stage as a whole, where its parts were not looked for; of both ends the sender's.
    pub const PROCESSOR_STAGE: &str = "processor_stage";
    /// The receiver's stage as a whole, likewise.
    pub const RECEIVE_STAGE: &str = "receive_stage";
    /// The link's stage as a whole.
    pub const LINK_STAGE: &str = "link_stage";
}

/// Addends in the order in which they are shown: the message's own time, `overheads` of it, and what others take. What it waits less, because it came
/// later or because the test knows better, is taken off what others take first, and off its own time last.
fn addends<const N: usize>(mut parts: [(&'static str, u128); N], overheads: usize, mut less: u128) -> Vec<BoundTerm> {
    let (own, others) = parts.split_at_mut(1 + overheads);
    let (own, overheads) = own.split_at_mut(1);
    for (_, amount) in others.iter_mut().chain(overheads).chain(own) {
        let off = less.min(*amount);
        (*amount, less) = (*amount - off, less - off);
    }
    // A host without a guard has no foreign packets.
    let shown = parts.into_iter().filter(|(name, amount)| *name != terms::FOREIGN || *amount > 0);
    shown.map(|(name, amount)| term(name, nanos(u64::try_from(amount).unwrap_or(u64::MAX)))).collect()
}

fn term(name: &'static str, amount: Duration) -> BoundTerm {
    BoundTerm { name, amount }
}

/// The deadlines in their order, and for each what is latest from there on.
fn latest_by(test: &impl Demand, mut marks: Vec<u64>) -> Option<Vec<(u64, LatenessWalk)>> {
    marks.sort_unstable();
    marks.dedup();
    let found = latest(test, &marks)?;
    Some(marks.into_iter().zip(found).collect())
}

fn at(found: Option<&Vec<(u64, LatenessWalk)>>, deadline: u64) -> Option<LatenessWalk> {
    let found = found?;
    found.binary_search_by_key(&deadline, |(mark, _)| *mark).ok().map(|place| found[place].1)
}

/// `d + h(t) − t`, at most d: what was tested.
fn response(deadline: u64, worst: &LatenessWalk) -> u64 {
    let late = i128::from(worst.done) - i128::from(worst.due);
    u64::try_from(i128::from(deadline) + late).unwrap_or(0).min(deadline)
}

impl Admission {
    /// The bound of every channel that is admitted.
    ///
    /// The work grows with the square of the number of different channels; beyond some thousands the bounds are the stages'
    /// deadlines.
    pub fn bounds(&self) -> Vec<(ReservationId, Bound)> {
        match self.settings().rule {
            Rule::Split | Rule::Levels => self.split_bounds(),
            Rule::Composite => self.composite_bounds(),
        }
    }

    fn split_bounds(&self) -> Vec<(ReservationId, Bound)> {
        let by_level = if self.settings().rule == Rule::Levels { self.responses_by_level(None) } else { Vec::new() };
        let test = self.processor_test(None);
        let jobs = self.reservations().filter_map(|held| held.job);
        let on_processor = latest_by(&test, jobs.map(|job| job.deadline).collect());
        let by_processor = |held: &Reservation| {
            if self.settings().rule == Rule::Levels {
                let of_level = by_level.iter().find(|(other, _)| core::ptr::eq(*other, held));
                return of_level.and_then(|(_, response)| *response).unwrap_or(held.deadlines().0);
            }
            held.job.map_or(0, |job| {
                at(on_processor.as_ref(), job.deadline).map_or(job.deadline, |worst| response(job.deadline, &worst))
            })
        };
        let moved = |held: &Reservation| {
            let stream = held.stream?;
            let jitter = by_processor(held);
            let whole = held.job.map_or(0, |job| job.deadline).saturating_add(stream.deadline);
            Some(PacketStream { deadline: whole - jitter, jitter, ..stream })
        };
        let streams: Vec<PacketStream> = self.reservations().filter_map(moved).collect();
        let on_link = streams.iter().map(PacketStream::due).collect();
        let (link, foreign) = (LinkTest::new(&self.machine, streams, None), self.platform().foreign.as_nanos());
        let on_link = latest_by(&link, on_link);
        let bound = |held: &Reservation| {
            let handover = held.handover;
            let mut all = vec![term(terms::HANDOVER, handover)];
            if let Some(job) = held.job {
                match at(on_processor.as_ref(), job.deadline) {
                    _ if self.settings().rule == Rule::Levels => {
                        all.push(term(terms::PROCESSOR_STAGE, nanos(by_processor(held))));
                    }
                    Some(worst) => all.extend(self.processor_terms(&test, &job, &worst)),
                    None => all.push(term(terms::PROCESSOR_STAGE, nanos(job.deadline))),
                }
            }
            if let Some(stream) = moved(held) {
                match at(on_link.as_ref(), stream.due()) {
                    Some(worst) => all.extend(link_terms(&link, &stream, &worst, foreign)),
                    None => all.push(term(terms::LINK_STAGE, nanos(stream.deadline))),
                }
            }
            let worst = all.iter().map(|term| term.amount).sum();
            Bound { worst, terms: all }
        };
        self.channels.iter().map(|(id, held)| (id, bound(held))).collect()
    }

    fn processor_terms(&self, test: &ProcessorTest, job: &Job, worst: &LatenessWalk) -> Vec<BoundTerm> {
        let (work, back, block) = test.parts(worst.due, worst.done);
        let switch = u128::from(self.machine.switch);
        let overhead = u128::from(job.cost - job.processing());
        let interference = self.machine.processor_interference().within(worst.done);
        let taken = test.stolen().within(worst.done);
        let parts = [
            (terms::PROCESSING, job.processing().into()),
            (terms::SWITCHING, switch.min(overhead) + back),
            (terms::INPUT_POLLS, overhead.saturating_sub(switch)),
            (terms::PROCESSOR_OTHERS, work.saturating_sub(job.cost.into())),
            (terms::PROCESSOR_BLOCKING, block.into()),
            (terms::LINK_SERVICE, taken.saturating_sub(interference)),
            (terms::PROCESSOR_INTERFERENCE, interference.min(taken)),
        ];
        addends(parts, 2, u128::from(worst.done - response(job.deadline, worst)))
    }

    fn composite_bounds(&self) -> Vec<(ReservationId, Bound)> {
        let deadline_of = |held: &Reservation| {
            held.job.map(|job| job.deadline).or(held.stream.map(|stream| stream.deadline)).unwrap_or(0)
        };
        let test = self.composite_test(&self.machine, None);
        let found = test.as_ref().and_then(|test| latest_by(test, self.reservations().map(deadline_of).collect()));
        let costs = test.as_ref().map_or(&[][..], |test| &test.costs);
        let foreign = self.platform().foreign.as_nanos();
        let bound = |place: usize, held: &Reservation| {
            let deadline = deadline_of(held);
            let mut all = vec![term(terms::HANDOVER, held.handover)];
            match (&test, at(found.as_ref(), deadline).filter(|worst| worst.done <= worst.due)) {
                (Some(test), Some(worst)) => {
                    let (work, block, packet, constant) = test.parts(worst.due, worst.done);
                    let own = u128::from(costs[place]);
                    let interference = test.stolen().within(worst.done);
                    let parts = [
                        (terms::OWN_MESSAGE, own),
                        (terms::OTHERS, work.saturating_sub(own)),
                        (terms::PROCESSOR_BLOCKING, block.into()),
                        (terms::LINK_BLOCKING, packet.into()),
                        (terms::LOOK_AHEAD, (constant - foreign).into()),
                        (terms::FOREIGN, foreign.into()),
                        (terms::INTERFERENCE, interference),
                    ];
                    all.extend(addends(parts, 0, u128::from(worst.done - response(deadline, &worst))));
                }
                _ => all.push(term(terms::PROCESSOR_STAGE, nanos(deadline))),
            }
            Bound { worst: all.iter().map(|term| term.amount).sum(), terms: all }
        };
        self.channels.iter().enumerate().map(|(place, (id, held))| (id, bound(place, held))).collect()
    }
}

fn link_terms(link: &LinkTest, stream: &PacketStream, worst: &LatenessWalk, foreign: u64) -> Vec<BoundTerm> {
    let (work, block) = link.parts(worst.due, worst.done);
    let own = stream.until(worst.due).min(stream.whole() - u128::from(stream.spare)).min(work);
    let parts = [
        (terms::TRANSMISSION, own),
        (terms::LINK_OTHERS, work - own),
        (terms::LINK_BLOCKING, block.into()),
        (terms::LOOK_AHEAD, (link.ahead - foreign).into()),
        (terms::FOREIGN, foreign.into()),
        (terms::LINK_INTERFERENCE, link.stolen().within(worst.done).saturating_add(stream.late.into())),
    ];
    let all = worst.done.saturating_add(stream.late);
    addends(parts, 0, u128::from(all - response(stream.deadline, worst)))
}
