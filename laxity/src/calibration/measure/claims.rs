//! From what was counted to what is claimed.

use laxity_core::admission::confidence::{Probability, Samples, thinning};
use laxity_core::units::Duration;

use super::work::Worked;
use super::{ALPHA, Seen, WINDOWS};
use crate::calibration::{Cost, CostKind, Observer, Window};
use crate::executive::{Piece, Recorded};

/// Work is claimed so that it is exceeded once in a hundred times: what is beyond counts as stolen time, which is measured and claimed
/// by itself. Against once in a thousand, C_l was a half to a third on the machines that we test on, and the budgets hardly more.
const OF_WORK: Probability = Probability::from_millionths(10_000);
/// What is beyond the hand-over and the wake-up counts nowhere else.
const OF_WAITING: Probability = Probability::from_millionths(1000);
/// For how long a message's budget is counted on, when windows are chosen to be claimed; whoever asks later asks with its own.
const NOMINAL_SPAN: Duration = Duration::from_millis(100);
/// The largest miss probability that makes a promise `calibrated`.
const MISS_TARGET: u64 = 1_000_000;

/// Values by how often they came.
pub(super) type Counts = Vec<(Duration, u64)>;

/// The claim about one cost; `None` if it was never measured.
pub(super) fn cost(kind: CostKind, packet: Option<u32>, counts: Counts) -> Option<Cost> {
    let samples = Samples::new(counts);
    let waits = matches!(kind, CostKind::Wake | CostKind::Handover);
    let claim = samples.claim(if waits { OF_WAITING } else { OF_WORK }, ALPHA)?;
    Some(Cost {
        kind,
        packet,
        samples: samples.len(),
        median: samples.median()?,
        claimed: claim.value,
        exceedance: claim.exceedance,
        largest: samples.largest()?,
    })
}

/// What was counted of one packet size: with one channel, with few, with many, and with packets in bursts.
pub(super) struct Pieces<'a> {
    pub(super) packet: u32,
    pub(super) alone: &'a Worked,
    pub(super) few: &'a Worked,
    pub(super) many: &'a Worked,
    pub(super) bursts: &'a Worked,
}

/// The steps, which may follow a change of handler.
const STEPS: [Piece; 4] = [Piece::First, Piece::Next, Piece::Reassemble, Piece::Deliver];

impl Pieces<'_> {
    /// Every piece, however many channels there were. In bursts packets are handed over together, which no host does; they are
    /// there for what it costs to find many.
    fn all(&self, piece: Piece) -> Counts {
        if piece == Piece::Demultiplex {
            return self.bursts.counts(piece, false);
        }
        [self.alone, self.few, self.many].into_iter().flat_map(|worked| worked.counts(piece, false)).collect()
    }

    /// The claims about this packet size.
    pub(super) fn claims(&self) -> Vec<Cost> {
        let own = |piece: Piece| cost(piece.into(), Some(self.packet), self.all(piece));
        let mut claims: Vec<Cost> = Piece::ALL.into_iter().filter_map(own).collect();
        claims.extend(self.changes(&claims));
        claims
    }

    /// What a change of handler adds: while the caches are warm, and beyond that. Of all steps that to which it adds most; the sum
    /// covers every step after a change.
    fn changes(&self, claims: &[Cost]) -> Vec<Cost> {
        let mut changes = Vec::new();
        let mut add = |kind, more: Cost, base: Duration, base_median: Duration| {
            let claimed = more.claimed.saturating_sub(base);
            let change = Cost {
                kind,
                // Of what differs little either may come out larger.
                median: more.median.saturating_sub(base_median).min(claimed),
                claimed,
                largest: more.largest.saturating_sub(base).max(claimed),
                ..more
            };
            match changes.iter_mut().find(|other: &&mut Cost| other.kind == kind) {
                Some(other) if other.claimed >= change.claimed => {}
                Some(other) => *other = change,
                None => changes.push(change),
            }
        };
        for step in STEPS {
            let Some(base) = claims.iter().find(|cost| cost.kind == step.into()) else { continue };
            let switched = |worked: &Worked| cost(step.into(), Some(self.packet), worked.counts(step, true));
            let warm = switched(self.few);
            if let Some(warm) = warm {
                add(CostKind::Switch, warm, base.claimed, base.median);
            }
            let (warm, warm_median) = warm.map_or((base.claimed, base.median), |warm| (warm.claimed, warm.median));
            if let Some(cold) = switched(self.many) {
                add(CostKind::Cache, cold, warm.max(base.claimed), warm_median.max(base.median));
            }
        }
        changes
    }
}

