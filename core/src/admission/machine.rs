//! The executive as the analysis sees it.
//!
//! One thread owns one processor and one link. It makes packets (*steps*), polls the link, polls its inputs, sleeps. The
//! run time keeps what is assumed here; the analysis is worth what they are:
//!
//! - **A1** Costs do not exceed the platform's, and in any window s the platform takes at most Intf(s) away.
//! - **A2** Handlers, sending and receiving ones, real-time and best-effort ones, yield after every P packets of the current
//!   message and at its end. A message of N packets has q = ⌊(N − 1)/P⌋ inner preemption points, and one at its end.
//!   Handlers are chosen by class (current by deadline, best effort, early), a change costs C_csp, and on equal deadlines
//!   the running handler keeps the processor.
//! - **A3** Between preemption points no handler is chosen anew: `block(N) = C^1st + (min(N, P) − 1) C`, and at least `P·C` if
//!   N > P, because a quantum inside a message may be the longer one when C^1st < C. Best effort sends and receives
//!   messages of at most `best_effort.message_packets`.
//! - **A4** Inputs are polled once at every preemption point and once on waking, before anything else is chosen; a poll takes
//!   at most K frames of C_d each: R = K·C_d. C_d includes what is done about a control frame. So a message is charged
//!   (q + 1) R, a blocker its own R, and a wake-up R. With nothing to do the executive sleeps and wakes up to W late.
//! - **A5** The link is polled after every k-th step (k = `transmit_batch`), on waking, and when the work handed over has
//!   fallen below A and the executive is idle. A poll hands packets over, one by one, C_l each, the earliest deadline
//!   of the most urgent class first, until the link has at least A of work before it or no packet waits. An early packet is handed over only if
//!   no job is current when the poll begins.
//! - **A6** The link transmits what it was handed in order, a payload of s bytes in L_x(s); the model is enforced by pacing.
//! - **A7** No packet is smaller than declared: L_min is L_x of the smallest payload that any channel may send between its
//!   `min_message` and its `max_message`, and of `best_effort.packet_min`. Control frames are sent as best effort and always
//!   may come; every packet of that class occupies the link like one of `packet_min` bytes at least, and like one of
//!   `packet_max` or of the largest control frame at most.
//! - **A8** A message is released at its logical arrival [channels §2.2], or served early in the least class.
//!
//! **Look-ahead.** Between two polls of the link lie at most `E = k (C_csp + R + step)`, `step` being the dearest packet to
//! make or take: with messages of one packet each of the k steps may have its own switch and its own poll of the inputs. One of
//! them may be an iteration of an upcall on this thread, or a step with a handler of the application's, which is no longer
//! ([`Platform::longest_handler`]): behind either the link is polled in any case.
//! Or a sleep: `W' = W + R`. During the next C_l the link needs work too, so
//!
//! ```text
//! A = max(E, W') + C_l + 1 ns
//! ```
//!
//! which depends on the platform only: the link scheduler uses it from the start. One tick less is too little.
//!
//! **Foreign traffic.** Packets of other programs of this host may be in the device before ours. With a guard they keep a packet from the wire
//! for F longer than the model says ([`Platform::foreign`](crate::platform::Platform::foreign)), at any time and in all: it adds to what
//! the link was given ahead, once.
//!
//! **The link's tax** on the processor, beside Intf(s), is the least of three, each of which holds by itself: what follows from
//! the link (a packet starts when the one before it is through), what follows from those who send (only if best effort is
//! policed, or there is none), and what follows from the link for packets no shorter than best effort's, L_be, and from the
//! senders for shorter ones, of which a message has one at most, its last:
//!
//! ```text
//! C_l (⌈(s + A)/max(L_min, C_l)⌉ + 1)
//! C_l (b + ⌈(s + A)/sp⌉ + Σ N_i ⌈(s + D_i)/I_i⌉)
//! C_l (⌈(s + A)/L_be⌉ + 2) + Σ ⌈(s + D_i)/I_i⌉ ⌈C_l (L_be − L_min,i)^+ / L_be⌉
//! ```
//!
//! The first and the third: of n hand-overs in s, all but the last found less than A of work before the last, so
//! `Σ_{i<n} L_i < s + A`. If m of them are shorter by δ_i, `(n − 1) L_be < s + A + Σ m_i δ_i`; one more may be under way.
//! The second: there are at most `b + ⌈s/sp⌉` best-effort starts in any s, each counted when it was decided, which is a poll of
//! the link before its C_l has passed, and so less than A. D_i is how long before its packets are through a message may have
//! been released: its deadline. If messages are sent early, what is early is handed over only while the processor has nothing current to do
//! (A5), so a busy period has no more of that than one poll that had begun before: `C_l (⌈A/L⌉ + 1)` more in the second and the third, L being the least of the channels' own packets; nothing where no channel sends.
//!
//! **The papers' machine** differs in this [channels §2.3, §3.1, option 1]. The adapter interrupts at the end of a transmission
//! (A5' instead of A5): C_l passes on the processor at interrupt level and the link idles meanwhile (inline), or it passes on
//! the adapter (offload). Inputs interrupt too, for C_d each (A4'). There are no control frames, no wake-ups, no polls: R = W
//! = A = 0. Its tax is inline the least of `C_l ⌈s/(L_min + C_l)⌉`, `C_l (b + ⌈s/sp⌉ + Σ N_i ⌈(s + D_i)/I_i⌉)` and
//! `C_l (⌈s/(L_be + C_l)⌉ + 1) + Σ ⌈(s + D_i)/I_i⌉ ⌈C_l (L_be − L_min,i)^+/(L_be + C_l)⌉`; nothing offload. Its adapter takes early packets at
//! any time, so there D_i is longer by as much as a queue can be ahead of its logical arrivals.

