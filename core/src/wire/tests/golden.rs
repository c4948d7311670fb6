//! Golden vectors, written by hand from docs/wire.md: other implementations of the formats can use them.

use super::*;
use crate::admission::{Code, Refusal, Stage};
use crate::cause::Misses;
use crate::clock::{ClockExchange, StampReport, WallReading};
use crate::limits::MAX_CONTROL_PAYLOAD;
use crate::units::{Duration, Instant, Rate};

const DATA: &str = "
    4C58                ; magic LX
    03                  ; major
    01                  ; kind: data
    00000007            ; channel
    DEADBEEFCAFEF00D    ; key
    0000000000000102    ; sequence: 258
    00000000075BCD15    ; logical_arrival: 123,456,789 ns
    001002              ; message_bytes - 1: 4098
    4D                  ; priority: 9, epoch: 5
    0001                ; index: the second fragment
    000C                ; stolen: 12 units of 16 us
    00000BB8            ; deadline: 3 ms
    00001388            ; waited: 5 ms
    00001B58            ; ahead: 7 ms
    6C 61 78            ; the bytes: 3, what 4096 leave of 4099
";

const OPEN: &str = "
    4C58 03 02          ; prefix: magic LX, major, kind: control
    01                  ; type: OPEN
    00                  ; minor
    0059                ; length: 89 = token 8, fields 81
    0123456789ABCDEF    ; token
    01 04 61726D31      ; name: arm1
    02 01 00            ; service: real-time
    03 04 00002000      ; max_message: 8192
    04 04 00000040      ; min_message: 64
    05 08 00000000000F4240 ; interval: 1 ms
    06 04 00000002      ; burst: 2
    07 08 00000000004C4B40 ; deadline: 5 ms
    08 02 0578          ; packet: 1400
    09 08 00000000000F4240 ; upstream: 1 ms
    0A 08 0000000077359400 ; lease: 2 s
    0B 08 00000000000000C1 ; clock: 193
";

const OPEN_BEST_EFFORT: &str = "
    4C58 03 02          ; prefix
    01                  ; type: OPEN
    00                  ; minor
    005F                ; length: 95 = token 8, fields 87
    0000000000000001    ; token
    01 03 6C6F67        ; name: log
    02 01 01            ; service: best effort
    03 04 00001000      ; max_message: 4096
    06 04 00000010      ; burst: a queue of 16
    08 02 0578          ; packet: 1400
    09 08 0000000000000000 ; upstream: 0
    0A 08 0000000077359400 ; lease: 2 s
    0B 08 0000000000000000 ; clock: shared with no host
    1E 01 04            ; oversize: 4 times
    23 08 0000000000BEBC20 ; link_rate: 12.5 MB/s
    24 08 0000000000042E50 ; ahead: 274 us
    25 08 000000000000A6E0 ; spacing: 42.72 us
";

const ACCEPT: &str = "
    4C58 03 02          ; prefix
    02                  ; type: ACCEPT
    00                  ; minor
    0044                ; length: 68 = token 8, fields 60
    0123456789ABCDEF    ; token
    0C 04 00000007      ; channel
    0D 08 DEADBEEFCAFEF00D ; key
    0E 08 00000000001E8480 ; receive: 2 ms
    08 02 0400          ; packet: 1024
    0A 08 000000003B9ACA00 ; lease: 1 s
    0B 08 00000000000000C1 ; clock: 193
    25 08 00000000005B8D80 ; spacing: 6 ms
";

const REFUSE: &str = "
    4C58 03 02          ; prefix
    03                  ; type: REFUSE
    00                  ; minor
    0029                ; length: 41 = token 8, fields 33
    0123456789ABCDEF    ; token
    0F 02 0007          ; code: deadline_sum
    10 01 04            ; stage: route
    11 08 0000000000030D40 ; at: 200 us
    12 08 00000000004F5880 ; least_deadline: 5.2 ms
    13 04 66756C6C      ; detail: full
";

const KEEPALIVE: &str = "
    4C58 03 02          ; prefix
    04                  ; type: KEEPALIVE
    00                  ; minor
    0047                ; length: 71 = token 8, fields 63
    0123456789ABCDEF    ; token
    0C 04 00000007      ; channel
    0D 08 DEADBEEFCAFEF00D ; key
    14 08 00000000000003E8 ; sent: 1000
    25 08 00000000005B8D80 ; spacing: 6 ms
    29 19 000000012A05F200 ; exchange: said 5 s,
          0000000077359400 ; heard what was said at 2 s,
          0000000129F6AFC0 ; at 4.999 s,
          03             ; epoch 3
";

