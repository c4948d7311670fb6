//! The link scheduler: which packet goes next on a link, and when [channels §3.1, §4.2, Fig. 6].
//!
//! Multi-class, non-preemptive, earliest deadline first: packets that are current by deadline, then best effort first come
//! first served, then early packets within the horizon by logical arrival. Only the head of each channel's packet queue
//! stands here, so the cost grows with the active channels, not with the packets.
//!
//! Stock Linux tells when a packet was copied, not when it has left; so the link is paced by its model. The scheduler
//! hands packets over until the work that the link holds covers `look_ahead`, the least time that bridges a late wake-up
//! and the longest step; the analysis charges the packets handed over too early as blocking (remedy R2 of the analysis).
//!
//! In the analysis best effort is more than the application's messages: control frames as well. Both are policed together
//! ([`crate::send::starts`]) and both occupy the link as if they carried `packet_min` at least. Within that budget control
//! frames of the host's own channels come first, so that a saturating source cannot make a lease lapse; answers to
//! unknown peers take their turn among the best-effort channels, so that these cannot take the budget from either.
//! [`Starts`](crate::platform::Starts) must leave room for the keep-alives: [`crate::signal::KEEPALIVES_PER_LEASE`] frames of each
//! channel, or as many answers, in every lease.

use crate::collections::{DeadlineHeap, FifoSet};
use crate::limits::HELD_SPACING;
use crate::mutant::{self, Mutant};
use crate::platform::{BestEffort, LinkModel};
use crate::send::starts::StartPolicer;
use crate::units::{Duration, Instant};

/// What one link of an endpoint can do, and may.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// The time for which a packet occupies it.
    pub model: LinkModel,
    /// A: how much work the link is given ahead ([`crate::admission::Admission::look_ahead`]).
    pub look_ahead: Duration,
    /// The time before its logical arrival from which a packet may leave.
    pub horizon: Duration,
    /// The limits of best effort on it. They are enforced here, whatever channels are opened and whatever they send.
    ///
    /// - `message_packets`: a best-effort channel whose messages need more, in either direction, is refused.
    /// - `packet_max`: best-effort messages are cut into packets of at most that.
    /// - `packet_min`: a smaller best-effort packet, a control frame included, occupies the link like one of that size.
    /// - `starts`: best-effort packets and control frames are handed over no more often. Control frames of the host's own
    ///   channels come first; see [the module](self).
    pub best_effort: BestEffort,
}

/// The head of a channel's packet queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketHead {
    /// A real-time packet, which is early before `release`.
    RealTime {
        /// The logical arrival of its message.
        release: Instant,
        /// The deadline of its message.
        deadline: Instant,
    },
    /// A best-effort packet.
    BestEffort,
}

/// The next action of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextFrame {
    /// The head packet of this channel.
    Channel(u32),
    /// A control frame of a channel: ahead of best effort, behind everything current.
    Control,
    /// An answer to an unknown peer: one among the best-effort channels.
    Answer,
}

/// The class of a packet that was handed over, as the analysis sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketClass {
    /// A packet of a real-time channel, current or early.
    RealTime,
    /// A packet of a best-effort channel, or a control frame.
    BestEffort,
}

/// The queues of one link and the model of what it is doing.
pub struct LinkScheduler {
    config: LinkConfig,
    current: DeadlineHeap,
    best_effort: FifoSet,
    /// Best effort that waits for the time at which its receiver lets it start.
    held: DeadlineHeap,
    /// By channel: how far apart its receiver wants its packets to start, and when the next one may.
    apart: alloc::boxed::Box<[(Duration, Instant)]>,
    early: DeadlineHeap,
    /// Starts of best effort, control frames included.
    starts: StartPolicer,
    /// The place of the answers to unknown peers in `best_effort`, behind all channels.
    answers: u32,
    deadlines: alloc::boxed::Box<[Instant]>,
    /// The time until which the link is busy with its packets, by the model.
    pub busy_until: Instant,
    /// The number of packets that the device takes at the moment; for the caller to set.
    pub room: usize,
    /// While the executive is held: from when on the next packet of best effort, or control frame, may start.
    held_until: Option<Instant>,
}

