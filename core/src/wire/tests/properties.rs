//! Properties of all frames: they come back as they went, and nothing that arrives is too much.

use super::golden::{controls, data_frame};
use super::*;
use crate::admission::incoming::MAX_SPACING;
use crate::admission::{Code, Refusal, Stage};
use crate::cause::Misses;
use crate::clock::{ClockExchange, StampReport, WallReading};
use crate::contract::Service;
use crate::limits::{MAX_CONTROL_PAYLOAD, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES, MIN_PACKET_BYTES, TAG_BYTES};
use crate::units::{Duration, Instant, Rate};
use alloc::string::String;
use proptest::collection::vec;
use proptest::prelude::*;

/// Small and huge numbers as often as those between.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..=3_u64, (u64::MAX - 3)..=u64::MAX]
}

fn span() -> impl Strategy<Value = Duration> {
    number().prop_map(Duration::from_nanos)
}

fn spacing() -> impl Strategy<Value = Duration> {
    (0..=MAX_SPACING.as_nanos()).prop_map(Duration::from_nanos)
}

fn pace() -> impl Strategy<Value = SenderPace> {
    (number(), span(), spacing()).prop_map(|(rate, ahead, spacing)| SenderPace {
        rate: Rate::bytes_per_second(rate),
        ahead,
        spacing,
    })
}

fn packet() -> impl Strategy<Value = u16> {
    (MIN_PACKET_BYTES..=MAX_PACKET_BYTES).prop_map(|bytes| u16::try_from(bytes).unwrap())
}

/// A field's value, mostly of a length that some field has.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![Just(1_usize), Just(2), Just(4), Just(8), 0..=66_usize];
    bytes.prop_flat_map(|bytes| vec(any::<u8>(), bytes))
}

fn traffic() -> impl Strategy<Value = RequestedService> {
    let real_time = (any::<u32>(), any::<u32>(), span(), any::<u32>(), span(), span(), any::<bool>());
    prop_oneof![
        real_time.prop_map(|(max_message, min_message, interval, burst, deadline, catch_up, is_question)| {
            RequestedService {
                service: if is_question { ServiceKind::Question } else { ServiceKind::RealTime },
                max_message,
                min_message,
                interval,
                burst,
                deadline,
                catch_up,
                tolerance: u64::from(burst),
            }
        }),
        any::<(u32, u32)>().prop_map(|(max_message, burst)| RequestedService {
            service: ServiceKind::BestEffort,
            max_message,
            burst,
            ..RequestedService::default()
        }),
    ]
}

fn counts() -> impl Strategy<Value = MessageCounts> {
    let misses = (number(), number(), number()).prop_map(|(sender, receiver, network)| Misses {
        sender,
        receiver,
        network,
        platform: network ^ sender,
        laxity: sender ^ receiver,
        unexplained: receiver ^ network,
    });
    let error = proptest::option::of(span());
    (number(), number(), number(), number(), span(), misses, number(), error).prop_map(
        |(delivered, late, lost, dropped, largest, misses, undecided, clock_error)| MessageCounts {
            delivered,
            late,
            lost,
            dropped,
            largest,
            undecided,
            misses,
            over_bound: undecided ^ late,
            clock_error,
        },
    )
}

/// What is heard is not both zero: that says that nothing was.
fn exchange() -> impl Strategy<Value = Option<ClockExchange>> {
    let heard = (number(), 1..=u64::MAX)
        .prop_map(|(said, at)| StampReport { said: Instant::from_nanos(said), heard_at: Instant::from_nanos(at) });
    // How long ago in µs, how far ahead, the error.
    let wall = (0_u64..1 << 24, number(), 0..=u64::from(u32::MAX));
    let exchange = (number(), proptest::option::of(heard), 0..EPOCHS, proptest::option::of(wall));
    proptest::option::of(exchange.prop_map(|(said, heard, epoch, wall)| {
        let said = Instant::from_nanos(said);
        let wall = wall.map(|(age, ahead, error)| WallReading {
            at: said.before(Duration::from_micros(age)),
            ahead: ahead.cast_signed(),
            error: Duration::from_nanos(error),
        });
        ClockExchange { said, heard, epoch, wall }
    }))
}

