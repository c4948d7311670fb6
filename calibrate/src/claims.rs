//! The claims that follow from the counts.

use laxity_core::admission::confidence::batches::{self, Batching, FEWEST_BATCHES};
use laxity_core::admission::confidence::{Probability, Samples, exceedances_allowed, touched};
use laxity_core::units::Duration;

use super::work::RunMeasurements;
use super::{ALPHA, StolenWindows, WINDOWS};
use laxity::calibration::derive::{NOMINAL_SPAN, TOLERABLE_FROM, TOLERANCES, of_handover, of_windows};
use laxity::calibration::{Cost, Observer, Piece, Window};
use laxity::metering::WindowRecord;

/// Work is claimed so that it is exceeded once in ten times: what is beyond counts as stolen time, which is measured and claimed
/// by itself. On the machines that we test on, C_l is a half to a third of what it is at once in a hundred, and the budgets hardly grow: they
/// follow from rare stalls.
const OF_WORK: Probability = Probability::from_millionths(100_000);
/// Time beyond the hand-over and the wake-up counts nowhere else.
const OF_WAITING: Probability = Probability::from_millionths(1000);
/// The largest miss probability that makes a promise `calibrated`.
const MISS_TARGET: u64 = 1_000_000;

fn target(kind: Piece) -> Probability {
    if matches!(kind, Piece::Wake | Piece::Handover) { OF_WAITING } else { OF_WORK }
}

/// The share of calibrations in which the claim about a cost may be wrong. Time beyond other costs counts as stolen; guarantees rest on claims about hand-overs as
/// on those about windows, so all of these together are wrong in a share ALPHA at most, half of it each.
fn alpha(kind: Piece) -> Probability {
    match kind {
        Piece::Handover => ALPHA.divided_by(2 * (1 + TOLERANCES.len() as u64)),
        _ => ALPHA,
    }
}

/// Values by how often they came.
pub(super) type Counts = Vec<(Duration, u64)>;

/// The claim about one cost; `None` if it was never measured.
pub(super) fn cost(kind: Piece, packet: Option<u32>, counts: Counts) -> Option<Cost> {
    cost_at(kind, packet, counts, target(kind))
}

/// As [`cost`], for another target.
fn cost_at(kind: Piece, packet: Option<u32>, counts: Counts, target: Probability) -> Option<Cost> {
    let samples = Samples::new(counts);
    let claim = samples.claim(target, alpha(kind))?;
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

/// The counts of one packet size: with one channel, with few, with many, with packets far apart, and in bursts.
pub(super) struct PieceSamples<'a> {
    pub(super) packet: u32,
    pub(super) alone: &'a RunMeasurements,
    pub(super) few: &'a RunMeasurements,
    pub(super) many: &'a RunMeasurements,
    pub(super) sparse: &'a RunMeasurements,
    pub(super) bursts: &'a RunMeasurements,
}

/// The steps, which may follow a change of handler.
const STEPS: [Piece; 4] = [Piece::First, Piece::Next, Piece::Reassemble, Piece::Deliver];

