//! Control frames: what two endpoints say about one channel.
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
//! A field may stand once. A repeated known one, one of a wrong length, and a missing mandatory one are errors; an unknown
//! one is skipped. [`ControlType::fields`] says which a type has, `docs/wire.md` which of them it cannot do without; the
//! ranges stand at the structures' fields.

use super::data::{DATA_HEADER_BYTES, EPOCHS};
use super::fields::{self as tag, Field, Fields, Writer};
use super::messages::{Accept, Close, Counts, Keepalive, Open, Pace, Refuse, Status, Traffic, Versions, check_name};
use super::{KIND_AT, Kind, MAGIC, MINOR, Prefix, WireError, check_range, classify};
use crate::admission::incoming::MAX_SPACING;
use crate::cause::Misses;
use crate::clock::{Exchange, Report};
use crate::limits::{DECAY_FACTOR, MAX_CONTROL_PAYLOAD, MAX_PACKET_BYTES, MIN_PACKET_BYTES};
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
pub const SEAL_BYTES: usize = tag::most_bytes(&[tag::NUMBER, tag::CODE_OF_FRAME]);
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
    // The largest type with all its fields.
    let (mut most, mut next) = (0, 0);
    while next < ControlType::ALL.len() {
        let bytes = CONTROL_HEADER_BYTES + tag::most_bytes(ControlType::ALL[next].fields()) + SEAL_BYTES;
        most = if bytes > most { bytes } else { most };
        next += 1;
    }
    assert!(most <= MAX_CONTROL_BYTES);
    assert!(most == DATA_HEADER_BYTES + MAX_CONTROL_PAYLOAD as usize);
};

/// The types of control frames with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr, strum::VariantArray)]
#[repr(u8)]
pub enum ControlType {
    /// Sender to receiver: may this channel be?
    Open = 1,
    /// Receiver to sender: yes.
    Accept = 2,
    /// Receiver to sender: no, and why.
    Refuse = 3,
    /// Sender to receiver: still here.
    Keepalive = 4,
    /// Receiver to sender, the answer to KEEPALIVE: what became of the messages.
    Status = 5,
    /// Either side: the channel ends.
    Close = 6,
    /// The answer to CLOSE: the final counts.
    Closed = 7,
    /// The answer to a frame of another major version; never answered itself.
    Version = 8,
    /// Receiver to sender, between hosts with a key: ask again, with this number.
    Challenge = 9,
}

/// How many fields of [`REPORT`] are counts.
const COUNTS: usize = 14;
/// The fields of STATUS: the counts, and then `spacing` and `exchange`.
const REPORT: &[Field] = &[
    tag::DELIVERED,
    tag::LATE,
    tag::LOST,
    tag::DROPPED,
    tag::LARGEST,
    tag::UNDECIDED,
    tag::BY_SENDER,
    tag::BY_RECEIVER,
    tag::BY_NETWORK,
    tag::BY_PLATFORM,
    tag::LAXITY,
    tag::UNEXPLAINED,
    tag::OVER_BOUND,
    tag::CLOCK_ERROR,
    tag::SPACING,
    tag::EXCHANGE,
];

impl ControlType {
    /// All types; number `n` stands at `n − 1`.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The fields that a frame of this type may have, in the order in which they are written.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Open => &[
                tag::NAME,
                tag::SERVICE,
                tag::MAX_MESSAGE,
                tag::MIN_MESSAGE,
                tag::INTERVAL,
                tag::BURST,
                tag::DEADLINE,
                tag::PACKET,
                tag::UPSTREAM,
                tag::LEASE,
                tag::CLOCK,
                tag::OVERSIZE,
                tag::LINK_RATE,
                tag::AHEAD,
                tag::CATCH_UP,
                tag::TOLERANCE,
                tag::SPACING,
            ],
            Self::Accept => &[tag::CHANNEL, tag::KEY, tag::RECEIVE, tag::PACKET, tag::LEASE, tag::CLOCK, tag::SPACING],
            Self::Refuse => &[tag::CODE, tag::STAGE, tag::AT, tag::LEAST_DEADLINE, tag::DETAIL],
            Self::Keepalive => &[tag::CHANNEL, tag::KEY, tag::SENT, tag::UNSENT, tag::SPACING, tag::EXCHANGE],
            Self::Status => REPORT,
            // As STATUS, without what is said of the time to come.
            Self::Closed => REPORT.split_at(COUNTS).0,
            Self::Close => &[tag::CHANNEL, tag::KEY, tag::SENT, tag::REASON, tag::REVERSE, tag::UNSENT, tag::EXCHANGE],
            Self::Version => &[tag::LOWEST, tag::HIGHEST],
            Self::Challenge => &[],
        }
    }
}

