//! The fields of control frames: one table of tags, one reader, one writer.
//!
//! A field is `tag u8 | length u8 | value`. A tag means the same in every type of frame and is never given another
//! meaning within a major version; 0 is not used. A tag that is not among those of the frame's type is skipped, whether
//! it is new or merely from another type, so a later minor version can add fields.

use super::{CODE_BYTES, WireError};
use crate::limits::MAX_NAME_BYTES;

/// Bytes before a field's value.
pub(super) const FIELD_HEADER_BYTES: usize = 2;
/// Longest explanation of a refusal, in bytes of UTF-8.
pub const MAX_DETAIL_BYTES: usize = 120;

/// A field that control frames may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The number on the wire.
    pub tag: u8,
    /// The name in errors and documents.
    pub name: &'static str,
    /// Least bytes of the value.
    pub least: u8,
    /// Most bytes of the value; numbers have one length only.
    pub most: u8,
}

const fn number(tag: u8, name: &'static str, bytes: u8) -> Field {
    Field { tag, name, least: bytes, most: bytes }
}

/// The channel's name: printable ASCII without '/' and space.
pub const NAME: Field = Field { tag: 1, name: "name", least: 1, most: MAX_NAME_BYTES as u8 };
/// 0 real-time, 1 best effort.
pub const SERVICE: Field = number(2, "service", 1);
/// M in bytes.
pub const MAX_MESSAGE: Field = number(3, "max_message", 4);
/// The smallest message in bytes.
pub const MIN_MESSAGE: Field = number(4, "min_message", 4);
/// I in ns.
pub const INTERVAL: Field = number(5, "interval", 8);
/// B in messages; the queue of a best-effort channel.
pub const BURST: Field = number(6, "burst", 4);
/// D in ns.
pub const DEADLINE: Field = number(7, "deadline", 8);
/// S in bytes.
pub const PACKET: Field = number(8, "packet", 2);
/// The part of D that the sender's stages need at least, in ns.
pub const UPSTREAM: Field = number(9, "upstream", 8);
/// How long a side may be silent before the other frees the channel, in ns.
pub const LEASE: Field = number(10, "lease", 8);
/// The clock that a host's times are on; 0 for one that nobody shares.
pub const CLOCK: Field = number(11, "clock", 8);
/// The receiver's slot index.
pub const CHANNEL: Field = number(12, "channel", 4);
/// The receiver's nonce for the slot.
pub const KEY: Field = number(13, "key", 8);
/// The deadline of the receiver's stage, in ns.
pub const RECEIVE: Field = number(14, "receive", 8);
/// [`Code`](crate::admission::Code) of a refusal.
pub const CODE: Field = number(15, "code", 2);
/// [`Stage`](crate::admission::Stage) of a refusal.
pub const STAGE: Field = number(16, "stage", 1);
/// The instant of a refusal, in ns.
pub const AT: Field = number(17, "at", 8);
/// The least deadline that would be granted, in ns.
pub const LEAST_DEADLINE: Field = number(18, "least_deadline", 8);
/// An explanation for people, UTF-8.
pub const DETAIL: Field = Field { tag: 19, name: "detail", least: 0, most: MAX_DETAIL_BYTES as u8 };
/// Messages handed to the network so far.
pub const SENT: Field = number(20, "sent", 8);
/// Messages delivered within their deadline. Each message ends once: delivered, late, lost or dropped.
pub const DELIVERED: Field = number(21, "delivered", 8);
/// Messages delivered after their deadline.
pub const LATE: Field = number(22, "late", 8);
/// Messages that did not arrive whole.
pub const LOST: Field = number(23, "lost", 8);
/// Messages that arrived and were dropped.
pub const DROPPED: Field = number(24, "dropped", 8);
/// The largest delay seen, from logical arrival to completion, in ns.
pub const LARGEST: Field = number(25, "largest", 8);
/// Why a channel is closed; 0 if not said.
pub const REASON: Field = number(26, "reason", 1);
/// 1 if the receiver closes, 0 if the sender does.
pub const REVERSE: Field = number(27, "reverse", 1);
/// The lowest major version spoken.
pub const LOWEST: Field = number(28, "lowest", 1);
/// The highest major version spoken.
pub const HIGHEST: Field = number(29, "highest", 1);
/// How many times `max_message` a message may have; 1 if absent (the sender's `decay` policy).
pub const OVERSIZE: Field = number(30, "oversize", 1);

