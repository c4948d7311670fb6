//! Control frames: the messages of two endpoints about one channel.
//!
//! | offset | bytes | field | range |
//! |---|---|---|---|
//! | 0 | 4 | prefix | kind 2 |
//! | 4 | 1 | type | 1 to 9, [`ControlType`] |
//! | 5 | 1 | minor | all; 0 is written |
//! | 6 | 2 | length | 8 to 504; bytes that follow this field, token included: the frame has exactly 8 + length |
//! | 8 | 8 | token | all; the opener's nonce that names this connection |
//! | 16 | length − 8 | fields | `tag u8, length u8, value`, in any order |
//!
//! A field may stand once. A repeated one of the frame's type, one of a wrong length, and a missing mandatory one are errors; any other one
//! is skipped. `docs/wire.md` has the fields of a type, and says which of them are mandatory; the ranges stand at the structures' fields.

use super::data::EPOCHS;
use super::fields::{self as tag, Field, Fields, Pass, Writer};
use super::messages::{
    Accept, Close, Keepalive, MessageCounts, Open, Refuse, RequestedService, SenderPace, ServiceKind, Status, Versions,
    check_name,
};
use super::{FrameKind, KIND_AT, MAGIC, MINOR, Prefix, WireError, check_range, classify};
use crate::admission::incoming::MAX_SPACING;
use crate::admission::{Code, Refusal, Stage};
use crate::cause::Misses;
use crate::clock::{ClockExchange, StampReport, WallReading};
use crate::limits::{DECAY_FACTOR, MAX_PACKET_BYTES, MIN_PACKET_BYTES};
use crate::units::{Duration, Instant, Rate};
use strum::VariantArray;
use zerocopy::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the fields of a control frame.
pub const CONTROL_HEADER_BYTES: usize = 16;
/// Most bytes of a control frame: below any path's MTU, with room for the fields of later minor versions.
pub const MAX_CONTROL_BYTES: usize = 512;
/// Bytes of an authentication code.
pub const CODE_BYTES: usize = 16;
/// Bytes that [`seal`] adds.
pub const SEAL_BYTES: usize = 2 * tag::FIELD_HEADER_BYTES + tag::NUMBER.most as usize + CODE_BYTES;
/// The bytes that `length` does not count.
const UNCOUNTED_BYTES: usize = 8;

/// The header as it lies in the frame; the same in every major version.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    prefix: Prefix,
    control_type: u8,
    minor: u8,
    length: U16,
    token: U64,
}

const _: () = {
    assert!(size_of::<RawHeader>() == CONTROL_HEADER_BYTES);
    assert!(MAX_CONTROL_BYTES - UNCOUNTED_BYTES <= u16::MAX as usize);
};

