use proptest::prelude::*;

use super::super::pair::HostPair;
use super::*;
use crate::platform::Platform;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn contract() -> impl Strategy<Value = Contract> {
    (1u64..100_000, 1_000u64..50_000, 1u64..4, 500u64..60_000).prop_map(|(max, interval, burst, deadline)| {
        Contract::new(max, 1, Duration::from_micros(interval), burst, Duration::from_micros(deadline)).unwrap()
    })
}

/// What a channel holds that may not change: its share of the deadline, and the hand-over.
fn shares(host: &Admission) -> Vec<(ReservationId, Duration, Duration)> {
    host.channels.iter().map(|(id, held)| (id, held.handover, held.stages(host.settings.rule).total())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Whatever is changed, all channels keep what they were promised, and the newcomer for which it was changed is granted then.
    #[test]
    fn shares_stay_and_the_newcomer_is_granted(
        channels in prop::collection::vec((contract(), 0u8..3), 1..12), fast: bool, composite: bool,
    ) {
        let mut platform = Platform::assumed_host();
        if fast {
            platform.link.rate = crate::units::Rate::bytes_per_second(125_000_000);
        }
        let rule = if composite { Rule::Composite } else { Rule::Split };
        let mut host = Admission::with_settings(platform, Settings::work_conserving(rule)).unwrap();
        for (contract, role) in channels {
            let role = [Role::Sends, Role::Receives, Role::Relays][usize::from(role)];
            let budget = contract.deadline();
            let before = shares(&host);
            let reserved = match host.reserve_or_rearrange(&contract, role, 0, budget) {
                Ok(RearrangeResult::Now(id, _)) => {
                    prop_assert!(shares(&host).iter().filter(|held| held.0 != id).copied().eq(before));
                    Some(id)
                }
                Ok(RearrangeResult::After(other)) => {
                    prop_assert_eq!(shares(&host), before.clone());
                    prop_assert_eq!(shares(&other), before);
                    prop_assert!(other.test().is_ok());
                    prop_assert_eq!(other.utilisation_ppm(), host.utilisation_ppm());
                    host = *other;
                    Some(host.reserve(&contract, role, budget).unwrap().0)
                }
                Err(_) => {
                    prop_assert_eq!(shares(&host), before);
                    None
                }
            };
            if let Some(id) = reserved {
                host.relax(id, budget).unwrap();
                prop_assert!(host.test().is_ok());
            }
        }
    }
}

#[test]
fn what_has_one_stage_or_runs_by_level_is_not_served_in_another_way() {
    let platform = Platform::assumed_host();
    let contract = |deadline| Contract::new(50_000, 1, ms(20), 1, deadline).unwrap();
    for (rule, role) in [(Rule::Split, Role::Receives), (Rule::Levels, Role::Sends)] {
        let mut host = Admission::with_settings(platform.clone(), Settings::work_conserving(rule)).unwrap();
        host.reserve(&contract(ms(19)), role, ms(19)).unwrap();
        assert!(host.rearranged(&contract(Duration::from_micros(10)), role, Duration::from_micros(10)).is_none());
    }
}

/// So many of the same random sets that hosts of each kind grant: with the split rule, with the composite rule, and those that change.
fn granted(platform: &Platform) -> [u32; 3] {
    let mut state = 7u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut granted = [0; 3];
    for _ in 0..100 {
        let fixed = |rule| HostPair::new(platform, Settings::work_conserving(rule)).unwrap();
        let mut hosts = [fixed(Rule::Split), fixed(Rule::Composite), HostPair::live(platform).unwrap()];
        for _ in 0..6 {
            let bytes = [200, 1_000, 10_000, 60_000, 100_000][draw(5) as usize];
            let interval = ms([1, 2, 5, 10, 33][draw(5) as usize]);
            let deadline = Duration::from_micros(3_000 + draw(40_000));
            let contract = Contract::new(bytes, 1, interval, 1 + draw(3), deadline).unwrap();
            for (host, granted) in hosts.iter_mut().zip(&mut granted) {
                *granted += u32::from(host.open(&contract).is_ok());
            }
        }
    }
    granted
}

#[test]
fn more_is_granted_than_by_either_rule() {
    let quiet = Platform::assumed_host();
    let mut noisy = quiet.clone();
    noisy.interference.envelopes = alloc::vec![(ms(10), ms(2)), (ms(100), ms(6))];
    for (platform, least_more) in [(quiet, 0), (noisy, 10)] {
        let [split, composite, live] = granted(&platform);
        assert!(live >= split.max(composite) && live >= split + least_more, "{split}, {composite}, {live}");
    }
}
