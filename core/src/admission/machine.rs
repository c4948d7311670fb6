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
//! - **A3** Between preemption points nobody is chosen anew: `block(N) = C^1st + (min(N, P) − 1) C`, and at least `P·C` if
//!   N > P, because a quantum inside a message may be the longer one when C^1st < C. Best effort sends and receives
//!   messages of at most `best_effort.message_packets`.
//! - **A4** Inputs are polled once at every preemption point and once on waking, before anything else is chosen; a poll takes
//!   at most K frames of C_d each: R = K·C_d. C_d includes what is done about a control frame. So a message is charged
//!   (q + 1) R, a blocker its own R, and a wake-up R. With nothing to do the executive sleeps and wakes up to W late.
//! - **A5** The link is polled after every k-th step (k = `transmit_batch`), on waking, and when the work handed over has
//!   fallen below A and the executive is idle. A poll hands packets over, one by one, C_l each, the earliest deadline
//!   of the most urgent class first, until the link has at least A of work before it or no packet waits.
//! - **A6** The link transmits what it was handed in order, a payload of s bytes in L_x(s); the model is enforced by pacing.
//! - **A7** No packet is smaller than declared: L_min is L_x of the smallest payload that any channel may send between its
//!   `min_message` and its `max_message`, that best effort may send, and that a control frame has. Control frames are
//!   sent as best effort, carry 0 to `packet_max` bytes, and always may come; so L_min is the link's floor.
//! - **A8** A message is released at its logical arrival [channels §2.2], or served early in the least class.
//!
//! **Look-ahead.** Between two polls of the link lie at most `E = k (C_csp + R + step)`, `step` being the dearest packet to
//! make or take: with messages of one packet each of the k steps may have its own switch and its own poll of the inputs.
//! Or a sleep: `W' = W + R`. During the next C_l the link needs work too, so
//!
//! ```text
//! A = max(E, W') + C_l + 1 ns
//! ```
//!
//! which depends on the platform only: the link scheduler uses it from the start. One tick less is too little.

use super::link::Stream;
use super::processor::Job;
use super::walk::Stolen;
use super::{Code, Refusal, Stage};
use crate::contract::{self, Contract};
use crate::limits;
use crate::platform::{Platform, PlatformError};

/// What one packet costs: the first of a message, and every other.
#[derive(Clone, Copy, Debug)]
struct Steps {
    first: u64,
    other: u64,
}

impl Steps {
    /// H = C^1st + (N − 1) C.
    fn message(self, packets: u64) -> u64 {
        self.first.saturating_add((packets - 1).saturating_mul(self.other))
    }
    /// block(N), see A3.
    fn block(self, packets: u64, quantum: u64) -> u64 {
        let first = self.message(packets.min(quantum));
        if packets > quantum { first.max(quantum.saturating_mul(self.other)) } else { first }
    }
}

/// The constants of the analysis, from the platform alone; nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) platform: Platform,
    /// C_csp.
    pub(super) switch: u64,
    /// C_l.
    pub(super) link_cost: u64,
    /// A.
    pub(super) look_ahead: u64,
    /// The longest block of the processor that is no channel's: best effort, or waking up.
    pub(super) other_block: u64,
    /// L_x of the largest packet that is no channel's.
    pub(super) other_largest: u64,
    /// L_x of the smallest packet that is no channel's.
    other_smallest: Option<u64>,
    quantum: u64,
    /// R.
    frames: u64,
    sending: Steps,
    receiving: Steps,
}

impl Machine {
    pub(super) fn new(platform: Platform) -> Result<Self, PlatformError> {
        platform.validate()?;
        let switch = platform.change_of_handler().as_nanos();
        let link_cost = platform.link_cost.as_nanos();
        let frames = (platform.demultiplex * u64::from(platform.receive_batch)).as_nanos();
        let quantum = u64::from(platform.quantum);
        let sending = Steps { first: platform.first_packet.as_nanos(), other: platform.packet_cost.as_nanos() };
        let receiving = Steps { first: platform.receive_first.as_nanos(), other: platform.receive_packet.as_nanos() };
        let step = sending.first.max(sending.other).max(receiving.first).max(receiving.other);
        let gap = switch.saturating_add(frames).saturating_add(step).saturating_mul(platform.transmit_batch.into());
        let wake_up = platform.wake_up.as_nanos().saturating_add(frames);
        let be = platform.best_effort;
        let best_effort_block = match u64::from(be.message_packets) {
            0 => 0,
            packets => {
                let steps = sending.block(packets, quantum).max(receiving.block(packets, quantum));
                switch.saturating_add(steps).saturating_add(frames)
            }
        };
        Ok(Self {
            switch,
            link_cost,
            look_ahead: gap.max(wake_up).saturating_add(link_cost).saturating_add(1),
            other_block: best_effort_block.max(wake_up),
            other_largest: platform.link.occupancy(be.packet_max).as_nanos(),
            other_smallest: Some(platform.link.occupancy(0).as_nanos()),
            quantum,
            frames,
            sending,
            receiving,
            platform,
        })
    }