/// In a frame with a code: what no earlier frame of its sender to this channel had; in OPEN what CHALLENGE asked to be said.
pub const NUMBER: Field = number(31, "number", 8);
/// The authentication code of all before it; always the last field.
pub const CODE_OF_FRAME: Field = number(32, "code_of_frame", CODE_BYTES as u8);

/// Of the messages that were late, lost or dropped, those that were so by Laxity's fault; 0 if absent.
pub const LAXITY: Field = number(33, "laxity", 8);
/// Packets that the sender made and lost before they left its host; 0 if absent.
pub const UNSENT: Field = number(34, "unsent", 8);

/// The rate of the sender's link in bytes a second; absent if nobody paces it.
pub const LINK_RATE: Field = number(35, "link_rate", 8);
/// How much work the sender's link may have been given ahead, in ns; 0 if absent.
pub const AHEAD: Field = number(36, "ahead", 8);
/// How far apart a best-effort channel has to start its packets, in ns; in OPEN how far apart the sending executive starts all of its own while it
/// promises anything; 0, as soon as it can, if absent.
pub const SPACING: Field = number(37, "spacing", 8);
/// No frame has it any more: it said that executives share the sender's link by admission.
const RETIRED: Field = number(38, "retired", 1);
/// How much earlier than the burst allows messages may come, in ns; 0 if absent.
pub const CATCH_UP: Field = number(39, "catch_up", 8);
/// The fraction of messages that may be late because of the hosts' platforms, in units of 10⁻¹²; 0, none, if absent.
pub const TOLERANCE: Field = number(40, "tolerance", 8);

/// The exchange of stamps between two hosts with two clocks: said, heard_said, heard_at, epoch.
pub const EXCHANGE: Field = number(41, "exchange", EXCHANGE_BYTES as u8);
/// Bytes of [`EXCHANGE`].
pub const EXCHANGE_BYTES: usize = 25;
/// Messages delivered of which it is not known whether that was within their deadline; 0 if absent.
pub const UNDECIDED: Field = number(42, "undecided", 8);
/// Of the messages that were late, lost or dropped, those by the sender's fault; 0 if absent.
pub const BY_SENDER: Field = number(43, "by_sender", 8);
/// Likewise, by the receiver's.
pub const BY_RECEIVER: Field = number(44, "by_receiver", 8);
/// Likewise, by the network's.
pub const BY_NETWORK: Field = number(45, "by_network", 8);
/// Likewise, by the hosts' platforms'.
pub const BY_PLATFORM: Field = number(46, "by_platform", 8);
/// Likewise, where the witness is missing that could tell by whose.
pub const UNEXPLAINED: Field = number(47, "unexplained", 8);
/// Messages in time and after the bound; 0 if absent.
pub const OVER_BOUND: Field = number(48, "over_bound", 8);
/// How uncertain the receiver is of the sender's clock, in ns; 0 if it is its own, unknown if absent.
pub const CLOCK_ERROR: Field = number(49, "clock_error", 8);

/// All fields, and a tag that is used no more; number `tag` stands at `tag − 1`.
pub const ALL: [Field; 49] = [
    NAME,
    SERVICE,
    MAX_MESSAGE,
    MIN_MESSAGE,
    INTERVAL,
    BURST,
    DEADLINE,
    PACKET,
    UPSTREAM,
    LEASE,
    CLOCK,
    CHANNEL,
    KEY,
    RECEIVE,
    CODE,
    STAGE,
    AT,
    LEAST_DEADLINE,
    DETAIL,
    SENT,
    DELIVERED,
    LATE,
    LOST,
    DROPPED,
    LARGEST,
    REASON,
    REVERSE,
    LOWEST,
    HIGHEST,
    OVERSIZE,
    NUMBER,
    CODE_OF_FRAME,
    LAXITY,
    UNSENT,
    LINK_RATE,
    AHEAD,
    SPACING,
    RETIRED,
    CATCH_UP,
    TOLERANCE,
    EXCHANGE,
    UNDECIDED,
    BY_SENDER,
    BY_RECEIVER,
    BY_NETWORK,
    BY_PLATFORM,
    UNEXPLAINED,
    OVER_BOUND,
    CLOCK_ERROR,
];

