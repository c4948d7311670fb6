use super::super::tests::Random;
use super::super::{Samples, exceedances_allowed, upper_bound};
use super::*;
use proptest::prelude::*;

const ALPHA: Probability = Probability::from_millionths(50_000);
const TARGET: Probability = Probability::from_millionths(10_000);

/// Below a million each.
fn independent(seed: u64, windows: usize) -> Vec<u32> {
    let mut random = Random(seed << 20);
    (0..windows).map(|_| (random.next() % 1_000_000) as u32).collect()
}

/// The largest of `length` independent values.
fn moving_maxima(seed: u64, windows: usize, length: usize) -> Vec<u32> {
    let values = independent(seed, windows + length - 1);
    values.windows(length).map(|values| values.iter().copied().max().unwrap()).collect()
}

#[test]
fn independent_windows_are_mostly_not_thinned() {
    // Plain ones, rare stalls, few different values.
    let kinds: [fn(u32) -> u32; 3] =
        [|value| value, |value| if value < 300 { 5000 + value } else { value % 3 }, |value| value / 300_000];
    for kind in kinds {
        let strides = (0..200).map(|seed| {
            let stolen: Vec<u32> = independent(seed, 5000).into_iter().map(kind).collect();
            stride(&stolen)
        });
        let whole = strides.filter(|stride| *stride == Some(1)).count();
        assert!(whole >= 170, "{whole} of 200");
    }
}

#[test]
fn what_lasts_for_some_windows_is_thinned_by_as_many() {
    for (length, stride_of_it) in [(2, 2), (10, 13), (100, 127)] {
        let found: Vec<usize> = (0..50).map(|seed| stride(&moving_maxima(seed, 40_000, length)).unwrap()).collect();
        assert!(found.iter().all(|stride| *stride >= stride_of_it), "{length}: {found:?}");
        assert!(found.iter().filter(|stride| **stride == stride_of_it).count() >= 30, "{length}: {found:?}");
    }
}

#[test]
fn ranks_alone_are_enough_to_be_found_out() {
    // Large values come alone, but small ones come together.
    let (bits, noise) = (moving_maxima(1, 20_000, 20), independent(2, 20_000));
    let stolen: Vec<u32> =
        bits.iter().zip(&noise).map(|(&bit, &noise)| (bit / 100_000) * 1000 + noise % 1000).collect();
    assert!(stride(&stolen).unwrap() > 13);
}

#[test]
fn a_tick_is_hardly_a_dependence_but_a_run_is() {
    for period in [4, 10, 40, 100, 250] {
        let noise = independent(3, 70_000);
        let tick = |(place, &noise): (usize, &u32)| if place % period == 1 { 900_000 + noise } else { noise % 100 };
        let stolen: Vec<u32> = noise.iter().enumerate().map(tick).collect();
        assert!(stride(&stolen).unwrap() <= 7, "{period}");
    }
    // 50 windows of a thousand, wholly: throttling.
    let stolen: Vec<u32> = (0..20_000).map(|place| if place % 1000 < 50 { 100_000 } else { 7 }).collect();
    let thinned = claim(&stolen, TARGET, ALPHA).unwrap();
    assert!(thinned.stride > 31);
    assert_eq!(thinned.claim.value, Duration::from_micros(100));
}

#[test]
fn a_host_that_changed_once_is_claimed_as_it_was_when_it_was_worst() {
    let quiet_then_busy = |seed| -> Vec<u32> {
        let values = independent(seed, 70_000);
        values.iter().enumerate().map(|(place, &value)| if place < 35_000 { value / 2 } else { value }).collect()
    };
    let mut in_two = 0;
    for seed in 0..20 {
        let stolen = quiet_then_busy(seed);
        assert_eq!(stride(&stolen), None);
        let Some(thinned) = claim(&stolen, TARGET, ALPHA) else { continue };
        assert!(thinned.parts > 1);
        // It is no less than what the busy half alone claims, at what alpha leaves for it.
        let busy = claim(&stolen[35_000..], TARGET, ALPHA.divided_by(2)).unwrap();
        in_two += u32::from(thinned.parts == 2 && busy.parts == 1);
        if thinned.parts == 2 {
            assert!(thinned.claim.value >= busy.claim.value && thinned.claim.exceedance >= busy.claim.exceedance);
            assert_eq!(thinned.claim.alpha, ALPHA);
        }
    }
    assert!(in_two >= 15, "{in_two}");
}

