//! Frames from the network: nothing that arrives is too much, and what was read is what is written.

use laxity_core::admission::incoming::MAX_SPACING;
use laxity_core::admission::{Code, Refusal, Stage};
use laxity_core::clock::{ClockExchange, StampReport, WallReading};
use laxity_core::contract::Service;
use laxity_core::event::{Name, SenderPace};
use laxity_core::figures::Misses;
use laxity_core::limits::{
    MAX_CONTROL_PAYLOAD, MAX_DEADLINE, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES, MIN_PACKET_BYTES, TAG_BYTES,
};
use laxity_core::units::{Duration, Instant, Rate};
use laxity_core::wire::{
    Accept, CODE_BYTES, CONTROL_HEADER_BYTES, Close, Control, DATA_HEADER_BYTES, DataHeader, DataView, EPOCHS,
    FrameKind, Keepalive, MAX_CONTROL_BYTES, MessageCounts, Open, Refuse, RequestedService, SEAL_BYTES, ServiceKind,
    Status, Versions, classify, fragment_bytes, seal, sealed, token, write_tag,
};

use super::bytes::Bytes;

/// The input is a frame; then it is what a header is made from.
pub fn data_frame(data: &[u8]) {
    any_frame(data);
    if let Ok(view) = DataView::parse(data) {
        let mut again = written_data(view.header(), view.payload());
        if let Some((covered, tag)) = view.tag() {
            assert_eq!(covered, &data[..again.len()]);
            let len = again.len();
            again.resize(len + TAG_BYTES, 0xAA);
            write_tag(&mut again, len, |_| tag);
        }
        assert_eq!(again, data, "another frame comes back");
        for packet in [0, 1, MIN_PACKET_BYTES, 1400, MAX_PACKET_BYTES, u32::MAX] {
            fragment(view.header(), packet);
        }
    }
    let mut bytes = Bytes::new(data);
    let header = DataHeader {
        channel: bytes.u32(),
        key: bytes.u64(),
        message_bytes: bytes.number() as u32,
        sequence: bytes.number(),
        logical_arrival: Instant::from_nanos(bytes.number()),
        index: bytes.u16(),
        payload: bytes.u16(),
        priority: bytes.u8() >> 2,
        epoch: bytes.u8() >> 4,
        deadline_micros: bytes.number() as u32,
        stolen_units: bytes.u16(),
        waited_micros: bytes.number() as u32,
        ahead_micros: bytes.number() as u32,
    };
    let possible = (1..=MAX_MESSAGE_BYTES).contains(&header.message_bytes)
        && (1..=MAX_PACKET_BYTES.min(header.message_bytes)).contains(&header.payload.into())
        && header.priority < 32
        && header.epoch < EPOCHS
        && u64::from(header.deadline_micros) <= MAX_DEADLINE.as_nanos() / 1_000;
    let mut frame = vec![0xAA; DATA_HEADER_BYTES + 3];
    frame.resize(frame.len().max(header.frame_bytes()), 0xAA);
    match header.write(&mut frame) {
        Ok(payload) => {
            assert!(possible, "{header:?} is out of range");
            assert_eq!(payload.len(), usize::from(header.payload));
            frame.truncate(header.frame_bytes());
            assert_eq!(DataView::parse(&frame).map(|view| *view.header()), Ok(header));
        }
        Err(error) => {
            assert!(!possible, "{header:?}: {error}");
            assert!(frame.iter().all(|byte| *byte == 0xAA), "a frame that cannot be written was begun");
        }
    }
}

/// What passes [`DataHeader::check`] lies in its message, and the fragments of a message cover it.
fn fragment(header: &DataHeader, packet: u32) {
    if header.check(packet).is_ok() {
        let start = u64::from(header.index) * u64::from(packet);
        let end = start + u64::from(header.payload);
        assert!(end <= header.message_bytes.into());
        assert!(end == u64::from(header.message_bytes) || header.payload as u32 == packet, "a gap behind the fragment");
        assert_eq!(fragment_bytes(header.message_bytes, packet, header.index), Some(header.payload));
    }
}