use alloc::vec::Vec;

use super::answer::Role;
use super::composite::Parts;
use super::link::PacketStream;
use super::processor::{Job, grouped};
use super::walk::{self, StaircaseLine, StolenTime};
use super::{Code, Refusal, Stage};
use crate::contract::{self, Contract};
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::platform::{Interference, MachineModel, Platform, PlatformError, half};
use crate::units::Duration;
use crate::upcall::Upcall;

/// The cost of one packet: C^1st of the first of a message, and C of every other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepCost {
    pub(super) first: u64,
    pub(super) other: u64,
}

impl StepCost {
    /// H = C^1st + (N − 1) C.
    pub(super) fn message(self, packets: u64) -> u64 {
        self.first.saturating_add((packets - 1).saturating_mul(self.other))
    }
    /// block(N), see A3.
    fn block(self, packets: u64, quantum: u64) -> u64 {
        let first = self.message(packets.min(quantum));
        if packets > quantum && !mutant::is_on(Mutant::NoInnerQuantum) {
            first.max(quantum.saturating_mul(self.other))
        } else {
            first
        }
    }
}

/// The constants of the analysis, from the platform alone; nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) platform: Platform,
    /// True if messages may be sent on before their logical arrival.
    pub(super) early: bool,
    /// C_csp.
    pub(super) switch: u64,
    /// C_l.
    pub(super) link_cost: u64,
    /// A; zero on the papers' machine.
    pub(super) look_ahead: u64,
    /// The longest block of the processor that is no channel's: best effort, or waking up.
    pub(super) other_block: u64,
    /// The work that the link may hold when a packet is enqueued, beside the last packet that it was given: C_l + A + F.
    pub(super) ahead: u64,
    /// True if that last packet may be any channel's, false if only one that is due later.
    pub(super) all_block: bool,
    /// L of the largest packet that is no channel's.
    pub(super) other_largest: u64,
    /// L_x of the smallest packet that is no channel's.
    other_smallest: Option<u64>,
    /// True if a channel may have packets that occupy the link for less than that.
    may_be_shorter: bool,
    quantum: u64,
    /// R.
    frames: u64,
    sending: StepCost,
    receiving: StepCost,
}

