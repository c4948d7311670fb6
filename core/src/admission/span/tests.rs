use super::*;
use crate::admission::Settings;
use crate::admission::answer::Role;
use crate::contract::Contract;
use crate::platform::{BestEffort, Interference, Platform};
use proptest::prelude::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Only what a message takes, and what the platform takes.
fn bare(interference: Interference) -> Platform {
    let zero = Duration::ZERO;
    Platform {
        switch: zero,
        cache: zero,
        receive_first: millis(7),
        receive_packet: zero,
        demultiplex: zero,
        link_cost: zero,
        wake_up: zero,
        handover: zero,
        best_effort: BestEffort { message_packets: 0, ..Platform::assumed_host().best_effort },
        interference,
        ..Platform::assumed_host()
    }
}

fn receiver(platform: Platform, rule: Rule) -> Admission {
    let mut admission = Admission::with_settings(platform, Settings { rule, ..Settings::default() }).unwrap();
    let contract = Contract::new(1000, 1, millis(10), 1, millis(9)).unwrap();
    admission.reserve(&contract, Role::Receives, millis(9)).unwrap();
    admission
}

fn envelopes(envelopes: &[(u64, u64)]) -> Interference {
    let envelopes = envelopes.iter().map(|&(window, budget)| (millis(window), millis(budget))).collect();
    Interference { envelopes, ..Interference::default() }
}

/// 7 ms every 10 ms, and 1 ms of every 10 ms taken: s ≥ 7 ⌈s/10⌉ + ⌈(s + 5)/10⌉ at 9; and with 9 ms more at 50.
#[test]
fn what_a_stall_leaves_behind_takes_as_long_as_there_is_little_left() {
    let p = Probability::from_millionths(100);
    let admission = receiver(bare(envelopes(&[(10, 1)])), Rule::Split);
    assert_eq!(admission.span(), millis(9));
    // ⌈50/10⌉ + 2; of the undisturbed host's span it would be 3.
    assert_eq!(admission.miss_probability(&[p]), Some(p.times(7)));
    // The other envelope has R⁰ = 9 ms, if this one is the one that counts: ⌈9/1⌉ + 2 more.
    let two = receiver(bare(envelopes(&[(10, 1), (1, 1)])), Rule::Split);
    let q = Probability::from_millionths(3);
    assert_eq!(two.miss_probability(&[p, q]), Some(p.times(7).or(q.times(11))));
}

#[test]
fn where_nothing_can_be_told_nothing_is_claimed() {
    let p = Probability::from_millionths(1);
    let admission = receiver(bare(envelopes(&[(10, 1)])), Rule::Split);
    assert_eq!(admission.miss_probability(&[]), None);
    assert_eq!(admission.miss_probability(&[p, p]), None);
    assert_eq!(receiver(bare(Interference::default()), Rule::Split).miss_probability(&[]), None);
    let empty = Admission::new(bare(envelopes(&[(10, 1)]))).unwrap();
    assert_eq!((empty.span(), empty.miss_probability(&[p])), (Duration::ZERO, Some(Probability::ZERO)));
    // Windows that are stolen wholly: within 9 ms another envelope helps, in the long run none does.
    let burst = Interference { burst: millis(1), ..envelopes(&[(1, 1)]) };
    let contract = Contract::new(1000, 1, millis(10), 1, millis(9)).unwrap();
    assert!(Admission::new(bare(burst)).unwrap().reserve(&contract, Role::Receives, millis(9)).is_err());
    let mut short = receiver(bare(envelopes(&[(10, 1), (20, 1)])), Rule::Split);
    short.machine.platform.interference.envelopes = vec![(millis(10), millis(10)), (millis(20), millis(20))];
    assert_eq!((short.span(), short.miss_probability(&[p, p])), (Duration::MAX, Some(Probability::ONE)));
}

#[test]
fn the_composite_rule_has_its_own_span() {
    let mut platform = Platform::channels_table_2b();
    platform.interference = envelopes(&[(10, 1)]);
    let contract = Contract::new(61_440, 61_440, millis(50), 12, millis(45)).unwrap();
    let p = Probability::from_millionths(100);
    for rule in [Rule::Split, Rule::Composite] {
        let mut admission =
            Admission::with_settings(platform.clone(), Settings { rule, ..Settings::default() }).unwrap();
        admission.reserve(&contract, Role::Sends, millis(45)).unwrap();
        // No shorter than the channel's own bound, no longer than two intervals of a host that is half idle.
        let worst = admission.bounds()[0].1.worst;
        let span = admission.span();
        assert!(span >= worst && span < millis(100), "{rule:?}: {span}, {worst}");
        let missed = admission.miss_probability(&[p]).unwrap();
        assert!(missed > confidence::miss_probability(span, millis(10), p) && missed < p.times(20), "{missed:?}");
    }
}

/// Packets of a byte may ask for C_l so often that the processor's test holds only because they do not come so often.
#[test]
fn what_a_stall_would_void_is_not_counted_on() {
    let mut platform = Platform::assumed_host();
    platform.best_effort.packet_min = 1400;
    platform.link.floor_bytes = 0;
    platform.interference = envelopes(&[(10, 1)]);
    let mut admission = Admission::new(platform).unwrap();
    let contract = Contract::new(14_000, 1, millis(100), 1, millis(60)).unwrap();
    admission.reserve(&contract, Role::Sends, millis(60)).unwrap();
    assert!(admission.machine.tax_reaches());
    // C_l of 10 µs for each 10.5 µs of the link.
    assert!(admission.rests_on_reach());
    let p = Probability::from_millionths(1);
    assert_eq!((admission.span(), admission.miss_probability(&[p])), (Duration::MAX, Some(Probability::ONE)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// m windows are felt no longer than m times as long as one: on this the share of time rests.
    #[test]
    fn so_many_stalls_are_felt_no_longer_than_one_by_one(
        channels in prop::collection::vec((100u32..20_000, 5u64..100, 0usize..3), 1..5), window in 1u64..50, share in 1u64..6,
        composite in any::<bool>(),
    ) {
        let mut platform = Platform::assumed_host();
        let budget = Duration::from_nanos(millis(window).as_nanos() * share / 20);
        platform.interference = Interference { envelopes: vec![(millis(window), budget)], ..Interference::default() };
        let rule = if composite { Rule::Composite } else { Rule::Split };
        let mut admission = Admission::with_settings(platform, Settings { rule, ..Settings::default() }).unwrap();
        for (bytes, interval, role) in channels {
            let contract = Contract::new(bytes.into(), 1, millis(interval), 1, millis(200)).unwrap();
            let _ = admission.reserve(&contract, [Role::Sends, Role::Receives, Role::Relays][role], millis(200));
        }
        let gap = millis(window) - budget;
        let longest = |gap| admission.longest(&admission.machine, gap);
        if let Some(one) = longest(gap) {
            prop_assert!(admission.span() <= one);
            for m in [2, 3, 10] {
                prop_assert!(longest(gap * m).unwrap() <= one * m);
            }
        }
    }
}