/// The input is a frame; then it is what a frame of every kind is made from.
pub fn control_frame(data: &[u8]) {
    any_frame(data);
    if let Some((covered, _, code)) = sealed(data) {
        assert_eq!([covered, &data[covered.len()..covered.len() + 2], code].concat(), data, "a code of something else");
    }
    if let Ok((its_token, control)) = Control::parse(data) {
        assert!((CONTROL_HEADER_BYTES..=MAX_CONTROL_BYTES).contains(&data.len()));
        assert_eq!((classify(data), token(data)), (Ok(FrameKind::Control), Some(its_token)));
        let again = written(its_token, &control).expect("what was read can be written");
        // What is not known here is skipped, so the frame may be shorter.
        assert!(again.len() <= data.len() || matches!(control, Control::Open(_) | Control::Close(_)));
        assert_eq!(Control::parse(&again), Ok((its_token, control)));
        if let Control::Open(open) = control {
            assert!(Name::new(open.name).is_ok_and(|name| name.as_str() == open.name));
            if let Ok(service) = Service::try_from(open.traffic) {
                let same = Open { traffic: service.into(), ..open };
                assert_eq!(Service::try_from(same.traffic), Ok(service), "a contract changes on its way");
            }
        }
    }
    let mut bytes = Bytes::new(data);
    let (kind, its_token) = (bytes.u8(), bytes.number());
    // Texts last: they take what is left.
    let control = made(kind, &mut bytes);
    if let Ok(frame) = written(its_token, &control) {
        assert_eq!(Control::parse(&frame), Ok((its_token, control)), "what was written can be read");
        for cut in [CONTROL_HEADER_BYTES - 1, frame.len() - 1] {
            assert!(Control::parse(&frame[..cut]).is_err(), "a frame without its end");
        }
        with_a_code(&frame, bytes.number(), (its_token, control));
    }
}