impl Machine {
    pub(super) fn new(platform: Platform, early: bool) -> Result<Self, PlatformError> {
        platform.validate()?;
        let papers = platform.machine.is_papers();
        let switch = platform.change_of_handler().as_nanos();
        let link_cost = platform.link_cost.as_nanos();
        let frames = if papers || mutant::is_on(Mutant::NoLooks) { 0 } else { platform.look().as_nanos() };
        let quantum = u64::from(platform.quantum);
        let sending = StepCost { first: platform.first_packet.as_nanos(), other: platform.packet_cost.as_nanos() };
        let receiving =
            StepCost { first: platform.receive_first.as_nanos(), other: platform.receive_packet.as_nanos() };
        let step = sending.first.max(sending.other).max(receiving.first).max(receiving.other);
        let with_change = |step: u64| switch.saturating_add(frames).saturating_add(step);
        let upcall_step = if mutant::is_on(Mutant::NoUpcallStep) { 0 } else { platform.upcall_step.as_nanos() };
        let gap = with_change(step)
            .saturating_mul(u64::from(platform.transmit_batch) - 1)
            .saturating_add(with_change(step.max(upcall_step)));
        let gap = if mutant::is_on(Mutant::NoGap) { 0 } else { gap };
        let wake_up = if mutant::is_on(Mutant::NoWakeUp) { 0 } else { platform.wake_up.as_nanos() };
        let wake_up = if papers { 0 } else { wake_up.saturating_add(frames) };
        let block_switch = if mutant::is_on(Mutant::NoSwitchToBlocker) { 0 } else { switch };
        let be = platform.best_effort;
        let best_effort_block = match u64::from(be.message_packets) {
            0 => 0,
            packets => {
                let steps = sending.block(packets, quantum).max(receiving.block(packets, quantum));
                block_switch.saturating_add(steps).saturating_add(frames)
            }
        };
        let occupancy = |bytes| platform.link.occupancy(bytes).as_nanos();
        let best_effort = be.message_packets > 0;
        let other_smallest = (!papers || best_effort).then(|| occupancy(be.packet_min));
        let look_ahead = if papers { 0 } else { gap.max(wake_up).saturating_add(link_cost).saturating_add(1) };
        Ok(Self {
            early,
            switch,
            link_cost,
            look_ahead,
            other_block: best_effort_block.max(wake_up),
            ahead: if papers {
                0
            } else {
                link_cost.saturating_add(look_ahead).saturating_add(platform.foreign.as_nanos())
            },
            all_block: !papers,
            other_largest: match papers {
                _ if mutant::is_on(Mutant::NoLinkBlock) => 0,
                false => occupancy(be.packet_max.max(limits::MAX_CONTROL_PAYLOAD)),
                true if best_effort => link_cost.saturating_add(occupancy(be.packet_max)),
                true => 0,
            },
            other_smallest,
            may_be_shorter: other_smallest.is_some_and(|least| occupancy(1) < least),
            quantum,
            frames,
            sending,
            receiving,
            platform,
        })
    }

    /// Our machine without control frames: for the tests of L_min.
    #[cfg(test)]
    pub(super) fn without_control_frames(platform: Platform) -> Self {
        let mut machine = Self::new(platform, false).unwrap();
        let (be, link) = (machine.platform.best_effort, machine.platform.link);
        machine.other_smallest = (be.message_packets > 0).then(|| link.occupancy(be.packet_min).as_nanos());
        if be.message_packets == 0 {
            machine.other_largest = 0;
        }
        machine
    }

    /// Intf(s).
    pub(super) fn interference(&self) -> StolenTime {
        interference(&self.platform.interference)
    }

    /// The time that keeps the link from being served. On the executive without the burst: the processor's stage has it.
    pub(super) fn link_stolen(&self) -> StolenTime {
        match self.platform.machine {
            MachineModel::PapersOffload => StolenTime::default(),
            MachineModel::PapersInline => self.interference(),
            MachineModel::Executive => {
                interference(&Interference { burst: Duration::ZERO, ..self.platform.interference.clone() })
            }
        }
    }

    /// The longest time from a message's logical arrival until a packet that is passed on is enqueued, because there is no processor's stage that
    /// the burst could delay instead.
    fn passed_on_late(&self) -> u64 {
        if self.platform.machine.is_papers() { 0 } else { walk::span_of(&self.interference(), 0).unwrap_or(u64::MAX) }
    }

