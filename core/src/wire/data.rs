//! Data frames: one packet of one message behind a fixed header of 52 bytes.
//!
//! | offset | bytes | field | range |
//! |---|---|---|---|
//! | 0 | 4 | prefix | kind 1 |
//! | 4 | 4 | channel | all; the receiver's slot index, looked up by the endpoint |
//! | 8 | 8 | key | all; the receiver's nonce for the slot |
//! | 16 | 8 | sequence | all; message number from 0 |
//! | 24 | 8 | logical_arrival | all; ns on the sender's clock |
//! | 32 | 3 | message_bytes − 1 | all; the whole message has 1 to [`MAX_MESSAGE_BYTES`] |
//! | 35 | 1 | priority, epoch | the upper 5 bits and the lower 3; all |
//! | 36 | 2 | index | below ⌈message_bytes / S⌉; fragment number from 0 |
//! | 38 | 2 | stolen | all; in units of 16 µs, 2¹⁶ − 1 means that or more |
//! | 40 | 4 | deadline | 0 to 3.6·10⁹ (an hour); µs from the logical arrival, 0 is the contract's |
//! | 44 | 4 | waited | all; µs, 2³² − 1 means that or more |
//! | 48 | 4 | ahead | all; µs, 2³² − 1 means that or more |
//! | 52 | payload | the bytes | 1 to [`MAX_PACKET_BYTES`], at most message_bytes; S, or what is left for the last fragment |
//! | 52 + payload | 8 | tag | only if its kind is 3: authenticates all before it |
//!
//! The payload is the rest of the frame: its length follows from the datagram's.
//!
//! S is the packet size that the channel's ACCEPT named. It is not in the frame: [`DataHeader::check`] takes it from the
//! channel, so a sender cannot choose where in the message its bytes land.

use super::{FrameKind, KIND_AT, Prefix, WireError, check_range, classify};
use crate::clock::UNSURE_EPOCH;
use crate::contract::packets;
use crate::limits::{
    MAX_DEADLINE, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES, MAX_PACKETS_PER_MESSAGE, PRIORITY_LEVELS, TAG_BYTES,
};
use crate::units::{Duration, Instant};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the payload of a data frame.
pub const DATA_HEADER_BYTES: usize = 52;

/// The header as it lies in the frame.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    prefix: Prefix,
    channel: U32,
    key: U64,
    sequence: U64,
    logical_arrival: U64,
    bytes_less_one: [u8; 3],
    priority_and_epoch: u8,
    index: U16,
    stolen: U16,
    deadline: U32,
    waited: U32,
    ahead: U32,
}

/// Bits of the epoch, below the priority.
const EPOCH_BITS: u32 = 3;
/// Values of an epoch.
pub const EPOCHS: u8 = 1 << EPOCH_BITS;

const _: () = {
    assert!(size_of::<RawHeader>() == DATA_HEADER_BYTES);
    assert!(MAX_PACKET_BYTES <= u16::MAX as u32);
    assert!(MAX_PACKETS_PER_MESSAGE <= 1 << u16::BITS);
    assert!(MAX_MESSAGE_BYTES == 1 << 24);
    assert!(PRIORITY_LEVELS == 1 << (u8::BITS - EPOCH_BITS));
    assert!(MAX_DEADLINE_MICROS <= u32::MAX as u64);
    assert!(2 * UNSURE_EPOCH == EPOCHS);
};

