//! The contents of control frames, one structure for each, with the ranges of its fields.
//!
//! "all" means that each value that fits the field is read; the endpoint then judges its meaning.

use super::fields::{self as tag, Field};
use super::{WireError, check_range};
use crate::admission::Refusal;
use crate::cause::Misses;
use crate::clock::ClockExchange;
use crate::contract::{Contract, ContractError, Service};
use crate::limits::{MAX_NAME_BYTES, MIN_PACKET_BYTES};
use crate::probability::Probability;
use crate::units::{Duration, Rate};

/// The kind of service that is asked for: `service` in OPEN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum ServiceKind {
    /// A contract [channels §2.2].
    #[default]
    RealTime = 0,
    /// Best effort, which has `max_message` and `burst` only.
    BestEffort = 1,
    /// Whether a contract would be granted: nothing is opened, and REFUSE says [`Code::WouldFit`](crate::admission::Code::WouldFit) or what stands in the way.
    /// Applications of other processes cannot ask for it.
    #[cfg_attr(feature = "serde", serde(skip))]
    Question = 2,
}

/// The service that a peer, or an application in another process, asks for, as it says; the conversion into [`Service`] checks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestedService {
    /// What is asked for.
    pub service: ServiceKind,
    /// M in bytes, all.
    pub max_message: u32,
    /// The smallest message in bytes, all; 1 if it is not in the frame.
    pub min_message: u32,
    /// I, all.
    pub interval: Duration,
    /// B in messages, all; of best effort the messages that may wait at once.
    pub burst: u32,
    /// D, all.
    pub deadline: Duration,
    /// The time by which messages may come earlier than the burst allows, all; zero if it is not in the frame.
    pub catch_up: Duration,
    /// As [`Contract::tolerate`] has it, in units of 10⁻¹²; 0 tolerates nothing.
    pub tolerance: u64,
}

impl From<Service> for RequestedService {
    fn from(service: Service) -> Self {
        match service {
            Service::RealTime(contract) => Self {
                service: ServiceKind::RealTime,
                max_message: contract.max_message(),
                min_message: contract.min_message(),
                interval: contract.interval(),
                burst: contract.burst(),
                deadline: contract.deadline(),
                catch_up: contract.catch_up(),
                tolerance: contract.tolerance().map_or(0, Probability::parts),
            },
            Service::BestEffort { max_message, queue } => {
                Self { service: ServiceKind::BestEffort, max_message, burst: queue, ..Self::default() }
            }
        }
    }
}

impl TryFrom<RequestedService> for Service {
    type Error = ContractError;

    /// The service that is asked for, every limit checked.
    ///
    /// # Errors
    /// As [`Contract::new`] and [`Service::best_effort`].
    fn try_from(asked: RequestedService) -> Result<Self, ContractError> {
        let [max, min, burst] = [asked.max_message, asked.min_message, asked.burst].map(u64::from);
        if asked.service == ServiceKind::BestEffort {
            return Self::best_effort(max, burst);
        }
        let contract = Contract::new(max, min, asked.interval, burst, asked.deadline)?.with_catch_up(asked.catch_up)?;
        Ok(Self::RealTime(match asked.tolerance {
            0 => contract,
            // What is more than one stays more than is possible.
            parts => contract.tolerate(Probability::from_parts(parts))?,
        }))
    }
}

impl RequestedService {
    /// The same as a question; best effort is always granted, and never asked about.
    #[must_use]
    pub fn as_question(mut self) -> Self {
        if self.service == ServiceKind::RealTime {
            self.service = ServiceKind::Question;
        }
        self
    }

    /// True if the sender only wants to know.
    pub fn is_question(&self) -> bool {
        self.service == ServiceKind::Question
    }
}