/// A control frame whose texts are `name` and `detail`.
fn control(name: &'static str, detail: &'static str) -> impl Strategy<Value = Control<'static>> {
    prop_oneof![
        (traffic(), packet(), span(), span(), number(), 1u8..=4, pace()).prop_map(
            move |(traffic, packet, upstream, lease, clock, oversize, pace)| {
                Control::Open(Open { name, traffic, packet, upstream, lease, clock, oversize, pace })
            }
        ),
        (any::<u32>(), any::<u64>(), span(), packet(), span(), number(), spacing()).prop_map(
            |(channel, key, receive, packet, lease, clock, spacing)| Control::Accept(Accept {
                channel,
                key,
                receive,
                packet,
                lease,
                clock,
                spacing
            })
        ),
        (any::<u16>(), any::<u8>(), proptest::option::of(span()), proptest::option::of(span())).prop_map(
            move |(code, stage, at, least_deadline)| {
                let code = Code::from_repr(code % 32).unwrap_or(Code::Protocol);
                let stage = Stage::from_repr(stage % 8).unwrap_or(Stage::Route);
                let at = at.map(|span| Instant::ZERO + span);
                let refusal = Refusal { at, least_deadline, ..Refusal::new(code, stage) };
                Control::Refuse(Refuse { refusal, detail })
            }
        ),
        (any::<u32>(), any::<u64>(), number(), number(), spacing(), exchange()).prop_map(
            |(channel, key, sent, unsent, spacing, exchange)| {
                Control::Keepalive(Keepalive { channel, key, sent, unsent, spacing, exchange })
            }
        ),
        (counts(), spacing(), exchange()).prop_map(|(counts, spacing, exchange)| Control::Status(Status {
            counts,
            spacing,
            exchange
        })),
        (any::<u32>(), any::<u64>(), number(), number(), any::<u8>(), any::<bool>(), exchange()).prop_map(
            |(channel, key, sent, unsent, reason, reverse, exchange)| {
                Control::Close(Close { channel, key, sent, unsent, reason, reverse, exchange })
            }
        ),
        counts().prop_map(Control::Closed),
        any::<(u8, u8)>().prop_map(|(one, other)| {
            Control::Version(Versions { lowest: one.min(other), highest: one.max(other) })
        }),
    ]
}

/// A header that `write` takes; the payload's bytes all have one value.
fn data() -> impl Strategy<Value = (DataHeader, u8)> {
    let sizes = (1..=MAX_MESSAGE_BYTES).prop_flat_map(|most| (Just(most), 1..=most.min(MAX_PACKET_BYTES)));
    (any::<(u32, u64, u16, u32, u8)>(), sizes, number(), number()).prop_map(
        |((channel, key, index, waited_micros, byte), (message_bytes, payload), sequence, arrival)| {
            let payload = u16::try_from(payload).unwrap();
            let logical_arrival = Instant::from_nanos(arrival);
            let header = DataHeader {
                channel,
                key,
                message_bytes,
                sequence,
                logical_arrival,
                index,
                payload,
                priority: byte >> 3,
                epoch: byte & 7,
                deadline_micros: waited_micros % 3_600_000_001,
                stolen_units: (waited_micros >> 7) as u16,
                waited_micros,
                ahead_micros: !waited_micros,
            };
            (header, byte)
        },
    )
}

/// A control frame of which one byte says that it is data with a tag: these tests once wrote it again without.
#[test]
fn a_control_frame_that_reads_as_data_with_a_tag_survives() {
    for (mut frame, ..) in controls() {
        frame[KIND_AT] = FrameKind::Tagged as u8;
        for _ in 0..4 {
            survives(&frame).unwrap();
            frame.push(0);
        }
    }
}

