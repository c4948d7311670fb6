//! Choosing P and the packet size S with which most channels are admitted [channels §3.3].
//!
//! "P and S determine the granularity at which the CPU and link, respectively, are multiplexed between channels", and both ends
//! are bad. With a small P messages are interrupted, and the inputs are looked at, more often, which costs processor time. With a large P
//! a message that comes waits longer for the handler that runs, and a frame that has arrived waits longer to be found. Small packets
//! cost the processor more for the same bytes; large ones keep the link from others for longer. The paper takes what maximises
//! admissibility "while delivering reasonable data transfer throughput". So do we, by asking admission itself, for each S with
//! the costs that were measured with it; of the reference channels ([`Reference`]) one kind moves bulk, which stands for
//! throughput.
//!
//! **What is counted.** Two hosts alike, each of which sends n channels to the other: an executive has n sending and n
//! receiving stages. Channels of one kind are asked for one after the other until one is refused, as on live hosts: the least
//! stages on both sides, then the rest of the deadline in proportion to them. The stages of the n-th depend on those of the ones before
//! it, so a count cannot be found by bisection; a limit ([`MOST`]) bounds the work.
//!
//! **What is maximised.** For each rule the sum, over the kinds, of the count as a share of the greatest count that any S, P and
//! rule has. Sums within a fiftieth of the greatest are alike, since costs are not known better. Of these the smallest P wins, as
//! it keeps others waiting least, then the largest S, as it moves most bytes for its costs, then the split rule.
//!
//! A P with which looks do not keep up with the link ([`Admission::looks_keep_up`]) is not taken, as long as there is another.
//!
//! Left out: the share of best effort; the MTU (only sizes that the path carries may be asked about); other executives on the link.

use laxity_core::admission::answer::{Role, Rule};
use laxity_core::admission::route::{self, Hop};
use laxity_core::admission::{Admission, Refusal, ReservationId, Settings};
use laxity_core::contract::{Contract, ContractError};
use laxity_core::limits;
use laxity_core::platform::{Platform, PlatformError};
use laxity_core::units::Duration;

mod reference;
#[cfg(test)]
mod tests;

pub use reference::Reference;

/// The values of P that are compared.
pub const QUANTA: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Most channels of one kind that are counted, in each direction. Beyond twice as many stages admission asks its ledger first,
/// whose rounding would hide the differences.
pub const MOST: u32 = 32;
/// Sums that are less than the greatest by one part in so many, at most, are alike.
const ALIKE: u64 = 50;
const RULES: [Rule; 2] = [Rule::Split, Rule::Composite];

/// The numbers of channels that are admitted for each S and P, and the best S and P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// S: the packet sizes that were compared, ascending, bytes.
    pub sizes: Vec<u32>,
    /// P: the quanta that were compared, ascending.
    pub quanta: Vec<u32>,
    /// The kinds of channels that were counted.
    pub references: Vec<Reference>,
    /// The rule under which most are admitted.
    pub rule: Rule,
    /// One for each S and P, those of the smallest S first; under `rule`.
    pub cells: Vec<Cell>,
    /// The index in `cells` of the best one.
    pub best: usize,
    /// The channels that the other rule admits there, by kind.
    pub other_rule: Vec<u32>,
}

/// The channels that one S and P admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// S, bytes.
    pub packet: u32,
    /// P.
    pub quantum: u32,
    /// The numbers of channels that are granted in each direction, by kind; [`MOST`] for so many or more.
    pub counts: Vec<u32>,
    /// The sum of the counts, each as parts per million of the greatest one of its kind.
    pub score_ppm: u64,
}

/// The reason why there is nothing to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// Nothing to compare.
    #[error("no packet size was given to choose from")]
    NoSizes,
    /// An impossible platform.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// A platform on which the reference channels are impossible.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// No channel of some kind is granted anywhere, whatever its deadline.
    #[error("not one {kind} channel is granted with any packet size and quantum, whatever its deadline: {refusal}")]
    NothingFits {
        /// The name of the kind.
        kind: &'static str,
        /// The refusal on the first platform.
        refusal: Refusal,
    },
}

impl Choice {
    /// The S and P that are best.
    pub fn chosen(&self) -> &Cell {
        &self.cells[self.best]
    }