const _: () = {
    assert!(NAME.most as usize == MAX_NAME_BYTES);
    assert!(DETAIL.most as usize == MAX_DETAIL_BYTES);
    let mut slot = 0;
    while slot < ALL.len() {
        assert!(ALL[slot].tag as usize == slot + 1);
        assert!(ALL[slot].least <= ALL[slot].most);
        slot += 1;
    }
};

impl Field {
    /// What stands before the value of a number.
    pub(super) fn header(self) -> [u8; FIELD_HEADER_BYTES] {
        [self.tag, self.most]
    }

    fn slot(self) -> usize {
        usize::from(self.tag).saturating_sub(1)
    }

    fn check_length(self, found: usize) -> Result<(), WireError> {
        let Self { name, least, most, .. } = self;
        if (usize::from(least)..=usize::from(most)).contains(&found) {
            return Ok(());
        }
        Err(WireError::FieldLength { field: name, found, least, most })
    }
}

/// Most bytes that `fields` take, each once.
pub(super) const fn most_bytes(fields: &[Field]) -> usize {
    let (mut bytes, mut next) = (0_usize, 0_usize);
    while next < fields.len() {
        bytes = bytes.saturating_add(FIELD_HEADER_BYTES).saturating_add(fields[next].most as usize);
        next = next.saturating_add(1);
    }
    bytes
}

/// The values of a frame's known fields, each of a length that its tag allows.
pub(super) struct Fields<'a> {
    values: [Option<&'a [u8]>; ALL.len()],
}

impl<'a> Fields<'a> {
    /// Reads all fields of `bytes`, keeps those of `known` and skips the others.
    pub(super) fn read(mut bytes: &'a [u8], known: &[Field]) -> Result<Self, WireError> {
        let mut values = [None; ALL.len()];
        while !bytes.is_empty() {
            let truncated = |expected| WireError::Truncated { found: bytes.len(), expected };
            let [tag, length, rest @ ..] = bytes else { return Err(truncated(FIELD_HEADER_BYTES)) };
            let length = usize::from(*length);
            let Some((value, rest)) = rest.split_at_checked(length) else {
                return Err(truncated(FIELD_HEADER_BYTES + length));
            };
            bytes = rest;
            let Some(field) = known.iter().find(|field| field.tag == *tag) else { continue };
            field.check_length(length)?;
            if values[field.slot()].replace(value).is_some() {
                return Err(WireError::Repeated { field: field.name });
            }
        }
        Ok(Self { values })
    }

    /// A value of any length, if it is there.
    pub(super) fn bytes(&self, field: Field) -> Option<&'a [u8]> {
        self.values[field.slot()]
    }

    /// The value of a number, if it is there. `N` is the length that the table names.
    pub(super) fn get<const N: usize>(&self, field: Field) -> Option<[u8; N]> {
        debug_assert_eq!(N, usize::from(field.most), "{} has another length in the table", field.name);
        self.bytes(field)?.try_into().ok()
    }

    /// The value of a mandatory number.
    pub(super) fn need<const N: usize>(&self, field: Field) -> Result<[u8; N], WireError> {
        self.get(field).ok_or(WireError::Missing { field: field.name })
    }
}

/// Writes fields one after another.
pub(super) struct Writer<'b> {
    frame: &'b mut [u8],
    at: usize,
}

impl<'b> Writer<'b> {
    /// Starts `at` bytes into `frame`.
    pub(super) fn new(frame: &'b mut [u8], at: usize) -> Self {
        Self { frame, at }
    }

    /// Appends a field.
    pub(super) fn put(&mut self, field: Field, value: &[u8]) -> Result<(), WireError> {
        field.check_length(value.len())?;
        let end = self.at.saturating_add(FIELD_HEADER_BYTES).saturating_add(value.len());
        let room = WireError::Room { found: self.frame.len(), expected: end };
        let Some([tag, length, area @ ..]) = self.frame.get_mut(self.at..end) else { return Err(room) };
        *tag = field.tag;
        *length = u8::try_from(value.len()).map_err(|_| room)?;
        area.copy_from_slice(value);
        self.at = end;
        Ok(())
    }

    /// Bytes of the frame so far.
    pub(super) fn written(&self) -> usize {
        self.at
    }
}