/// The pace of a channel's first link, as its sender tells: it bounds how much may be in transit at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderPace {
    /// The link's rate; `None` if nothing paces it.
    pub rate: Option<Rate>,
    /// The work that the link may have been given ahead.
    pub ahead: Duration,
    /// The least time between two starts of packets at the sender, of any channel, while it promises anything: up to
    /// [`MAX_SPACING`](crate::admission::incoming::MAX_SPACING), 0 if it does not space them.
    pub spacing: Duration,
}

/// OPEN: may this channel be opened?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open<'a> {
    /// The name that the receiver listens on: 1 to [`MAX_NAME_BYTES`] bytes, as [`check_name`].
    pub name: &'a str,
    /// The service and its numbers; not checked yet.
    pub traffic: RequestedService,
    /// S in bytes, [`MIN_PACKET_BYTES`] to [`MAX_PACKET_BYTES`](crate::limits::MAX_PACKET_BYTES).
    pub packet: u16,
    /// The part of the deadline that the sender's stages need at least; all.
    pub upstream: Duration,
    /// The longest silence of a side before the other frees the channel; all, the endpoint bounds it.
    pub lease: Duration,
    /// A proof for a host that has the clock of the sender's times that the sender has it, too ([`crate::signal::clock_sign`]); all, 0 if
    /// no host shares it.
    pub clock: u64,
    /// The largest size of a message as a multiple of `max_message`: 1 to [`crate::limits::DECAY_FACTOR`], 1 if absent. More than 1
    /// says that the sender's overload policy is `decay`.
    pub oversize: u8,
    /// The pace of the channel's first link: fields `link_rate`, `ahead` and `spacing`.
    pub pace: SenderPace,
}

/// ACCEPT: the channel is open at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// The receiver's slot index, to be put into each data frame; all.
    pub channel: u32,
    /// The receiver's nonce for the slot, to be put into each data frame; all.
    pub key: u64,
    /// The deadline of the receiver's stage; all.
    pub receive: Duration,
    /// S as accepted, in bytes, [`MIN_PACKET_BYTES`] to what was offered ([`Accept::check`]).
    pub packet: u16,
    /// The lease as accepted; all.
    pub lease: Duration,
    /// The same proof about the receiver's clock; all, 0 if the sender has not shown that it has the same one.
    pub clock: u64,
    /// The least time between two starts of packets of a best-effort channel: up to [`MAX_SPACING`](crate::admission::incoming::MAX_SPACING), 0 if not
    /// in the frame, as soon as it can.
    pub spacing: Duration,
}

impl Accept {
    /// Checks that the packet size is one that the sender offered.
    ///
    /// # Errors
    /// It is larger than `offered`.
    pub fn check(&self, offered: u16) -> Result<(), WireError> {
        check_range(tag::PACKET.name, self.packet.into(), MIN_PACKET_BYTES.into(), offered.into())
    }
}

/// REFUSE: the channel is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse<'a> {
    /// The reason, with all that is transmitted of it: [`Refusal::contract`] is not; put its text into `detail`. All codes, stages and times are read,
    /// as a later minor version may have more: a code that this version does not know becomes [`Code::Protocol`](crate::admission::Code::Protocol), a stage
    /// [`Stage::Route`](crate::admission::Stage::Route).
    pub refusal: Refusal,
    /// An explanation for people, up to [`MAX_DETAIL_BYTES`](super::fields::MAX_DETAIL_BYTES) of UTF-8, empty if there is none. It is the peer's text:
    /// a program that prints it escapes control characters.
    pub detail: &'a str,
}

/// KEEPALIVE: the sender is still here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepalive {
    /// The receiver's slot index; all.
    pub channel: u32,
    /// The receiver's nonce for the slot; all.
    pub key: u64,
    /// Messages handed to the network so far; all.
    pub sent: u64,
    /// Packets, of whatever channel, that this host made since the channel was opened and lost before they left it; all, 0 if not in
    /// the frame. Messages that the receiver misses are not the network's fault so far.
    pub unsent: u64,
    /// The least time between two starts of its packets, as the receiver said it last. As [`Accept::spacing`].
    pub spacing: Duration,
    /// The time, on one channel between hosts with two clocks: all instants, an epoch of 0 to 7. On the wire a report of zeros is none.
    pub exchange: Option<ClockExchange>,
}