impl LinkScheduler {
    /// Queues for the channels `0..capacity`.
    pub fn new(config: &LinkConfig, capacity: usize) -> Self {
        Self {
            config: *config,
            current: DeadlineHeap::with_capacity(capacity),
            best_effort: FifoSet::with_capacity(capacity + 1),
            held: DeadlineHeap::with_capacity(capacity),
            apart: alloc::vec![(Duration::ZERO, Instant::ZERO); capacity].into_boxed_slice(),
            early: DeadlineHeap::with_capacity(capacity),
            starts: StartPolicer::new(config.best_effort.starts),
            answers: u32::try_from(capacity).expect("a capacity within the limits"),
            deadlines: alloc::vec![Instant::MAX; capacity].into_boxed_slice(),
            busy_until: Instant::ZERO,
            room: 0,
            held_until: None,
        }
    }

    /// Sets the hold: while `held`, no early packet leaves, and starts of best effort are [`HELD_SPACING`] apart at least: then an upcall is ready.
    pub fn set_held(&mut self, now: Instant, held: bool) {
        self.held_until = held.then(|| self.held_until.unwrap_or(now));
    }

    /// From when on best effort may start.
    fn may_start_at(&self) -> Instant {
        self.starts.allowed_at().max(self.held_until.unwrap_or(Instant::ZERO))
    }

    /// True if a current real-time packet waits, as far as the queues know.
    pub fn has_current(&self, now: Instant) -> bool {
        !self.current.is_empty() || self.early.peek().is_some_and(|(release, _)| release <= now)
    }

    /// Puts the head packet of channel `id` in.
    pub fn enqueue(&mut self, now: Instant, id: u32, head: PacketHead) {
        match head {
            PacketHead::BestEffort => match self.apart[id as usize].1 {
                from if from > now => self.held.set(id, from),
                _ => self.best_effort.push_back(0, id),
            },
            PacketHead::RealTime { release, deadline } if release > now => {
                self.deadlines[id as usize] = deadline;
                self.early.set(id, release);
            }
            PacketHead::RealTime { deadline, .. } => self.current.set(id, deadline),
        }
    }

    /// Sets the spacing: from `now` on the best-effort packets of channel `id` start `spacing` apart, or as soon as they can if that is zero.
    pub fn set_spacing(&mut self, now: Instant, id: u32, spacing: Duration) {
        self.apart[id as usize] = (spacing, now);
        if self.held.remove(id) {
            self.best_effort.push_back(0, id);
        }
    }

    /// Tells that an answer to an unknown peer waits, or another one after the last was handed over.
    pub fn enqueue_answer(&mut self) {
        self.best_effort.push_back(0, self.answers);
    }

    /// Takes channel `id` out.
    pub fn remove(&mut self, id: u32) {
        let _ = self.current.remove(id) || self.best_effort.remove(id) || self.early.remove(id) || self.held.remove(id);
    }

    /// Picks the packet that is handed over at `now` and takes it out of the queues; `None` if the link holds enough, has
    /// no room, or nothing is eligible: early packets leave only if `is_idle`, that is, the processor has nothing current to do.
    /// The caller reports it with [`LinkScheduler::issued`].
    pub fn next(&mut self, now: Instant, control_waits: bool, is_idle: impl FnOnce() -> bool) -> Option<NextFrame> {
        if self.room == 0 || self.holds_enough(now) {
            return None;
        }
        while let Some((_, id)) = self.early.pop_due(now) {
            self.current.set(id, self.deadlines[id as usize]);
        }
        let may_start = now >= self.may_start_at() && self.best_effort.first_list().is_some();
        let best_effort_first = mutant::is_on(Mutant::BestEffortFirst) && may_start;
        if !best_effort_first && let Some((_, id)) = self.current.pop() {
            return Some(NextFrame::Channel(id));
        }
        if now >= self.may_start_at() {
            if control_waits {
                return Some(NextFrame::Control);
            }
            while let Some((_, id)) = self.held.pop_due(now) {
                self.best_effort.push_back(0, id);
            }
            if let Some(id) = self.best_effort.pop_front(0) {
                if id == self.answers {
                    return Some(NextFrame::Answer);
                }
                let (spacing, from) = &mut self.apart[id as usize];
                *from = now + *spacing;
                return Some(NextFrame::Channel(id));
            }
        }
        if self.held_until.is_some() || self.early.is_empty() || !is_idle() {
            return None;
        }
        self.early.pop_due(now + self.config.horizon).map(|(_, id)| NextFrame::Channel(id))
    }