impl PieceSamples<'_> {
    /// The claim about a piece: that of all runs together, or of the run in which it was dearest, for a host may have any of these
    /// loads. In bursts packets are handed over together, which no host does; they are there for what it costs to find many.
    fn own(&self, piece: Piece, target: Probability) -> Option<Cost> {
        let runs = match piece {
            Piece::Demultiplex => vec![self.bursts],
            _ => vec![self.alone, self.few, self.many, self.sparse],
        };
        // What always follows a change of handler costs what it does then.
        let never_alone = runs.iter().all(|run| run.counts(piece, false).is_empty());
        let counts = |worked: &RunMeasurements| worked.counts(piece, never_alone);
        let claim = |counts| cost_at(piece, Some(self.packet), counts, target);
        let all = claim(runs.iter().flat_map(|run| counts(run)).collect())?;
        // A run in which it came too rarely says nothing by itself of what is exceeded so rarely: it counts with the others only.
        let is_enough = |cost: &Cost| exceedances_allowed(cost.samples, target, alpha(piece)).is_some();
        let each = runs.iter().filter_map(|run| claim(counts(run))).filter(is_enough);
        // The median may be that of another run, and the least that is known of any of them counts.
        Some(each.fold(all, |dearest, cost| Cost {
            claimed: dearest.claimed.max(cost.claimed),
            exceedance: dearest.exceedance.max(cost.exceedance),
            ..dearest
        }))
    }

    /// The claims about this packet size; those about the hand-over for every tolerance, too.
    pub(super) fn claims(&self) -> Vec<Cost> {
        let timed = Piece::ALL.into_iter().filter(|piece| piece.is_timed());
        let mut claims: Vec<Cost> = timed.filter_map(|piece| self.own(piece, target(piece))).collect();
        for tolerance in TOLERANCES {
            let cost = self.own(Piece::Handover, of_handover(tolerance));
            let last = claims.iter().rfind(|other| other.kind == Piece::Handover).copied();
            let is_less =
                |cost: &Cost| last.is_some_and(|last| cost.claimed < last.claimed && cost.exceedance > last.exceedance);
            claims.extend(cost.filter(is_less));
        }
        claims.extend(self.changes(&claims));
        claims
    }

    /// The time that a change of handler adds: while the caches are warm, and beyond that. Of all steps, the one to which it adds most; the sum
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
            let Some(base) = claims.iter().find(|cost| cost.kind == step) else { continue };
            let switched = |worked: &RunMeasurements| cost(step, Some(self.packet), worked.counts(step, true));
            let warm = switched(self.few);
            if let Some(warm) = warm {
                add(Piece::Switch, warm, base.claimed, base.median);
            }
            let (warm, warm_median) = warm.map_or((base.claimed, base.median), |warm| (warm.claimed, warm.median));
            if let Some(cold) = switched(self.many) {
                add(Piece::Cache, cold, warm.max(base.claimed), warm_median.max(base.median));
            }
        }
        changes
    }
}

/// The claims about windows, and the observations in them.
pub(super) struct ClaimedWindows {
    pub(super) claimed: Vec<Window>,
    pub(super) seen: Vec<StolenWindows>,
}

/// The targets of windows of one length: the rarest, and what tolerances ask for of those that are long enough that a message meets few of them.
fn targets(window: Duration) -> Vec<Probability> {
    let touched = touched(NOMINAL_SPAN, window).saturating_mul(WINDOWS.len() as u64);
    let rarest = Probability::ONE.divided_by(touched.saturating_mul(MISS_TARGET));
    let tolerated = TOLERANCES.into_iter().filter(|_| window >= TOLERABLE_FROM).map(of_windows);
    std::iter::once(rarest).chain(tolerated).collect()
}

/// The number of claims of one observer.
fn targets_of_all() -> u64 {
    WINDOWS.into_iter().map(|window| targets(window).len() as u64).sum()
}

