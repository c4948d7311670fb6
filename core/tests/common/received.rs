//! The receiving side of a channel, by itself.
#![allow(dead_code, reason = "each test takes what it needs")]

use laxity_core::clock::PeerClock;
use laxity_core::contract::{ChannelTerms, Service};
use laxity_core::receive::{DeliveredMessage, Evidence, ReceiveGrant, ReceivingChannel, SenderClock, TimeLoss};
use laxity_core::units::{Duration, Instant};

/// Packets of 100 bytes from a host with the same clock.
pub(crate) fn terms(service: Service) -> ChannelTerms {
    ChannelTerms { service, packet: 100, oversize: 1, same_clock: true }
}

/// Of the deadline 10 ms are the sender's, and 10 this host's.
pub(crate) fn grant(messages: u32, packets: u32) -> ReceiveGrant {
    ReceiveGrant {
        stage: Duration::from_millis(10),
        input_delay: Duration::ZERO,
        upstream: Duration::from_millis(10),
        transit: Duration::MAX,
        work_conserving: true,
        priority: 0,
        messages,
        packets,
    }
}

/// The platform has taken nothing.
pub(crate) fn nothing(_: Instant) -> Duration {
    Duration::ZERO
}

/// The next message; nothing is known of another clock.
pub(crate) fn deliver(receiving: &mut ReceivingChannel, now: Instant) -> Option<(DeliveredMessage, Option<Evidence>)> {
    let clock = PeerClock::new(100, Duration::from_millis(100));
    let sender =
        SenderClock { clock: &clock, own_epoch: 0, begun: None, is_direct: true, allowed_error: Duration::ZERO };
    receiving.deliver(now, sender, |_| TimeLoss::default()).map(|(delivered, evidence, _)| (delivered, evidence))
}
