//! The composite test: the message's deadline rules on both resources, and a burst is paid for once.
//!
//! A channel that sends many short bursts waits for the others either on the processor or on the link, not on both; the split
//! test charges it twice. With `f(x)` the longest time in which the processor does work of `x` in spite of the link's tax,
//! and `g = 2` if any channel has an inner preemption point, else 1:
//!
//! ```text
//! K_i  = max over j = 0..N of [ f(C^1st + g C_csp + (q + 1) R) [j > 0] + (j − 1)^+ f(C) + Σ_{k>j} L_k ]
//! B(t) = f( max block of best effort, waking up or D_j > t  + tax ) + A' + max L of best effort or D_j > t + max_i L_i
//! require FIX( B(t) + Σ n_i(t, D_i) K_i, f(Intf) ) ≤ t   for all t in { D_i + k I_i };   Σ K_i/I_i + ρ < 1
//!
//! executive: f(x) = ⌈x m/(m − C_l)⌉ with m = max(L_min, C_l);  tax = C_l (⌈A/m⌉ + 2);  A' = C_l + A;  L = max(L_x, C_l)
//! papers:    f(x) = ⌈x (L_min + C_l)/L_min⌉ inline, x offload;  tax = C_l inline, 0 offload;  A' = 0;   L = L' = C_l + L_x
//! ```
//!
//! K is convex in j, so only j = 0, 1, N − 1 and N are looked at. A receiving channel has no link time: K = f(its processor
//! time); its processor deadline is implied, as the demand until D_i is at least that of the processor alone. A relayed one
//! has no processor time.
//!
//! **Why it holds.** A message ends at e, its deadline is t2. Follow its last packet back over the link's busy time with packets
//! due by t2 to the packet q that opened it, enqueued at r_q; then the processor's back from r_q to t1, the beginning of its
//! busy time with deadlines up to t2, into which one block reaches. Before r_q only packets that were finished by r_q used
//! the processor, after r_q the link sends only packets that were finished at or after r_q, and q both. The finished packets of a
//! message are a prefix of it, hence K; q gives the extra L. *Papers:* one other packet may be on the link. *Executive:* at
//! r_q the link holds less than A and the last packet that it was given, of any channel, and one C_l may be under way; from
//! then on packets are handed over C_l apart at least and transmitted L_x apart, and the link does not run dry, so that
//! `C_l + A + L_x + Σ max(L_x, C_l)` covers it (as in the link's half of the split test). Between t1 and r_q, a time of x, at
//! most `⌈(x + A)/m⌉ + 1` packets are handed over: `x ≤ work + C_l (x/m + A/m + 2)`, which is f(work + tax). Interference
//! stretches what it falls into, the processor's part at most by f.
//!
//! B(t) leaves out channels with `D_j ≤ t` only if nothing is served early (premise P3): a message that was begun early can
//! be due by t and still have been in the way before t1. If anything is, B is over all channels.
//!
//! The demand falls where a channel stops to block: `K_j` may be less than what it blocks both resources for. So the instants
//! between two deadlines are walked one range after the other.

use alloc::vec::Vec;

use super::link::PacketStream;
use super::machine::Machine;
use super::processor::{Job, grouped};
use super::walk::{self, Demand, LongRunTask, StolenTime, Verdict, walk_between};
use crate::mutant::{self, Mutant};

/// One channel; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CompositeChannel {
    interval: u64,
    /// D.
    deadline: u64,
    /// K.
    cost: u64,
    /// The time for which it blocks the processor, stretched, beyond what blocks in any case.
    block: u64,
    /// L of its largest packet.
    largest: u64,
    /// True if it blocks: a newcomer is first looked at as if it did not.
    blocks: bool,
}