/// Whatever the bytes are: no panic, and what could be read can be written and read again, the same.
fn survives(frame: &[u8]) -> Result<(), TestCaseError> {
    let _ = (classify(frame), token(frame));
    if let Ok((its_token, control)) = Control::parse(frame) {
        let again = written(its_token, &control);
        prop_assert!(again.len() <= MAX_CONTROL_BYTES);
        prop_assert!(again.len() <= DATA_HEADER_BYTES + MAX_CONTROL_PAYLOAD as usize);
        prop_assert_eq!(Control::parse(&again), Ok((its_token, control)));
        prop_assert_eq!(token(frame), Some(its_token));
        if let Control::Open(open) = control {
            let _ = Service::try_from(open.traffic);
        }
    }
    if let Ok(view) = DataView::parse(frame) {
        let mut again = written_data(view.header(), view.payload());
        if let Some((_, tag)) = view.tag() {
            let len = again.len();
            again.resize(len + TAG_BYTES, 0);
            prop_assert_eq!(write_tag(&mut again, len, |_| tag), frame.len());
        }
        prop_assert_eq!(again, frame);
        for packet in [0, 1, 64, 1400, 8900, u32::MAX] {
            if view.header().check(packet).is_ok() {
                let end = u64::from(view.header().index) * u64::from(packet) + view.payload().len() as u64;
                prop_assert!(end <= u64::from(view.header().message_bytes));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    #[test]
    fn control_frames_come_back_as_they_went(its_token in number(), control in control("a~!", "größer")) {
        let frame = written(its_token, &control);
        prop_assert_eq!(Control::parse(&frame), Ok((its_token, control)));
        prop_assert_eq!(classify(&frame), Ok(FrameKind::Control));
    }

    #[test]
    fn texts_come_back_as_they_went(name in "[!-.0-~]{1,64}", detail in vec(any::<char>(), 0..=30)) {
        let detail: String = detail.into_iter().collect();
        let Control::Open(open) = controls()[0].2 else { panic!("the first is OPEN") };
        let Control::Refuse(refuse) = controls()[3].2 else { panic!("the fourth is REFUSE") };
        let open = Control::Open(Open { name: &name, ..open });
        let refuse = Control::Refuse(Refuse { detail: &detail, ..refuse });
        for control in [open, refuse] {
            let frame = written(1, &control);
            prop_assert_eq!(Control::parse(&frame), Ok((1, control)));
        }
    }

    #[test]
    fn data_frames_come_back_as_they_went((header, byte) in data()) {
        let payload = alloc::vec![byte; usize::from(header.payload)];
        let frame = written_data(&header, &payload);
        let view = DataView::parse(&frame).unwrap();
        prop_assert_eq!(view.header(), &header);
        prop_assert_eq!(view.payload(), &payload[..]);
        prop_assert_eq!(classify(&frame), Ok(FrameKind::Data));
    }

    /// Every fragment that a sender cuts passes the receiver's check, and together they are the message.
    #[test]
    fn fragments_cover_the_message(packet in MIN_PACKET_BYTES..=MAX_PACKET_BYTES, bytes in 1..=1_000_000_u32) {
        let mut covered = 0;
        for index in 0.. {
            let Some(payload) = fragment_bytes(bytes, packet, index) else { break };
            let header = DataHeader {
                channel: 0, key: 0, message_bytes: bytes, sequence: 0, logical_arrival: Instant::ZERO, index, payload,
                ..DataHeader::default()
            };
            prop_assert_eq!(header.check(packet), Ok(()));
            prop_assert_eq!(u32::from(index) * packet, covered);
            covered += u32::from(payload);
        }
        prop_assert_eq!(covered, bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        survives(&bytes)?;
    }

    /// Arbitrary fields behind a good header: past the prefix, where chance alone would not come.
    #[test]
    fn arbitrary_fields_never_panic(
        kind in 0..=9_u8,
        parts in vec((0..=31_u8, value()), 0..14),
    ) {
        let header = [0x4C, 0x58, MAJOR, 2, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        survives(&put_together(&header, &parts))?;
    }

    #[test]
    fn mutated_frames_never_panic(
        which in 0..10_usize,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        tail in vec(any::<u8>(), 0..4),
        right_length in any::<bool>(),
    ) {
        let mut frame = controls().get(which).map_or_else(data_frame, |(frame, _, _)| frame.clone());
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len()));
        }
        frame.extend(tail);
        for (at, byte) in changes {
            if !frame.is_empty() {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
        }
        // With a length that fits, the mutation reaches the fields.
        if right_length && frame.len() >= CONTROL_HEADER_BYTES {
            let length = u16::try_from(frame.len() - 8).unwrap();
            frame[6..8].copy_from_slice(&length.to_be_bytes());
        }
        survives(&frame)?;
    }

    #[test]
    fn mutated_written_frames_never_panic(
        control in control("name", "detail"),
        its_token in number(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = written(its_token, &control);
        let at = at.index(frame.len());
        frame[at] = byte;
        survives(&frame)?;
    }
}