    /// J(s) of the processor without the link's tax.
    pub(super) fn processor_interference(&self) -> StolenTime {
        let Platform { machine, demultiplex, link, .. } = &self.platform;
        // Received frames interrupt: one at most while the smallest of them occupies the link.
        let interrupts = (machine.is_papers() && !demultiplex.is_zero())
            .then(|| StaircaseLine::term(link.occupancy(1).as_nanos(), demultiplex.as_nanos(), 0));
        self.interference().and_least_of(interrupts)
    }

    /// J(s) of the processor, with these streams on the link. The composite test has the tax elsewhere.
    pub(super) fn processor_stolen(&self, streams: &[PacketStream]) -> StolenTime {
        let mut lines: Vec<StaircaseLine> = self.link_tax(self.least_occupancy(streams)).into_iter().collect();
        if self.tax_reaches() && !lines.is_empty() {
            lines.extend(self.tax_of_senders(streams));
            lines.extend(self.tax_of_both(streams));
        }
        self.processor_interference().and_least_of(lines)
    }

    /// J(s) of the processor as far as it follows from the link alone.
    pub(super) fn stolen_by_link(&self, least: Option<u64>) -> StolenTime {
        self.processor_interference().and_least_of(self.link_tax(least))
    }

    /// The tax as it follows from those who send; `None` if best effort sends as often as the link lets it.
    fn tax_of_senders(&self, streams: &[PacketStream]) -> Option<StaircaseLine> {
        let (cost, papers, be) = (self.link_cost, self.platform.machine.is_papers(), self.platform.best_effort);
        let mut line = StaircaseLine::constant(self.early_tax(streams));
        match be.starts {
            Some(starts) => {
                line.add_constant(cost.saturating_mul(starts.burst.into()));
                line.add_term(starts.spacing.as_nanos(), cost, if papers { 0 } else { self.look_ahead });
            }
            None if papers && be.message_packets == 0 => {}
            None => return None,
        }
        let alike = streams.iter().map(|stream| (stream.interval, stream.reach, stream.packets)).collect();
        for ((interval, reach, packets), count) in grouped(alike) {
            line.add_term(interval, cost.saturating_mul(packets).saturating_mul(count), reach);
        }
        Some(line)
    }

    /// The time that hand-overs of early packets may still take when the processor gets current work: those of one poll.
    fn early_tax(&self, streams: &[PacketStream]) -> u64 {
        // Only channels are early.
        let least = streams.iter().map(|stream| stream.smallest).min();
        let least = least.filter(|_| self.early && !self.platform.machine.is_papers());
        least.map_or(0, |least| self.link_cost.saturating_mul(self.look_ahead.div_ceil(least.max(1)).saturating_add(1)))
    }

    /// The tax as it follows from the link for packets no shorter than best effort's, and from the senders for shorter ones.
    fn tax_of_both(&self, streams: &[PacketStream]) -> Option<StaircaseLine> {
        let (least, cost) = (self.other_smallest?, self.link_cost);
        let papers = self.platform.machine.is_papers();
        let (period, in_progress) = if papers { (least.saturating_add(cost), 1) } else { (least, 2) };
        let once = cost.saturating_mul(in_progress).saturating_add(self.early_tax(streams));
        let mut line = StaircaseLine::constant(once).and_term(period, cost, self.look_ahead);
        let shorter = |stream: &PacketStream| least.saturating_sub(stream.smallest);
        let alike = streams.iter().map(|stream| (stream.interval, stream.reach, shorter(stream))).collect();
        for ((interval, reach, shorter), count) in grouped(alike) {
            let extra = (u128::from(cost) * u128::from(shorter)).div_ceil(u128::from(period.max(1)));
            let extra = u64::try_from(extra).unwrap_or(u64::MAX).saturating_mul(count);
            if extra > 0 {
                line.add_term(interval, extra, reach);
            }
        }
        Some(line)
    }

    /// The time that it takes to do `work` of the processor, if the link asks for as many hand-overs as it may meanwhile: the least
    /// `s ≥ work + tax(s)`; `u64::MAX` if it may ask for all of the processor.
    pub(super) fn with_hand_overs(&self, work: u64, streams: &[PacketStream]) -> u64 {
        let stolen = StolenTime::default().and_least_of(self.link_tax(self.least_occupancy(streams)));
        walk::span_of(&stolen, work).unwrap_or(u64::MAX)
    }