/// A code is read as it was written, covers all before it, and makes no other frame of it.
fn with_a_code(frame: &[u8], number: u64, read: (u64, Control<'_>)) {
    let mut longer = [frame, &[0xAA; SEAL_BYTES]].concat();
    let mut covered = Vec::new();
    let code = |before: &[u8]| {
        covered = before.to_vec();
        [0x5A; CODE_BYTES]
    };
    match seal(&mut longer, frame.len(), number, code) {
        Ok(len) => {
            assert_eq!(len, longer.len());
            assert_eq!(sealed(&longer), Some((&covered[..], number, &[0x5A; CODE_BYTES])));
            assert_eq!(Control::parse(&longer), Ok(read));
        }
        Err(error) => panic!("{error}"),
    }
    assert!(seal(&mut longer[..frame.len() + SEAL_BYTES - 1], frame.len(), number, |_| [0; CODE_BYTES]).is_err());
}

pub(crate) fn made<'a>(kind: u8, bytes: &mut Bytes<'a>) -> Control<'a> {
    let span = |bytes: &mut Bytes<'a>| Duration::from_nanos(bytes.number());
    let counts = |bytes: &mut Bytes<'a>| MessageCounts {
        delivered: bytes.number(),
        late: bytes.number(),
        lost: bytes.number(),
        dropped: bytes.number(),
        largest: Duration::from_nanos(bytes.number()),
        undecided: bytes.number(),
        misses: Misses { network: bytes.number(), laxity: bytes.number(), ..Misses::default() },
        over_bound: bytes.number(),
        clock_error: bytes.bool().then(|| span(bytes)),
    };
    let exchange = |bytes: &mut Bytes<'a>| {
        let instant = |bytes: &mut Bytes<'a>| Instant::from_nanos(bytes.number());
        let exchange = bytes.bool().then(|| ClockExchange {
            said: instant(bytes),
            heard: bytes
                .bool()
                .then(|| StampReport { said: instant(bytes), heard_at: instant(bytes) })
                .filter(|heard| *heard != StampReport { said: Instant::ZERO, heard_at: Instant::ZERO }),
            epoch: bytes.u8(),
            wall: None,
        });
        exchange.map(|exchange| ClockExchange {
            wall: bytes.bool().then(|| WallReading {
                at: exchange.said.before(Duration::from_micros(bytes.number() % (1 << 24))),
                ahead: bytes.number().cast_signed(),
                error: Duration::from_nanos(bytes.number() % (1 << 32)),
            }),
            ..exchange
        })
    };
    // Made from what there is, so that the corpus keeps its meaning; one in two is outside of its range.
    let spacing = |number: u64| Duration::from_nanos(number % (2 * MAX_SPACING.as_nanos()));
    let text = |bytes: &mut Bytes<'a>| std::str::from_utf8(bytes.slice(200)).unwrap_or("from");
    // What is left over is for what came last, so that the corpus keeps its meaning.
    match if kind < 250 { kind % 8 } else { 8 } {
        0 => {
            let (max_message, burst) = (bytes.number() as u32, bytes.number() as u32);
            let traffic = if bytes.bool() {
                RequestedService { service: ServiceKind::BestEffort, max_message, burst, ..RequestedService::default() }
            } else {
                let (min_message, interval, deadline) = (bytes.number() as u32, span(bytes), span(bytes));
                RequestedService {
                    service: if burst & 1 != 0 { ServiceKind::Question } else { ServiceKind::RealTime },
                    max_message,
                    min_message,
                    interval,
                    burst,
                    deadline,
                    catch_up: Duration::ZERO,
                    tolerance: u64::from(burst),
                }
            };
            let (packet, upstream, lease) = (bytes.u16(), span(bytes), span(bytes));
            let (clock, oversize) = (bytes.number(), bytes.u8());
            let rate = Rate::bytes_per_second(clock);
            let pace = SenderPace { rate, ahead: lease, spacing: spacing(clock) };
            Control::Open(Open { name: text(bytes), traffic, packet, upstream, lease, clock, oversize, pace })
        }
        1 => {
            let (channel, key, receive, packet) = (bytes.u32(), bytes.u64(), span(bytes), bytes.u16());
            let (lease, clock) = (span(bytes), bytes.number());
            Control::Accept(Accept { channel, key, receive, packet, lease, clock, spacing: spacing(clock) })
        }
        2 => {
            let (code, stage, there) = (bytes.u16(), bytes.u8(), bytes.u8());
            let at = (there & 1 != 0).then(|| Instant::from_nanos(bytes.number()));
            let least_deadline = (there & 2 != 0).then(|| span(bytes));
            let code = Code::from_repr(code % 32).unwrap_or(Code::Protocol);
            let stage = Stage::from_repr(stage % 8).unwrap_or(Stage::Route);
            let refusal = Refusal { at, least_deadline, ..Refusal::new(code, stage) };
            Control::Refuse(Refuse { refusal, detail: text(bytes) })
        }
        3 => {
            let (channel, key, sent, unsent) = (bytes.u32(), bytes.u64(), bytes.number(), bytes.number());
            Control::Keepalive(Keepalive {
                channel,
                key,
                sent,
                unsent,
                spacing: spacing(unsent),
                exchange: exchange(bytes),
            })
        }
        4 => {
            let counts = counts(bytes);
            Control::Status(Status { counts, spacing: spacing(counts.misses.laxity), exchange: exchange(bytes) })
        }
        5 => Control::Close(Close {
            channel: bytes.u32(),
            key: bytes.u64(),
            sent: bytes.number(),
            unsent: bytes.number(),
            reason: bytes.u8(),
            reverse: bytes.bool(),
            exchange: exchange(bytes),
        }),
        6 => Control::Closed(counts(bytes)),
        8 => Control::Challenge,
        _ => Control::Version(Versions { lowest: bytes.u8(), highest: bytes.u8() }),
    }
}

/// All readers of a frame agree on what it is.
fn any_frame(data: &[u8]) {
    let kind = classify(data);
    if let Ok(view) = DataView::parse(data) {
        assert_eq!(kind, Ok(if view.tag().is_some() { FrameKind::Tagged } else { FrameKind::Data }));
    }
    if Control::parse(data).is_ok() {
        assert_eq!(kind, Ok(FrameKind::Control));
    }
}

fn written_data(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xAA; header.frame_bytes()];
    header.write(&mut frame).expect("what was read can be written").copy_from_slice(payload);
    frame
}

fn written(token: u64, control: &Control<'_>) -> Result<Vec<u8>, laxity_core::wire::WireError> {
    let mut frame = [0xAA; MAX_CONTROL_BYTES];
    let bytes = control.write(token, &mut frame)?;
    assert!(bytes <= DATA_HEADER_BYTES + MAX_CONTROL_PAYLOAD as usize, "longer than the link's model counts on");
    Ok(frame[..bytes].to_vec())
}
