//! Events that the endpoint tells its driver, beside data: typed, bounded, never logged on the data path.

use crate::admission::Refusal;
use crate::collections::Key;
use crate::contract::ChannelTerms;
use crate::limits::MAX_NAME_BYTES;
use crate::units::Duration;
use crate::wire::{self, MessageCounts, WireError};

pub use crate::wire::SenderPace;

/// A channel at this endpoint.
pub type ChannelId = Key;

/// The number of a link of this endpoint.
pub type LinkId = u8;

/// The name that a receiver listens on: 1 to 64 printable ASCII characters without space and `/`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    bytes: [u8; MAX_NAME_BYTES],
    len: u8,
}

impl Name {
    /// A checked name.
    ///
    /// # Errors
    /// As [`wire::check_name`].
    pub fn new(name: &str) -> Result<Self, WireError> {
        wire::check_name(name)?;
        let mut bytes = [0; MAX_NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, len: name.len() as u8 })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Where a channel goes, or comes from.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// The link.
    pub link: LinkId,
    /// The other host.
    pub peer: core::net::SocketAddr,
    /// The receiver's name.
    pub name: Name,
}

/// A peer's request for a channel, checked against the limits but not admitted yet.
#[derive(Clone, Copy, Debug)]
pub struct PeerRequest {
    /// Names the request when it is answered.
    pub id: RequestId,
    /// The link over which it came, the peer that asks, and the name that is asked for.
    pub from: Destination,
    /// The terms that are asked for: the largest payload that both sides' frames hold, and our clock if the peer has shown that it has it, or a relay
    /// vouches for that.
    pub terms: ChannelTerms,
    /// True if the peer only wants to know: the answer is `refuse`, with [`Code::WouldFit`](crate::admission::Code::WouldFit) if it would be granted.
    pub is_question: bool,
    /// The part of the deadline that the sender's stages need at least.
    pub upstream: Duration,
    /// The longest silence of a side.
    pub lease: Duration,
    /// The pace of the link that carries it.
    pub pace: SenderPace,
}

/// A pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) u64);

/// The end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum End {
    /// Both sides closed the channel in order. A sender has the receiver's figures.
    Closed {
        /// The receiver's counters.
        report: Option<MessageCounts>,
    },
    /// The receiver closed; messages that were queued here are lost.
    ClosedByPeer,
    /// The peer was silent for longer than the lease.
    PeerLost,
    /// A relay told that a host further along the route was lost: the receiver's end if this is the sender, the sender's end
    /// if this is the receiver.
    RouteLost,
    /// The peer did not answer the request to open the channel.
    NoAnswer,
    /// The peer or this host refused the channel.
    Refused(Refusal),
    /// The peer speaks other major versions of the protocol.
    Version {
        /// The lowest that it speaks.
        lowest: u8,
        /// The highest.
        highest: u8,
    },
}

/// Something that the driver must know.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A peer asks for a channel: answer with `accept` or `refuse`. A relay first opens the onward side
    /// ([`SendSetup::relay`](crate::endpoint::SendSetup::relay)); if the next host refuses, the peer is told without further ado.
    Requested(PeerRequest),
    /// The receiver accepted; call `begin` with the final stages. Of a relay's channel onward: `accept` the request that it
    /// was opened for ([`ReceiveSetup::relay`](crate::endpoint::ReceiveSetup::relay)).
    Accepted {
        /// The channel.
        channel: ChannelId,
        /// The deadline of the receiver's stage.
        receive: Duration,
        /// True if the receiver's clock is ours, as the peer has shown, or vouches for if it is a relay.
        same_clock: bool,
        /// The payload size that was agreed, bytes.
        packet: u32,
        /// The receiver's place for the channel, and its key: what each packet carries.
        receiver: (u32, u64),
    },
    /// The sender of a best-effort channel now keeps this time between its packets, and every packet that it sent before has come or is lost: the
    /// answer to [`ask_spacing`](crate::endpoint::Endpoint::ask_spacing).
    Spaced {
        /// The channel.
        channel: ChannelId,
        /// The least time between two starts.
        spacing: Duration,
    },
    /// A channel is over; call `release`. If memory allows, wait for a lease before that: a peer that did not get our last
    /// frame repeats its CLOSE for so long, and takes this host for lost if no answer comes.
    Ended {
        /// The channel.
        channel: ChannelId,
        /// The kind of end.
        end: End,
    },
    /// A receiving channel has messages whose events were not fetched: the driver was too slow to drain them.
    Overflow {
        /// Events that were dropped.
        dropped: u64,
    },
}

/// An address in the form of IPv6, where one of IPv4 is mapped.
pub fn octets(address: core::net::IpAddr) -> [u8; 16] {
    match address {
        core::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        core::net::IpAddr::V6(v6) => v6.octets(),
    }
}