const STATUS: &str = "
    4C58 03 02          ; prefix
    05                  ; type: STATUS
    00                  ; minor
    007A                ; length: 122 = token 8, fields 114
    0123456789ABCDEF    ; token
    15 08 00000000000003E4 ; delivered: 996
    16 08 0000000000000002 ; late: 2
    17 08 0000000000000001 ; lost: 1
    18 08 0000000000000001 ; dropped: 1
    19 08 0000000000432380 ; largest: 4.4 ms
    2A 08 0000000000000005 ; undecided: 5
    25 08 00000000005B8D80 ; spacing: 6 ms
    29 19 000000012A05F200 ; exchange: said 5 s,
          0000000000000000 ; heard nothing,
          0000000000000000 ;
          07             ; epoch 7
    32 0F FFFFFFFFC4653600 ; wall: 1 s behind,
          000F4240         ; 1 ms at most,
          0003E8           ; 1 ms ago
";

const CLOSE: &str = "
    4C58 03 02          ; prefix
    06                  ; type: CLOSE
    00                  ; minor
    0028                ; length: 40 = token 8, fields 32
    0123456789ABCDEF    ; token
    0C 04 00000007      ; channel
    0D 08 DEADBEEFCAFEF00D ; key
    14 08 00000000000003E8 ; sent: 1000
    1A 01 05            ; reason: 5
    1B 01 01            ; reverse: the receiver closes
";

const CLOSED: &str = "
    4C58 03 02          ; prefix
    07                  ; type: CLOSED
    00                  ; minor
    0062                ; length: 98 = token 8, fields 90
    0123456789ABCDEF    ; token
    15 08 00000000000003E4 ; delivered: 996
    16 08 0000000000000002 ; late: 2
    17 08 0000000000000001 ; lost: 1
    18 08 0000000000000001 ; dropped: 1
    19 08 0000000000432380 ; largest: 4.4 ms
    2D 08 0000000000000002 ; by_network: 2
    21 08 0000000000000001 ; laxity: 1
    30 08 0000000000000009 ; over_bound: 9
    31 08 00000000000061A8 ; clock_error: 25 us
";

const VERSION: &str = "
    4C58 03 02          ; prefix
    08                  ; type: VERSION
    00                  ; minor
    000E                ; length: 14 = token 8, fields 6
    0123456789ABCDEF    ; token
    1C 01 01            ; lowest: 1
    1D 01 03            ; highest: 3
";

const CHALLENGE: &str = "
    4C58 03 02          ; prefix
    09                  ; type: CHALLENGE
    00                  ; minor
    0008                ; length: 8 = token 8, no fields
    0123456789ABCDEF    ; token
";

const TOKEN: u64 = 0x0123_4567_89AB_CDEF;

pub(super) fn data_frame() -> Vec<u8> {
    hex(DATA)
}

