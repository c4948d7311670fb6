//! The ledger: yes without looking at each channel, or perhaps no.
//!
//! Demand until t never falls as t grows. So it is enough to know it at the ends of a fixed grid's cells, and to compare it
//! with the time at their beginnings. The grid is geometric, 1,024 cells from 1 µs to 5 s. In cell g, from `lo_g = t_{g−1} + 1`
//! to `t_g`, everything holds if
//!
//! ```text
//! W(t_g) + B + J* ≤ lo_g (1 − ρ)        where J(s) ≤ ρ s + J* for all s, and B is the longest block of all
//! ```
//!
//! because then s = lo_g is enough for all that is due by any t of the cell. Beyond the last cell the demand is below the line
//! `U t + x`, which holds from `t_{G−1}` on if it holds there and `U + ρ < 1`. Switches back are `min(Σ n, Σ n q)` as in the
//! exact test, as both sums are in the ledger; ρ and what is like it are rounded up.
//!
//! A question costs G steps for each of some ten deadlines that are tried, whatever the number of channels; so does entering a
//! channel and taking it out. Deadlines are rounded up to the beginning of a cell, 1.5 % at most. A newcomer that the ledger refuses may
//! still fit: the exact test stands behind it.
//!
//! Channels that the exact test let in may leave no room in some cells, by this account. That must not turn the ledger's every later
//! answer into no, so a newcomer is not held to cells before its deadline where it changes nothing: its demand is not there,
//! its block is one that there is in any case, no packet of its has less to spare, and J is as it was. All channels hold there before, so all hold after.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

use super::composite::Parts;
use super::link::PacketStream;
use super::machine::Machine;
use super::processor::Job;
use super::walk::{LongRunTask, ONE, StolenTime};

/// G.
const CELLS: usize = 1024;
/// Cells to a doubling: each is longer than the one before by 2^(1/46), some 1.5 %.
const PER_OCTAVE: usize = 46;
/// The end of the first cell, ns.
const FIRST: u64 = 1024;

/// t_g.
static ENDS: [u64; CELLS] = {
    // 2^(1/46) in 2⁻⁶²: the largest r whose 46th power is at most 2. By multiplying, no floats.
    let (mut root, mut high) = (1u64 << 62, (1u64 << 62) + (1u64 << 57));
    while high - root > 1 {
        let middle = root + (high - root) / 2;
        if power(middle, PER_OCTAVE) <= 1 << 63 { root = middle } else { high = middle }
    }
    let mut ends = [0; CELLS];
    let mut cell = 0;
    while cell < CELLS {
        // `2^(k/46) − 1` in 2⁻³², rounded down. Anew from the root in each octave: 2^(k/46) by repeated rounding down would drift. Only its
        // being ascending matters.
        let part = (power(root, cell % PER_OCTAVE) - (1 << 62)) >> 30;
        let base = FIRST << (cell / PER_OCTAVE);
        ends[cell] = base + ((base as u128 * part as u128) >> 32) as u64;
        cell += 1;
    }
    ends
};

/// `r^k` in 2⁻⁶², rounded down; at most 4.
const fn power(r: u64, k: usize) -> u64 {
    let (mut result, mut i) = (1u64 << 62, 0);
    while i < k {
        let product = (result as u128 * r as u128) >> 62;
        result = if product > u64::MAX as u128 { u64::MAX } else { product as u64 };
        i += 1;
    }
    result
}

/// The first cell whose end is `t` or later; `CELLS` if there is none.
fn cell_of(t: u64) -> usize {
    ENDS.partition_point(|&end| end < t)
}

/// lo_g.
fn start(cell: usize) -> u64 {
    if cell == 0 { 1 } else { ENDS[cell - 1] + 1 }
}

/// The change: a channel comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LedgerChange {
    /// It is not there yet.
    Enters,
    /// It was entered as it is.
    Leaves,
}

impl LedgerChange {
    fn of(self, value: u64, by: u64) -> u64 {
        match self {
            Self::Enters => value.saturating_add(by),
            Self::Leaves => value.saturating_sub(by),
        }
    }
}

/// Values, each with how often it is there: their least and greatest.
#[derive(Clone, Debug, Default)]
struct ValueCounts(BTreeMap<u64, u64>);

impl ValueCounts {
    fn change(&mut self, change: LedgerChange, value: u64) {
        let count = self.0.entry(value).or_insert(0);
        *count = change.of(*count, 1);
        if *count == 0 {
            self.0.remove(&value);
        }
    }
    fn least(&self) -> Option<u64> {
        self.0.first_key_value().map(|(value, _)| *value)
    }
    fn greatest(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(value, _)| *value)
    }
}

