//! The fields of control frames: one table of tags, one reader, one writer.
//!
//! A field is `tag u8 | length u8 | value`. A tag means the same in every type of frame and is never given another
//! meaning within a major version; 0 is not used. A tag that is not among those of the frame's type is skipped, whether
//! it is new or merely from another type, so a later minor version can add fields.

use super::{CODE_BYTES, WireError};
use crate::limits::MAX_NAME_BYTES;
use crate::units::Duration;

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

/// Bytes of [`EXCHANGE`].
pub const EXCHANGE_BYTES: usize = 25;
/// Bytes of [`WALL`].
pub const WALL_BYTES: usize = 15;

macro_rules! fields {
    ($($(#[$doc:meta])* $visibility:vis $name:ident = $field:expr;)+) => {
        $($(#[$doc])* $visibility const $name: Field = $field;)+

        /// All fields, and a tag that is used no more; number `tag` stands at `tag − 1`.
        pub const ALL: &[Field] = &[$($name),+];
    };
}

fields! {
    /// The channel's name: printable ASCII without '/' and space.
    pub NAME = Field { tag: 1, name: "name", least: 1, most: MAX_NAME_BYTES as u8 };
    /// What is asked for, a [`ServiceKind`](super::ServiceKind).
    pub SERVICE = number(2, "service", 1);
    /// M in bytes.
    pub MAX_MESSAGE = number(3, "max_message", 4);
    /// The smallest message in bytes.
    pub MIN_MESSAGE = number(4, "min_message", 4);
    /// I in ns.
    pub INTERVAL = number(5, "interval", 8);
    /// B in messages; the queue of a best-effort channel.
    pub BURST = number(6, "burst", 4);
    /// D in ns.
    pub DEADLINE = number(7, "deadline", 8);
    /// S in bytes.
    pub PACKET = number(8, "packet", 2);
    /// The part of D that the sender's stages need at least, in ns.
    pub UPSTREAM = number(9, "upstream", 8);
    /// The longest silence of a side before the other frees the channel, in ns.
    pub LEASE = number(10, "lease", 8);
    /// The clock that a host's times are on; 0 for one that no other host shares.
    pub CLOCK = number(11, "clock", 8);
    /// The receiver's slot index.
    pub CHANNEL = number(12, "channel", 4);
    /// The receiver's nonce for the slot.
    pub KEY = number(13, "key", 8);
    /// The deadline of the receiver's stage, in ns.
    pub RECEIVE = number(14, "receive", 8);
    /// [`Code`](crate::admission::Code) of a refusal.
    pub CODE = number(15, "code", 2);
    /// [`Stage`](crate::admission::Stage) of a refusal.
    pub STAGE = number(16, "stage", 1);
    /// The instant of a refusal, in ns.
    pub AT = number(17, "at", 8);
    /// The least deadline that would be granted, in ns.
    pub LEAST_DEADLINE = number(18, "least_deadline", 8);
    /// An explanation for people, UTF-8.
    pub DETAIL = Field { tag: 19, name: "detail", least: 0, most: MAX_DETAIL_BYTES as u8 };
    /// Messages handed to the network so far.
    pub SENT = number(20, "sent", 8);
    /// Messages delivered within their deadline. Each message ends once: delivered, late, lost or dropped.
    pub DELIVERED = number(21, "delivered", 8);
    /// Messages delivered after their deadline.
    pub LATE = number(22, "late", 8);
    /// Messages that did not arrive whole.
    pub LOST = number(23, "lost", 8);
    /// Messages that arrived and were dropped.
    pub DROPPED = number(24, "dropped", 8);
    /// The largest delay seen, from logical arrival to completion, in ns.
    pub LARGEST = number(25, "largest", 8);
    /// The reason why a channel is closed; 0 if not said.
    pub REASON = number(26, "reason", 1);
    /// 1 if the receiver closes, 0 if the sender does.
    pub REVERSE = number(27, "reverse", 1);
    /// The lowest major version spoken.
    pub LOWEST = number(28, "lowest", 1);
    /// The highest major version spoken.
    pub HIGHEST = number(29, "highest", 1);
    /// The largest size of a message as a multiple of `max_message`; 1 if absent (the sender's `decay` policy).
    pub OVERSIZE = number(30, "oversize", 1);
    /// In a frame with a code: a number that no earlier frame of its sender to this channel had; in OPEN the number that CHALLENGE asked for.
    pub NUMBER = number(31, "number", 8);
    /// The authentication code of all before it; always the last field.
    pub CODE_OF_FRAME = number(32, "code_of_frame", CODE_BYTES as u8);
    /// Of the messages that were late, lost or dropped, those by Laxity's fault; 0 if absent.
    pub LAXITY = number(33, "laxity", 8);
    /// Packets that the sender made and lost before they left its host; 0 if absent.
    pub UNSENT = number(34, "unsent", 8);
    /// The rate of the sender's link in bytes a second; absent if nothing paces it.
    pub LINK_RATE = number(35, "link_rate", 8);
    /// The work that the sender's link may have been given ahead, in ns; 0 if absent.
    pub AHEAD = number(36, "ahead", 8);
    /// The least time between two starts of packets of a best-effort channel, in ns. In OPEN: the least time between two starts of the sending
    /// executive's packets, of all channels, while it promises anything. 0 (as soon as it can) if absent.
    pub SPACING = number(37, "spacing", 8);
    /// No frame has it any more: it said that executives share the sender's link by admission.
    RETIRED = number(38, "retired", 1);
    /// The time by which messages may come earlier than the burst allows, in ns; 0 if absent.
    pub CATCH_UP = number(39, "catch_up", 8);
    /// The fraction of messages that may be late because of the hosts' platforms, in units of 10⁻¹²; 0, none, if absent.
    pub TOLERANCE = number(40, "tolerance", 8);
    /// The exchange of stamps between two hosts with two clocks: said, heard_said, heard_at, epoch.
    pub EXCHANGE = number(41, "exchange", EXCHANGE_BYTES as u8);
    /// Delivered messages for which it is unknown whether they were within their deadline; 0 if absent.
    pub UNDECIDED = number(42, "undecided", 8);
    /// Of the messages that were late, lost or dropped, those by the sender's fault; 0 if absent.
    pub BY_SENDER = number(43, "by_sender", 8);
    /// Likewise, by the receiver's.
    pub BY_RECEIVER = number(44, "by_receiver", 8);
    /// Likewise, by the network's.
    pub BY_NETWORK = number(45, "by_network", 8);
    /// Likewise, by the hosts' platforms'.
    pub BY_PLATFORM = number(46, "by_platform", 8);
    /// Likewise, those whose cause is unknown because a witness is missing.
    pub UNEXPLAINED = number(47, "unexplained", 8);
    /// Messages in time and after the bound; 0 if absent.
    pub OVER_BOUND = number(48, "over_bound", 8);
    /// The receiver's uncertainty about the sender's clock, in ns; 0 if it is its own, unknown if absent.
    pub CLOCK_ERROR = number(49, "clock_error", 8);
    /// The wall clock of the host that says [`EXCHANGE`], if its kernel vouches for it: the time by which it was ahead of that host's clock, its error, and the time since
    /// it was read.
    pub WALL = number(50, "wall", WALL_BYTES as u8);
}

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
    /// The header before the value of a number.
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

/// The values of a frame's fields, or that they are repeated. What a message does not ask for may be of any length, and repeated.
pub(super) struct Fields<'a>([Option<Result<&'a [u8], Repeated>>; ALL.len()]);

/// A field stands more than once.
#[derive(Clone, Copy)]
struct Repeated;

impl<'a> Fields<'a> {
    /// Reads all fields of `bytes`, and skips those with a tag that no field has.
    pub(super) fn read(mut bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Self([None; ALL.len()]);
        while !bytes.is_empty() {
            let truncated = |expected| WireError::Truncated { found: bytes.len(), expected };
            let [tag, length, rest @ ..] = bytes else { return Err(truncated(FIELD_HEADER_BYTES)) };
            let length = usize::from(*length);
            let Some((value, rest)) = rest.split_at_checked(length) else {
                return Err(truncated(FIELD_HEADER_BYTES + length));
            };
            bytes = rest;
            let Some(slot) = usize::from(*tag).checked_sub(1).filter(|&slot| slot < ALL.len()) else { continue };
            fields.0[slot] = Some(if fields.0[slot].is_none() { Ok(value) } else { Err(Repeated) });
        }
        Ok(fields)
    }

    /// A value, if it is there: once, and of a length that its tag allows.
    fn bytes(&self, field: Field) -> Result<Option<&'a [u8]>, WireError> {
        let value = self.0[field.slot()].transpose().map_err(|Repeated| WireError::Repeated(field.name))?;
        let Some(value) = value else { return Ok(None) };
        field.check_length(value.len()).map(|()| Some(value))
    }
}

/// Writes fields one after another.
pub(super) struct Writer<'b> {
    frame: &'b mut [u8],
    /// Bytes of the frame so far.
    pub(super) at: usize,
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
}