/// A control frame without its header. Text is borrowed from the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Sender to receiver: may this channel be?
    Open(Open<'a>),
    /// Receiver to sender: yes.
    Accept(Accept),
    /// Receiver to sender: no, and why.
    Refuse(Refuse<'a>),
    /// Sender to receiver: still here.
    Keepalive(Keepalive),
    /// Receiver to sender: the answer to KEEPALIVE.
    Status(Status),
    /// Either side: the channel ends.
    Close(Close),
    /// The answer to CLOSE.
    Closed(Counts),
    /// The answer to another major version; never answered itself.
    Version(Versions),
    /// Receiver to sender: ask again, with this frame's number.
    Challenge,
}

impl<'a> Control<'a> {
    /// The type of this frame.
    pub fn control_type(&self) -> ControlType {
        match self {
            Self::Open(_) => ControlType::Open,
            Self::Accept(_) => ControlType::Accept,
            Self::Refuse(_) => ControlType::Refuse,
            Self::Keepalive(_) => ControlType::Keepalive,
            Self::Status(_) => ControlType::Status,
            Self::Close(_) => ControlType::Close,
            Self::Closed(_) => ControlType::Closed,
            Self::Version(_) => ControlType::Version,
            Self::Challenge => ControlType::Challenge,
        }
    }

    /// Reads a frame: its token and what it says. Bounded by [`MAX_CONTROL_BYTES`].
    ///
    /// # Errors
    /// Not a control frame of this major version, a length other than its header's, a type that this version does not
    /// know, or fields that break the rules of the module's head.
    pub fn parse(frame: &'a [u8]) -> Result<(u64, Self), WireError> {
        if classify(frame)? != Kind::Control {
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
        let control_type =
            ControlType::from_repr(raw.control_type).ok_or(WireError::Type { found: raw.control_type })?;
        let control = Self::read(control_type, &Fields::read(fields, control_type.fields())?)?;
        control.check_ranges()?;
        Ok((raw.token.get(), control))
    }

    /// Writes the frame to the start of `frame` and returns its length; at most [`MAX_CONTROL_BYTES`] are needed.
    ///
    /// # Errors
    /// `frame` is too small, or a value is outside its range. What `frame` holds then is no frame.
    pub fn write(&self, token: u64, frame: &mut [u8]) -> Result<usize, WireError> {
        self.check_ranges()?;
        let mut writer = Writer::new(frame, CONTROL_HEADER_BYTES);
        self.put(&mut writer)?;
        let bytes = writer.written();
        let room = WireError::Room { found: frame.len(), expected: bytes };
        let length = u16::try_from(bytes.saturating_sub(UNCOUNTED_BYTES)).map_err(|_| room)?;
        let raw = RawHeader {
            prefix: Prefix::new(Kind::Control),
            control_type: self.control_type() as u8,
            minor: MINOR,
            length: length.into(),
            token: token.into(),
        };
        raw.write_to_prefix(frame).map_err(|_| room)?;
        Ok(bytes)
    }

    fn read(control_type: ControlType, fields: &Fields<'a>) -> Result<Self, WireError> {
        let u32_of = |field| fields.need(field).map(u32::from_be_bytes);
        let u64_of = |field| fields.need(field).map(u64::from_be_bytes);
        let span_of = |field| u64_of(field).map(Duration::from_nanos);
        let number = |field| fields.get(field).map_or(0, u64::from_be_bytes);
        let spacing = || Duration::from_nanos(number(tag::SPACING));
        let packet = || fields.need(tag::PACKET).map(u16::from_be_bytes);
        let counts = || {
            Ok(Counts {
                delivered: u64_of(tag::DELIVERED)?,
                late: u64_of(tag::LATE)?,
                lost: u64_of(tag::LOST)?,
                dropped: u64_of(tag::DROPPED)?,
                largest: span_of(tag::LARGEST)?,
                undecided: number(tag::UNDECIDED),
                misses: Misses {
                    sender: number(tag::BY_SENDER),
                    receiver: number(tag::BY_RECEIVER),
                    network: number(tag::BY_NETWORK),
                    platform: number(tag::BY_PLATFORM),
                    laxity: number(tag::LAXITY),
                    unexplained: number(tag::UNEXPLAINED),
                },
                over_bound: number(tag::OVER_BOUND),
                clock_error: fields.get(tag::CLOCK_ERROR).map(u64::from_be_bytes).map(Duration::from_nanos),
            })
        };
        let exchange = || fields.get(tag::EXCHANGE).map(|bytes| read_exchange(&bytes));
        Ok(match control_type {
            ControlType::Open => Self::Open(Open {
                name: text(fields, tag::NAME)?.ok_or(WireError::Missing { field: tag::NAME.name })?,
                traffic: read_traffic(fields)?,
                packet: packet()?,
                upstream: span_of(tag::UPSTREAM)?,
                lease: span_of(tag::LEASE)?,
                clock: u64_of(tag::CLOCK)?,
                oversize: fields.get(tag::OVERSIZE).map_or(1, u8::from_be_bytes),
                pace: Pace {
                    rate: fields.get(tag::LINK_RATE).map(u64::from_be_bytes).and_then(Rate::bytes_per_second),
                    ahead: Duration::from_nanos(number(tag::AHEAD)),
                    spacing: spacing(),
                },
            }),
            ControlType::Accept => Self::Accept(Accept {
                channel: u32_of(tag::CHANNEL)?,
                key: u64_of(tag::KEY)?,
                receive: span_of(tag::RECEIVE)?,
                packet: packet()?,
                lease: span_of(tag::LEASE)?,
                clock: u64_of(tag::CLOCK)?,
                spacing: spacing(),
            }),
            ControlType::Refuse => Self::Refuse(Refuse {
                code: u16::from_be_bytes(fields.need(tag::CODE)?),
                stage: u8::from_be_bytes(fields.need(tag::STAGE)?),
                at: fields.get(tag::AT).map(u64::from_be_bytes).map(Instant::from_nanos),
                least_deadline: fields.get(tag::LEAST_DEADLINE).map(u64::from_be_bytes).map(Duration::from_nanos),
                detail: text(fields, tag::DETAIL)?.unwrap_or(""),
            }),
            ControlType::Keepalive => Self::Keepalive(Keepalive {
                channel: u32_of(tag::CHANNEL)?,
                key: u64_of(tag::KEY)?,
                sent: u64_of(tag::SENT)?,
                unsent: number(tag::UNSENT),
                spacing: spacing(),
                exchange: exchange(),
            }),
            ControlType::Status => Self::Status(Status { counts: counts()?, spacing: spacing(), exchange: exchange() }),
            ControlType::Close => Self::Close(Close {
                channel: u32_of(tag::CHANNEL)?,
                key: u64_of(tag::KEY)?,
                sent: u64_of(tag::SENT)?,
                unsent: number(tag::UNSENT),
                reason: fields.get(tag::REASON).map_or(0, u8::from_be_bytes),
                reverse: flag(tag::REVERSE, fields.get(tag::REVERSE).map_or(0, u8::from_be_bytes))?,
                exchange: exchange(),
            }),
            ControlType::Closed => Self::Closed(counts()?),
            ControlType::Version => Self::Version(Versions {
                lowest: u8::from_be_bytes(fields.need(tag::LOWEST)?),
                highest: u8::from_be_bytes(fields.need(tag::HIGHEST)?),
            }),
            ControlType::Challenge => Self::Challenge,
        })
    }

    fn put(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            Self::Open(open) => {
                to.put(tag::NAME, open.name.as_bytes())?;
                put_traffic(&open.traffic, to)?;
                to.put(tag::PACKET, &open.packet.to_be_bytes())?;
                to.put(tag::UPSTREAM, &open.upstream.as_nanos().to_be_bytes())?;
                to.put(tag::LEASE, &open.lease.as_nanos().to_be_bytes())?;
                to.put(tag::CLOCK, &open.clock.to_be_bytes())?;
                if open.oversize != 1 {
                    to.put(tag::OVERSIZE, &[open.oversize])?;
                }
                let Pace { rate, ahead, spacing } = open.pace;
                put_number(to, tag::LINK_RATE, rate.map_or(0, Rate::as_bytes_per_second))?;
                put_number(to, tag::AHEAD, ahead.as_nanos())?;
                put_number(to, tag::SPACING, spacing.as_nanos())
            }
            Self::Accept(accept) => {
                to.put(tag::CHANNEL, &accept.channel.to_be_bytes())?;
                to.put(tag::KEY, &accept.key.to_be_bytes())?;
                to.put(tag::RECEIVE, &accept.receive.as_nanos().to_be_bytes())?;
                to.put(tag::PACKET, &accept.packet.to_be_bytes())?;
                to.put(tag::LEASE, &accept.lease.as_nanos().to_be_bytes())?;
                to.put(tag::CLOCK, &accept.clock.to_be_bytes())?;
                put_number(to, tag::SPACING, accept.spacing.as_nanos())
            }
            Self::Refuse(refuse) => {
                to.put(tag::CODE, &refuse.code.to_be_bytes())?;
                to.put(tag::STAGE, &refuse.stage.to_be_bytes())?;
                if let Some(at) = refuse.at {
                    to.put(tag::AT, &at.as_nanos().to_be_bytes())?;
                }
                if let Some(deadline) = refuse.least_deadline {
                    to.put(tag::LEAST_DEADLINE, &deadline.as_nanos().to_be_bytes())?;
                }
                if !refuse.detail.is_empty() {
                    to.put(tag::DETAIL, refuse.detail.as_bytes())?;
                }
                Ok(())
            }
            Self::Keepalive(alive) => {
                to.put(tag::CHANNEL, &alive.channel.to_be_bytes())?;
                to.put(tag::KEY, &alive.key.to_be_bytes())?;
                to.put(tag::SENT, &alive.sent.to_be_bytes())?;
                put_number(to, tag::UNSENT, alive.unsent)?;
                put_number(to, tag::SPACING, alive.spacing.as_nanos())?;
                put_exchange(to, alive.exchange)
            }
            Self::Status(status) => {
                put_counts(to, &status.counts)?;
                put_number(to, tag::SPACING, status.spacing.as_nanos())?;
                put_exchange(to, status.exchange)
            }
            Self::Closed(counts) => put_counts(to, counts),
            Self::Close(close) => {
                to.put(tag::CHANNEL, &close.channel.to_be_bytes())?;
                to.put(tag::KEY, &close.key.to_be_bytes())?;
                to.put(tag::SENT, &close.sent.to_be_bytes())?;
                to.put(tag::REASON, &close.reason.to_be_bytes())?;
                to.put(tag::REVERSE, &[u8::from(close.reverse)])?;
                put_number(to, tag::UNSENT, close.unsent)?;
                put_exchange(to, close.exchange)
            }
            Self::Version(versions) => {
                to.put(tag::LOWEST, &versions.lowest.to_be_bytes())?;
                to.put(tag::HIGHEST, &versions.highest.to_be_bytes())
            }
            Self::Challenge => Ok(()),
        }
    }

    /// The ranges beyond a field's length; the same for reading and writing.
    fn check_ranges(&self) -> Result<(), WireError> {
        let check_packet = |packet: u16| {
            check_range(tag::PACKET.name, packet.into(), MIN_PACKET_BYTES.into(), MAX_PACKET_BYTES.into())
        };
        let check_spacing =
            |spacing: Duration| check_range(tag::SPACING.name, spacing.as_nanos(), 0, MAX_SPACING.as_nanos());
        let check_epoch = |exchange: Option<Exchange>| {
            check_range("epoch", exchange.map_or(0, |said| said.epoch).into(), 0, u64::from(EPOCHS).saturating_sub(1))
        };
        match self {
            Self::Open(open) => {
                check_name(open.name)?;
                check_range(tag::OVERSIZE.name, open.oversize.into(), 1, DECAY_FACTOR.into())?;
                check_spacing(open.pace.spacing)?;
                check_packet(open.packet)
            }
            Self::Accept(accept) => {
                check_spacing(accept.spacing)?;
                check_packet(accept.packet)
            }
            Self::Keepalive(alive) => {
                check_epoch(alive.exchange)?;
                check_spacing(alive.spacing)
            }
            Self::Status(status) => {
                check_epoch(status.exchange)?;
                check_spacing(status.spacing)
            }
            Self::Close(close) => check_epoch(close.exchange),
            Self::Version(Versions { lowest, highest }) => {
                check_range(tag::HIGHEST.name, (*highest).into(), (*lowest).into(), u8::MAX.into())
            }
            Self::Refuse(_) | Self::Closed(_) | Self::Challenge => Ok(()),
        }
    }
}

/// A number that is 0 if it is not in the frame.
fn put_number(to: &mut Writer<'_>, field: Field, number: u64) -> Result<(), WireError> {
    if number > 0 { to.put(field, &number.to_be_bytes()) } else { Ok(()) }
}

fn put_counts(to: &mut Writer<'_>, counts: &Counts) -> Result<(), WireError> {
    to.put(tag::DELIVERED, &counts.delivered.to_be_bytes())?;
    to.put(tag::LATE, &counts.late.to_be_bytes())?;
    to.put(tag::LOST, &counts.lost.to_be_bytes())?;
    to.put(tag::DROPPED, &counts.dropped.to_be_bytes())?;
    to.put(tag::LARGEST, &counts.largest.as_nanos().to_be_bytes())?;
    put_number(to, tag::UNDECIDED, counts.undecided)?;
    let Misses { sender, receiver, network, platform, laxity, unexplained } = counts.misses;
    put_number(to, tag::BY_SENDER, sender)?;
    put_number(to, tag::BY_RECEIVER, receiver)?;
    put_number(to, tag::BY_NETWORK, network)?;
    put_number(to, tag::BY_PLATFORM, platform)?;
    put_number(to, tag::LAXITY, laxity)?;
    put_number(to, tag::UNEXPLAINED, unexplained)?;
    put_number(to, tag::OVER_BOUND, counts.over_bound)?;
    match counts.clock_error {
        Some(error) => to.put(tag::CLOCK_ERROR, &error.as_nanos().to_be_bytes()),
        None => Ok(()),
    }
}

/// A report of nothing.
const NO_REPORT: Report = Report { said: Instant::ZERO, heard_at: Instant::ZERO };

fn put_exchange(to: &mut Writer<'_>, exchange: Option<Exchange>) -> Result<(), WireError> {
    let Some(Exchange { said, heard, epoch }) = exchange else { return Ok(()) };
    let Report { said: heard_said, heard_at } = heard.unwrap_or(NO_REPORT);
    let mut bytes = [epoch; tag::EXCHANGE_BYTES];
    for (place, instant) in bytes.as_chunks_mut().0.iter_mut().zip([said, heard_said, heard_at]) {
        *place = instant.as_nanos().to_be_bytes();
    }
    to.put(tag::EXCHANGE, &bytes)
}

fn read_exchange(bytes: &[u8; tag::EXCHANGE_BYTES]) -> Exchange {
    let (instants, rest) = bytes.as_chunks();
    let instant = |place: usize| Instant::from_nanos(instants.get(place).map_or(0, |bytes| u64::from_be_bytes(*bytes)));
    let heard = Report { said: instant(1), heard_at: instant(2) };
    Exchange {
        said: instant(0),
        heard: Some(heard).filter(|heard| *heard != NO_REPORT),
        epoch: rest.first().copied().unwrap_or(0),
    }
}

/// What `service` says in OPEN.
const REAL_TIME: u8 = 0;
const BEST_EFFORT: u8 = 1;
const QUESTION: u8 = 2;

fn read_traffic(fields: &Fields<'_>) -> Result<Traffic, WireError> {
    let service = u8::from_be_bytes(fields.need(tag::SERVICE)?);
    check_range(tag::SERVICE.name, service.into(), REAL_TIME.into(), QUESTION.into())?;
    let max_message = u32::from_be_bytes(fields.need(tag::MAX_MESSAGE)?);
    let burst = u32::from_be_bytes(fields.need(tag::BURST)?);
    if service == BEST_EFFORT {
        return Ok(Traffic::BestEffort { max_message, queue: burst });
    }
    Ok(Traffic::RealTime {
        max_message,
        min_message: fields.get(tag::MIN_MESSAGE).map_or(1, u32::from_be_bytes),
        interval: Duration::from_nanos(u64::from_be_bytes(fields.need(tag::INTERVAL)?)),
        burst,
        deadline: Duration::from_nanos(u64::from_be_bytes(fields.need(tag::DEADLINE)?)),
        catch_up: Duration::from_nanos(fields.get(tag::CATCH_UP).map_or(0, u64::from_be_bytes)),
        tolerance: fields.get(tag::TOLERANCE).map_or(0, u64::from_be_bytes),
        is_question: service == QUESTION,
    })
}

fn put_traffic(traffic: &Traffic, to: &mut Writer<'_>) -> Result<(), WireError> {
    match traffic {
        Traffic::RealTime { max_message, min_message, interval, burst, deadline, catch_up, tolerance, is_question } => {
            to.put(tag::SERVICE, &[if *is_question { QUESTION } else { REAL_TIME }])?;
            to.put(tag::MAX_MESSAGE, &max_message.to_be_bytes())?;
            to.put(tag::MIN_MESSAGE, &min_message.to_be_bytes())?;
            to.put(tag::INTERVAL, &interval.as_nanos().to_be_bytes())?;
            to.put(tag::BURST, &burst.to_be_bytes())?;
            to.put(tag::DEADLINE, &deadline.as_nanos().to_be_bytes())?;
            put_number(to, tag::CATCH_UP, catch_up.as_nanos())?;
            put_number(to, tag::TOLERANCE, *tolerance)
        }
        Traffic::BestEffort { max_message, queue } => {
            to.put(tag::SERVICE, &[BEST_EFFORT])?;
            to.put(tag::MAX_MESSAGE, &max_message.to_be_bytes())?;
            to.put(tag::BURST, &queue.to_be_bytes())
        }
    }
}

fn text<'a>(fields: &Fields<'a>, field: Field) -> Result<Option<&'a str>, WireError> {
    let Some(bytes) = fields.bytes(field) else { return Ok(None) };
    core::str::from_utf8(bytes)
        .map(Some)
        .map_err(|error| WireError::Text { field: field.name, at: error.valid_up_to() })
}

/// A number that is 0 or 1.
fn flag(field: Field, found: u8) -> Result<bool, WireError> {
    check_range(field.name, found.into(), 0, 1)?;
    Ok(found == 1)
}

/// Appends a number, and the code that `code` makes of all before it, to the control frame of `len` bytes that `frame` begins with.
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
    let covered = writer.written();
    let code = code(&frame[..covered]);
    Writer::new(frame, covered).put(tag::CODE_OF_FRAME, &code)?;
    Ok(sealed_len)
}

/// What [`seal`] appended: what the code covers, the number, the code. `None` if the frame does not end so.
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
    let control = raw.prefix.magic.get() == MAGIC && raw.prefix.kind == Kind::Control as u8;
    control.then(|| raw.token.get())
}
