//! Hosts and channels that several tests use.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

pub mod totals;
pub mod twin;
pub mod verdicts;

use std::net::SocketAddr;

use laxity_core::contract::{Contract, SendingStages, Service};
use laxity_core::platform::{BestEffort, Interference, LinkModel, Platform};
use laxity_core::units::{Duration, Instant, Rate};
use laxity_sim::{ChannelPlan, ChannelReport};

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
pub const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
pub fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}
pub fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7000))
}

/// A host with so much capacity that only what it waits for takes time.
pub fn ample(packet: u32) -> Platform {
    Platform {
        packet,
        switch: us(1),
        cache: us(1),
        first_packet: us(2),
        packet_cost: us(1),
        receive_first: us(2),
        receive_packet: us(1),
        link_cost: us(1),
        receive_batch: 32,
        link: LinkModel::UNLIMITED,
        best_effort: BestEffort { message_packets: 60, packet_min: 1, packet_max: packet, starts: None },
        ..Platform::channels_table_2b()
    }
}

/// A present-day host whose platform behaves: some microseconds a step, 100 Mbit/s.
pub fn modern() -> Platform {
    Platform {
        packet: 1000,
        quantum: 8,
        switch: us(1),
        cache: us(2),
        first_packet: us(8),
        packet_cost: us(4),
        receive_first: us(8),
        receive_packet: us(4),
        demultiplex: us(1),
        receive_batch: 16,
        link_cost: us(6),
        link: LinkModel {
            setup: Duration::ZERO,
            rate: Rate::bytes_per_second(12_500_000),
            overhead_bytes: 126,
            floor_bytes: 100,
            spacing: Duration::ZERO,
        },
        wake_up: us(50),
        propagation: us(20),
        interference: Interference::default(),
        ..ample(1000)
    }
}

pub fn contract(max: u64, interval: Duration, burst: u64, deadline: Duration) -> Contract {
    Contract::new(max, 1, interval, burst, deadline).unwrap()
}

/// A real-time channel whose sender has `deadline − receive`, three fifths of it on the processor.
pub fn plan(name: &str, contract: Contract, receive: Duration, way: Duration) -> ChannelPlan {
    let sender = contract.deadline() - receive - way;
    let processor = sender.mul_ratio(3, 5);
    let stages = SendingStages { processor, link: sender - processor };
    ChannelPlan::new(name, Service::RealTime(contract), stages, receive)
}

pub fn best_effort(name: &str, max: u64, queue: u64) -> ChannelPlan {
    ChannelPlan::new(name, Service::best_effort(max, queue).unwrap(), SendingStages::default(), Duration::ZERO)
}

/// Bytes per second that were delivered between two reports, `span` apart.
pub fn throughput(before: &ChannelReport, after: &ChannelReport, span: Duration) -> u64 {
    let bytes = after.figures.delivered_bytes - before.figures.delivered_bytes;
    (u128::from(bytes) * 1_000_000_000 / u128::from(span.as_nanos())) as u64
}

/// Numbers from 0 to what is asked for, by a seed.
pub fn draw(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |most| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % (most + 1)
    }
}
