//! Wires that lose, double, damage and reorder: what is delivered is exact and in order (the world checks each byte), every
//! message ends once, every frame comes back.

mod common;

use common::{address, at, best_effort, contract, modern, ms, plan, us};
use laxity_core::event::End;
use laxity_link::emulated::EmulatedConfig;
use laxity_sim::{HostConfig, Source, World};
use proptest::prelude::*;

fn faulty(host: u8, loss: u32, doubled: u32, damaged: u32, jitter: u64, early: bool) -> HostConfig {
    let mut config = HostConfig::new(modern(), address(host));
    config.wire = EmulatedConfig {
        jitter: us(jitter),
        reorder: true,
        loss_ppm: loss,
        duplication_ppm: doubled,
        corruption_ppm: damaged,
        ..config.wire
    };
    (config.send_early, config.receive_early) = (early, early);
    config
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn exact_in_order_and_conserved(
        seed in any::<u64>(),
        (loss, doubled, damaged) in (0u32..200_000, 0u32..200_000, 0u32..100_000),
        jitter in prop_oneof![Just(0u64), 0u64..500, 0u64..30_000],
        bytes in 1u64..20_000,
        burst in 1u64..5,
        early in any::<bool>(),
    ) {
        let mut world = World::new(seed);
        let from = world.add_host(faulty(1, loss, doubled, damaged, jitter, early));
        let to = world.add_host(faulty(2, loss, doubled, damaged, jitter, early));
        let contract = contract(bytes, ms(10), burst, ms(30));
        let real_time = world.open(from, to, plan("a", contract, ms(5), ms(1)));
        let bulk = world.open(from, to, best_effort("b", bytes, 4));
        let back = world.open(to, from, best_effort("b", bytes, 4));
        world.add_source(Source::full(real_time, &contract, at(500)));
        world.add_source(Source::at_rate(bulk, bytes as u32, 300_000, 2, at(500)));
        world.add_source(Source::at_rate(back, bytes as u32, 300_000, 1, at(500)));
        world.run_until(at(1500));
        world.finish();
        for channel in [real_time, bulk, back] {
            let report = world.report(channel);
            prop_assert!(matches!(report.sender_end, Some(End::Closed { .. } | End::Refused(_))), "{:?}", report);
        }
        let report = world.report(real_time);
        prop_assert!(report.figures.delivered > 0 || bytes > 2_000, "{:?}", report);
        prop_assert_eq!(report.receive.misses.sender, 0, "an honest sender was blamed: {:?}", report);
    }
}

#[test]
fn a_seed_tells_everything() {
    let run = |seed| {
        let mut world = World::new(seed);
        let from = world.add_host(faulty(1, 50_000, 20_000, 10_000, 400, true));
        let to =
            world.add_host(HostConfig { wake_up: laxity_sim::WakeUp::Uniform, ..faulty(2, 50_000, 0, 0, 300, false) });
        let contract = contract(9_000, ms(10), 3, ms(30));
        let real_time = world.open(from, to, plan("a", contract, ms(5), ms(1)));
        let bulk = world.open(from, to, best_effort("b", 30_000, 4));
        world.add_source(Source::full(real_time, &contract, at(500)));
        world.add_source(Source::at_rate(bulk, 30_000, 20_000_000, 2, at(500)));
        world.run_until(at(3000));
        world.finish();
        let figures = [real_time, bulk].map(|channel| world.report(channel));
        format!("{figures:?} {:?} {:?}", world.host_counters(from), world.host_counters(to))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