    /// The tax as it follows from the link: one hand-over for each packet that may start, L_min being `least`.
    fn link_tax(&self, least: Option<u64>) -> Option<StaircaseLine> {
        let (least, cost) = (least?, self.link_cost);
        match self.platform.machine {
            _ if cost == 0 || mutant::is_on(Mutant::NoLinkTax) => None,
            MachineModel::PapersOffload => None,
            MachineModel::PapersInline => Some(StaircaseLine::term(least.saturating_add(cost), cost, 0)),
            MachineModel::Executive => {
                Some(StaircaseLine::constant(cost).and_term(least.max(cost), cost, self.look_ahead))
            }
        }
    }

    /// True if the tax depends on the time for which messages are in progress.
    pub(super) fn tax_reaches(&self) -> bool {
        let be = self.platform.best_effort;
        let without = self.platform.machine == MachineModel::PapersInline && be.message_packets == 0;
        let from_senders = be.starts.is_some() || without || self.may_be_shorter;
        self.link_cost > 0 && self.platform.machine != MachineModel::PapersOffload && from_senders
    }

    /// The ratio by which link interrupts stretch processor time in the composite test: (numerator, denominator), or `None` if they
    /// could take all of it. And how much of C_l comes on top.
    pub(super) fn stretch(&self, least: Option<u64>) -> Option<((u64, u64), u64)> {
        let cost = self.link_cost;
        let Some(least) = least.filter(|_| cost > 0) else { return Some(((1, 1), 0)) };
        let (ratio, extra) = match self.platform.machine {
            MachineModel::PapersOffload => return Some(((1, 1), 0)),
            MachineModel::PapersInline => ((least.saturating_add(cost), least), cost),
            MachineModel::Executive => {
                let cycle = least.max(cost);
                ((cycle, cycle - cost), cost.saturating_mul(self.look_ahead.div_ceil(cycle).saturating_add(2)))
            }
        };
        (ratio.1 > 0).then_some((ratio, extra))
    }

    /// L_min, see A7; `None` if no channel may send.
    pub(super) fn least_occupancy(&self, streams: &[PacketStream]) -> Option<u64> {
        self.least_of(streams.iter().map(|stream| stream.smallest).min())
    }

    /// L_min, of the channels' own.
    pub(super) fn least_of(&self, of_channels: Option<u64>) -> Option<u64> {
        of_channels.into_iter().chain(self.other_smallest).min()
    }

    /// The job of a channel whose messages have so many packets, with a preemption point after each `quantum` of them.
    fn job(&self, contract: &Contract, steps: StepCost, packets: u64, quantum: u64) -> Job {
        let inner = (packets - 1) / quantum;
        let polls = (inner + 1).saturating_mul(self.frames);
        let to_blocker = if mutant::is_on(Mutant::NoSwitchToBlocker) { 0 } else { self.switch };
        let to_message = if mutant::is_on(Mutant::OneSwitchTooFew) { 0 } else { self.switch };
        Job {
            interval: contract.interval().as_nanos(),
            deadline: contract.deadline().as_nanos(),
            cost: steps.message(packets).saturating_add(to_message).saturating_add(polls),
            inner,
            block: steps.block(packets, quantum).saturating_add(to_blocker).saturating_add(self.frames),
            last: match inner {
                0 => steps.message(packets),
                inner => (packets - inner * quantum).saturating_mul(steps.other),
            },
            steps,
            packets,
        }
    }

    /// An upcall on this thread, in the place of a channel with this contract: a message of as many packets as it has iterations, of which each is
    /// followed by a preemption point; the shorter one, which it runs last, stands first here, as only their sum counts.
    pub(super) fn running(&self, upcall: &Upcall, contract: &Contract) -> Job {
        let (last, other) = (upcall.last_iteration().as_nanos(), upcall.quantum().as_nanos());
        // The last iteration is rounded down.
        let steps = StepCost { first: last.saturating_add(1).min(other), other };
        let iterations = upcall.iterations().into();
        let job = self.job(contract, steps, iterations, 1);
        // The largest iteration, also if quanta inside of messages are forgotten on purpose.
        Job { last, block: job.block.saturating_add(other - steps.block(iterations, 1)), ..job }
    }

