//! Many hosts in one world: what happens at one of them does not depend on the others, and costs no more because of them.

mod common;

use std::net::SocketAddr;

use common::{at, contract, modern, ms, plan};
use laxity_core::figures::Misses;
use laxity_sim::{ChannelReport, HostConfig, Source, World};

/// Hosts in a ring, each with `channels` channels to the next one; the reports of the first host's.
fn ring(hosts: u32, channels: u64) -> Vec<ChannelReport> {
    let mut world = World::new(1);
    let config = |number: u32| {
        let [high, low] = (number as u16).to_be_bytes();
        let address = SocketAddr::from(([10, 1, high, low], 7000));
        let mut config = HostConfig { frames: 512, receive_ring: 64, ..HostConfig::new(modern(), address) };
        (config.wire.queue_packets, config.wire.capacity) = (64, 64);
        config
    };
    let hosts: Vec<_> = (0..hosts).map(|number| world.add_host(config(number))).collect();
    let mut handles = Vec::new();
    for (number, &from) in hosts.iter().enumerate() {
        for channel in 0..channels {
            let contract = contract(1_500, ms(20 + 7 * channel), 2, ms(15));
            let handle =
                world.open(from, hosts[(number + 1) % hosts.len()], plan(&channel.to_string(), contract, ms(5), ms(1)));
            world.add_source(Source { until: at(400), ..Source::full(handle, &contract, at(100)) });
            handles.push(handle);
        }
    }
    world.run_until(at(450));
    world.finish();
    let reports: Vec<_> = handles.iter().map(|&handle| world.report(handle)).collect();
    for report in &reports {
        assert_eq!((report.figures.misses, report.figures.delivered), (Misses::default(), report.figures.sent));
    }
    reports[..channels as usize].to_vec()
}

#[test]
fn a_thousand_hosts_are_a_thousand_times_one() {
    let few = ring(3, 3);
    assert!(few.iter().all(|report| report.figures.sent >= 10));
    assert_eq!(ring(1000, 3), few);
}