/// The claims of one observer, which together with the other's are wrong in half a share [`ALPHA`] of calibrations at most. Each set has
/// windows of all lengths: those of one processor, which are claimed by themselves and of which the worst counts; or what is divided
/// `among` so many processors in unknown turns, of which one may have all the exceedances.
pub(super) fn windows(observer: Observer, sets: &[Vec<WindowRecord>], among: u64) -> ClaimedWindows {
    let alpha = ALPHA.divided_by(4 * targets_of_all()).divided_by(sets.len() as u64);
    let mut claimed = ClaimedWindows { claimed: Vec::new(), seen: Vec::new() };
    for window in WINDOWS {
        let recorded: Vec<&WindowRecord> = sets.iter().flatten().filter(|recorded| recorded.length == window).collect();
        if recorded.is_empty() {
            continue;
        }
        let values: Vec<u32> = recorded.iter().flat_map(|recorded| recorded.values.iter().copied()).collect();
        let counts = counts(values.clone());
        let windows = recorded.iter().map(|recorded| recorded.windows).sum();
        if let Some(median) = Samples::new(counts.iter().copied()).median() {
            let largest = recorded.iter().map(|recorded| recorded.largest).max().unwrap_or(window);
            let apart = window * recorded[0].stride;
            let of_time = |values: usize| Batching::of(apart, apart * values as u64);
            let batching = of_time(values.len() / recorded.len());
            let fewest = recorded.iter().map(|recorded| recorded.values.len()).min().unwrap_or(0);
            // What was seen too rarely carries no claim: the largest is a budget by which bounds
            // can be computed and watched, and nothing is said of how often it is exceeded.
            let unclaimed = Window {
                observer,
                window,
                windows,
                parts: 1,
                stride: recorded[0].stride,
                batches: 1,
                batch: windows,
                bad: windows,
                median,
                budget: largest,
                exceedance: Probability::ONE,
                largest,
            };
            let of_target = |target| -> Option<Window> {
                if fewest > 0 && fewest / batching.windows < FEWEST_BATCHES {
                    // Too few of each processor: of all together, of which one may have all the exceedances.
                    let among = among.saturating_mul(recorded.len() as u64);
                    let together = of_time(values.len());
                    return claim(unclaimed, unclaimed.stride, &values, (together, target, alpha), among);
                }
                let of = |recorded: &&WindowRecord| {
                    claim(unclaimed, recorded.stride, &recorded.values, (batching, target, alpha), among)
                };
                let each: Vec<Window> = recorded.iter().map(of).collect::<Option<_>>()?;
                let parts = each.len() as u64;
                each.into_iter().map(|claim| Window { parts, ..claim }).reduce(worse)
            };
            let mut before: Option<Window> = None;
            for target in targets(window) {
                let claim = match (of_target(target), before) {
                    (claim, None) => claim.unwrap_or(unclaimed),
                    // No window can lose more than itself, and what promises less has a smaller budget.
                    (Some(claim), Some(before))
                        if claim.budget < before.budget && claim.exceedance > before.exceedance =>
                    {
                        claim
                    }
                    (_, Some(_)) => continue,
                };
                let exceedance = if claim.budget == window { Probability::ZERO } else { claim.exceedance };
                before = Some(Window { exceedance, ..claim });
                claimed.claimed.extend(before);
            }
        }
        claimed.seen.push(StolenWindows { observer, window, counts });
    }
    claimed
}

/// The claim that is true of both; with the batches of the one of which less is known.
fn worse(one: Window, other: Window) -> Window {
    let rarer = if other.exceedance > one.exceedance { other } else { one };
    Window { budget: one.budget.max(other.budget), ..rarer }
}

/// The claim of every `recorded`-th window, of which `values` are the stolen time; `None` if nothing can be claimed.
fn claim(
    unclaimed: Window,
    recorded: u64,
    values: &[u32],
    (batching, target, alpha): (Batching, Probability, Probability),
    among: u64,
) -> Option<Window> {
    let batched = batches::claim(values, unclaimed.window, batching, target, alpha)?;
    let exceedance = batched.exceedance.times(among);
    let Batching { windows, most_bad } = batched.batching;
    let [batch, bad] = [windows, most_bad].map(|windows| windows as u64 * recorded);
    let claim = Window { batches: batched.batches, batch, bad, budget: batched.budget, exceedance, ..unclaimed };
    (exceedance < Probability::ONE).then_some(claim)
}

/// By length, then by observer.
pub(super) fn merge(spun: Vec<Window>, worked: Vec<Window>) -> Vec<Window> {
    let mut windows: Vec<Window> = spun.into_iter().chain(worked).collect();
    windows.sort_by_key(|window| (window.window, window.observer));
    windows
}

fn counts(values: Vec<u32>) -> Counts {
    let mut sorted = values;
    sorted.sort_unstable();
    let alike = sorted.chunk_by(|one, other| one == other);
    alike.map(|alike| (Duration::from_nanos(alike[0].into()), alike.len() as u64)).collect()
}

#[cfg(test)]
mod tests {
    use laxity_core::admission::confidence::upper_bound;
    use laxity_core::platform::Platform;
    use proptest::prelude::*;

    use super::*;

