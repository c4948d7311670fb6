//! The configuration of a host of which nothing limits the link.
#![allow(dead_code, reason = "each test takes what it needs")]

use laxity_core::endpoint::{ClockConfig, Config, LinkConfig};
use laxity_core::platform::{BestEffort, LinkModel};
use laxity_core::units::Duration;

pub(crate) fn unlimited() -> LinkConfig {
    LinkConfig {
        model: LinkModel::UNLIMITED,
        look_ahead: Duration::ZERO,
        horizon: Duration::ZERO,
        best_effort: BestEffort::UNLIMITED,
    }
}

/// With a clock, a secret and packets of so many bytes; room for eight channels, and frames for real-time ones alone.
pub(crate) fn config(clock: u64, secret: u128, packet: u32) -> Config {
    Config {
        envelope: Default::default(),
        stretch_ppm: 1_000_000,
        channels: 8,
        upcalls: 0,
        frames: 256,
        best_effort_frames: 0,
        peer_clocks: ClockConfig::default(),
        packet,
        quantum: 1,
        policy: Default::default(),
        handover: Duration::ZERO,
        clock,
        secret,
        key: None,
        links: vec![unlimited()],
    }
}
