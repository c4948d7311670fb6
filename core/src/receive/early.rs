//! Early demultiplexing [rio §2.1]: the frames that may arrive for a channel, as a few numbers by which a program in the driver can judge.
//!
//! [`ExpectedChannel`] is the description of a channel for a link. `fuzz/src/demux/model.rs` gives the program's decision about a packet that is
//! for our port. It is a model, in which [`classify`](crate::wire::classify) and [`DataView`](crate::wire::DataView) take part. A test of the link gives both
//! the same packets, so that the kernel's program is compared with the parsers that the endpoint uses.
//!
//! # Nothing is dropped early that the host would take
//!
//! The host polices messages, the program packets. A channel's packets move a virtual clock on by `spacing` e each, as far as it
//! was behind from now; a packet is dropped if the clock is more than `tolerance` T ahead. So it is dropped exactly if there is a
//! window of length t that ends with it, and in which k packets were let through before it, with `k·e > t + T`.
//!
//! The packets that [`ReceivingChannel::accept`](super::ReceivingChannel::accept) takes in a window of length t, with the contract's interval I
//! and N packets in the largest message:
//!
//! - *Messages that begin in it.* Policing believes logical arrivals that are `w·I` apart for a message that uses up w intervals,
//!   and of which none is more than the credit C behind its time or more than `a + upstream` ahead of it, a being
//!   [`Contract::most_ahead`](crate::contract::Contract::most_ahead). One that is
//!   overtaken takes up time that the one which overtook it skipped, and there is never more of it than the host remembers, `s·o·I`.
//!   So without the last one they use up at most `(t + C + a + upstream) / I + s·o` intervals; the last one uses up o at
//!   most, where o is how many times its size a message may have (`oversize`).
//! - *Messages that began before.* There are s at most: as many as are under reassembly at once (a relay: one). Each has o at most.
//! - A message that uses up w intervals has at most `w·N` packets, each of which is taken once. A short message has fewer.
//! - A frame may wait for `input_delay` until the host finds it, so what it takes in t is what arrived in `t + input_delay`.
//!
//! Together `K(t)·I/N ≤ t + C + a + upstream + input_delay + (2·s + 1)·o·I`. With `e ≤ I/N` and T as above no packet that
//! the host would take is dropped, as long as it takes all that are let through. Packets that it does not take (duplicates, stale ones
//! or those beyond the contract) move the clock on, too. T has room for [`SURPLUS_PACKETS`] of that, and in the long run it may be a
//! fifteenth of what the contract allows: e is that much shorter. A sender that breaks its contract may lose packets to that
//! which the host would have taken; it has only itself to blame.
//!
//! C, the second for which policing believes what is late, is also what an honest host or a network that was stopped for so long
//! sends in a bunch. Nothing depends on how long the host takes to look: what arrives in an honest sender's bunch is bounded the
//! same way.
//!
//! # What is let through
//!
//! Conversely at most `(t + T) / e + 1` packets pass in any window of length t, whatever a peer sends: sixteen fifteenths of the
//! contract's packets in the long run, and a constant. Best effort is not policed in packets: its queue and the share of its class
//! bound what it costs.

use core::net::SocketAddr;

use super::policing::CREDIT;
use crate::contract::{ChannelTerms, packets};
use crate::units::{Duration, Instant};

/// Packets that may be useless: copies that the network made, and those that come too late.
pub const SURPLUS_PACKETS: u64 = 64;

/// In the long run, so many packets may come where the contract allows one less.
const SURPLUS_SHARE: u64 = 16;

/// The class of a frame. Classes are looked at in this order, and each has memory of its own: a flood of one class costs the others no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArrivalClass {
    /// Packets of real-time channels.
    RealTime,
    /// Control frames.
    Control,
    /// Packets of best-effort channels.
    BestEffort,
}

