//! The link's half of the split test: packets by deadline, not preempted.
//!
//! Packet k of N is handed to the link queue by `l + d_cpu − (N − k) C_p`, because the processor's test counted the packets
//! after it, and is due at `l + d_cpu + d_link`. With
//!
//! ```text
//! e_ik = d_link,i + (N_i − k) C_p;   W(t) = Σ_i Σ_k L_ik (⌊(t − e_ik)/I_i⌋ + 1)^+
//! require FIX(W(t) + B(t), J) ≤ t   for all t ≥ min e_ik
//!
//! executive:  L(s) = L''(s) = max(L_x(s), C_l);   B = C_l + A + max L_x of all packets;   J(s) = Intf(s) − burst
//! papers:     L(s) = L'(s)  = C_l + L_x(s);       B(t) = max L' of best effort and of packets with e > t;
//!             J(s) = Intf(s) inline, 0 offload
//! ```
//!
//! **Executive.** At each poll packets are handed over until the link has at least A of work before it (A5), so the link does
//! not run dry while the processor makes the next packet; what was handed over cannot be overtaken. Why `max(L_x, C_l)`:
//! one after the other, packets i to m are handed over C_l apart at least and transmitted L_x apart. If the link last waited
//! for packet j, m ends at most `C_l (j − i + 1) + Σ_j^m L_x` after i could have been handed over, which is at most
//! `C_l + Σ_i^m max(L_x, C_l)`. Why all packets block: when i is enqueued, the last packet that was handed over found
//! less than A before it, so the link holds less than A and that packet, of whichever channel and whenever it is due.
//! Interference may keep the executive from the link, hence J, without its burst: that was counted in the processor's stage. If the burst comes
//! after a packet has been enqueued, the processor was done earlier than `l + d_cpu` by as much at least, and the packet is due by
//! `l + d_cpu + d_link`, whenever it was enqueued. A packet that a relay passes on has no such stage; it is enqueued up to FIX(0, Intf) late.
//! The other terms of the interference are rates, and count in either stage.
//!
//! **Papers.** The adapter interrupts; one packet may have been taken just before (A6 of the defects: with its C_l).
//!
//! A message that is shorter than the largest is a prefix of one, its packets no larger and none later, so it needs no term.
//! The last one of the packets that are due by t is done when it has been *transmitted*, which is earlier than the next one may start
//! where packets are spaced, or C_l takes longer: `L − L_x` of that packet, without the spacing, does not count. Which of them is last is not known, so
//! the least of all packets is taken off B.
//!
//! The first packet of a message is its largest: that keeps W + B from falling. Packets that a relay passes on come all at
//! once: C_p is zero for them. Assumptions A1–A8 are those of the machine.

use alloc::vec::Vec;

use super::machine::Machine;
use super::processor::grouped;
use super::walk::{Demand, LongRunTask, StolenTime};

/// The packets of one sending channel; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketStream {
    /// I: shortest distance of two messages; not zero.
    pub(super) interval: u64,
    /// d_link: the deadline of a message's last packet.
    pub(super) deadline: u64,
    /// N: packets of the largest message; not zero.
    pub(super) packets: u64,
    /// L of all packets but the last.
    pub(super) full: u64,
    /// L of the last packet; at most `full` if there is more than one.
    pub(super) last: u64,
    /// C_p: how much earlier each packet is handed over than the next.
    pub(super) spacing: u64,
    /// The link time of the first packet, the largest, when it blocks another.
    pub(super) largest: u64,
    /// L_x of the smallest packet that the channel may send; counts for L_min only.
    pub(super) smallest: u64,
    /// The longest time from a message's release until its packets are through: it bounds how often the message asks for C_l.
    pub(super) reach: u64,
    /// The time by which a packet may be enqueued later than it counts.
    pub(super) late: u64,
    /// The least time by which a packet counts longer than its transmission.
    pub(super) spare: u64,
    /// How long after its message's release the last packet may be enqueued, if its deadline counts from then: for `due` only, not for `until`.
    pub(super) jitter: u64,
}

impl PacketStream {
    /// Σ_k L_k.
    pub(super) fn whole(&self) -> u128 {
        u128::from(self.packets - 1) * u128::from(self.full) + u128::from(self.last)
    }

    /// Each packet is due `e ≥ d` after its message: at most t/I + max(0, 1 − d/I) of each within t.
    pub(super) fn in_the_long_run(&self) -> LongRunTask {
        LongRunTask { cost: self.whole(), interval: self.interval, deadline: self.due() }
    }

    /// Σ_k L_k (⌊(t − e_k)/I⌋ + 1)^+, in closed form: a message may have 65,535 packets.
    pub(super) fn until(&self, t: u64) -> u128 {
        let Some(span) = t.checked_sub(self.due()) else { return 0 };
        let last = (u128::from(span / self.interval) + 1).saturating_mul(self.last.into());
        // Packet N − j is due at d + j·C_p; those with j ≤ m are due within t.
        let m = span.checked_div(self.spacing).unwrap_or(u64::MAX).min(self.packets - 1);
        let periods = floor_sum(m, self.interval, self.spacing, span - m * self.spacing);
        last.saturating_add(periods.saturating_add(m.into()).saturating_mul(self.full.into()))
    }

