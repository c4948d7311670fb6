//! Frames that break one rule each.

use super::golden::{controls, data_frame};
use super::*;
use crate::admission::{Code, Refusal, Stage};
use crate::contract::{Contract, ContractError, Service};
use crate::limits::{MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_PACKET_BYTES, MIN_PACKET_BYTES};
use crate::units::{Duration, Instant};

/// The golden data frame with other bytes at `at`.
fn data_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = data_frame();
    frame[at..][..bytes.len()].copy_from_slice(bytes);
    frame
}

fn header(message_bytes: u32, index: u16, payload: u16) -> DataHeader {
    DataHeader {
        channel: 0,
        key: 0,
        message_bytes,
        sequence: 0,
        logical_arrival: Instant::ZERO,
        index,
        payload,
        ..DataHeader::default()
    }
}

/// The golden frame of a type.
fn control_frame(wanted: ControlType) -> Vec<u8> {
    controls().into_iter().find(|(_, _, control)| ControlType::from(control) == wanted).unwrap().0
}

/// A frame with another value for one field.
fn with_value(frame: &[u8], field: fields::Field, value: &[u8]) -> Vec<u8> {
    let mut parts = taken_apart(frame);
    parts.iter_mut().find(|(tag, _)| *tag == field.tag).unwrap().1 = value.to_vec();
    put_together(frame, &parts)
}

#[test]
fn a_frame_that_is_cut_or_has_a_tail_is_an_error() {
    let data = data_frame();
    for bytes in 0..data.len() {
        let of_channel = DataView::parse(&data[..bytes]).and_then(|view| view.header().check(4096));
        assert!(of_channel.is_err(), "data of {bytes}");
    }
    for (frame, _, control) in controls() {
        for bytes in 0..frame.len() {
            assert!(Control::parse(&frame[..bytes]).is_err(), "{control:?} of {bytes}");
        }
        let long = [&frame[..], &[0]].concat();
        assert_eq!(Control::parse(&long), Err(WireError::Length { found: frame.len() + 1, expected: frame.len() }));
    }
    let long = [&data[..], &[0]].concat();
    let of_channel = DataView::parse(&long).and_then(|view| view.header().check(4096));
    assert_eq!(of_channel, Err(WireError::Range(OutOfRange { field: "payload", found: 4, least: 3, most: 3 })));
    assert_eq!(classify(&[]), Err(WireError::Truncated { found: 0, expected: PREFIX_BYTES }));
}

#[test]
fn a_field_that_is_cut_is_an_error_even_if_the_length_says_so() {
    for (frame, _, control) in controls().into_iter().filter(|(frame, ..)| frame.len() > CONTROL_HEADER_BYTES) {
        let mut cut = put_together(&frame[..frame.len() - 1], &[]);
        cut.extend(&frame[CONTROL_HEADER_BYTES..frame.len() - 1]);
        let length = u16::try_from(cut.len() - 8).unwrap();
        cut[6..8].copy_from_slice(&length.to_be_bytes());
        assert!(matches!(Control::parse(&cut), Err(WireError::Truncated { .. })), "{control:?}");
    }
}

#[test]
fn another_prefix_is_named() {
    assert_eq!(DataView::parse(&data_with(0, &[0x4C, 0x59])), Err(WireError::Magic(0x4C59)));
    assert!(matches!(DataView::parse(&data_with(3, &[4])), Err(WireError::Kind { found: 4, .. })));
    assert_eq!(DataView::parse(&data_with(3, &[3])), Err(WireError::Truncated { found: 55, expected: 60 }));
    assert!(matches!(DataView::parse(&data_with(3, &[2])), Err(WireError::Kind { found: 2, .. })));
    assert!(matches!(Control::parse(&data_frame()), Err(WireError::Kind { found: 1, .. })));
    let mut frame = control_frame(ControlType::Status);
    frame[4] = 10;
    let error = Control::parse(&frame).unwrap_err();
    assert_eq!((error, &*alloc::format!("{error}")), (WireError::Type(10), "control type 10, expected 1 to 9"));
}