/// The frames that may arrive for one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedChannel {
    /// The peer that sends it.
    pub peer: SocketAddr,
    /// The key that its packets carry.
    pub key: u64,
    /// Real-time or best effort.
    pub class: ArrivalClass,
    /// S: the packet payload that was agreed on, bytes.
    pub packet: u32,
    /// The largest message that may come, bytes.
    pub max_message: u32,
    /// The least time between packets in the long run; zero is not policed.
    pub spacing: Duration,
    /// The time by which it may come too early.
    pub tolerance: Duration,
}

/// Messages that an application's handler was done with before the host saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandledMessages {
    /// Their number.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Those of them that it was done with after their deadline. The cause is unknown.
    pub late: u64,
    /// The longest time from a logical arrival until one of the channel was done with, as far as can be told.
    pub largest: Duration,
}

/// The work of an application's handler for one channel before the host saw anything of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyHandling {
    /// The channel's place.
    pub place: u32,
    /// The messages.
    pub handled: HandledMessages,
    /// Replies: the place of their channel, their number, and their bytes.
    pub replies: Option<(u32, u64, u64)>,
}

impl ExpectedChannel {
    /// From `peer`, with `key`, on a channel with these terms, which have S and o. `delay` is `upstream + input_delay`, and `messages` is s: of so many
    /// packets may come at once. The letters are those of this module's head.
    pub(crate) fn of(terms: &ChannelTerms, delay: Duration, messages: usize, (peer, key): (SocketAddr, u64)) -> Self {
        let (class, spacing, tolerance) = match terms.service.contract() {
            None => (ArrivalClass::BestEffort, Duration::ZERO, Duration::ZERO),
            Some(contract) => {
                let interval = contract.interval();
                let parts = u64::from(terms.intervals(terms.largest_message()));
                let count = u64::from(packets(contract.max_message(), terms.packet));
                // Down, and never to zero: that would be no policing.
                let spacing = interval.mul_ratio(SURPLUS_SHARE - 1, SURPLUS_SHARE * count).max(Duration::from_nanos(1));
                let whole = interval * ((2 * messages as u64 + 1) * parts);
                let tolerance = CREDIT + contract.most_ahead() + delay + whole + spacing * SURPLUS_PACKETS;
                (ArrivalClass::RealTime, spacing, tolerance)
            }
        };
        let (packet, max_message) = (terms.packet, terms.largest_message());
        Self { peer, key, class, packet, max_message, spacing, tolerance }
    }
}

/// A rate: one frame may come every `spacing`, and up to `tolerance` too early. A spacing of zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RateLimit {
    /// Zero is not policed.
    pub spacing: Duration,
    /// The time by which one may come too early.
    pub tolerance: Duration,
}

/// Packets that are known to have been dropped, and that no missing message has been explained by yet: those of a channel that were over its
/// contract, before the host saw them, or those that the host has lost in its input.
#[derive(Debug, Default)]
pub(crate) struct UnexplainedDrops {
    packets: u64,
    noted: Instant,
}

impl UnexplainedDrops {
    /// The time for which they explain anything: as long as a packet may be late.
    pub(crate) const LAST: Duration = CREDIT;

    /// Notes that `packets` were dropped; at most `most` explain anything.
    pub(crate) fn note(&mut self, now: Instant, packets: u64, most: u64) {
        self.forget_old(now);
        self.packets = self.packets.saturating_add(packets).min(most);
        self.noted = now;
    }

    /// A drop that has explained nothing for so long explains nothing any more: what is lost from now on has another cause.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        if now.since(self.noted) > Self::LAST {
            self.packets = 0;
        }
    }

    /// The number of the missing `messages` that they explain, if of each `missing` packets are, or it is not known to be more.
    pub(crate) fn explain(&mut self, messages: u64, missing: u64) -> u64 {
        let explained = messages.min(self.packets.div_ceil(missing.max(1)));
        self.packets = self.packets.saturating_sub(explained.saturating_mul(missing.max(1)));
        explained
    }
}