/// A set of channels on processor and link.
pub(super) struct CompositeTest {
    /// In order of their deadlines, but for the newcomer, which comes last.
    channels: Vec<(CompositeChannel, u64)>,
    /// f(best effort, waking up + tax).
    other_block: u64,
    /// L of the largest packet that is no channel's.
    other_largest: u64,
    /// A' + max_i L_i.
    constant: u64,
    /// True if every channel blocks, whenever it is due.
    all_block: bool,
    stolen: StolenTime,
    /// Distinct deadlines, ascending, at which B(t) may fall; the newcomer's is not among them.
    deadlines: Vec<u64>,
    /// K of those that exist, in the order in which they were given.
    pub(super) costs: Vec<u64>,
}

/// A channel's parts: at least one of them. Its deadline is that of its parts.
pub(super) type Parts = (Option<Job>, Option<PacketStream>);

impl CompositeTest {
    /// `None` if link interrupts could take all of the processor.
    pub(super) fn new(machine: &Machine, early: bool, existing: &[Parts], newcomer: Option<Parts>) -> Option<Self> {
        let all = || existing.iter().copied().chain(newcomer);
        let streams: Vec<PacketStream> = all().filter_map(|(_, stream)| stream).collect();
        let ((numerator, denominator), tax) = machine.stretch(machine.least_occupancy(&streams))?;
        let f = |nanos: u64| {
            let stretched = (u128::from(nanos) * u128::from(numerator)).div_ceil(u128::from(denominator.max(1)));
            u64::try_from(stretched).unwrap_or(u64::MAX)
        };
        let preempted = all().any(|(job, _)| job.is_some_and(|job| job.inner > 0));
        let switches = if preempted && !mutant::is_on(Mutant::NoSwitchBack) { 2 } else { 1 };
        let whole = |(job, stream): Parts| {
            let job_cost = job.map(|job| {
                // C_csp and the polls are in the cost beside H; the second switch is not.
                let extra = (job.cost - job.processing()).saturating_add((switches - 1) * machine.switch);
                (f(job.steps.first.saturating_add(extra)), f(job.steps.other), job.packets)
            });
            let of_stream = stream.map(|stream| (stream.interval, stream.deadline));
            let (interval, deadline) =
                job.map(|job| (job.interval, job.deadline)).or(of_stream).unwrap_or((u64::MAX, u64::MAX));
            CompositeChannel {
                interval,
                deadline,
                cost: longest_way(job_cost, stream.as_ref()),
                block: job.map_or(0, |job| f(job.block.saturating_add(tax))),
                largest: stream.map_or(0, |stream| stream.largest),
                blocks: true,
            }
        };
        let costs = existing.iter().map(|parts| whole(*parts).cost).collect();
        let mut channels = grouped(existing.iter().copied().map(whole).collect());
        channels.sort_by_key(|(channel, _)| channel.deadline);
        let mut deadlines: Vec<u64> = channels.iter().map(|(channel, _)| channel.deadline).collect();
        deadlines.dedup();
        if early {
            deadlines.clear();
        }
        channels.extend(newcomer.map(|parts| (whole(parts), 1)));
        let stolen = machine.processor_interference().stretched_by(numerator, denominator);
        let largest = streams.iter().map(|stream| stream.full.max(stream.last)).max().unwrap_or(0);
        let everybodys = streams.iter().map(|stream| stream.largest).fold(machine.other_largest, u64::max);
        Some(Self {
            channels,
            other_block: f(machine.other_block.saturating_add(tax)),
            other_largest: if machine.all_block { everybodys } else { machine.other_largest },
            constant: machine.ahead.saturating_add(largest),
            all_block: early,
            stolen,
            deadlines,
            costs,
        })
    }

    /// Sets whether the newcomer blocks others; where the blocking ends the demand falls, so it is not for a walk. With early
    /// service it does not end, so it always is.
    pub(super) fn let_newcomer_block(&mut self, blocks: bool) {
        if let Some((channel, _)) = self.channels.last_mut() {
            channel.blocks = blocks || self.all_block;
        }
    }