    /// N, or a refusal: the fragment index has 16 bits.
    fn packets(&self, contract: &Contract) -> Result<u64, Refusal> {
        let packets = contract::packets(contract.max_message(), self.platform.packet);
        if packets > limits::MAX_PACKETS_PER_MESSAGE {
            return Err(Refusal::new(Code::BadParameters, Stage::Contract));
        }
        Ok(packets.into())
    }

    /// The packets of a channel that uses the link. The deadline is still the contract's.
    fn stream(&self, contract: &Contract, spacing: u64) -> Result<PacketStream, Refusal> {
        let packets = self.packets(contract)?;
        let link = &self.platform.link;
        let size = self.platform.packet;
        let occupancy = |bytes| link.occupancy(bytes).as_nanos();
        let last_bytes = last_packet(contract.max_message(), size);
        let full_bytes = if packets > 1 { size } else { last_bytes };
        let (full, last) = (occupancy(full_bytes), occupancy(last_bytes));
        let declared =
            if mutant::is_on(Mutant::LeastPacketOfLargest) { contract.max_message() } else { contract.min_message() };
        let smallest = occupancy(smallest_packet(declared, contract.max_message(), size));
        // A link that is not paced says nothing about when a packet is through, nor how often it asks for C_l.
        if link.rate.is_none() || smallest.max(self.link_cost) == 0 {
            return Err(Refusal::new(Code::BadParameters, Stage::Link));
        }
        let papers = self.platform.machine.is_papers();
        let with_cost = |occupancy: u64| {
            if papers { occupancy.saturating_add(self.link_cost) } else { occupancy.max(self.link_cost) }
        };
        let beyond = |counts: u64, bytes| counts.saturating_sub(link.unspaced().occupancy(bytes).as_nanos());
        Ok(PacketStream {
            interval: contract.interval().as_nanos(),
            deadline: contract.deadline().as_nanos(),
            packets,
            full: with_cost(full),
            last: with_cost(last),
            spacing,
            largest: match papers {
                _ if mutant::is_on(Mutant::NoLinkBlock) => 0,
                true => with_cost(full),
                false => full,
            },
            smallest,
            late: 0,
            spare: if papers {
                0
            } else {
                beyond(with_cost(full), full_bytes).min(beyond(with_cost(last), last_bytes))
            },
            jitter: 0,
            reach: self.reach(contract, contract.deadline().as_nanos()),
        })
    }

    /// The longest time from a message's release until its packets are through, if that takes `deadline`; zero if
    /// nothing depends on it.
    pub(super) fn reach(&self, contract: &Contract, deadline: u64) -> u64 {
        if !self.tax_reaches() {
            return 0;
        }
        let queue = contract.interval().as_nanos().saturating_mul(contract.queued_messages());
        deadline.saturating_add(if self.early && self.platform.machine.is_papers() { queue } else { 0 })
    }

    /// A channel: its job, its packets, and the time that one message takes on an idle host. The deadlines are still the contract's.
    pub(super) fn channel(&self, contract: &Contract, role: Role) -> Result<(Parts, u64), Refusal> {
        match role {
            Role::Sends => {
                let stream = self.stream(contract, self.sending.other)?;
                let job = self.job(contract, self.sending, stream.packets, self.quantum);
                // Either the processor or the link is the slower one; the other adds its first or its last packet.
                let by_processor = self.sending.message(stream.packets).saturating_add(stream.last - stream.spare);
                let by_link = u128::from(self.sending.first) + stream.whole() - u128::from(stream.spare);
                let slower = by_processor.max(u64::try_from(by_link).unwrap_or(u64::MAX));
                let service = slower.saturating_add(self.switch).saturating_add(self.idle_link_cost());
                Ok(((Some(job), Some(stream)), service))
            }
            // The packets come all at once.
            Role::Relays => {
                let stream = PacketStream { late: self.passed_on_late(), ..self.stream(contract, 0)? };
                let service = u64::try_from(stream.whole() - u128::from(stream.spare)).unwrap_or(u64::MAX);
                let service = service.saturating_add(self.idle_link_cost()).saturating_add(stream.late);
                Ok(((None, Some(stream)), service))
            }
            Role::Receives => {
                let packets = self.packets(contract)?;
                if contract.handler() > self.platform.longest_handler() {
                    return Err(Refusal::new(Code::BadParameters, Stage::Contract));
                }
                // The application's handler is part of the step that completes the message.
                let handler = if mutant::is_on(Mutant::NoHandler) { 0 } else { contract.handler().as_nanos() };
                let steps = StepCost { first: self.receiving.first.saturating_add(handler), ..self.receiving };
                let service = steps.message(packets).saturating_add(self.switch);
                Ok(((Some(self.job(contract, steps, packets, self.quantum)), None), service))
            }
        }
    }