/// The fields of a data frame before its payload, and the payload's length. The default is all zeros, which no frame has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataHeader {
    /// The receiver's slot index.
    pub channel: u32,
    /// The receiver's nonce for the slot.
    pub key: u64,
    /// Bytes of the whole message.
    pub message_bytes: u32,
    /// The message's number in its channel, from 0.
    pub sequence: u64,
    /// The message's logical arrival on the sender's clock [channels §2.2].
    pub logical_arrival: Instant,
    /// The fragment's number in its message, from 0.
    pub index: u16,
    /// Bytes that follow the header; not in the frame, whose length says it.
    pub payload: u16,
    /// Room for a priority of the message's own, below [`PRIORITY_LEVELS`]; 0 stands for that of the channel. No sender sets it, and it is
    /// not obeyed: the channel's was admitted.
    pub priority: u8,
    /// The sender's epoch when the packet left ([`crate::clock`]), with a bit if the message may have been sent before that epoch began, or before the
    /// sender's clock went ahead; below [`EPOCHS`].
    pub epoch: u8,
    /// Room for a deadline of the message's own, from its logical arrival, in µs, up to an hour; 0 stands for the channel's. No sender sets it,
    /// and it is not obeyed.
    pub deadline_micros: u32,
    /// Processor time beyond the calibrated envelope that the platform took from the sender since this message's logical
    /// arrival, in units of 16 µs; `u16::MAX` for that or more ([`stolen_units`]). Evidence for attribution; no
    /// decision depends on it.
    pub stolen_units: u16,
    /// From the message's logical arrival until this packet was handed to the link, in µs, saturating; all. Evidence: the time that
    /// the packet took from there on is the network's. A relay fills it in anew, less what the path to it took beyond its
    /// grant: that stays the network's.
    pub waited_micros: u32,
    /// The time before its logical arrival at which the application sent the message, in µs, rounded up and saturating: by its burst, and
    /// by what its sender catches up. A latency counts from there; nothing is decided by it.
    pub ahead_micros: u32,
}

/// The unit of `stolen`, in ns.
const STOLEN_UNIT: u64 = 16_000;
const MAX_DEADLINE_MICROS: u64 = MAX_DEADLINE.as_nanos() / 1_000;

impl DataHeader {
    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        DATA_HEADER_BYTES + usize::from(self.payload)
    }

    /// Writes the header to the start of `frame` and returns the area for the payload, exactly [`DataHeader::payload`]
    /// bytes, for the caller to fill. Bytes of `frame` beyond [`DataHeader::frame_bytes`] stay as they are.
    ///
    /// # Errors
    /// `frame` is too small, or a value is outside its range; then nothing is written.
    pub fn write<'b>(&self, frame: &'b mut [u8]) -> Result<&'b mut [u8], WireError> {
        self.check_ranges()?;
        let room = WireError::Room { found: frame.len(), expected: self.frame_bytes() };
        let frame = frame.get_mut(..self.frame_bytes()).ok_or(room)?;
        let (header, payload) = frame.split_at_mut_checked(DATA_HEADER_BYTES).ok_or(room)?;
        let [_, high, middle, low] = self.message_bytes.saturating_sub(1).to_be_bytes();
        let raw = RawHeader {
            prefix: Prefix::new(FrameKind::Data),
            channel: self.channel.into(),
            key: self.key.into(),
            bytes_less_one: [high, middle, low],
            priority_and_epoch: self.priority << EPOCH_BITS | self.epoch,
            sequence: self.sequence.into(),
            logical_arrival: self.logical_arrival.as_nanos().into(),
            index: self.index.into(),
            stolen: self.stolen_units.into(),
            deadline: self.deadline_micros.into(),
            waited: self.waited_micros.into(),
            ahead: self.ahead_micros.into(),
        };
        raw.write_to(header).map_err(|_| room)?;
        Ok(payload)
    }

    /// Checks that this fragment belongs into a channel with packets of `packet` bytes (S)? Its payload then lies at
    /// `index · packet` in the message and ends within it.
    ///
    /// # Errors
    /// `packet` is not a packet size, the message takes more than [`MAX_PACKETS_PER_MESSAGE`] of them, the index is not
    /// below ⌈message_bytes / S⌉, or the payload is neither S nor, for the last fragment, what is left.
    pub fn check(&self, packet: u32) -> Result<(), WireError> {
        check_range("packet", packet.into(), 1, MAX_PACKET_BYTES.into())?;
        let most = u64::from(MAX_MESSAGE_BYTES).min(u64::from(packet).saturating_mul(MAX_PACKETS_PER_MESSAGE.into()));
        check_range("message_bytes", self.message_bytes.into(), 1, most)?;
        let last = packets(self.message_bytes, packet).saturating_sub(1);
        check_range("index", self.index.into(), 0, last.into())?;
        let expected = fragment_bytes(self.message_bytes, packet, self.index).unwrap_or(0).into();
        check_range("payload", self.payload.into(), expected, expected)
    }

    /// The checks that hold for any channel; the same for reading and writing.
    fn check_ranges(&self) -> Result<(), WireError> {
        check_range("message_bytes", self.message_bytes.into(), 1, MAX_MESSAGE_BYTES.into())?;
        check_range("priority", self.priority.into(), 0, (PRIORITY_LEVELS as u64).saturating_sub(1))?;
        check_range("epoch", self.epoch.into(), 0, u64::from(EPOCHS).saturating_sub(1))?;
        check_range("deadline", self.deadline_micros.into(), 0, MAX_DEADLINE_MICROS)?;
        check_range("payload", self.payload.into(), 1, MAX_PACKET_BYTES.min(self.message_bytes).into())
    }
}

