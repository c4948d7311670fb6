//! The receiving side of a channel, by itself.
#![allow(dead_code, reason = "each test takes what it needs")]

use laxity_core::clock::PeerClock;
use laxity_core::contract::Service;
use laxity_core::receive::{DeliveredMessage, Evidence, ReceiveConfig, ReceivingChannel, SenderClock, TimeLoss};
use laxity_core::units::{Duration, Instant};

/// Packets of 100 bytes from a host with the same clock; of the deadline 10 ms are the sender's, and 10 this host's.
pub(crate) fn config(service: Service) -> ReceiveConfig {
    ReceiveConfig {
        service,
        packet: 100,
        priority: 0,
        work_conserving: true,
        input_delay: Duration::ZERO,
        stage: Duration::from_millis(10),
        upstream: Duration::from_millis(10),
        transit: Duration::MAX,
        same_clock: true,
        oversize: 1,
    }
}

/// The next message; nothing is known of another clock.
pub(crate) fn deliver(receiving: &mut ReceivingChannel, now: Instant) -> Option<(DeliveredMessage, Option<Evidence>)> {
    let clock = PeerClock::new(100, Duration::from_millis(100));
    let sender =
        SenderClock { clock: &clock, own_epoch: 0, begun: None, is_direct: true, allowed_error: Duration::ZERO };
    receiving.deliver(now, sender, |_| TimeLoss::default())
}