    /// The cell of the `size`-th S and the `quantum`-th P.
    pub fn cell(&self, size: usize, quantum: usize) -> Option<&Cell> {
        if quantum >= self.quanta.len() { None } else { self.cells.get(size * self.quanta.len() + quantum) }
    }

    /// The place of the best S in `sizes`, and that of the best P in `quanta`.
    pub fn place(&self) -> (usize, usize) {
        (self.best / self.quanta.len(), self.best % self.quanta.len())
    }

    /// The reason for these, in a few sentences: the channels that are admitted, and those that the neighbours admit.
    pub fn why(&self) -> String {
        let best = self.chosen();
        let (size, quantum) = self.place();
        let beside = [
            (Some(size), quantum.checked_sub(1), "P"),
            (Some(size), Some(quantum + 1), "P"),
            (size.checked_sub(1), Some(quantum), "S"),
            (Some(size + 1), Some(quantum), "S"),
        ];
        let beside = beside.into_iter().filter_map(|(size, quantum, differs)| {
            let cell = self.cell(size?, quantum?)?;
            let found = if cell.counts == best.counts { "as many".to_owned() } else { self.told(cell) };
            let value = if differs == "P" { cell.quantum } else { cell.packet };
            Some(format!("; with {differs} = {value}: {found}"))
        });
        let (quantum, packet, admitted) = (best.quantum, best.packet, self.told(best));
        format!("P = {quantum} and S = {packet} bytes admit {admitted}{}.", beside.collect::<String>())
    }

    /// `12 control, 4 video, 1 bulk`.
    fn told(&self, cell: &Cell) -> String {
        let counted = |(reference, &count): (&Reference, &u32)| {
            let most = if count == MOST { "at least " } else { "" };
            format!("{most}{count} {}", reference.name)
        };
        self.references.iter().zip(&cell.counts).map(counted).collect::<Vec<_>>().join(", ")
    }
}

/// Compares every packet size with each of [`QUANTA`]. Each platform has the costs that were measured with its S; its own
/// P does not matter.
///
/// Deterministic. Six sizes take 0.1 to 2 s of a processor in a release build: more if deadlines are long in proportion to intervals.
///
/// # Errors
/// There is no size, a platform is out of its ranges, or nothing is granted anywhere.
pub fn choose(platforms: &[(u32, Platform)]) -> Result<Choice, ChooseError> {
    choose_among(platforms, &QUANTA)
}

/// As [`choose`], with these P, not none.
fn choose_among(platforms: &[(u32, Platform)], quanta: &[u32]) -> Result<Choice, ChooseError> {
    let mut sorted: Vec<&(u32, Platform)> = platforms.iter().collect();
    sorted.sort_by_key(|(packet, _)| *packet);
    sorted.dedup_by_key(|(packet, _)| *packet);
    let cells: Vec<Platform> = sorted
        .iter()
        .flat_map(|(packet, platform)| {
            quanta.iter().map(|&quantum| Platform { packet: *packet, quantum, ..platform.clone() })
        })
        .collect();
    if cells.is_empty() {
        return Err(ChooseError::NoSizes);
    }
    for platform in &cells {
        platform.validate()?;
    }
    let references = reference::references(&cells, quanta.len())?;
    let by_rule = RULES.map(|rule| -> Result<Vec<Vec<u32>>, PlatformError> {
        let counts = |platform| references.iter().map(|one| count(platform, rule, &one.contract)).collect();
        cells.iter().map(counts).collect()
    });
    let [split, composite] = by_rule;
    let keep_up = cells.iter().map(|platform| Ok(host(platform, Rule::Split)?.looks_keep_up()));
    let mut usable = keep_up.collect::<Result<Vec<bool>, PlatformError>>()?;
    if !usable.contains(&true) {
        usable.fill(true);
    }
    Ok(best(&sorted, quanta, references, [split?, composite?], &usable))
}