    /// Notes that a packet with `payload` bytes was handed over at `now`; returns when its transmission ends by the model. The next one
    /// starts later where packets are spaced ([`LinkModel::spacing`]), if this host `promises` anything. While it does not, packets start as
    /// soon as the link takes them. At the first promise the link holds less than A and a packet, as it does from then on.
    pub fn issued(&mut self, now: Instant, class: PacketClass, payload: u32, promises: bool) -> Instant {
        let payload = match class {
            PacketClass::RealTime => payload,
            PacketClass::BestEffort => {
                self.starts.started(now);
                self.held_until = self.held_until.map(|_| now + HELD_SPACING);
                payload.max(self.config.best_effort.packet_min)
            }
        };
        let unspaced = self.config.model.unspaced();
        let model = if promises { self.config.model } else { unspaced };
        let begins = self.busy_until.max(now);
        self.busy_until = begins + model.occupancy(payload);
        self.room = self.room.saturating_sub(1);
        begins + unspaced.occupancy(payload)
    }

    /// The time at which [`LinkScheduler::next`] may have a packet that it does not have now; `None` if only an input can change that.
    pub fn next_time(&self, control_waits: bool) -> Option<Instant> {
        if self.room == 0 {
            return None;
        }
        let free = self.busy_until.before(self.config.look_ahead) + Duration::from_nanos(1);
        if !self.current.is_empty() {
            return Some(free);
        }
        let held = self.held.peek().map(|(at, _)| at);
        let now_or_held = if control_waits || !self.best_effort.is_empty() { Some(Instant::ZERO) } else { held };
        let best_effort = now_or_held.map(|at| at.max(self.may_start_at()));
        let horizon = if self.held_until.is_some() { Duration::ZERO } else { self.config.horizon };
        let early = self.early.peek().map(|(release, _)| release.before(horizon));
        best_effort.into_iter().chain(early).min().map(|at| at.max(free))
    }

    /// "Issue until the work handed over is at least A": enough is `busy_until − now ≥ A`. An unpaced link never has.
    fn holds_enough(&self, now: Instant) -> bool {
        self.busy_until > now && self.busy_until.since(now) >= self.config.look_ahead
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::platform::Starts;
    use crate::units::Rate;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }
    fn link(look_ahead: u64, horizon: u64) -> LinkScheduler {
        link_with(look_ahead, horizon, BestEffort::UNLIMITED)
    }
    fn link_with(look_ahead: u64, horizon: u64, best_effort: BestEffort) -> LinkScheduler {
        // One byte per nanosecond and no set-up: a packet of n bytes occupies the link for n ns.
        let model = LinkModel { rate: Rate::bytes_per_second(1_000_000_000), ..LinkModel::UNLIMITED };
        let (look_ahead, horizon) = (Duration::from_nanos(look_ahead), Duration::from_nanos(horizon));
        let mut link = LinkScheduler::new(&LinkConfig { model, look_ahead, horizon, best_effort }, 8);
        link.room = usize::MAX;
        link
    }
    fn current(deadline: u64) -> PacketHead {
        PacketHead::RealTime { release: at(0), deadline: at(deadline) }
    }

    #[test]
    fn classes_leave_in_order_and_early_packets_wait_for_the_horizon() {
        let mut link = link(1000, 10);
        link.enqueue(at(0), 0, PacketHead::RealTime { release: at(30), deadline: at(40) });
        link.enqueue(at(0), 1, PacketHead::BestEffort);
        link.enqueue(at(0), 2, current(90));
        link.enqueue(at(0), 3, current(80));
        let mut order = Vec::new();
        while let Some(next) = link.next(at(0), order.len() == 2, || true) {
            order.push(next);
            link.issued(at(0), PacketClass::RealTime, 1, false);
        }
        assert_eq!(order, [NextFrame::Channel(3), NextFrame::Channel(2), NextFrame::Control, NextFrame::Channel(1)]);
        assert_eq!(link.next_time(false), Some(at(20)), "30 less the horizon of 10");
        assert_eq!(link.next(at(20), false, || false), None, "the processor has something current to do");
        assert_eq!(link.next(at(20), false, || true), Some(NextFrame::Channel(0)));
        link.enqueue(at(20), 0, current(50));
        assert_eq!(
            link.next(at(20), false, || false),
            Some(NextFrame::Channel(0)),
            "what is current asks for no leave"
        );
    }

    #[test]
    fn the_link_is_fed_until_it_holds_the_look_ahead_and_no_further() {
        let mut link = link(100, 0);
        for id in 0..4 {
            link.enqueue(at(0), id, current(u64::from(id)));
        }
        let mut issued = Vec::new();
        while let Some(NextFrame::Channel(id)) = link.next(at(0), false, || true) {
            issued.push((id, link.issued(at(0), PacketClass::RealTime, 60, false).as_nanos()));
        }
        assert_eq!(issued, [(0, 60), (1, 120)], "120 ns of work cover 100");
        assert_eq!(link.next_time(false), Some(at(21)), "at 21 ns it holds only 99");
        assert_eq!(link.next(at(20), false, || true), None);
        assert_eq!(link.next(at(21), false, || true), Some(NextFrame::Channel(2)));
    }