/// STATUS: the answer to KEEPALIVE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The outcomes of the messages.
    pub counts: MessageCounts,
    /// The least time between two starts of their packets from now on. As [`Accept::spacing`].
    pub spacing: Duration,
    /// As [`Keepalive::exchange`].
    pub exchange: Option<ClockExchange>,
}

/// In STATUS and CLOSED: what became of the messages, at the receiver, so far. Each message counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MessageCounts {
    /// Delivered within the deadline; all.
    pub delivered: u64,
    /// Delivered after it; all.
    pub late: u64,
    /// Did not arrive whole; all.
    pub lost: u64,
    /// Arrived and were dropped; all.
    pub dropped: u64,
    /// The largest delay seen, from logical arrival to completion; all.
    pub largest: Duration,
    /// Delivered, and whether that was within the deadline is not known; all, 0 if not in the frame.
    pub undecided: u64,
    /// Of those that were late, lost or dropped, by whose fault; all, each 0 if not in the frame.
    pub misses: Misses,
    /// Delivered within the deadline and after the bound; all, 0 if not in the frame.
    pub over_bound: u64,
    /// The receiver's uncertainty about the sender's clock; all, zero if it is its own, `None` (not in the frame) if it cannot tell.
    pub clock_error: Option<Duration>,
}

impl MessageCounts {
    /// Of how many messages they tell; `None` if that is more than can be counted, or contradicts itself.
    pub fn messages(&self) -> Option<u64> {
        let sum = |counts: &[u64]| counts.iter().try_fold(0, |sum: u64, count| sum.checked_add(*count));
        let Misses { sender, receiver, network, platform, laxity, unexplained } = self.misses;
        let missed = sum(&[self.late, self.lost, self.dropped])?;
        if sum(&[sender, receiver, network, platform, laxity, unexplained])? > missed
            || self.over_bound > self.delivered
        {
            return None;
        }
        sum(&[self.delivered, self.undecided, missed])
    }
}

/// [`Close::reason`]: a relay closes because a host further along the route, in either direction, was lost.
pub const ROUTE_LOST: u8 = 1;

/// CLOSE: the channel ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Close {
    /// The receiver's slot index; all.
    pub channel: u32,
    /// The receiver's nonce for the slot; all.
    pub key: u64,
    /// Messages handed to the network, finally; all. If `reverse`, the last such count that the receiver was told.
    pub sent: u64,
    /// As [`Keepalive::unsent`].
    pub unsent: u64,
    /// The reason; all, 0 if not said or not in the frame, [`ROUTE_LOST`].
    pub reason: u8,
    /// True if the receiver closes; 0 or 1 on the wire, 0 if not in the frame.
    pub reverse: bool,
    /// As [`Keepalive::exchange`].
    pub exchange: Option<ClockExchange>,
}

/// VERSION: the major versions that a host speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The lowest; all.
    pub lowest: u8,
    /// The highest; `lowest` to 255.
    pub highest: u8,
}

/// May a channel have this name? 1 to [`MAX_NAME_BYTES`] bytes of printable ASCII (0x21 to 0x7E) without '/', so that it
/// can stand in addresses, file names, terminals and logs as it is.
///
/// # Errors
/// Its length, or the first byte that no name may have.
pub fn check_name(name: &str) -> Result<(), WireError> {
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
        let Field { name: field, least, most, .. } = tag::NAME;
        return Err(WireError::FieldLength { field, found: name.len(), least, most });
    }
    let wrong = name.bytes().enumerate().find(|(_, byte)| !byte.is_ascii_graphic() || *byte == b'/');
    wrong.map_or(Ok(()), |(at, found)| Err(WireError::Name { found, at }))
}