    /// The papers' machine: no control frames. Only for comparison with published figures and for the tests of L_min.
    #[cfg(test)]
    pub(super) fn without_control_frames(platform: Platform) -> Self {
        let mut machine = Self::new(platform).unwrap();
        let (be, link) = (machine.platform.best_effort, machine.platform.link);
        machine.other_smallest = (be.message_packets > 0).then(|| link.occupancy(be.packet_min).as_nanos());
        if be.message_packets == 0 {
            machine.other_largest = 0;
        }
        machine
    }

    /// Intf(s).
    pub(super) fn interference(&self) -> Stolen {
        let interference = &self.platform.interference;
        let mut stolen = Stolen::constant(interference.burst.as_nanos());
        for &(period, cost) in &interference.periodic {
            stolen.add_term(period.as_nanos(), cost.as_nanos(), 0);
        }
        stolen
    }

    /// L_min, see A7; `None` if nobody may send.
    pub(super) fn least_occupancy<'a>(&self, streams: impl Iterator<Item = &'a Stream>) -> Option<u64> {
        streams.map(|stream| stream.smallest).chain(self.other_smallest).min()
    }

    fn job(&self, contract: &Contract, steps: Steps, packets: u64) -> Job {
        let inner = (packets - 1) / self.quantum;
        let polls = (inner + 1).saturating_mul(self.frames);
        let block = steps.block(packets, self.quantum).saturating_add(self.switch).saturating_add(self.frames);
        Job {
            interval: contract.interval().as_nanos(),
            deadline: contract.deadline().as_nanos(),
            cost: steps.message(packets).saturating_add(self.switch).saturating_add(polls),
            inner,
            block,
        }
    }

    /// N, or a refusal: the fragment index has 16 bits.
    fn packets(&self, contract: &Contract) -> Result<u64, Refusal> {
        let packets = contract::packets(contract.max_message(), self.platform.packet);
        if packets > limits::MAX_PACKETS_PER_MESSAGE {
            return Err(Refusal::new(Code::BadParameters, Stage::Contract));
        }
        Ok(packets.into())
    }

    /// A sending channel: its job, its packets, and the time that one message takes on an idle host. The deadlines are
    /// still the contract's.
    pub(super) fn sending(&self, contract: &Contract) -> Result<(Job, Stream, u64), Refusal> {
        let packets = self.packets(contract)?;
        let link = &self.platform.link;
        let size = self.platform.packet;
        let occupancy = |bytes| link.occupancy(bytes).as_nanos();
        let last = occupancy(last_packet(contract.max_message(), size));
        let full = if packets > 1 { occupancy(size) } else { last };
        let smallest = occupancy(smallest_packet(contract.min_message(), contract.max_message(), size));
        // A link that is not paced says nothing about when a packet is through, nor how often it asks for C_l.
        if link.rate.is_none() || smallest.max(self.link_cost) == 0 {
            return Err(Refusal::new(Code::BadParameters, Stage::Link));
        }
        let stream = Stream {
            interval: contract.interval().as_nanos(),
            deadline: contract.deadline().as_nanos(),
            packets,
            full: full.max(self.link_cost),
            last: last.max(self.link_cost),
            spacing: self.sending.other,
            largest: full,
            smallest,
        };
        let job = self.job(contract, self.sending, packets);
        // Either the processor or the link is the slower one; the other adds its first or its last packet.
        let by_processor = self.sending.message(packets).saturating_add(last);
        let by_link = u128::from(self.sending.first) + u128::from(packets - 1) * u128::from(full) + u128::from(last);
        let slower = by_processor.max(u64::try_from(by_link).unwrap_or(u64::MAX));
        Ok((job, stream, slower.saturating_add(self.switch).saturating_add(self.link_cost)))
    }

    /// A receiving channel: its job, and the time that one message takes on an idle host.
    pub(super) fn receiving(&self, contract: &Contract) -> Result<(Job, u64), Refusal> {
        let packets = self.packets(contract)?;
        let service = self.receiving.message(packets).saturating_add(self.switch);
        Ok((self.job(contract, self.receiving, packets), service))
    }
}

/// The last packet of a message of `bytes`; neither is zero.
fn last_packet(bytes: u32, packet: u32) -> u32 {
    (bytes - 1) % packet + 1
}

/// The smallest packet of any message of `min` to `max` bytes: if the sizes in between reach from one packet count to the
/// next, the first of the greater count ends in a packet of one byte; else the smallest message has the smallest last one.
fn smallest_packet(min: u32, max: u32, packet: u32) -> u32 {
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
            let steps = Steps { first, other };
            prop_assert!((longest..=steps.message(packets)).contains(&steps.block(packets, quantum)));
        }
    }

    #[test]
    fn look_ahead_covers_the_longest_gap_between_polls() {
        // Table 2b: E = 145 + 420 µs, W' = 0; A = 565 + 160 µs + 1 ns.
        assert_eq!(Machine::new(Platform::channels_table_2b()).unwrap().look_ahead, 725_001);
        // R = 32 · 2 = 64 µs; E = 5 + 64 + 8 = 77 µs, W' = 200 + 64 µs; A = 264 + 10 µs + 1 ns.
        let host = Platform::assumed_host();
        assert_eq!(Machine::new(host.clone()).unwrap().look_ahead, 274_001);
        // Polled at every eighth step: E = 8 · 77 = 616 µs.
        assert_eq!(Machine::new(Platform { transmit_batch: 8, ..host }).unwrap().look_ahead, 626_001);
    }
}