#[test]
fn another_major_version_is_named_and_another_minor_is_read() {
    for found in (0..=u8::MAX).filter(|major| *major != MAJOR) {
        assert_eq!(classify(&data_with(2, &[found])), Err(WireError::Version(found)));
        assert_eq!(DataView::parse(&data_with(2, &[found])), Err(WireError::Version(found)));
        for (mut frame, its_token, control) in controls() {
            frame[2] = found;
            // VERSION is read by all versions; otherwise an old one could not read the answer that names the versions.
            let expected = match control {
                Control::Version(_) => Ok((its_token, control)),
                _ => Err(WireError::Version(found)),
            };
            assert_eq!(Control::parse(&frame), expected);
            assert_eq!(token(&frame), Some(its_token));
        }
    }
    for (mut frame, its_token, control) in controls() {
        frame[5] = 77;
        assert_eq!(Control::parse(&frame), Ok((its_token, control)));
    }
}

#[test]
fn fields_are_read_in_any_order() {
    for (frame, its_token, control) in controls() {
        let mut parts = taken_apart(&frame);
        parts.reverse();
        assert_eq!(Control::parse(&put_together(&frame, &parts)), Ok((its_token, control)));
    }
}

#[test]
fn an_unknown_field_is_skipped_wherever_it_stands() {
    let unknown = |known: &[fields::Field]| -> Vec<u8> {
        (0..=u8::MAX).filter(|tag| known.iter().all(|field| field.tag != *tag)).collect()
    };
    for (frame, its_token, control) in controls() {
        let parts = taken_apart(&frame);
        for tag in unknown(&Collected::of(&control)) {
            for at in 0..=parts.len() {
                // Twice, and of a length that no known field has.
                let mut more = parts.clone();
                more.insert(at, (tag, alloc::vec![0xFF; 7]));
                more.insert(at, (tag, Vec::new()));
                assert_eq!(Control::parse(&put_together(&frame, &more)), Ok((its_token, control)), "tag {tag}");
            }
        }
    }
}

/// A frame of best effort has no use for these fields, but they belong to its type.
#[test]
fn fields_that_best_effort_ignores_stand_once_and_have_their_length() {
    let (frame, its_token, control) = controls()[1].clone();
    let parts = taken_apart(&frame);
    let with = |more: &[(u8, Vec<u8>)]| put_together(&frame, &[&parts[..], more].concat());
    for field in [fields::MIN_MESSAGE, fields::INTERVAL, fields::DEADLINE, fields::CATCH_UP, fields::TOLERANCE] {
        let part = (field.tag, alloc::vec![0xFF; field.most.into()]);
        assert_eq!(Control::parse(&with(core::slice::from_ref(&part))), Ok((its_token, control)));
        let twice = with(&[part.clone(), part]);
        assert_eq!(Control::parse(&twice), Err(WireError::Repeated(field.name)));
        let long = with(&[(field.tag, alloc::vec![0; usize::from(field.most) + 1])]);
        assert!(matches!(Control::parse(&long), Err(WireError::FieldLength { .. })), "{field:?}");
    }
}

#[test]
fn a_repeated_field_is_named() {
    for (frame, _, control) in controls() {
        let parts = taken_apart(&frame);
        for (at, part) in parts.iter().enumerate() {
            let mut more = parts.clone();
            more.push(part.clone());
            let field = fields::ALL[usize::from(parts[at].0) - 1].name;
            assert_eq!(Control::parse(&put_together(&frame, &more)), Err(WireError::Repeated(field)), "{control:?}");
        }
    }
}

#[test]
fn a_missing_mandatory_field_is_named() {
    // By hand, independent of `is_mandatory`.
    let optional = [
        "min_message",
        "oversize",
        "at",
        "least_deadline",
        "detail",
        "reason",
        "reverse",
        "laxity",
        "exchange",
        "wall",
        "undecided",
        "by_network",
        "over_bound",
        "clock_error",
        "link_rate",
        "ahead",
        "spacing",
    ];
    for (frame, its_token, control) in controls() {
        let parts = taken_apart(&frame);
        for at in 0..parts.len() {
            let mut fewer = parts.clone();
            let field = fields::ALL[usize::from(fewer.remove(at).0) - 1].name;
            let fewer = put_together(&frame, &fewer);
            match Control::parse(&fewer) {
                Err(error) => {
                    assert_eq!(error, WireError::Missing(field), "{control:?}");
                    assert!(!optional.contains(&field), "{control:?}");
                }
                Ok((found, other)) => {
                    assert!(optional.contains(&field), "{control:?} without {field}");
                    assert_eq!(found, its_token);
                    assert_ne!(other, control, "the default differs from the golden value");
                }
            }
        }
    }
}

