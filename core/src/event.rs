//! What the endpoint tells its driver, beside data: typed, bounded, never logged on the way.

use crate::admission::Refusal;
use crate::collections::Key;
use crate::contract::Service;
use crate::limits::MAX_NAME_BYTES;
use crate::units::Duration;
use crate::wire::{self, Counts, WireError};

pub use crate::wire::Pace;

/// A channel at this endpoint.
pub type ChannelId = Key;

/// The number of a link of this endpoint.
pub type LinkId = u8;

/// The name that a receiver listens on: 1 to 64 printable characters without `/`.
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

/// A peer's request for a channel, checked against the limits but not admitted yet.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Names the request when it is answered.
    pub id: RequestId,
    /// Who asks.
    pub peer: core::net::SocketAddr,
    /// On which link.
    pub link: LinkId,
    /// Who is asked for.
    pub name: Name,
    /// What is asked for.
    pub service: Service,
    /// Whether the peer only wants to know: the answer is `refuse`, with [`Code::WouldFit`](crate::admission::Code::WouldFit) if it would be granted.
    pub is_question: bool,
    /// S: the largest payload that both sides' frames hold.
    pub packet: u32,
    /// The part of the deadline that the sender's stages need at least.
    pub upstream: Duration,
    /// How many times `max_message` a message may have (the sender's `decay` policy); 1 otherwise.
    pub oversize: u32,
    /// True if the times in its packets are on our clock, as the peer has shown, or vouches for if it is a relay.
    pub same_clock: bool,
    /// How long a side may be silent.
    pub lease: Duration,
    /// What carries it.
    pub pace: Pace,
}

/// A pending request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub(crate) u64);

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum End {
    /// Both sides agreed. A sender has the receiver's figures.
    Closed {
        /// What the receiver counted.
        report: Option<Counts>,
    },
    /// The receiver closed; what was queued here is lost.
    ClosedByPeer,
    /// The peer was silent for the lease.
    PeerLost,
    /// A relay told that a host further along the route was lost: the receiver's end if this is the sender, the sender's end
    /// if this is the receiver.
    RouteLost,
    /// Nobody answered OPEN.
    NoAnswer,
    /// The peer, or this host, said no.
    Refused(Refusal),
    /// The peer speaks other major versions.
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
    /// A peer asks for a channel: answer with `accept` or `refuse`. A relay first opens the way onward
    /// ([`Outgoing::relay`](crate::endpoint::Outgoing::relay)); if the next host refuses, the peer is told without further ado.
    Requested(Request),
    /// The receiver accepted; call `begin` with the final stages. Of a relay's channel onward: `accept` the request that it
    /// was opened for ([`Incoming::relay`](crate::endpoint::Incoming::relay)).
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
    /// The sender of a best-effort channel starts its packets so far apart now, and everything that it sent before has come or is lost: the
    /// answer to [`ask_spacing`](crate::endpoint::Endpoint::ask_spacing).
    Spaced {
        /// The channel.
        channel: ChannelId,
        /// How far apart.
        spacing: Duration,
    },
    /// A channel is over; call `release`. Not before a lease has passed if memory allows: a peer that did not get our last
    /// word repeats its CLOSE as long, and takes us for lost if nobody answers.
    Ended {
        /// The channel.
        channel: ChannelId,
        /// How.
        end: End,
    },
    /// A receiving channel has messages for which nobody fetched the events; the driver was too slow to drain them.
    Overflow {
        /// Events that were dropped.
        dropped: u64,
    },
}