/// A long-run share, and what the demand exceeds it by.
#[derive(Clone, Copy, Debug, Default)]
struct LongRunTail {
    share: u128,
    excess: u128,
}

impl LongRunTail {
    fn of(task: LongRunTask) -> Self {
        Self { share: task.share(), excess: task.excess() }
    }
    fn plus(self, other: Self) -> Self {
        Self { share: self.share.saturating_add(other.share), excess: self.excess.saturating_add(other.excess) }
    }
    fn changed(self, change: LedgerChange, by: Self) -> Self {
        match change {
            LedgerChange::Enters => self.plus(by),
            LedgerChange::Leaves => {
                Self { share: self.share.saturating_sub(by.share), excess: self.excess.saturating_sub(by.excess) }
            }
        }
    }
}

type Cells = Box<[u64]>;

fn cells() -> Cells {
    vec![0; CELLS].into_boxed_slice()
}

/// The demand of all channels at the ends of the cells.
#[derive(Clone, Debug)]
pub(super) struct DemandLedger {
    /// Work, messages, inner preemption points.
    jobs: [Cells; 3],
    packets: Cells,
    /// Of work, of one switch a message, of one switch an inner preemption point.
    tails: [LongRunTail; 3],
    link_tail: LongRunTail,
    blocks: ValueCounts,
    largest: ValueCounts,
    smallest: ValueCounts,
    /// By how much longer than its transmission each channel's packets count at least.
    spares: ValueCounts,
}

/// The demand that a job adds: work, messages, inner preemption points.
fn added(job: &Job, t: u64) -> [u64; 3] {
    let n = job.due(t);
    [n.saturating_mul(job.cost), n, n.saturating_mul(job.inner)]
}

fn packets(stream: &PacketStream, t: u64) -> u64 {
    u64::try_from(stream.until(t)).unwrap_or(u64::MAX)
}

fn tails(job: &Job, switch: u64) -> [LongRunTail; 3] {
    let of = |cost| LongRunTail::of(LongRunTask { cost, interval: job.interval, deadline: job.deadline });
    [of(job.cost.into()), of(switch.into()), of(u128::from(switch) * u128::from(job.inner))]
}

fn link_tail(stream: &PacketStream) -> LongRunTail {
    LongRunTail::of(stream.in_the_long_run())
}

/// The room in a cell beside the channels: `lo (1 − ρ) − J* − B`, if anything.
fn room(t: u64, share: u128, taken: u128) -> Option<u64> {
    let left = u128::from(t) * ONE.checked_sub(share)? / ONE;
    u64::try_from(left.checked_sub(taken)?).ok()
}

impl DemandLedger {
    pub(super) fn new() -> Self {
        Self {
            jobs: [(); 3].map(|()| cells()),
            packets: cells(),
            tails: [LongRunTail::default(); 3],
            link_tail: LongRunTail::default(),
            blocks: ValueCounts::default(),
            largest: ValueCounts::default(),
            smallest: ValueCounts::default(),
            spares: ValueCounts::default(),
        }
    }

    /// A channel comes or goes.
    pub(super) fn change(&mut self, change: LedgerChange, switch: u64, (job, stream): Parts) {
        if let Some(job) = &job {
            for (cell, end) in ENDS.into_iter().enumerate().skip(cell_of(job.deadline)) {
                for (cells, added) in self.jobs.iter_mut().zip(added(job, end)) {
                    cells[cell] = change.of(cells[cell], added);
                }
            }
            let tails = tails(job, switch);
            self.tails = core::array::from_fn(|which| self.tails[which].changed(change, tails[which]));
            self.blocks.change(change, job.block);
        }
        if let Some(stream) = &stream {
            for (cell, end) in ENDS.into_iter().enumerate().skip(cell_of(stream.due())) {
                self.packets[cell] = change.of(self.packets[cell], packets(stream, end));
            }
            self.link_tail = self.link_tail.changed(change, link_tail(stream));
            self.largest.change(change, stream.largest);
            self.smallest.change(change, stream.smallest);
            self.spares.change(change, stream.spare);
        }
    }

    /// L_x of the smallest packet of any channel.
    pub(super) fn smallest(&self) -> Option<u64> {
        self.smallest.least()
    }

    /// The long-run shares of processor and link, interference not counted.
    pub(super) fn shares(&self) -> (u128, u128) {
        let [work, messages, inner] = self.tails;
        (work.share.saturating_add(messages.share.min(inner.share)), self.link_tail.share)
    }