    /// e of the first packet: the last one to be due.
    fn first_packet_due(&self) -> u64 {
        self.due().saturating_add((self.packets - 1).saturating_mul(self.spacing))
    }

    /// The time by which the last packet is due, from when it is enqueued at the latest.
    pub(super) fn due(&self) -> u64 {
        self.deadline.saturating_sub(self.late)
    }
}

/// Σ ⌊(a·i + b)/m⌋ for i in 0..n, in O(log m) steps; m is not zero, n at most 2¹⁶, a and m below 2⁴⁷.
fn floor_sum(n: u64, m: u64, a: u64, b: u64) -> u128 {
    let (mut n, mut m, mut a, mut b) = (n, m, a, b);
    let mut sum = 0u128;
    while n > 0 {
        sum += u128::from(n) * u128::from(n - 1) / 2 * u128::from(a / m) + u128::from(n) * u128::from(b / m);
        (a, b) = (a % m, b % m);
        let top = a * n + b;
        if top < m {
            break;
        }
        (n, b) = (top / m, top % m);
        (m, a) = (a, m);
    }
    sum
}

/// A set of streams on one link.
pub(super) struct LinkTest {
    streams: Vec<(PacketStream, u64)>,
    /// The work that the link may have been given ahead, of any channel: C_l + A, or nothing.
    pub(super) ahead: u64,
    /// The largest packet that does not come from a channel.
    other: u64,
    /// The largest packet of all.
    largest: u64,
    /// True if packets block even if they are due no later: the link may hold what it was given ahead.
    all_block: bool,
    /// The least `spare` of all streams.
    spare: u64,
    stolen: StolenTime,
}

impl LinkTest {
    pub(super) fn new(machine: &Machine, existing: Vec<PacketStream>, newcomer: Option<PacketStream>) -> Self {
        let mut streams = grouped(existing);
        streams.extend(newcomer.map(|stream| (stream, 1)));
        let &Machine { ahead, other_largest: other, all_block, .. } = machine;
        let largest = streams.iter().map(|(stream, _)| stream.largest).fold(other, u64::max);
        let spare = streams.iter().map(|(stream, _)| stream.spare).min().unwrap_or(0);
        Self { streams, ahead, other, largest, all_block, spare, stolen: machine.link_stolen() }
    }

    /// The demand that is due within `t` and begins before `s`: packets, without the time of the last of them beyond its transmission; the block.
    /// A packet that is enqueued before s belongs to a message that was released before that.
    pub(super) fn parts(&self, t: u64, s: u64) -> (u128, u64) {
        let work = self.streams.iter().fold(0u128, |sum, (stream, count)| {
            let begun = u128::from(s.saturating_add(stream.jitter).div_ceil(stream.interval).max(1));
            let due = stream.until(t).min(begun.saturating_mul(stream.whole()));
            sum.saturating_add(due.saturating_mul((*count).into()))
        });
        (work.saturating_sub(self.spare.into()), self.block(t))
    }

    fn block(&self, t: u64) -> u64 {
        if self.all_block {
            return self.largest;
        }
        let later = self.streams.iter().filter(|(stream, _)| stream.first_packet_due() > t);
        later.map(|(stream, _)| stream.largest).fold(self.other, u64::max)
    }
}