/// The choice that follows from the counts, by rule, by cell, by kind; the best one is among the cells that are `usable`.
fn best(
    sizes: &[&(u32, Platform)],
    quanta: &[u32],
    references: Vec<Reference>,
    counts: [Vec<Vec<u32>>; 2],
    usable: &[bool],
) -> Choice {
    let of_kind = |kind: usize| counts.iter().flatten().map(move |cell| u64::from(cell[kind]));
    let greatest: Vec<u64> = (0..references.len()).map(|kind| of_kind(kind).max().unwrap_or(0).max(1)).collect();
    let score = |cell: &[u32]| -> u64 {
        cell.iter().zip(&greatest).map(|(&count, most)| u64::from(count) * 1_000_000 / most).sum()
    };
    let scores = [0, 1].map(|rule| counts[rule].iter().map(|cell| score(cell)).collect::<Vec<u64>>());
    let places = scores[0].len();
    let all = || (0..places * 2).map(|index| (index % 2, index / 2)).filter(|&(_, place)| usable[place]);
    let highest = all().map(|(rule, place)| scores[rule][place]).max().unwrap_or(0);
    // By P from the smallest, by S from the largest, the split rule before the other.
    let order = all().min_by_key(|&(rule, place)| {
        let (size, quantum) = (place / quanta.len(), place % quanta.len());
        (scores[rule][place] < highest - highest / ALIKE, quantum, std::cmp::Reverse(size), rule)
    });
    let (rule, best) = order.unwrap_or((0, 0));
    let other_rule = counts[1 - rule][best].clone();
    let [split, composite] = counts;
    let chosen = if rule == 0 { split } else { composite };
    let cells = chosen.into_iter().enumerate().map(|(place, counts)| Cell {
        packet: sizes[place / quanta.len()].0,
        quantum: quanta[place % quanta.len()],
        counts,
        score_ppm: scores[rule][place],
    });
    Choice {
        sizes: sizes.iter().map(|(packet, _)| *packet).collect(),
        quanta: quanta.to_vec(),
        references,
        rule: RULES[rule],
        cells: cells.collect(),
        best,
        other_rule,
    }
}

/// The number of channels with this contract that two such hosts admit in each direction, one after the other; [`MOST`] at most.
fn count(platform: &Platform, rule: Rule, contract: &Contract) -> Result<u32, PlatformError> {
    let mut host = host(platform, rule)?;
    Ok((0..MOST).find(|_| open(&mut host, contract).is_err()).unwrap_or(MOST))
}

fn host(platform: &Platform, rule: Rule) -> Result<Admission, PlatformError> {
    Admission::with_settings(platform.clone(), Settings::work_conserving(rule))
}

/// One more channel to a host alike and one from it.
fn open(host: &mut Admission, contract: &Contract) -> Result<(), Refusal> {
    let (ids, sending, receiving) = least(host, contract, contract.deadline())?;
    let here = Hop { least: sending, propagation: outside(host) };
    let there = Hop { least: receiving, propagation: Duration::ZERO };
    // It fits: each side was asked within what the others left of the deadline.
    if let Ok(deadlines) = route::compose(&[here, there], contract.deadline()) {
        for (id, deadline) in ids.into_iter().zip(deadlines) {
            // A stage that cannot be longer stays as it is.
            let _ = host.relax(id, deadline);
        }
    }
    Ok(())
}

/// Reserves the least stages on both sides: the sending one with its handover, and the receiving one.
fn least(
    host: &mut Admission,
    contract: &Contract,
    deadline: Duration,
) -> Result<([ReservationId; 2], Duration, Duration), Refusal> {
    let budget = deadline.saturating_sub(outside(host));
    let (sends, stages) = host.reserve(contract, Role::Sends, budget)?;
    let sending = host.platform().handover + stages.total();
    let left = budget.saturating_sub(sending);
    let (receives, stages) = host.reserve(contract, Role::Receives, left)?;
    Ok(([sends, receives], sending, stages.total()))
}

/// The time outside both hosts' stages.
fn outside(host: &Admission) -> Duration {
    let platform = host.platform();
    platform.propagation + platform.clock_error + host.input_delay()
}

/// The least deadline, from end to end, that one channel alone is granted, or why it is refused.
fn least_alone(
    platform: &Platform,
    rule: Rule,
    contract: &Contract,
) -> Result<Result<Duration, Refusal>, PlatformError> {
    let mut host = host(platform, rule)?;
    let found = least(&mut host, contract, limits::MAX_DEADLINE);
    Ok(found.map(|(_, sending, receiving)| outside(&host) + sending + receiving))
}