/// Each golden control frame with what it says.
pub(super) fn controls() -> [(Vec<u8>, u64, Control<'static>); 10] {
    let counts = MessageCounts {
        delivered: 996,
        late: 2,
        lost: 1,
        dropped: 1,
        largest: Duration::from_micros(4_400),
        ..MessageCounts::default()
    };
    let said = ClockExchange { said: Instant::from_nanos(5_000_000_000), heard: None, epoch: 7, wall: None };
    let at = Instant::from_nanos(4_999_000_000);
    let wall = WallReading { at, ahead: -1_000_000_000, error: Duration::from_millis(1) };
    let heard = StampReport { said: Instant::from_nanos(2_000_000_000), heard_at: at };
    let open = Open {
        name: "arm1",
        traffic: RequestedService {
            service: ServiceKind::RealTime,
            max_message: 8192,
            min_message: 64,
            interval: Duration::from_millis(1),
            burst: 2,
            deadline: Duration::from_millis(5),
            catch_up: Duration::ZERO,
            tolerance: 0,
        },
        packet: 1400,
        upstream: Duration::from_millis(1),
        lease: Duration::from_secs(2),
        clock: 0xC1,
        oversize: 1,
        pace: SenderPace::default(),
    };
    let best_effort = Open {
        name: "log",
        traffic: RequestedService {
            service: ServiceKind::BestEffort,
            max_message: 4096,
            burst: 16,
            ..RequestedService::default()
        },
        upstream: Duration::ZERO,
        clock: 0,
        oversize: 4,
        pace: SenderPace {
            rate: Rate::bytes_per_second(12_500_000),
            ahead: Duration::from_micros(274),
            spacing: Duration::from_nanos(42_720),
        },
        ..open
    };
    let accept = Accept {
        channel: 7,
        key: 0xDEAD_BEEF_CAFE_F00D,
        receive: Duration::from_millis(2),
        packet: 1024,
        lease: Duration::from_secs(1),
        clock: 0xC1,
        spacing: Duration::from_millis(6),
    };
    let refusal = Refusal {
        at: Some(Instant::from_nanos(200_000)),
        least_deadline: Some(Duration::from_micros(5_200)),
        ..Refusal::new(Code::from_repr(7).unwrap(), Stage::from_repr(4).unwrap())
    };
    let refuse = Refuse { refusal, detail: "full" };
    let close = Close {
        channel: 7,
        key: 0xDEAD_BEEF_CAFE_F00D,
        sent: 1000,
        unsent: 0,
        reason: 5,
        reverse: true,
        exchange: None,
    };
    [
        (hex(OPEN), TOKEN, Control::Open(open)),
        (hex(OPEN_BEST_EFFORT), 1, Control::Open(best_effort)),
        (hex(ACCEPT), TOKEN, Control::Accept(accept)),
        (hex(REFUSE), TOKEN, Control::Refuse(refuse)),
        (
            hex(KEEPALIVE),
            TOKEN,
            Control::Keepalive(Keepalive {
                channel: 7,
                key: 0xDEAD_BEEF_CAFE_F00D,
                sent: 1000,
                unsent: 0,
                spacing: Duration::from_millis(6),
                exchange: Some(ClockExchange { heard: Some(heard), epoch: 3, ..said }),
            }),
        ),
        (
            hex(STATUS),
            TOKEN,
            Control::Status(Status {
                counts: MessageCounts { undecided: 5, ..counts },
                spacing: Duration::from_millis(6),
                exchange: Some(ClockExchange { wall: Some(wall), ..said }),
            }),
        ),
        (hex(CLOSE), TOKEN, Control::Close(close)),
        (
            hex(CLOSED),
            TOKEN,
            Control::Closed(MessageCounts {
                misses: Misses { network: 2, laxity: 1, ..Misses::default() },
                over_bound: 9,
                clock_error: Some(Duration::from_micros(25)),
                ..counts
            }),
        ),
        (hex(VERSION), TOKEN, Control::Version(Versions { lowest: 1, highest: 3 })),
        (hex(CHALLENGE), TOKEN, Control::Challenge),
    ]
}

#[test]
fn the_data_frame_is_read_and_written() {
    let header = DataHeader {
        channel: 7,
        key: 0xDEAD_BEEF_CAFE_F00D,
        message_bytes: 4099,
        sequence: 258,
        logical_arrival: Instant::from_nanos(123_456_789),
        index: 1,
        payload: 3,
        priority: 9,
        epoch: 5,
        deadline_micros: 3000,
        stolen_units: 12,
        waited_micros: 5000,
        ahead_micros: 7000,
    };
    let frame = data_frame();
    let view = DataView::parse(&frame).unwrap();
    assert_eq!(view.header(), &header);
    assert_eq!(view.payload(), b"lax");
    assert_eq!(view.header().check(4096), Ok(()));
    assert_eq!(written_data(&header, b"lax"), frame);
    assert_eq!(classify(&frame), Ok(FrameKind::Data));
    assert_eq!(token(&frame), None);
}

#[test]
fn each_control_frame_is_read_and_written() {
    for (frame, its_token, control) in controls() {
        assert_eq!(Control::parse(&frame), Ok((its_token, control)));
        assert_eq!(written(its_token, &control), frame);
        assert_eq!(classify(&frame), Ok(FrameKind::Control));
        assert_eq!(token(&frame), Some(its_token));
    }
}

#[test]
fn the_largest_type_with_all_its_fields_fits_into_a_control_frame() {
    let field = |field: &fields::Field| fields::FIELD_HEADER_BYTES + usize::from(field.most);
    let bytes = |control| CONTROL_HEADER_BYTES + Collected::of(control).iter().map(field).sum::<usize>() + SEAL_BYTES;
    let most = controls().iter().map(|(_, _, control)| bytes(control)).max().unwrap();
    assert!(most <= MAX_CONTROL_BYTES);
    assert_eq!(most, DATA_HEADER_BYTES + MAX_CONTROL_PAYLOAD as usize);
}

#[test]
fn the_golden_frames_cover_every_type() {
    let types: Vec<_> = controls().iter().map(|(_, _, control)| ControlType::from(control)).collect();
    assert!(ControlType::ALL.iter().all(|control_type| types.contains(control_type)));
}

#[test]
fn the_document_has_every_field_and_type() {
    let document = include_str!("../../../../docs/wire.md");
    for field in fields::ALL {
        let bytes = if field.least == field.most {
            alloc::format!("{}", field.most)
        } else {
            alloc::format!("{} to {}", field.least, field.most)
        };
        let row = alloc::format!("| {} | {} | {bytes} |", field.tag, field.name);
        assert!(document.contains(&row), "docs/wire.md lacks {row}");
    }
    for &control_type in ControlType::ALL {
        let start =
            alloc::format!("| {} | {} |", control_type as u8, alloc::format!("{control_type:?}").to_uppercase());
        let row = document.lines().find(|line| line.starts_with(&start)).expect("a row for each type");
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        let (_, _, control) =
            controls().into_iter().find(|(.., control)| ControlType::from(control) == control_type).unwrap();
        let names = |mandatory| -> Vec<_> {
            Collected::of(&control)
                .iter()
                .filter(|field| is_mandatory(control_type, **field) == mandatory)
                .map(|field| field.name)
                .collect()
        };
        assert_eq!(columns[4], names(true).join(", "), "{control_type:?}");
        assert_eq!(columns[5], names(false).join(", "), "{control_type:?}");
    }
}