impl Demand for LinkTest {
    fn due(&self, t: u64, s: u64) -> u128 {
        let (work, block) = self.parts(t, s);
        work.saturating_add(self.ahead.into()).saturating_add(block.into())
    }
    fn until(&self, t: u64) -> u128 {
        let work = self.streams.iter().fold(u128::from(self.ahead), |sum, (stream, count)| {
            sum.saturating_add(stream.until(t).saturating_mul((*count).into()))
        });
        work.saturating_add(self.block(t).into()).saturating_sub(self.spare.into())
    }
    fn stolen(&self) -> &StolenTime {
        &self.stolen
    }
    fn tasks(&self) -> impl ExactSizeIterator<Item = (LongRunTask, u64)> {
        self.streams.iter().map(|(stream, count)| (stream.in_the_long_run(), *count))
    }
    fn blocks(&self) -> u128 {
        u128::from(self.ahead) + u128::from(self.largest)
    }
    fn set_deadline(&mut self, deadline: u64) {
        if let Some((stream, _)) = self.streams.last_mut() {
            stream.deadline = deadline;
        }
    }
    fn least_possible(&self) -> u64 {
        self.streams.last().map_or(1, |(stream, _)| stream.last - stream.spare)
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::{ONE, Verdict, brute, walk};
    use super::*;
    use crate::platform::{Interference, Platform};
    use crate::units::Duration;
    use proptest::prelude::*;

    fn stream() -> impl Strategy<Value = PacketStream> {
        (20u64..150, 1u64..150, 1u64..6, (0u64..8, 0u64..8), 0u64..60, (0u64..4, 0u64..4)).prop_map(
            |(interval, deadline, packets, (one, two), spacing, (link_cost, spare))| {
                let (full, last) = (one.max(two), one.min(two));
                let largest = if packets > 1 { full } else { last };
                PacketStream {
                    interval,
                    deadline,
                    packets,
                    spacing,
                    largest,
                    smallest: last,
                    full: full.max(link_cost),
                    last: last.max(link_cost),
                    reach: 0,
                    late: 0,
                    spare: spare.min(last.max(link_cost)),
                    jitter: 0,
                }
            },
        )
    }

    fn small() -> impl Strategy<Value = (Vec<PacketStream>, u64, u64, (u64, u64, u64))> {
        (prop::collection::vec(stream(), 0..4), 0u64..20, 0u64..10, (0u64..10, 10u64..40, 0u64..4))
    }

    fn fast(streams: &[PacketStream], ahead: u64, other: u64, interference: (u64, u64, u64)) -> LinkTest {
        let (burst, period, cost) = interference;
        // On the papers' machine the link has all of it.
        let mut machine = Machine::new(Platform::papers_table_2b(), false).unwrap();
        machine.platform.interference = Interference {
            burst: Duration::from_nanos(burst),
            periodic: alloc::vec![(Duration::from_nanos(period), Duration::from_nanos(cost))],
            envelopes: Vec::new(),
        };
        (machine.ahead, machine.other_largest, machine.all_block) = (ahead, other, ahead % 2 == 1);
        LinkTest::new(&machine, streams.to_vec(), None)
    }

    /// Packet by packet, instant by instant.
    fn slow(streams: &[PacketStream], ahead: u64, other: u64, interference: (u64, u64, u64), last: u64) -> Verdict {
        let until = |t: u64| {
            let (mut work, mut block) = (0, other);
            let spare = streams.iter().map(|stream| stream.spare).min().unwrap_or(0);
            for stream in streams {
                for packet in 1..=stream.packets {
                    let offset = stream.deadline + (stream.packets - packet) * stream.spacing;
                    if (offset > t && packet == 1) || ahead % 2 == 1 {
                        block = block.max(stream.largest);
                    }
                    let mut due = offset;
                    while due <= t {
                        work += if packet == stream.packets { stream.last } else { stream.full };
                        due += stream.interval;
                    }
                }
            }
            (work + ahead + block).saturating_sub(spare)
        };
        let first = streams.iter().map(|stream| stream.deadline).min().unwrap_or(last + 1);
        brute::walk(until, |s| interference.0 + s.div_ceil(interference.1) * interference.2, first, last)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn the_walk_agrees_with_every_instant((streams, ahead, other, interference) in small()) {
            let test = fast(&streams, ahead, other, interference);
            match walk(&test, true) {
                // So near full use that the walk may be given up.
                Verdict::TooLong => prop_assert!(test.utilisation() >= ONE * 99 / 100),
                Verdict::Fits => prop_assert_eq!(slow(&streams, ahead, other, interference, 1500), Verdict::Fits),
                Verdict::Fails(at) => prop_assert_eq!(slow(&streams, ahead, other, interference, at), Verdict::Fails(at)),
            }
        }

        #[test]
        fn a_longer_deadline_never_turns_yes_into_no(
            (mut streams, ahead, other, interference) in small(), which in 0usize..4, longer in 1u64..100,
        ) {
            let before = walk(&fast(&streams, ahead, other, interference), false);
            if let Some(count) = core::num::NonZero::new(streams.len()) {
                streams[which % count].deadline += longer;
            }
            let after = walk(&fast(&streams, ahead, other, interference), false);
            prop_assert!(before != Verdict::Fits || after == Verdict::Fits);
        }

        #[test]
        fn one_more_channel_never_helps((streams, ahead, other, interference) in small(), more in stream()) {
            let mut fuller = streams.clone();
            fuller.push(more);
            if walk(&fast(&fuller, ahead, other, interference), false) == Verdict::Fits {
                prop_assert_eq!(walk(&fast(&streams, ahead, other, interference), false), Verdict::Fits);
            }
        }

        #[test]
        fn demand_never_falls((streams, ahead, other, interference) in small()) {
            let test = fast(&streams, ahead, other, interference);
            for t in 0..500 {
                prop_assert!(test.until(t) <= test.until(t + 1));
            }
        }

        #[test]
        fn the_closed_form_is_the_sum(n in 0u64..40, m in 1u64..50, a in 0u64..200, b in 0u64..500) {
            let sum: u64 = (0..n).map(|i| (a * i + b) / m).sum();
            prop_assert_eq!(floor_sum(n, m, a, b), u128::from(sum));
        }
    }
}
