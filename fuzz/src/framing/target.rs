//! `--framing` and the streams that it describes: no option and no stream makes a reader panic, and what is cut into messages
//! is the stream that comes out again.

use super::framing::{Framing, Reader, Writer};

/// Largest message of the streams here; the reader needs memory for one.
const MOST: u32 = 1 << 10;

/// The input is an option, up to the first zero byte, and a stream.
pub fn framing(data: &[u8]) {
    let (option, stream) = match data.iter().position(|byte| *byte == 0) {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &data[..0]),
    };
    let framing = match String::from_utf8_lossy(option).parse::<Framing>() {
        Ok(framing) => framing,
        Err(what) => return assert!(!what.contains(char::is_control), "{what:?}"),
    };
    assert_eq!(framing.to_string().parse::<Framing>(), Ok(framing));
    if matches!(framing, Framing::Fixed(bytes) if bytes.get() > MOST) {
        // `laxity send` refuses it before it reads.
        return;
    }
    let mut reader = Reader::new(stream, framing, MOST);
    let (mut message, mut copy) = (Vec::new(), Vec::new());
    let mut writer = Writer::new(&mut copy, framing);
    let whole = loop {
        match reader.next(&mut message) {
            Ok(false) => break true,
            Ok(true) => {
                assert!((1..=MOST as usize).contains(&message.len()));
                writer.write(&message).expect("what was cut can be written");
            }
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control), "{error}");
                break false;
            }
        }
    };
    writer.flush().expect("memory takes everything");
    assert!(stream.starts_with(&copy), "another stream comes out");
    assert!(!whole || copy == stream, "the stream is not whole");
}