    /// The time that a packet waits if it finds the link idle: C_l, unless it is in L already.
    fn idle_link_cost(&self) -> u64 {
        if self.platform.machine.is_papers() { 0 } else { self.link_cost }
    }
}

/// Intf(s).
pub(super) fn interference(interference: &Interference) -> StolenTime {
    let mut base = StaircaseLine::constant(interference.burst.as_nanos());
    let drop_one = usize::from(mutant::is_on(Mutant::OneInterferenceTermLess));
    for &(period, cost) in interference.periodic.iter().skip(drop_one) {
        base.add_term(period.as_nanos(), cost.as_nanos(), 0);
    }
    StolenTime::new(base).and_least_of(
        interference.envelopes.iter().map(|&(window, budget)| {
            StaircaseLine::term(window.as_nanos(), budget.as_nanos(), half(window).as_nanos())
        }),
    )
}

/// The last packet of a message of `bytes`; neither is zero.
fn last_packet(bytes: u32, packet: u32) -> u32 {
    (bytes - 1) % packet + 1
}

/// The smallest packet of any message of `min` to `max` bytes: if the sizes in between reach from one packet count to the
/// next, the first of the greater count ends in a packet of one byte; else the smallest message has the smallest last one.
pub(super) fn smallest_packet(min: u32, max: u32, packet: u32) -> u32 {
    if contract::packets(min, packet) == contract::packets(max, packet) { last_packet(min, packet) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_smallest_packet_is_that_of_all_sizes(min in 1u32..300, more in 0u32..300, packet in 1u32..100) {
            let naive = (min..=min + more).map(|bytes| if bytes % packet == 0 { packet } else { bytes % packet }).min();
            prop_assert_eq!(Some(smallest_packet(min, min + more, packet)), naive);
        }

        /// The longest run of packets without a preemption point, packet by packet.
        #[test]
        fn the_block_is_the_longest_quantum(packets in 1u64..20, quantum in 1u64..6, first in 0u64..9, other in 0u64..9) {
            let (mut longest, mut run) = (0, 0);
            for packet in 0..packets {
                run += if packet == 0 { first } else { other };
                longest = longest.max(run);
                if (packet + 1) % quantum == 0 {
                    run = 0;
                }
            }
            let steps = StepCost { first, other };
            prop_assert!((longest..=steps.message(packets)).contains(&steps.block(packets, quantum)));
        }
    }

    #[test]
    fn look_ahead_covers_the_longest_gap_between_polls() {
        // Table 2b: E = 145 + 420 µs, W' = 0; A = 565 + 160 µs + 1 ns.
        assert_eq!(Machine::new(Platform::channels_table_2b(), false).unwrap().look_ahead, 725_001);
        // R = 32 · 2 = 64 µs; E = 5 + 64 + 8 = 77 µs, W' = 200 + 64 µs; A = 264 + 10 µs + 1 ns.
        let host = Platform::assumed_host();
        assert_eq!(Machine::new(host.clone(), false).unwrap().look_ahead, 274_001);
        // Polled at every eighth step: E = 8 · 77 = 616 µs.
        assert_eq!(Machine::new(Platform { transmit_batch: 8, ..host }, false).unwrap().look_ahead, 626_001);
    }
}