    /// The least deadline on the processor at which the ledger says yes. `as_before`: J is what it is without the newcomer.
    pub(super) fn least_processor(
        &self,
        machine: &Machine,
        stolen: &StolenTime,
        as_before: bool,
        newcomer: &Job,
    ) -> Option<u64> {
        let switch = machine.switch;
        let block = machine.other_block.max(self.blocks.greatest()).max(newcomer.block);
        let taken = stolen.excess().saturating_add(block.into());
        let needs = |job: Option<&Job>, cell: usize| {
            let more = job.map_or([0; 3], |job| added(job, ENDS[cell]));
            let [work, messages, inner] =
                core::array::from_fn(|which| self.jobs[which][cell].saturating_add(more[which]));
            work.saturating_add(messages.min(inner).saturating_mul(switch))
        };
        let tail = |job: &Job| {
            let tails: [LongRunTail; 3] = core::array::from_fn(|k| self.tails[k].plus(tails(job, switch)[k]));
            let back = if tails[1].share <= tails[2].share { tails[1] } else { tails[2] };
            tails[0].plus(back)
        };
        // B(t) of the exact test is at least `other_block`, whichever channels are due by t.
        let nothing_new = as_before && newcomer.block <= machine.other_block;
        let with = |deadline| Job { deadline, ..*newcomer };
        least((stolen, taken), newcomer.deadline, with, needs, tail, nothing_new)
    }

    /// The least deadline on the link at which the ledger says yes.
    pub(super) fn least_link(&self, machine: &Machine, stolen: &StolenTime, newcomer: &PacketStream) -> Option<u64> {
        let block = machine.other_largest.max(self.largest.greatest()).max(newcomer.largest);
        let taken = stolen.excess().saturating_add(block.into()).saturating_add(machine.ahead.into());
        let needs = |stream: Option<&PacketStream>, cell: usize| {
            self.packets[cell].saturating_add(stream.map_or(0, |stream| packets(stream, ENDS[cell])))
        };
        let tail = |stream: &PacketStream| self.link_tail.plus(link_tail(stream));
        let theirs = if machine.all_block { self.largest.greatest() } else { 0 };
        // The exact test takes the least spare off all demand.
        let spares_less = self.spares.least().is_some_and(|least| newcomer.spare < least);
        let nothing_new = newcomer.largest <= machine.other_largest.max(theirs) && !spares_less;
        // Counted from when packets are enqueued at the latest.
        let with = |deadline| PacketStream { deadline, late: 0, ..*newcomer };
        let found = least((stolen, taken), newcomer.due(), with, needs, tail, nothing_new);
        found.map(|deadline| deadline.saturating_add(newcomer.late))
    }
}

/// The least beginning of a cell up to `longest` with which the newcomer fits: from there on all cells have room for what it `needs` with the others,
/// of the time beside J and what is `taken` once, and so has what comes after the last cell, by the `tail`. The cells before hold without it; they are not
/// looked at if it brings `nothing_new` there. A longer deadline never turns yes into no.
fn least<T>(
    (stolen, taken): (&StolenTime, u128),
    longest: u64,
    with: impl Fn(u64) -> T,
    needs: impl Fn(Option<&T>, usize) -> u64,
    tail: impl Fn(&T) -> LongRunTail,
    nothing_new: bool,
) -> Option<u64> {
    let room: Box<[Option<u64>]> = (0..CELLS).map(|cell| room(start(cell), stolen.share(), taken)).collect();
    let fits = |newcomer: Option<&T>, cell: usize| {
        let need = needs(newcomer, cell);
        need == 0 || room[cell].is_some_and(|room| need <= room)
    };
    let ask = |deadline, from: usize| {
        let newcomer = with(deadline);
        tail_fits(tail(&newcomer), stolen.share(), taken) && (from..CELLS).all(|cell| fits(Some(&newcomer), cell))
    };
    let last = cell_of(longest).min(CELLS - 1);
    let last = if start(last) > longest { last.checked_sub(1)? } else { last };
    if !ask(start(last), last) {
        return None;
    }
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = usize::midpoint(low, high);
        if ask(start(middle), middle) { high = middle } else { low = middle + 1 }
    }
    let found = start(high);
    (nothing_new || (0..cell_of(found)).all(|cell| fits(None, cell))).then_some(found)
}

/// U t + x + ρ t + J* + B ≤ t from the last cell on.
fn tail_fits(tail: LongRunTail, stolen: u128, taken: u128) -> bool {
    let Some(left) = ONE.checked_sub(tail.share.saturating_add(stolen)) else { return false };
    let last = u128::from(ENDS[CELLS - 1]);
    last * left / ONE >= tail.excess.saturating_add(taken)
}

#[cfg(test)]
mod tests;