/// A control frame without its header. Text is borrowed from the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumDiscriminants)]
#[strum_discriminants(name(ControlType), derive(Hash, strum::FromRepr, strum::VariantArray))]
#[strum_discriminants(doc = "The types of control frames with their numbers on the wire.")]
#[repr(u8)]
pub enum Control<'a> {
    /// Sender to receiver: may this channel be opened?
    Open(Open<'a>) = 1,
    /// Receiver to sender: yes.
    Accept(Accept) = 2,
    /// Receiver to sender: no, with the reason.
    Refuse(Refuse<'a>) = 3,
    /// Sender to receiver: still here.
    Keepalive(Keepalive) = 4,
    /// Receiver to sender, the answer to KEEPALIVE: the outcomes of the messages.
    Status(Status) = 5,
    /// Either side: the channel ends.
    Close(Close) = 6,
    /// The answer to CLOSE: the final counts.
    Closed(MessageCounts) = 7,
    /// The answer to a frame of another major version; never answered itself.
    Version(Versions) = 8,
    /// Receiver to sender, between hosts with a key: ask again, with this frame's number.
    Challenge = 9,
}

impl ControlType {
    /// All types; number `n` stands at `n − 1`.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// A frame of this type before its fields are read.
    fn empty<'a>(self) -> Control<'a> {
        match self {
            Self::Open => Control::Open(Open::default()),
            Self::Accept => Control::Accept(Accept::default()),
            Self::Refuse => Control::Refuse(Refuse { refusal: Refusal::new(Code::Protocol, Stage::Route), detail: "" }),
            Self::Keepalive => Control::Keepalive(Keepalive::default()),
            Self::Status => Control::Status(Status::default()),
            Self::Close => Control::Close(Close::default()),
            Self::Closed => Control::Closed(MessageCounts::default()),
            Self::Version => Control::Version(Versions::default()),
            Self::Challenge => Control::Challenge,
        }
    }
}

impl<'a> Control<'a> {
    /// Reads a frame: its token and its contents. Bounded by [`MAX_CONTROL_BYTES`].
    ///
    /// # Errors
    /// Not a control frame of this major version, a length other than its header's, a type that this version does not
    /// know, or fields that break the rules of the module's head.
    pub fn parse(frame: &'a [u8]) -> Result<(u64, Self), WireError> {
        if classify(frame)? != FrameKind::Control {
            return Err(WireError::Kind { found: frame[KIND_AT], expected: "2 (control)" });
        }
        if frame.len() > MAX_CONTROL_BYTES {
            return Err(WireError::TooLong { found: frame.len(), most: MAX_CONTROL_BYTES });
        }
        let (raw, fields) = RawHeader::ref_from_prefix(frame)
            .map_err(|_| WireError::Truncated { found: frame.len(), expected: CONTROL_HEADER_BYTES })?;
        let expected = UNCOUNTED_BYTES + usize::from(raw.length.get());
        if frame.len() != expected {
            return Err(WireError::Length { found: frame.len(), expected });
        }
        let control_type = ControlType::from_repr(raw.control_type).ok_or(WireError::Type(raw.control_type))?;
        let control = control_type.empty().pass(&mut Fields::read(fields)?)?;
        Ok((raw.token.get(), control))
    }

    /// Writes the frame to the start of `frame` and returns its length; at most [`MAX_CONTROL_BYTES`] are needed.
    ///
    /// # Errors
    /// `frame` is too small, or a value is outside its range. Then `frame` holds no valid frame.
    pub fn write(&self, token: u64, frame: &mut [u8]) -> Result<usize, WireError> {
        let mut writer = Writer::new(frame, CONTROL_HEADER_BYTES);
        self.pass(&mut writer)?;
        let bytes = writer.at;
        let room = WireError::Room { found: frame.len(), expected: bytes };
        let length = u16::try_from(bytes.saturating_sub(UNCOUNTED_BYTES)).map_err(|_| room)?;
        let raw = RawHeader {
            prefix: Prefix::new(FrameKind::Control),
            control_type: ControlType::from(self) as u8,
            minor: MINOR,
            length: length.into(),
            token: token.into(),
        };
        raw.write_to_prefix(frame).map_err(|_| room)?;
        Ok(bytes)
    }

    /// Passes over all fields, in the order in which they are written; each with its range.
    pub(super) fn pass(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        Ok(match self {
            Self::Open(open) => Self::Open(open.pass(fields)?),
            Self::Accept(accept) => Self::Accept(accept.pass(fields)?),
            Self::Refuse(refuse) => Self::Refuse(refuse.pass(fields)?),
            Self::Keepalive(alive) => Self::Keepalive(alive.pass(fields)?),
            Self::Status(status) => Self::Status(status.pass(fields)?),
            Self::Close(close) => Self::Close(close.pass(fields)?),
            Self::Closed(counts) => Self::Closed(counts.pass(fields)?),
            Self::Version(versions) => Self::Version(versions.pass(fields)?),
            Self::Challenge => Self::Challenge,
        })
    }
}

impl<'a> Open<'a> {
    fn pass(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        let name = fields.text(tag::NAME, Some(self.name))?.ok_or(WireError::Missing(tag::NAME.name))?;
        check_name(name)?;
        Ok(Self {
            name,
            traffic: self.traffic.pass(fields)?,
            packet: packet(fields, self.packet)?,
            upstream: fields.span(tag::UPSTREAM, self.upstream)?,
            lease: fields.span(tag::LEASE, self.lease)?,
            clock: fields.number(tag::CLOCK, self.clock)?,
            oversize: ranged(tag::OVERSIZE, fields.other_than(1, tag::OVERSIZE, self.oversize)?, 1, DECAY_FACTOR)?,
            pace: SenderPace {
                rate: fields
                    .optional(tag::LINK_RATE, self.pace.rate.map(Rate::as_bytes_per_second))?
                    .and_then(Rate::bytes_per_second),
                ahead: fields.span_or_zero(tag::AHEAD, self.pace.ahead)?,
                spacing: spacing(fields, self.pace.spacing)?,
            },
        })
    }
}

impl RequestedService {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        let service = ranged(tag::SERVICE, fields.number(tag::SERVICE, self.service as u8)?, 0, 2)?;
        let service = ServiceKind::from_repr(service).unwrap_or_default();
        let max_message = fields.number(tag::MAX_MESSAGE, self.max_message)?;
        if service == ServiceKind::BestEffort {
            // They are of this type of frame, but mean nothing here.
            for field in [tag::MIN_MESSAGE, tag::INTERVAL, tag::DEADLINE, tag::CATCH_UP, tag::TOLERANCE] {
                fields.optional(field, None)?;
            }
            let burst = fields.number(tag::BURST, self.burst)?;
            return Ok(Self { service, max_message, burst, ..Self::default() });
        }
        Ok(Self {
            service,
            max_message,
            min_message: fields.number_or(1, tag::MIN_MESSAGE, self.min_message)?,
            interval: fields.span(tag::INTERVAL, self.interval)?,
            burst: fields.number(tag::BURST, self.burst)?,
            deadline: fields.span(tag::DEADLINE, self.deadline)?,
            catch_up: fields.span_or_zero(tag::CATCH_UP, self.catch_up)?,
            tolerance: fields.other_than(0, tag::TOLERANCE, self.tolerance)?,
        })
    }
}