    /// The demand that is due within `t` and begins before `s`: channels, blocks on the processor and the link, the rest of B.
    pub(super) fn parts(&self, t: u64, s: u64) -> (u128, u64, u64, u64) {
        let (mut work, mut block, mut packet) = (0u128, self.other_block, self.other_largest);
        for (channel, count) in &self.channels {
            let n = t.checked_sub(channel.deadline).map_or(0, |span| (span / channel.interval).saturating_add(1));
            if (n == 0 || self.all_block) && channel.blocks {
                block = block.max(channel.block);
                packet = packet.max(channel.largest);
            }
            let begun = n.min(s.div_ceil(channel.interval).max(1));
            let messages = u128::from(begun).saturating_mul((*count).into());
            work = work.saturating_add(messages.saturating_mul(channel.cost.into()));
        }
        (work, block, packet, self.constant)
    }

    /// The demand that begins within `s`, whenever it is due, and all that may block it.
    pub(super) fn begun(&self, s: u64) -> u128 {
        let (work, ..) = self.parts(u64::MAX, s);
        work.saturating_add(self.blocks())
    }
}

/// K, of the first packet's processor time, every other's, and the packets' link times.
fn longest_way(job: Option<(u64, u64, u64)>, stream: Option<&PacketStream>) -> u64 {
    let link = |from: u64| {
        let after = stream.filter(|stream| from < stream.packets);
        after.map_or(0, |stream| {
            u128::from(stream.packets - 1 - from) * u128::from(stream.full) + u128::from(stream.last)
        })
    };
    let Some((first, other, packets)) = job else { return narrow(link(0)) };
    let ways = [0, 1, packets - 1, packets].map(|j| {
        let processor = if j == 0 { 0 } else { u128::from(first) + u128::from(j - 1) * u128::from(other) };
        processor + link(j)
    });
    narrow(ways.into_iter().fold(0, u128::max))
}

fn narrow(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl Demand for CompositeTest {
    fn due(&self, t: u64, s: u64) -> u128 {
        let (work, block, packet, constant) = self.parts(t, s);
        work.saturating_add(block.into()).saturating_add(packet.into()).saturating_add(constant.into())
    }
    fn stolen(&self) -> &StolenTime {
        &self.stolen
    }
    fn tasks(&self) -> impl ExactSizeIterator<Item = (LongRunTask, u64)> {
        self.channels.iter().map(|&(CompositeChannel { interval, deadline, cost, .. }, count)| {
            (LongRunTask { cost: cost.into(), interval, deadline }, count)
        })
    }
    /// The longest blocks of all, and the rest of B.
    fn blocks(&self) -> u128 {
        let block = self.channels.iter().map(|(channel, _)| channel.block).fold(self.other_block, u64::max);
        let packet = self.channels.iter().map(|(channel, _)| channel.largest).fold(self.other_largest, u64::max);
        u128::from(block) + u128::from(packet) + u128::from(self.constant)
    }
    fn falls(&self) -> &[u64] {
        &self.deadlines
    }
    fn set_deadline(&mut self, deadline: u64) {
        if let Some((channel, _)) = self.channels.last_mut() {
            channel.deadline = deadline;
        }
    }
    fn least_possible(&self) -> u64 {
        self.channels.last().map_or(1, |(channel, _)| channel.cost)
    }
}

/// The least deadline of the newcomer with which every channel keeps its deadline. Otherwise the first instant that fails in any case, or that
/// the test cannot tell.
///
/// The newcomer's demand asks for a longer deadline, its block for a shorter one: instants from its deadline on hold from
/// some deadline on, instants before it up to some deadline. So what holds is a range: it begins where the first kind does,
/// if until there the instants that hold without the newcomer's demand do so with its block.
pub(super) fn least_deadline(test: &mut CompositeTest, longest: u64) -> Result<u64, Verdict> {
    test.let_newcomer_block(false);
    let least = walk::least_deadline(test, longest)?;
    if test.all_block {
        // It blocks whenever it is due.
        return Ok(least);
    }
    test.let_newcomer_block(true);
    test.set_deadline(u64::MAX);
    let first = test.first().unwrap_or(u64::MAX);
    let before = walk_between(test, first, least - 1, true);
    if before == Verdict::Fits { Ok(least) } else { Err(before) }
}