/// A pass over the fields of a message, in the order in which they are written. Each value goes in and comes out: [`Fields`] gives it as it is
/// in the frame, whatever it was; [`Writer`] puts it there, and gives it back. So a message names each of its fields once.
pub(super) trait Pass<'a> {
    /// A number with as many bytes as the table says; `None` is not in the frame.
    fn optional(&mut self, field: Field, value: Option<u64>) -> Result<Option<u64>, WireError>;
    /// A text.
    fn text(&mut self, field: Field, text: Option<&'a str>) -> Result<Option<&'a str>, WireError>;
    /// Bytes, as many as the table says.
    fn array<const N: usize>(&mut self, field: Field, bytes: Option<[u8; N]>) -> Result<Option<[u8; N]>, WireError>;

    /// A mandatory number.
    fn number<T: Into<u64> + TryFrom<u64>>(&mut self, field: Field, value: T) -> Result<T, WireError> {
        let found = self.optional(field, Some(value.into()))?;
        found.and_then(|found| found.try_into().ok()).ok_or(WireError::Missing(field.name))
    }
    /// A number that is `absent` if it is not in the frame. It is written in any case.
    fn number_or<T: Into<u64> + TryFrom<u64>>(&mut self, absent: T, field: Field, value: T) -> Result<T, WireError> {
        let found = self.optional(field, Some(value.into()))?;
        Ok(found.and_then(|found| found.try_into().ok()).unwrap_or(absent))
    }
    /// Likewise. It is left out if it is `absent`.
    fn other_than<T: Copy + Into<u64> + TryFrom<u64>>(
        &mut self,
        absent: T,
        field: Field,
        value: T,
    ) -> Result<T, WireError> {
        let found = self.optional(field, Some(value.into()).filter(|value| *value != absent.into()))?;
        Ok(found.and_then(|found| found.try_into().ok()).unwrap_or(absent))
    }
    /// A mandatory span of time.
    fn span(&mut self, field: Field, span: Duration) -> Result<Duration, WireError> {
        self.number(field, span.as_nanos()).map(Duration::from_nanos)
    }
    /// A span of time that is left out if it is zero.
    fn span_or_zero(&mut self, field: Field, span: Duration) -> Result<Duration, WireError> {
        self.other_than(0, field, span.as_nanos()).map(Duration::from_nanos)
    }
    /// A span of time that need not be there.
    fn optional_span(&mut self, field: Field, span: Option<Duration>) -> Result<Option<Duration>, WireError> {
        Ok(self.optional(field, span.map(Duration::as_nanos))?.map(Duration::from_nanos))
    }
}