#[test]
fn the_table_of_mandatory_fields_is_what_the_parser_does() {
    for (frame, _, control) in controls() {
        let control_type = ControlType::from(&control);
        let real_time = !matches!(control, Control::Open(open) if open.traffic.service == ServiceKind::BestEffort);
        for (at, (tag, _)) in taken_apart(&frame).iter().enumerate() {
            let mut fewer = taken_apart(&frame);
            fewer.remove(at);
            let field = fields::ALL[usize::from(*tag) - 1];
            let conditional = [fields::INTERVAL, fields::DEADLINE].contains(&field) && real_time;
            let missing = Control::parse(&put_together(&frame, &fewer)).is_err();
            assert_eq!(missing, is_mandatory(control_type, field) || conditional, "{control_type:?} {field:?}");
        }
    }
}

#[test]
fn a_field_of_another_length_is_named() {
    for (frame, _, control) in controls() {
        for (at, (tag, value)) in taken_apart(&frame).into_iter().enumerate() {
            let field = fields::ALL[usize::from(tag) - 1];
            let mut wrong = alloc::vec![usize::from(field.most) + 1];
            wrong.extend(usize::from(field.least).checked_sub(1));
            for found in wrong {
                let mut parts = taken_apart(&frame);
                parts[at].1 = value.iter().copied().cycle().take(found).collect();
                let expected =
                    WireError::FieldLength { field: field.name, found, least: field.least, most: field.most };
                assert_eq!(Control::parse(&put_together(&frame, &parts)), Err(expected), "{control:?}");
            }
        }
    }
}

#[test]
fn no_more_is_read_than_a_control_frame_may_have() {
    let (frame, its_token, control) = controls()[5].clone();
    let mut parts = taken_apart(&frame);
    parts.push((200, alloc::vec![0; 255]));
    let left = MAX_CONTROL_BYTES - put_together(&frame, &parts).len() - 2;
    parts.push((201, alloc::vec![0; left]));
    assert_eq!(put_together(&frame, &parts).len(), MAX_CONTROL_BYTES);
    assert_eq!(Control::parse(&put_together(&frame, &parts)), Ok((its_token, control)));
    parts.last_mut().unwrap().1.push(0);
    assert_eq!(
        Control::parse(&put_together(&frame, &parts)),
        Err(WireError::TooLong { found: MAX_CONTROL_BYTES + 1, most: MAX_CONTROL_BYTES })
    );
}

#[test]
fn names_are_printable_ascii_without_slash_and_space() {
    let open = control_frame(ControlType::Open);
    for byte in 0..=u8::MAX {
        let frame = with_value(&open, fields::NAME, &[b'a', byte, b'z']);
        let possible = (0x21..=0x7E).contains(&byte) && byte != b'/';
        assert_eq!(Control::parse(&frame).is_ok(), possible, "{byte:#04x}");
    }
    let longest = with_value(&open, fields::NAME, &[b'n'; MAX_NAME_BYTES]);
    assert!(Control::parse(&longest).is_ok());
    assert_eq!(check_name("a/b"), Err(WireError::Name { found: b'/', at: 1 }));
    assert!(check_name("").is_err());
    assert!(check_name(core::str::from_utf8(&[b'n'; MAX_NAME_BYTES + 1]).unwrap()).is_err());
}

#[test]
fn details_are_utf8() {
    let refuse = control_frame(ControlType::Refuse);
    let cut = with_value(&refuse, fields::DETAIL, &[b'o', b'k', 0xC3]);
    assert_eq!(Control::parse(&cut), Err(WireError::Text { field: "detail", at: 2 }));
    let frame = with_value(&refuse, fields::DETAIL, "größer".as_bytes());
    let Ok((_, Control::Refuse(refuse))) = Control::parse(&frame) else { panic!("UTF-8 is read") };
    assert_eq!(refuse.detail, "größer");
}

#[test]
fn numbers_outside_their_range_are_named() {
    let open = control_frame(ControlType::Open);
    let range = |field, found, least, most| Err(WireError::Range(OutOfRange { field, found, least, most }));
    assert_eq!(Control::parse(&with_value(&open, fields::SERVICE, &[3])), range("service", 3, 0, 2));
    let (least, most) = (u64::from(MIN_PACKET_BYTES), u64::from(MAX_PACKET_BYTES));
    for found in [least - 1, most + 1] {
        let value = u16::try_from(found).unwrap().to_be_bytes();
        let expected = range("packet", found, least, most);
        assert_eq!(Control::parse(&with_value(&open, fields::PACKET, &value)), expected);
        let accept = control_frame(ControlType::Accept);
        assert_eq!(Control::parse(&with_value(&accept, fields::PACKET, &value)), expected);
    }
    let close = control_frame(ControlType::Close);
    assert_eq!(Control::parse(&with_value(&close, fields::REVERSE, &[255])), range("reverse", 255, 0, 1));
    let version = control_frame(ControlType::Version);
    assert_eq!(Control::parse(&with_value(&version, fields::LOWEST, &[4])), range("highest", 3, 4, 255));
}

