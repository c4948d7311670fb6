//! Helpers that the tests share: frames from hex, and frames taken apart into fields.

mod golden;
mod hostile;
mod properties;

use super::*;
use alloc::vec::Vec;

/// True if a frame of this type cannot do without `field`, one of its fields; `interval` and `deadline` are mandatory for a real-time channel only.
fn is_mandatory(control_type: ControlType, field: fields::Field) -> bool {
    let optional: &[fields::Field] = match control_type {
        ControlType::Open => &[
            fields::MIN_MESSAGE,
            fields::INTERVAL,
            fields::DEADLINE,
            fields::OVERSIZE,
            fields::LINK_RATE,
            fields::AHEAD,
            fields::CATCH_UP,
            fields::TOLERANCE,
            fields::SPACING,
        ],
        ControlType::Accept => &[fields::SPACING],
        ControlType::Refuse => &[fields::AT, fields::LEAST_DEADLINE, fields::DETAIL],
        ControlType::Keepalive => &[fields::UNSENT, fields::SPACING, fields::EXCHANGE, fields::WALL],
        ControlType::Close => &[fields::REASON, fields::REVERSE, fields::UNSENT, fields::EXCHANGE, fields::WALL],
        ControlType::Status | ControlType::Closed => &[
            fields::UNDECIDED,
            fields::BY_SENDER,
            fields::BY_RECEIVER,
            fields::BY_NETWORK,
            fields::BY_PLATFORM,
            fields::LAXITY,
            fields::UNEXPLAINED,
            fields::OVER_BOUND,
            fields::CLOCK_ERROR,
            fields::SPACING,
            fields::EXCHANGE,
            fields::WALL,
        ],
        _ => &[],
    };
    !optional.contains(&field)
}

/// The fields that a message passes over, in the order in which they are written.
struct Collected(Vec<fields::Field>);

impl Collected {
    fn of(control: &Control<'_>) -> Vec<fields::Field> {
        let mut collected = Self(Vec::new());
        control.pass(&mut collected).expect("it is within its ranges");
        collected.0
    }
}

impl<'a> fields::Pass<'a> for Collected {
    fn optional(&mut self, field: fields::Field, value: Option<u64>) -> Result<Option<u64>, WireError> {
        self.0.push(field);
        Ok(value)
    }
    fn text(&mut self, field: fields::Field, text: Option<&'a str>) -> Result<Option<&'a str>, WireError> {
        self.0.push(field);
        Ok(text)
    }
    fn array<const N: usize>(
        &mut self,
        field: fields::Field,
        bytes: Option<[u8; N]>,
    ) -> Result<Option<[u8; N]>, WireError> {
        self.0.push(field);
        Ok(bytes)
    }
}

/// The bytes of golden vectors: hex digits, white space, and a comment from ';' to the end of the line.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split(';').next().unwrap().chars())
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| u8::try_from(digit.to_digit(16).expect("a hex digit")).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2), "a byte has two digits");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A control frame as it was written.
fn written(token: u64, control: &Control<'_>) -> Vec<u8> {
    let mut frame = [0xAA; MAX_CONTROL_BYTES];
    let bytes = control.write(token, &mut frame).expect("a frame can be written");
    frame[..bytes].to_vec()
}

/// A data frame as it was written.
fn written_data(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut frame = alloc::vec![0xAA; header.frame_bytes()];
    header.write(&mut frame).expect("a header can be written").copy_from_slice(payload);
    frame
}

/// The fields of a well-formed control frame: tag and value.
fn taken_apart(frame: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &frame[CONTROL_HEADER_BYTES..];
    let mut fields = Vec::new();
    while let [tag, length, tail @ ..] = rest {
        let (value, tail) = tail.split_at(usize::from(*length));
        fields.push((*tag, value.to_vec()));
        rest = tail;
    }
    fields
}

/// The header of `frame` with other fields and the length that belongs to them.
fn put_together(frame: &[u8], fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut frame = frame[..CONTROL_HEADER_BYTES].to_vec();
    for (tag, value) in fields {
        frame.extend([*tag, u8::try_from(value.len()).unwrap()]);
        frame.extend(value);
    }
    let length = u16::try_from(frame.len() - 8).unwrap();
    frame[6..8].copy_from_slice(&length.to_be_bytes());
    frame
}