impl<'a> Pass<'a> for Fields<'a> {
    fn optional(&mut self, field: Field, _: Option<u64>) -> Result<Option<u64>, WireError> {
        Ok(self.bytes(field)?.map(|bytes| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))))
    }
    fn text(&mut self, field: Field, _: Option<&'a str>) -> Result<Option<&'a str>, WireError> {
        let text = self.bytes(field)?.map(core::str::from_utf8).transpose();
        text.map_err(|error| WireError::Text { field: field.name, at: error.valid_up_to() })
    }
    fn array<const N: usize>(&mut self, field: Field, _: Option<[u8; N]>) -> Result<Option<[u8; N]>, WireError> {
        Ok(self.bytes(field)?.and_then(|bytes| bytes.try_into().ok()))
    }
}

impl<'a> Pass<'a> for Writer<'_> {
    fn optional(&mut self, field: Field, value: Option<u64>) -> Result<Option<u64>, WireError> {
        if let Some(value) = value {
            let bytes = value.to_be_bytes();
            self.put(field, &bytes[bytes.len().saturating_sub(field.most.into())..])?;
        }
        Ok(value)
    }
    fn text(&mut self, field: Field, text: Option<&'a str>) -> Result<Option<&'a str>, WireError> {
        text.map_or(Ok(()), |text| self.put(field, text.as_bytes())).map(|()| text)
    }
    fn array<const N: usize>(&mut self, field: Field, bytes: Option<[u8; N]>) -> Result<Option<[u8; N]>, WireError> {
        bytes.map_or(Ok(()), |bytes| self.put(field, &bytes)).map(|()| bytes)
    }
}