    /// A calibration that makes sense, of some host.
    fn example() -> Calibration {
        Calibration::parse(include_str!("../../fuzz/corpus/system_file/calibration"), "calibration").unwrap()
    }
    use laxity::HostStatus;
    use laxity::Scheduling;
    use laxity::calibration::{Backing, Calibration, Costs};
    use laxity::metering::Histograms;

    /// Executives at work that took so many nanoseconds for these pieces, the second of each pair after a change of handler.
    fn worked(pieces: &[(Piece, [&[u64]; 2])]) -> RunMeasurements {
        let histograms = [Histograms::new(), Histograms::new()];
        for (number, (piece, times)) in pieces.iter().enumerate() {
            for (switched, times) in [(false, times[0]), (true, times[1])] {
                let histogram = histograms[number % 2].of(*piece, switched);
                times.iter().for_each(|&nanos| histogram.record(nanos));
            }
        }
        let costs = Costs::from(Platform::assumed_host());
        let status = HostStatus {
            backing: Backing::expected(&costs),
            costs,
            link: laxity::LinkKind::Udp,
            scheduling: Scheduling::Ordinary,
            memory_locked: false,
            kept_awake: false,
            notes: Vec::new(),
        };
        RunMeasurements { histograms, windows: Vec::new(), status }
    }

    /// One executive that did every step so, first without and then with a change of handler.
    fn stepped(times: &[[Vec<u64>; 2]; 4]) -> RunMeasurements {
        let pieces: Vec<_> = STEPS
            .into_iter()
            .zip(times)
            .map(|(piece, [stayed, switched])| (piece, [&stayed[..], &switched[..]]))
            .collect();
        worked(&pieces)
    }

    fn claims_of([alone, few, many, sparse, bursts]: [&RunMeasurements; 5]) -> Vec<Cost> {
        PieceSamples { packet: 512, alone, few, many, sparse, bursts }.claims()
    }