/// A data frame that was parsed: each value is within the range that holds for any channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataView<'a> {
    header: DataHeader,
    frame: &'a [u8],
}

impl<'a> DataView<'a> {
    /// Reads a frame. Bounded by the header; the payload is not looked at.
    ///
    /// # Errors
    /// Not a data frame of this major version, too short, or a value outside its range.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let tag = match classify(frame)? {
            FrameKind::Data => 0,
            FrameKind::Tagged => TAG_BYTES,
            FrameKind::Control => {
                return Err(WireError::Kind { found: FrameKind::Control as u8, expected: "1 or 3 (data)" });
            }
        };
        let expected = DATA_HEADER_BYTES.saturating_add(tag);
        let truncated = WireError::Truncated { found: frame.len(), expected };
        let (raw, _) = RawHeader::ref_from_prefix(frame).map_err(|_| truncated)?;
        let payload = frame.len().checked_sub(expected).ok_or(truncated)?;
        let [high, middle, low] = raw.bytes_less_one;
        let header = DataHeader {
            channel: raw.channel.get(),
            key: raw.key.get(),
            message_bytes: u32::from_be_bytes([0, high, middle, low]).saturating_add(1),
            sequence: raw.sequence.get(),
            logical_arrival: Instant::from_nanos(raw.logical_arrival.get()),
            index: raw.index.get(),
            payload: u16::try_from(payload).unwrap_or(u16::MAX),
            priority: raw.priority_and_epoch >> EPOCH_BITS,
            epoch: raw.priority_and_epoch & (EPOCHS - 1),
            deadline_micros: raw.deadline.get(),
            stolen_units: raw.stolen.get(),
            waited_micros: raw.waited.get(),
            ahead_micros: raw.ahead.get(),
        };
        header.check_ranges()?;
        Ok(Self { header, frame })
    }

    /// The fields before the payload.
    pub fn header(&self) -> &DataHeader {
        &self.header
    }

    /// The fragment's bytes.
    pub fn payload(&self) -> &'a [u8] {
        &self.frame[DATA_HEADER_BYTES..self.header.frame_bytes()]
    }

    /// The tag and what it covers, if there is one.
    #[inline]
    pub fn tag(&self) -> Option<(&'a [u8], u64)> {
        let (covered, tag) = self.frame.split_at_checked(self.header.frame_bytes())?;
        Some((covered, u64::from_be_bytes(tag.try_into().ok()?)))
    }
}

/// Payload bytes of fragment `index` of a message of `message_bytes` bytes in packets of `packet` bytes: `packet`, or
/// what is left for the last one. `None` if there is no such fragment or it does not fit a frame.
pub fn fragment_bytes(message_bytes: u32, packet: u32, index: u16) -> Option<u16> {
    let start = u32::from(index).checked_mul(packet)?;
    match message_bytes.checked_sub(start)?.min(packet) {
        bytes @ 1..=MAX_PACKET_BYTES => u16::try_from(bytes).ok(),
        _ => None,
    }
}