/// What is claimed of windows, and what was seen in them.
pub(super) struct Claimed {
    pub(super) claimed: Vec<Window>,
    pub(super) seen: Vec<Seen>,
}

/// The claims of one observer, which together with the other's are wrong in a share [`ALPHA`] of calibrations at most.
pub(super) fn windows(observer: Observer, measured: &[Recorded]) -> Claimed {
    let alpha = ALPHA.divided_by(2 * WINDOWS.len() as u64);
    let mut claimed = Claimed { claimed: Vec::new(), seen: Vec::new() };
    for Recorded { length: window, values, stride: recorded, windows, largest } in measured {
        let counts = counts(values);
        let samples = Samples::new(counts.iter().copied());
        let touched = NOMINAL_SPAN.div_ceil(*window).saturating_add(1).saturating_mul(WINDOWS.len() as u64);
        let target = Probability::ONE.divided_by(touched.saturating_mul(MISS_TARGET));
        if let Some(median) = samples.median() {
            // Where nothing can be claimed, all of a window may be stolen, and never more.
            let all = (*windows, *window, Probability::ZERO);
            let (stride, budget, exceedance) = match thinning::claim(values, target, alpha) {
                Some(thinned) if thinned.claim.value < *window => {
                    (thinned.stride * recorded, thinned.claim.value, thinned.claim.exceedance)
                }
                Some(thinned) => (thinned.stride * recorded, *window, Probability::ZERO),
                None => all,
            };
            claimed.claimed.push(Window {
                observer,
                window: *window,
                windows: *windows,
                stride,
                median,
                budget,
                exceedance,
                largest: *largest,
            });
        }
        claimed.seen.push(Seen { observer, window: *window, counts });
    }
    claimed
}

/// By length, then by observer.
pub(super) fn merge(spun: Vec<Window>, worked: Vec<Window>) -> Vec<Window> {
    let mut windows: Vec<Window> = spun.into_iter().chain(worked).collect();
    windows.sort_by_key(|window| (window.window, window.observer));
    windows
}

fn counts(values: &[u32]) -> Counts {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let alike = sorted.chunk_by(|one, other| one == other);
    alike.map(|alike| (Duration::from_nanos(alike[0].into()), alike.len() as u64)).collect()
}

#[cfg(test)]
mod tests {
    use laxity_core::admission::confidence::upper_bound;

    use super::*;

    #[test]
    fn windows_that_were_passed_over_carry_no_claim() {
        // A seventh of 70,000 windows was kept, and the longest stall fell into another one.
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 47) as u32
        };
        let values: Vec<u32> = std::iter::repeat_with(&mut draw).take(10_000).collect();
        let largest = Duration::from_micros(900);
        let length = Duration::from_millis(1);
        let recorded = Recorded { length, values, stride: 7, windows: 70_000, largest };
        let claimed = windows(Observer::Spinning, &[recorded]).claimed;
        let [Window { windows, stride, exceedance, largest: told, .. }] = claimed[..] else { panic!("{claimed:?}") };
        assert_eq!((windows, told, stride % 7), (70_000, largest, 0));
        assert!(exceedance >= upper_bound(0, windows / stride, ALPHA.divided_by(8)), "{}", exceedance.parts());
    }
}