    fn nanos(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    fn of(claims: &[Cost], kind: Piece) -> Cost {
        *claims.iter().find(|cost| cost.kind == kind).unwrap_or_else(|| panic!("{kind:?} in {claims:?}"))
    }

    #[test]
    fn a_change_of_handler_is_what_it_adds_to_the_step_that_suffers_most() {
        let bases = [40, 30, 20, 10];
        let alone = stepped(&bases.map(|base| [vec![base], Vec::new()]));
        let adding =
            |more: [u64; 4]| stepped(&[0, 1, 2, 3].map(|step| [vec![bases[step]], vec![bases[step] + more[step]]]));
        let (few, many) = (adding([3, 5, 2, 1]), adding([10, 6, 20, 1]));
        let bursts = worked(&[(Piece::Demultiplex, [&[7], &[]])]);
        let claims = claims_of([&alone, &few, &many, &worked(&[]), &bursts]);
        let (switch, cache) = (of(&claims, Piece::Switch), of(&claims, Piece::Cache));
        // Of the second step, and of the third: 20 beyond it of which 2 are there with warm caches, too.
        assert_eq!((switch.claimed, cache.claimed), (nanos(5), nanos(18)));
        assert_eq!((switch.packet, switch.samples), (Some(512), 1));
        for (kind, base) in [(Piece::First, 40), (Piece::Next, 30), (Piece::Reassemble, 20), (Piece::Deliver, 10)] {
            // Steps that followed no change, from every run but bursts.
            assert_eq!((of(&claims, kind).claimed, of(&claims, kind).samples), (nanos(base), 3));
        }
        assert_eq!(of(&claims, Piece::Demultiplex).claimed, nanos(7));
        assert!(claims.iter().all(|cost| cost.kind != Piece::Timer), "it was never measured");
    }

    #[test]
    fn a_cost_is_that_of_the_dearest_run() {
        let often: &[u64] = &[10; 2000];
        let busy = worked(&[(Piece::Next, [often, &[]]), (Piece::Demultiplex, [&[90], &[]])]);
        let sparse = worked(&[(Piece::Next, [&[60; 30], &[]])]);
        let bursts = worked(&[(Piece::Next, [&[99], &[]]), (Piece::Demultiplex, [&[20], &[]])]);
        let claims = claims_of([&busy, &busy, &busy, &sparse, &bursts]);
        let next = of(&claims, Piece::Next);
        assert_eq!((next.claimed, next.median, next.samples), (nanos(60), nanos(10), 6030));
        assert_eq!(of(&claims, Piece::Demultiplex).claimed, nanos(20), "bursts alone tell");
        // That is once in ten times, as 30 samples of the dearest carry.
        assert!(next.exceedance <= OF_WORK && next.exceedance >= upper_bound(0, 30, ALPHA), "{next:?}");
        // In a run with hardly any the claim would be whatever happened to them.
        let hardly = worked(&[(Piece::Next, [&[700, 60], &[]])]);
        let next = of(&claims_of([&busy, &busy, &hardly, &busy, &bursts]), Piece::Next);
        assert_eq!((next.claimed, next.largest, next.samples), (nanos(10), nanos(700), 6002));
        assert!(next.exceedance <= OF_WORK);
        // If there are only such runs, together they are all that is known.
        let next = of(&claims_of([&hardly, &hardly, &hardly, &hardly, &bursts]), Piece::Next);
        assert_eq!((next.claimed, next.exceedance), (nanos(700), upper_bound(0, 8, ALPHA)));
    }

    #[test]
    fn a_change_that_makes_a_step_no_longer_costs_nothing() {
        let slow = [vec![50; 9], vec![20; 9]];
        let executive = stepped(&[slow.clone(), slow.clone(), slow.clone(), slow]);
        let claims = claims_of([&executive; 5]);
        for kind in [Piece::Switch, Piece::Cache] {
            assert_eq!((of(&claims, kind).claimed, of(&claims, kind).median), (nanos(0), nanos(0)));
        }
        assert_eq!(claims.iter().filter(|cost| cost.kind == Piece::Demultiplex).count(), 0);
    }

    /// The time that a step took, with and without a change of handler: at least once without.
    fn times() -> impl Strategy<Value = [[Vec<u64>; 2]; 4]> {
        let nanos = || 0..3_000_000u64;
        let one = move || (prop::collection::vec(nanos(), 1..60), prop::collection::vec(nanos(), 0..60));
        [one(), one(), one(), one()].prop_map(|steps| steps.map(|(stayed, switched)| [stayed, switched]))
    }

    proptest! {
        #[test]
        fn base_switch_and_cache_cover_every_step(alone in times(), few in times(), many in times(), sparse in times()) {
            let [alone, few, many, sparse] = [alone, few, many, sparse].map(|times| stepped(&times));
            let claims = claims_of([&alone, &few, &many, &sparse, &worked(&[])]);
            let added = |kind| claims.iter().find(|cost| cost.kind == kind).map_or(Duration::ZERO, |cost| cost.claimed);
            let (switch, cache) = (added(Piece::Switch), added(Piece::Cache));
            for step in STEPS {
                let base = of(&claims, step).claimed;
                for run in [&alone, &few, &many, &sparse] {
                    let own = cost(step, None, run.counts(step, false));
                    // What came too rarely counts with the others, of which all together may be claimed below its largest.
                    let is_enough = |own: &Cost| exceedances_allowed(own.samples, OF_WORK, ALPHA).is_some();
                    prop_assert!(own.filter(is_enough).is_none_or(|own| own.claimed <= base), "{:?}", step);
                }
                let after_change = |worked: &RunMeasurements| cost(step, None, worked.counts(step, true));
                if let Some(warm) = after_change(&few) {
                    prop_assert!(base + switch >= warm.claimed, "{:?}", step);
                }
                if let Some(cold) = after_change(&many) {
                    prop_assert!(base + switch + cache >= cold.claimed, "{:?}", step);
                }
            }
            for cost in claims {
                prop_assert!(cost.median <= cost.claimed && cost.claimed <= cost.largest && cost.samples > 0, "{:?}", cost);
            }
        }
    }

    #[test]
    fn costs_are_claimed_by_order_statistics() {
        // One in ten is longer: of a thousand, the claim leaves some of them above, but fewer.
        let counts = vec![(nanos(10), 900), (nanos(1000), 100)];
        let work = cost(Piece::Next, Some(100), counts.clone()).unwrap();
        assert_eq!((work.claimed, work.median, work.largest), (nanos(1000), nanos(10), nanos(1000)));
        assert!(work.exceedance <= OF_WORK);
        let enough = vec![(nanos(10), 99_900), (nanos(1000), 100)];
        assert_eq!(cost(Piece::Next, Some(100), enough.clone()).unwrap().claimed, nanos(10));
        // What is beyond a hand-over counts nowhere else, so it is claimed more rarely exceeded.
        for waiting in [Piece::Handover, Piece::Wake] {
            let waiting = cost(waiting, None, enough.clone()).unwrap();
            assert!(waiting.claimed == nanos(1000) && waiting.exceedance <= OF_WAITING, "{waiting:?}");
        }
        // Three samples carry next to nothing, and say so.
        let few = cost(Piece::Timer, None, vec![(nanos(5), 3)]).unwrap();
        assert_eq!(few.exceedance, upper_bound(0, 3, ALPHA));
        assert!(cost(Piece::Timer, None, Vec::new()).is_none());
    }

    /// Windows one after the other; the numbers are scattered, so that none depends on its neighbours.
    fn scattered(length: usize, most: u32) -> Vec<u32> {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        (0..length).map(|_| next() % most).collect()
    }

    /// The least budget of the grid that is at least so much.
    fn on_grid(window: Duration, least: Duration) -> Duration {
        let mut budget = window.as_nanos();
        while budget - (budget / 64).max(1) >= least.as_nanos() {
            budget -= (budget / 64).max(1);
        }
        nanos(budget)
    }

    /// All of them kept.
    fn recorded(length: Duration, values: Vec<u32>) -> WindowRecord {
        let largest = nanos(values.iter().copied().max().unwrap_or(0).into());
        WindowRecord { length, windows: values.len() as u64, values, stride: 1, largest }
    }

    #[test]
    fn windows_claim_no_more_than_they_carry() {
        let window = WINDOWS[2];
        let values = scattered(5000, 1_000_000);
        let ClaimedWindows { claimed, seen } =
            windows(Observer::Spinning, &[vec![recorded(window, values.clone())]], 1);
        let [claim] = claimed[..] else { panic!("{claimed:?}") };
        assert_eq!((claim.observer, claim.window, claim.windows), (Observer::Spinning, window, 5000));
        let largest = nanos(u64::from(*values.iter().max().unwrap()));
        // Far fewer than the target needs: nothing less than the largest can be claimed.
        assert_eq!((claim.budget, claim.largest), (on_grid(window, largest), largest));
        let alpha = ALPHA.divided_by(4 * targets_of_all());
        // 50 s: batches of 50/60 s.
        assert_eq!((claim.batches, claim.batch, claim.bad), (59, 84, 2));
        let least = Batching { windows: 84, most_bad: 2 }.least(59, alpha);
        assert_eq!(claim.exceedance, least);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].counts.iter().map(|count| count.1).sum::<u64>(), 5000);
        assert!(seen[0].counts.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn what_tolerances_ask_for_is_claimed_of_long_windows_as_far_as_it_is_less() {
        let window = WINDOWS[2];
        // A stall of some length every four thousand windows: in ten of 59 batches.
        let mut values = scattered(40_000, 100_000);
        for (number, value) in values.iter_mut().enumerate().filter(|(number, _)| number % 4000 == 3999) {
            *value = 1_000_000 + number as u32;
        }
        let ClaimedWindows { claimed, .. } = windows(Observer::Spinning, &[vec![recorded(window, values.clone())]], 1);
        assert!(claimed.len() > 1 && claimed.len() <= 1 + TOLERANCES.len(), "{claimed:?}");
        assert!(claimed[0].budget >= nanos(1_000_000));
        assert!(
            claimed.is_sorted_by(|one, other| one.budget > other.budget && one.exceedance < other.exceedance),
            "{claimed:?}"
        );
        let last = claimed[claimed.len() - 1];
        assert!(last.budget < nanos(110_000) && last.exceedance <= of_windows(TOLERANCES[1]), "{last:?}");
        let beyond =
            |budget: Duration| values.iter().filter(|value| u64::from(**value) > budget.as_nanos()).count() as u64;
        for Window { budget, exceedance, .. } in claimed {
            assert!(beyond(budget) * 1_000_000 / 40_000 * 1_000_000 <= exceedance.parts(), "{budget}");
        }
        // Of shorter windows a message meets too many.
        let short = windows(Observer::Spinning, &[vec![recorded(WINDOWS[1], values)]], 1).claimed;
        assert_eq!(short.len(), 1);
    }

    #[test]
    fn where_nothing_can_be_claimed_the_largest_is_a_budget_without_a_promise() {
        let window = WINDOWS[0];
        let whole = window.as_nanos() as u32;
        // Too few to know whether they depend on one another; a host that changed once; too few for so many processors.
        let changed = [vec![10; 40], vec![1000; 40]].concat();
        for (values, among) in [(vec![1, 2, 3], 1), (changed, 1), (scattered(200, whole / 2), 64)] {
            let largest = nanos(u64::from(*values.iter().max().unwrap()));
            let ClaimedWindows { claimed, .. } =
                windows(Observer::Working, &[vec![recorded(window, values.clone())]], among);
            let [claim] = claimed[..] else { panic!("{claimed:?}") };
            assert_eq!((claim.budget, claim.exceedance), (largest, Probability::ONE), "{claim:?}");
            assert_eq!((claim.windows, claim.largest), (values.len() as u64, largest));
            assert!(claim.batch > 0 && claim.median <= claim.budget, "{claim:?}");
        }
        // One that was lost entirely: it cannot be more.
        let mut one_lost = scattered(5000, whole / 2);
        one_lost[77] = whole;
        let ClaimedWindows { claimed, .. } = windows(Observer::Working, &[vec![recorded(window, one_lost)]], 1);
        assert_eq!((claimed[0].budget, claimed[0].exceedance), (window, Probability::ZERO));
        // Nothing was seen of the longest: nothing is claimed of it.
        let ClaimedWindows { claimed, seen } = windows(Observer::Working, &[vec![recorded(WINDOWS[3], Vec::new())]], 1);
        assert!(claimed.is_empty() && seen[0].counts.is_empty());
    }

    #[test]
    fn each_processor_is_claimed_by_itself() {
        let window = WINDOWS[2];
        let quiet = scattered(3000, 100_000);
        // Twice as busy: one after the other they would be no host that is like itself.
        let busy: Vec<u32> = scattered(3000, 200_000).iter().map(|stolen| stolen + 100_000).collect();
        let most = nanos(u64::from(*busy.iter().max().unwrap()));
        let both = [vec![recorded(window, quiet.clone())], vec![recorded(window, busy.clone())]];
        let ClaimedWindows { claimed, seen } = windows(Observer::Spinning, &both, 1);
        let [claim] = claimed[..] else { panic!("{claimed:?}") };
        let budget = on_grid(window, most);
        assert_eq!((claim.windows, claim.parts, claim.budget, claim.largest), (6000, 2, budget, most));
        let alpha = ALPHA.divided_by(4 * targets_of_all()).divided_by(2);
        assert_eq!(claim.exceedance, Batching { windows: 50, most_bad: 2 }.least(60, alpha), "{claim:?}");
        assert_eq!(seen[0].counts.iter().map(|count| count.1).sum::<u64>(), 6000);
        // Too few of each: all together, and either may have them all.
        let few = [vec![recorded(window, quiet[..400].to_vec())], vec![recorded(window, quiet[400..800].to_vec())]];
        let ClaimedWindows { claimed, .. } = windows(Observer::Spinning, &few, 1);
        let most = nanos(u64::from(*quiet[..800].iter().max().unwrap()));
        assert_eq!((claimed[0].budget, claimed[0].parts), (on_grid(window, most), 1));
        let least = Batching { windows: 50, most_bad: 2 }.least(16, alpha).times(2);
        assert_eq!(claimed[0].exceedance, least, "{claimed:?}");
        // One that was not looked at may be any.
        let one = [vec![recorded(window, quiet)], vec![recorded(window, Vec::new())]];
        assert_eq!(windows(Observer::Spinning, &one, 1).claimed[0].exceedance, Probability::ONE);
    }

    /// Claims of one set for each processor: so many windows of which each `kept`-th was looked at, how many values stay alike, and how
    /// many levels there are. The claims as read from the file of them, and as written.
    fn written_and_read(sets: &[(usize, usize, usize)], kept: u64) -> [Option<Calibration>; 2] {
        let window = WINDOWS[2];
        let recorded: Vec<Vec<WindowRecord>> = sets
            .iter()
            .map(|&(count, lasting, levels)| {
                // Each value stays for a while, and the level changes now and then.
                let values = scattered(count, 1_000_000);
                let value = |place: usize| values[place / lasting] + (place * levels / count) as u32 * 500_000;
                let one = recorded(window, (0..count).map(value).collect());
                vec![WindowRecord { stride: kept, windows: (one.windows - 1) * kept + 1, ..one }]
            })
            .collect();
        let ClaimedWindows { claimed, .. } = windows(Observer::Spinning, &recorded, 1);
        let mut calibration = example();
        calibration.taken.alpha = ALPHA;
        calibration.taken.processors = sets.len() as u32;
        calibration.platform.interference.envelopes.clear();
        calibration.windows = claimed;
        [Calibration::parse(&calibration.to_toml(), "calibration.toml").ok(), Some(calibration)]
    }

    /// Of both processors the last window that was kept was the last of all: 58 batches of 50 windows that are 2,898.
    #[test]
    fn windows_that_were_passed_over_on_each_processor_count_for_each() {
        let [read, written] = written_and_read(&[(1330, 1, 1), (120, 1, 1)], 2);
        assert_eq!(read, written);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// However differently processors behave, and however uneven their turns were.
        #[test]
        fn what_is_claimed_is_what_a_file_may_claim(
            sets in prop::collection::vec((64usize..3000, 1usize..40, 1usize..5), 1..4), kept in 1u64..8,
        ) {
            let [read, written] = written_and_read(&sets, kept);
            prop_assert_eq!(read, written);
        }
    }

    #[test]
    fn windows_stand_by_length_then_by_observer() {
        let of = |observer| {
            let measured: Vec<_> = WINDOWS.into_iter().map(|window| recorded(window, vec![1; 100])).collect();
            windows(observer, &[measured], 1).claimed
        };
        let (mut spun, worked) = (of(Observer::Spinning), of(Observer::Working));
        spun.reverse();
        let expected: Vec<_> = WINDOWS.into_iter().flat_map(|window| Observer::ALL.map(|who| (window, who))).collect();
        let merged = merge(spun, worked);
        assert_eq!(merged.iter().map(|window| (window.window, window.observer)).collect::<Vec<_>>(), expected);
        assert!(merge(Vec::new(), Vec::new()).is_empty());
    }

    #[test]
    fn windows_that_were_passed_over_carry_no_claim() {
        // A seventh of 70,000 windows was kept, and the longest stall fell into another one.
        let (values, largest) = (scattered(10_000, 100_000), Duration::from_micros(900));
        let kept = WindowRecord { stride: 7, windows: 70_000, largest, ..recorded(WINDOWS[1], values) };
        let ClaimedWindows { claimed, .. } = windows(Observer::Spinning, &[vec![kept]], 1);
        let [claim] = claimed[..] else { panic!("{claimed:?}") };
        assert_eq!((claim.windows, claim.largest, claim.batch % 7), (70_000, largest, 0));
        let alpha = ALPHA.divided_by(4 * targets_of_all());
        assert!(claim.exceedance >= upper_bound(0, claim.batches, alpha).divided_by(100), "{claim:?}");
    }
}