impl Accept {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        Ok(Self {
            channel: fields.number(tag::CHANNEL, self.channel)?,
            key: fields.number(tag::KEY, self.key)?,
            receive: fields.span(tag::RECEIVE, self.receive)?,
            packet: packet(fields, self.packet)?,
            lease: fields.span(tag::LEASE, self.lease)?,
            clock: fields.number(tag::CLOCK, self.clock)?,
            spacing: spacing(fields, self.spacing)?,
        })
    }
}

impl<'a> Refuse<'a> {
    fn pass(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        let Refusal { code, stage, at, least_deadline, .. } = self.refusal;
        let code = Code::from_repr(fields.number(tag::CODE, code as u16)?).unwrap_or(Code::Protocol);
        let stage = Stage::from_repr(fields.number(tag::STAGE, stage as u8)?).unwrap_or(Stage::Route);
        let at = fields.optional(tag::AT, at.map(Instant::as_nanos))?.map(Instant::from_nanos);
        let least_deadline = fields.optional_span(tag::LEAST_DEADLINE, least_deadline)?;
        let detail = Some(self.detail).filter(|detail| !detail.is_empty());
        let detail = fields.text(tag::DETAIL, detail)?.unwrap_or("");
        Ok(Self { refusal: Refusal { at, least_deadline, ..Refusal::new(code, stage) }, detail })
    }
}

impl Keepalive {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        Ok(Self {
            channel: fields.number(tag::CHANNEL, self.channel)?,
            key: fields.number(tag::KEY, self.key)?,
            sent: fields.number(tag::SENT, self.sent)?,
            unsent: fields.other_than(0, tag::UNSENT, self.unsent)?,
            spacing: spacing(fields, self.spacing)?,
            exchange: exchange(fields, self.exchange)?,
        })
    }
}

impl Status {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        Ok(Self {
            counts: self.counts.pass(fields)?,
            spacing: spacing(fields, self.spacing)?,
            exchange: exchange(fields, self.exchange)?,
        })
    }
}