#[test]
fn what_cannot_be_parsed_cannot_be_written() {
    let mut frame = [0; MAX_CONTROL_BYTES];
    let detail = core::str::from_utf8(&[b'd'; 121]).unwrap();
    let refuse = Control::Refuse(Refuse { refusal: Refusal::new(Code::Memory, Stage::Link), detail });
    assert!(matches!(refuse.write(0, &mut frame), Err(WireError::FieldLength { field: "detail", found: 121, .. })));
    let Control::Open(open) = controls()[0].2 else { panic!("the first is OPEN") };
    assert!(matches!(Control::Open(Open { name: "a b", ..open }).write(0, &mut frame), Err(WireError::Name { .. })));
    assert!(matches!(Control::Open(Open { packet: 1, ..open }).write(0, &mut frame), Err(WireError::Range(_))));
    for (golden, its_token, control) in controls() {
        for room in 0..golden.len() {
            let result = control.write(its_token, &mut frame[..room]);
            assert!(matches!(result, Err(WireError::Room { found, .. }) if found == room));
        }
        assert_eq!(control.write(its_token, &mut frame[..golden.len()]), Ok(golden.len()));
    }
    let data = header(100, 0, 100);
    for room in 0..152 {
        assert_eq!(data.write(&mut frame[..room]), Err(WireError::Room { found: room, expected: 152 }));
    }
    assert!(header(0, 0, 0).write(&mut frame).is_err());
    assert!(header(100, 0, 101).write(&mut frame).is_err());
    assert!(DataHeader { priority: 32, ..data }.write(&mut frame).is_err());
    assert!(DataHeader { epoch: 8, ..data }.write(&mut frame).is_err());
}

#[test]
fn data_numbers_outside_their_range_are_named() {
    let range = |field, found, least, most| Err(WireError::Range(OutOfRange { field, found, least, most }));
    assert_eq!(DataView::parse(&data_with(32, &[0, 0, 1])), range("payload", 3, 1, 2));
    assert_eq!(DataView::parse(&data_frame()[..DATA_HEADER_BYTES]), range("payload", 0, 1, 4099));
    let hour = 3_600_000_000_u32;
    assert!(DataView::parse(&data_with(40, &hour.to_be_bytes())).is_ok());
    let over = (hour + 1).to_be_bytes();
    assert_eq!(DataView::parse(&data_with(40, &over)), range("deadline", (hour + 1).into(), 0, hour.into()));
    let over = u16::try_from(MAX_PACKET_BYTES + 1).unwrap();
    let mut frame = data_with(32, &[u8::MAX; 3]);
    assert_eq!(DataView::parse(&frame).unwrap().header().message_bytes, MAX_MESSAGE_BYTES);
    frame.resize(DATA_HEADER_BYTES + usize::from(over), 0);
    assert_eq!(DataView::parse(&frame), range("payload", over.into(), 1, MAX_PACKET_BYTES.into()));
}

#[test]
fn a_fragment_fits_its_channel_or_is_refused() {
    let range = |field, found, least, most| Err(WireError::Range(OutOfRange { field, found, least, most }));
    assert_eq!(header(4099, 0, 4096).check(4096), Ok(()));
    assert_eq!(header(4099, 1, 3).check(4096), Ok(()));
    assert_eq!(header(4099, 2, 3).check(4096), range("index", 2, 0, 1));
    assert_eq!(header(4099, 0, 4095).check(4096), range("payload", 4095, 4096, 4096));
    assert_eq!(header(4099, 1, 4).check(4096), range("payload", 4, 3, 3));
    assert_eq!(header(4096, 0, 4096).check(4096), Ok(()));
    assert_eq!(header(1, 0, 1).check(4096), Ok(()));
    // A packet size that no channel has.
    assert_eq!(header(1, 0, 1).check(0), range("packet", 0, 1, 8900));
    assert_eq!(header(1, 0, 1).check(u32::MAX), range("packet", 4_294_967_295, 1, 8900));
    // More fragments than the index can name.
    assert_eq!(header(65_535 * 64, u16::MAX - 1, 64).check(64), Ok(()));
    assert_eq!(header(65_535 * 64 + 1, 0, 64).check(64), range("message_bytes", 4_194_241, 1, 4_194_240));
}