/// It changes all the time, and lastingly: no part is like itself.
#[test]
fn a_host_that_drifts_has_no_claim() {
    for seed in 0..20 {
        let mut level = 1000i64;
        let steps = independent(seed, 20_000);
        let stolen: Vec<u32> = steps
            .iter()
            .map(|step| {
                level = (level + i64::from(step % 21) - 10).max(0);
                level as u32
            })
            .collect();
        assert_eq!(claim(&stolen, TARGET, ALPHA), None);
    }
}

#[test]
fn too_few_windows_show_nothing_and_equal_ones_everything() {
    assert_eq!(stride(&independent(1, FEWEST_WINDOWS - 1)), None);
    assert_eq!(claim(&[], TARGET, ALPHA), None);
    let thinned = claim(&[9; FEWEST_WINDOWS], TARGET, ALPHA).unwrap();
    assert_eq!((thinned.stride, thinned.claim.value), (1, Duration::from_nanos(9)));
    // As many as there are allow no more than that.
    assert_eq!(thinned.claim.exceedance, upper_bound(0, FEWEST_WINDOWS as u64, ALPHA));
    assert_eq!((thinned.claim.allowed, thinned.claim.samples), (0, FEWEST_WINDOWS as u64));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn pairs_are_those_that_can_be_counted(stolen in prop::collection::vec(0u32..40, 64..200), lag in 1usize..64, block in 1usize..40) {
        let levels = Levels::new(&stolen);
        let n = stolen.len();
        let counts = levels.pairs(lag);
        let blocks = levels.pairs_in_blocks(lag, block);
        prop_assert!(counts.len() == levels.exceeding.len() && blocks.len() == levels.exceeding.len());
        for (level, (count, block_count)) in counts.into_iter().zip(blocks).enumerate() {
            let exceeds = |place: usize| usize::from(levels.of[place % n]) > level;
            prop_assert_eq!((0..n).filter(|&place| exceeds(place)).count() as u128, count.exceeding);
            let pairs = (0..n).filter(|&place| exceeds(place) && exceeds(place + lag)).count();
            prop_assert_eq!((pairs as u128, n as u128), (count.pairs, count.looked_at));
            let same = |one: usize, other: usize| one % lag == other % lag && one / lag / block == other / lag / block;
            let together: Vec<(usize, usize)> =
                (0..n).flat_map(|one| (0..one).map(move |other| (one, other))).filter(|pair| same(pair.0, pair.1)).collect();
            let pairs = together.iter().filter(|pair| exceeds(pair.0) && exceeds(pair.1)).count();
            prop_assert_eq!((pairs as u128, together.len() as u128), (block_count.pairs, block_count.looked_at));
            // What exceeds is larger than what does not.
            let least = (0..n).filter(|&place| exceeds(place)).map(|place| stolen[place]).min().unwrap();
            prop_assert!((0..n).all(|place| exceeds(place) == (stolen[place] >= least)));
        }
    }

    #[test]
    fn the_claim_is_the_largest_of_all_phases_of_all_parts(seed in 0u64..1000, windows in 1000usize..3000, length in 1usize..8) {
        let stolen = moving_maxima(seed, windows, length);
        if let Some(thinned) = claim(&stolen, TARGET, ALPHA) {
            let (parts, own) = (thinned.parts as usize, ALPHA.divided_by(thinned.parts));
            let mut phases: Vec<Claim> = Vec::new();
            let mut rest = &stolen[..];
            for left in (1..=parts).rev() {
                let (part, others) = rest.split_at(if left > 1 { windows / parts } else { rest.len() });
                let stride = stride(part).unwrap();
                prop_assert!(stride as u64 <= thinned.stride);
                phases.extend((0..stride).map(|first| {
                    let values = part[first..].iter().step_by(stride);
                    let samples = Samples::from_values(values.map(|&value| Duration::from_nanos(value.into())));
                    samples.claim(TARGET, own).unwrap()
                }));
                rest = others;
            }
            prop_assert_eq!(phases.iter().map(|claim| claim.value).max(), Some(thinned.claim.value));
            prop_assert_eq!(phases.iter().map(|claim| claim.exceedance).max(), Some(thinned.claim.exceedance));
            prop_assert_eq!(phases.iter().map(|claim| claim.samples).min(), Some(thinned.claim.samples));
            let allowed = exceedances_allowed(thinned.claim.samples, TARGET, own).unwrap_or(0);
            prop_assert_eq!(thinned.claim.allowed, allowed);
        }
    }
}