    #[test]
    fn without_room_nothing_leaves_and_no_time_helps() {
        let mut link = link(100, 0);
        link.room = 0;
        link.enqueue(at(0), 0, current(5));
        assert_eq!((link.next(at(0), false, || true), link.next_time(false)), (None, None));
    }

    #[test]
    fn policed_best_effort_waits_and_real_time_does_not() {
        let starts = Some(Starts { burst: 1, spacing: Duration::from_nanos(50) });
        let mut link = link_with(1000, 0, BestEffort { starts, ..BestEffort::UNLIMITED });
        for id in [0, 1, 2] {
            link.enqueue(at(0), id, PacketHead::BestEffort);
        }
        // Two at once: burst + ⌈s/spacing⌉ of the shortest span. Control frames come first, and count.
        assert_eq!(link.next(at(0), true, || true), Some(NextFrame::Control));
        link.issued(at(0), PacketClass::BestEffort, 1, false);
        assert_eq!(link.next(at(0), false, || true), Some(NextFrame::Channel(0)));
        link.issued(at(0), PacketClass::BestEffort, 1, false);
        assert_eq!((link.next(at(0), true, || true), link.next_time(true)), (None, Some(at(50))));
        // What is early goes on, current packets do, and neither takes from the budget.
        link.enqueue(at(0), 3, PacketHead::RealTime { release: at(20), deadline: at(90) });
        assert_eq!(link.next_time(true), Some(at(20)), "the early packet is next");
        assert_eq!(link.next(at(20), true, || true), Some(NextFrame::Channel(3)));
        link.issued(at(20), PacketClass::RealTime, 1, false);
        link.enqueue(at(30), 4, current(70));
        assert_eq!(link.next(at(30), true, || true), Some(NextFrame::Channel(4)));
        link.issued(at(30), PacketClass::RealTime, 1, false);
        assert_eq!((link.next(at(49), false, || true), link.next_time(false)), (None, Some(at(50))));
        assert_eq!(link.next(at(50), false, || true), Some(NextFrame::Channel(1)));
    }

    #[test]
    fn answers_to_unknown_peers_take_turns_with_best_effort() {
        let mut link = link(1000, 0);
        link.enqueue(at(0), 0, PacketHead::BestEffort);
        link.enqueue_answer();
        link.enqueue(at(0), 1, PacketHead::BestEffort);
        let mut order = Vec::new();
        while let Some(next) = link.next(at(0), order.is_empty(), || true) {
            link.issued(at(0), PacketClass::BestEffort, 1, false);
            if next == NextFrame::Answer && order.len() < 5 {
                link.enqueue_answer();
            }
            order.push(next);
        }
        use NextFrame::{Answer, Channel, Control};
        assert_eq!(order, [Control, Channel(0), Answer, Channel(1), Answer, Answer]);
    }

    #[test]
    fn a_best_effort_packet_occupies_the_link_like_the_smallest_that_was_declared() {
        let mut link = link_with(1000, 0, BestEffort { packet_min: 60, ..BestEffort::UNLIMITED });
        assert_eq!(link.issued(at(0), PacketClass::BestEffort, 0, false), at(60), "an empty control frame, too");
        assert_eq!(link.issued(at(0), PacketClass::BestEffort, 70, false), at(130));
        assert_eq!(link.issued(at(0), PacketClass::RealTime, 1, false), at(131), "real time has its own declaration");
    }

    /// A naive link with policed best effort: all hand-overs so far, and the waiting packets.
    #[derive(Default)]
    struct NaiveLink {
        starts: Vec<u64>,
        current: Vec<(u64, u32)>,
        best_effort: Vec<u32>,
        early: Vec<(u64, u64, u32)>,
        control: u32,
    }