impl MessageCounts {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        Ok(Self {
            delivered: fields.number(tag::DELIVERED, self.delivered)?,
            late: fields.number(tag::LATE, self.late)?,
            lost: fields.number(tag::LOST, self.lost)?,
            dropped: fields.number(tag::DROPPED, self.dropped)?,
            largest: fields.span(tag::LARGEST, self.largest)?,
            undecided: fields.other_than(0, tag::UNDECIDED, self.undecided)?,
            misses: Misses {
                sender: fields.other_than(0, tag::BY_SENDER, self.misses.sender)?,
                receiver: fields.other_than(0, tag::BY_RECEIVER, self.misses.receiver)?,
                network: fields.other_than(0, tag::BY_NETWORK, self.misses.network)?,
                platform: fields.other_than(0, tag::BY_PLATFORM, self.misses.platform)?,
                laxity: fields.other_than(0, tag::LAXITY, self.misses.laxity)?,
                unexplained: fields.other_than(0, tag::UNEXPLAINED, self.misses.unexplained)?,
            },
            over_bound: fields.other_than(0, tag::OVER_BOUND, self.over_bound)?,
            clock_error: fields.optional_span(tag::CLOCK_ERROR, self.clock_error)?,
        })
    }
}

impl Close {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        Ok(Self {
            channel: fields.number(tag::CHANNEL, self.channel)?,
            key: fields.number(tag::KEY, self.key)?,
            sent: fields.number(tag::SENT, self.sent)?,
            reason: fields.number_or(0, tag::REASON, self.reason)?,
            reverse: ranged(tag::REVERSE, fields.number_or(0, tag::REVERSE, u8::from(self.reverse))?, 0, 1)? == 1,
            unsent: fields.other_than(0, tag::UNSENT, self.unsent)?,
            exchange: exchange(fields, self.exchange)?,
        })
    }
}

impl Versions {
    fn pass<'a>(self, fields: &mut impl Pass<'a>) -> Result<Self, WireError> {
        let lowest = fields.number(tag::LOWEST, self.lowest)?;
        let highest = fields.number(tag::HIGHEST, self.highest)?;
        Ok(Self { lowest, highest: ranged(tag::HIGHEST, highest, lowest.into(), u8::MAX.into())? })
    }
}

/// A number that is within its range.
fn ranged<T: Copy + Into<u64>>(field: Field, value: T, least: u32, most: u32) -> Result<T, WireError> {
    check_range(field.name, value.into(), least.into(), most.into()).map(|()| value)
}

fn packet<'a>(fields: &mut impl Pass<'a>, packet: u16) -> Result<u16, WireError> {
    ranged(tag::PACKET, fields.number(tag::PACKET, packet)?, MIN_PACKET_BYTES, MAX_PACKET_BYTES)
}

fn spacing<'a>(fields: &mut impl Pass<'a>, spacing: Duration) -> Result<Duration, WireError> {
    let spacing = fields.span_or_zero(tag::SPACING, spacing)?;
    check_range(tag::SPACING.name, spacing.as_nanos(), 0, MAX_SPACING.as_nanos()).map(|()| spacing)
}

fn exchange<'a>(
    fields: &mut impl Pass<'a>,
    exchange: Option<ClockExchange>,
) -> Result<Option<ClockExchange>, WireError> {
    let said = fields.array(tag::EXCHANGE, exchange.map(exchange_bytes))?.map(|bytes| read_exchange(&bytes));
    let wall = exchange.and_then(|exchange| wall_bytes(&exchange.wall?, exchange.said));
    let wall = fields.array(tag::WALL, wall)?;
    let Some(said) = said else { return Ok(None) };
    check_range("epoch", said.epoch.into(), 0, u64::from(EPOCHS).saturating_sub(1))?;
    Ok(Some(ClockExchange { wall: wall.map(|bytes| read_wall(&bytes, said.said)), ..said }))
}

/// A report of nothing.
const NO_REPORT: StampReport = StampReport { said: Instant::ZERO, heard_at: Instant::ZERO };

fn exchange_bytes(exchange: ClockExchange) -> [u8; tag::EXCHANGE_BYTES] {
    let StampReport { said, heard_at } = exchange.heard.unwrap_or(NO_REPORT);
    let mut bytes = [exchange.epoch; tag::EXCHANGE_BYTES];
    for (place, instant) in bytes.as_chunks_mut().0.iter_mut().zip([exchange.said, said, heard_at]) {
        *place = instant.as_nanos().to_be_bytes();
    }
    bytes
}