#[test]
fn accepted_packets_are_at_most_those_offered() {
    let Control::Accept(accept) = controls()[2].2 else { panic!("the third is ACCEPT") };
    assert_eq!(accept.check(1024), Ok(()));
    assert_eq!(
        accept.check(1023),
        Err(WireError::Range(OutOfRange { field: "packet", found: 1024, least: MIN_PACKET_BYTES.into(), most: 1023 }))
    );
}

#[test]
fn a_contract_is_rebuilt_within_every_limit() {
    let contract =
        Contract::new(8192, 64, Duration::from_millis(1), 2, Duration::from_millis(5)).map(Service::RealTime);
    let Control::Open(open) = controls()[0].2 else { panic!("the first is OPEN") };
    assert_eq!(Service::try_from(open.traffic), contract);
    assert_eq!(RequestedService::from(contract.unwrap()), open.traffic);
    let best_effort = Service::best_effort(4096, 16);
    let Control::Open(other) = controls()[1].2 else { panic!("the second is OPEN") };
    assert_eq!(Service::try_from(other.traffic), best_effort);
    assert_eq!(RequestedService::from(best_effort.unwrap()), other.traffic);

    // Hostile numbers are read, and refused with their reason.
    let frame = control_frame(ControlType::Open);
    let service = |field, value: &[u8]| match Control::parse(&with_value(&frame, field, value)) {
        Ok((_, Control::Open(open))) => Service::try_from(open.traffic),
        other => panic!("{other:?}"),
    };
    assert!(matches!(service(fields::MAX_MESSAGE, &[0xFF; 4]), Err(ContractError::Size { .. })));
    assert!(matches!(service(fields::MIN_MESSAGE, &[0; 4]), Err(ContractError::Size { .. })));
    assert!(matches!(service(fields::INTERVAL, &[0; 8]), Err(ContractError::Span { .. })));
    assert!(matches!(service(fields::DEADLINE, &[0xFF; 8]), Err(ContractError::Span { .. })));
    assert!(matches!(service(fields::BURST, &[0; 4]), Err(ContractError::Burst { .. })));
}

#[test]
fn a_refusal_arrives_as_it_was_meant() {
    let refusal = Refusal {
        at: Some(Instant::from_nanos(5)),
        least_deadline: Some(Duration::from_millis(7)),
        ..Refusal::new(Code::LinkDeadline, Stage::Link)
    };
    let refuse = Control::Refuse(Refuse { refusal, detail: "" });
    assert_eq!(Control::parse(&written(1, &refuse)), Ok((1, refuse)));
    let golden = control_frame(ControlType::Refuse);
    let unknown = with_value(&with_value(&golden, fields::CODE, &999_u16.to_be_bytes()), fields::STAGE, &[99]);
    let Ok((_, Control::Refuse(unknown))) = Control::parse(&unknown) else { panic!("all codes and stages are read") };
    assert_eq!((unknown.refusal.code, unknown.refusal.stage), (Code::Protocol, Stage::Route));
}

#[test]
fn a_relay_changes_the_receiver_and_the_evidence_and_nothing_else() {
    let mut frame = data_frame();
    let before = *DataView::parse(&frame).unwrap().header();
    write_receiver(&mut frame, 0x0102_0304, u64::MAX);
    write_evidence(&mut frame, Duration::from_micros(47), Duration::MAX);
    let after = DataView::parse(&frame).unwrap();
    let expected =
        DataHeader { channel: 0x0102_0304, key: u64::MAX, stolen_units: 2, waited_micros: u32::MAX, ..before };
    assert_eq!((*after.header(), after.payload()), (expected, &data_frame()[DATA_HEADER_BYTES..]));
}

#[test]
fn stolen_time_and_fragments_at_their_edges() {
    assert_eq!(micros_saturating(Duration::from_nanos(1_999)), 1);
    assert_eq!(micros_saturating(Duration::MAX), u32::MAX);
    assert_eq!([15_999, 16_000, u64::MAX].map(|nanos| stolen_units(Duration::from_nanos(nanos))), [0, 1, u16::MAX]);
    assert_eq!(fragment_bytes(100, 0, 0), None);
    assert_eq!(fragment_bytes(u32::MAX, u32::MAX, 0), None);
    assert_eq!(fragment_bytes(100, 50, 2), None);
    assert_eq!(fragment_bytes(101, 50, 2), Some(1));
}
