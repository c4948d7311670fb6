//! [channels Table 3] on the costs of [channels Table 2b]: three real-time channels beside saturating best effort.

mod common;

use common::{address, ample, at, best_effort, contract, ms, plan, throughput};
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Instant};
use laxity_sim::{ChannelHandle, ChannelReport, HostConfig, Source, World};

const KIB: u64 = 1024;
const MESSAGE: u64 = 60 * KIB;

/// Opens the channels of Table 3 and best effort; the deadlines of the table are the sending host's.
fn table_3(world: &mut World, sender: HostConfig, best_effort_kib: u64) -> Vec<ChannelHandle> {
    let from = world.add_host(sender);
    let to = world.add_host(HostConfig { frames: 4096, ..HostConfig::new(ample(4096), address(2)) });
    let (mut channels, mut contracts) = (Vec::new(), Vec::new());
    for (name, interval, burst, deadline) in [("ch0", 50, 12, 40), ("ch1", 30, 8, 25), ("ch2", 30, 1, 30)] {
        let contract = contract(MESSAGE, ms(interval), burst, ms(deadline) + ms(5));
        channels.push(world.open(from, to, plan(name, contract, ms(5), Duration::ZERO)));
        contracts.push(contract);
    }
    channels.push(world.open(from, to, best_effort("bulk", MESSAGE, 10)));
    world.run_until(at(100));
    for (&channel, contract) in channels.iter().zip(&contracts) {
        world.add_source(Source::full(channel, contract, at(100)));
    }
    if best_effort_kib > 0 {
        world.add_source(Source::at_rate(channels[3], MESSAGE as u32, best_effort_kib * KIB, 10, at(100)));
    }
    channels
}

fn reports(world: &World, channels: &[ChannelHandle]) -> Vec<ChannelReport> {
    channels.iter().map(|&channel| world.report(channel)).collect()
}

fn paper_host() -> HostConfig {
    HostConfig::new(Platform::channels_table_2b(), address(1))
}

fn kib_per_second(world: &mut World, channels: &[ChannelHandle], from: Instant, span: Duration) -> Vec<f64> {
    world.run_until(from);
    let before = reports(world, channels);
    world.run_until(from + span);
    let after = reports(world, channels);
    before.iter().zip(&after).map(|(a, b)| throughput(a, b, span) as f64 / KIB as f64).collect()
}

/// Runs each best-effort load and checks what the paper shows: no miss, the contract's throughput, and best effort that
/// gets through until it levels off. Returns where.
fn figure_7(sender: &HostConfig, loads: &[u64]) -> f64 {
    let mut seen = 0.0;
    for &load in loads {
        let mut world = World::new(1);
        let channels = table_3(&mut world, sender.clone(), load);
        let throughput = kib_per_second(&mut world, &channels, at(1000), ms(6000));
        for (number, report) in reports(&world, &channels)[..3].iter().enumerate() {
            let least = report.sender_laxity.unwrap();
            println!(
                "load {load:5}: ch{number} {:.0} KiB/s, laxity min {:.2} ms",
                throughput[number],
                least as f64 / 1e6,
            );
            assert!(least >= 0, "load {load}, ch{number}: {least} ns at the sending host");
            assert_eq!((report.send.late, report.figures.late, report.send.refused), (0, 0, 0));
            // The model takes a packet for sent C_l before the wire can have begun with it; never more.
            assert!(report.beyond_model <= sender.platform.link_cost, "{}", report.beyond_model);
        }
        println!("load {load:5}: best effort {:.0} KiB/s", throughput[3]);
        for (number, expected) in [(0, 1200.0), (1, 2000.0), (2, 2000.0)] {
            assert!((throughput[number] - expected).abs() <= 20.0, "ch{number}: {throughput:?}");
        }
        if load <= 4000 {
            assert!((throughput[3] - load as f64).abs() <= 100.0, "load {load}: {throughput:?}");
        }
        seen = throughput[3];
        world.finish();
    }
    seen
}

/// Our executive hands packets over ahead, so the link works while C_l runs. Not the link but the processor is full when
/// best effort levels off, at what the real-time channels leave of it.
#[test]
fn no_deadline_is_missed_and_best_effort_gets_what_is_left_of_the_processor() {
    let host = paper_host();
    let plateau = figure_7(&host, &[600, 1900, 3000, 4000, 5000, 8000, 14_000]);
    let costs = &host.platform;
    let message = (costs.first_packet + costs.packet_cost * 14 + costs.link_cost * 15).as_nanos() as f64 / 1e9;
    let switches = 2.0 * costs.change_of_handler().as_nanos() as f64 / 1e9;
    let real_time = (1.0 / 0.05 + 2.0 / 0.03) * (message + switches);
    let expected = (1.0 - real_time) / message * 60.0;
    assert!((plateau - expected).abs() <= 0.02 * expected, "{plateau} KiB/s, expected {expected}");
}

/// The paper's adapter waits while C_l runs: each packet occupies the link for C_l + L_x. Then the link is full first, and
/// best effort levels off at 9,877 − 5,200 = 4,677 KiB/s.
#[test]
fn with_a_link_that_waits_for_c_l_best_effort_levels_off_where_the_papers_does() {
    let mut platform = Platform::channels_table_2b();
    platform.link.setup += platform.link_cost;
    let plateau = figure_7(&HostConfig::new(platform, address(1)), &[1900, 4000, 8000, 14_000]);
    assert!((plateau - 4677.0).abs() <= 467.7, "{plateau} KiB/s");
}

/// And so it does on the paper's machine itself.
#[test]
fn on_the_papers_machine_best_effort_levels_off_where_the_papers_does() {
    let plateau = figure_7(&HostConfig::new(Platform::papers_table_2b(), address(1)), &[1900, 4000, 8000, 14_000]);
    assert!((plateau - 4677.0).abs() <= 46.8, "{plateau} KiB/s");
}