/// Microseconds that fit into three bytes.
const OLDEST_WALL: u64 = (1 << 24) - 1;

/// Nothing of one that is too old, or too uncertain.
fn wall_bytes(wall: &WallReading, said: Instant) -> Option<[u8; tag::WALL_BYTES]> {
    let age = said.since(wall.at).as_nanos().div_ceil(1_000);
    let error = u32::try_from(wall.error.as_nanos()).ok().filter(|_| age <= OLDEST_WALL)?;
    let number = u128::from(wall.ahead.cast_unsigned()) << 56 | u128::from(error) << 24 | u128::from(age);
    number.to_be_bytes().last_chunk().copied()
}

fn read_wall(bytes: &[u8; tag::WALL_BYTES], said: Instant) -> WallReading {
    let number = bytes.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
    let [ahead, error, age] = [number >> 56, number >> 24 & u128::from(u32::MAX), number & u128::from(OLDEST_WALL)];
    let [ahead, error, age] = [ahead, error, age].map(|part| u64::try_from(part).unwrap_or_default());
    let at = said.before(Duration::from_micros(age));
    WallReading { at, ahead: ahead.cast_signed(), error: Duration::from_nanos(error) }
}

fn read_exchange(bytes: &[u8; tag::EXCHANGE_BYTES]) -> ClockExchange {
    let (instants, rest) = bytes.as_chunks();
    let instant = |place: usize| Instant::from_nanos(instants.get(place).map_or(0, |bytes| u64::from_be_bytes(*bytes)));
    let heard = StampReport { said: instant(1), heard_at: instant(2) };
    ClockExchange {
        said: instant(0),
        heard: Some(heard).filter(|heard| *heard != NO_REPORT),
        epoch: rest.first().copied().unwrap_or(0),
        wall: None,
    }
}

/// Appends a number, and the code that `code` computes over all before it, to the control frame of `len` bytes that `frame` begins with.
/// Returns the new length: [`SEAL_BYTES`] more.
///
/// # Errors
/// `frame` is too small.
pub fn seal(
    frame: &mut [u8],
    len: usize,
    number: u64,
    code: impl FnOnce(&[u8]) -> [u8; CODE_BYTES],
) -> Result<usize, WireError> {
    let sealed_len = len.saturating_add(SEAL_BYTES);
    let room = WireError::Room { found: frame.len(), expected: sealed_len };
    if frame.len() < sealed_len {
        return Err(room);
    }
    let (header, _) = RawHeader::mut_from_prefix(frame).map_err(|_| room)?;
    header.length = u16::try_from(sealed_len.saturating_sub(UNCOUNTED_BYTES)).map_err(|_| room)?.into();
    let mut writer = Writer::new(frame, len);
    writer.put(tag::NUMBER, &number.to_be_bytes())?;
    let covered = writer.at;
    let code = code(&frame[..covered]);
    Writer::new(frame, covered).put(tag::CODE_OF_FRAME, &code)?;
    Ok(sealed_len)
}

/// The parts that [`seal`] made: the bytes that the code covers, the number, the code. `None` if the frame does not end so.
pub fn sealed(frame: &[u8]) -> Option<(&[u8], u64, &[u8; CODE_BYTES])> {
    let (rest, code) = frame.split_last_chunk()?;
    let (covered, &header) = rest.split_last_chunk()?;
    let (rest, &number) = covered.split_last_chunk()?;
    let (_, &before) = rest.split_last_chunk()?;
    let is_so = header == tag::CODE_OF_FRAME.header() && before == tag::NUMBER.header();
    is_so.then_some((covered, u64::from_be_bytes(number), code))
}

/// The token of a control frame, whatever its major version and whatever else is wrong with it; `None` if it is no
/// control frame or too short. For the answer to a frame that cannot be read: VERSION, or REFUSE with
/// [`Code::Protocol`](crate::admission::Code::Protocol).
pub fn token(frame: &[u8]) -> Option<u64> {
    let (raw, _) = RawHeader::ref_from_prefix(frame).ok()?;
    let control = raw.prefix.magic.get() == MAGIC && raw.prefix.kind == FrameKind::Control as u8;
    control.then(|| raw.token.get())
}