/// The header of a frame that was written before, for what is filled in anew.
#[inline]
fn written(frame: &mut [u8]) -> &mut RawHeader {
    RawHeader::mut_from_prefix(frame).expect("the frame has a header").0
}

/// Writes the evidence into a frame whose header was written before the packet waited for the link.
///
/// # Panics
/// If `frame` is shorter than a header.
pub fn write_evidence(frame: &mut [u8], stolen: Duration, waited: Duration) {
    let header = written(frame);
    (header.stolen, header.waited) = (stolen_units(stolen).into(), micros_saturating(waited).into());
}

/// Fills in the epoch of a frame when it is handed to the link; of a greater number than 7 the lower three bits.
///
/// # Panics
/// If `frame` is shorter than a header.
pub fn write_epoch(frame: &mut [u8], epoch: u8) {
    let header = written(frame);
    header.priority_and_epoch = header.priority_and_epoch & !(EPOCHS - 1) | epoch & (EPOCHS - 1);
}

/// Updates the data packet `packet`, which was handed to the link `late` later than it says: its wait, and the `epoch` in which its message was sent,
/// or that of a microsecond before. `tag` computes the tag anew, from the receiver's slot, the key and the bytes that it covers.
pub fn add_waited(
    packet: &mut [u8],
    late: Duration,
    epoch: impl FnOnce(Instant) -> u8,
    tag: impl FnOnce(u32, u64, &[u8]) -> u64,
) {
    let Ok(view) = DataView::parse(packet) else { return };
    let DataHeader { channel, key, waited_micros, logical_arrival, ahead_micros, .. } = *view.header();
    let sent = logical_arrival.before(Duration::from_micros(ahead_micros.into()));
    let (len, is_tagged) = (view.header().frame_bytes(), view.tag().is_some());
    written(packet).waited = waited_micros.saturating_add(micros_saturating(late)).into();
    write_epoch(packet, epoch(sent));
    if is_tagged {
        write_tag(packet, len, |covered| tag(channel, key, covered));
    }
}

/// Makes the packet of `len` bytes that `frame` begins with an authenticated one: it sets its kind, and appends the tag that `tag` computes over
/// it. Returns the new length: [`TAG_BYTES`] more.
///
/// # Panics
/// If `frame` is shorter than that.
pub fn write_tag(frame: &mut [u8], len: usize, tag: impl FnOnce(&[u8]) -> u64) -> usize {
    frame[KIND_AT] = FrameKind::Tagged as u8;
    let tag = tag(&frame[..len]);
    let end = len.saturating_add(TAG_BYTES);
    frame[len..end].copy_from_slice(&tag.to_be_bytes());
    end
}

/// Writes another receiver's slot and nonce into a frame that a relay passes on; the rest stays as it is.
///
/// # Panics
/// If `frame` is shorter than a header.
pub fn write_receiver(frame: &mut [u8], channel: u32, key: u64) {
    let header = written(frame);
    (header.channel, header.key) = (channel.into(), key.into());
}

/// A span in the units of [`DataHeader::stolen_units`]: rounded down, so that no more is claimed than was taken, and
/// `u16::MAX` (over a second, beyond which nothing is credited) for all that is longer.
pub fn stolen_units(span: Duration) -> u16 {
    u16::try_from(span.as_nanos() / STOLEN_UNIT).unwrap_or(u16::MAX)
}

/// The value of [`stolen_units`], as a span.
pub(crate) fn of_stolen_units(units: u16) -> Duration {
    Duration::from_nanos(u64::from(units).saturating_mul(STOLEN_UNIT))
}

/// A span in whole µs for [`DataHeader::waited_micros`]: rounded down, and `u32::MAX` (over 71 minutes) for all that is longer.
pub fn micros_saturating(span: Duration) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(u32::MAX)
}