    impl NaiveLink {
        fn next(&mut self, now: u64, starts: Starts) -> Option<NextFrame> {
            let (due, early): (Vec<_>, Vec<_>) = self.early.iter().partition(|(release, ..)| *release <= now);
            self.early = early;
            self.current.extend(due.into_iter().map(|(_, deadline, id)| (deadline, id)));
            self.current.sort_unstable();
            if !self.current.is_empty() {
                return Some(NextFrame::Channel(self.current.remove(0).1));
            }
            // The definition: every half-open span that ends with this start.
            let allowed = self.starts.iter().rev().zip(2..).all(|(&first, count): (_, u64)| {
                count <= u64::from(starts.burst) + (now - first + 1).div_ceil(starts.spacing.as_nanos())
            });
            if !allowed || (self.control == 0 && self.best_effort.is_empty()) {
                return None;
            }
            self.starts.push(now);
            if self.control > 0 {
                self.control -= 1;
                return Some(NextFrame::Control);
            }
            Some(NextFrame::Channel(self.best_effort.remove(0)))
        }
    }

    proptest! {
        /// The policed link against the definition, nanosecond by nanosecond: it hands over what the definition hands over,
        /// at the same instants; and it never says that it has nothing to do before an instant at which it has.
        #[test]
        fn policed_starts_are_those_of_the_definition(
            burst in 1u32..4,
            spacing in 1u64..9,
            arrivals in prop::collection::vec((1u64..120, 0u8..4, 0u64..30), 1..60),
        ) {
            let starts = Starts { burst, spacing: Duration::from_nanos(spacing) };
            // A look-ahead without end: the link never holds enough, only the policer holds back.
            let mut link = link_with(u64::MAX, 0, BestEffort { starts: Some(starts), ..BestEffort::UNLIMITED });
            let (mut naive, mut control) = (NaiveLink::default(), 0u32);
            let mut free: Vec<u32> = (0..8).collect();
            for now in 0..200 {
                for &(_, class, span) in arrivals.iter().filter(|(arrival, ..)| *arrival == now) {
                    if class == 3 {
                        control += 1;
                        naive.control += 1;
                        continue;
                    }
                    let Some(id) = free.pop() else { continue };
                    // No two are equal, so that there is one order.
                    let deadline = 1000 + 8 * span + u64::from(id);
                    match class {
                        0 => {
                            link.enqueue(at(now), id, PacketHead::RealTime { release: at(now), deadline: at(deadline) });
                            naive.current.push((deadline, id));
                        }
                        1 => {
                            let release = now + span + 1;
                            let head = PacketHead::RealTime { release: at(release), deadline: at(deadline) };
                            link.enqueue(at(now), id, head);
                            naive.early.push((release, deadline, id));
                        }
                        _ => {
                            link.enqueue(at(now), id, PacketHead::BestEffort);
                            naive.best_effort.push(id);
                        }
                    }
                }
                let promised = link.next_time(control > 0);
                let mut handed_over = 0;
                loop {
                    let best_effort = naive.starts.len();
                    let (expected, found) = (naive.next(now, starts), link.next(at(now), control > 0, || true));
                    prop_assert_eq!(expected, found, "at {}", now);
                    if let Some(NextFrame::Channel(id)) = found {
                        free.push(id);
                    }
                    let Some(found) = found else { break };
                    control -= u32::from(found == NextFrame::Control);
                    let class = if naive.starts.len() > best_effort { PacketClass::BestEffort } else { PacketClass::RealTime };
                    link.issued(at(now), class, 0, false);
                    handed_over += 1;
                }
                let due = promised.is_some_and(|promised| promised <= at(now));
                prop_assert_eq!(due, handed_over > 0, "promised {:?} at {}", promised, now);
            }
        }
    }

    proptest! {
        /// The queues against a sorted list: whatever comes in, the next packet is the first by (class, key, arrival).
        #[test]
        fn packets_leave_as_from_a_sorted_list(packets in prop::collection::vec((0u8..3, 0u64..50), 1..8)) {
            let mut link = link(u64::MAX, u64::MAX);
            let mut model = Vec::new();
            for (id, &(class, key)) in packets.iter().enumerate() {
                let id = id as u32;
                let (head, rank) = match class {
                    0 => (current(key), (0, key, id)),
                    1 => (PacketHead::BestEffort, (1, u64::from(id), id)),
                    _ => (PacketHead::RealTime { release: at(key + 1), deadline: at(key + 9) }, (2, key + 1, id)),
                };
                link.enqueue(at(0), id, head);
                model.push(rank);
            }
            model.sort_unstable();
            for (_, _, id) in model {
                prop_assert_eq!(link.next(at(0), false, || true), Some(NextFrame::Channel(id)));
                link.issued(at(0), PacketClass::RealTime, 1, false);
            }
            prop_assert_eq!(link.next(at(0), false, || true), None);
        }
    }
}
